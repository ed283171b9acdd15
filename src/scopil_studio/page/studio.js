import { ask, enter, fill, h, say } from "./dom.js";

const PAGES = { record: "./record.js", watch: "./watch.js", compare: "./compare.js", read: "./read.js" };
let leave = () => {};

async function show() {
  await enter().catch(() => {}); // the next request says why
  const name = location.hash.slice(2).split("?")[0] in PAGES ? location.hash.slice(2).split("?")[0] : "record";
  const main = document.getElementById("main");
  leave();
  leave = () => {};
  say("");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · scopil studio`;
  fill(main, h("p", { className: "quiet" }, "Reading the folder …"));
  try {
    const page = await import(PAGES[name]);
    const overview = await ask("overview");
    document.getElementById("folder").textContent = overview.folder;
    leave = (await page.open(main, overview)) ?? (() => {});
  } catch (error) {
    fill(main);
    say(error.message, true);
  }
}

addEventListener("hashchange", show);
show();

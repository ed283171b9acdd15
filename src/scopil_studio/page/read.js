// Reports written by `scopil report`, `scopil study` and `scopil reproduce`.
import { ask, field, fill, h, options, showErrors } from "./dom.js";

export async function open(main, overview) {
  const head = [h("h1", {}, "Read"), h("p", { className: "lead" }, "Reports of studies and runs in this folder.")];
  if (!overview.reports.length) {
    fill(main, head, h("p", { className: "panel" }, "There is no report.html yet. ", h("code", {}, "scopil report FOLDER"), " writes one for a study."));
    return;
  }
  const frame = h("iframe", { title: "The report" });
  frame.setAttribute("sandbox", "");
  const show = showErrors(async () => (frame.src = (await ask("report", { name: pick.value })).at));
  const pick = h("select", { onchange: show }, options(overview.reports.map((name) => [name, name === "." ? "this folder" : name]), overview.reports[0]));
  fill(main, head, h("div", { className: "fields panel" }, field("Report", pick)), frame);
  await show();
}

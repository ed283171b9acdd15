"""SafeQIL: whole updates against NumPy for both kinds of actions, the demonstrated targets, and a probe."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import as_type, layers
from reference import soft_numpy as ref
from reference import squashed_numpy as squashed
from scopil.algos import sac, safe_qil
from scopil.algos.base import Data, Spaces
from scopil.config import build
from scopil.data.dataset import DemoTransitions
from scopil.errors import DatasetError
from scopil.losses.soft import REPARAMETRISED
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.types import Transition

QUICK = {"xla_backend_optimization_level": 0}  # compile time is most of these tests
OBS, ACTIONS, ROWS, SHOWN, DRAWN = 3, 4, 12, 9, 7
LOW, HIGH = np.array([-1.0, 0.0]), np.array([3.0, 0.5])
HEADS = {"numbered": DiscreteHead(ACTIONS), "continuous": BoxHead(jnp.asarray(LOW), jnp.asarray(HIGH))}
SETTINGS: dict[str, Any] = {
    "hidden": (5,), "discount": 0.9, "learning_rate": 1e-2, "alpha_lr": 3e-2, "polyak": 0.1, "log_alpha_init": -0.7,
    "target_entropy": 0.9, "batch_size": ROWS, "demo_batch_size": DRAWN, "discriminator_lr": 2e-2, "replay_size": 64,
    "gradient_penalty": 0.3,
}  # fmt: skip
# Three episodes: the first and the last end in a final state, the second is cut off.
EPISODE = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2])
TERMINATED = np.array([0, 0, 0, 1, 0, 0, 0, 0, 1], bool)
CUT_OFF = 6


def actions(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    return rng.uniform(LOW, HIGH, (count, 2)) if kind == "continuous" else rng.integers(ACTIONS, size=count)


def replayed(kind: str, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "obs": rng.normal(size=(ROWS, OBS)),
        "action": actions(rng, kind, ROWS),
        "reward": rng.normal(size=ROWS),
        "next_obs": rng.normal(size=(ROWS, OBS)),
        "terminated": np.arange(ROWS) % 4 == 0,
        "truncated": np.arange(ROWS) % 4 == 1,
    }


def demonstrated(kind: str) -> DemoTransitions:
    rng = np.random.default_rng(100)
    obs, after = rng.normal(size=(2, SHOWN, OBS))
    return DemoTransitions(obs, actions(rng, kind, SHOWN), after, EPISODE, rng.normal(size=SHOWN), TERMINATED, EPISODE)


# --- the twin: D and the critics' loss are written out here, the rest of SAC is that of the references ---------------


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def input_slopes(net: ref.Net, x: np.ndarray) -> np.ndarray:
    """∇D of each row, by central differences."""
    out = np.zeros_like(x)
    for i, h in enumerate(1e-6 * np.eye(x.shape[1])):
        out[:, i] = (ref.forward(net, x + h)[0] - ref.forward(net, x - h)[0])[:, 0] / 2e-6
    return out


def discriminator_loss(net: ref.Net, demo: np.ndarray, own: np.ndarray, between: np.ndarray) -> float:
    fit = -np.log(sigmoid(ref.forward(net, demo)[0])).mean() - np.log(1 - sigmoid(ref.forward(net, own)[0])).mean()
    return float(fit + 0.3 * np.mean((np.sqrt((input_slopes(net, between) ** 2).sum(1) + 1e-12) - 1) ** 2))


class Twin:
    def __init__(self, state: safe_qil.State, kind: str):
        nets = [layers(n) for n in state.critics.params], [layers(n) for n in state.targets]
        parts: Any = (layers(state.actor.params), *nets, float(state.log_alpha.params), 0.0)
        self.continuous = kind == "continuous"
        self.sac: Any = squashed.Learner(*parts, low=LOW, high=HIGH) if self.continuous else ref.Learner(*parts)
        self.discriminator = layers(state.discriminator.params)
        zeros = [np.zeros_like(a) for a in ref.flat(self.discriminator)]
        self.adam = ref.Adam([*zeros], [*zeros])

    def q(self, net: ref.Net, x: np.ndarray, action: np.ndarray) -> np.ndarray:
        if self.continuous:
            return squashed.q_value(net, x, action)
        return ref.forward(net, x)[0][np.arange(len(action)), action]

    def next_values(self, x: np.ndarray, xi: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """E_{a~π} min_x Q_ψx(s',a), and with α H(π) added."""
        alpha = np.exp(self.sac.log_alpha)
        if xi is not None:
            action, log_pi = squashed.sampled(self.sac.actor, x, xi)
            low = np.minimum(*(self.q(n, x, action) for n in self.sac.targets))
            return low, low - alpha * log_pi
        log_pi = ref.log_softmax(ref.forward(self.sac.actor, x)[0])
        low = (np.exp(log_pi) * np.minimum(*(ref.forward(n, x)[0] for n in self.sac.targets))).sum(1)
        return low, low + alpha * ref.entropy(log_pi)

    def demo_targets(self, demos: DemoTransitions, view: Any, unit: Any) -> list[float | None]:
        """y₄ of each demonstrated step, one at a time; None where no action was demonstrated next."""
        out: list[float | None] = []
        for i in range(SHOWN):
            if demos.terminated[i]:
                out.append(float(demos.reward[i]))
            elif i + 1 < SHOWN and demos.episode[i + 1] == demos.episode[i]:
                x, action = view(demos.next_obs[i : i + 1]), unit(demos.action[i + 1 : i + 2])
                low = min(float(self.q(n, x, action)[0]) for n in self.sac.targets)
                out.append(float(demos.reward[i] + 0.9 * low))
            else:
                out.append(None)
        return out

    def step(self, rows: dict[str, np.ndarray], demos: DemoTransitions, draws: dict[str, Any]) -> dict[str, float]:
        view: Any = lambda obs: obs  # noqa: E731
        unit: Any = lambda action: action  # noqa: E731
        picked = (demos.obs[draws["rows"]], demos.action[draws["rows"]])
        if self.continuous:
            seer = replace(self.sac, seen=[*self.sac.seen, rows["obs"], picked[0]])
            view, unit = seer.view, self.sac.unit
        own, shown, action, shown_action = view(rows["obs"]), view(picked[0]), unit(rows["action"]), unit(picked[1])

        share = draws["share"]
        between = shown * share + own[: len(shown)] * (1 - share)
        value = lambda net: discriminator_loss(net, shown, own, between)  # noqa: E731
        log = {"discriminator/loss": value(self.discriminator)}
        grads = squashed.slopes(value, self.discriminator, 1e-5)
        self.discriminator = ref.unflat(self.adam.step(ref.flat(self.discriminator), grads, 2e-2))
        p = sigmoid(ref.forward(self.discriminator, own)[0])[:, 0]
        log["discriminator/own"] = float(p.mean())
        log["discriminator/demo"] = float(sigmoid(ref.forward(self.discriminator, shown)[0]).mean())

        low, soft = self.next_values(view(rows["next_obs"]), draws["noise"][0] if self.continuous else None)
        goes_on = 0.9 * (1.0 - rows["terminated"])
        y, y_2 = rows["reward"] + goes_on * soft, np.log(p) + goes_on * low
        y_4 = self.demo_targets(demos, view, unit)
        known = [i for i in range(SHOWN) if y_4[i] is not None]
        everything = view(demos.obs)
        cosine = [[o @ e / (np.linalg.norm(o) * np.linalg.norm(e)) for e in everything[known]] for o in own]
        y_3 = np.array([y_4[known[int(np.argmax(row))]] for row in cosine], float)
        y_demo = np.array([np.nan if y_4[i] is None else y_4[i] for i in draws["rows"]], float)

        def terms(net: ref.Net) -> np.ndarray:
            q, q_demo = self.q(net, own, action), self.q(net, shown, shown_action)
            fourth = np.where(np.isnan(y_demo), 0.0, (q_demo - np.nan_to_num(y_demo)) ** 2)
            above = np.where(q > y_3, q - y_3, 0.0)
            of_rows = [p * (q - y) ** 2, (1 - p) * (q - y_2) ** 2, (1 - p) * above**2]
            return 0.5 * np.array([*(np.mean(one) for one in of_rows), fourth.mean()])

        names = ("task", "unlike", "bound", "demo")
        both = terms(self.sac.critics[0]) + terms(self.sac.critics[1])
        log |= {f"critic/{n}_loss": float(v) for n, v in zip(names, both)}
        log["critic/q"] = float(self.q(self.sac.critics[0], own, action).mean())
        settings = squashed.Settings(0.9, 1e-2, 3e-2, 0.1, 0.9, imitates=False)
        with pytest.MonkeyPatch.context() as patch:  # the reference's step with this loss of the critics
            patch.setattr(squashed, "critic_loss", lambda net, *_: float(terms(net).sum()))
            patch.setattr(ref, "critic_loss", lambda net, *_: float(terms(net).sum()))
            slope = lambda net, *_: ref.unflat(squashed.slopes(lambda n: float(terms(n).sum()), net))  # noqa: E731
            patch.setattr(ref, "critic_grad", slope)
            if self.continuous:
                learned = squashed.step(self.sac, rows, picked, draws["noise"], settings)
            else:
                learned = ref.step(self.sac, rows, picked, settings)
        kept = ("critic/loss", "alpha/value", "alpha/entropy")
        return log | {name: float(learned[name]) for name in kept}


def draws(kind: str, key: Any) -> dict[str, Any]:
    """The random numbers of `update`."""
    k_demo, k_between, k_sac = jax.random.split(jax.random.clone(key), 3)
    drawn: dict[str, Any] = {
        "rows": np.asarray(jax.random.randint(k_demo, (DRAWN,), 0, SHOWN)),
        "share": np.asarray(jax.random.uniform(k_between, (DRAWN, 1))),
    }
    if kind == "continuous":
        drawn["noise"] = [np.asarray(x) for x in REPARAMETRISED.noise(k_sac, ROWS, DRAWN, HEADS[kind])]
    return drawn


def given(rows: dict[str, np.ndarray], demos: DemoTransitions) -> Data:
    return Data(replay=Transition(*map(jnp.asarray, rows.values())), demos=jax.tree.map(jnp.asarray, demos))


@pytest.mark.parametrize("kind", HEADS)
def test_updates_equal_numpys(kind):
    """Two whole updates: the discriminator, the four terms of the critics, the policy, the temperature, the targets."""
    cfg = build(safe_qil.Config, SETTINGS | {"normalise_obs": kind == "continuous"})
    with jax.enable_x64(True):
        head = as_type(HEADS[kind], float)
        state = as_type(safe_qil.init(jax.random.key(3), Spaces(OBS, head), cfg), float)
        twin, update = Twin(state, kind), jax.jit(safe_qil.update, compiler_options=QUICK)
        met: list[int] = []
        for seed in range(2):
            rows, demos, key = replayed(kind, seed), demonstrated(kind), jax.random.key(seed)
            state, metrics = update(state, given(rows, demos), cfg, jax.random.clone(key))
            drawn = draws(kind, key)
            met += drawn["rows"].tolist()
            for name, value in twin.step(rows, demos, drawn).items():
                assert float(metrics[name]) == pytest.approx(value, rel=1e-5), name
        assert CUT_OFF in met  # so that a step without a target is seen
        pairs = [
            ([state.discriminator.params], [twin.discriminator]),
            (state.critics.params, twin.sac.critics),
            ([state.actor.params], [twin.sac.actor]),
            (state.targets, twin.sac.targets),
        ]
        for have, want in pairs:
            for mine, other in zip(have, want, strict=True):
                for a, b in zip(ref.flat(layers(mine)), ref.flat(other), strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert float(state.log_alpha.params) == pytest.approx(twin.sac.log_alpha, rel=1e-5)


# --- demonstrated targets ------------------------------------------------------------------------------------------


def test_the_next_action_is_the_next_row_of_the_same_episode():
    demos = demonstrated("numbered")
    shown = safe_qil.with_next_actions(jax.tree.map(jnp.asarray, demos))
    np.testing.assert_array_equal(shown.known, np.arange(SHOWN) != CUT_OFF)
    inside = [0, 1, 2, 4, 5, 7]
    np.testing.assert_array_equal(shown.next_action[jnp.array(inside)], demos.action[np.array(inside) + 1])


def test_the_most_similar_state_has_the_largest_cosine():
    rng = np.random.default_rng(0)
    shown = rng.normal(size=(SHOWN, OBS)) * rng.uniform(0.1, 10, (SHOWN, 1))  # lengths differ
    own, known = rng.normal(size=(50, OBS)), np.arange(SHOWN) != 3
    got = safe_qil.most_similar(jnp.asarray(own, jnp.float32), jnp.asarray(shown, jnp.float32), jnp.asarray(known))
    cosine = own @ shown.T / np.linalg.norm(own, axis=1)[:, None] / np.linalg.norm(shown, axis=1)
    assert 3 in cosine.argmax(1)
    cosine[:, 3] = -2
    np.testing.assert_array_equal(got, cosine.argmax(1))


def test_demonstrations_without_rewards_are_refused():
    with pytest.raises(DatasetError, match="rewards"):
        safe_qil.with_next_actions(demonstrated("numbered")._replace(reward=None))


# --- a fork: the first action leads to a place, the second one ends the episode ---------------------------------------

PLACES = np.array([-1.0, 0.0, 1.0])  # reached by actions 0, 1 and 2, which pay 0, ½ and 1
PROBE: dict[str, Any] = {
    "hidden": (16,), "discount": 0.9, "learning_rate": 0.01, "alpha_lr": 0.0, "log_alpha_init": -3.0, "polyak": 0.05,
    "demo_batch_size": 16, "discriminator_lr": 0.01, "normalise_obs": False,
}  # fmt: skip
UNIT = BoxHead(-jnp.ones(1), jnp.ones(1))


def fork(kind: str) -> Transition:
    """Every step of the fork: place and clock are observed. A continuous action is the place itself."""
    places = PLACES if kind == "numbered" else np.linspace(-1, 1, 9)
    starts = [(0.0, 0.0), *((place, 1.0) for place in places)]
    table = [(place, clock, k) for place, clock in starts for k in range(len(places))]
    obs = np.array([row[:2] for row in table], np.float32)
    k = np.array([row[2] for row in table])
    reached = np.stack([places[k], obs[:, 1] + 1], axis=1).astype(np.float32)
    action = jnp.asarray(k) if kind == "numbered" else jnp.asarray(places[k, None], jnp.float32)
    reward, over = jnp.asarray((places[k] + 1) / 2, jnp.float32), jnp.asarray(obs[:, 1] == 1)
    return Transition(jnp.asarray(obs), action, reward, jnp.asarray(reached), over, jnp.zeros_like(over))


def shown_at(kind: str, place: float) -> DemoTransitions:
    """One episode that goes to `place` and repeats its action there."""
    obs = jnp.array([[0.0, 0.0], [place, 1.0], [place, 2.0]])
    action = jnp.full(2, int(place) + 1) if kind == "numbered" else jnp.full((2, 1), place)
    reward, last = jnp.full(2, (place + 1) / 2), jnp.array([False, True])
    return DemoTransitions(obs[:2], action, obs[1:], jnp.zeros(2, jnp.int32), reward, last)


@pytest.fixture(scope="module", params=["numbered", "continuous"])
def chosen(request):
    """`chosen(algorithm, place)`: the first and the second greedy place, with a demonstration at `place`."""
    kind = request.param
    head: Any = DiscreteHead(3) if kind == "numbered" else UNIT
    cfg = build(safe_qil.Config, PROBE)
    programs: dict[str, Any] = {}

    def train(algorithm: Any, demos: DemoTransitions) -> Any:
        data = Data(replay=fork(kind), demos=demos if algorithm is safe_qil else None)
        step = lambda i, s: algorithm.update(s, data, cfg, jax.random.fold_in(jax.random.key(1), i))[0]  # noqa: E731
        return jax.lax.fori_loop(0, 3_000, step, algorithm.init(jax.random.key(0), Spaces(2, head), cfg))

    def run(algorithm: Any, place: float) -> tuple[float, float]:
        program = programs.setdefault(algorithm.__name__, jax.jit(lambda demos: train(algorithm, demos)))
        act = sac.policy(program(shown_at(kind, place))).act
        to_place = (lambda a: PLACES[int(a[0])]) if kind == "numbered" else (lambda a: float(a[0, 0]))
        first = to_place(act(jnp.zeros((1, 2))))
        return first, to_place(act(jnp.array([[first, 1.0]])))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("place", [-1.0, 0.0])
def test_it_goes_where_the_demonstrator_went_and_takes_the_best_paid_action_after_the_last_state(chosen, place):
    """D sees states. The last action leads to no state that is compared: its demonstration is not followed."""
    first, last = chosen(safe_qil, place)
    assert first == pytest.approx(place, abs=0.2)
    assert last > 0.5


@pytest.mark.slow
def test_sac_goes_where_the_reward_is_highest(chosen):
    assert chosen(sac, 0.0)[0] > 0.8

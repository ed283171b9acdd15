"""The SAC-Lagrangian oracles, with ascent and with a PID multiplier: their update against NumPy for both kinds of
actions, a bandit whose better arm violates a rule, and where costs come from."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from probes import SMALL, Probe, as_type, layers
from reference import soft_numpy as ref
from reference import squashed_numpy as squashed
from scopil.algos import pid_lagrangian, sac, sac_lagrangian
from scopil.algos.base import Data, Spaces, TrueCost
from scopil.algos.sac_lagrangian import Config
from scopil.envs.jax_env import CompiledEnv
from scopil.errors import EnvError
from scopil.losses.soft import REPARAMETRISED
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.serialization import load_tree, save_tree
from scopil.train.loop import make_loop
from scopil.types import Transition

OBS, ACTIONS, ROWS = 3, 4, 12
CONFIG = Config(
    hidden=(6, 5), discount=0.9, cost_discount=0.7, learning_rate=1e-2, alpha_lr=3e-2, polyak=0.1,
    log_alpha_init=-0.7, target_entropy=0.9, multiplier_init=0.75, multiplier_lr=0.05, budget=0.1,
)  # fmt: skip
ALPHA, EDGE = 0.2, 1.0  # of the bandit: a fixed temperature, and what the arm that violates a rule earns more


def data(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Steps of which some terminate and some are truncated, their costs, and the newest costs."""
    rng = np.random.default_rng(seed)
    rows = {
        "obs": rng.normal(size=(ROWS, OBS)),
        "action": rng.integers(ACTIONS, size=ROWS),
        "reward": rng.normal(size=ROWS),
        "next_obs": rng.normal(size=(ROWS, OBS)),
        "terminated": np.arange(ROWS) % 4 == 0,
        "truncated": np.arange(ROWS) % 4 == 1,
    }
    return rows, rng.random(ROWS), rng.random(2)


GAINS: dict[str, Any] = {"gain_proportional": 2.0, "gain_integral": 0.5, "gain_derivative": 3.0, "smoothing": 0.6}
PID = pid_lagrangian.SACConfig(**{k: v for k, v in vars(CONFIG).items() if "multiplier" not in k}, **GAINS)
VARIANTS = {"ascent": (sac_lagrangian.ORACLE, CONFIG), "pid": (pid_lagrangian.SAC_ORACLE, PID)}
both_variants = pytest.mark.parametrize("variant", VARIANTS)


class Ascent:
    """ν ← [ν + η_ν (c̄ − budget)]₊; the policy's loss as it is."""

    nu = 0.75

    def share(self) -> float:
        return 1.0

    def follow(self, excess: float) -> None:
        self.nu = max(self.nu + 0.05 * excess, 0.0)


class Pid(Ascent):
    """Every error so far is kept; the policy's loss is divided by 1 + ν."""

    nu = 0.0

    def __init__(self):
        self.errors, self.sum = [0.0], 0.0

    def share(self) -> float:
        return 1.0 / (1.0 + self.nu)

    def follow(self, excess: float) -> None:
        self.errors.append(0.6 * self.errors[-1] + 0.4 * excess)
        new, old = self.errors[-1], self.errors[-2]
        self.sum = max(self.sum + new, 0.0)
        self.nu = max(2.0 * new + 0.5 * self.sum + 3.0 * max(new - old, 0.0), 0.0)


DUALS = {"ascent": Ascent, "pid": Pid}


class Twin:
    """SAC's parts are those of a reference; the cost critics and the multiplier are written out here."""

    def __init__(self, state: Any, learner: Any, variant: str):
        self.dual = DUALS[variant]()
        self.sac = learner
        self.critics = [layers(n) for n in state.cost_critics.params]
        self.targets = [layers(n) for n in state.cost_targets]
        zeros = [np.zeros_like(a) for n in self.critics for a in ref.flat(n)]
        self.adam = ref.Adam([*zeros], [*zeros])

    def fit(self, grads: list[np.ndarray]) -> None:
        """One Adam step of both cost critics."""
        params = self.adam.step([a for n in self.critics for a in ref.flat(n)], grads, 1e-2)
        half = len(params) // 2
        self.critics = [ref.unflat(params[:half]), ref.unflat(params[half:])]

    def follow(self, newest: np.ndarray) -> dict[str, float]:
        """The multiplier and the targets."""
        self.dual.follow(newest.mean() - 0.1)
        self.targets = ref.tracked(self.targets, self.critics, 0.1)
        return {"dual/lambda": self.dual.nu, "cost/mean": float(newest.mean())}


def sac_parts(state: Any) -> tuple[Any, ...]:
    nets = layers(state.actor.params), [layers(n) for n in state.critics.params], [layers(n) for n in state.targets]
    return *nets, float(state.log_alpha.params), 0.0


class DiscreteTwin(Twin):
    def __init__(self, state: Any, variant: str):
        super().__init__(state, ref.Learner(*sac_parts(state)), variant)
        self.settings = ref.Settings(0.9, 1e-2, 3e-2, 0.1, 0.9, imitates=False)

    def step(self, rows: dict[str, np.ndarray], cost: np.ndarray, newest: np.ndarray) -> dict[str, float]:
        s = self.settings
        obs, action = rows["obs"], rows["action"]
        pi = np.exp(ref.log_softmax(ref.forward(self.sac.actor, rows["next_obs"])[0]))
        later = np.mean([ref.forward(n, rows["next_obs"])[0] for n in self.targets], axis=0)
        y = cost + 0.7 * np.where(rows["terminated"], 0.0, (pi * later).sum(1))
        log = {"cost_critic/loss": sum(ref.critic_loss(n, obs, action, y) for n in self.critics)}
        grads = [g for n in self.critics for g in ref.flat(ref.critic_grad(n, obs, action, y))]
        self.fit(grads)

        # To the policy the penalty is a part of Q: its reference step is SAC's with Q − ν Q^c.
        q_c = np.mean([ref.forward(n, obs)[0] for n in self.critics], axis=0)
        before = np.exp(ref.log_softmax(ref.forward(self.sac.actor, obs)[0]))
        log["actor/harm"] = float((before * q_c).sum(1).mean())
        gradient, penalty, share = ref.lagrangian_grad, self.dual.nu * q_c, self.dual.share()

        def penalised(actor: ref.Net, obs: np.ndarray, q: np.ndarray, *rest: Any) -> ref.Net:
            return [(share * w, share * b) for w, b in gradient(actor, obs, q - penalty, *rest)]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ref, "lagrangian_grad", penalised)
            log |= ref.step(self.sac, rows, (np.zeros((0, OBS)), np.zeros(0, int)), s)

        return log | self.follow(newest)


def given(rows: dict[str, np.ndarray], cost: np.ndarray, newest: np.ndarray) -> Data:
    steps = Transition(*map(jnp.asarray, rows.values()))
    return Data(replay=steps, true_cost=TrueCost(jnp.asarray(cost), jnp.asarray(newest)))


@both_variants
def test_updates_equal_the_hand_written_ones(variant):
    algorithm, cfg = VARIANTS[variant]
    with jax.enable_x64(True):
        state = as_type(algorithm.init(jax.random.key(3), Spaces(OBS, DiscreteHead(ACTIONS)), cfg), float)
        twin = DiscreteTwin(state, variant)
        update = jax.jit(algorithm.update, compiler_options={"xla_backend_optimization_level": 0})
        for seed in range(3):
            rows, cost, newest = data(seed)
            state, metrics = update(state, given(rows, cost, newest), cfg, jax.random.key(seed))
            for key, value in twin.step(rows, cost, newest).items():
                assert float(metrics[key]) == pytest.approx(value, rel=1e-9), key
        same(state, twin, 1e-9)


def same(state: Any, twin: Any, tolerance: float) -> None:
    pairs = [
        ([state.actor.params], [twin.sac.actor]),
        (state.critics.params, twin.sac.critics),
        (state.targets, twin.sac.targets),
        (state.cost_critics.params, twin.critics),
        (state.cost_targets, twin.targets),
    ]
    for have, want in pairs:
        for mine, other in zip(have, want, strict=True):
            for a, b in zip(ref.flat(layers(mine)), ref.flat(other), strict=True):
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 100)
    assert float(state.log_alpha.params) == pytest.approx(twin.sac.log_alpha, rel=tolerance)


# --- continuous actions --------------------------------------------------------------------------------------------

LOW, HIGH = np.array([-1.0, 0.0]), np.array([3.0, 0.5])
Q = squashed.q_value


class ContinuousTwin(Twin):
    """With numerical gradients."""

    def __init__(self, state: Any, variant: str):
        super().__init__(state, squashed.Learner(*sac_parts(state), low=LOW, high=HIGH), variant)
        self.settings = squashed.Settings(0.9, 1e-2, 3e-2, 0.1, -1.6, imitates=False)

    def step(
        self, rows: dict[str, np.ndarray], cost: np.ndarray, newest: np.ndarray, noise: tuple[np.ndarray, ...]
    ) -> dict[str, float]:
        view = replace(self.sac, seen=[*self.sac.seen, rows["obs"]])
        x, x_next, action = view.view(rows["obs"]), view.view(rows["next_obs"]), view.unit(rows["action"])
        later, _ = squashed.sampled(self.sac.actor, x_next, noise[0])
        v = np.mean([Q(n, x_next, later) for n in self.targets], axis=0)
        y = cost + 0.7 * np.where(rows["terminated"], 0.0, v)
        log = {"cost_critic/loss": sum(squashed.critic_loss(n, x, action, y) for n in self.critics)}
        grads = [g for n in self.critics for g in squashed.slopes(lambda m: squashed.critic_loss(m, x, action, y), n)]
        self.fit(grads)

        def harm(actor: ref.Net) -> float:
            drawn, _ = squashed.sampled(actor, x, noise[1])
            return float(np.mean([Q(n, x, drawn) for n in self.critics]))

        log["actor/harm"] = harm(self.sac.actor)
        value, nu, share = squashed.lagrangian, self.dual.nu, self.dual.share()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(squashed, "lagrangian", lambda actor, *rest: share * (value(actor, *rest) + nu * harm(actor)))
            log |= squashed.step(self.sac, rows, None, (noise[0], noise[1], noise[1]), self.settings)
        return log | self.follow(newest)


@both_variants
def test_continuous_updates_equal_the_numerical_ones(variant):
    algorithm, cfg = VARIANTS[variant]
    cfg = replace(cfg, hidden=(5,), target_entropy=-1.6, normalise_obs=True)
    with jax.enable_x64(True):
        head = BoxHead(jnp.asarray(LOW), jnp.asarray(HIGH))
        state = as_type(algorithm.init(jax.random.key(3), Spaces(OBS, head), cfg), float)
        twin = ContinuousTwin(state, variant)
        update = jax.jit(algorithm.update)
        for seed in range(2):
            rows, cost, newest = data(seed)
            rows["action"] = np.random.default_rng(seed).uniform(LOW, HIGH, (ROWS, 2))
            state, metrics = update(state, given(rows, cost, newest), cfg, jax.random.key(seed))
            noise = REPARAMETRISED.noise(jax.random.key(seed), ROWS, 0, head)
            wanted = twin.step(rows, cost, newest, tuple(np.asarray(x) for x in noise))
            for key, value in wanted.items():
                assert float(metrics[key]) == pytest.approx(value, rel=1e-6), key
        same(state, twin, 1e-6)


# --- a bandit whose better arm, 1, violates a rule -----------------------------------------------------------------


@pytest.fixture(scope="module", params=VARIANTS)
def bandit(request):
    """π(arm 1) and ν at the end, with the cost the policy expects in place of the newest one's noise."""
    arm, ones = jnp.arange(8) % 2, jnp.ones((8, 1))
    step = Transition(ones, arm, EDGE * arm, ones, jnp.ones(8, bool), jnp.zeros(8, bool))

    def chosen(state: Any) -> jax.Array:
        pi: Any = sac.policy(state).distribution(jnp.ones((1, 1)))
        return pi.probs[:, 1]

    algorithm = VARIANTS[request.param][0]
    speed: Any = {"multiplier_init": 0.0, "multiplier_lr": 5e-2}
    if request.param == "pid":
        speed = {"gain_integral": 5e-2, "smoothing": 0.9}

    @jax.jit
    def train(cfg: Any, price: jax.Array):
        def improve(_: Any, state: Any) -> Any:
            costs = TrueCost(price * arm, price * chosen(state))
            given = Data(replay=step, true_cost=costs)
            return algorithm.update(state, given, cfg, jax.random.key(0))[0]

        state = algorithm.init(jax.random.key(1), Spaces(1, DiscreteHead(2)), cfg)
        state = jax.lax.fori_loop(0, 20_000, improve, state)
        return chosen(state)[0], jax.tree.leaves(state.multiplier)[-1]

    def run(budget: float = 0.0, price: float = 1.0) -> tuple[float, float]:
        rates: Any = {"learning_rate": 3e-3, "alpha_lr": 0.0, "log_alpha_init": math.log(ALPHA)}
        p, nu = train(algorithm.config(hidden=(4,), budget=budget, **rates, **speed), jnp.float32(price))
        return float(p), float(nu)

    return run


def test_a_binding_budget_has_the_closed_form(bandit):
    """π(1) = b, and α log(b/(1−b)) = edge − ν."""
    p, nu = bandit(budget=0.1)
    assert p == pytest.approx(0.1, abs=1e-3)
    assert nu == pytest.approx(EDGE - ALPHA * math.log(0.1 / 0.9), abs=1e-2)


def test_without_a_budget_the_multiplier_rises_until_the_violation_stops(bandit):
    p, nu = bandit()
    assert nu > EDGE  # the arm no longer pays
    assert p == pytest.approx(1 / (1 + math.exp((nu - EDGE) / ALPHA)), abs=1e-3)
    assert p < 0.01


def test_without_costs_the_multiplier_stays_zero(bandit):
    p, nu = bandit(price=0.0)
    assert nu == 0.0
    assert p == pytest.approx(1 / (1 + math.exp(-EDGE / ALPHA)), abs=1e-3)


# --- the loop ------------------------------------------------------------------------------------------------------


class Tempting(Probe):
    """Two steps per episode. The better arm violates a rule, and the cost of a state says which step led there."""

    def transition(self, state, action, rng, params=None):
        return state._replace(clock=state.clock + 1, sign=action * 1.0)

    def reward(self, state, action, next_state, rng, params=None):
        return EDGE * action

    def terminal(self, state, rng, params=None):
        return state.clock >= 2

    def transition_info(self, state, action, next_state, params=None):
        return {"cost": next_state.sign * next_state.clock}


LOOP_CONFIG = Config(**SMALL, num_envs=2, learning_rate=3e-3, multiplier_lr=2e-2)


@pytest.fixture(scope="module")
def loop():
    return make_loop(sac_lagrangian.ORACLE, CompiledEnv(Tempting()))


def test_the_replay_keeps_the_cost_of_the_state_reached_and_the_oracle_avoids_it(loop):
    state, metrics = loop.run_iterations(loop.start(jax.random.key(0), LOOP_CONFIG), LOOP_CONFIG, 2000)
    # obs, action, reward, next_obs, terminated, truncated, cost; an episode ends on its second step, at twice the cost
    rows = np.asarray(state.replay.rows)
    action, terminated, cost = rows[:, 1], rows[:, 4], rows[:, 6]
    assert {*cost} == {0.0, 1.0, 2.0}
    np.testing.assert_array_equal(cost, action * (1 + terminated))
    # ν has added up every newest cost, each once
    rise = 2000 * LOOP_CONFIG.multiplier_lr * float(metrics["cost/mean"])
    assert float(state.learner.multiplier) == pytest.approx(LOOP_CONFIG.multiplier_init + rise, rel=1e-3)
    pi: Any = sac.policy(state.learner).distribution(jnp.ones((1, 1)))
    assert float(pi.probs[0, 1]) < 0.1


def test_a_saved_state_goes_on_to_the_same_bits(loop, tmp_path):
    def bits(state: Any) -> list[bytes]:
        return [np.asarray(x).tobytes() for x in jax.tree.leaves((state.learner, state.replay))]

    state, _ = loop.run_iterations(loop.start(jax.random.key(1), LOOP_CONFIG), LOOP_CONFIG, 20)
    save_tree(tmp_path / "state", state, {})
    again, _ = load_tree(tmp_path / "state", jax.eval_shape(loop.init, jax.random.key(0), LOOP_CONFIG))
    whole, _ = loop.run_iterations(state, LOOP_CONFIG, 20)
    assert bits(loop.run_iterations(again, LOOP_CONFIG, 20)[0]) == bits(whole)


def test_an_environment_without_costs_is_refused():
    with pytest.raises(EnvError, match="true cost"):
        make_loop(sac_lagrangian.ORACLE, CompiledEnv(Probe()))

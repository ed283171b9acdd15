"""ICRL's backward phase for both kinds of actions: against NumPy, its stops, what it learns, and when it is due."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import probes
from reference import icrl_numpy as ref
from reference import ppo_numpy
from scopil.algos import icrl
from scopil.algos.base import Data, PaddedEpisodes, Spaces
from scopil.nn.heads import BoxHead, DiscreteHead
from scopil.types import Transition

QUICK = {"xla_backend_optimization_level": 0}  # compile time is most of these tests
OBS, ACTIONS = 2, 3
CONFIG: dict[str, Any] = {"hidden": (4,), "constraint_hidden": (5,), "num_envs": 2, "constraint_lr": 0.02}


KINDS = ("numbered", "continuous")


@pytest.fixture(scope="module")
def learn():
    """`learn(changes, outer)`: one backward phase from one and the same beginning."""
    step = jax.jit(icrl.backward, compiler_options=QUICK)
    began = {kind: icrl.init(jax.random.key(0), Spaces(OBS, head(kind)), icrl.Config(**CONFIG)) for kind in KINDS}

    def run(
        outer: int = 0,
        expert: PaddedEpisodes | None = None,
        nominal: PaddedEpisodes | None = None,
        kind: str = "numbered",
        **changes: Any,
    ):
        state, played = began[kind], (expert or experts(kind), nominal or nominals(kind))
        return state, *step(state, *played, icrl.Config(**CONFIG | changes), jnp.int32(outer))

    return run


def head(kind: str) -> Any:
    return DiscreteHead(ACTIONS) if kind == "numbered" else BoxHead(-jnp.ones(2), 3 * jnp.ones(2))


def episodes(seed: int, count: int, kind: str, choice: tuple[int, ...]) -> PaddedEpisodes:
    """Episodes of different lengths; the padding holds extreme values, so that a missing mask shows."""
    rng = np.random.default_rng(seed)
    mask = np.arange(8) < rng.integers(3, 9, size=(count, 1))
    obs = np.where(mask[..., None], rng.normal(size=(count, 8, OBS)), 1e6)
    action = np.where(mask, rng.choice(choice, size=(count, 8)), 2).astype(np.int32)
    if kind == "continuous":
        spread = rng.uniform(-0.5, 0.5, (count, 8, 2)) + action[..., None]
        action = np.where(mask[..., None], spread, 1e3).astype(np.float32)
    return PaddedEpisodes(jnp.asarray(obs, jnp.float32), jnp.asarray(action), jnp.asarray(mask))


def experts(kind: str) -> PaddedEpisodes:
    return episodes(1, 4, kind, (0, 1))


def nominals(kind: str) -> PaddedEpisodes:
    return episodes(2, 6, kind, (0, 1, 2))


def layers(state: icrl.State) -> list[tuple[np.ndarray, np.ndarray]]:
    return probes.layers(state.constraint.params)


def pairs(played: PaddedEpisodes) -> ref.Pairs:
    rows = zip(*(np.asarray(leaf) for leaf in played))
    made = [(obs[mask].astype(np.float64), action[mask]) for obs, action, mask in rows]
    # The network sees vectors of the box [−1, 3] in [−1, 1].
    return [(obs, np.clip((a - 1.0) / 2.0, -1.0, 1.0) if a.ndim > 1 else a) for obs, a in made]


def zetas(net, played: PaddedEpisodes) -> list[np.ndarray]:
    return [ref.zeta(net, obs, action) for obs, action in pairs(played)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [(0.0, 0.0), (np.inf, 0.08)])
def test_a_backward_phase_equals_the_reference(learn, kind, bounds):
    """One step, which no bound prevents; and several steps, whose importance weights differ from 1, until a bound."""
    expert, nominal = experts(kind), nominals(kind)
    steps = 1 if bounds[0] == 0 else 15
    changes = {"max_forward_kl": bounds[0], "max_reverse_kl": bounds[1], "backward_iters": steps, "regulariser": 0.3}
    state, after, metrics = learn(kind=kind, **changes)
    net, made, losses = ref.phase(
        layers(state), pairs(expert), pairs(nominal), rate=0.02, steps=steps, rho=0.3, bounds=bounds
    )
    assert made == 1 if steps == 1 else 3 <= made < 15
    assert float(metrics["constraint/steps"]) == made
    np.testing.assert_allclose(ppo_numpy.flatten([layers(after)])[0], ppo_numpy.flatten([net])[0], atol=2e-5)
    np.testing.assert_allclose(metrics["constraint/loss"], losses[-1], rtol=1e-4)
    p = ref.products(zetas(net, nominal), zetas(layers(state), nominal))
    np.testing.assert_allclose(metrics["constraint/forward_kl"], ref.kl_forward(p), rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose(metrics["constraint/reverse_kl"], ref.kl_reverse(p), rtol=1e-2, atol=1e-5)
    for name, played in (("expert", expert), ("nominal", nominal)):
        cost = 1 - np.concatenate(zetas(net, played)).mean()
        np.testing.assert_allclose(metrics[f"constraint/{name}_cost"], cost, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_hand_written_gradient_is_the_slope(learn, kind):
    net = layers(learn(kind=kind, backward_iters=1)[0])
    expert, nominal, w = pairs(experts(kind)), pairs(nominals(kind)), np.linspace(0.5, 1.5, 6)

    def loss(nets: list[Any]) -> float:
        of_experts, own = ([ref.zeta(nets[0], *pair) for pair in part] for part in (expert, nominal))
        return ref.loss(of_experts, own, w, 0.3)

    flat, rebuild = ppo_numpy.flatten([net])
    grad, _ = ppo_numpy.flatten([ref.loss_grad(net, expert, nominal, w, 0.3)])
    for i, h in enumerate(1e-6 * np.eye(len(flat))):
        slope = (loss(rebuild(flat + h)) - loss(rebuild(flat - h))) / 2e-6
        np.testing.assert_allclose(grad[i], slope, rtol=1e-6, atol=1e-8)


def test_the_rate_decays_with_outer_iterations(learn):
    moved = {}
    for outer in (0, 3):
        state, after, _ = learn(outer, constraint_lr_decay=0.5, backward_iters=1)
        moved[outer] = ppo_numpy.flatten([layers(after)])[0] - ppo_numpy.flatten([layers(state)])[0]
    np.testing.assert_allclose(moved[3], moved[0] / 8, atol=1e-6)


@pytest.mark.parametrize("bound", ["max_forward_kl", "max_reverse_kl"])
def test_a_bound_stops_after_the_step_that_oversteps_it(learn, bound):
    free = {"max_forward_kl": np.inf, "max_reverse_kl": np.inf, "constraint_lr": 0.1}
    name = bound.replace("max_", "constraint/")
    path = [float(learn(**free, backward_iters=n)[2][name]) for n in (1, 2, 3, 4, 5, 6)]
    limit = path[3] - 1e-4 * abs(path[3])
    first = next(n for n, kl in enumerate(path, 1) if kl > limit)
    metrics = learn(**free | {bound: limit}, backward_iters=6)[2]
    assert float(metrics["constraint/steps"]) == first < 6
    assert float(metrics[name]) == pytest.approx(path[first - 1])  # not rolled back
    assert float(learn(**free, backward_iters=6)[2]["constraint/steps"]) == 6


def test_it_finds_the_action_that_experts_avoid(learn):
    """Experts alternate between two actions, the policy between three, all in one state."""

    def cycling(like: PaddedEpisodes, actions: int) -> PaddedEpisodes:
        action = jnp.broadcast_to(jnp.arange(8) % actions, like.mask.shape)
        return PaddedEpisodes(jnp.zeros_like(like.obs), action, jnp.ones_like(like.mask))

    free = {"max_forward_kl": np.inf, "max_reverse_kl": np.inf, "backward_iters": 400}
    _, after, metrics = learn(
        expert=cycling(experts("numbered"), 2), nominal=cycling(nominals("numbered"), 3), regulariser=0.1, **free
    )
    costs = np.asarray(icrl.cost(after, jnp.zeros((ACTIONS, OBS)), jnp.arange(ACTIONS)))
    assert costs[2] > 0.9
    assert costs[:2].max() < 0.1
    np.testing.assert_allclose(metrics["constraint/expert_cost"], costs[:2].mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["constraint/nominal_cost"], costs @ [3 / 8, 3 / 8, 2 / 8], rtol=1e-4)


# --- the outer iteration, inside one update ------------------------------------------------------------------------

ROLLOUT: dict[str, Any] = {
    "rollout_steps": 4,
    "batch_size": 8,
    "epochs": 1,
    "forward_steps": 9,
    "rollouts": 3,
    "backward_iters": 2,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_backward_phase_follows_every_so_many_steps(kind):
    """Blocks of eight steps and phases of nine: rounded up to two blocks."""
    cfg = icrl.Config(**CONFIG | ROLLOUT)
    assert icrl.phase_steps(cfg) == icrl.ALGORITHM.restart_every(cfg) == 16  # pyright: ignore[reportOptionalCall]
    rng = np.random.default_rng(0)
    obs, next_obs = jnp.asarray(rng.normal(size=(2, 4, 2, OBS)), jnp.float32)
    action = jnp.asarray(rng.integers(ACTIONS, size=(4, 2)), jnp.int32)
    if kind == "continuous":
        action = jnp.asarray(rng.uniform(-1, 3, (4, 2, 2)), jnp.float32)
    no = jnp.zeros((4, 2), bool)
    step = Transition(obs, action, jnp.asarray(rng.normal(size=(4, 2)), jnp.float32), next_obs, no, no)

    def play(policy, key, count):
        assert count == 3
        return PaddedEpisodes(*(leaf[:count] for leaf in nominals(kind)))

    data = Data(rollout=step, demo_episodes=experts(kind), play=play)
    update = jax.jit(lambda state, key: icrl.update(state, data, cfg, key), compiler_options=QUICK)
    state = icrl.init(jax.random.key(0), Spaces(OBS, head(kind)), cfg)
    played = int(np.asarray(play(None, None, 3).mask).sum())
    for i in range(4):
        before = state
        cost = np.asarray(icrl.cost(before, obs, action))
        state, metrics = update(state, jax.random.key(i))
        due = i % 2 == 1
        moved = not np.array_equal(state.constraint.params.weights[0], before.constraint.params.weights[0])
        assert moved == due
        assert float(metrics["constraint/phases"]) == (i + 1) // 2
        assert float(metrics["constraint/all_steps"]) == 2 * ((i + 1) // 2)
        assert float(metrics["constraint/episode_steps"]) == (played if i else 0)
        np.testing.assert_allclose(metrics["cost/mean"], cost.mean(), rtol=1e-5)  # the cost before the phase
        assert np.any(state.reward_scale.running) != due  # episodes begin anew
        assert np.any(state.cost_scale.running) != due
    assert int(state.forward_steps) == 32


@pytest.mark.parametrize("count", [2, 4, 9])
def test_demonstrated_episodes_are_drawn_without_replacement_where_there_are_enough(count, getkey):
    drawn = icrl.draw(getkey(), experts("numbered"), count)
    assert drawn.obs.shape == (count, 8, OBS)
    firsts = np.asarray(drawn.obs[:, 0, 0])
    assert len(set(firsts.tolist())) == count if count <= 4 else len(set(firsts.tolist())) <= 4
    assert set(firsts.tolist()) <= set(np.asarray(experts("numbered").obs[:, 0, 0]).tolist())

"""The cost firewall: neither the costs that an environment reports nor the caller's rules reach a learner, except the
oracles, which get the costs.

The code of a module does not even mention costs or rules. The exceptions are listed, each with its reason.
"""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from probes import demo_steps
from scopil.algos.scopil_rho import ALGORITHM as SCOPIL_RHO
from scopil.data.dataset import DemoStarts
from scopil.envs.jax_env import CompiledEnv
from scopil.envs.marble_maze import MarbleMaze
from scopil.registry import registered
from scopil.train.demo_data import DemoData
from scopil.train.loop import Loop, make_loop
from scopil.train.trainer import Trainer
from scopil.types import Transition
from toys import toy, toy_demos

SRC = Path(scopil.__file__).parent
SECRETS = ("cost", "rules", "state_info", "transition_info")
EXCEPTIONS = {
    # sources of costs
    "envs": "environments report costs",
    # evaluation, beside training or after it
    "eval": "counts violations of played episodes",
    "cli": "prints them",
    # algorithms with a cost of their own, or the oracles
    "algos/ppo_lagrangian.py": "a cost given by the caller; the oracle",
    "algos/icrl.py": "a cost learned from demonstrations",
    "algos/vicrl.py": "the same",
    "losses/constraint_net.py": "the network of that learned cost",
    "algos/scopil_rho.py": "a cost learned from demonstrations",
    "algos/learned_constraints.py": "the same, on the host",
    "algos/occupancy.py": "a setting with that word: `costly`",
    "algos/sac_lagrangian.py": "the oracle",
    "algos/pid_lagrangian.py": "the oracles with another multiplier",
    "certify.py": "bounds of played episodes; no learner imports it",
    "train/run.py": "gives reports that learned cost, to draw it; evaluates and counts by the caller's rules",
    "__init__.py": "the public name of the type",
    "agent.py": "gives evaluations the caller's rules",
    "callbacks.py": "the same, while an agent learns",
    "train/code.py": "copies the file of the caller's rules",
    "explain.py": "writes learned constraints as a file of rules",
    "data/record.py": "records what the environment reports",
    # the only way to a learner
    "algos/base.py": "the part `true_cost` of the data, for those who ask for it",
    "train/loop.py": "hands `true_cost` to those who ask for it, and counts steps with a cost for the log",
}
ORACLES = {"oracle-ppo-lagrangian", "oracle-sac-lagrangian", "oracle-ppo-pid", "oracle-sac-pid"}


class Liar(MarbleMaze):
    """The same tray with false costs: every state breaks every rule, and costs grow with the steps."""

    def state_info(self, state, params=None):
        truth = super().state_info(state, params)
        return {k: v if k == "position" else jnp.ones_like(v) * state.steps + 7 for k, v in truth.items()}


class Silent(MarbleMaze):
    """The same tray without costs."""

    def transition_info(self, state, action, next_state, params=None):
        return {}


@pytest.fixture(scope="module")
def trained():
    """`trained(env, seed)`: the bits of the training state after 600 steps of SCOPIL-ρ, which contains SCOPIL."""
    rng = np.random.default_rng(0)
    obs, action = rng.uniform(-1, 1, (64, 8)), rng.integers(9, size=64)
    steps = demo_steps(jnp.asarray(obs, jnp.float32), jnp.asarray(action, jnp.int32))
    steps = steps._replace(next_obs=0.9 * steps.obs, group=jnp.arange(64))
    starts = DemoStarts(steps.obs[::16], jnp.arange(4))
    demos = DemoData(steps, None, starts)  # pyright: ignore[reportArgumentType]
    sizes = {"batch_size": 32, "demo_batch_size": 32, "replay_size": 4000, "refresh_every": 100}
    tables = {"recent": 600, "matched_capacity": 1_200, "slots": 3, "most_categories": 0}
    cfg = SCOPIL_RHO.config(hidden=(8,), clone_steps=1, critics_first=0, **sizes, **tables)
    loops: dict[type[MarbleMaze], Loop] = {cls: Loop(SCOPIL_RHO, CompiledEnv(cls()), demos) for cls in (Liar, Silent)}

    def bits(env: type[MarbleMaze], seed: int) -> list[bytes]:
        trainer = Trainer(loops[env], cfg, seed)
        trainer.advance(600)
        state = trainer.state._replace(key=jax.random.key_data(trainer.state.key))
        return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]

    return bits


def test_training_does_not_depend_on_the_reported_costs(trained):
    honest, liar = MarbleMaze(), Liar()
    state = honest.initial_at(np.array([0.0, 100.0]))
    assert not np.asarray(honest.state_info(state)["cost"]).any()
    assert np.asarray(liar.state_info(state)["cost"]).all()
    assert CompiledEnv(honest).counts_violations()
    assert not CompiledEnv(Silent()).counts_violations()
    assert trained(Liar, 0) == (wanted := trained(Silent, 0))  # whatever is reported, if anything is
    assert trained(Liar, 1) != wanted  # the comparison detects another run


def test_a_transition_has_no_field_for_costs():
    assert Transition._fields == ("obs", "action", "reward", "next_obs", "terminated", "truncated")


def words(source: str) -> set[str]:
    """Every name and every string of a program, without its comments and docstrings."""
    found: set[str] = set()
    docs = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            docs.add(id(body[0].value))
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(word := getattr(node, field, None), str):
                found.add(word)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found.add(node.value)
    return found


def mentioned(path: Path) -> list[str]:
    return sorted(word for word in words(path.read_text()) if any(s in word.lower() for s in SECRETS))


def exception(path: Path) -> str | None:
    inside = path.relative_to(SRC)
    return next((e for e in (inside.as_posix(), inside.parts[0]) if e in EXCEPTIONS), None)


def test_no_other_module_mentions_costs():
    found = {p: mentioned(p) for p in SRC.rglob("*.py") if exception(p) is None}
    searched = {path.relative_to(SRC).as_posix() for path in found}
    assert searched >= {"types.py", "algos/sac.py", "algos/scopil.py", "losses/soft.py", "train/trainer.py"}
    leaks = [f"{path.relative_to(SRC)} mentions {said}" for path, said in found.items() if said]
    assert not leaks, "\n".join(leaks)


def test_every_exception_is_needed():
    used = {exception(path) for path in SRC.rglob("*.py") if mentioned(path)}
    assert EXCEPTIONS.keys() - used == set()


@pytest.mark.parametrize("name", registered())
def test_only_oracles_are_given_the_true_cost(name):
    """In the collected steps and in the data of an update; traced, not run. The environment reports a cost, and
    the loop counts the steps with one, beside the learner."""
    algorithm, env = registered()[name], toy(continuous=False)
    assert ("true_cost" in algorithm.wants) == (name in ORACLES)
    if not algorithm.steps_environment:
        return
    loop, cfg = make_loop(algorithm, env, toy_demos(continuous=False)), algorithm.config()

    def data(key):
        state = loop.init(key, cfg)
        collect = loop._rollout if "rollout" in algorithm.wants else lambda state, _, key: loop._collect(state, key)
        state, kept, sums = collect(state, cfg, key)
        return loop._data(state, kept, cfg, key)._replace(play=None), kept, sums

    with jax.debug_key_reuse(False):  # only shapes are compared
        found, kept, sums = jax.eval_shape(data, jax.random.key(0))
    assert "violations" in sums
    assert (found.true_cost is not None) == (type(kept) is not Transition) == (name in ORACLES)
    steps = found.replay if found.replay is not None else found.rollout
    assert type(steps) is Transition


@pytest.mark.parametrize(
    "leak",
    ["info['cost']", "env.state_info(s)", "from x import transition_info as t", "def f(cost): pass", "f(my_cost=1)"],
)
def test_the_search_finds_every_form_of_leak(leak):
    source = f'"""It would cost too much."""\nx = 1  # cost\n{leak}\n'
    assert any(s in word for word in words(source) for s in SECRETS)
    assert not any(s in word for word in words(source.replace(leak, "")) for s in SECRETS)

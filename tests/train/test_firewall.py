"""The cost firewall: what the cost functions say cannot reach a learner."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scopil
from scopil.algos import ALGORITHMS
from scopil.algos.base import Pairs
from scopil.envs.functional import CompiledEnv
from scopil.studies.marble_maze import MarbleMaze
from scopil.train.offpolicy import OffPolicy
from scopil.train.trainer import Trainer
from scopil.types import Transition

SRC = Path(scopil.__file__).parent
BEHIND_THE_WALL = [
    *(
        f"core/{name}.py"
        for name in ("distributions", "duals", "imitation", "learner", "nets", "replay", "soft")
    ),
    *(f"algos/{name}.py" for name in ("base", "sac", "scopil", "ablations", "bc")),
    "train/offpolicy.py",
    "types.py",
]
SECRETS = ("cost", "state_info", "transition_info")


class Liar(MarbleMaze):
    """The same tray; every state is reported as breaking every law, more gravely the longer the game."""

    def state_info(self, state, params=None):
        truth = super().state_info(state, params)
        return {k: v if k == "position" else jnp.ones_like(v) * state.steps + 7 for k, v in truth.items()}


@pytest.fixture(scope="module")
def trained():
    """`trained(env, seed)`: the bits of everything after 3000 steps of SCOPIL."""
    rng = np.random.default_rng(0)
    demos = Pairs(
        jnp.asarray(rng.uniform(-1, 1, (64, 8)), jnp.float32),
        jnp.asarray(rng.integers(9, size=64), jnp.int32),
    )
    cfg = ALGORITHMS["scopil"].config(hidden=(8,), batch_size=32, demo_batch_size=32, replay_size=4000)
    loops = {cls: OffPolicy(ALGORITHMS["scopil"], CompiledEnv(cls()), demos) for cls in (MarbleMaze, Liar)}

    def bits(env: type[MarbleMaze], seed: int) -> list[bytes]:
        trainer = Trainer(loops[env], cfg, seed)
        trainer.advance(3000)
        state = trainer.state._replace(key=jax.random.key_data(trainer.state.key))
        return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]

    return bits


def test_training_is_bit_identical_whatever_the_costs_say(trained):
    honest, liar = MarbleMaze(), Liar()
    state = honest.initial_at(np.array([0.0, 100.0]))
    assert not np.asarray(honest.state_info(state)["cost"]).any()
    assert np.asarray(liar.state_info(state)["cost"]).all()  # the lie is told
    assert trained(MarbleMaze, 0) == trained(Liar, 0)


def test_the_comparison_sees_another_run(trained):
    same = [a == b for a, b in zip(trained(MarbleMaze, 0), trained(MarbleMaze, 1))]
    assert not all(same)


def test_a_transition_has_no_room_for_costs():
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


@pytest.mark.parametrize("path", BEHIND_THE_WALL)
def test_learners_never_mention_costs(path):
    heard = {word for word in words((SRC / path).read_text()) if any(s in word.lower() for s in SECRETS)}
    assert not heard, f"{path} mentions {sorted(heard)}"


@pytest.mark.parametrize(
    "leak",
    [
        "info['cost']",
        "env.state_info(s)",
        "from x import transition_info as t",
        "def f(cost): pass",
        "f(my_cost=1)",
    ],
)
def test_the_search_hears_every_form_of_leak(leak):
    source = f'"""It would cost too much."""\nx = 1  # cost\n{leak}\n'
    assert any(s in word for word in words(source) for s in SECRETS)
    assert not any(s in word for word in words(source.replace(leak, "")) for s in SECRETS)

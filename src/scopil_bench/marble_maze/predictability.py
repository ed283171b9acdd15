"""How predictable the players of a Marble Maze set are: for the careful planner, and for cloning."""

from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from scopil.agent import Agent
from scopil.algos import bc
from scopil.data.dataset import Demonstrations
from scopil.envs.marble_maze import SETTINGS, MarbleMaze
from scopil.envs.registration import IDS
from scopil_bench.marble_maze.generate import RECIPES, closing
from scopil_bench.marble_maze.planner import make_planner
from scopil_bench.marble_maze.simulated_players import Taste, step_along, tilt_after, wished

BEAM = 400  # candidates of the planner that is compared with
FOLDS = 5  # of 40 episodes: 8 are held out each time
SEED = 0
GRADIENT_STEPS = 5000


class Predictability(NamedTuple):
    differing: float  # share of steps with another action than the careful planner's choice in the same state
    differing_tilt: float  # the same, but only where the tray ends up otherwise: at its stop a key may be let go
    nll: float  # nats per step: cloning on held-out episodes, mean over folds
    accuracy: float  # share of held-out steps where cloning's most likely action was taken
    train_nll: float  # nats per step: cloning on the episodes it was given
    nll_range: tuple[float, float]  # of `nll` over folds


def predictability(demos: Demonstrations) -> Predictability:
    """Of a set made by the planner or by people."""
    order = np.random.default_rng(SEED).permutation(len(demos))
    by_fold = []
    for fold in range(FOLDS):
        held_out = set(order[fold::FOLDS].tolist())
        given, other = (
            replace(demos, episodes=tuple(e for i, e in enumerate(demos) if (i in held_out) is out))
            for out in (False, True)
        )
        agent = Agent(bc.ALGORITHM, IDS[demos.about["setting"]], given, seed=SEED).learn(GRADIENT_STEPS)
        by_fold.append((*_scores(agent, other), _scores(agent, given)[0]))
    nll, accuracy, train_nll = np.mean(by_fold, axis=0).tolist()
    over_folds = [scores[0] for scores in by_fold]
    return Predictability(*differences(demos), nll, accuracy, train_nll, (min(over_folds), max(over_folds)))


def _scores(agent: Agent, demos: Demonstrations) -> tuple[float, float]:
    obs, actions = jnp.asarray(demos.observations), jnp.asarray(demos.actions)
    pi = agent.policy.distribution(obs)
    return float(-jnp.mean(pi.log_prob(actions))), float(jnp.mean(agent.policy.act(obs) == actions))


def differences(demos: Demonstrations) -> tuple[float, float]:
    """Shares of steps at which the careful planner, asked anew at every state, would do something else."""
    setting = demos.about["setting"]
    care, params = replace(RECIPES[setting].care, beam=BEAM), SETTINGS[setting]
    sides = {i: side for pair in demos.about.get("paired_episodes", []) for i, side in zip(pair, ("left", "right"))}
    tastes = {}
    for side in {None, *sides.values()}:
        own = make_planner(params, care, closing(setting, side))
        nearer = (own._replace(care=replace(care, clearance=c)) for c in (care.clearance / 2, 1.0))
        tastes[side] = Taste((own, *nearer))
    keys, tilts, steps = 0, 0, 0
    for index, episode in enumerate(demos):
        taste, state = tastes[sides.get(index)], MarbleMaze(params).initial_at(episode.start)
        for action in episode.actions.tolist():
            found = wished(taste, state)
            if found:  # else no lawful way is found: nothing to compare with
                keys += found[0] != action
                tilts += bool(np.any(tilt_after(state, found[0]) != tilt_after(state, action)))
                steps += 1
            state = step_along(taste, state, action)
    return keys / steps, tilts / steps

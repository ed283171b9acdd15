"""What SCOPIL-ρ has learned, outside of compiled programs: its constraints, a monitor, and lines for the user."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from scopil.algos.occupancy import Seen, rank, share_of, slot_tables
from scopil.data.dataset import DemoTransitions
from scopil.losses import marginals
from scopil.losses.familiarity import Monitor, scores
from scopil.losses.features import NONE, Features, grouped
from scopil.losses.marginals import HIGH, LOW, Grid
from scopil.marginal import Axis, Marginal, name_of

MOST_NAMES = 12  # features in a line
ABOVE = 1.5  # novelty relative to the demonstrations' from which on a constraint at the largest price is not met


def of_states(state: Any) -> Int[Array, " J"]:
    """The slots whose features are all of states, not of actions. Outside jit only."""
    f, feature = state.features, np.asarray(state.slots.grid.feature)
    about = ((feature < f.before) | ((feature >= f.category) & (feature < f.action)) | (feature == f.none)).all(1)
    return jnp.asarray(np.flatnonzero(about & np.asarray(state.slots.filled)), jnp.int32)


def learned_cost(state: Any, obs: Array, action: Array) -> Array:
    """The largest c_j of states, over the constraints on states; the actions are ignored."""
    rows = obs.reshape(-1, obs.shape[-1])
    s, at = state.slots, of_states(state)
    values = state.features(rows, jnp.zeros((len(rows), max(state.features.actions, 1))), rows, state.values)
    cells = marginals.cells_of(Grid(*(leaf[at] for leaf in s.grid)), values)
    return marginals.look_up(s.table[at], cells).max(1, initial=0.0).reshape(obs.shape[:-1])


def monitor(state: Any, demos: DemoTransitions, seen: Seen, cfg: Any) -> Monitor:
    """A monitor of the familiarity of states relative to the demonstrations."""
    at = of_states(state)
    made = slot_tables(state.slots, seen, cfg)
    blank = jnp.zeros((cfg.folds, len(demos.obs)), jnp.float32)
    grid = Grid(*(leaf[at] for leaf in state.slots.grid))
    empty = Monitor(state.features, state.values, grid, made.ratio[at], blank, jnp.zeros(cfg.folds, jnp.int32))
    if len(at) == 0:
        return empty
    held_out = jnp.arange(cfg.folds)[:, None] == (demos.group % cfg.folds)[None]
    shown = jnp.sort(jnp.where(held_out, scores(empty, demos.next_obs), -jnp.inf), axis=1)
    return empty._replace(shown=shown, known=held_out.sum(1))


def learned(state: Any, demos: DemoTransitions, seen: Seen, cfg: Any) -> list[Marginal]:
    """The constraints that are in, as arrays on the host; the largest multiplier first."""
    f, s = state.features, state.slots
    shown, own = (np.asarray(sample.values)[np.asarray(sample.use)] for sample in (seen.demos, seen.own))
    episode, head = np.asarray(demos.episode)[np.asarray(seen.demos.use)], state.learner.head
    first = getattr(head, "start", 0)
    actions = range(first, first + head.num_actions)
    found = []
    for i in np.flatnonzero(np.asarray(s.filled)):
        columns = [int(c) for c in np.asarray(s.grid.feature[i]) if c != f.none]
        axes, table = on_host(f, Grid(*(leaf[i] for leaf in s.grid)), s.table[i], np.asarray(state.values), actions)
        budget, share = float(s.budget[i]), float(share_of(s.grid, cfg)[i])
        found.append(
            Marginal(
                axes=axes,
                novelty=table,
                multiplier=float(s.mu[i]),
                budget=budget,
                demo_novelty=budget / share,
                own_novelty=float(s.own[i]),
                demo=shown[:, columns],
                demo_episode=episode,
                own=own[:, columns],
            )
        )
    return sorted(found, key=lambda m: -m.multiplier)


def on_host(
    f: Features, grid: Grid, table: Float[Array, " T"], categories: np.ndarray, actions: range
) -> tuple[tuple[Axis, ...], np.ndarray]:
    """The axes and the table of one marginal, without axes that it does not have and bins without a value. `actions`
    are the discrete actions."""
    bins = [int(n) for n in grid.bins]
    axes = []
    for column, low, width, size in zip(*(np.asarray(leaf).tolist() for leaf in grid[:4]), strict=True):
        if column == f.none:
            continue
        name, code = f.label(column), f.code(column, before=f.before <= column < f.category)
        module = f.own.call.rpartition(".")[0] if f.own is not None and f.is_own(column) else ""
        if column == f.action and f.actions == 0:
            axes.append(Axis(name, code, values=tuple(actions)))
        elif f.category <= column < f.action:
            known = [float(v) if v < NONE else None for v in categories[f.used[column - f.category]]]
            axes.append(Axis(name, code, values=(*known, None), module=module))
        else:
            axes.append(Axis(name, code, edges=low + width * np.arange(size + 1), module=module))
    cells = np.asarray(table)[: int(np.prod(bins))].reshape(bins[: len(axes)])
    for at, axis in enumerate(axes):
        if axis.values is not None:
            cells = cells.take(range(len(axis.values)), axis=at)
    return tuple(axes), cells


def remarks(state: Any, cfg: Any) -> list[str]:
    """What training watches (before it) and which constraints bound (after it), one line each."""
    f, s, learner = state.features, state.slots, state.learner
    if int(learner.updates) == 0:
        known, more = grouped(f.names), f", … ({len(f.names)} in all)"
        names = ", ".join(known[:MOST_NAMES]) + more * (len(known) > MOST_NAMES)
        lambda_, mu = cfg.multiplier_init, cfg.occupancy_init
        slow = [f.own.call] if f.own is not None and not f.own.compiled else []
        said = [f"{call} runs in Python, once per observation; with jax.numpy it is compiled" for call in slow]
        return [*said, f"watches {names or 'no features of images'}; λ₀ = {lambda_:g}, μ₀ = {mu:g}, δ from the clone"]
    most = float(cfg.occupancy_most) / np.asarray(rank(s))
    lines = [f"λ = {float(learner.multiplier):.2g}, δ = {float(learner.slack):.2g} nats"]
    for i in np.argsort(-np.asarray(s.mu), kind="stable"):
        if not bool(s.filled[i]):
            continue
        name = name_of([f.label(int(c)) for c in np.asarray(s.grid.feature[i]) if c != f.none])
        name += {HIGH: ", large values", LOW: ", small values"}.get(int(s.grid.limit[i]), "")
        own, shown = float(s.own[i]), float(s.budget[i]) / float(share_of(s.grid, cfg)[i])
        does = "does not bind" if float(s.mu[i]) <= 0 else "binds"
        if float(s.mu[i]) >= most[i] and own > ABOVE * shown:
            does = "binds and is not met: the largest price does not keep the policy as the demonstrations are"
        lines.append(f"{name}: {does} (μ = {float(s.mu[i]):.1f}, novelty {own:.3f}, demonstrations {shown:.3f})")
    if float(s.own.sum()) > float(s.clone.sum()) and float(learner.multiplier) <= 0.01:
        lines.append("warning: λ is 0 and the policy is more novel than its clone; more demonstrations may help")
    return lines

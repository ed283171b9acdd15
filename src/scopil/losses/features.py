"""Features of transitions that a rule may be about, and the marginals over them.

The columns are: state features of s' (components, norms, distances), components of s, categories of
the components of s', the action, and a constant. A pair of a component of s and a discrete action describes an action
that is not taken in some states. The user's own features (`Own`) are further components of an observation.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from scopil.losses.marginals import CATEGORIES, HIGH, LIMITS, LOW, SHAPES, Grid

NEIGHBOURS = 16  # in a vector of at most so many components, neighbours may be the components of a smaller vector
VECTOR = 3  # a named part of at most so many components is one vector
NONE = np.float32(1e30)  # no category
# Numbers in one call of Python. JAX copies larger arrays in a thread of their own, and waiting for it inside a call can
# block the program.
SENT = 2**14
REMEMBERED = 2**18  # observations whose own features are kept
SHARP = ((True, True), (False, False), (False, True), (False, False))  # of every shape: axes with little blur


class Derived(NamedTuple):
    """√Σ(xᵢ − yᵢ)²: the norm of a vector, or the distance of two."""

    name: str
    plus: tuple[int, ...]
    minus: tuple[int, ...] = ()

    def __call__(self, obs: Float[Array, "M D"]) -> Float[Array, " M"]:
        x = obs[:, list(self.plus)] - (obs[:, list(self.minus)] if self.minus else 0.0)
        return jnp.sqrt((x**2).sum(1))


@dataclass(frozen=True)
class Own:
    """The user's features: numbers by name, from a function of one observation. If JAX can trace the function, it is
    compiled. Otherwise Python calls it, once for each observation."""

    function: Callable[[Any], Any]
    given: Callable[[Any], Any]  # from a row to the observation that the function takes
    names: tuple[str, ...]
    compiled: bool
    call: str  # as in generated code: `my_features.features`
    same: Any = None  # functions with equal names are equal if this is
    seen: dict[bytes, list[float]] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, rows: Float[Array, "M D"]) -> Float[Array, "M K"]:
        if self.compiled:
            return jax.vmap(lambda row: jnp.stack(_in_order(self.function(self.given(row)), self.names)))(rows)
        shape = jax.ShapeDtypeStruct((len(self.names),), jnp.float32)

        def one(row: Array) -> Array:
            return jax.pure_callback(self.on_host, shape, row, vmap_method="broadcast_all")

        return jax.lax.map(one, rows, batch_size=max(1, SENT // rows.shape[1]))

    def on_host(self, rows: Any) -> np.ndarray:
        """The same, outside compiled programs; also of several batches."""
        rows = np.asarray(rows, np.float32)
        flat = rows.reshape(-1, rows.shape[-1])
        if self.compiled:
            with jax.ensure_compile_time_eval():
                found: Any = self(jnp.asarray(flat))
        else:
            found = [self._remembered(row) for row in flat]
        return np.asarray(found, np.float32).reshape(*rows.shape[:-1], len(self.names))

    def _remembered(self, row: np.ndarray) -> list[float]:
        key = row.tobytes()
        if (found := self.seen.get(key)) is None:
            if len(self.seen) >= REMEMBERED:
                self.seen.clear()
            try:
                found = [float(x) for x in _in_order(self.function(self.given(row)), self.names, np)]
            except Exception:
                if row.any():
                    raise
                found = [0.0] * len(self.names)  # an empty place in a buffer, not an observation
            self.seen[key] = found
        return found


def own_of(function: Any, width: int, codec: Any = None, call: str = "features") -> Own:
    """The features of a function.

    Args:
        function: of one observation → numbers by name.
        width: numbers of a row.
        codec: has `unflatten` and `unflatten_in_jax`, from a row to an observation; None: the row itself.
        call: the function's name in generated code.

    Raises ValueError if the function returns no numbers by name.
    """
    in_jax, on_host = getattr(codec, "unflatten_in_jax", _unchanged), getattr(codec, "unflatten", _unchanged)
    same = getattr(function, "function", None)
    try:
        names: list[str] = []  # JAX sorts the keys of a dict
        shape = jax.ShapeDtypeStruct((width,), jnp.float32)
        jax.eval_shape(lambda row: names.extend(_by_name(function(in_jax(row)), call)), shape)
        return Own(function, in_jax, tuple(names), True, call, same)
    except Exception as error:  # it may use NumPy or decide by values, which JAX cannot trace
        reason = error.__cause__ or error
    space = getattr(codec, "env_observation", None)
    rows = [np.zeros(width, np.float32)]
    if space is not None:  # the function may not take zeros
        space.seed(0)
        rows += [codec.flatten(space.sample()) for _ in range(2)]
    found: dict[str, Any] = {}
    for i, row in enumerate(rows):
        try:
            with np.errstate(all="ignore"), jax.ensure_compile_time_eval():
                found = _by_name(function(on_host(row)), call, np)
            break
        except Exception:
            if i == len(rows) - 1:
                raise
    if any(isinstance(value, jax.Array) for value in found.values()):
        raise ValueError(
            f"{call} uses jax.numpy, and JAX cannot compile it: {' '.join(str(reason).split())[:200]} Want jnp.where "
            f"in place of if, or NumPy alone."
        )
    return Own(function, on_host, tuple(found), False, call, same)


def _unchanged(row: Any) -> Any:
    return row


def _by_name(found: Any, call: str, numpy: Any = jnp) -> dict[str, Any]:
    """What a function of own features returned, checked."""
    wanted = "want a dict of numbers by name"
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"{call} returned {type(found).__name__ if found else 'nothing'}; {wanted}.")
    for name, value in found.items():
        if not isinstance(name, str) or not name.isprintable() or " at " in name or not name.strip():
            raise ValueError(f"{call} returned a feature called {name!r}; {wanted}, without ' at ' in a name.")
        if numpy.size(value) != 1:
            raise ValueError(f"{call} returned {numpy.size(value)} numbers as {name!r}; {wanted}.")
    return dict(found)


def _in_order(found: Any, names: tuple[str, ...], numpy: Any = jnp) -> list[Any]:
    if found.keys() != set(names):
        raise ValueError(f"own features {', '.join(found)} of an observation, {', '.join(names)} of another.")
    return [numpy.asarray(found[name], numpy.float32).reshape(()) for name in names]


class Features(eqx.Module):
    """How a transition becomes a row of features. All fields are static."""

    columns: tuple[str, ...] = eqx.field(static=True)  # of the observation, then the user's own features
    used: tuple[int, ...] = eqx.field(static=True)  # components that are state features
    derived: tuple[Derived, ...] = eqx.field(static=True)
    actions: int = eqx.field(static=True)  # components of a continuous action; 0 for discrete actions
    own: Own | None = eqx.field(static=True, default=None)

    @property
    def given(self) -> int:
        """Components of the observation itself."""
        return len(self.columns) - (0 if self.own is None else len(self.own.names))

    def components(self, obs: Float[Array, "M D"]) -> Float[Array, "M E"]:
        """The components of observations, with the user's own."""
        own = [] if self.own is None else [jnp.nan_to_num(self.own(obs))]
        return jnp.concatenate([obs[:, : self.given], *own], axis=1) if own or self.given < obs.shape[1] else obs

    def components_on_host(self, obs: np.ndarray) -> np.ndarray:
        """The same, outside compiled programs. Raises ValueError if an own feature is not finite."""
        if self.own is None:
            return obs[:, : self.given]
        found = self.own.on_host(obs)
        if not np.isfinite(found).all():
            at = np.argwhere(~np.isfinite(found))[0]
            name, value = self.own.names[at[1]], found[tuple(at)]
            raise ValueError(f"{self.own.call}: {name} = {value} in a demonstrated state; want finite numbers.")
        return np.concatenate([obs[:, : self.given], found], axis=1)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the state features."""
        return (*(self.columns[i] for i in self.used), *(d.name for d in self.derived))

    def label(self, column: int) -> str:
        """The name of a column: a state feature, a component before the step, a category or the action."""
        if column < self.states:
            return self.names[column]
        if column < self.action:
            return self.columns[self.used[(column - self.before) % len(self.used)]]
        return "action" if self.actions < 2 else f"action[{column - self.action}]"

    def code(self, column: int, before: bool = False) -> str:
        """A Python expression of a column, such as `next_obs["pose"][0]` or `math.hypot(next_obs[2], next_obs[3])`."""
        row = "obs" if before else "next_obs"
        if column >= self.action:
            return "action" if self.actions < 2 else f"action[{column - self.action}]"
        if column >= self.states or column < len(self.used):
            if self.is_own(column):
                assert self.own is not None
                return f"{self.own.call}({row})[{json.dumps(self.label(column), ensure_ascii=False)}]"
            return code_of(self.label(column), row)
        d = self.derived[column - len(self.used)]
        plus = [code_of(self.columns[i], row) for i in d.plus]
        minus = [f" - {code_of(self.columns[i], row)}" for i in d.minus] or [""] * len(plus)
        return f"math.hypot({', '.join(a + b for a, b in zip(plus, minus, strict=True))})"

    def is_own(self, column: int) -> bool:
        """Whether a column is an own feature of the user."""
        if len(self.used) <= column < self.states or column >= self.action:
            return False
        at = column if column < self.states else (column - self.before) % len(self.used)
        return self.used[at] >= self.given

    @property
    def states(self) -> int:
        return len(self.used) + len(self.derived)

    # Positions of the other columns.
    @property
    def before(self) -> int:
        return self.states

    @property
    def category(self) -> int:
        return self.before + len(self.used)

    @property
    def action(self) -> int:
        return self.category + len(self.used)

    @property
    def none(self) -> int:
        return self.action + max(self.actions, 1)

    def __call__(
        self, obs: Float[Array, "M D"], action: Array, next_obs: Float[Array, "M D"], categories: Float[Array, "E C"]
    ) -> Float[Array, "M F"]:
        used = jnp.asarray(self.used, jnp.int32)
        if self.own is None:
            before, after = self.components(obs), self.components(next_obs)
        else:  # in one call
            before, after = jnp.split(self.components(jnp.concatenate([obs, next_obs])), 2)
        seen, kinds = after[:, used], categories[used]
        apart = jnp.abs(seen[:, :, None] - kinds[None])
        same = apart.min(-1) <= 1e-3 * jnp.abs(seen) + 1e-6
        kind = jnp.where(same, apart.argmin(-1), CATEGORIES).astype(jnp.float32)
        a = action.astype(jnp.float32).reshape(obs.shape[0], max(self.actions, 1))
        return jnp.concatenate([self.of_states(after), before[:, used], kind, a, jnp.zeros((obs.shape[0], 1))], axis=1)

    def of_states(self, components: Float[Array, "M D"]) -> Float[Array, "M S"]:
        """The state features of the components of states."""
        more = [d(components)[:, None] for d in self.derived]
        return jnp.concatenate([components[:, jnp.asarray(self.used, jnp.int32)], *more], axis=1)


def code_of(name: str, row: str = "next_obs") -> str:
    """The expression of a named column in an observation of the environment: `pose[0]` → `next_obs["pose"][0]`."""
    part, bracket, index = name.partition("[")
    if part == "obs":
        return f"{row}{bracket}{index}"
    keys = "".join(f'["{key}"]' for key in part.split("."))
    return f"{row}{keys}{bracket}{index}" if bracket else f"{row}{keys}[0]"


def features_of(
    columns: Sequence[str],
    actions: int,
    chosen: Sequence[str] = (),
    own: Own | None = None,
    bounds: Float[np.ndarray, "2 D"] | None = None,
) -> Features:
    """The features of an observation with these column names. `chosen` are names of columns or of parts (`pose` for
    `pose[0]`, `pose[1]`), or numbers of columns; empty: all columns and derived features, or `own` alone. `bounds` are
    the lowest and highest values of the columns, if they are known."""
    parts = _parts(columns)
    bounds = np.zeros((2, len(columns))) if bounds is None else bounds
    if chosen or own is not None:
        used = sorted({i for name in chosen for i in _columns_of(name, columns, parts)})
        more = () if own is None else own.names
        if twice := [name for name in more if name in (*columns, *parts, "action")]:
            raise ValueError(f"the own feature {twice[0]} has a name of the observation; give it another name.")
        used += range(len(columns), len(columns) + len(more))
        return Features((*columns, *more), tuple(used), (), actions, own)
    return Features(tuple(columns), tuple(range(len(columns))), _derived(columns, parts, bounds), actions)


def _parts(columns: Sequence[str]) -> dict[str, list[int]]:
    """The columns of every named part. One-hot columns (`gear=2`) form no vector."""
    parts: dict[str, list[int]] = {}
    for i, name in enumerate(columns):
        if "=" not in name:
            parts.setdefault(name.split("[")[0], []).append(i)
    return parts


def grouped(names: Sequence[str]) -> list[str]:
    """Names of columns for a list to read, with the columns of a one-hot number together: `gear=0 … gear=2`."""
    each = [list(some) for _, some in groupby(names, lambda name: name.rpartition("=")[0] or name)]
    return [" … ".join([some[0], *some[-1:]][: len(some)]) for some in each]


def _derived(columns: Sequence[str], parts: dict[str, list[int]], bounds: np.ndarray) -> tuple[Derived, ...]:
    """Norms of vectors, and distances of vectors with equal shapes and bounds. Other vectors are other quantities."""
    found = []
    for name, part in parts.items():
        if len(parts) > 1 and 1 < len(part) <= VECTOR:
            found.append(Derived(f"|{name}|", tuple(part)))
        elif 1 < len(part) <= NEIGHBOURS:
            found += [Derived(f"|{columns[i]}, {columns[j]}|", (i, j)) for i, j in pairwise(part)]
    vectors = [(name, part) for name, part in parts.items() if len(part) <= VECTOR]
    for k, (a, first) in enumerate(vectors if len(vectors) <= VECTOR + 1 else []):
        for b, second in vectors[k + 1 :]:
            if len(first) == len(second) > 1 and np.array_equal(bounds[:, first], bounds[:, second]):
                found.append(Derived(f"|{a} − {b}|", tuple(first), tuple(second)))
    return tuple(found)


def _columns_of(name: str, columns: Sequence[str], parts: dict[str, list[int]]) -> list[int]:
    if name in columns:
        return [list(columns).index(name)]
    if name in parts:
        return parts[name]
    if name and (one_hot := [i for i, column in enumerate(columns) if column.rpartition("=")[0] == name]):
        return one_hot
    if name.isdigit() and int(name) < len(columns):
        return [int(name)]
    known = ", ".join([*parts, *(c for c in columns if c not in parts)][:20])
    raise ValueError(f"features = {name}; the observation has {known} (or numbers 0 to {len(columns) - 1}).")


class Ranges(NamedTuple):
    """What the bins of every feature are made from."""

    low: Float[Array, " F"]  # smallest demonstrated value
    span: Float[Array, " F"]  # demonstrated range
    change: Float[Array, " F"]  # RMS change per step, in spans; 0 if not known
    apart: Float[Array, " F"]  # distance between episodes, in spans
    sharp: Bool[Array, " F"]  # few values: no blur
    whole: Bool[Array, " F"]  # whole numbers: bins of width 1 around them


def ranges_of(
    features: Features,
    values: Float[Array, "M F"],
    episode: Int[Array, " M"],
    change: Float[Array, " D"],
    few: np.ndarray,
    reach: Any,
) -> Ranges:
    """Ranges of demonstrated features. `change` is the RMS change of a component per step; `few` are the components
    with few values; `reach` is the quantile of the distances between episodes."""
    low, high = values.min(0), values.max(0)
    span = jnp.where(high > low, high - low, 1.0)
    used, rest = list(features.used), features.states - len(features.used)
    tail = features.none + 1 - features.category
    steps = change[jnp.asarray(used, jnp.int32)]
    full = jnp.concatenate([steps, jnp.zeros(rest), steps, jnp.zeros(tail)])
    sharp = np.concatenate([few[used], np.zeros(rest, bool), few[used], np.ones(tail, bool)])
    at = np.arange(features.none + 1)
    whole = (at >= features.category) & ((at < features.action) | (at == features.none) | (features.actions == 0))
    apart = jax.vmap(lambda column: distance_of_episodes(column, episode, reach), 1)(values)
    return Ranges(low, span, full / span, apart / span, jnp.asarray(sharp), jnp.asarray(whole))


def distance_of_episodes(values: Float[Array, " M"], episode: Int[Array, " M"], reach: Any) -> Float[Array, ""]:
    """The `reach`-quantile of the distances from a value to the nearest value of another episode."""
    order = jnp.argsort(values)
    v, e, at = values[order], episode[order], jnp.arange(len(values))
    changes = e[1:] != e[:-1]
    first = jax.lax.cummax(jnp.where(jnp.append(True, changes), at, 0))  # of a run of one episode, in this order
    last = jax.lax.cummin(jnp.where(jnp.append(changes, True), at, len(at)), reverse=True)
    before = jnp.where(first > 0, v - v[jnp.maximum(first - 1, 0)], jnp.inf)
    after = jnp.where(last < len(at) - 1, v[jnp.minimum(last + 1, len(at) - 1)] - v, jnp.inf)
    nearest = jnp.minimum(before, after)
    return jnp.where(jnp.isfinite(nearest).all(), jnp.quantile(nearest, reach), 0.0)  # one episode alone: no distance


def categories_of(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The demonstrated values (D, C) of components with 2 to C values, `NONE` elsewhere; and which components have at
    most C values."""
    size = observations.shape[1]
    categories, few = np.full((size, CATEGORIES), NONE, np.float32), np.zeros(size, bool)
    for i in range(size):
        found = np.unique(observations[:, i])
        few[i] = len(found) <= CATEGORIES
        if 2 <= len(found) <= CATEGORIES:
            categories[i, : len(found)] = found
    return categories, few


def singles(features: Features) -> Int[Array, "J 3"]:
    """The columns of every single feature and of a discrete action."""
    columns = [*range(features.states), *([features.action] if features.actions == 0 else [])]
    return jnp.asarray(np.array([(i, features.none, features.none) for i in columns], np.int32).reshape(-1, 3))


def pairs(features: Features, among: Int[Array, " P"]) -> Int[Array, "J 3"]:
    """Pairs of the state features `among`, and pairs of a component before the step with a discrete action."""
    i, j = np.triu_indices(len(among), 1)
    rows = [jnp.stack([among[i], among[j], jnp.full(len(i), features.none)], axis=1)]
    if features.actions == 0:
        k = min(len(among), len(features.used))
        before = features.before + jnp.where(among[:k] < len(features.used), among[:k], 0)
        rows.append(jnp.stack([before, jnp.full(k, features.action), jnp.full(k, features.none)], axis=1))
    return jnp.concatenate(rows).astype(jnp.int32)


def limits(features: Features, among: Int[Array, " P"]) -> Int[Array, "J 3"]:
    """Ordered pairs of the state features `among`: where the first is, and how far the second may go there."""
    i, j = np.nonzero(~np.eye(len(among), dtype=bool))
    return jnp.stack([among[i], among[j], jnp.full(len(i), features.none)], axis=1).astype(jnp.int32)


def triples(features: Features, among: Int[Array, " P"], categories: Int[Array, " C"]) -> Int[Array, "J 3"]:
    """Pairs of the state features `among` with a category."""
    i, j = np.triu_indices(len(among), 1)
    first, second = jnp.tile(among[i], len(categories)), jnp.tile(among[j], len(categories))
    third = features.category + jnp.repeat(categories, len(i))
    return jnp.stack([first, second, third], axis=1).astype(jnp.int32)


def grid_of(feature: Int[Array, "J 3"], kind: int, ranges: Ranges, cfg: Any, ends: int = LOW + HIGH) -> Grid:
    """The bins of marginals of shape `SHAPES[kind]`. `cfg`: `margin`, `line_blur`, `line_blur_most`, `where_blur`,
    `blur`. `ends` are those of a limit, if the marginals are limits."""
    shape = SHAPES[kind]
    span = ranges.span[feature]
    width = (1.0 + 2.0 * cfg.margin) * span / jnp.asarray(shape)[None]
    low = ranges.low[feature] - cfg.margin * span
    low, width = jnp.where(ranges.whole[feature], -0.5, low), jnp.where(ranges.whole[feature], 1.0, width)
    two = feature[:, :2]
    sharp = jnp.clip(ranges.change[two], cfg.line_blur, cfg.line_blur_most)
    spread = jnp.maximum(cfg.where_blur if kind == 2 else cfg.blur, ranges.apart[two])
    sigma = jnp.where(jnp.asarray(SHARP[kind])[None], sharp, spread)
    blur = jnp.where(ranges.sharp[two], 0.0, sigma * span[:, :2] / width[:, :2])
    limited = feature[:, 0 if kind == 0 else 1]
    limited = jnp.asarray(kind in LIMITS) & ~ranges.sharp[limited] & ~ranges.whole[limited]
    limit = jnp.where(limited, ends, 0)
    return Grid(feature, low, width, jnp.broadcast_to(jnp.asarray(shape, jnp.int32), feature.shape), blur, limit)

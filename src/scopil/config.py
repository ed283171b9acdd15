"""Configs: frozen dataclasses whose fields are settings, each with a default, a description and a range.

Help texts, checks, error messages and the tables in the docs are generated from the fields. Settings of type float are
pytree leaves, so that `vmap` can map over them. All other settings are static.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from numbers import Integral, Real
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    no_type_check,
)

import jax

from scopil import sb3
from scopil.errors import ConfigError
from scopil.user_code import Named, names_object

T = TypeVar("T")
TYPES = (float, float | None, int, bool, tuple[int, ...], tuple[int, ...] | None, tuple[str, ...])
_TUPLES = (tuple[int, ...], tuple[int, ...] | None)
OWN_FEATURES = "features=my_features.py:features"  # an example
_SAME = object()  # the default is the same for discrete and continuous actions


def setting(
    default: Any, about: str, *, low: float | int = -math.inf, high: float | int = math.inf, continuous: Any = _SAME
) -> Any:
    """A field of a config: its default, its description, and the range of its value (or of each value of a tuple).

    `continuous` is the default for environments with continuous actions, if it differs.
    """
    metadata = {"about": about, "low": float(low), "high": float(high), "continuous": continuous}
    return field(default=default, metadata=metadata)


# `setting` is not declared as a field specifier: type checkers would then require `default` as a keyword.
@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass of settings, registered as a pytree. A method `problem()` may return an error
    message for a combination of settings."""
    made: Any = dataclass(frozen=True, kw_only=True)(cls)
    no_type_check(made.__init__)  # not type-checked: inside jit and vmap a `float` setting is an array
    types = get_type_hints(cls)
    for f in fields(made):
        f.type = types[f.name]  # `f.type` is a string if the module postpones annotations
        if "about" not in f.metadata:
            raise TypeError(f"{cls.__name__}.{f.name} has no description; make it with setting(default, about).")
        if f.type not in TYPES and get_origin(f.type) is not Literal:
            raise TypeError(f"{cls.__name__}.{f.name} is a {f.type}; want one of {', '.join(map(str, TYPES))}.")
    leaves = [f.name for f in fields(made) if f.type in (float, float | None)]
    static = [f.name for f in fields(made) if f.name not in leaves]
    return jax.tree_util.register_dataclass(made, data_fields=leaves, meta_fields=static)


class Setting(NamedTuple):
    """One field of a config, for help texts and tables."""

    name: str
    type: Any
    default: Any
    about: str
    low: float
    high: float

    @property
    def range(self) -> str:
        if get_origin(self.type) is Literal:
            return ", ".join(get_args(self.type))
        if math.isinf(self.low) and math.isinf(self.high):
            return ""
        if math.isinf(self.high):
            return f"≥ {self.low:g}"
        return f"≤ {self.high:g}" if math.isinf(self.low) else f"[{self.low:g}, {self.high:g}]"


def settings(cls: type, continuous: bool = False) -> list[Setting]:
    """Every field of a config, with the defaults for discrete or for continuous actions."""
    made = []
    for f in fields(cls):
        other = f.metadata["continuous"] if continuous else _SAME
        default = f.default if other is _SAME else other
        made.append(Setting(f.name, f.type, default, f.metadata["about"], f.metadata["low"], f.metadata["high"]))
    return made


def near(name: str, known: Iterable[str]) -> str:
    """The suggestion " Did you mean NAME?" for a misspelt name; empty if no known name is near."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean {close[0]}?" if close else ""


def build(cls: type[T], values: Mapping[str, Any], continuous: bool = False) -> T:
    """A checked config: the given values, and the defaults for discrete or continuous actions for all others. Names of
    Stable-Baselines3 are accepted for settings that mean the same."""
    values = {name: _plain(value) for name, value in values.items()}
    known = {s.name: s.default for s in settings(cls, continuous)}
    several = [s.name for s in settings(cls) if s.type == tuple[str, ...]]
    values |= {name: (values[name],) for name in several if isinstance(values.get(name), str)}
    values = sb3.translated(values, known)
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown setting {name}; known: {', '.join(sorted(known))}.{near(name, known)}")
    made = cls(**(known | values))
    check(made)
    return made


def code_in(values: Mapping[str, Any]) -> str | None:
    """The name of the user's function in the setting `features`; None if there is none."""
    given = values.get("features")
    return next(filter(names_object, given if isinstance(given, list | tuple) else [given]), None)


def with_code(values: Mapping[str, Any], load: Callable[[str], Any]) -> dict[str, Any]:
    """The settings, with the function that `features` names. `load` returns it, and may refuse to."""
    if (name := code_in(values)) is None or isinstance(name, Named):
        return dict(values)
    given = values["features"]
    own = Named(name, load(name))
    return {**values, "features": tuple(own if one == name else one for one in ([given] if given == name else given))}


def _plain(value: Any) -> Any:
    """Convert NumPy scalars, JAX scalars and lists to Python numbers and tuples, which can be written to files, and
    functions to their names."""
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    if hasattr(value, "item"):
        return value.item() if getattr(value, "ndim", None) == 0 else value
    return Named.of(value) if callable(value) and not isinstance(value, str) else value


def check(cfg: Any) -> None:
    """Raise `ConfigError` for values out of range. The constructor makes no checks, because jit calls it with
    tracers."""
    for f in fields(cfg):
        low, high = f.metadata["low"], f.metadata["high"]
        for value in _numbers(f, getattr(cfg, f.name)):
            if not low <= value <= high:
                raise ConfigError(
                    f"{f.name} = {_shown(getattr(cfg, f.name))}; want {_wanted(low, high)}.", setting=f.name
                )
    problem = getattr(cfg, "problem", lambda: None)()
    if problem:
        raise ConfigError(problem)


def checked_seed(seed: Any) -> int:
    """The seed, if both JAX and NumPy accept it. Raises `ConfigError` otherwise."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise ConfigError(f"seed = {seed!r}; want a whole number from 0 to 2⁶³ − 1.", setting="seed")
    return int(seed)


def _numbers(f: Field, value: Any) -> Iterator[float]:
    if value is None:
        if f.default is not None:
            raise ConfigError(f"{f.name} = None; want a value.", setting=f.name)
        return
    if get_origin(f.type) is Literal:
        if not isinstance(value, str) or value not in get_args(f.type):
            raise ConfigError(f"{f.name} = {value!r}; want {' or '.join(get_args(f.type))}.", setting=f.name)
        return
    if f.type == tuple[str, ...]:
        if not isinstance(value, tuple) or not all(isinstance(one, str) for one in value):
            raise ConfigError(f"{f.name} = {value!r}; want a tuple of names.", setting=f.name)
        return
    several = f.type in _TUPLES
    if several and not (isinstance(value, tuple) and value):
        raise ConfigError(f"{f.name} = {value!r}; want a tuple of at least one value.", setting=f.name)
    numbers: tuple[Any, ...] = value if several else (value,)
    for number in numbers:
        if f.type is bool:
            fits, wanted = isinstance(number, bool), "True or False"
        elif several or f.type is int:
            fits = isinstance(number, Integral) and not isinstance(number, bool)
            wanted = "whole numbers" if several else "a whole number"
        else:
            fits, wanted = isinstance(number, Real) or getattr(number, "shape", None) == (), "a number"
        if not fits:
            raise ConfigError(f"{f.name} = {value!r}; want {wanted}.", setting=f.name)
        try:
            yield float(number)  # pyright: ignore[reportArgumentType]
        except OverflowError:
            yield math.inf  # the number is larger than any float


def _shown(value: Any) -> str:
    return f"{float(value):g}" if not isinstance(value, tuple) else str(value)


def _wanted(low: float, high: float) -> str:
    if math.isinf(high):
        return f"at least {low:g}"
    return f"at most {high:g}" if math.isinf(low) else f"a value in [{low:g}, {high:g}]"


def markdown_table(cls: type) -> str:
    """The settings of a config as a Markdown table."""
    rows = ["| setting | default | range | meaning |", "|---|---|---|---|"]
    for one, continuous in zip(settings(cls), settings(cls, continuous=True)):
        default = f"`{one.default}`"
        if continuous.default != one.default:
            default += f", continuous actions `{continuous.default}`"
        about = one.about.replace("|", "\\|")  # an unescaped | would end the cell
        rows.append(f"| `{one.name}` | {default} | {one.range} | {about} |")
    return "\n".join(rows) + "\n"

"""Frozen configs: numbers are leaves that `vmap` may sweep, structure is static."""

from collections.abc import Callable
from dataclasses import fields
from typing import no_type_check

import jax


def pytree(*, static: tuple[str, ...]) -> Callable[[type], type]:
    """Register a frozen dataclass as a pytree whose fields are leaves, all but the `static` ones."""

    def register(cls: type) -> type:
        names = [f.name for f in fields(cls)]
        unknown = set(static) - set(names)
        assert not unknown, unknown
        no_type_check(cls.__init__)  # inside jit and vmap a `float` is an array
        data = [n for n in names if n not in static]
        return jax.tree_util.register_dataclass(cls, data_fields=data, meta_fields=list(static))

    return register

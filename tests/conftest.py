"""Strict JAX for every test: no silent broadcasting of ranks, no key spent twice, no GPU, no window."""

import itertools
import os
from collections.abc import Callable

# One thread a process: pytest-xdist already fills the cores. Read when the first backend starts.
# Tests compile much and compute little, so LLVM's optimiser stays out.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"
)
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)

# The first example pays for compilation, so no deadlines; the same examples on every machine, so no flakes.
hypothesis.settings.register_profile("scopil", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("scopil")


@pytest.fixture
def getkey() -> Callable[[], jax.Array]:
    """Hands out fresh keys in a fixed order."""
    seeds = itertools.count(5780)
    return lambda: jax.random.key(next(seeds))

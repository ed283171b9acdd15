"""Strict JAX for every test: no silent broadcasting of ranks, no key spent twice, no GPU, no window.

A program is compiled once per test run: the first process of the run makes a compilation cache in a temporary folder,
and the workers of pytest-xdist and the processes that tests start find it in their environment.
"""

import ctypes
import gc
import itertools
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# One thread per process: pytest-xdist already fills the cores. Read when the first backend starts.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
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

PROGRAMS_KIB = 2_000_000  # memory of a worker above which it releases its compiled programs after a module
# The files that take longest, by the beginnings of their paths.
LONGEST = ("train/test_kill.py", "test_docs.py", "algos/test_scopil_rho.py", "train/", "algos/", "bench/", "test_")
TESTS = Path(__file__).parent
OWN_CACHE = None  # the cache's folder, in the process that made it
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    OWN_CACHE = os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="scopil-tests-")
# The key that signs run folders: one per test run, not the user's.
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.environ["JAX_COMPILATION_CACHE_DIR"], "config")
# Set for this process and for those it starts: every program is kept, however small and quickly compiled.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# Tests compile much and compute little, so nothing is optimised, and by XLA's older emitters, which compile several
# times faster. Where a test computes much, or rounding is its subject, it asks for more (compiling.py).
QUICKLY = (
    " --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    if jax.__version__.startswith("0.10.")
    else ""  # XLA stops at a flag that it does not know
)

# Tracing makes many objects that live long. With Python's thresholds (700, 10, 10) a tenth of the time of a test run is
# spent in looking for garbage among them.
gc.set_threshold(50_000, 20, 50)

# The first example pays for compilation, so no deadlines; the same examples on every machine, so no flakes.
hypothesis.settings.register_profile("scopil", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("scopil")


def pytest_configure(config: pytest.Config) -> None:
    # Long learning runs are worth optimising a little.
    slow = config.option.markexpr == "slow"
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=1" if slow else QUICKLY


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that no worker waits for one at the end."""

    def place(item: pytest.Item) -> int:
        path = item.path.relative_to(TESTS).as_posix()
        return next((i for i, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    gc.freeze()  # modules are never garbage


def pytest_unconfigure() -> None:
    if OWN_CACHE is not None:
        shutil.rmtree(OWN_CACHE, ignore_errors=True)


def memory_kib() -> int:
    """The memory in use; where the system does not tell, its peak."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture(autouse=True, scope="module")
def bounded_memory() -> Iterator[None]:
    """Release compiled programs between modules: a worker that keeps all of them needs 10 GB."""
    yield
    if memory_kib() > PROGRAMS_KIB:
        jax.clear_caches()
        gc.collect()
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)  # glibc keeps the freed memory otherwise


@pytest.fixture
def getkey() -> Callable[[], jax.Array]:
    """Hands out fresh keys in a fixed order."""
    seeds = itertools.count(5780)
    return lambda: jax.random.key(next(seeds))

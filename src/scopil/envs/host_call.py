"""Calls from a compiled program to Python objects.

On a CPU, XLA calls a C function that `ctypes` makes (docs.jax.dev: foreign function interface). In a tight loop this
takes 3 µs, and `jax.experimental.io_callback` 40 µs. The program names the function and contains no address: JAX's
compilation cache can store it, which it cannot do for a program with `io_callback`. That is used elsewhere: on a GPU,
and with a jaxlib that has another version of the interface.
"""

import ctypes
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jaxtyping import Array, Float, Int

TARGET = "scopil_host_call"
VERSION = (0, 3)  # of XLA's foreign function interface. Minor versions only add fields.
# Positions in XLA's structures, in words of 8 bytes (xla/ffi/api/c_api.h).
EXTENSION, ARGUMENTS, RESULTS = 1, 9, 14  # in XLA_FFI_CallFrame
METADATA, METADATA_VERSION = 3, 3  # in XLA_FFI_Metadata_Extension, in XLA_FFI_Metadata
DATA, SHAPE = 3, 5  # in XLA_FFI_Buffer

_numbers = itertools.count(1)
_hosts: "WeakValueDictionary[int, Host]" = WeakValueDictionary()


@runtime_checkable
class Host(Protocol):
    """An object that answers calls. `answer` must not raise. It writes to every element of `out`."""

    def answer(self, sent: np.ndarray, out: np.ndarray) -> None: ...


def new_number(host: Host) -> int:
    """A number by which calls reach `host`, as long as it exists. A host may have several numbers."""
    number = next(_numbers)
    _hosts[number] = host
    return number


def call(sent: Int[Array, " K"], size: int) -> Float[Array, " size"]:
    """Send integers to the host with the number |`sent[0]`|. Returns the `size` numbers of its answer.

    Two calls are made in their order only if the second depends on the result of the first.
    """
    shape = jax.ShapeDtypeStruct((size,), jnp.float32)
    if jax.default_backend() == "cpu" and _is_direct():
        return jax.ffi.ffi_call(TARGET, shape, has_side_effect=True)(sent)
    return io_callback(lambda sent: _answer(np.array(sent), np.empty(size, np.float32)), shape, sent, ordered=True)


@contextmanager
def guarded() -> Iterator[list[BaseException]]:
    """Run compiled programs that call hosts. Yields a list, for what a signal handler raises before a call begins."""
    before = sys.unraisablehook
    lost: list[BaseException] = []

    def keep(unraisable: Any) -> None:
        if unraisable.object is not _call_python:
            before(unraisable)
        elif unraisable.exc_value is not None:
            lost.append(unraisable.exc_value)

    sys.unraisablehook = keep
    try:
        yield lost
    finally:
        sys.unraisablehook = before


def _answer(sent: np.ndarray, out: np.ndarray) -> np.ndarray:
    host = _hosts.get(abs(int(sent[0])))
    if host is None:  # a reset that failed gave no number; the program runs to its end with zeros
        out[:] = 0
    else:
        host.answer(sent, out)
    return out


_Word, _Buffer, _Frame = (ctypes.c_uint64 * count for count in (1, SHAPE + 1, RESULTS + 1))
_Extension = ctypes.c_uint64 * (METADATA + 1)


def _array(buffers: int, kind: Any) -> np.ndarray:
    """The memory of the first of XLA's buffers, which has one axis."""
    buffer = _Buffer.from_address(_Word.from_address(buffers)[0])
    return np.frombuffer((kind * _Word.from_address(buffer[SHAPE])[0]).from_address(buffer[DATA]), kind)


def _call_python(frame: int) -> None:
    words = _Frame.from_address(frame)
    if words[EXTENSION]:  # XLA asks for the version
        metadata = _Extension.from_address(words[EXTENSION])[METADATA]
        (ctypes.c_int * 2).from_address(metadata + 8 * METADATA_VERSION)[:] = VERSION
        return
    # A copy: an environment may keep its action, and XLA uses the memory again.
    _answer(_array(words[ARGUMENTS], ctypes.c_int32).copy(), _array(words[RESULTS], ctypes.c_float))


# XLA expects a null pointer. If a signal arrived, Python raises before the first instruction of `_call_python`, and
# `ctypes` returns any number. Therefore a second function, without Python code, surrounds it and returns null.
_inner = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_call_python)
_outer = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(_inner)


@cache
def _is_direct() -> bool:
    """Whether XLA calls `_outer`. It refuses a function for a version of its interface that it does not support. This
    needs a backend: a function that is refused when a backend starts would stop the backend."""
    jax.devices("cpu")
    try:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_outer), platform="cpu")
    except RuntimeError:
        return False
    return True

"""Pytrees of arrays as safetensors files with a checksum. Loading executes no code.

A file holds each array under its path in the tree (typed keys as raw data), a JSON note, and a checksum over both.
The unused part of a replay buffer is zero and is not written.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors

from scopil.buffers.replay import Replay
from scopil.errors import CheckpointError
from scopil.files import parse_json, seal, unsealed, write_atomically

FORMAT = "scopil-tree-2"
DTYPES = {
    "f2": "F16", "f4": "F32", "f8": "F64", "i1": "I8", "i2": "I16", "i4": "I32", "i8": "I64",
    "u1": "U8", "u2": "U16", "u4": "U32", "u8": "U64", "b1": "BOOL",
}  # fmt: skip


def save_tree(path: Path, tree: Any, note: dict[str, Any]) -> None:
    leaves = named_leaves(_trim(tree))
    arrays = {name: np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for name, leaf in leaves}
    pieces = _safetensors(arrays, {"scopil": json.dumps({"format": FORMAT, "note": note})})
    try:
        write_atomically(path, *pieces, seal(*pieces))
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror}. Free some disk space and resume.") from error


def _safetensors(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> list[bytes | memoryview]:
    """The pieces of a safetensors file. The safetensors library would copy a full replay buffer three times, and its
    metadata order varies. Equal states must give equal bytes."""
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # keeps every array aligned
    header: dict[str, Any] = {"__metadata__": metadata}
    pieces, at = [], 0
    for name in order:
        array = np.ascontiguousarray(arrays[name])
        if array.dtype.str[1:] not in DTYPES:
            raise CheckpointError(f"{name} is an array of {array.dtype}, which cannot be saved; want plain numbers.")
        end = at + array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype.str[1:]], "shape": arrays[name].shape, "data_offsets": (at, end)}
        pieces.append(array.reshape(-1).view(np.uint8).data)
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *pieces]


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Check a file's checksum and return its arrays by name and its note. Raises CheckpointError."""
    try:
        body = unsealed(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}: the file is damaged.") from error
    if body is None:
        raise CheckpointError(f"{path}: no checksum at its end: truncated, or not a file of scopil.")
    try:
        header = parse_json(body[8 : 8 + int.from_bytes(body[:8], "little")])
        about = parse_json(header["__metadata__"]["scopil"])
        if about["format"] != FORMAT:
            raise CheckpointError(f"{path}: format {about['format']}; this version reads {FORMAT}. Train again.")
        if not isinstance(about["note"], dict):
            raise ValueError(f"a note of type {type(about['note']).__name__}")
        return load_safetensors(body), about["note"]
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: not readable as safetensors ({error}).") from error


def read_note(path: Path) -> dict[str, Any]:
    return read_arrays(path)[1]


def load_tree(path: Path, like: Any, within: str | None = None) -> tuple[Any, dict[str, Any]]:
    """The tree saved at `path`, in the structure of `like` (arrays or shapes), and its note. `within` is the name of
    one branch of the saved tree. Raises CheckpointError."""
    arrays, note = read_arrays(path)
    return as_tree(arrays if within is None else branch(arrays, within), like, path), note


def branch(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays of one branch of a tree. A branch is a dict key or a field."""
    heads = (f"['{name}']", f".{name}")
    found = {n.removeprefix(h): a for n, a in arrays.items() for h in heads if n.startswith(h)}
    return {n: a for n, a in found.items() if not n or n[0] in ".["}  # `.env` is not a branch of `.env_steps`


def as_tree(arrays: dict[str, np.ndarray], like: Any, path: Path) -> Any:
    wanted = named_leaves(like)
    if odd := sorted({name for name, _ in wanted} ^ set(arrays)):
        raise CheckpointError(
            f"{path}: holds another kind of state than wanted (differs in {', '.join(odd[:3])}). If another version of "
            f"scopil wrote it, use that version, or train again."
        )
    nodes = jax.tree.leaves(like, is_leaf=lambda node: isinstance(node, Replay))
    rings = {id(ring) for node in nodes if isinstance(node, Replay) for ring in (node.rows, node.pixels)}
    leaves = [_from_numpy(arrays[name], leaf, f"{path}: {name}", ring=id(leaf) in rings) for name, leaf in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _trim(tree: Any) -> Any:
    def used(node: Any) -> Any:
        if not isinstance(node, Replay):
            return node
        rings = {"rows": node.rows, "pixels": node.pixels}
        return node._replace(**{k: np.asarray(v)[: int(node.size)] for k, v in rings.items() if v is not None})

    return jax.tree.map(used, tree, is_leaf=lambda node: isinstance(node, Replay))


def _from_numpy(array: np.ndarray, like: Any, what: str, ring: bool) -> jax.Array:
    if _is_key(like):
        shape = (*like.shape, *jax.eval_shape(jax.random.key_data, like).shape[len(like.shape) :])
        if array.shape != shape or array.dtype != np.uint32:
            raise CheckpointError(f"{what} is {array.dtype}{array.shape}; want uint32{shape}.")
        return jax.random.wrap_key_data(jnp.asarray(array))
    shape = tuple(like.shape)
    if ring and array.shape[1:] == shape[1:] and len(array) < shape[0]:
        array = np.concatenate([array, np.zeros((shape[0] - len(array), *shape[1:]), array.dtype)])
    if array.shape != shape or array.dtype != like.dtype:
        raise CheckpointError(f"{what} is {array.dtype}{array.shape}; want {like.dtype}{shape}.")
    return jnp.array(array)

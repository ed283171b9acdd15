"""Random damage of bytes, and forged JSON, arrays and archives, drawn from a seed."""

import copy
import io
import json
import random
import zipfile
from functools import cache
from typing import Any

import numpy as np

from scopil.files import SEAL_BYTES, seal

DEEP = "[" * 100_000  # JSON nested deeper than the stack of a parser
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 7, 2**31, 2**63, 2**64, -(2**70), 0.5, 1e308, float("nan"), float("inf"),
    "", "x", "a" * 300, "\x1b[31m", "../../etc/passwd", "évil\u202e", "9" * 5000, "[1]", "nan", "__class__", "|O",
    [], [[]], [None], ["a", 1], {}, {"a": {}}, [0] * 1000, [2**40], [-1, 2], {"type": "Box"}, {"type": "Dict"},
]  # fmt: skip


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, removed, inserted or replaced."""
    kind, at = rng.randrange(7), rng.randrange(max(len(data), 1))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[at:]
    if kind == 2:
        return data + rng.randbytes(rng.choice([1, 8, 512, 4096]))
    if kind == 3:
        return data[:at] + rng.randbytes(rng.randrange(1, 64)) + data[at:]
    if kind == 4:
        end = at + rng.randrange(1, 64)
        return data[:at] + data[end:]
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        where = rng.randrange(max(len(data), 1))
        if kind == 5:
            changed[where] ^= 1 << rng.randrange(8)
        else:
            changed[where] = rng.choice([0, 255, 127, rng.randrange(256)])
    return bytes(changed)


def changed_json(tree: Any, rng: random.Random) -> Any:
    """One to three values replaced, removed, added or wrapped."""
    tree = {"": copy.deepcopy(tree)}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        node, key = tree, ""
        while isinstance(node[key], dict | list) and node[key] and rng.random() < 0.85:
            node = node[key]
            key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        kind = rng.randrange(6)
        if kind == 0 and key != "":
            node.pop(key) if isinstance(node, dict) else node.insert(key, copy.deepcopy(rng.choice(VALUES)))
            break
        if kind == 1:
            node[key] = [node[key]]
        elif kind == 2 and isinstance(node[key], dict):
            node[key][rng.choice(["extra", "", "env", "config", "__init__"])] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 3 and isinstance(node[key], str):
            node[key] = rng.choice(["", node[key] * 200, node[key] + "\n", node[key][::-1], "m:" + node[key]])
        elif kind == 4 and isinstance(node[key], int | float):
            node[key] = rng.choice([-node[key], node[key] + 1, float(node[key]), str(node[key]), 10**30])
        else:
            node[key] = copy.deepcopy(rng.choice(VALUES))
    return tree[""]


def json_text(tree: Any, rng: random.Random) -> bytes:
    """A changed tree as text, which is sometimes invalid."""
    text = json.dumps(changed_json(tree, rng))
    kind = rng.randrange(12)
    if kind == 0:
        return damaged(text.encode(), rng)
    if kind == 1:
        return (DEEP + text).encode()
    if kind == 2:
        return text.encode("utf-16")
    return text.encode()


def changed_array(array: np.ndarray, rng: random.Random) -> bytes:
    """A `.npy` of another dtype, shape or content, or with a false header."""
    kind = rng.randrange(11)
    with np.errstate(all="ignore"):
        if kind == 0:
            wanted = rng.choice(["f2", "f8", "u8", "i1", "c16", "?", "U7", "S3", "M8[s]", "m8[ns]", "V4"])
            try:
                return npy(array.astype(wanted))
            except (TypeError, ValueError):
                return npy(np.zeros(array.shape, wanted))
        if kind == 1:
            return npy(np.zeros(array.shape[:1], [("a", "f4"), ("b", "i4")]))
        if kind == 2:
            return npy(array.reshape(-1)[0] if array.size else array)  # no dimensions
        if kind == 3:
            return npy(array[:0] if array.ndim else np.zeros(0))
        if kind == 4:
            return npy(rng.choice([array[None], array[..., None], array.T, np.stack([array] * 2)]))
        if kind == 5:
            return npy(array[: rng.randrange(len(array) + 1)] if array.ndim else array)
        if kind == 6 and array.dtype.kind in "fiu":
            other = array.astype(np.float64).reshape(-1)
            if other.size:
                extreme = [np.nan, np.inf, -np.inf, 1e308, -1.0, 2.0**63, 0.5]
                other[rng.randrange(other.size)] = rng.choice(extreme)
            return npy(other.reshape(array.shape))
        if kind == 7:
            return npy(np.full(array.shape, rng.choice([-(2**63), 2**63 - 1, 2**62, -1]), np.int64))
        if kind == 8:
            return npy(np.concatenate([array] * 3) if array.ndim else np.array([array] * 3))
        if kind == 9:
            return rng.choice([b"", b"not an array", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x01\x00\xff\xff{}"])
    shape = rng.choice(["(10000000000000,)", "(-1,)", "(2147483648, 2147483648)", "()", "'x'", "(3.5,)"])
    descr = rng.choice(["'<f4'", "'|O'", "'<f16'", "[('a', '|O')]", "'<U1000000000'", "None", "'<i8'"])
    return raw_npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}", rng.randbytes(64))


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def raw_npy(header: str, body: bytes) -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def changed_archive(arrays: dict[str, np.ndarray], header: Any, rng: random.Random, sealed: bool) -> bytes:
    """A `.npz` with one or two members changed, and with a valid checksum if it is sealed."""
    members = {name: npy(array) for name, array in arrays.items()}
    if header is not None:
        members["header"] = npy(json.dumps(header))
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(sorted(members))
        kind = rng.randrange(10)
        if kind == 0:
            del members[name]
        elif kind == 1:
            members[rng.choice(["extra", "starts", "lengths", "obs", "../up", "terminals"])] = members[name]
        elif kind == 2:
            members[name] = damaged(members[name], rng)
        elif kind == 3:
            members[name] = members[rng.choice(sorted(members))]
        elif name == "header":
            members[name] = npy(json_text(header, rng).decode(errors="replace"))
        elif name in arrays:
            members[name] = changed_array(arrays[name], rng)
        if not members:
            break
    return zipped(members, rng, sealed)


def zipped(members: dict[str, bytes], rng: random.Random, sealed: bool) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])) as archive:
        for name, data in members.items():
            archive.writestr(name if rng.random() < 0.02 else f"{name}.npy", data)
        archive.comment = seal() if sealed else b""
    return resealed(file.getvalue()) if sealed else file.getvalue()


def resealed(data: bytes) -> bytes:
    """With a valid checksum at the end."""
    body = data[:-SEAL_BYTES]
    return body + seal(body)


@cache
def bomb(name: str, megabytes: int) -> bytes:
    """An archive of a few kilobytes that unpacks to an array of many megabytes."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(f"{name}.npy", "w", force_zip64=True) as member,
    ):
        count = megabytes * 2**20 // 4
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}"
        member.write(raw_npy(header, b""))
        for _ in range(megabytes):
            member.write(bytes(2**20))
    return file.getvalue()


def changed_safetensors(data: bytes, rng: random.Random) -> bytes:
    """A safetensors file with its header, note or arrays changed, and with a valid checksum."""
    body = data[:-SEAL_BYTES]
    size = int.from_bytes(body[:8], "little")
    header, arrays = json.loads(body[8 : 8 + size]), body[8 + size :]
    kind = rng.randrange(6)
    if kind == 0:
        return resealed(damaged(body, rng) + seal())
    if kind == 1:
        lie = rng.choice([0, 1, size - 8, size + 8, 2**31, 2**63 - 1, 2**64 - 1])
        return resealed(lie.to_bytes(8, "little") + body[8:] + seal())
    if kind == 2:
        text = json_text(header, rng)
    else:
        about = json.loads(header["__metadata__"]["scopil"])
        if kind == 3:
            about["note"] = changed_json(about["note"], rng)
        elif kind == 4:
            about = changed_json(about, rng)
        else:
            arrays = damaged(arrays, rng)[: len(arrays)].ljust(len(arrays), b"\xff")
        note = json.dumps(about) if rng.random() < 0.95 else DEEP
        text = json.dumps(header | {"__metadata__": {"scopil": note}}).encode()
    text += b" " * (-len(text) % 8)
    return resealed(len(text).to_bytes(8, "little") + text + arrays + seal())

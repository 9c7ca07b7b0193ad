"""Weights in one file: `read` and `write` the safetensors format.

The file is 8 bytes of header length (little endian), a JSON header that gives each
tensor's dtype, shape and byte range, then the bytes. Nothing in it can run. A header is
checked against the size of the file before any tensor is looked at.
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm import strict_json
from tinyllm.atomic_file import atomic_file
from tinyllm.errors import CheckpointError
from tinyllm.formats.blocks import KINDS, Bytes
from tinyllm.formats.tensor import Stored, mapped

LARGEST_HEADER = 100_000_000  # bytes, the format's own limit
_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8}
_BITS |= {"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16}
_BITS |= {"BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64}
_BITS |= {"I64": 64, "U64": 64}
_FIELDS = {"dtype", "shape", "data_offsets"}
_READABLE = [kind for kind in KINDS if kind in _BITS]
_WRITABLE = {"F16": "<f2", "F32": "<f4"}


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies: bytes begin to end, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read(path: str | os.PathLike[str]) -> dict[str, Stored]:
    """Return every tensor of a safetensors file by name, still in the file.

    Reads F32, F16 and BF16. Raises CheckpointError for anything the format forbids, and
    for a file that cannot be read.
    """
    return parse(mapped(path), str(path))


def parse(data: Bytes, name: str) -> dict[str, Stored]:
    """Return the tensors in the bytes of a file that errors call `name`; see `read`."""
    entries, start = read_header(data, name)
    body = data[start:]
    found = {}
    for key, entry in entries.items():
        _check_readable(f"{name}: tensor {key!r}", entry)
        found[key] = Stored(body[entry.begin : entry.end], entry.dtype, entry.shape)
    return found


def read_header(data: Bytes, name: str) -> tuple[dict[str, Entry], int]:
    """Return the entries of a file's bytes and the offset where its tensors begin.

    Raises CheckpointError unless the byte ranges cover the rest of the file exactly.
    """
    size = len(data)
    if size < 8:
        raise CheckpointError(
            f"{name}: {size} bytes are too few for a safetensors file"
        )
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    if length > LARGEST_HEADER or length > size - 8:
        raise CheckpointError(
            f"{name}: header of {length} bytes in a file of {size}: is it safetensors?"
        )
    header = _parse(data[8 : 8 + length], name)
    header.pop("__metadata__", None)
    entries = {key: _entry(key, value, name) for key, value in header.items()}
    _check_cover(entries, size - 8 - length, name)
    return entries, 8 + length


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, NDArray[Any] | Stored],
    dtype: str = "F32",
) -> None:
    """Write the tensors to a safetensors file as F32 or F16, whole or not at all.

    They become arrays one at a time. Raises CheckpointError for another dtype or a
    value that F16 cannot hold.
    """
    check_dtype(dtype)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    names, offset = sorted(tensors), 0
    for name in names:
        shape = tensors[name].shape
        span = [offset, offset + math.prod(shape) * _BITS[dtype] // 8]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": span}
        offset = span[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    with atomic_file(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            file.write(_encode(name, np.asarray(tensors[name]), dtype).data)


def check_dtype(dtype: str) -> None:
    """Raise CheckpointError for a kind of number that `write` does not know."""
    if dtype not in _WRITABLE:
        raise CheckpointError(f"cannot write {dtype!r}: choose 'F16' or 'F32'")


def _parse(raw: Bytes, name: str) -> dict[str, Any]:
    try:
        header = strict_json.read(raw.tobytes().decode("utf-8"), _whole)
    except ValueError as error:
        raise CheckpointError(f"{name}: the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{name}: the header must be a JSON object")
    metadata = header.get("__metadata__")
    texts = list(metadata.values()) if isinstance(metadata, dict) else [metadata]
    if metadata is not None and not all(isinstance(text, str) for text in texts):
        raise CheckpointError(f"{name}: __metadata__ must map names to texts")
    return header


def _whole(text: str) -> float:
    """Return a number; -0 and very long ones are floats, as in the library."""
    if text != "-0" and len(text) <= 300:
        return int(text)
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text:.20} is larger than any float")
    return number


def _entry(key: str, value: Any, name: str) -> Entry:
    where = f"{name}: tensor {key!r}"
    if not isinstance(value, dict) or not value.keys() >= _FIELDS:
        raise CheckpointError(f"{where} needs dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise CheckpointError(f"{where} has the unknown dtype {dtype!r}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{where}: shape and data_offsets must be whole numbers")
    begin, end = offsets
    sizes = [_BITS[dtype], *shape]
    if any(n >= 2**64 for n in accumulate(sizes, mul)):
        raise CheckpointError(f"{where}: shape {shape} is beyond any memory")
    if 8 * (end - begin) != math.prod(sizes):
        raise CheckpointError(
            f"{where}: bytes {begin} to {end} do not hold {dtype} of shape {shape}"
        )
    return Entry(dtype, tuple(shape), begin, end)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(n) is int and 0 <= n < 2**63 for n in values
    )


def _check_cover(entries: Mapping[str, Entry], size: int, name: str) -> None:
    """Raise CheckpointError unless the ranges follow each other from 0 to size."""
    at = 0
    for key, entry in sorted(entries.items(), key=lambda e: (e[1].begin, e[1].end)):
        if entry.begin != at:
            raise CheckpointError(
                f"{name}: tensor {key!r} begins at byte {entry.begin}, expected {at}"
            )
        at = entry.end
    if at != size:
        raise CheckpointError(f"{name}: tensors end at byte {at}, the file at {size}")


def _check_readable(where: str, entry: Entry) -> None:
    if entry.dtype not in _READABLE:
        raise CheckpointError(
            f"{where} is {entry.dtype}; expected one of {', '.join(_READABLE)}"
        )
    if math.prod(max(n, 1) for n in entry.shape) >= 2**60 or len(entry.shape) > 32:
        raise CheckpointError(f"{where}: numpy has no shape {entry.shape}")


def _encode(name: str, tensor: NDArray[Any], dtype: str) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        stored = np.asarray(tensor, dtype=_WRITABLE[dtype], order="C")
    if not np.array_equal(np.isfinite(tensor), np.isfinite(stored)):
        raise CheckpointError(f"tensor {name!r} has values too large for {dtype}")
    return stored

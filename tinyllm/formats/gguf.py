"""GGUF files: `read` gives a `GGUF`, its metadata and its tensors, still in the file.

The file is b"GGUF", a version, two counts, the metadata, what is known of each tensor,
and then, from the next multiple of an alignment, the tensors. Each count and length is
held against the bytes that are there before anything is made of it.
Source: ggml, docs/gguf.md; the names of tensor types are those of its ggml.h.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm.errors import CheckpointError
from tinyllm.formats.blocks import KINDS
from tinyllm.formats.tensor import Stored, mapped

VERSIONS = (2, 3)
ALIGNMENT = "general.alignment"
MOST_DIMS, LONGEST_KEY, LONGEST_NAME = 4, 65535, 64  # the format's own limits; bytes
SMALLEST_PAIR, SMALLEST_ENTRY = 13, 24  # bytes that the least metadata, tensor takes
# Metadata types by id: numbers as in `struct`; strings and arrays go another way.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
NUMBERS |= {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# Tensor types by id, the retired ones as well.
NAMES = (
    "F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K "
    "IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M "
    "BF16 Q4_0_4_4 Q4_0_4_8 Q4_0_8_8 TQ1_0 TQ2_0 IQ4_NL_4_4 IQ4_NL_4_8 IQ4_NL_8_8 "
    "MXFP4 NVFP4 Q1_0"
)
TYPES = NAMES.split()


@dataclass(frozen=True, eq=False)
class GGUF:
    """One file: its `name` for messages, `metadata` by key, `tensors` by name.

    A value is an int, float, bool or str, an array of numbers a numpy array, an array
    of strings a list.
    """

    name: str
    metadata: dict[str, Any]
    tensors: dict[str, Stored]


def read(path: str | os.PathLike[str]) -> GGUF:
    """Return what a GGUF file of version 2 or 3, little endian, holds.

    Arrays and tensors are views of the mapped file; a tensor's shape is numpy's, (out,
    in). Raises ModelNotFoundError where there is no file, CheckpointError for what is
    damaged, or a tensor of a type that is not in `blocks.KINDS`.
    """
    cursor = _Cursor(mapped(path), str(path))
    n_tensors, n_pairs = _counts(cursor)
    metadata: dict[str, Any] = {}
    for _ in range(n_pairs):
        key = cursor.text("a metadata key", LONGEST_KEY)
        if key in metadata:
            raise cursor.error(f"metadata {key!r} is there twice")
        what = f"metadata {key!r}"
        metadata[key] = _value(cursor, cursor.whole("I", what), what)
    cursor.room(n_tensors * SMALLEST_ENTRY, f"a list of {n_tensors} tensors")
    entries = [_entry(cursor) for _ in range(n_tensors)]
    alignment = _alignment(cursor, metadata)
    return GGUF(cursor.name, metadata, _tensors(cursor, entries, alignment))


class _Cursor:
    """A place in a file: it moves towards the end as it reads, never past it."""

    def __init__(self, raw: NDArray[np.uint8], name: str) -> None:
        self.raw, self.name, self.at = raw, name, 0
        self._view = raw.data

    def error(self, text: str) -> CheckpointError:
        """Return an error that names the file."""
        return CheckpointError(f"{self.name}: {text}")

    def room(self, n: int, what: str) -> None:
        """Raise CheckpointError unless n more bytes are there."""
        left = len(self.raw) - self.at
        if n > left:
            raise self.error(
                f"{what} needs {n} bytes from byte {self.at} on, where {left} are left"
            )

    def whole(self, code: str, what: str) -> int:
        """Return one whole number; `code` is I (4 bytes) or Q (8 bytes)."""
        return int(self.numbers(code, 1, what)[0])

    def text(self, what: str, longest: int = 2**64) -> str:
        """Return one string of at most `longest` bytes."""
        return self.texts(1, what, longest)[0]

    def texts(self, n: int, what: str, longest: int = 2**64) -> list[str]:
        """Return n strings: in one loop, for a vocabulary has a hundred thousand."""
        self.room(8 * n, what)
        view, last, size_at = self._view, len(self.raw), struct.Struct("<Q").unpack_from
        found = []
        for _ in range(n):
            begin = self.at + 8
            size = size_at(view, self.at)[0] if begin <= last else 0
            if begin + size > last:
                raise self.error(
                    f"{what} has a string, at byte {self.at}, that ends beyond the "
                    f"file of {last} bytes"
                )
            if size > longest:
                raise self.error(f"{what} has {size} bytes; expected up to {longest}")
            try:
                found.append(str(view[begin : begin + size], "utf-8"))
            except UnicodeDecodeError as error:
                raise self.error(f"{what} is not UTF-8: {error.reason}") from None
            self.at = begin + size
        return found

    def numbers(self, code: str, n: int, what: str) -> NDArray[Any]:
        """Return n numbers: a view of the file."""
        dtype = np.dtype("<" + code)
        self.room(n * dtype.itemsize, what)
        self.at += n * dtype.itemsize
        raw = self.raw[self.at - n * dtype.itemsize : self.at]
        if code == "?" and raw.max(initial=0) > 1:
            raise self.error(f"{what} is true or false; expected the bytes 1 or 0")
        return raw.view(dtype)


def _counts(cursor: _Cursor) -> tuple[int, int]:
    """Return how many tensors and pairs of metadata the file says it has."""
    magic = cursor.raw[:4].tobytes()
    if magic != b"GGUF":
        raise cursor.error(f"begins with {magic!r}, expected b'GGUF': is it GGUF?")
    cursor.at = 4
    version = cursor.whole("I", "the version")
    if version and version % 2**16 == 0:  # versions are small
        raise cursor.error("big endian; expected a little endian file")
    if version not in VERSIONS:
        raise cursor.error(f"version {version} of GGUF; expected 2 or 3")
    n_tensors = cursor.whole("Q", "the number of tensors")
    n_pairs = cursor.whole("Q", "the number of metadata keys")
    cursor.room(n_pairs * SMALLEST_PAIR, f"metadata of {n_pairs} keys")
    return n_tensors, n_pairs


def _value(cursor: _Cursor, kind: int, what: str) -> Any:
    if kind in NUMBERS:
        return cursor.numbers(NUMBERS[kind], 1, what)[0].item()
    if kind == STRING:
        return cursor.text(what)
    if kind == ARRAY:
        return _array(cursor, what)
    raise cursor.error(f"{what} has the unknown type {kind}; expected 0 to 12")


def _array(cursor: _Cursor, what: str) -> Any:
    kind, n = cursor.whole("I", what), cursor.whole("Q", what)
    if kind in NUMBERS:
        return cursor.numbers(NUMBERS[kind], n, what)
    if kind == STRING:
        return cursor.texts(n, what)
    if kind == ARRAY:
        raise cursor.error(f"{what} is an array of arrays: not supported")
    raise cursor.error(f"{what} is an array of the unknown type {kind}")


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    """Return the number of bytes whose multiples tensors begin at."""
    value = metadata.get(ALIGNMENT, 32)
    if type(value) is int and value in [2**n for n in range(3, 17)]:
        return value
    raise cursor.error(
        f"metadata {ALIGNMENT!r} is {value!r:.40}; "
        "expected a power of two from 8 to 65536"
    )


@dataclass(frozen=True)
class _Entry:
    """What the file says of one tensor; `offset` counts from the first of them."""

    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Return the number of bytes, for a shape that the blocks of the kind fill."""
        kind = KINDS[self.kind]
        return math.prod(self.shape) // kind.block * kind.size


def _entry(cursor: _Cursor) -> _Entry:
    name = cursor.text("a tensor name", LONGEST_NAME)
    what = f"tensor {name!r}"
    n_dims = cursor.whole("I", what)
    if n_dims > MOST_DIMS:
        raise cursor.error(
            f"{what} has {n_dims} dimensions; expected at most {MOST_DIMS}"
        )
    inward = [cursor.whole("Q", what) for _ in range(n_dims)]
    shape = tuple(reversed(inward))  # the file has the innermost first
    type_id = cursor.whole("I", what)
    if type_id >= len(TYPES):
        raise cursor.error(f"{what} has the unknown type {type_id}")
    kind, readable = TYPES[type_id], ", ".join(KINDS)
    if kind not in KINDS:
        raise cursor.error(f"{what} is {kind}: not supported; expected {readable}")
    if 0 in shape:
        raise cursor.error(f"{what} has shape {shape}; expected sizes above 0")
    row, block = shape[-1] if shape else 1, KINDS[kind].block
    if row % block:
        raise cursor.error(
            f"{what} is {kind} with rows of {row}; expected a multiple of {block}"
        )
    return _Entry(name, kind, shape, cursor.whole("Q", what))


def _tensors(
    cursor: _Cursor, entries: list[_Entry], alignment: int
) -> dict[str, Stored]:
    """Return the tensors, whose bytes must lie inside the file and apart."""
    start = cursor.at + -cursor.at % alignment
    tensors: dict[str, Stored] = {}
    for entry in entries:
        what, begin = f"tensor {entry.name!r}", start + entry.offset
        if entry.name in tensors:
            raise cursor.error(f"{what} is there twice")
        if entry.offset % alignment:
            raise cursor.error(
                f"{what} has offset {entry.offset}; expected a multiple of {alignment}"
            )
        end = begin + entry.size
        if end > len(cursor.raw):
            raise cursor.error(
                f"{what}, {entry.kind} of shape {entry.shape}, ends at byte {end} of "
                f"a file of {len(cursor.raw)}"
            )
        tensors[entry.name] = Stored(cursor.raw[begin:end], entry.kind, entry.shape)
    for one, other in pairwise(sorted(entries, key=lambda entry: entry.offset)):
        if one.offset + one.size > other.offset:
            raise cursor.error(f"tensors {one.name!r} and {other.name!r} overlap")
    return tensors

"""Safetensors files, byte by byte: hostile ones to refuse, odd ones to accept."""

from __future__ import annotations

import json
import math
import re
import struct
from random import Random


def blob(header, body=b"", length=None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + body


def entry(dtype="F32", shape=(1,), offsets=(0, 4), **more) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


ONE = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'

REFUSED = {
    "an empty file": b"",
    "seven bytes": b"1234567",
    "header beyond the file": blob({"a": entry()}, b"1234", length=10**6),
    "header above 100 MB": blob({}, length=100_000_001),
    "header of 2^63 bytes": blob({}, length=2**63),
    "header of 2^64-1 bytes": blob({}, length=2**64 - 1),
    "bytes without a tensor": blob({}, b"x"),
    "bytes after the last": blob({"a": entry()}, b"12345"),
    "overlap": blob({"a": entry(), "b": entry(offsets=(2, 6))}, b"123456"),
    "the same bytes twice": blob({"a": entry(), "b": entry()}, b"1234"),
    "hole": blob({"a": entry(), "b": entry(offsets=(8, 12))}, b"x" * 12),
    "hole at the start": blob({"a": entry(offsets=(4, 8))}, b"x" * 8),
    "backwards": blob({"a": entry(offsets=(4, 0))}, b"1234"),
    "shape beyond offsets": blob({"a": entry(shape=(2,))}, b"1234"),
    "dtype beyond offsets": blob({"a": entry("F64")}, b"1234"),
    "offsets past the end": blob({"a": entry(shape=(2,), offsets=(0, 8))}, b"1234"),
    "nothing far away": blob(
        {"a": entry(), "b": entry(shape=(0,), offsets=(400, 400))}, b"1234"
    ),
    "nothing inside another": blob(
        {
            "a": entry(shape=(2,), offsets=(0, 8)),
            "b": entry(shape=(0,), offsets=(4, 4)),
        },
        b"x" * 8,
    ),
    "shape of 2^80": blob({"a": entry(shape=(2**40, 2**40))}, b"1234"),
    "shape that wraps to 0": blob({"a": entry(shape=(2**62, 4), offsets=(0, 0))}),
    "wrap hidden by a 0": blob({"a": entry(shape=(2**40, 2**40, 0), offsets=(0, 0))}),
    "negative shape": blob({"a": entry(shape=(-1,), offsets=(0, -4))}),
    "fractional shape": blob({"a": entry(shape=(1.0,))}, b"1234"),
    "true as a shape": blob({"a": entry(shape=(True,))}, b"1234"),
    "a shape of 5000 digits": blob(ONE.replace(b"[1]", b"[" + b"1" * 5000 + b"]")),
    "offset of 2^63": blob({"a": entry(offsets=(2**63, 2**63 + 4))}, b"1234"),
    "three offsets": blob({"a": entry(offsets=(0, 4, 4))}, b"1234"),
    "unknown dtype": blob({"a": entry("F33")}, b"1234"),
    "no dtype": blob({"a": entry(None)}, b"1234"),
    "half a nibble": blob({"a": entry("F4", (1,), (0, 1))}, b"1"),
    "no offsets": blob({"a": {"dtype": "F32", "shape": [1]}}, b"1234"),
    "null for an entry": blob({"a": None}),
    "a key twice in an entry": blob(ONE.replace(b"{", b'{"a":{"dtype":"F32",', 1)),
    "a list": blob([]),
    "not JSON": blob(b"{a"),
    "NaN": blob(ONE.replace(b"[1]", b"[NaN]"), b"1234"),
    "junk after the JSON": blob(ONE + b"x", b"1234"),
    "NUL after the JSON": blob(ONE + b"\0", b"1234"),
    "not UTF-8": blob(b'{"\xff":1}'),
    "a lone surrogate": blob(ONE.replace(b"a", b"\\ud800", 1), b"1234"),
    "NaN where nobody looks": blob({"a": entry(note=math.nan)}, b"1234"),
    "a number beyond the floats": blob({"a": entry(note=10**400)}, b"1234"),
    "minus zero as a shape": blob(ONE.replace(b"[1]", b"[-0]").replace(b"4", b"0")),
    "5000 brackets": blob(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    "a number as metadata": blob({"__metadata__": {"a": 1}, "b": entry()}, b"1234"),
    "a list as metadata": blob({"__metadata__": [], "b": entry()}, b"1234"),
}
ACCEPTED = {
    "one number": blob({"a": entry()}, b"1234"),
    "no tensor": blob({}),
    "shape [0] with equal offsets": blob({"a": entry(shape=(0,), offsets=(0, 0))}),
    "shape [0, 3] at the end": blob(
        {"a": entry(), "b": entry(shape=(0, 3), offsets=(4, 4))}, b"1234"
    ),
    "a scalar": blob({"a": entry(shape=())}, b"1234"),
    "spaces after the JSON": blob(ONE + b"    ", b"1234"),
    "a key more": blob({"a": entry(note=1)}, b"1234"),
    "metadata": blob({"__metadata__": {"x": "y"}, "a": entry()}, b"1234"),
    "entries in another order": blob(
        {"b": entry(offsets=(4, 8)), "a": entry()}, b"12345678"
    ),
}

NUMBERS = [b"0", b"1", b"2", b"4", b"8", b"-1", b"1e3", b"true", b"null", b"4294967296"]
NUMBERS += [
    b"9223372036854775807",
    b"18446744073709551616",
    b"1" * 400,
    b"[]",
    b'"F32"',
]
LENGTHS = [0, 1, 8, 2**20, 99_999_999, 100_000_001, 2**31, 2**62, 2**63, 2**64 - 1]


def mutated(random: Random, raw: bytes) -> bytes:
    """A safetensors file with one fault, most often in its header."""
    length = struct.unpack("<Q", raw[:8])[0]
    header, body = raw[8 : 8 + length], raw[8 + length :]
    at, to = sorted(random.choices(range(length + 1), k=2))
    match random.randrange(8):
        case 0:  # another byte
            header = header[:at] + random.randbytes(1) + header[at + 1 :]
        case 1:  # some bytes away
            header = header[:at] + header[to:]
        case 2:  # some bytes twice
            header = header[:to] + header[at:]
        case 3 | 4:  # another number
            spans = [m.span() for m in re.finditer(rb"\d+", header)] or [(at, to)]
            begin, end = random.choice(spans)
            header = header[:begin] + random.choice(NUMBERS) + header[end:]
        case 5:  # another dtype
            dtype = random.choice([b"F16", b"BF16", b"I8", b"F64", b"F4", b"Q8_0"])
            header = header.replace(b"F32", dtype, 1)
        case 6:  # another length of the header
            choice = random.choice([*LENGTHS, length - 1, length + 1])
            return struct.pack("<Q", choice) + raw[8:]
        case 7:  # the end missing, or more of it
            return raw[: random.randrange(len(raw))] + random.randbytes(at % 3)
    return blob(header, body)

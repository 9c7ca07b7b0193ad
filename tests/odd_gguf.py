"""GGUF files, byte by byte: hostile ones to refuse, odd ones to accept."""

from __future__ import annotations

import math
import struct

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
CODES = dict(zip((U8, I8, U16, I16, U32, I32, F32, BOOL), "BbHhIif?", strict=True))
CODES |= dict(zip((U64, I64, F64), "Qqd", strict=True))


def text(value: str | bytes, length=None) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def array(kind, values=(), n=None, body=None) -> bytes:
    """An array's type, count and body; `n` and `body` may lie."""
    if body is None and kind == STR:
        body = b"".join(map(text, values))
    elif body is None:
        body = struct.pack(f"<{len(values)}{CODES[kind]}", *values)
    return struct.pack("<IQ", kind, len(values) if n is None else n) + body


def pair(key, kind, value) -> bytes:
    """One piece of metadata; `value` is bytes, or what the type holds."""
    if isinstance(value, str):
        value = text(value)
    elif not isinstance(value, bytes):
        value = struct.pack("<" + CODES[kind], value)
    return (
        (key if isinstance(key, bytes) else text(key)) + struct.pack("<I", kind) + value
    )


def tensor(name="a", shape=(1,), kind=0, offset=0, n_dims=None) -> bytes:
    """What a file says of one tensor; `shape` is numpy's, `n_dims` may lie."""
    dims = struct.pack(f"<{len(shape)}Q", *reversed(shape))
    n_dims = len(shape) if n_dims is None else n_dims
    raw = name if isinstance(name, bytes) else text(name)
    return raw + struct.pack("<I", n_dims) + dims + struct.pack("<IQ", kind, offset)


def blob(
    pairs=(),
    tensors=(),
    body=b"",
    *,
    magic=b"GGUF",
    version=3,
    n_tensors=None,
    n_pairs=None,
    align=32,
) -> bytes:
    """A whole file; each of its fields may lie."""
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    n_pairs = len(pairs) if n_pairs is None else n_pairs
    head = magic + struct.pack("<IQQ", version, n_tensors, n_pairs)
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % align if body else 0) + body


def llama(
    n_layers=1, n_heads=8, n_kv_heads=4, head_dim=2, more=(), without=(), extra=()
) -> bytes:
    """A whole Llama of F32 weights, each number another; `without` leaves keys out."""
    dim, hidden, vocab = n_heads * head_dim, 12, 10
    values = {
        "general.architecture": (STR, "llama"),
        "general.tags": (ARR, array(STR, ["a", "é", ""])),
        "llama.block_count": (U32, n_layers),
        "llama.context_length": (U32, 32),
        "llama.embedding_length": (U32, dim),
        "llama.feed_forward_length": (U64, hidden),
        "llama.attention.head_count": (U32, n_heads),
        "llama.attention.head_count_kv": (U32, n_kv_heads),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "tokenizer.ggml.token_type": (ARR, array(I32, range(vocab))),
        "tokenizer.ggml.add_bos_token": (BOOL, True),
        **dict(more),
    }
    shapes = {"token_embd.weight": (vocab, dim), "output_norm.weight": (dim,)}
    for i in range(n_layers):
        kv = n_kv_heads * head_dim
        inner = {"attn_norm": (dim,), "attn_q": (dim, dim), "attn_k": (kv, dim)}
        inner |= {"attn_v": (kv, dim), "attn_output": (dim, dim), "ffn_norm": (dim,)}
        inner |= {"ffn_gate": (hidden, dim), "ffn_up": (hidden, dim)}
        inner |= {"ffn_down": (dim, hidden)}
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in inner.items()}
    shapes |= dict(extra)
    entries, body = [], b""
    for name, shape in shapes.items():
        if name in without:
            continue
        entries.append(tensor(name, shape, 0, len(body)))
        numbers = np.arange(math.prod(shape), dtype="<f4") / 64
        body += numbers.tobytes() + bytes(-numbers.nbytes % 32)
    pairs = [pair(key, *value) for key, value in values.items() if key not in without]
    return blob(pairs, entries, body)


def every() -> bytes:
    """A file with a value and an array of each type, and a tensor of each kind."""
    values = [(f"a.{kind}", kind, 1) for kind in CODES]
    values += [(f"b.{kind}", ARR, array(kind, [0, 1, 1])) for kind in CODES]
    values += [("text", STR, "é🦙"), ("texts", ARR, array(STR, ["a", "", "é"]))]
    values += [("general.alignment", U32, 64)]
    sizes = {0: 4 * 64, 1: 2 * 64, 30: 2 * 64, 8: 2 * 34, 2: 2 * 18, 3: 2 * 20}
    entries, body = [], b""
    for kind, size in sizes.items():
        name = "last" if kind == 3 else f"kind.{kind}"
        entries.append(tensor(name, (2, 32), kind, len(body)))
        body += bytes(range(size % 256)).ljust(size, b"\x3c") + bytes(-size % 64)
    return blob([pair(*value) for value in values], entries, body, align=64)


FOUR = b"1234"
STRAY = tensor("b", (1,), 0, 32)
NESTED = b"".join(struct.pack("<IQ", ARR, 1) for _ in range(1000)) + array(U8, [1])


def one(**claims) -> bytes:
    """A file with one tensor of four bytes, and a lie about it."""
    return blob([], [tensor(**claims)], FOUR)


def key(kind, value, name="k") -> bytes:
    return blob([pair(name, kind, value)], [tensor()], FOUR)


# Each with words that the message must have, beside the name of the file.
REFUSED = {
    "an empty file": (b"", "is it GGUF"),
    "three bytes": (b"GGU", "is it GGUF"),
    "the magic alone": (b"GGUF", "version"),
    "another format": (blob(magic=b"ggjt"), "b'ggjt'"),
    "version 1": (blob(version=1), "version 1 .* 2 or 3"),
    "version 0": (blob(version=0), "version 0"),
    "version 4": (blob(version=4), "version 4"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
    "no counts": (blob()[:12], "number of tensors"),
    "half the counts": (blob()[:20], "number of metadata keys"),
    "2^64 - 1 keys": (blob(n_pairs=2**64 - 1), "metadata of 18446744073709551615"),
    "2^63 tensors": (blob(n_tensors=2**63), "list of 9223372036854775808 tensors"),
    "one key more": (blob([pair("k", U8, 1)], n_pairs=2), "2 keys"),
    "one tensor more": (blob([], [tensor()], FOUR, n_tensors=2), "2 tensors"),
    "a key of 2^60 bytes": (blob([pair(text("k", 2**60), U8, 1)]), "metadata key"),
    "a key of 65,536 bytes": (blob([pair("k" * 65536, U8, 1)]), "up to 65535"),
    "a key twice": (blob([pair("k", U8, 1)] * 2), "'k' is there twice"),
    "a key that is no UTF-8": (blob([pair(text(b"\xff"), U8, 1)]), "not UTF-8"),
    "an unknown value type": (key(13, b"1234"), "'k' has the unknown type 13"),
    "a value cut off": (blob([pair("key", U64, b"1234")]), "'key' needs 8 bytes"),
    "a text of 2^60 bytes": (key(STR, text("v", 2**60)), "'k' has a string"),
    "a text of 2^64 - 1 bytes": (key(STR, text("v", 2**64 - 1)), "'k' has a string"),
    "a text that is no UTF-8": (key(STR, text(b"a\xc3")), "'k' is not UTF-8"),
    "a lone surrogate": (key(STR, text(b"\xed\xa0\x80")), "'k' is not UTF-8"),
    "a truth of 2": (key(BOOL, b"\x02"), "'k' is true or false"),
    "truths of 0, 1, 2": (key(ARR, array(BOOL, (), 3, b"\0\1\2")), "true or false"),
    "an array of 2^60 numbers": (key(ARR, array(F64, (), 2**60)), "'k' needs"),
    "an array that wraps to 0": (key(ARR, array(U64, (), 2**61)), "'k' needs"),
    "an array of 2^60 texts": (key(ARR, array(STR, (), 2**60)), "'k' needs"),
    "an array of long texts": (
        key(ARR, array(STR, (), 2, text("v") + text("w", 2**40))),
        "'k' has a string",
    ),
    "an array one text short": (
        blob([pair("key", ARR, array(STR, ["v" * 30], 3))]),
        "'key' has a string",
    ),
    "an array of broken texts": (
        key(ARR, array(STR, (), 1, text(b"\xff"))),
        "'k' is not UTF-8",
    ),
    "an array of an unknown type": (key(ARR, array(99, (), 1, FOUR)), "type 99"),
    "an array of arrays": (key(ARR, array(ARR, (), 1, array(U8, [1]))), "of arrays"),
    "a thousand arrays deep": (key(ARR, NESTED), "'k' is an array of arrays"),
    "a tensor name of 2^60 bytes": (one(name=text("a", 2**60)), "tensor name"),
    "a tensor name of 65 bytes": (one(name="a" * 65), "up to 64"),
    "a tensor name that is no UTF-8": (one(name=text(b"\xff")), "name is not UTF-8"),
    "a tensor twice": (
        blob([], [tensor(), tensor(offset=32)], bytes(64)),
        "'a' is there twice",
    ),
    "1,000,000 dimensions": (one(n_dims=10**6), "'a' has 1000000 dimensions"),
    "5 dimensions": (one(shape=(1,) * 5), "at most 4"),
    "dimensions cut off": (blob([], [tensor(n_dims=4)]), "'a' needs"),
    "a product that wraps to 0": (one(shape=(2**32, 2**32)), "'a', F32 of shape"),
    "a product that wraps to 1": (one(shape=(2**64 - 1,) * 2), "'a', F32 of shape"),
    "a size of 0": (one(shape=(2**62, 0)), "sizes above 0"),
    "one number too many": (one(shape=(2,)), "a file of"),
    "a known type": (one(kind=12), "'a' is Q4_K: .* F32, F16, BF16, Q8_0, Q4_0, Q4_1"),
    "another known type": (one(kind=16), "'a' is IQ2_XXS"),
    "a retired type": (one(kind=4), "'a' is Q4_2"),
    "an unknown type": (one(kind=10**6), "'a' has the unknown type 1000000"),
    "rows of half a block": (one(shape=(2, 16), kind=8), "'a' is Q8_0 with rows of 16"),
    "a scalar in blocks": (one(shape=(), kind=2), "rows of 1; .* multiple of 32"),
    "an offset past the end": (one(offset=64), "'a'.* ends at byte"),
    "an offset of 2^64 - 32": (one(offset=2**64 - 32), "'a'.* ends at byte"),
    "an offset between": (one(offset=4), "'a' has offset 4; .* multiple of 32"),
    "the same bytes twice": (
        blob([], [tensor(), tensor("b")], FOUR),
        "'a' and 'b' overlap",
    ),
    "a tensor that ends in another": (
        blob([], [tensor("b", (2,), 0, 32), tensor(shape=(9,))], bytes(64)),
        "'a' and 'b' overlap",
    ),
    "the last byte missing": (blob([], [tensor()], b"123"), "'a'.* ends at byte"),
}
REFUSED |= {
    f"an alignment of {what}": (key(kind, value, "general.alignment"), "alignment")
    for what, kind, value in (
        ("0", U32, 0),
        ("2^30", U32, 2**30),
        ("2^17", U32, 2**17),
        ("4", U32, 4),
        ("24", U32, 24),
        ("-32", I32, -32),
        ("true", BOOL, True),
        ("32.0", F32, 32.0),
        ("a text", STR, "32"),
        ("an array", ARR, array(U32, [32])),
    )
}
ACCEPTED = {
    "nothing": blob(),
    "one number": blob([], [tensor()], FOUR),
    "version 2": blob([], [tensor()], FOUR, version=2),
    "a scalar": blob([], [tensor(shape=())], FOUR),
    "four dimensions": blob([], [tensor(shape=(1, 2, 3, 4))], bytes(range(96))),
    "tensors in another order": blob([], [STRAY, tensor()], bytes(range(64))),
    "a hole": blob([], [tensor(), tensor("b", offset=64)], bytes(range(96))),
    "bytes after the last": blob([], [tensor()], FOUR + bytes(60)),
    "an alignment of 8": blob(
        [pair("general.alignment", U32, 8)],
        [tensor(), tensor("b", offset=8)],
        bytes(range(16)),
        align=8,
    ),
    "an alignment of 65536": blob(
        [pair("general.alignment", U32, 65536)], [tensor()], FOUR, align=65536
    ),
    "empty texts": blob([pair("k", STR, ""), pair("l", ARR, array(STR, [""] * 9))]),
    "an empty array": blob([pair("k", ARR, array(F64)), pair("l", ARR, array(BOOL))]),
    "a name of 64 bytes": blob([], [tensor("é" * 32)], FOUR),
}

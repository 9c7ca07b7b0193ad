"""The `gguf` library judges: what it writes, and what it reads."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.odd_gguf import (
    ACCEPTED,
    ARR,
    REFUSED,
    U32,
    array,
    blob,
    every,
    llama,
    pair,
    tensor,
)
from tinyllm.errors import CheckpointError, ModelNotFoundError
from tinyllm.formats.blocks import KINDS
from tinyllm.formats.gguf import TYPES, read
from tinyllm.formats.gguf_llama import config_of, weights_of

library = pytest.importorskip("gguf")
Q, V = library.GGMLQuantizationType, library.GGUFValueType
DATA = os.environ.get("TINYLLM_DATA", "")
# A 64-bit whole number that no double holds, the largest of each size, and -0.
SINGLE = {
    "U8": (255, V.UINT8),
    "I8": (-128, V.INT8),
    "U16": (65535, V.UINT16),
    "I16": (-32768, V.INT16),
    "U32": (2**32 - 1, V.UINT32),
    "I32": (-(2**31), V.INT32),
    "U64": (2**64 - 1, V.UINT64),
    "I64": (-(2**53) - 1, V.INT64),
    "F32": (0.1, V.FLOAT32),
    "F64": (-0.0, V.FLOAT64),
    "true": (True, V.BOOL),
    "false": (False, V.BOOL),
    "text": ("a\0é🦙\n", V.STRING),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


def written(path, pairs=(), tensors=(), alignment=None):
    """A file by the library's writer; pairs are (key, value, type, inner type)."""
    writer = library.GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    for key, value, *types in pairs:
        writer.add_key_value(key, value, *types)
    for name, values, kind in tensors:
        writer.add_tensor(name, library.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read(path)


def same(ours, theirs) -> bool:
    """Equal, and of the same kind: True is not 1, nor 1.0."""
    if isinstance(ours, np.ndarray):
        return ours.dtype.kind in "iufb" and ours.tolist() == theirs
    return repr(ours) == repr(theirs)


def agree(path) -> bool:
    """Whether the library's reader finds the same metadata and tensors as ours."""
    reader, ours = library.GGUFReader(path), read(path)
    fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    assert list(ours.tensors) == [t.name for t in reader.tensors]
    for found in reader.tensors:
        stored = ours.tensors[found.name]
        assert stored.kind == found.tensor_type.name
        assert stored.shape == tuple(reversed(found.shape.tolist()))
        assert stored.raw.tobytes() == found.data.tobytes()
    return all(same(v, fields[k].contents()) for k, v in ours.metadata.items())


@pytest.mark.parametrize("name", SINGLE)
def test_a_value_of_each_type_is_what_the_library_wrote(path, name):
    value, kind = SINGLE[name]
    found = written(path, [("k", value, kind)]).metadata["k"]
    assert same(found, float(np.float32(0.1)) if name == "F32" else value)
    assert agree(path)


@pytest.mark.parametrize("name", [n for n in SINGLE if n not in ("true", "text")])
def test_an_array_of_each_type_is_what_the_library_wrote(path, name):
    value, kind = SINGLE[name]
    values = [True, value, True] if kind == V.BOOL else [1, value, 0, value]
    pairs = [("odd", "x", V.STRING), ("k", values, V.ARRAY, kind)]
    found = written(path, pairs).metadata["k"]
    assert found.tolist() == np.array(values, found.dtype).tolist()
    assert library.GGUFReader(path).fields["k"].contents() == found.tolist()


def test_an_array_of_texts_is_a_list(path):
    texts = ["", "a", "é🦙", "Ġ the"] * 50
    assert written(path, [("k", texts, V.ARRAY, V.STRING)]).metadata["k"] == texts


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_of_each_kind_has_the_numbers_that_the_library_wrote(path, kind):
    values = np.random.default_rng(0).standard_normal((3, 5, 64)).astype(np.float32)
    name, small = Q[kind], np.arange(7, dtype=np.float32)
    gguf = written(path, [], [("small", small, Q.F32), ("a", values, name)])
    stored = gguf.tensors["a"]
    expected = library.quants.dequantize(library.quants.quantize(values, name), name)
    assert stored.kind == kind
    assert stored.shape == values.shape  # numpy's order, the innermost last
    assert np.array_equal(np.asarray(stored), expected)
    assert np.array_equal(np.asarray(gguf.tensors["small"]), small)
    assert agree(path)


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_another_alignment_moves_the_tensors(path, alignment):
    tensors = [(n, np.full((1, 3), i, np.float32), Q.F32) for i, n in enumerate("abc")]
    gguf = written(path, [], tensors, alignment)
    assert [np.asarray(gguf.tensors[n])[0, 0] for n in "abc"] == [0, 1, 2]
    assert agree(path)


@pytest.mark.parametrize("name", ["gpt-2.gguf", "llama-spm.gguf"])
def test_vocabularies_in_use_hold_what_the_library_finds(name):
    if not (Path(DATA) / name).is_file():
        pytest.skip(f"TINYLLM_DATA names no folder with {name}")
    assert agree(Path(DATA) / name)


@pytest.mark.parametrize("kind", [q for q in Q if q.name not in KINDS])
def test_a_type_that_is_not_supported_is_refused_by_its_name(path, kind):
    assert TYPES[kind] == kind.name
    path.write_bytes(blob([], [tensor("odd", (256,), int(kind))], bytes(2048)))
    with pytest.raises(CheckpointError, match=f"'odd' is {kind.name}: not supported"):
        read(path)


@pytest.mark.parametrize("case", ACCEPTED)
def test_an_odd_but_valid_file_is_read_as_the_library_reads_it(path, case):
    path.write_bytes(ACCEPTED[case])
    reader, ours = library.GGUFReader(path), read(path)
    for found in reader.tensors:
        stored = ours.tensors[found.name]
        assert stored.raw.tobytes() == found.data.tobytes()
    assert len(ours.tensors) == len(reader.tensors)


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_file_is_refused_naming_file_and_field(path, case):
    raw, words = REFUSED[case]
    path.write_bytes(raw)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=rf"model\.gguf.*{words}"):
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_each_part_of_a_file_is_missed(path):
    whole = llama()
    for end in range(0, len(whole) - 32, 41):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match=r"model\.gguf"):
            read(path)


def test_where_there_is_no_file_the_error_says_so(path):
    with pytest.raises(ModelNotFoundError, match=r"model\.gguf"):
        read(path)


def test_reading_leaves_tensors_and_arrays_in_the_file(path):
    head = blob([pair("k", ARR, array(U32, (), 2**24, b""))])
    tail = tensor("a", (2**12, 2**13))
    with open(path, "wb") as file:  # 64 MB of zeros, then 128 MB, none of them on disk
        file.write(head[:8] + struct.pack("<Q", 1) + head[16:])
        file.seek(2**26, os.SEEK_CUR)
        file.write(tail)
        file.truncate(file.tell() + 32 + 2**27)
    tracemalloc.start()
    gguf = read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert gguf.metadata["k"].size == 2**24
    assert gguf.tensors["a"].shape == (2**12, 2**13)
    assert peak < 2**20


FLAT = (0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 32, 33, 255, 2**16, 2**30, 2**31, 2**32 - 1)
WIDE = (*FLAT, 2**40, 2**60, 2**61, 2**62, 2**63, 2**64 - 1, 2**64 - 32)


def damaged(whole: bytes, header: int, luck: random.Random) -> bytes:
    """A copy with one to three faults, most of them in the header."""
    raw = bytearray(whole)
    for _ in range(luck.choice((1, 1, 1, 2, 3))):
        at = luck.randrange(header if luck.random() < 0.95 else len(whole))
        match luck.choice((0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 5)):
            case 0:
                raw[at : at + 1] = bytes([luck.randrange(256)])
            case 1:
                raw[at : at + 4] = struct.pack("<I", luck.choice(FLAT))
            case 2:
                raw[at : at + 8] = struct.pack("<Q", luck.choice(WIDE))
            case 3:
                del raw[at : at + luck.randint(1, 12)]
            case 4:
                raw[at:at] = luck.randbytes(luck.randint(1, 12))
            case 5:
                del raw[luck.randrange(header) :]
    return bytes(raw)


@pytest.mark.parametrize("made", [llama, every])
def test_a_damaged_file_is_refused_or_read_and_never_costs_much(path, made):
    whole, luck, refused = made(), random.Random(3), []
    header = whole.index(b"ffn_down" if made is llama else b"last") + 56
    tracemalloc.start()
    with np.errstate(all="ignore"):  # a damaged weight may be any number
        for _ in range(1500):
            path.write_bytes(damaged(whole, header, luck))
            try:
                gguf = read(path)
                found = gguf.tensors
                if made is llama:
                    found = weights_of(gguf, config_of(gguf))
                for stored in found.values():
                    assert np.asarray(stored).shape == stored.shape
            except CheckpointError as error:
                refused.append(str(error))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 2**20
    assert 500 < len(refused) < 1500  # both happen
    assert all("model.gguf" in text for text in refused)

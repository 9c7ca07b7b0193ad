"""The `safetensors` library judges: what it reads, and what it refuses."""

from __future__ import annotations

import os
import struct
import tracemalloc
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.odd_safetensors import ACCEPTED, ONE, REFUSED, blob, entry, mutated
from tinyllm.errors import CheckpointError, ModelNotFoundError
from tinyllm.formats.safetensors import parse, read, read_header, write
from tinyllm.formats.tensor import mapped

library = pytest.importorskip("safetensors")
from safetensors.numpy import load_file, save  # noqa: E402


@pytest.fixture
def peak():
    """The largest number of bytes allocated since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def accepts(path) -> bool:
    try:
        read_header(mapped(path), "it")
    except CheckpointError:
        return False
    return True


def library_accepts(path) -> bool:
    try:
        with library.safe_open(path, "np"):
            return True
    except library.SafetensorError:
        return False


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_file_is_refused_here_as_by_the_library(tmp_path, case):
    path = tmp_path / "model.safetensors"
    path.write_bytes(REFUSED[case])
    assert not library_accepts(path)
    assert not accepts(path)
    with pytest.raises(CheckpointError, match="safetensors"):
        read(path)


@pytest.mark.parametrize("case", ACCEPTED)
def test_an_odd_but_valid_file_is_read_as_the_library_reads_it(tmp_path, case):
    path = tmp_path / "model.safetensors"
    path.write_bytes(ACCEPTED[case])
    expected, found = load_file(path), read(path)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.array_equal(found[name], array)
        assert found[name].shape == array.shape


def test_a_key_given_twice_is_refused_although_the_library_lets_it_pass(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(blob(ONE[:-1] + b"," + ONE[1:], b"1234"))
    assert not accepts(path)


@pytest.mark.parametrize("blank", [b" ", b"\n\t ", b"\r\n"])
def test_a_header_may_begin_with_white_space_as_in_the_library(tmp_path, blank):
    path = tmp_path / "model.safetensors"
    path.write_bytes(blob(blank + ONE, b"1234"))
    assert library_accepts(path)
    assert accepts(path)
    path.write_bytes(blob(b"[" + ONE + b"]", b"1234"))
    assert not accepts(path)


@settings(max_examples=150, deadline=None)
@given(
    entries=st.dictionaries(
        st.sampled_from("abc"),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "F16", "U8", "F64", "F4"]),
                "shape": st.lists(st.integers(0, 3), max_size=2),
                "data_offsets": st.lists(
                    st.sampled_from([0, 1, 2, 4, 8, 12]), min_size=2, max_size=2
                ),
            }
        ),
        max_size=3,
    ),
    size=st.sampled_from([0, 1, 4, 8, 12]),
)
def test_the_library_agrees_about_any_header(tmp_path_factory, entries, size):
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    path.write_bytes(blob(entries, b"x" * size))
    assert accepts(path) == library_accepts(path)


def test_a_header_that_claims_much_makes_us_allocate_little(tmp_path, peak):
    path = tmp_path / "model.safetensors"
    huge = {"a": entry(shape=(2**30,), offsets=(0, 2**32))}
    for file, size in (
        (blob(huge, b"1234"), None),
        (blob({}, length=99_000_000), None),
        (blob({}, length=100_000_001), 100_000_100),  # as long as it claims: zeros
    ):
        path.write_bytes(file)
        os.truncate(path, size or len(file))
        with pytest.raises(CheckpointError):
            read(path)
    assert peak() < 1_000_000


def test_thousands_of_damaged_headers_are_refused_or_read_as_the_library_does(peak):
    random = Random(0)
    good = [*ACCEPTED.values(), save(TENSORS)]
    n_read = 0
    for _ in range(5000):
        raw = mutated(random, random.choice(good))
        try:
            found = parse(np.frombuffer(raw, np.uint8), "it")
        except CheckpointError:
            continue
        n_read += 1
        expected = dict(library.deserialize(raw))
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            theirs = expected[name]
            assert (tensor.kind, list(tensor.shape)) == (
                theirs["dtype"],
                theirs["shape"],
            )
            assert tensor.raw.tobytes() == bytes(theirs["data"])
            assert np.asarray(tensor).shape == tensor.shape
    assert 100 < n_read < 4000  # both ways are taken
    assert peak() < 64_000_000


def test_a_large_file_is_read_only_where_it_is_looked_at(tmp_path, peak):
    path = tmp_path / "model.safetensors"
    wide = entry(shape=(2**26,), offsets=(4, 4 + 2**28))
    raw = blob({"wide": wide, "one": entry()}, struct.pack("<f", 1.5))
    path.write_bytes(raw)
    os.truncate(path, len(raw) + 2**28)  # zeros that take no room on the disk
    found = read(path)
    assert float(np.asarray(found["one"])[0]) == 1.5
    assert found["wide"].shape == (2**26,)
    assert peak() < 1_000_000


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"model\.safetensors"):
        read(tmp_path / "model.safetensors")


def test_a_dtype_that_is_no_weight_is_refused_by_name(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(blob({"a": entry("I32")}, b"1234"))
    with pytest.raises(CheckpointError, match="I32"):
        read(path)


def test_an_empty_tensor_of_impossible_width_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(blob({"a": entry(shape=(0, 2**40, 2**40), offsets=(0, 0))}))
    with pytest.raises(CheckpointError, match="no shape"):
        read(path)


TENSORS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "scalar": np.array(3, np.float32),
    "nothing": np.zeros((0, 5), np.float32),
    "übung": np.array([-0.0, np.inf, 65504.0, 1e-7], np.float32),
}


@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_the_library_reads_what_is_written(tmp_path, dtype):
    path = tmp_path / "model.safetensors"
    write(path, TENSORS, dtype)
    found = load_file(path)
    assert found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        expected = array.astype(np.float16 if dtype == "F16" else np.float32)
        assert np.array_equal(found[name], expected)
        assert found[name].dtype == expected.dtype
        assert found[name].shape == array.shape


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_what_the_library_writes_is_read_as_float32(tmp_path, kind):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({n: a.astype(kind) for n, a in TENSORS.items()}))
    for name, stored in read(path).items():
        array = np.asarray(stored)
        assert array.dtype == np.float32
        assert array.flags.writeable
        assert np.array_equal(array, TENSORS[name].astype(kind))


def test_tensors_that_share_memory_in_any_order_are_written_whole(tmp_path):
    path = tmp_path / "model.safetensors"
    base = np.arange(12, dtype=np.float64).reshape(3, 4)
    write(path, {"turned": base.T, "part": base[:, ::2]})
    assert np.array_equal(load_file(path)["turned"], base.T)
    assert np.array_equal(load_file(path)["part"], base[:, ::2])


def test_what_is_read_can_be_written_even_over_its_own_file(tmp_path):
    path = tmp_path / "model.safetensors"
    write(path, TENSORS, "F16")
    write(path, read(path), "F32")
    for name, array in TENSORS.items():
        found = load_file(path)[name]
        assert found.dtype == np.float32
        assert np.array_equal(found, array.astype(np.float16))


def test_bf16_is_the_upper_half_of_a_float32(tmp_path):
    bits = np.array([0x3F80, 0x7FC0, 0x7F80, 0xFF80, 0x8000, 0x0001], np.uint16)
    path = tmp_path / "model.safetensors"
    path.write_bytes(blob({"a": entry("BF16", (6,), (0, 12))}, bits.tobytes()))
    found = np.asarray(read(path)["a"])
    assert np.array_equal(found.view(np.uint32), bits.astype(np.uint32) << 16)
    assert found[0] == 1.0
    assert np.isnan(found[1])
    assert found[2:4].tolist() == [np.inf, -np.inf]
    assert np.signbit(found[4])
    assert found[5] == 2.0**-133


def test_a_value_too_large_for_f16_is_refused_and_the_old_file_stays(tmp_path):
    path = tmp_path / "model.safetensors"
    write(path, TENSORS)
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="'big'"):
        write(path, {"big": np.array([70000.0], np.float32)}, "F16")
    assert path.read_bytes() == before


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    write(path, TENSORS)
    before = path.read_bytes()

    def interrupted(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, {"other": np.ones(3, np.float32)})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_dtype_that_is_not_written_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="BF16"):
        write(tmp_path / "x", TENSORS, "BF16")


def test_the_same_tensors_give_the_same_bytes_in_any_order(tmp_path):
    write(tmp_path / "a", TENSORS)
    write(tmp_path / "b", dict(reversed(TENSORS.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

"""llama2.c's files: run.c's order written out here is the judge, and a real model."""

from __future__ import annotations

import os
import struct
import tracemalloc
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import random_weights
from tinyllm.errors import CheckpointError, ModelNotFoundError
from tinyllm.formats import safetensors
from tinyllm.formats.llama2c import parse, read, write
from tinyllm.formats.tensor import to_halves
from tinyllm.model.cache import KVCache
from tinyllm.model.config import Config
from tinyllm.model.transformer import Model

DATA = Path(os.environ.get("TINYLLM_DATA", ""))
SIZES = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size")
# No two matrices have the same shape, and each of the sizes is another number.
ODD = Config(48, 20, 3, 8, 4, 6, 11, 5, tied_embeddings=False)

real = pytest.mark.skipif(
    not (DATA / "stories260K.bin").is_file(),
    reason="TINYLLM_DATA names no folder with stories260K.bin",
)


def header(config: Config) -> list[int]:
    vocab = config.vocab_size if config.tied_embeddings else -config.vocab_size
    return [*(getattr(config, name) for name in SIZES[:-1]), vocab, config.n_ctx]


@cache
def file_of(config: Config) -> tuple[bytes, list[np.ndarray]]:
    """A file in the order of run.c's memory_map_weights, and its arrays in turn."""
    d, f, n = config.dim, config.hidden_dim, config.n_layers
    kv = config.n_kv_heads * config.dim // config.n_heads
    turns = (config.n_ctx, config.dim // config.n_heads // 2)
    shapes = [(config.vocab_size, d), (n, d), (n, d, d), (n, kv, d), (n, kv, d)]
    shapes += [(n, d, d), (n, d), (n, f, d), (n, d, f), (n, f, d), (d,), turns, turns]
    shapes += [] if config.tied_embeddings else [(config.vocab_size, d)]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("<f4") for shape in shapes]
    body = b"".join(array.tobytes() for array in arrays)
    return struct.pack("<7i", *header(config)) + body, arrays


def blob(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint8)


@pytest.fixture
def peak():
    """The largest number of bytes allocated since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def test_every_weight_is_found_in_run_cs_order(tmp_path):
    raw, arrays = file_of(ODD)
    (tmp_path / "odd.bin").write_bytes(raw)
    config, weights = read(tmp_path / "odd.bin")
    table, att, q, k, v, o, ffn, w1, w2, w3, final, _, _, head = arrays
    assert config == ODD
    expected = {"model.embed_tokens.weight": table, "model.norm.weight": final}
    expected["lm_head.weight"] = head
    for i in range(3):
        layer = f"model.layers.{i}."
        expected[layer + "input_layernorm.weight"] = att[i]
        expected[layer + "self_attn.q_proj.weight"] = to_halves(q[i], 8)
        expected[layer + "self_attn.k_proj.weight"] = to_halves(k[i], 4)
        expected[layer + "self_attn.v_proj.weight"] = v[i]
        expected[layer + "self_attn.o_proj.weight"] = o[i]
        expected[layer + "post_attention_layernorm.weight"] = ffn[i]
        expected[layer + "mlp.gate_proj.weight"] = w1[i]
        expected[layer + "mlp.down_proj.weight"] = w2[i]
        expected[layer + "mlp.up_proj.weight"] = w3[i]
    assert weights.keys() == expected.keys()
    for name, array in expected.items():
        assert weights[name].shape == array.shape, name
        assert np.array_equal(np.asarray(weights[name]), array), name


def test_a_positive_vocabulary_size_means_a_tied_head():
    tied = replace(ODD, tied_embeddings=True)
    config, weights = parse(blob(file_of(tied)[0]), "it")
    assert config == tied
    assert "lm_head.weight" not in weights
    assert Model(config, weights).forward([1, 2]).shape == (2, 11)


def test_what_is_written_is_byte_for_byte_the_file_but_for_the_rotation(tmp_path):
    raw, arrays = file_of(ODD)
    write(tmp_path / "again.bin", *parse(blob(raw), "it"))
    again = (tmp_path / "again.bin").read_bytes()
    end = len(raw) - arrays[-1].nbytes
    begin = end - 2 * arrays[-2].nbytes
    assert again[:begin] + again[end:] == raw[:begin] + raw[end:]
    cos, sin = np.frombuffer(again[begin:end], "<f4").reshape(2, 5, 3)
    angle = np.outer(np.arange(5), 10000.0 ** (-np.arange(0, 6, 2) / 6))
    np.testing.assert_allclose(cos, np.cos(angle), atol=1e-6)
    np.testing.assert_allclose(sin, np.sin(angle), atol=1e-6)


@settings(max_examples=40)
@given(
    pairs=st.integers(1, 4),
    n_kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    hidden_dim=st.integers(1, 9),
    n_layers=st.integers(1, 3),
    vocab_size=st.integers(1, 9),
    n_ctx=st.integers(1, 9),
    tied=st.booleans(),
)
def test_what_is_written_is_read_as_the_same_weights(
    tmp_path_factory, pairs, n_kv_heads, group, hidden_dim, n_layers, vocab_size, n_ctx,
    tied,
):  # fmt: skip
    path = tmp_path_factory.mktemp("any") / "model.bin"
    heads, width = n_kv_heads * group, 2 * pairs
    sizes = (heads * width, hidden_dim, n_layers, heads, n_kv_heads, width)
    config = Config(*sizes, vocab_size, n_ctx, tied_embeddings=tied)
    weights = random_weights(config)
    write(path, config, weights)
    found_config, found = read(path)
    assert found_config == config
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        assert np.array_equal(np.asarray(found[name]), array)


def test_safetensors_become_llama2c_without_another_step(tmp_path):
    weights = random_weights(ODD)
    safetensors.write(tmp_path / "model.safetensors", weights, "F32")
    write(tmp_path / "m.bin", ODD, safetensors.read(tmp_path / "model.safetensors"))
    for name, stored in read(tmp_path / "m.bin")[1].items():
        assert np.array_equal(np.asarray(stored), weights[name])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rope_theta", {"rope_theta": 500.0}),
        ("norm_eps", {"norm_eps": 1e-6}),
        ("head_dim", {"head_dim": 4}),
    ],
)
def test_what_the_format_cannot_say_is_refused_by_name(tmp_path, name, change):
    config = replace(ODD, **change)
    with pytest.raises(CheckpointError, match=name):
        write(tmp_path / "m.bin", config, random_weights(config))
    assert not list(tmp_path.iterdir())


def test_weights_that_do_not_fit_are_refused_before_anything_is_written(tmp_path):
    short = random_weights(replace(ODD, n_layers=2))
    with pytest.raises(CheckpointError, match=r"layers\.2"):
        write(tmp_path / "m.bin", ODD, short)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", [1, 4, 100])
def test_a_truncated_body_is_refused_with_both_sizes(missing):
    raw = file_of(ODD)[0]
    numbers = f"truncated: {len(raw) - missing} bytes; its sizes imply {len(raw)}"
    with pytest.raises(CheckpointError, match=numbers):
        parse(blob(raw[:-missing]), "it")


def test_surplus_bytes_are_refused_with_both_sizes():
    raw = file_of(ODD)[0]
    numbers = f"surplus of 4 bytes: {len(raw) + 4}; its sizes imply {len(raw)}"
    with pytest.raises(CheckpointError, match=numbers):
        parse(blob(raw + b"1234"), "it")


def test_an_untied_head_that_is_not_there_is_a_truncated_file():
    raw = bytearray(file_of(replace(ODD, tied_embeddings=True))[0])
    struct.pack_into("<i", raw, 20, -11)
    with pytest.raises(CheckpointError, match="truncated"):
        parse(blob(bytes(raw)), "it")


@pytest.mark.parametrize("size", [0, 1, 27])
def test_a_file_without_a_whole_header_is_refused(tmp_path, size):
    (tmp_path / "m.bin").write_bytes(b"\1" * size)
    with pytest.raises(CheckpointError, match=rf"m\.bin.* {size} bytes are too few"):
        read(tmp_path / "m.bin")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelNotFoundError, match=r"m\.bin"):
        read(tmp_path / "m.bin")


@pytest.mark.parametrize("version", [1, 2])
def test_the_later_versions_are_refused_by_name(version):
    raw = struct.pack("<Ii", 0x616B3432, version) + bytes(248)
    with pytest.raises(CheckpointError, match=rf"version {version} .*ak42"):
        parse(blob(raw), "it")


@pytest.mark.parametrize("value", [0, -1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("name", [*SIZES, "n_ctx"])
def test_a_size_that_makes_no_sense_is_named(name, value):
    raw = bytearray(file_of(ODD)[0])
    struct.pack_into("<i", raw, 4 * [*SIZES, "n_ctx"].index(name), value)
    one_token = (name, value) == ("vocab_size", -1)  # and a head of its own
    expected = "surplus" if one_token else name
    with pytest.raises(CheckpointError, match=expected):
        parse(blob(bytes(raw)), "it")


def test_the_head_width_must_be_whole_and_even():
    for dim, message in ((44, "n_heads is 8"), (40, "head_dim is 5")):
        raw = bytearray(file_of(ODD)[0])
        struct.pack_into("<i", raw, 0, dim)
        with pytest.raises(CheckpointError, match=message):
            parse(blob(bytes(raw)), "it")


def test_thousands_of_damaged_headers_are_refused_or_true(peak):
    random, good = Random(0), file_of(ODD)[0]
    values = [0, 1, 2, 3, -1, 2**20, 2**24, 2**31 - 1, -(2**31), 0x616B3432]
    n_read = 0
    for _ in range(3000):
        sizes = header(ODD)
        for _ in range(random.randint(0, 2)):
            at = random.randrange(7)
            sizes[at] = random.choice([*values, sizes[at] * 2, -sizes[at]])
        raw = struct.pack("<7i", *[(n + 2**31) % 2**32 - 2**31 for n in sizes])
        raw += good[28 : random.choice([len(good), len(good), random.randrange(99)])]
        try:
            config, weights = parse(blob(raw), "it")
        except CheckpointError:
            continue
        n_read += 1
        assert header(config) == sizes
        assert len(raw) == len(file_of(config)[0])
        stored = weights[random.choice(list(weights))]
        assert np.asarray(stored).shape == stored.shape
    assert 300 < n_read < 2500  # both ways are taken
    assert peak() < 64_000_000


@real
def test_the_real_model_has_the_sizes_it_was_published_with():
    config, _ = read(DATA / "stories260K.bin")
    assert config == Config(64, 172, 5, 8, 4, 8, 512, 512)


@real
def test_keys_laid_out_by_the_number_of_query_heads_would_be_wrong():
    _, weights = read(DATA / "stories260K.bin")
    keys = weights["model.layers.0.self_attn.k_proj.weight"]
    assert keys.interleaved == 4
    wrong = np.asarray(replace(keys, interleaved=8))
    assert not np.allclose(np.asarray(keys), wrong, atol=0.1)


def pieces(path: Path) -> list[bytes]:
    """The tokens of a llama2.c tokenizer: a float and a length before each."""
    raw, at, found = path.read_bytes(), 4, []
    while at < len(raw):
        _, length = struct.unpack_from("<fi", raw, at)
        found.append(raw[at + 8 : at + 8 + length])
        at += 8 + length
    return [b"\n" if piece == b"<0x0A>" else piece for piece in found]


@real
def test_the_real_model_tells_the_story_that_llama2c_tells():
    config, weights = read(DATA / "stories260K.bin")
    model, cache, ids = Model(config, weights), KVCache(config), [1]
    for _ in range(200):
        ids.append(int(model.forward(ids[-1:], cache)[0].argmax()))
    vocabulary = pieces(DATA / "tok512.bin")
    story = b"".join(vocabulary[i] for i in ids[1:]).decode()
    assert 1 not in ids[1:]
    expected = (DATA / "stories260K.greedy.txt").read_text(encoding="utf-8")
    assert story.removeprefix(" ") + "\n" == expected


@pytest.mark.parametrize("head", [b"PK\x03\x04", b"\x80\x02"])
def test_a_pickled_file_is_named_as_such(head):
    with pytest.raises(CheckpointError, match="pickled"):
        parse(np.frombuffer(head + bytes(100), np.uint8), "pytorch_model.bin")

"""A Llama written with the `gguf` library is the same model when it is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import TINY, random_weights
from tests.gguf_export import export
from tests.odd_gguf import ARR, BOOL, F32, I32, STR, U16, U32, U64, array, llama
from tinyllm.errors import CheckpointError
from tinyllm.formats.gguf import read
from tinyllm.formats.gguf_llama import config_of, weights_of
from tinyllm.model.config import Config, weight_shapes
from tinyllm.model.transformer import Model

HALVES = [(0, 0), (0, 1), (1, 0), (1, 1)]  # rows of a head of 4: which half, pair


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


def config_from(path, **changes) -> Config:
    path.write_bytes(llama(**changes))
    return config_of(read(path))


def weights_from(path, **changes):
    path.write_bytes(llama(**changes))
    gguf = read(path)
    return weights_of(gguf, config_of(gguf))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4, 8])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_comes_back_the_same_to_the_last_bit(path, n_kv_heads, tied):
    config = replace(TINY, n_kv_heads=n_kv_heads, tied_embeddings=tied)
    weights = random_weights(config)
    export(path, config, weights)
    gguf = read(path)
    found = config_of(gguf)
    assert found == replace(config, norm_eps=float(np.float32(config.norm_eps)))
    stored = weights_of(gguf, found)
    assert stored.keys() == weight_shapes(found).keys()
    for name, weight in weights.items():
        assert np.array_equal(np.asarray(stored[name]), weight), name
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    logits = Model(found, weights).forward(ids)
    assert np.array_equal(Model(found, stored).forward(ids), logits)


def test_rows_of_q_and_k_go_by_their_own_heads_into_halves(path):
    config = replace(TINY, n_heads=8, n_kv_heads=4, n_layers=1, head_dim=4)
    weights = random_weights(config)
    for part, heads in (("q", 8), ("k", 4)):  # a row is head, half, pair: 213
        rows = [100 * h + 10 * half + i for h in range(heads) for half, i in HALVES]
        shape = weight_shapes(config)[f"model.layers.0.self_attn.{part}_proj.weight"]
        row = np.array(rows, np.float32)[:, None]
        weights[f"model.layers.0.self_attn.{part}_proj.weight"] = row.repeat(
            shape[1], 1
        )
    export(path, config, weights)
    gguf = read(path)
    stored = weights_of(gguf, config_of(gguf))
    for part, heads in (("q", 8), ("k", 4)):
        file = np.asarray(gguf.tensors[f"blk.0.attn_{part}.weight"])[:, 0]
        found = np.asarray(stored[f"model.layers.0.self_attn.{part}_proj.weight"])[:, 0]
        assert file[-4:].tolist() == [100 * (heads - 1) + n for n in (0, 10, 1, 11)]
        assert found[-4:].tolist() == [100 * (heads - 1) + n for n in (0, 1, 10, 11)]


def test_v_and_the_others_stay_as_they_lie(path):
    stored = weights_from(path, n_layers=2)
    turned = {name for name, weight in stored.items() if weight.interleaved}
    assert turned == {
        f"model.layers.{i}.self_attn.{part}_proj.weight"
        for i in (0, 1)
        for part in "qk"
    }


def test_what_a_file_may_leave_out_has_the_values_of_the_format(path):
    kv = "llama.attention.head_count_kv"
    config = config_from(path, n_kv_heads=8, without=[kv])
    assert config.n_kv_heads == config.n_heads == 8
    assert config.rope_theta == 10000
    assert config.head_dim == 2
    assert config.tied_embeddings


def test_the_vocabulary_is_as_large_as_the_embedding(path):
    more = {"llama.vocab_size": (U32, 99)}
    assert config_from(path, more=more).vocab_size == 10


def test_an_output_of_its_own_unties_the_head(path):
    extra = {"output.weight": (10, 16)}
    assert not config_from(path, extra=extra).tied_embeddings
    assert "lm_head.weight" in weights_from(path, extra=extra)


NEUTRAL = {
    "llama.rope.scaling.type": (STR, "none"),
    "llama.rope.scaling.factor": (F32, 8.0),  # none means none
    "llama.expert_count": (U32, 0),
    "llama.attention.sliding_window": (U32, 0),
    "llama.attention.causal": (BOOL, True),
    "llama.rope.dimension_count": (U64, 2),
    "llama.attention.value_length": (U32, 2),
    "split.count": (U16, 1),
}


def test_keys_that_ask_for_nothing_change_nothing(path):
    assert config_from(path, more=NEUTRAL) == config_from(path)


# Each with words that the message must have, beside the name of the file.
REFUSED = {
    "general.architecture": [
        ((STR, "qwen2"), "'qwen2'; only 'llama'"),
        ((U32, 1), "1; only 'llama'"),
        ((ARR, array(STR, ["llama"])), "only 'llama'"),
    ],
    "llama.rope.scaling.type": [
        ((STR, "yarn"), "'yarn'.*only .*'none'"),
        ((STR, "linear"), "'linear'.*only .*'none'"),
        ((ARR, array(STR, ["none"])), "is an array"),
    ],
    "llama.rope.scaling.factor": [((F32, 4.0), "4.0.*'none'")],
    "llama.rope.scale_linear": [((F32, 2.0), "2.0.*'none'")],
    "llama.rope.dimension_count": [
        ((U32, 1), "1; .* width of a head, 2"),
        ((ARR, array(U32, [2])), "is an array"),
    ],
    "llama.attention.key_length": [((U32, 0), "0; .* above 0")],
    "llama.attention.value_length": [((U32, 4), "4; .* width of a head, 2")],
    "llama.expert_count": [
        ((U32, 8), "8; only 0"),
        ((ARR, array(U32, [0, 0])), "is an array"),
    ],
    "llama.attention.sliding_window": [((U32, 4096), "4096; only 0")],
    "llama.attention.causal": [((BOOL, False), "False; only True")],
    "llama.logit_scale": [((F32, float("nan")), "nan; only 1.0")],
    "split.count": [((U16, 3), "3; only 1")],
    "llama.block_count": [
        ((STR, "1"), "'1'; expected a whole number"),
        ((F32, 1.0), "1.0; expected a whole number"),
        ((BOOL, True), "True; expected a whole number"),
        ((I32, -1), "-1; expected a whole number above 0"),
        ((U32, 0), "0; expected a whole number above 0"),
        ((ARR, array(U32, [1])), "is an array"),
    ],
    "llama.embedding_length": [((U32, 15), "15 is not a multiple of .*head_count 8")],
    "llama.attention.head_count": [((ARR, array(U32, [8])), "is an array")],
    "llama.rope.freq_base": [((STR, "high"), "'high', not a number")],
}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [(key, *case) for key, cases in REFUSED.items() for case in cases],
)
def test_what_is_not_supported_or_senseless_is_refused_by_its_key(
    path, key, value, words
):
    with pytest.raises(CheckpointError, match=rf"model\.gguf.*{key}.*{words}"):
        config_from(path, more={key: value})


LIMITS = {
    "llama.context_length": ((U32, 2**31), "n_ctx is 2147483648"),
    "llama.block_count": ((U64, 2**63), "n_layers is 9223372036854775808"),
    "llama.attention.head_count_kv": ((U32, 3), r"n_kv_heads \(3\)"),
    "llama.attention.key_length": ((U32, 3), "head_dim is 3"),
    "llama.rope.freq_base": ((F32, -1.0), "rope_theta must be"),
    "llama.attention.layer_norm_rms_epsilon": ((F32, float("nan")), "norm_eps must be"),
}


@pytest.mark.parametrize("key", LIMITS)
def test_a_size_beyond_the_limits_is_refused_naming_the_file(path, key):
    value, words = LIMITS[key]
    with pytest.raises(CheckpointError, match=rf"model\.gguf: config: .*{words}"):
        config_from(path, more={key: value})


@pytest.mark.parametrize(
    "key",
    [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ],
)
def test_a_missing_key_is_named(path, key):
    with pytest.raises(CheckpointError, match=rf"model\.gguf lacks .*{key}"):
        config_from(path, without=[key])


def test_a_file_of_a_vocabulary_alone_is_no_model(path):
    with pytest.raises(CheckpointError, match=r"'token_embd.weight': .* vocab") as told:
        config_from(path, without=["token_embd.weight"])
    assert str(told.value).count(str(path)) == 1


def test_an_embedding_must_be_a_matrix(path):
    extra = {"token_embd.weight": (160,)}
    with pytest.raises(
        CheckpointError, match=r"'token_embd.weight' has shape \(160,\)"
    ):
        config_from(path, extra=extra)


@pytest.mark.parametrize("part", ["output_norm", "blk.1.attn_k", "blk.0.ffn_norm"])
def test_a_missing_tensor_is_named(path, part):
    with pytest.raises(CheckpointError, match=rf"model\.gguf lacks .*'{part}.weight'"):
        weights_from(path, n_layers=2, without=[f"{part}.weight"])


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.attn_q.bias",
        "blk.1.attn_q.weight",
        "blk.0.ffn_gate_exps.weight",
        "blk.00.attn_q.weight",
        "lm_head.weight",
    ],
)
def test_a_tensor_that_has_no_place_is_named(path, name):
    with pytest.raises(CheckpointError, match=f"'{name}' has no place"):
        weights_from(path, extra={name: (16, 16)})


def test_factors_of_the_rotation_are_refused_by_name(path):
    with pytest.raises(CheckpointError, match=r"'rope_freqs.weight' scales"):
        weights_from(path, extra={"rope_freqs.weight": (1,)})


def test_a_misshapen_tensor_is_named_with_both_shapes(path):
    extra = {"blk.0.attn_k.weight": (16, 16)}
    with pytest.raises(
        CheckpointError, match=r"'blk.0.attn_k.weight' has shape \(16, 16\).*\(8, 16\)"
    ):
        weights_from(path, extra=extra)


def test_a_head_beside_a_config_that_is_tied_has_no_place(path):
    path.write_bytes(llama(extra={"output.weight": (10, 16)}))
    gguf = read(path)
    config = replace(config_of(gguf), tied_embeddings=True)
    with pytest.raises(CheckpointError, match=r"'output.weight' has no place"):
        weights_of(gguf, config)

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.conftest import TINY
from tinyllm.errors import CheckpointError
from tinyllm.model.config import Config, weight_shapes

LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": True,
    "rope_scaling": None,
}


def test_a_config_survives_json(config):
    assert Config.from_hf(json.loads(json.dumps(config.to_hf()))) == config


def test_the_head_width_of_an_older_file_follows_from_the_model_width():
    assert Config.from_hf(LLAMA).head_dim == 64
    assert Config.from_hf(LLAMA | {"head_dim": None}).head_dim == 64


def test_a_head_width_in_the_file_wins_over_the_quotient():
    assert Config.from_hf(LLAMA | {"head_dim": 32}).head_dim == 32


def test_without_key_value_heads_every_query_head_has_its_own():
    old = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    assert Config.from_hf(old).n_kv_heads == 9


def test_rope_theta_may_stand_in_rope_parameters():
    new = {k: v for k, v in LLAMA.items() if k != "rope_theta"}
    new["rope_parameters"] = {"rope_type": "default", "rope_theta": 5000.0}
    assert Config.from_hf(new).rope_theta == 5000.0


def test_what_a_file_leaves_out_has_the_value_that_hugging_face_gives_it():
    omitted = {"rope_theta", "rms_norm_eps", "tie_word_embeddings"}
    config = Config.from_hf({k: v for k, v in LLAMA.items() if k not in omitted})
    assert (config.rope_theta, config.norm_eps) == (10000.0, 1e-6)
    assert config.tied_embeddings is False


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("model_type", "gpt2"),
        ("attention_bias", True),
        ("rope_scaling", {"type": "linear", "factor": 2.0}),
        ("partial_rotary_factor", 0.5),
        ("sliding_window", 4096),
        ("quantization_config", {"bits": 4}),
        ("architectures", ["LlamaForSequenceClassification"]),
        ("rope_parameters", {"type": "linear", "factor": 2.0}),
        ("rope_parameters", {"partial_rotary_factor": 0.5}),
    ],
)
def test_what_the_forward_pass_does_not_do_is_refused_by_name(key, value):
    named = next(iter(value)) if key == "rope_parameters" else key
    with pytest.raises(CheckpointError, match=named):
        Config.from_hf(LLAMA | {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partial_rotary_factor", 1),
        ("sliding_window", None),
        ("architectures", ["LlamaForCausalLM"]),
        ("rope_parameters", None),
        ("rope_parameters", {"type": "default", "rope_type": "default"}),
    ],
)
def test_what_changes_nothing_is_accepted(key, value):
    assert Config.from_hf(LLAMA | {key: value}) == Config.from_hf(LLAMA)


@pytest.mark.parametrize("value", [2**24, 1001])
def test_more_layers_than_any_model_has_are_refused_before_they_are_counted(value):
    with pytest.raises(CheckpointError, match=r"n_layers is .* 1 to 1000"):
        Config.from_hf(LLAMA | {"num_hidden_layers": value})


def test_a_context_that_costs_more_than_the_weights_is_refused():
    with pytest.raises(CheckpointError, match="smaller max_position_embeddings"):
        Config.from_hf(LLAMA | {"max_position_embeddings": 2**20})
    wide = {"num_attention_heads": 2**10, "num_key_value_heads": 2**10, "head_dim": 64}
    with pytest.raises(CheckpointError, match="n_ctx is 8192"):
        Config.from_hf(LLAMA | wide)


def test_constants_written_as_whole_numbers_are_floats():
    assert type(Config.from_hf(LLAMA | {"rope_theta": 10**30}).rope_theta) is float


def test_a_scaled_rope_is_refused_in_the_newer_spelling_too():
    with pytest.raises(CheckpointError, match="llama3"):
        Config.from_hf(LLAMA | {"rope_parameters": {"rope_type": "llama3"}})
    with pytest.raises(CheckpointError, match="rope_parameters"):
        Config.from_hf(LLAMA | {"rope_parameters": [1]})


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "num_hidden_layers"])
def test_a_missing_key_is_named(key):
    with pytest.raises(CheckpointError, match=key):
        Config.from_hf({k: v for k, v in LLAMA.items() if k != key})


def test_a_width_that_the_heads_do_not_divide_needs_a_head_width():
    with pytest.raises(CheckpointError, match="head_dim"):
        Config.from_hf(LLAMA | {"hidden_size": 577})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dim", 0),
        ("n_layers", -1),
        ("vocab_size", 2.0),
        ("n_heads", True),
        ("hidden_dim", "52"),
        ("n_ctx", 10**12),
        ("head_dim", 7),
        ("n_kv_heads", 3),
        ("rope_theta", 0),
        pytest.param("rope_theta", 10**400, id="rope_theta-huge"),
        pytest.param("norm_eps", 10**400, id="norm_eps-huge"),
        ("norm_eps", float("nan")),
        ("norm_eps", "1e-5"),
        ("tied_embeddings", 1),
    ],
)
def test_a_field_that_makes_no_sense_is_named(config, name, value):
    with pytest.raises(CheckpointError, match=name):
        replace(config, **{name: value})


def test_a_config_that_is_no_object_is_refused():
    with pytest.raises(CheckpointError, match="object"):
        Config.from_hf([LLAMA])


def test_weight_shapes_follow_from_the_sizes(config):
    shapes = weight_shapes(config)
    assert len(shapes) == 9 * config.n_layers + 3
    assert shapes["model.layers.2.self_attn.k_proj.weight"] == (2 * 6, 44)
    assert shapes["model.layers.0.self_attn.o_proj.weight"] == (44, 8 * 6)
    assert shapes["lm_head.weight"] == (259, 44)
    assert "lm_head.weight" not in weight_shapes(replace(config, tied_embeddings=True))


def test_two_values_of_rope_theta_are_refused():
    """Engines differ in which they take: 5 units of logits on the embedded model."""
    values = TINY.to_hf()
    inner = {"rope_type": "default", "rope_theta": values["rope_theta"]}
    assert Config.from_hf(values | {"rope_parameters": inner}) == TINY
    inner["rope_theta"] = 10000.0
    with pytest.raises(CheckpointError, match="rope_parameters"):
        Config.from_hf(values | {"rope_parameters": inner})


def test_what_a_file_says_with_null_or_default_is_what_it_leaves_out():
    values = TINY.to_hf()
    many = Config.from_hf(values | {"num_key_value_heads": None})
    assert many.n_kv_heads == many.n_heads
    plain = values | {"rope_scaling": {"rope_type": "default"}}
    assert Config.from_hf(plain) == TINY

"""transformers as judge of the readers: one model, three file formats, its logits.

Eight query heads and two key/value heads, odd sizes, tied and untied: a k matrix turned
as if it had as many heads as q, or heads repeated in the wrong order, cannot pass.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.gguf_export import export, interleaved
from tinyllm.formats import gguf as reader
from tinyllm.formats import gguf_llama, llama2c, tokenizer_json
from tinyllm.formats.hf_folder import save_folder
from tinyllm.model.config import Config
from tinyllm.model.transformer import Model
from tinyllm.models.open import open_model
from tinyllm.text.bpe import BPE

torch = pytest.importorskip("torch", reason="torch is not installed: make judges")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: make judges"
)
pytestmark = pytest.mark.judge

HEADS, KV_HEADS, WIDTH = 8, 2, 6
T = 57


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def theirs(request):
    """A seeded LlamaForCausalLM with exaggerated norms, float32."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        hidden_size=HEADS * WIDTH,
        intermediate_size=67,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        vocab_size=259,
        max_position_embeddings=61,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=request.param,
        initializer_range=0.3,
    )
    model = transformers.LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(0.5 * torch.randn(weight.shape))
    return model


@pytest.fixture(scope="module")
def expected(theirs):
    ids = np.random.default_rng(0).integers(0, 259, T).tolist()
    with torch.no_grad():
        return ids, theirs(torch.tensor([ids])).logits[0].numpy()


def arrays(theirs) -> dict[str, np.ndarray]:
    state = {name: t.numpy() for name, t in theirs.state_dict().items()}
    if theirs.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def check(model: Model, expected) -> None:
    ids, logits = expected
    ours = model.forward(ids)
    assert np.abs(logits).max() > 5  # a difference of 1e-4 is small beside these
    np.testing.assert_allclose(ours, logits, atol=1e-4, rtol=0)


def config_of(theirs) -> Config:
    return Config.from_hf(theirs.config.to_dict())


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("shard", ["1GB", "60KB"])
def test_safetensors_that_transformers_saved(theirs, expected, tmp_path, exact, shard):
    theirs.save_pretrained(tmp_path, max_shard_size=shard)
    tokenizer_json.save(BPE.from_merges([]), tmp_path / "tokenizer.json")
    n_files = len(list(tmp_path.glob("*.safetensors")))
    assert (n_files > 1) == (shard == "60KB")
    model, _ = open_model(tmp_path, exact)
    check(model, expected)


def test_safetensors_that_tinyllm_saved_open_in_transformers(
    theirs, expected, tmp_path
):
    save_folder(tmp_path, config_of(theirs), arrays(theirs), BPE.from_merges([]), "F32")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    ids, logits = expected
    with torch.no_grad():
        theirs_again = again(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_array_equal(theirs_again, logits)
    check(open_model(tmp_path)[0], expected)


def test_llama2c_bin(theirs, expected, tmp_path):
    """Written by the plain rules of llama2.c's export.py, not by the package."""
    path = tmp_path / "model.bin"
    path.write_bytes(as_llama2c(theirs))
    config, weights = llama2c.read(path)
    assert config.n_kv_heads == KV_HEADS
    check(Model(config, weights), expected)


def test_the_llama2c_bin_that_tinyllm_saves_is_the_same_bytes(theirs, tmp_path):
    path = tmp_path / "model.bin"
    llama2c.write(path, config_of(theirs), arrays(theirs))
    saved, plain = path.read_bytes(), as_llama2c(theirs)
    assert len(saved) == len(plain)
    numbers = (
        np.frombuffer(saved[28:], np.float32),
        np.frombuffer(plain[28:], np.float32),
    )
    assert saved[:28] == plain[:28]
    np.testing.assert_allclose(*numbers, atol=1e-6)  # the tables of angles are rounded


@pytest.mark.parametrize("exact", [True, False])
def test_gguf_that_its_own_library_wrote(theirs, expected, tmp_path, exact):
    path = tmp_path / "model.gguf"
    export(path, config_of(theirs), arrays(theirs))
    found = reader.read(path)
    config = gguf_llama.config_of(found)
    check(Model(config, gguf_llama.weights_of(found, config), exact), expected)


def as_llama2c(theirs) -> bytes:
    """The file that llama2.c's legacy export writes."""
    w, c = theirs.state_dict(), theirs.config
    w = {name: tensor.numpy() for name, tensor in w.items()}
    sign = 1 if c.tie_word_embeddings else -1
    sizes = [c.hidden_size, c.intermediate_size, c.num_hidden_layers, HEADS, KV_HEADS]
    parts = [np.array([*sizes, sign * c.vocab_size, 61], "<i4")]
    parts.append(w["model.embed_tokens.weight"])
    for name, n_heads in [
        ("input_layernorm", 0),
        ("self_attn.q_proj", HEADS),
        ("self_attn.k_proj", KV_HEADS),
        ("self_attn.v_proj", 0),
        ("self_attn.o_proj", 0),
        ("post_attention_layernorm", 0),
        ("mlp.gate_proj", 0),
        ("mlp.down_proj", 0),
        ("mlp.up_proj", 0),
    ]:
        for i in range(c.num_hidden_layers):
            weight = w[f"model.layers.{i}.{name}.weight"]
            parts.append(interleaved(weight, n_heads) if n_heads else weight)
    parts.append(w["model.norm.weight"])
    pairs = 10000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    angles = np.outer(np.arange(61), pairs)
    parts += [np.cos(angles).astype("<f4"), np.sin(angles).astype("<f4")]
    if not c.tie_word_embeddings:
        parts.append(w["lm_head.weight"])
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)

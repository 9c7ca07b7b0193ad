"""torch as judge of the trainer: its autograd and its AdamW against ours."""

from __future__ import annotations

import numpy as np
import pytest

from tinyllm.model.config import Config, weight_shapes
from tinyllm.train.backward import loss_and_gradients
from tinyllm.train.optimizer import AdamW

torch = pytest.importorskip("torch", reason="torch is not installed: make judges")
pytestmark = pytest.mark.judge

CONFIG = Config(
    dim=24,
    hidden_dim=40,
    n_layers=3,
    n_heads=4,
    n_kv_heads=2,
    head_dim=8,
    vocab_size=50,
    n_ctx=200,
    rope_theta=100.0,
    norm_eps=0.1,
)
B, T = 3, 150  # more than one block of attention rows
RNG = np.random.default_rng(0)
TOKENS, TARGETS = RNG.integers(0, 50, (2, B, T))


def weights_of(config: Config, dtype: type) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        name: (rng.normal(0, 0.3, shape) + (len(shape) == 1)).astype(dtype)
        for name, shape in weight_shapes(config).items()
    }


def norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + CONFIG.norm_eps) * weight


def rotated(x):
    """x (B, heads, T, E) under RoPE, as complex numbers: another path to the same."""
    half = CONFIG.head_dim // 2
    power = torch.arange(half, dtype=torch.float64) / half
    angle = torch.outer(torch.arange(T, dtype=torch.float64), CONFIG.rope_theta**-power)
    turned = torch.complex(x[..., :half].double(), x[..., half:].double())
    turned = turned * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)


def attended(x, w, prefix):
    """Causal attention by torch's own function, with repeated key heads."""
    split = (B, T, -1, CONFIG.head_dim)
    q, k, v = (
        (x @ w[f"{prefix}{n}_proj.weight"].T).reshape(split).transpose(1, 2)
        for n in "qkv"
    )
    groups = CONFIG.n_heads // CONFIG.n_kv_heads
    k, v = (h.repeat_interleave(groups, 1) for h in (rotated(k), v))
    out = torch.nn.functional.scaled_dot_product_attention(
        rotated(q), k, v, is_causal=True
    )
    return out.transpose(1, 2).reshape(B, T, -1) @ w[prefix + "o_proj.weight"].T


def torch_loss(w):
    embed = w["model.embed_tokens.weight"]
    x = embed[torch.tensor(TOKENS)]  # (B, T, D)
    for layer in range(CONFIG.n_layers):
        at = f"model.layers.{layer}."
        x = x + attended(
            norm(x, w[at + "input_layernorm.weight"]), w, at + "self_attn."
        )
        c = norm(x, w[at + "post_attention_layernorm.weight"])
        gate, up, down = (w[f"{at}mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
        x = x + (torch.nn.functional.silu(c @ gate.T) * (c @ up.T)) @ down.T
    logits = norm(x, w["model.norm.weight"]) @ embed.T
    flat = logits.reshape(B * T, -1)
    return torch.nn.functional.cross_entropy(flat, torch.tensor(TARGETS).ravel())


@pytest.mark.parametrize(
    ("dtype", "within"), [(np.float64, 1e-6), (np.float32, 1e-4)], ids=["f64", "f32"]
)
def test_the_loss_and_every_gradient_are_those_of_autograd(dtype, within):
    """The tables of RoPE are float32 in ours, so float64 agrees to about 1e-7."""
    weights = weights_of(CONFIG, dtype)
    theirs = {n: torch.tensor(w, requires_grad=True) for n, w in weights.items()}
    expected = torch_loss(theirs)
    expected.backward()
    loss, grads = loss_and_gradients(weights, CONFIG, TOKENS, TARGETS)
    assert loss == pytest.approx(expected.item(), rel=within)
    for name, grad in grads.items():
        wanted = theirs[name].grad.numpy()
        assert abs(grad - wanted).max() <= within * abs(wanted).max(), name


def test_ten_steps_are_those_of_torchs_adamw():
    weights = weights_of(CONFIG, np.float32)
    theirs = {n: torch.tensor(w, requires_grad=True) for n, w in weights.items()}
    ours = AdamW(weights, betas=(0.9, 0.95), decay=0.1)
    groups = [
        {"params": [p for p in theirs.values() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in theirs.values() if p.ndim == 1], "weight_decay": 0.0},
    ]
    judge = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    rng = np.random.default_rng(2)
    for step in range(10):
        rate = 0.01 / (step + 1)
        grads = {n: rng.normal(0, 1, w.shape).astype("f") for n, w in weights.items()}
        ours.step(grads, rate)
        for group in judge.param_groups:
            group["lr"] = rate
        for name, parameter in theirs.items():
            parameter.grad = torch.tensor(grads[name])
        judge.step()
    for name, w in weights.items():
        np.testing.assert_allclose(w, theirs[name].detach().numpy(), atol=1e-6)

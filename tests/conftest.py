"""A tiny random model with odd sizes, and a tokenizer of bytes, for all unit tests.

8 query and 2 key/value heads make a wrong order of grouped heads visible, odd widths a
wrong stride, norm weights unlike 1 a forgotten scale.
"""

from __future__ import annotations

import numpy as np
import pytest

from tinyllm.model.config import Config, weight_shapes
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.text.bpe import BPE

TINY = Config(
    dim=44,
    hidden_dim=52,
    n_layers=3,
    n_heads=8,
    n_kv_heads=2,
    head_dim=6,
    vocab_size=259,
    n_ctx=40,
    rope_theta=500.0,
    norm_eps=1e-3,
    tied_embeddings=False,
)


def random_weights(config: Config, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights that make logits of a few units, from a seed."""
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in weight_shapes(config).items():
        spread = 0.3 if len(shape) == 1 else 1.5 * shape[-1] ** -0.5
        centre = 1.0 if len(shape) == 1 else 0.0
        values = centre + spread * random.standard_normal(shape)
        weights[name] = values.astype(np.float32)
    return weights


@pytest.fixture(scope="session")
def config() -> Config:
    return TINY


@pytest.fixture(scope="session")
def weights(config: Config) -> dict[str, np.ndarray]:
    return random_weights(config)


@pytest.fixture(scope="session")
def model(config: Config, weights: dict[str, np.ndarray]) -> Model:
    return Model(config, weights)


@pytest.fixture(scope="session")
def fast_model(config: Config, weights: dict[str, np.ndarray]) -> Model:
    return Model(config, weights, exact=False)


@pytest.fixture(scope="session")
def tokenizer() -> BPE:
    return BPE.from_merges([])


@pytest.fixture(scope="session")
def lm(model: Model, tokenizer: BPE) -> NumpyEngine:
    return NumpyEngine(model, tokenizer)

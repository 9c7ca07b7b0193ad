"""A Llama as a GGUF file by the library's own writer, with its pairs interleaved."""

from __future__ import annotations

import numpy as np
import pytest

from tinyllm.model.config import Config


def interleaved(halves: np.ndarray, n_heads: int) -> np.ndarray:
    """Row i and row i + E/2 of each head become rows 2i and 2i + 1: row by row."""
    pairs, width = np.empty_like(halves), len(halves) // n_heads
    for head in range(n_heads):
        for i in range(width // 2):
            for half in (0, 1):
                old = head * width + half * width // 2 + i
                pairs[head * width + 2 * i + half] = halves[old]
    return pairs


def export(path, config: Config, weights) -> None:
    """Write a model as llama.cpp's converter does, by the library's writer and map."""
    library = pytest.importorskip("gguf")
    writer = library.GGUFWriter(path, "llama")
    writer.add_block_count(config.n_layers)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.dim)
    writer.add_feed_forward_length(config.hidden_dim)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    names = library.get_tensor_name_map(library.MODEL_ARCH.LLAMA, config.n_layers)
    for name, weight in weights.items():
        if "q_proj" in name:
            weight = interleaved(weight, config.n_heads)
        if "k_proj" in name:
            weight = interleaved(weight, config.n_kv_heads)
        writer.add_tensor(names.get_name(name, (".weight",)), weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

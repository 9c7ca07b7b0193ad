"""transformers as judge of a llama2.c file: the same weights give its logits."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import tinyllm
from tinyllm.formats import llama2c

torch = pytest.importorskip("torch", reason="torch is not installed: make judges")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: make judges"
)
FILE = Path(os.environ.get("TINYLLM_DATA", "")) / "stories260K.bin"
pytestmark = [
    pytest.mark.judge,
    pytest.mark.skipif(
        not FILE.is_file(), reason="TINYLLM_DATA names no folder with stories260K.bin"
    ),
]


@pytest.mark.parametrize("exact", [True, False])
def test_the_logits_are_those_of_transformers_at_every_position(exact):
    lm = tinyllm.load(FILE, exact=exact)
    config, weights = llama2c.read(FILE)
    values = config.to_hf()
    values.pop("architectures")
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values)).eval()
    state = {name: torch.tensor(np.asarray(w)) for name, w in weights.items()}
    missing = theirs.load_state_dict(state, strict=False)
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    assert not missing.unexpected_keys
    theirs.tie_weights()
    text = lm.generate("", max_new_tokens=200).text
    ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode(text * 3)][:400]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    ours = lm.model.forward(ids)
    worst = np.abs(ours - expected).max()
    print(f"worst difference {worst:.2e} over {len(ids)} positions")
    assert worst <= 1e-4

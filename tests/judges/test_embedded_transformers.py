"""transformers as judge of the embedded model: the same folder, the same logits."""

from __future__ import annotations

import numpy as np
import pytest

import tinyllm
from tinyllm.models.find import find

torch = pytest.importorskip("torch", reason="torch is not installed: make judges")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: make judges"
)
pytestmark = pytest.mark.judge

TEXT = 'TASK: What is 4871 * 209?\nCALL: {"tool":"calc"} Once upon a time, Tom ran. '


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["agent", "stories"])
def test_the_embedded_folder_gives_the_same_logits_at_every_position(name, exact):
    lm = tinyllm.load(name, exact=exact)
    ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode(TEXT * 6)]
    assert len(ids) > 256
    theirs = transformers.LlamaForCausalLM.from_pretrained(
        find(name), dtype=torch.float32
    )
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(lm.model.forward(ids), expected, atol=1e-4, rtol=0)


def test_the_embedded_tokenizer_gives_the_same_ids():
    path = find("agent") / "tokenizer.json"
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    ours = tinyllm.load().tokenizer
    for text in (TEXT, "  two  spaces\n\nI'VE I've 12345 é 🦙", "<|eos|> is text"):
        encoded = theirs.encode(
            text, add_special_tokens=False, split_special_tokens=True
        )
        assert encoded == ours.encode(text)
        assert theirs.decode(encoded) == text

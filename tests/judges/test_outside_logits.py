"""The outside logits that chapter 02 compares with, made and verified by transformers.

    python tests/judges/test_outside_logits.py    writes STORED again

That is to be done after every change of the embedded weights; the test here fails until
then, and so does the chapter. What is stored: for each position of a text, the tokens
that transformers scores highest, and those logits to three decimals.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import tinyllm
from tinyllm.models.find import find

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "notebooks" / "data" / "outside_logits.json"
MODEL = "agent"
TEXT = (
    "TASK: What is 4871 * 209?\nTHOUGHT: I should calculate this.\n"
    "Once upon a time there was a little girl named Lily."
)
TOP = 5
pytestmark = pytest.mark.judge


def transformers_logits(ids):
    """Logits (T, V) of the embedded folder, run by transformers on torch."""
    torch = pytest.importorskip("torch", reason="torch is not installed: make judges")
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: make judges"
    )
    model = transformers.LlamaForCausalLM.from_pretrained(
        find(MODEL), dtype=torch.float32
    )
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def checksum():
    """The SHA-256 of the weights, so that stale logits are known by more than size."""
    return hashlib.sha256((find(MODEL) / "model.safetensors").read_bytes()).hexdigest()


def made():
    """What the file is to hold, worked out now."""
    tokenizer = tinyllm.load(MODEL).tokenizer
    ids = [tokenizer.bos_id, *tokenizer.encode(TEXT)]
    logits = transformers_logits(ids)
    best = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]  # (T, TOP)
    scores = np.take_along_axis(logits, best, axis=1).astype(float).round(3)
    names = ("transformers", "torch")
    return {
        "engine": "transformers.LlamaForCausalLM, float32, on the embedded folder",
        "versions": {name: importlib.import_module(name).__version__ for name in names},
        "model": MODEL,
        "sha256": checksum(),
        "text": TEXT,
        "ids": ids,
        "top_ids": best.tolist(),
        "top_logits": scores.tolist(),
    }


def write(path=STORED):
    """Write the file, a line for each position."""
    fields = made()
    lines = [f'"{name}": {written(value)}' for name, value in fields.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def written(value):
    """JSON on one line, or, of a list of lists, a line for each."""
    if isinstance(value, list) and isinstance(value[0], list):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def test_the_stored_logits_are_those_of_transformers():
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert stored["sha256"] == checksum(), (
        "other weights: run python tests/judges/test_outside_logits.py"
    )
    assert stored["text"] == TEXT
    logits = transformers_logits(stored["ids"])
    top_ids = np.array(stored["top_ids"])  # (T, TOP)
    assert top_ids.shape == (len(stored["ids"]), TOP)
    there = np.take_along_axis(logits, top_ids, axis=1)
    assert np.abs(there - stored["top_logits"]).max() < 1e-3
    np.put_along_axis(logits, top_ids, -np.inf, axis=1)
    assert (logits.max(axis=1) <= there.min(axis=1) + 1e-3).all()  # no better one


def test_the_stored_ids_are_those_of_the_stored_text():
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    tokenizer = tinyllm.load(MODEL).tokenizer
    assert stored["ids"] == [tokenizer.bos_id, *tokenizer.encode(stored["text"])]
    assert len(stored["ids"]) > 30


if __name__ == "__main__":
    write()

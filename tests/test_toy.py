"""The toy: no arguments, no file, one head, and everything above runs on it."""

from __future__ import annotations

import socket

import numpy as np
import pytest

import tinyllm
from tinyllm.errors import TokenizationError
from tinyllm.models import find, open
from tinyllm.toy import BOS, EOS, ToyEngine, WordTokenizer

LOGITS = [
    0.244,
    -0.362,
    -0.598,
]  # after "the cat saw the dog", as numpy drew the weights


@pytest.fixture(scope="module")
def lm():
    return ToyEngine()


def test_it_needs_no_file(monkeypatch):
    def none(*_, **__):
        raise AssertionError("the toy looked for a file")

    for module, name in ((find, "find"), (open, "open_model"), (socket, "socket")):
        monkeypatch.setattr(module, name, none)
    assert tinyllm.load("toy").generate("the cat", max_new_tokens=3).token_ids


def test_its_weights_are_always_the_same(lm):
    ids = [BOS, *lm.tokenize("the cat saw the dog")]
    logits = lm.prefill(lm.session(), ids)
    assert np.array_equal(logits, ToyEngine().model.forward(ids)[-1])
    assert logits[:3].tolist() == pytest.approx(LOGITS, abs=1e-3)
    assert lm.config.n_heads == lm.config.n_layers == 1


def test_its_attention_looks_at_order_and_distance(lm):
    """What a bug in positions would change: else it could not be noticed on the toy."""
    a, b = lm.tokenize(" cat dog")
    one = lm.score(lm.session(), [BOS, a, b, a])[-1]
    other = lm.score(lm.session(), [BOS, b, a, a])[-1]
    assert np.abs(one - other).max() > 0.05


def test_words_are_tokens_and_everything_else_is_bytes(lm):
    contents = [lm.tokenizer.token_bytes(i) for i in lm.tokenize("a the cat, ü")]
    assert contents == [b"a", b" the", b" cat", b",", b" ", b"\xc3", b"\xbc"]
    assert lm.tokenizer.vocab_size == 2 + 256 + 19
    assert (lm.tokenizer.bos_id, lm.tokenizer.eos_ids) == (BOS, {EOS})
    with pytest.raises(TokenizationError):
        lm.tokenize(None)


def test_of_two_words_the_longer_is_taken():
    tokenizer = WordTokenizer(["ab", "abc", "c\n"])
    ids = tokenizer.encode("abcabc\n\x00")
    assert [tokenizer.token_bytes(i) for i in ids] == [b"abc", b"abc", b"\n", b"\0"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_call_of_an_agent_on_it_parses(lm, temperature):
    agent = tinyllm.Agent(lm, max_steps=3, temperature=temperature)
    for task in ("What is 4871 * 209?", "Read notes.txt.", "Say hello."):
        trace = agent.run(task)
        assert trace.steps
        assert all(step.tool in agent.backend.tools for step in trace.steps)
    assert agent.backend.calls == agent.backend.parsed >= 3

"""`stream` and `generate`, on the tiny model and on an engine whose text is given."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tinyllm
from tinyllm.decode.generate import generate, stream
from tinyllm.errors import UsageError


def test_max_new_tokens_counts_new_tokens(lm):
    prompt = "x" * 20
    result = lm.generate(prompt, max_new_tokens=15, temperature=1.0, seed=3)
    assert len(result.token_ids) == 15
    assert result.stop_reason == "length"


def test_the_prompt_follows_bos(lm, model):
    first = lm.generate("abc", max_new_tokens=1).token_ids[0]
    ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode("abc")]
    assert first == int(model.forward(ids)[-1].argmax())


def test_the_same_seed_gives_the_same_text_and_another_seed_another(lm):
    def text(seed):
        return lm.generate("ab", max_new_tokens=12, temperature=1.5, seed=seed).text

    assert text(42) == text(42)
    assert text(42) != text(43)


def test_the_pieces_of_a_stream_are_the_text(lm):
    options = {"max_new_tokens": 20, "temperature": 1.0, "seed": 5}
    assert "".join(stream(lm, "ab", **options)) == generate(lm, "ab", **options).text


def test_a_full_context_ends_the_text(lm):
    result = lm.generate("x" * 35, max_new_tokens=50, temperature=1.0, seed=1)
    assert (len(result.token_ids), result.stop_reason) == (4, "context")


class Fixed:
    """An engine whose greedy text is given, one byte a token, then eos."""

    def __init__(self, tokenizer, text: bytes):
        self.tokenizer = tokenizer
        self.script = [b + 3 for b in text] + [2]
        self.length, self.n_free = 1, 100

    def last(self, n):
        return []

    def session(self):
        self.left = list(self.script)
        return self

    def tokenize(self, text):
        return self.tokenizer.encode(text)

    def prefill(self, session, ids):
        logits = np.zeros(259, np.float32)
        logits[self.left.pop(0)] = 1.0
        return logits

    decode = prefill


def test_a_character_of_four_tokens_comes_whole(tokenizer):
    pieces = list(stream(Fixed(tokenizer, "a🦙b".encode()), ""))
    assert pieces == ["a", "🦙", "b"]


def test_a_character_cut_by_the_budget_is_replaced_at_the_end_only(tokenizer):
    result = generate(Fixed(tokenizer, "a🦙".encode()), "", max_new_tokens=3)
    assert result.text == "a\ufffd"


def test_a_stop_string_ends_the_text_before_it(tokenizer):
    engine = Fixed(tokenizer, b"The quick brown fox jumps")
    result = generate(engine, "", stop=["own fox"])
    assert (result.text, result.stop_reason) == ("The quick br", "stop")
    assert len(result.token_ids) == len("The quick brown fox")


def test_text_that_began_like_a_stop_string_is_released_at_eos(tokenizer):
    result = generate(Fixed(tokenizer, b"brown f"), "", stop=["own fox"])
    assert (result.text, result.stop_reason) == ("brown f", "eos")


def test_a_grammar_from_a_schema_makes_valid_json(lm):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    grammar = tinyllm.grammar.compile(schema, lm.tokenizer)
    for seed in range(5):
        result = lm.generate(
            "x", max_new_tokens=24, temperature=2.0, seed=seed, grammar=grammar
        )
        assert json.loads(result.text).keys() == {"a", "b"}


def test_a_negative_budget_is_refused(lm):
    with pytest.raises(UsageError, match="-1"):
        lm.generate("x", max_new_tokens=-1)


@pytest.mark.parametrize("prompt", [None, 3, b"x"])
def test_a_prompt_that_is_no_text_is_refused(lm, prompt):
    with pytest.raises(UsageError, match="prompt"):
        lm.generate(prompt)
    with pytest.raises(UsageError, match="prompt"):
        next(stream(lm, prompt))


@pytest.mark.parametrize("source", ["[0-9]+", {"type": "integer"}])
def test_a_grammar_that_is_not_compiled_is_refused(lm, source):
    with pytest.raises(UsageError, match=r"grammar\.compile"):
        lm.generate("x", grammar=source)


@pytest.mark.parametrize("budget", [1.5, None, "3"])
def test_a_budget_that_is_no_whole_number_is_refused(lm, budget):
    with pytest.raises(UsageError, match="max_new_tokens"):
        lm.generate("x", max_new_tokens=budget)


def test_a_penalty_keeps_a_model_from_saying_the_same_for_ever(lm):
    """The prompt counts: what it says is lowered from the first token on."""
    plain = lm.generate("aaaa", max_new_tokens=15)
    other = lm.generate("aaaa", max_new_tokens=15, repetition_penalty=50.0)
    assert len(set(other.token_ids)) == len(other.token_ids) == 15
    assert len(set(plain.token_ids)) < 15
    wide = lm.generate("aaaa", max_new_tokens=5, repetition_window=0)
    assert wide.token_ids == plain.token_ids[:5]


def test_min_p_of_one_is_greedy_at_any_temperature(lm):
    warm = lm.generate("ab", max_new_tokens=8, temperature=3.0, min_p=1.0, seed=5)
    assert warm.token_ids == lm.generate("ab", max_new_tokens=8).token_ids

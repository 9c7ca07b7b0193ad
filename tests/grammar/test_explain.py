"""The verdict on a token says which byte fails, and what could stand there."""

from __future__ import annotations

import pytest

from tests.toy_tokenizer import (
    BOS,
    EOS,
    JSON_TOKENS,
    PAD,
    ToyTokenizer,
    byte_level,
    json_rules,
    walk,
)
from tinyllm.grammar import TokenGrammar
from tinyllm.grammar.explain import Explanation, written
from tinyllm.grammar.expression import Rules
from tinyllm.grammar.pushdown import State
from tinyllm.grammar.regex import parse
from tinyllm.grammar.vocabulary import Vocabulary


def toy(pattern: str, tokenizer: ToyTokenizer) -> TokenGrammar:
    return TokenGrammar(Rules(parse(pattern)), Vocabulary(tokenizer))


JSON = ToyTokenizer(JSON_TOKENS)
GRAMMAR = TokenGrammar(json_rules(), Vocabulary(JSON))


def at(text: str) -> State:
    return walk(GRAMMAR, [JSON.id_of(c.encode()) for c in text])


def verdict(text: str, token: bytes) -> Explanation:
    return GRAMMAR.explain(at(text), JSON.id_of(token))


def test_the_first_byte_that_fails_is_named_with_what_was_expected() -> None:
    found = verdict("[", b"}]")
    assert (found.legal, found.at) == (False, 0)
    assert found.expected == frozenset(b'[{"-012n]')
    assert "byte 0 is '}', expected '\"'" in found.reason
    found = verdict("[[1", b"}]")
    assert found.expected == frozenset(b"012],")
    assert str(found) == (
        f"token {JSON.id_of(b'}]')} b'}}]' is illegal: "
        "byte 0 is '}', expected ',', '0' to '2', ']'"
    )


def test_a_later_byte_may_be_the_first_to_fail() -> None:
    found = verdict("[1", b"]]")
    assert (found.at, found.expected) == (1, frozenset())
    assert found.reason == "byte 1 is ']', expected the end"
    found = verdict('{"a":"', b'"}]')
    assert found.at == 2
    assert verdict('[{"a":"', b'"}]').legal


def test_where_the_text_may_end_that_is_expected_too() -> None:
    found = verdict("1", b",")
    assert found.reason == "byte 0 is ',', expected '0' to '2' or the end"


def test_a_legal_token_is_called_legal() -> None:
    found = verdict('{"a":"', b'"}]'[:1])
    assert (found.legal, found.at, found.expected) == (True, None, frozenset())
    assert str(found).endswith("is legal: each byte fits")


def test_an_eos_id_is_legal_where_the_text_is_complete_and_says_what_is_missing() -> (
    None
):
    assert GRAMMAR.explain(at("[]"), EOS).reason == "the text is complete"
    found = GRAMMAR.explain(at("[1"), EOS)
    assert not found.legal
    assert found.reason == "the text is not complete, expected ',', '0' to '2', ']'"


@pytest.mark.parametrize("token_id", [PAD, BOS])
def test_a_special_id_stands_for_no_text(token_id: int) -> None:
    found = GRAMMAR.explain(at("["), token_id)
    assert (found.legal, found.reason) == (False, "it stands for no text")


@pytest.mark.parametrize("token_id", [-1, JSON.vocab_size, 10**9])
def test_an_id_beyond_the_vocabulary_is_told_its_ids(token_id: int) -> None:
    found = GRAMMAR.explain(at("["), token_id)
    assert not found.legal
    assert found.reason == f"the vocabulary has the ids 0 to {JSON.vocab_size - 1}"


def test_a_token_behind_which_no_token_goes_on_is_a_dead_end() -> None:
    tokenizer = ToyTokenizer([b"a", b"d", b"cc"])
    grammar = toy("a(b|c)|d", tokenizer)
    found = grammar.explain(grammar.start(), tokenizer.id_of(b"a"))
    assert (found.legal, found.at) == (False, None)
    assert found.reason == "no tokens could complete the text after it"


def test_every_verdict_agrees_with_the_mask() -> None:
    for text in ("", "[", "[1", '[{"a', '{"a":[', '[{"b":-1', "[[]"):
        state = at(text)
        for token_id, is_legal in enumerate(GRAMMAR.mask(state).tolist()):
            found = GRAMMAR.explain(state, token_id)
            assert found.legal == is_legal
            assert found.data == JSON.tokens[token_id]


def test_a_byte_of_a_split_character_is_written_as_a_number() -> None:
    tokenizer = byte_level()
    grammar = toy("é|ê|[a-c~\x7f]", tokenizer)
    state = walk(grammar, [tokenizer.id_of(b"\xc3")])
    found = grammar.explain(state, tokenizer.id_of(b"a"))
    assert found.reason == "byte 0 is 'a', expected byte A9 to AA"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'"0123456789', "'\"', '0' to '9'"),
        (range(0x80, 0xC0), "byte 80 to BF"),
        (range(0x20, 0x80), "space to byte 7F"),
        (range(0x1F, 0x7F), "byte 1F to '~'"),
        (b"\t\n\r ", "tab to line feed, carriage return, space"),
        (b"", ""),
        (b"ac", "'a', 'c'"),
    ],
)
def test_bytes_are_written_in_words_neighbours_as_a_range(
    data: bytes | range, words: str
) -> None:
    assert written(data) == words

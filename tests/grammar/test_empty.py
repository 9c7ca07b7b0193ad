"""A grammar that a vocabulary cannot spell names the byte to blame."""

from __future__ import annotations

import pytest

from tests.toy_tokenizer import (
    JSON_TOKENS,
    ToyTokenizer,
    byte_level,
    characters,
    json_rules,
)
from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import NOTHING, Call, Concatenation, Rules, literal
from tinyllm.grammar.mask import TokenGrammar
from tinyllm.grammar.regex import parse
from tinyllm.grammar.vocabulary import Vocabulary


def refused(rules: Rules | str, tokens: list[bytes], words: str) -> None:
    rules = Rules(parse(rules)) if isinstance(rules, str) else rules
    with pytest.raises(GrammarError, match=words):
        TokenGrammar(rules, Vocabulary(ToyTokenizer(tokens)))


def test_a_byte_that_no_token_has_is_named() -> None:
    refused("ab*c", characters("ab"), r"no token has the byte 0x63 \('c'\)")
    refused("é", [b"a", b"\xc3"], "no token has the byte 0xa9$")


def test_the_first_byte_of_the_text_that_lacks_the_fewest_is_named() -> None:
    # The shorter option lacks two bytes, the longer one only z.
    refused("xya|zbbbbb", characters("ab"), "'z'")
    refused("axbz", characters("ab"), "'x'")


def test_a_byte_that_only_longer_tokens_have_is_named() -> None:
    refused("ab", [b"a", b"bb", b"aba"], r"0x62 \('b'\) occurs only inside longer")


def test_tokens_that_do_not_meet_are_blamed_where_each_byte_is_there_alone() -> None:
    # Only b is alone, but it is that of the option that lacks its c.
    refused("a|bc", [b"b", b"ab", b"cc", b"xx"], "occurs only inside longer tokens")


def test_a_language_without_texts_blames_the_grammar() -> None:
    tokens = byte_level().tokens[3:]
    refused(r"a[^\s\S]", tokens, "allows no text at all")
    refused(Rules(NOTHING), tokens, "allows no text at all")
    endless = Rules(Call("v"), {"v": Concatenation((literal("["), Call("v")))})
    refused(endless, tokens, "allows no text at all")


@pytest.mark.parametrize("missing", ["[", "{", '"'])
def test_rules_that_can_do_without_a_byte_are_not_refused(missing: str) -> None:
    tokens = [token for token in JSON_TOKENS if missing.encode() not in token]
    grammar = TokenGrammar(json_rules(), Vocabulary(ToyTokenizer(tokens)))
    assert grammar.legal_count(grammar.start())


def test_a_byte_deep_inside_called_rules_is_named() -> None:
    rules = json_rules()
    outer = Rules(Concatenation((literal("["), Call("object"))), rules.rules)
    tokens = [token for token in JSON_TOKENS if b"}" not in token]
    refused(outer, tokens, r"no token has the byte 0x7d \('}'\)")

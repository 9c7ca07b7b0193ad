from __future__ import annotations

import pytest
from toy_tokenizer import ToyTokenizer, byte_level, characters

from tinyllm.errors import GrammarError
from tinyllm.grammar.automaton import Automaton
from tinyllm.grammar.completion import FAR, Completion
from tinyllm.grammar.regex import parse
from tinyllm.grammar.vocabulary import Vocabulary


def completion(pattern: str, tokenizer: ToyTokenizer) -> tuple[Completion, Automaton]:
    automaton = Automaton(parse(pattern))
    return Completion(automaton, Vocabulary(tokenizer)), automaton


def test_the_shortest_way_counts_tokens_and_not_bytes() -> None:
    tokenizer = ToyTokenizer([*characters("abc"), b"abb", b"bbb"])
    found, automaton = completion("ab{6}|acc", tokenizer)
    assert tokenizer.text(found.tokens(automaton.start)) in (b"abbbbbb", b"acc")
    assert found.distance[automaton.start] == 3
    tokenizer = ToyTokenizer([*characters("abc"), b"abbb", b"bbb"])
    found, automaton = completion("ab{6}|acc", tokenizer)
    assert tokenizer.text(found.tokens(automaton.start)) == b"abbbbbb"
    assert found.distance[automaton.start] == 2


def test_a_byte_that_no_token_has_is_named() -> None:
    with pytest.raises(GrammarError, match=r"no token has the byte 0x63 \('c'\)"):
        completion("ab*c", ToyTokenizer(characters("ab")))
    with pytest.raises(GrammarError, match="no token has the byte 0xa9"):
        completion("é", ToyTokenizer([b"a", b"\xc3"]))


def test_the_first_byte_of_the_text_that_lacks_the_fewest_is_named() -> None:
    # The shorter option lacks two bytes, the longer one only z.
    with pytest.raises(GrammarError, match=r"'z'"):
        completion("xya|zbbbbb", ToyTokenizer(characters("ab")))
    with pytest.raises(GrammarError, match=r"'x'"):
        completion("axbz", ToyTokenizer(characters("ab")))


def test_a_byte_that_only_longer_tokens_have_is_named() -> None:
    with pytest.raises(GrammarError, match=r"0x62 \('b'\) occurs only inside longer"):
        completion("ab", ToyTokenizer([b"a", b"bb", b"aba"]))


def test_a_language_without_texts_blames_the_grammar() -> None:
    with pytest.raises(GrammarError, match="allows no text at all"):
        completion(r"a[^\s\S]", byte_level())


def test_a_state_that_tokens_cannot_finish_is_far_though_its_bytes_could() -> None:
    found, automaton = completion("a(b|c)|d", ToyTokenizer([b"a", b"d", b"cc"]))
    after = automaton.next(automaton.start, ord("a"))
    assert found.distance[after] == FAR
    assert not found.reachable[after]
    assert found.reachable[automaton.start]

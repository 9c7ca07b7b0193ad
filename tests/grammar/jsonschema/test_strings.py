from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema import spelling
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.jsonschema.letters import alphabet_of
from tinyllm.grammar.jsonschema.strings import MAX_PATTERNS, Strings
from tinyllm.grammar.utf8 import one_of

TEXTS = ["".join(t) for n in range(5) for t in itertools.product("abé", repeat=n)]


# Patterns are searched, as by re.search; Python's $ also matches before a last \n.
PATTERNS = ["", "a", "^a", "b$", "^ab$", "a|^b", "(^a|b)b", "^", "$", "^$", "a*$"]
PATTERNS += ["^^a", "(a|b$)", "a$|^b", "x*^a", "[^a]", ".é", "(?:^|é)a(?:$|b)", "$^"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_searched_at_any_place(pattern: str) -> None:
    found = Automaton(Strings(patterns=frozenset((pattern,))).expression())
    absent = Automaton(Strings(without=frozenset((pattern,))).expression())
    for text in TEXTS:
        expected = re.search(pattern, text) is not None
        written = json.dumps(text, ensure_ascii=False).encode()
        assert found.accepts(written) is expected, text
        assert absent.accepts(written) is not expected, text


SETS = st.builds(
    Strings,
    st.integers(0, 2),
    st.none() | st.integers(0, 3),
    st.frozensets(st.sampled_from(PATTERNS), max_size=2),
    st.frozensets(st.sampled_from(PATTERNS), max_size=1),
    st.none() | st.frozensets(st.sampled_from(TEXTS), max_size=4),
    st.frozensets(st.sampled_from(TEXTS[:20]), max_size=3),
)


def is_open(strings: Strings) -> bool:
    """Whether a set has no constants, and bounds that are not reversed."""
    limit = strings.max_length
    return strings.values is None and (limit is None or strings.min_length <= limit)


@given(SETS, SETS, st.sampled_from(TEXTS))
def test_intersection_and_complement_are_those_of_sets(
    first: Strings, second: Strings, text: str
) -> None:
    both = first.patterns | first.without | second.patterns | second.without
    assume(len(both) <= MAX_PATTERNS)
    inside = first.contains(text)
    assert any(s.contains(text) for s in first.complement()) is not inside
    assert any(s.contains(text) for s in first.intersection(second)) is (
        inside and second.contains(text)
    )


@settings(max_examples=30)
@given(SETS.filter(is_open), st.sampled_from(TEXTS))
def test_every_spelling_of_a_string_is_written_and_one_of_a_key(
    strings: Strings, text: str
) -> None:
    inside = strings.contains(text)
    written, key = Automaton(strings.expression()), Automaton(strings.key())
    raw, escaped = json.dumps(text, ensure_ascii=False), json.dumps(text)
    upper = '"' + "".join(f"\\u{ord(char):04X}" for char in text) + '"'
    assert key.accepts(raw.encode()) is inside
    for spelled in (raw, escaped, upper):
        assert written.accepts(spelled.encode()) is inside
        assert spelled == raw or not key.accepts(spelled.encode())


@given(st.characters(codec="utf-8"), st.characters(codec="utf-8"))
def test_a_code_point_has_its_spellings_and_no_others(char: str, other: str) -> None:
    spelled = Automaton(one_of(spelling.paths([(ord(char), ord(char))])))
    canonical = Automaton(one_of(spelling.canonical_paths([(ord(char), ord(char))])))
    for ascii_only in (False, True):
        body = json.dumps(other, ensure_ascii=ascii_only)[1:-1].encode()
        assert spelled.accepts(body) is (char == other)
        assert canonical.accepts(body) is (
            char == other
            and body == json.dumps(char, ensure_ascii=False)[1:-1].encode()
        )


def test_a_pattern_of_too_many_letters_is_refused() -> None:
    many = "|".join(chr(0x4E00 + 2 * i) for i in range(300))
    with pytest.raises(GrammarError, match="sets of characters"):
        alphabet_of([many], [])

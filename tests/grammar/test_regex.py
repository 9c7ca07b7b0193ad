from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy_tokenizer import accepts
from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.regex import MAX_COUNT, MAX_DEPTH, parse

PATTERNS = [
    "",
    "a",
    "a|b|",
    "a|bb|ab",
    "(a|b)*abb",
    "(?:ab)+a?",
    "a{2}",
    "a{2,}b",
    "a{0,2}b{1,3}",
    "(a{1,2}){2}",
    "(a*)*b",
    "(|a)+",
    "a*?b+?",
    "[ab]+",
    "[^a]",
    "[b-]a",
    r"[\]a]",
    r"\-a",
    "a.b",
    r"\x61b",
    "^ab|b$",
    "((a)|(b))((a)|(b))",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_all_texts_up_to_length_five_are_decided_as_python_does(pattern: str) -> None:
    automaton = Automaton(parse(pattern))
    for length in range(6):
        for letters in itertools.product("ab-]", repeat=length):
            text = "".join(letters)
            expected = re.fullmatch(pattern, text) is not None
            assert accepts(automaton, text.encode()) is expected, text


CHARACTERS = "aZ_09 \t\n\r.-^]\\{é߿ࠀ€\ud7ff\ue000\uffff𐀀😀\U0010ffff\u2028"
CLASSES = [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"[\d_]", r"[^\w\s]"]
CLASSES += ["[a-z]", "[^a-z]", "[à-ü]", "[€-😀]", "[^€-😀]", r"[\u00e0-\U0001F600]"]
CLASSES += [r"\.", r"\\", r"\t", r"\n", r"\r", "é", "😀", "[é😀]", r"[\^\]-]", "[.]"]


@pytest.mark.parametrize("pattern", CLASSES)
def test_a_class_holds_the_characters_that_python_puts_in_it(pattern: str) -> None:
    automaton = Automaton(parse(pattern))
    for char in CHARACTERS:
        expected = re.fullmatch(pattern, char, re.ASCII) is not None
        assert accepts(automaton, char.encode()) is expected, char


def test_the_dot_is_one_code_point_and_no_line_break() -> None:
    automaton = Automaton(parse("."))
    for char in CHARACTERS:
        assert accepts(automaton, char.encode()) is (char not in "\n\r\u2028\u2029")
    assert not accepts(automaton, b"ab")
    assert not accepts(automaton, "😀".encode()[:3])


ATOMS = st.sampled_from(["a", "b", "[ab]", ".", "é", "[^a]", "(?:)"])
TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(TREES, st.text("abé", max_size=6))
def test_random_expressions_agree_with_python(pattern: str, text: str) -> None:
    expected = re.fullmatch(pattern, text) is not None
    assert accepts(Automaton(parse(pattern)), text.encode()) is expected


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        (r"(a)\1", "backreference"),
        ("a(?=b)", "lookahead"),
        ("a(?!b)", "lookahead"),
        ("(?<=a)b", "lookbehind"),
        ("(?<!a)b", "lookbehind"),
        ("(?P=x)", "named group"),
        ("(?i)a", "inline flag"),
        ("(?>a)", "atomic"),
        ("a^b", r"anchor \^"),
        ("(^a)", r"anchor \^"),
        ("(a$)", r"anchor \$"),
        ("a$b", r"anchor \$"),
        (r"\ba", "anchor"),
        (r"\p{Greek}", r"property of \\p"),
        (r"\pL", r"escape \\p"),
        ("a*+", "repetition of a repetition"),
        ("a**", "repetition of a repetition"),
        ("*a", "nothing before"),
        ("a{,3}", "write {m}"),
        ("a{x", "write {m}"),
        ("a{3,2}", "reversed"),
        ("(a", "missing"),
        ("a)", "without"),
        ("[a", "end of a class"),
        ("[]", "empty class"),
        ("[z-a]", "range"),
        (r"[a-\d]", "range"),
        ("a\\", "end of an escape"),
        (r"\x4", "hex digits"),
        (r"\ud800", "not a character"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(pattern: str, named: str) -> None:
    with pytest.raises(GrammarError, match=named):
        parse(pattern)


@pytest.mark.parametrize("bounds", ["1000001", "1,1000001", "1000001,", "9999999999"])
def test_a_count_above_the_limit_is_named(bounds: str) -> None:
    with pytest.raises(GrammarError, match=f"{MAX_COUNT}"):
        parse(f"a{{{bounds}}}")


def test_repetitions_that_multiply_are_refused_before_they_are_built() -> None:
    tree = parse("((a{1000}){1000}){1000}")
    with pytest.raises(GrammarError, match="100,000 automaton nodes"):
        Automaton(tree)  # it copies; the network of TokenGrammar counts


def test_a_hundred_thousand_brackets_are_an_error_and_no_overflow() -> None:
    parse("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH)
    with pytest.raises(GrammarError, match="deep"):
        parse("(" * 100_000)


@pytest.mark.parametrize("pattern", ["[a\ud800]", "[\ud800-\udfff]", "\\\ud800"])
def test_a_surrogate_in_a_class_or_escape_is_refused(pattern: str) -> None:
    with pytest.raises(GrammarError, match="a surrogate") as caught:
        parse(pattern)
    assert str(caught.value).encode()


@pytest.mark.parametrize("pattern", [r"\01", r"[\07]"])
def test_a_digit_after_the_escape_of_nul_is_refused(pattern: str) -> None:
    with pytest.raises(GrammarError, match=r"x00"):
        parse(pattern)


@pytest.mark.parametrize("pattern", ["(?<x>a|b)c", "(?P<x>a|b)c"])
def test_the_name_of_a_group_changes_nothing(pattern: str) -> None:
    assert parse(pattern) == parse("(?:a|b)c")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [(r"\p{Lu}", "AÉΩ", "aé1_"), (r"\p{Nd}", "0٣", "a½"), (r"\P{Letter}", "1_", "aé")],
)
def test_a_category_holds_the_characters_of_unicode(
    pattern: str, inside: str, outside: str
) -> None:
    automaton = Automaton(parse(pattern))
    assert all(accepts(automaton, char.encode()) for char in inside)
    assert not any(accepts(automaton, char.encode()) for char in outside)


def test_spaces_are_those_of_unicode_in_a_pattern_only() -> None:
    anchors = parse("^"), parse("$")
    automaton = Automaton(parse(r"\s", anchors=anchors))
    for char in " \t\n\u00a0\u2028\u3000\ufeff":
        assert accepts(automaton, char.encode())
    assert not accepts(automaton, b"a")


def test_an_anchor_cannot_be_repeated() -> None:
    with pytest.raises(GrammarError, match="repetition of the anchor"):
        parse("^*a", anchors=(parse(""), parse("")))

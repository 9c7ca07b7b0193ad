from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy_tokenizer import accepts
from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.jsonschema.numbers import Numbers, exact

BOUNDS = st.none() | st.tuples(
    st.sampled_from([0, -1, 7, 20, 120, 0.25, -1.25, 1.1, 0.07]).map(exact),
    st.booleans(),
)
STEPS = st.sampled_from([1, 2, 3, 7, 0.5, 1.5, 0.01, 0.07]).map(exact)
SETS = st.builds(
    Numbers,
    st.sampled_from([None, True, False]),
    BOUNDS,
    BOUNDS,
    st.none() | STEPS,
    st.frozensets(STEPS, max_size=1),
    st.none(),
    st.frozensets(st.sampled_from([0, 7, -0.1, 1.5]).map(exact), max_size=2),
)
TEXTS = st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4})?", fullmatch=True)


@settings(max_examples=25)
@given(SETS, st.lists(TEXTS, min_size=20, max_size=40))
def test_a_text_is_written_exactly_if_its_value_fulfils_every_field(
    numbers: Numbers, texts: list[str]
) -> None:
    automaton = Automaton(numbers.expression())
    multiple = numbers.multiple
    whole_only = numbers.integer or (multiple and multiple.denominator == 1)
    for text in texts:
        written = not ("." in text and whole_only and numbers.integer is not False)
        if numbers == Numbers() or written:
            assert accepts(automaton, text.encode()) is numbers.contains(Fraction(text))
        else:
            assert not accepts(automaton, text.encode())


@given(SETS, SETS, TEXTS)
def test_intersection_and_complement_are_those_of_sets(
    first: Numbers, second: Numbers, text: str
) -> None:
    value = Fraction(text)
    inside = first.contains(value)
    assert any(s.contains(value) for s in first.complement()) is not inside
    met = any(s.contains(value) for s in first.intersection(second))
    assert met is (inside and second.contains(value))


@pytest.mark.parametrize(
    ("numbers", "inside", "outside"),
    [
        (
            Numbers(True, (Fraction(0), False), (Fraction(120), False)),
            ["0", "-0", "7", "119", "120"],
            ["121", "012", "-1", "1200", "7.0", ""],
        ),
        (
            Numbers(None, (Fraction(-4), False), (Fraction(4), False)),
            ["4", "4.000", "-4.0", "-3.9999", "0"],
            ["4.0001", "-4.0001", "1e0", "4.", "-"],
        ),
        (
            Numbers(None, (Fraction(0), True), (Fraction(1), True)),
            ["0.5", "0.0000000000001", "0.99999999999999"],
            ["0", "1", "1.0", "-0.5", "0.999999999999999999"],
        ),
        (Numbers(multiple=exact(0.01)), ["1.5", "0.07", "3.990"], ["0.001", "1.999"]),
        (Numbers(True, (Fraction(10**40), False)), ["1" + "0" * 40], ["9" * 40]),
        (Numbers(values=frozenset((exact(1.0), exact(0.5)))), ["1", "0.5"], ["1.0"]),
    ],
)
def test_bounds_and_steps_by_their_digits(
    numbers: Numbers, inside: list[str], outside: list[str]
) -> None:
    automaton = Automaton(numbers.expression())
    assert all(accepts(automaton, text.encode()) for text in inside)
    assert not any(accepts(automaton, text.encode()) for text in outside)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_given_value_comes_back_from_its_text(value: float) -> None:
    (text,) = Numbers(values=frozenset((exact(value),))).expression().options  # type: ignore[union-attr]
    data = bytes(next(iter(part.allowed)) for part in text.parts)  # type: ignore[union-attr]
    assert json.loads(data) == value


def test_a_step_with_too_many_remainders_is_refused() -> None:
    with pytest.raises(GrammarError, match="multiple"):
        Numbers(multiple=exact(0.123456789)).expression()

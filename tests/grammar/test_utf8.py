from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.toy_tokenizer import accepts
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.utf8 import ANY, MAX_CODE_POINT, code_points, complement

# Both ends of each length of UTF-8, of the surrogates, and their neighbours.
EDGES = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xCFFF, 0xD7FF, 0xE000, 0xFFFF]
EDGES += [0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, MAX_CODE_POINT]


def test_every_code_point_matches_any_and_each_is_well_formed() -> None:
    automaton = Automaton(code_points(ANY))
    for code_point in EDGES:
        assert accepts(automaton, chr(code_point).encode())


def test_overlong_surrogate_and_too_high_bytes_are_refused() -> None:
    automaton = Automaton(code_points([(0, MAX_CODE_POINT)]))
    ill_formed = [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf"]
    ill_formed += [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80"]
    ill_formed += [b"\x80", b"\xff", b"\xc3", b"\xc3\xc3", b""]
    for data in ill_formed:
        assert not accepts(automaton, data), data


@given(st.data())
def test_a_range_holds_exactly_the_code_points_between_its_ends(
    data: st.DataObject,
) -> None:
    some = st.sampled_from(EDGES) | st.integers(0, MAX_CODE_POINT)
    first, last = sorted((data.draw(some), data.draw(some)))
    automaton = Automaton(code_points([(first, last)]))
    near = [first - 1, first, last, last + 1, data.draw(some), (first + last) // 2]
    for code_point in near:
        if 0 <= code_point <= MAX_CODE_POINT and not 0xD800 <= code_point <= 0xDFFF:
            inside = first <= code_point <= last
            assert accepts(automaton, chr(code_point).encode()) is inside


def test_the_complement_of_overlapping_ranges_is_what_none_of_them_holds() -> None:
    assert complement([(5, 9), (0, 1), (8, 12)]) == [(2, 4), (13, MAX_CODE_POINT)]
    assert complement([(0, 9), (2, 3)]) == [(10, MAX_CODE_POINT)]
    assert complement([(0, MAX_CODE_POINT)]) == []
    assert complement(complement([(65, 90)])) == [(65, 90)]

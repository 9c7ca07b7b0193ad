"""The expressions of JSON values, beside Python's reader and another expression."""

from __future__ import annotations

import itertools
import json

from tests.toy_tokenizer import is_json
from tinyllm.grammar.expression import literal
from tinyllm.grammar.json_text import (
    CHARACTER,
    COMPACT,
    SPACED,
    STRING,
    array,
    member,
    object_of,
)
from tinyllm.grammar.jsonschema import spelling
from tinyllm.grammar.jsonschema.automaton import Automaton
from tinyllm.grammar.utf8 import ANY, one_of


def test_a_character_has_just_the_spellings_of_all_code_points() -> None:
    mine, other = Automaton(CHARACTER), Automaton(one_of(spelling.paths(ANY)))
    work = [(mine.start, other.start)]
    seen = set(work)
    for state, same in work:  # grows while it is walked
        assert mine.is_final(state) == other.is_final(same)
        moves, others = mine.moves(state), other.moves(same)
        assert moves.keys() == others.keys()
        new = {(moves[byte], others[byte]) for byte in moves} - seen
        seen |= new
        work += new
    assert len(seen) > 20


def test_an_escaped_surrogate_needs_its_other_half() -> None:
    reader = Automaton(STRING)
    for unit in range(0xD7F0, 0xE010):
        lone = 0xD800 <= unit <= 0xDFFF
        paired = 0xD800 <= unit <= 0xDBFF
        for escape in (f"\\u{unit:04x}", f"\\u{unit:04X}"):
            assert reader.accepts(f'"{escape}"'.encode()) is not lone
            assert reader.accepts(f'"{escape}\\udc00"'.encode()) is paired
        raw = f'"{chr(unit)}"'.encode("utf-8", "surrogatepass")
        assert reader.accepts(raw) is not lone


def test_an_array_has_as_many_items_as_its_bounds_say() -> None:
    for low, high in itertools.product(range(3), (0, 1, 2, 3, None)):
        if high is None or low <= high:
            reader = Automaton(array(literal("7"), low, high, COMPACT))
            for n in range(6):
                fits = low <= n and (high is None or n <= high)
                assert (
                    reader.accepts(json.dumps([7] * n, separators=(",", ":")).encode())
                    is fits
                )


def test_an_object_has_its_members_in_order_each_with_its_comma() -> None:
    keys = "abc"
    for required in itertools.product((False, True), repeat=3):
        members = [
            (member(k, literal("0"), COMPACT), r)
            for k, r in zip(keys, required, strict=True)
        ]
        reader = Automaton(object_of(members, COMPACT))
        for there in itertools.product((False, True), repeat=3):
            text = (
                "{"
                + ",".join(f'"{k}":0' for k, t in zip(keys, there, strict=True) if t)
                + "}"
            )
            missing = any(r and not t for r, t in zip(required, there, strict=True))
            assert reader.accepts(text.encode()) is not missing


def test_spaced_texts_have_at_most_one_space_after_a_comma_and_a_colon() -> None:
    reader = Automaton(
        object_of([(member(k, literal("0"), SPACED), True) for k in "ab"], SPACED)
    )
    for text in ('{"a":0,"b":0}', '{"a": 0, "b":0}'):
        assert is_json(text, dict)
        assert reader.accepts(text.encode())
    for text in (
        '{"a":  0,"b":0}',
        '{ "a":0,"b":0}',
        '{"a" :0,"b":0}',
        '{"a":0 ,"b":0}',
    ):
        assert is_json(text, dict)
        assert not reader.accepts(text.encode())

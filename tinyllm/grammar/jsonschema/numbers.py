"""Sets of numbers and their decimal texts: bounds, multiples, constants.

Public: Numbers, exact.

A number without constraints is written as JSON allows (json_text.NUMBER). One with
bounds or multiples is written without exponent, so that its digits can be compared as
they are read; with a fraction, it has at most 15 digits: then no two of them are the
same double, and a reader that rounds finds it on the same side of each bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from tinyllm.grammar import json_text
from tinyllm.grammar.expression import Alternation, Expression, literal
from tinyllm.grammar.jsonschema.automaton import explore
from tinyllm.grammar.jsonschema.digits import (
    MAX_DIGITS,
    Comparison,
    DigitState,
    Remainder,
    Test,
)


def exact(number: int | float) -> Fraction:
    """Return the value that a reader of its shortest text has: 0.1 is 1/10.

    A whole double is itself: 1e23 is the double nearest to 10**23, a little below it.
    """
    whole = isinstance(number, int) or number.is_integer()
    return Fraction(int(number) if whole else Decimal(repr(number)))


T = TypeVar("T")
Moves = Callable[[DigitState], dict[int, DigitState]]  # the state after each byte


@dataclass(frozen=True)
class Numbers:
    """All numbers that fulfil every field; without fields, every number."""

    integer: bool | None = None  # True: whole ones only; False: no whole one
    low: tuple[Fraction, bool] | None = None  # the bound, and whether it is excluded
    high: tuple[Fraction, bool] | None = None
    multiple: Fraction | None = None
    not_multiples: frozenset[Fraction] = frozenset()
    values: frozenset[Fraction] | None = None
    excluded: frozenset[Fraction] = frozenset()

    def contains(self, value: Fraction) -> bool:
        """Return whether a value fulfils every field."""
        low, high = self.low or (value, False), self.high or (value, False)
        return (
            self.integer in (None, value.denominator == 1)
            and (value > low[0] or (value == low[0] and not low[1]))
            and (value < high[0] or (value == high[0] and not high[1]))
            and (self.multiple is None or (value / self.multiple).denominator == 1)
            and all((value / m).denominator != 1 for m in self.not_multiples)
            and (self.values is None or value in self.values)
            and value not in self.excluded
        )

    def intersection(self, other: Numbers) -> tuple[Numbers, ...]:
        """Return the numbers in both sets, () if there is none."""
        if None not in (self.integer, other.integer) and self.integer != other.integer:
            return ()
        lows = [*_some(self.low), *_some(other.low)]
        highs = [*_some(self.high), *_some(other.high)]
        found = Numbers(
            self.integer if other.integer is None else other.integer,
            max(lows, default=None),
            min(highs, key=lambda high: (high[0], not high[1]), default=None),
            _common(self.multiple, other.multiple),
            self.not_multiples | other.not_multiples,
            self.values if other.values is None else other.values,
            self.excluded | other.excluded,
        )
        if found.values is not None:
            fit = frozenset(
                v for v in found.values if self.contains(v) and other.contains(v)
            )
            return (Numbers(values=fit),) if fit else ()
        if found.low and found.high:
            (bottom, open_below), (top, open_above) = found.low, found.high
            if bottom > top or (bottom == top and (open_below or open_above)):
                return ()
        return (found,)

    def complement(self) -> tuple[Numbers, ...]:
        """Return all other numbers: one set for each field."""
        outside = [Numbers(integer=not whole) for whole in _some(self.integer)]
        outside += [Numbers(high=(low, not out)) for low, out in _some(self.low)]
        outside += [Numbers(low=(high, not out)) for high, out in _some(self.high)]
        outside += [
            Numbers(not_multiples=frozenset((divisor,)))
            for divisor in _some(self.multiple)
        ]
        outside += [Numbers(excluded=values) for values in _some(self.values)]
        outside += [Numbers(multiple=multiple) for multiple in self.not_multiples]
        outside += [Numbers(values=self.excluded)] if self.excluded else []
        return tuple(outside)

    def expression(self) -> Expression:
        """Return the texts of the set; they may be none."""
        if self.values is not None:
            return Alternation(tuple(literal(_written(v)) for v in sorted(self.values)))
        if self == Numbers():
            return json_text.NUMBER
        if self == Numbers(integer=True):
            return json_text.INTEGER
        if self.integer is None and self.multiple and self.multiple.denominator == 1:
            return replace(self, integer=True).expression()
        tests = self._tests()

        def accepts(text: DigitState) -> bool:
            return (
                text.place in ("zero", "whole", "fraction")
                and self.integer in (None, text.whole)
                and all(
                    test.result(state, text.negative) in allowed
                    for (test, allowed), state in zip(tests, text.state, strict=True)
                )
            )

        moves = self._moves([test for test, _ in tests])
        return explore(DigitState(), moves, accepts, self._cause())

    def _tests(self) -> list[tuple[Test, set[int]]]:
        """Return tests of the digits, each with the results that are allowed."""
        return [
            *((Comparison(low), {1, 1 if out else 0}) for low, out in _some(self.low)),
            *((Comparison(v), {-1, -1 if out else 0}) for v, out in _some(self.high)),
            *((Remainder(divisor), {0}) for divisor in _some(self.multiple)),
            *((Comparison(value), {-1, 1}) for value in sorted(self.excluded)),
            *((Remainder(divisor), {1}) for divisor in sorted(self.not_multiples)),
        ]

    def _moves(self, tests: list[Test]) -> Moves:
        start = tuple(test.start for test in tests)
        whole_only = self.integer is True

        def moves(text: DigitState) -> dict[int, DigitState]:
            after: dict[int, DigitState] = {}
            fraction = text.place in ("point", "fraction")
            pairs = list(zip(tests, text.state or start, strict=True))
            for digit in text.digits:
                state = tuple(test.digit(s, digit, fraction) for test, s in pairs)
                after[0x30 + digit] = text.then(digit, state, counted=not whole_only)
            if text.place == "start":
                after[ord("-")] = replace(text, place="sign", negative=True)
            more = text.place in ("zero", "whole") and text.n_digits < MAX_DIGITS
            if more and not whole_only:
                after[ord(".")] = replace(text, place="point")
            return after

        return moves

    def _cause(self) -> str:
        said = [f.name for f in fields(self) if getattr(self, f.name)]
        return f"a number with {' and '.join(said)}"


def _some(field: T | None) -> list[T]:
    return [] if field is None else [field]


def _common(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    """Return the smallest number of which all multiples are multiples of both."""
    if first is None or second is None:
        return first or second
    scale = math.lcm(first.denominator, second.denominator)
    return Fraction(math.lcm(int(first * scale), int(second * scale)), scale)


def _written(value: Fraction) -> str:
    """Return the canonical text of a constant: 1 for 1.0, else as Python writes it."""
    if value.denominator == 1:
        return str(value.numerator)
    return json.dumps(float(value))

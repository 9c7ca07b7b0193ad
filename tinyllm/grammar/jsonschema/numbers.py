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
    """The value that a reader of its shortest text has: 0.1 is 1/10.

    A whole double is itself: 1e23 is the double nearest to 10**23, a little below it.
    """
    whole = isinstance(number, int) or number.is_integer()
    return Fraction(int(number) if whole else Decimal(repr(number)))


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
        """Whether a value fulfils every field."""
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
        """The numbers in both sets, () if there is none."""
        if None not in (self.integer, other.integer) and self.integer != other.integer:
            return ()
        lows = [bound for bound in (self.low, other.low) if bound]
        highs = [(b, not out) for b, out in filter(None, (self.high, other.high))]
        high = min(highs) if highs else None
        found = Numbers(
            self.integer if other.integer is None else other.integer,
            max(lows) if lows else None,
            (high[0], not high[1]) if high else None,
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
            least, most = found.low[0], found.high[0]
            if least > most or (least == most and (found.low[1] or found.high[1])):
                return ()
        return (found,)

    def complement(self) -> tuple[Numbers, ...]:
        """All numbers outside the set: one set for each field."""
        outside = []
        if self.integer is not None:
            outside.append(Numbers(integer=not self.integer))
        if self.low:
            outside.append(Numbers(high=(self.low[0], not self.low[1])))
        if self.high:
            outside.append(Numbers(low=(self.high[0], not self.high[1])))
        if self.multiple:
            outside.append(Numbers(not_multiples=frozenset((self.multiple,))))
        if self.values is not None:
            outside.append(Numbers(excluded=self.values))
        outside += [Numbers(multiple=multiple) for multiple in self.not_multiples]
        outside += [Numbers(values=self.excluded)] if self.excluded else []
        return tuple(outside)

    def expression(self) -> Expression:
        """The texts of the set; they may be none."""
        if self.values is not None:
            return Alternation(tuple(literal(_written(v)) for v in sorted(self.values)))
        if self == Numbers():
            return json_text.NUMBER
        if self == Numbers(integer=True):
            return json_text.INTEGER
        if self.integer is None and self.multiple and self.multiple.denominator == 1:
            return replace(self, integer=True).expression()
        tests = self._tests()
        accepts = self._accepts(tests)
        return explore(DigitState(), self._moves(tests), accepts, self._cause())

    def _tests(self) -> list[Test]:
        """What is computed from the digits: of low, high, multiple, and the rest."""
        bounds = [bound[0] for bound in (self.low, self.high) if bound]
        multiples = [self.multiple] if self.multiple else []
        return [
            *map(Comparison, bounds),
            *map(Remainder, multiples),
            *map(Comparison, sorted(self.excluded)),
            *map(Remainder, sorted(self.not_multiples)),
        ]

    def _moves(
        self, tests: list[Test]
    ) -> Callable[[DigitState], dict[int, DigitState]]:
        start = tuple(test.start for test in tests)
        whole_only = self.integer is True

        def moves(text: DigitState) -> dict[int, DigitState]:
            after: dict[int, DigitState] = {}
            fraction = text.place in ("point", "fraction")
            known = text.state or start
            for digit in text.digits:
                state = tuple(
                    test.digit(s, digit, fraction)
                    for test, s in zip(tests, known, strict=True)
                )
                after[0x30 + digit] = text.then(digit, state, counted=not whole_only)
            if text.place == "start":
                after[ord("-")] = replace(text, place="sign", negative=True)
            more = text.place in ("zero", "whole") and text.n_digits < MAX_DIGITS
            if more and not whole_only:
                after[ord(".")] = replace(text, place="point")
            return after

        return moves

    def _accepts(self, tests: list[Test]) -> Callable[[DigitState], bool]:
        low_open = bool(self.low and self.low[1])
        high_open = bool(self.high and self.high[1])

        def accepts(text: DigitState) -> bool:
            if text.place not in ("zero", "whole", "fraction"):
                return False
            known = [
                test.result(state, text.negative)
                for test, state in zip(tests, text.state, strict=True)
            ]
            low = known.pop(0) if self.low else 1
            high = known.pop(0) if self.high else -1
            divisible = not known.pop(0) if self.multiple else True
            return (
                self.integer in (None, text.whole)
                and (low > 0 or (low == 0 and not low_open))
                and (high < 0 or (high == 0 and not high_open))
                and divisible
                and all(known)
            )

        return accepts

    def _cause(self) -> str:
        said = [f.name for f in fields(self) if getattr(self, f.name)]
        return f"a number with {' and '.join(said)}"


def _common(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    """The least number of which all multiples are multiples of found."""
    if first is None or second is None:
        return first or second
    scale = math.lcm(first.denominator, second.denominator)
    return Fraction(math.lcm(int(first * scale), int(second * scale)), scale)


def _written(value: Fraction) -> str:
    """The canonical text of a given value: 1 for 1.0, else as Python writes it."""
    if value.denominator == 1:
        return str(value.numerator)
    return json.dumps(float(value))

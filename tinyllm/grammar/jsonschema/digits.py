"""What is known of a decimal text while its digits are read one by one.

Public: DigitState, Comparison, Remainder, Test, MAX_DIGITS.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

MAX_DIGITS = 15  # of a number with a fraction: sys.float_info.dig


@dataclass(frozen=True)
class DigitState:
    """How far a decimal text has been read, and what the tests know of it."""

    place: str = "start"  # start, sign, zero, whole, point, fraction
    negative: bool = False
    n_digits: int = 0  # at most MAX_DIGITS
    whole: bool = True  # no digit of the fraction but 0
    state: tuple[Any, ...] = ()

    @property
    def digits(self) -> range:
        """Return the digits that may follow."""
        if self.place == "zero":
            return range(0)
        if self.place in ("point", "fraction") and self.n_digits >= MAX_DIGITS:
            return range(0)
        return range(10)

    def then(self, digit: int, state: tuple[Any, ...], counted: bool) -> DigitState:
        """Return the state of the text with one more digit."""
        place, count = self.place, min(self.n_digits + counted, MAX_DIGITS)
        if place in ("start", "sign"):
            place = "whole" if digit else "zero"
        elif place == "point":
            place = "fraction"
        whole = self.whole and (place != "fraction" or digit == 0)
        return DigitState(place, self.negative, count, whole, state)


class Comparison:
    """Compare the digits with those of a bound."""

    start: Any = (
        0,
        -1,
        0,
    )  # digits before the point, after it (-1: none), order so far

    def __init__(self, bound: Fraction) -> None:
        self._bound = bound
        scale = 0
        while 10**scale % bound.denominator:
            scale += 1
        text = str(int(abs(bound) * 10**scale)).rjust(scale + 1, "0")
        self._whole = [int(d) for d in text[: len(text) - scale]]
        self._rest = [int(d) for d in text[len(text) - scale :]]

    def digit(self, state: Any, digit: int, fraction: bool) -> Any:
        """Return the state after one more digit."""
        n_whole, n_rest, order = state
        if not fraction:
            expected = self._whole[n_whole] if n_whole < len(self._whole) else 0
            order = order or (digit > expected) - (digit < expected)
            return min(n_whole + 1, len(self._whole) + 1), -1, order
        order, at = self._settled(n_whole, order), max(n_rest, 0)
        expected = self._rest[at] if at < len(self._rest) else 0
        order = order or (digit > expected) - (digit < expected)
        return len(self._whole), min(at + 1, len(self._rest)), order

    def result(self, state: Any, negative: bool) -> int:
        """Return -1, 0 or 1: the number is below, at or above the bound."""
        n_whole, n_rest, order = state
        if negative != (self._bound < 0) and self._bound != 0:
            return -1 if negative else 1
        order = self._settled(n_whole, order)
        order = order or (-1 if any(self._rest[max(n_rest, 0) :]) else 0)
        return -order if negative else order

    def _settled(self, n_whole: int, order: int) -> int:
        if n_whole == len(self._whole):
            return order
        return 1 if n_whole > len(self._whole) else -1


class Remainder:
    """Compute the remainder of the digits by a divisor p/10^d."""

    start: Any = (0, 0)  # digits of the fraction, remainder

    def __init__(self, divisor: Fraction) -> None:
        self._places = 0
        while 10**self._places % divisor.denominator:
            self._places += 1
        self._modulus = int(divisor * 10**self._places)

    def digit(self, state: Any, digit: int, fraction: bool) -> Any:
        """Return the state after one more digit."""
        n_rest, rest = state
        if fraction and n_rest == self._places:
            # More digits than the divisor has: a multiple only if they are all 0.
            return n_rest, rest if digit == 0 else -1
        return n_rest + fraction, -1 if rest < 0 else (
            rest * 10 + digit
        ) % self._modulus

    def result(self, state: Any, negative: bool) -> int:
        """Return 0 if the number is a multiple of the divisor, 1 if it is not."""
        n_rest, rest = state
        whole = rest * 10 ** (self._places - n_rest)
        return int(rest < 0 or whole % self._modulus > 0)


Test = Comparison | Remainder

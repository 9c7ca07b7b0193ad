"""Logits to one token: `Sampler`, and the steps it takes in their fixed order.

A mask on the logits comes first, then the penalty on earlier tokens, then temperature,
top-k, top-p, min-p, and one random number. `Kept` are the tokens that are left to draw
from, with their probabilities: `Sampler.pick` draws from it, pictures show it.

Before: model.trace. Next: decode.session.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinyllm.engine import Array
from tinyllm.errors import (
    InferenceError,
    InvalidTokenError,
    UsageError,
    check_int,
    is_int,
)

Ids = NDArray[np.int64]
MAX_TEMPERATURE = 1e6  # beyond, all tokens are equally likely anyway
MAX_PENALTY = 100.0
GREEDY_BELOW = 0.01  # a temperature below this takes the largest logit
RULES = ("impossible", "top_k", "top_p", "min_p")  # what removes tokens, in order


def softmax(logits: Array) -> Array:
    """Return the probabilities (V,) of logits (V,); -inf becomes exactly 0.

    Raises InferenceError for NaN, +inf or nothing above -inf.
    """
    # without the largest a logit of 100 would overflow; the quotient stays the same
    exp: Array = np.exp(logits - _largest(logits))  # (V,)
    exp /= exp.sum()
    return exp


def at_temperature(logits: Array, temperature: float) -> Array:
    """Return the probabilities (V,) of logits (V,) divided by a temperature.

    Below 0.01 nothing is divided: the first of the largest gets probability 1.
    """
    largest = _largest(logits)
    if temperature < GREEDY_BELOW:
        certain = np.zeros(len(logits), np.float32)
        certain[logits.argmax()] = 1
        return certain
    exp: Array = np.exp((logits - largest) / np.float32(temperature))
    exp /= exp.sum()
    return exp


def top_k(probabilities: Array, k: int) -> Ids:
    """Return the k most probable ids, best first (all of them for k = 0).

    Among equals the smaller id goes first.
    """
    order = np.argsort(-probabilities, kind="stable")  # (V,), ties by id
    return order[:k] if k else order


def top_p(probabilities: Array, p: float) -> int:
    """Return how many of the sorted probabilities it takes to reach p: at least 1.

    The one that crosses p is kept. `p` = 1 keeps all. Holtzman et al. 2019,
    arXiv:1904.09751, section 3.1.

    >>> top_p(np.array([0.5, 0.41, 0.09], np.float32), 0.9)
    2
    """
    if p >= 1.0:
        return len(probabilities)
    # in float64: 49,152 roundings of a float32 sum lose a tail of one in a thousand
    before = np.cumsum(probabilities, dtype=np.float64)[:-1]
    return 1 + int(np.count_nonzero(before < p))


def min_p(probabilities: Array, p: float) -> int:
    """Return how many of the sorted probabilities reach p times the first: at least 1.

    `p` = 0 keeps all. Nguyen et al. 2024, arXiv:2407.01082.

    >>> min_p(np.array([0.5, 0.3, 0.15, 0.05], np.float32), 0.5)
    2
    """
    return max(1, int(np.count_nonzero(probabilities >= p * probabilities[0])))


def penalise(logits: Array, seen: Sequence[int], penalty: float) -> Array:
    """Return logits (V,) in which every id of `seen` is less likely, once each.

    A logit above 0 is divided by the penalty, one below is multiplied: both go down.
    Keskar et al. 2019, arXiv:1909.05858, section 4.1. Raises InvalidTokenError.

    >>> penalise(np.array([2, -2, 1], np.float32), [0, 1, 0], 2.0).tolist()
    [1.0, -4.0, 1.0]
    """
    ids = _unique(seen, len(logits))  # once each, however often it was said
    lowered, old = logits.copy(), logits[ids]
    factor = np.float32(penalty)
    lowered[ids] = np.where(old > 0, old / factor, old * factor)
    return lowered


@dataclass(frozen=True, eq=False)
class Removed:
    """The ids that one rule removed, and how much probability they had."""

    rule: str
    token_ids: Ids
    mass: float


@dataclass(frozen=True, eq=False)
class Kept:
    """The tokens that are left to draw from, and how they were chosen.

    `probabilities` (V,) are by id, after penalty and temperature; `order` (V,) are all
    ids, best first; `left` is how many are left after each of RULES. All rules remove
    from the end, so the first left[-1] of `order` remain, with their `shares`.
    """

    logits: Array
    seen: Sequence[int]
    temperature: float
    probabilities: Array
    order: Ids
    shares: Array
    left: tuple[int, ...]

    @property
    def token_ids(self) -> Ids:
        """Return the ids that may be drawn, best first (n,)."""
        return self.order[: self.left[-1]]

    @property
    def chances(self) -> Array:
        """Return the probabilities with which they are drawn (n,); they sum to 1."""
        chances: Array = self.shares / self.shares.sum()
        return chances

    @property
    def removed(self) -> tuple[Removed, ...]:
        """Return what each of RULES removed; mass is measured before any of them."""
        ends = zip(self.left, (len(self.order), *self.left), strict=False)
        gone = [self.order[after:before] for after, before in ends]
        masses = [float(self.probabilities[ids].sum()) for ids in gone]
        return tuple(map(Removed, RULES, gone, masses))

    @property
    def penalty(self) -> Removed:
        """Return the ids that the penalty lowered, and what they lost to all others."""
        ids = _unique(self.seen, len(self.logits))
        before = at_temperature(self.logits, self.temperature)[ids]
        lost = float((before - self.probabilities[ids]).sum())
        return Removed("penalty", ids, lost)

    def draw(self, number: float) -> int:
        """Return the id whose interval contains a number from 0 to below 1."""
        ends = np.cumsum(self.shares, dtype=np.float64)  # (n,), of the intervals
        # times the last end instead of 1, which rounding may miss
        place = int(np.searchsorted(ends, number * ends[-1], side="right"))
        return int(self.order[min(place, len(ends) - 1)])


class Sampler:
    """Picks one token id from logits; a seed makes the picks repeatable.

    `temperature` below 0.01 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 keep every
    token. A `repetition_penalty` above 1 lowers what is among the last
    `repetition_window` ids. Raises UsageError for a setting out of range.
    """

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        repetition_window: int = 64,
    ) -> None:
        self.temperature = in_range("temperature", temperature, MAX_TEMPERATURE)
        self.top_k = check_int("top_k", top_k)
        self.top_p = in_range("top_p", top_p, 1.0)
        self.min_p = in_range("min_p", min_p, 1.0)
        self.repetition_penalty = in_range(
            "repetition_penalty", repetition_penalty, MAX_PENALTY, 1.0
        )
        self.repetition_window = check_int("repetition_window", repetition_window)
        self.seed = check_int("seed", seed)
        self._random = np.random.default_rng(self.seed)  # of this sampler alone

    @property
    def looks_back(self) -> int:
        """Return how many of the last ids `pick` needs: 0 without a penalty."""
        return self.repetition_window if self.repetition_penalty > 1.0 else 0

    def pick(self, logits: Array, before: Sequence[int] = ()) -> int:
        """Return a token id for logits (V,), which stay as they are.

        `before` are the ids of the text so far; the last `looks_back` are enough.
        Raises InferenceError for NaN, +inf or nothing above -inf, InvalidTokenError for
        an id outside the vocabulary.
        """
        if self.temperature < GREEDY_BELOW:
            return int(self._penalised(logits, self._recent(before)).argmax())
        return self.kept(logits, before).draw(self._random.random())

    def kept(self, logits: Array, before: Sequence[int] = ()) -> Kept:
        """Return what `pick` would draw from, without drawing; raises as it does."""
        seen = self._recent(before)
        probabilities = at_temperature(self._penalised(logits, seen), self.temperature)
        order = top_k(probabilities, 0)
        possible = int(np.count_nonzero(probabilities))  # all but the masked
        k = min(self.top_k or possible, possible)
        shares = probabilities[order[:k]]  # (k,)
        # top-p measures mass among what top-k left, min-p against the best token
        nucleus = top_p(shares / shares.sum(), self.top_p)
        n = min(nucleus, min_p(shares, self.min_p))
        left = (possible, k, nucleus, n)
        state = (logits, seen, self.temperature, probabilities)
        return Kept(*state, order, shares[:n], left)

    def _recent(self, before: Sequence[int]) -> Sequence[int]:
        n = self.looks_back
        return before[-n:] if n else ()

    def _penalised(self, logits: Array, seen: Sequence[int]) -> Array:
        """Return the logits after the penalty; InferenceError for NaN."""
        _largest(logits)
        if not len(seen):
            return logits
        return penalise(logits, seen, self.repetition_penalty)


def in_range(name: str, value: float, largest: float, least: float = 0.0) -> float:
    """Return the value; UsageError unless it is a number from least to largest."""
    number = is_int(value) or isinstance(value, float | np.floating)
    if number and least <= value <= largest:
        return float(value)
    raise UsageError(
        f"{name} must be a number from {least:g} to {largest:g}, not {value!r}"
    )


def _largest(logits: Array) -> np.float32:
    """Return the largest logit; InferenceError unless it is finite."""
    if getattr(logits, "ndim", 0) != 1 or not len(logits):
        raise InferenceError(
            f"logits must be one row of numbers (V,), not {type(logits).__name__} of "
            f"shape {np.shape(logits)}"
        )
    largest: np.float32 = logits.max()
    if math.isfinite(largest):
        return largest
    if largest == -math.inf:
        raise InferenceError("every logit is -inf: no token is legal here")
    raise InferenceError(
        f"logits are not finite: the largest is {largest}, so there is a NaN or an "
        "infinity in the weights or in the cache"
    )


def _unique(token_ids: Sequence[int], vocab_size: int) -> Ids:
    """Return the ids in order, once each; InvalidTokenError for an invalid one."""
    ids = np.unique(np.asarray(token_ids))
    if not len(ids):
        return np.empty(0, np.int64)
    if ids.dtype.kind in "iu" and ids[0] >= 0 and ids[-1] < vocab_size:
        return ids.astype(np.int64)
    raise InvalidTokenError(
        f"the ids to penalise go from {ids[0]} to {ids[-1]} ({ids.dtype}); expected "
        f"whole numbers from 0 to {vocab_size - 1}"
    )

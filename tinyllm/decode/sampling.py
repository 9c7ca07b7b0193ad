"""Logits to one token: `penalise`, `softmax`, three filters, and `Sampler`.

The order is fixed: whatever masks the logits comes first, then the penalty on what was
said already, then temperature, top-k, top-p, min-p, and one random number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tinyllm.errors import InferenceError, UsageError

Array = NDArray[np.float32]
MAX_TEMPERATURE = 1e6  # beyond, all tokens are equally likely anyway
MAX_PENALTY = 100.0
GREEDY_BELOW = 0.01  # a temperature under this is argmax, without a division


def softmax(logits: Array) -> Array:
    """Return the probabilities (V,) of logits (V,); -inf becomes exactly 0.

    Raises InferenceError for NaN, +inf or nothing above -inf.
    """
    exp: Array = np.exp(logits - _largest(logits))
    exp /= exp.sum()
    return exp


def top_k(probabilities: Array, k: int) -> NDArray[np.int64]:
    """Return the k most probable ids, best first (all of them for k = 0).

    Among equals the smaller id goes first.
    """
    order = np.argsort(-probabilities, kind="stable")
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
    before = np.cumsum(probabilities)[:-1]
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
    Keskar et al. 2019, arXiv:1909.05858, section 4.1.

    >>> penalise(np.array([2, -2, 1], np.float32), [0, 1, 0], 2.0).tolist()
    [1.0, -4.0, 1.0]
    """
    ids = np.unique(np.asarray(seen, np.int64))
    lowered, old = logits.copy(), logits[ids]
    factor = np.float32(penalty)
    lowered[ids] = np.where(old > 0, old / factor, old * factor)
    return lowered


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
        self.top_k = whole("top_k", top_k)
        self.top_p = in_range("top_p", top_p, 1.0)
        self.min_p = in_range("min_p", min_p, 1.0)
        self.repetition_penalty = in_range(
            "repetition_penalty", repetition_penalty, MAX_PENALTY, 1.0
        )
        self.repetition_window = whole("repetition_window", repetition_window)
        self._random = np.random.default_rng(whole("seed", seed))

    def pick(self, logits: Array, before: Sequence[int] = ()) -> int:
        """Return a token id for logits (V,), which stay as they are.

        `before` are the ids that the text has so far. Raises InferenceError for NaN,
        +inf or nothing above -inf.
        """
        _largest(logits)
        recent = before[-self.repetition_window :] if self.repetition_window else ()
        if self.repetition_penalty > 1.0 and len(recent):
            logits = penalise(logits, recent, self.repetition_penalty)
        if self.temperature < GREEDY_BELOW:
            return int(logits.argmax())
        scaled = (logits - _largest(logits)) / np.float32(self.temperature)
        probabilities = softmax(scaled)
        ids = top_k(probabilities, self.top_k)
        kept = probabilities[ids]
        n = min(top_p(kept / kept.sum(), self.top_p), int(np.count_nonzero(kept)))
        n = min(n, min_p(kept, self.min_p))
        sums = np.cumsum(kept[:n])
        drawn = np.searchsorted(sums, self._random.random() * sums[-1], side="right")
        return int(ids[min(int(drawn), n - 1)])


def whole(name: str, value: int) -> int:
    """Return the value; UsageError unless it is a whole number of 0 or more."""
    if isinstance(value, int | np.integer) and type(value) is not bool and value >= 0:
        return int(value)
    raise UsageError(f"{name} must be a whole number of 0 or more, not {value!r}")


def in_range(name: str, value: float, largest: float, least: float = 0.0) -> float:
    """Return the value; UsageError unless it is a number from least to largest."""
    numbers = int | float | np.integer | np.floating
    if isinstance(value, numbers) and least <= value <= largest:
        return float(value)
    raise UsageError(
        f"{name} must be a number from {least:g} to {largest:g}, not {value!r}"
    )


def _largest(logits: Array) -> np.float32:
    """Return the largest logit, having made sure that it is a number."""
    largest: np.float32 = logits.max()
    if math.isfinite(largest):
        return largest
    if largest == -math.inf:
        raise InferenceError("every logit is -inf: no token is legal here")
    raise InferenceError(
        f"the largest logit is {largest}: the weights or the cache hold numbers "
        "that are not finite"
    )

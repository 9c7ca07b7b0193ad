"""Deterministic states that stand for sets, numbered and made when first asked for.

Public: Lazy, DEAD, MAX_STATES.

What Automaton (sets of nodes) and Controls (sets of places) have in common: the table
of 256 entries a state, of which a row is made when it is needed, and the limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tinyllm.errors import GrammarError

DEAD = 0  # the state of the empty set, from which no end can be reached
MAX_STATES = 20_000
MAX_WORK = 4_000_000  # members and bytes looked at while states are made
States = npt.NDArray[np.int32]
Item = TypeVar("Item")


class Lazy(ABC, Generic[Item]):
    """The states and their table (states, 256); a subclass says what leads where."""

    def __init__(self) -> None:
        self._ids: dict[frozenset[Item], int] = {}
        self._sets: list[frozenset[Item]] = []
        self._moves: list[dict[int, int] | None] = []
        self._n_unknown = 0
        self._work = 0
        self.table = np.zeros((64, 256), np.int32)
        self._state(())
        self._moves[DEAD] = {}
        self._n_unknown = 0

    @property
    def n_states(self) -> int:
        """The number of states made so far, DEAD among them."""
        return len(self._sets)

    def moves(self, state: int) -> dict[int, int]:
        """The entry of the table for each legal byte of a state."""
        known = self._moves[state]
        return self._expand(state) if known is None else known

    def step(self, states: States, data: npt.NDArray[np.uint8]) -> States:
        """The entries of the table for states (N,) and a byte each (N,)."""
        if self._n_unknown:
            for state in np.unique(states).tolist():
                self.moves(state)
        return self.table[states, data]  # (N,)

    @abstractmethod
    def _row(self, state: int) -> dict[int, int]:
        """The entry for each legal byte, worked out."""

    @abstractmethod
    def _closure(self, items: Iterable[Item]) -> frozenset[Item]:
        """The members that tell two states apart, of some and all free from them."""

    @abstractmethod
    def _added(self, closure: frozenset[Item]) -> None:
        """Note what is to be known of a new state."""

    def _expand(self, state: int) -> dict[int, int]:
        moves = self._row(state)
        self.table[state, list(moves)] = list(moves.values())
        self._moves[state] = moves
        self._n_unknown -= 1
        return moves

    def _state(self, items: Iterable[Item]) -> int:
        """The state for some members and all that is free from them."""
        closure = self._closure(items)
        if closure not in self._ids:
            self._add(closure)
        return self._ids[closure]

    def _count(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise GrammarError(
                "the automaton is too much work: its states hold too many nodes, most "
                "often a counted repetition of what may be empty, as in "
                "([a-z]?[0-9]?){1000}; lower the count or let the body not be empty"
            )

    def _add(self, closure: frozenset[Item]) -> None:
        if self.n_states >= MAX_STATES:
            raise GrammarError(
                f"the automaton has more than {MAX_STATES:,} states: most often a "
                "counted repetition after an unbounded one, as in [ab]*a[ab]{20}, or "
                "a large maxLength or maxItems; lower the count"
            )
        if self.n_states == len(self.table):
            self.table = np.concatenate((self.table, np.zeros_like(self.table)))
        self._ids[closure] = self.n_states
        self._sets.append(closure)
        self._moves.append(None)
        self._n_unknown += 1
        self._added(closure)

"""Which tokens are legal now: a grammar over the tokens of one vocabulary.

Public: TokenGrammar.

The language lives on bytes, sampling on tokens. A state is an int, so undo, fork and
rewind cost nothing: keep the old int.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tinyllm.errors import GrammarError
from tinyllm.grammar.automaton import DEAD, Automaton
from tinyllm.grammar.completion import FAR, Completion
from tinyllm.grammar.expression import Expression
from tinyllm.grammar.vocabulary import Vocabulary

MAX_MASKS = 512  # remembered; each takes one byte a token

Mask = npt.NDArray[np.bool_]


class _Row(NamedTuple):
    mask: Mask
    n_legal: int


class TokenGrammar:
    """The legal tokens of every state, with the shortest way to the end.

    Special ids are illegal whatever their text, except those of eos_ids exactly where
    the text may end. Tokens from which the vocabulary cannot reach the end are illegal.
    GrammarError if no text can be spelled.
    """

    def __init__(self, expression: Expression, vocabulary: Vocabulary) -> None:
        self._automaton = Automaton(expression)
        self._vocabulary = vocabulary
        self._completion = Completion(self._automaton, vocabulary)
        self._rows: dict[int, _Row] = {}

    def start(self) -> int:
        """The state before any token."""
        return self._automaton.start

    def mask(self, state: int) -> Mask:
        """The legal ids as a read-only bool array (V,), remembered for the state."""
        return self._row(state).mask

    def legal_count(self, state: int) -> int:
        """The number of legal ids, eos ids among them."""
        return self._row(state).n_legal

    def apply(self, logits: npt.NDArray[np.float32], state: int) -> int:
        """The number of legal ids, after setting all other logits to -inf in place.

        logits (V,) or longer; what lies beyond the vocabulary is illegal.
        """
        mask, n_legal = self._row(state)
        size = len(mask)
        if logits.ndim != 1 or len(logits) < size:
            raise GrammarError(
                f"logits of shape {logits.shape} do not fit a vocabulary of {size}: "
                "give the row of one position"
            )
        np.copyto(logits[:size], -np.inf, where=~mask)
        logits[size:] = -np.inf
        return n_legal

    def advance(self, state: int, token_id: int) -> int:
        """The state after a token; eos leaves it as it is. GrammarError if illegal."""
        after = self._after(state, token_id)
        if after == DEAD:
            raise GrammarError(
                f"token {token_id} is illegal in state {state}: choose one of the "
                f"{self.legal_count(state)} ids that mask({state}) allows"
            )
        return after

    def may_end(self, state: int) -> bool:
        """Whether the text so far is complete."""
        self._check(state)
        return self._automaton.accepting[state]

    def is_done(self, state: int) -> bool:
        """Whether the text is complete and nothing may follow."""
        ends = len(self._vocabulary.eos_ids)
        return self.may_end(state) and self.legal_count(state) == ends

    def finish(self, state: int) -> tuple[int, ...]:
        """The fewest token ids that complete the text (no eos), () if it is complete.

        Choosing it at any step costs as many tokens as it is long.
        """
        self._check(state)
        return self._completion.tokens(state)

    def _after(self, state: int, token_id: int) -> int:
        self._check(state)
        if not 0 <= token_id < self._vocabulary.size:
            return DEAD
        data = self._vocabulary.token_bytes[token_id]
        if not data:
            ends = self._automaton.accepting[state]
            return state if ends and token_id in self._vocabulary.eos_ids else DEAD
        for byte in data:
            state = self._automaton.next(state, byte)
        return state if self._completion.distance[state] != FAR else DEAD

    def _row(self, state: int) -> _Row:
        row = self._rows.get(state)
        if row is None:
            row = self._make_row(state)
            if len(self._rows) >= MAX_MASKS:
                self._rows.pop(next(iter(self._rows)))
            self._rows[state] = row
        return row

    def _make_row(self, state: int) -> _Row:
        self._check(state)
        edges = self._vocabulary.edges(self._automaton, np.array([state], np.int32))
        mask = np.zeros(self._vocabulary.size, np.bool_)  # (V,)
        mask[edges.token] = self._completion.reachable[edges.target]
        mask[self._vocabulary.eos_ids] = self._automaton.accepting[state]
        mask.flags.writeable = False
        return _Row(mask, int(mask.sum()))

    def _check(self, state: int) -> None:
        distance = self._completion.distance
        if not 0 < state < len(distance) or distance[state] == FAR:
            raise GrammarError(
                f"{state!r} is not a state of this grammar: use what start() and "
                "advance() return"
            )

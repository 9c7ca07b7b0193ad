"""Which tokens are legal now: a grammar over the tokens of one vocabulary.

Public: TokenGrammar.

The language lives on bytes, sampling on tokens. A state is an immutable value, so undo,
fork and rewind cost nothing: keep the old one.

Before: grammar.vocabulary. Next: grammar.completion.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tinyllm.errors import GrammarError
from tinyllm.grammar.completion import Completion
from tinyllm.grammar.explain import Explanation, explain, explain_empty
from tinyllm.grammar.expression import Rules
from tinyllm.grammar.pushdown import Pushdown, State
from tinyllm.grammar.states import DFAState
from tinyllm.grammar.vocabulary import Ints, Vocabulary

MAX_MASKS = 512  # remembered; each takes one byte a token
MAX_WALKS = 8  # remembered; each takes up to 40 bytes a token

Mask = npt.NDArray[np.bool_]


class _Row(NamedTuple):
    mask: Mask
    n_legal: int


@dataclass(frozen=True, eq=False)
class _Part:
    """What some DFA states, from the top of the stack down, say of all tokens.

    `exits` are the trie nodes where the last one's rule may have ended, so the state of
    its caller decides what follows.
    """

    mask: Mask
    exits: Ints


class TokenGrammar:
    """The legal tokens of every state, with the shortest way to the end.

    Special ids are illegal whatever their text, except those of eos_ids exactly where
    the text may end. Tokens from which the vocabulary cannot reach the end are illegal.
    GrammarError if no text can be spelled.
    """

    def __init__(self, rules: Rules, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.machine = Pushdown(rules, vocabulary.alphabet, vocabulary.alone)
        self._completion = Completion(self.machine, vocabulary)
        self._row = lru_cache(MAX_MASKS)(self._make_row)
        self._part = lru_cache(MAX_MASKS)(self._make_part)
        self._walk = lru_cache(MAX_WALKS)(vocabulary.walk)
        start = self.machine.start
        if start.dfa is self.machine.dead or not self._is_live(start):
            raise GrammarError(explain_empty(rules, vocabulary))

    def start(self) -> State:
        """Return the state before any token."""
        return self.machine.start

    def mask(self, state: State) -> Mask:
        """Return the legal ids as a read-only bool array (V,); a few are remembered."""
        return self._row(state).mask

    def legal_count(self, state: State) -> int:
        """Return the number of legal ids, eos ids among them."""
        return self._row(state).n_legal

    def apply(self, logits: npt.NDArray[np.float32], state: State) -> int:
        """Return the number of legal ids and set all other logits to -inf in place.

        logits (V,) or longer; ids beyond the vocabulary are illegal.
        """
        mask, n_legal = self._row(state)
        size = len(mask)
        shape, kind = np.shape(logits), getattr(logits, "dtype", np.dtype(object)).kind
        if len(shape) != 1 or shape[0] < size or kind != "f":
            raise GrammarError(
                f"logits of shape {shape} do not fit a vocabulary of {size}: give the "
                "row of one position, an array of floats"
            )
        np.copyto(logits[:size], -np.inf, where=~mask)
        logits[size:] = -np.inf
        return n_legal

    def advance(self, state: State, token_id: int) -> State:
        """Return the state after a token, the same for eos; GrammarError if illegal."""
        after = self._after(state, token_id)
        if after is None:
            raise GrammarError(
                f"{self.explain(state, token_id)}; choose one of the "
                f"{self.legal_count(state)} ids that the mask of this state allows"
            )
        return after

    def may_end(self, state: State) -> bool:
        """Return whether the text so far is complete."""
        self.machine.check(state)
        return self.machine.may_end(state)

    def is_done(self, state: State) -> bool:
        """Return whether the text is complete and nothing may follow."""
        ends = len(self.vocabulary.eos_ids)
        return self.may_end(state) and self.legal_count(state) == ends

    def finish(self, state: State) -> tuple[int, ...]:
        """Return the fewest token ids that complete the text, without eos.

        () for a complete text. It costs as many tokens as it is long, at any step.
        """
        self.machine.check(state)
        return self._completion.tokens(state) or ()

    def explain(self, state: State, token_id: int) -> Explanation:
        """Return why a token is legal or not: the first byte that fails."""
        live = self._after(state, token_id) is not None
        return explain(self.machine, self.vocabulary, state, token_id, live)

    def can_finish(self, state: State, n: int) -> bool:
        """Return whether n more tokens can complete the text; quicker than `finish`."""
        self.machine.check(state)
        return self._completion.within(state, n)

    def _after(self, state: State, token_id: int) -> State | None:
        self.machine.check(state)
        whole = isinstance(token_id, int | np.integer)
        if not whole or not 0 <= token_id < self.vocabulary.size:
            return None
        data = self.vocabulary.token_bytes[token_id]
        if not data:
            ends = token_id in self.vocabulary.eos_ids and self.machine.may_end(state)
            return state if ends else None
        for byte in data:
            after = self.machine.next(state, byte)
            if after is None:
                return None
            state = after
        return state if self._is_live(state) else None

    def _is_live(self, state: State) -> bool:
        """Return whether tokens can complete the text: mostly, bytes say it."""
        completion = self._completion
        return completion.by_bytes or completion.tokens(state) is not None

    def _make_row(self, state: State) -> _Row:
        """Return what the stack says, from its top down as far as tokens reach."""
        self.machine.check(state)
        (dfa, frame), longest = state, self.vocabulary.longest
        part: _Part | None = None
        while self._completion.by_bytes:
            # As often as a token is long, or more often, makes no difference to it.
            min_left = min(frame.min_left, longest) if frame else 0
            max_left = min(frame.max_left, longest) if frame else 0
            part = self._part(dfa, min_left, max_left, part)
            if frame is None or not len(part.exits):
                break
            dfa, frame = frame.state, frame.below
        mask = part.mask if part else self._one_by_one(state)
        if self.machine.may_end(state):
            mask = mask.copy()  # it may be that of other states, too
            mask[self.vocabulary.eos_ids] = True
        mask.flags.writeable = False
        return _Row(mask, int(np.count_nonzero(mask)))

    def _make_part(
        self, dfa: DFAState, min_left: int, max_left: int, above: _Part | None
    ) -> _Part:
        """Return what a level and those above say; one walk serves all its counts."""
        state = State(dfa, self.machine.ground)
        if above is None:
            found = self._walk(self.machine, state)
            mask = np.zeros(self.vocabulary.size, np.bool_)  # (V,)
        else:
            found = self.vocabulary.walk(self.machine, state, above.exits)
            mask = above.mask.copy()
        # A walk has no bound: leave out the tokens that begin a body once too often.
        mask[found.token[found.ticks <= max_left]] = True
        ticks = found.exit_ticks
        return _Part(mask, found.exits[(min_left <= ticks) & (ticks <= max_left)])

    def _one_by_one(self, state: State) -> Mask:
        """Return the same where a token may lead to where no token goes on."""
        found = self.vocabulary.walk(self.machine, state)
        numbers = set(found.number.tolist())
        live = [i in numbers and self._is_live(s) for i, s in enumerate(found.states)]
        mask = np.zeros(self.vocabulary.size, np.bool_)  # (V,)
        mask[found.token] = np.array(live)[found.number]
        return mask

"""Which tokens are legal now: a grammar over the tokens of one vocabulary.

Public: TokenGrammar.

The language lives on bytes, sampling on tokens. A state is an immutable value, so undo,
fork and rewind cost nothing: keep the old one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tinyllm.errors import GrammarError
from tinyllm.grammar.completion import Completion
from tinyllm.grammar.explain import Explanation, explain, explain_empty
from tinyllm.grammar.expression import Rules
from tinyllm.grammar.pushdown import Frame, Pushdown, State
from tinyllm.grammar.states import DFAState
from tinyllm.grammar.vocabulary import Found, Ints, Vocabulary

MAX_MASKS = 512  # remembered; each takes one byte a token
MAX_WALKS = 8  # remembered inside counted repetitions; 16 bytes a token or more

Mask = npt.NDArray[np.bool_]


class _Row(NamedTuple):
    mask: Mask
    n_legal: int


class _Part(NamedTuple):
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
        self._rows: dict[State, _Row] = {}
        self._walks: dict[DFAState, Found] = {}
        self._parts: dict[tuple[Any, ...], _Part] = {}
        start = self.machine.start
        if start.dfa is self.machine.dead or not self._is_live(start):
            raise GrammarError(explain_empty(rules, vocabulary))

    def start(self) -> State:
        """The state before any token."""
        return self.machine.start

    def mask(self, state: State) -> Mask:
        """The legal ids as a read-only bool array (V,), remembered for the state."""
        return self._row(state).mask

    def legal_count(self, state: State) -> int:
        """The number of legal ids, eos ids among them."""
        return self._row(state).n_legal

    def apply(self, logits: npt.NDArray[np.float32], state: State) -> int:
        """The number of legal ids, after setting all other logits to -inf in place.

        logits (V,) or longer; what lies beyond the vocabulary is illegal.
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
        """The state after a token; eos leaves it as it is. GrammarError if illegal."""
        after = self._after(state, token_id)
        if after is None:
            raise GrammarError(
                f"{self.explain(state, token_id)}; choose one of the "
                f"{self.legal_count(state)} ids that the mask of this state allows"
            )
        return after

    def may_end(self, state: State) -> bool:
        """Whether the text so far is complete."""
        self._check(state)
        return self.machine.may_end(state)

    def is_done(self, state: State) -> bool:
        """Whether the text is complete and nothing may follow."""
        ends = len(self.vocabulary.eos_ids)
        return self.may_end(state) and self.legal_count(state) == ends

    def finish(self, state: State) -> tuple[int, ...]:
        """The fewest token ids that complete the text (no eos), () if it is complete.

        Choosing it at any step costs as many tokens as it is long.
        """
        self._check(state)
        return self._completion.tokens(state) or ()

    def explain(self, state: State, token_id: int) -> Explanation:
        """Why a token is legal or not: the first byte that fails, what was expected."""
        live = self._after(state, token_id) is not None
        return explain(self.machine, self.vocabulary, state, token_id, live)

    def can_finish(self, state: State, n: int) -> bool:
        """Whether n more tokens can complete the text; quicker than `finish`."""
        self._check(state)
        return self._completion.within(state, n)

    def _after(self, state: State, token_id: int) -> State | None:
        self._check(state)
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
        """Whether tokens can complete the text: where bytes can, they mostly do."""
        completion = self._completion
        return completion.by_bytes or completion.tokens(state) is not None

    def _row(self, state: State) -> _Row:
        if type(state) is not State:
            self._check(state)
        row = self._rows.get(state)
        if row is None:
            self._check(state)
            row = self._make_row(state)
            _remember(self._rows, state, row, MAX_MASKS)
        return row

    def _make_row(self, state: State) -> _Row:
        by_bytes = self._completion.by_bytes
        mask = self._by_levels(state) if by_bytes else self._one_by_one(state)
        if self.machine.may_end(state):
            mask = mask.copy()
            mask[self.vocabulary.eos_ids] = True
        mask.flags.writeable = False
        return _Row(mask, int(np.count_nonzero(mask)))

    def _by_levels(self, state: State) -> Mask:
        """Return what the stack says, from its top down as far as tokens reach."""
        (dfa, frame), part = state, None
        key: tuple[Any, ...] = ()
        while True:
            key += (dfa, *self._left(frame))
            part = self._part(key, part)
            if frame is None or not len(part.exits):
                return part.mask
            dfa, frame = frame.state, frame.below

    def _left(self, frame: Frame | None) -> tuple[int, int]:
        """Return how often a body must and may begin again, as far as tokens reach."""
        if frame is None:
            return 0, 0
        longest, (_, min_left, max_left, _) = self.vocabulary.longest, frame.pending
        return min(min_left, longest), min(max_left, longest)

    def _part(self, key: tuple[Any, ...], above: _Part | None) -> _Part:
        part = self._parts.get(key)
        if part is None:
            dfa, min_left, max_left = key[-3:]
            found = self._walk(dfa, above.exits if above else None)
            size = self.vocabulary.size
            mask = above.mask.copy() if above else np.zeros(size, np.bool_)  # (V,)
            mask[found.token[found.ticks <= max_left]] = True
            ticks = found.exit_ticks
            exits = found.exits[(min_left <= ticks) & (ticks <= max_left)]
            part = _remember(self._parts, key, _Part(mask, exits), MAX_MASKS)
        return part

    def _walk(self, dfa: DFAState, nodes: Ints | None) -> Found:
        """Return the tokens of one level; one walk serves all counts of a body."""
        found = self._walks.get(dfa) if nodes is None else None
        if found is None:
            state = State(dfa, self.machine.ground)
            found = self.vocabulary.walk(self.machine, state, nodes)
            if nodes is None and found.ticks.any():
                _remember(self._walks, dfa, found, MAX_WALKS)
        return found

    def _one_by_one(self, state: State) -> Mask:
        """Return the same where a token may lead to where no token goes on."""
        found = self.vocabulary.walk(self.machine, state)
        numbers = set(found.number.tolist())
        live = [i in numbers and self._is_live(s) for i, s in enumerate(found.states)]
        mask = np.zeros(self.vocabulary.size, np.bool_)  # (V,)
        mask[found.token] = np.array(live)[found.number]
        return mask

    def _check(self, state: State) -> None:
        if not isinstance(state, State) or not self.machine.knows(state):
            raise GrammarError(
                f"{state!r:.80} is not a state of this grammar: use what start() and "
                "advance() return"
            )


def _remember(known: dict[Any, Any], key: Any, value: Any, limit: int) -> Any:
    """Return the value, which is now among the `limit` that are remembered."""
    if len(known) >= limit:
        del known[next(iter(known))]
    known[key] = value
    return value

"""How many tokens a state is away from the end, and by which tokens.

Public: Completion.

The shortest text in bytes, spelled in the fewest tokens, is one way to the end. A
search over states, token by token, finds whether there is a shorter one. Nothing is
worked out before somebody asks.

Before: grammar.mask. Next: grammar.explain.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tinyllm.errors import GrammarError
from tinyllm.grammar.pushdown import Pushdown, State
from tinyllm.grammar.vocabulary import Vocabulary

MAX_LOOKED_AT = 400_000  # tokens in one search: beyond, the shortest text has to do
MAX_STATES = 1000  # states in one search
MAX_SEARCHED = 256  # tokens: a way that is longer is not searched for at all
MAX_TEXT = 1 << 20  # bytes of a completion: a few rules can ask for 2**60
MAX_KEPT = 4096  # completions remembered
FAR = 1 << 40  # tokens: there is no completion


class Completion:
    """The shortest ways to the end of a machine's states, with one vocabulary.

    Where a search would look at more than `MAX_LOOKED_AT` tokens or `MAX_STATES`
    states, and for ways longer than `MAX_SEARCHED` tokens, the way is the shortest text
    in the fewest tokens that spell it.
    """

    def __init__(self, machine: Pushdown, vocabulary: Vocabulary) -> None:
        self._machine, self._vocabulary = machine, vocabulary
        self._known: dict[State, tuple[int, ...] | None] = {}
        self.by_bytes = machine.network.by_bytes
        self._all_alone = vocabulary.alphabet == vocabulary.alone

    def tokens(self, state: State) -> tuple[int, ...] | None:
        """Return the ids of the shortest completion, None if there is none.

        () for a complete text. GrammarError for more than `MAX_TEXT` bytes.
        """
        if state not in self._known:
            spelled = self._spelled(state) if self.by_bytes else None
            long = spelled is not None and len(spelled) > MAX_SEARCHED
            found = spelled if long else self._search(state, spelled)
            if self.by_bytes and found is None:
                raise GrammarError(
                    f"the shortest text has {self._machine.least(state):,} more bytes, "
                    f"the limit is {MAX_TEXT:,}: let the grammar ask for less"
                )
            self._remember(state, found)
        return self._known[state]

    def within(self, state: State, n: int) -> bool:
        """Return whether n more tokens are enough, and look no further than needed."""
        if self.by_bytes and state not in self._known:
            least = self._machine.least(state)
            if least <= n:
                return True
            if self._all_alone and least > n * self._vocabulary.longest:
                return False
            spelled = self._spelled(state)
            if spelled is None or len(spelled) <= n:
                return spelled is not None
        found = self.tokens(state)
        return found is not None and len(found) <= n

    def _remember(self, state: State, ids: tuple[int, ...] | None) -> None:
        """Keep a completion, and those of the states on its way."""
        if len(self._known) > MAX_KEPT:
            self._known.clear()
        self._known[state] = ids
        if ids is not None and len(ids) > MAX_SEARCHED:
            return  # to keep the rest of each would be quadratic
        for n, token in enumerate(ids or (), 1):
            after: State | None = state
            for byte in self._vocabulary.token_bytes[token]:
                after = after and self._machine.next(after, byte)
            assert after is not None, "a completion is legal"
            state = after
            self._known.setdefault(state, ids[n:] if ids else ())

    def _spelled(self, state: State) -> tuple[int, ...] | None:
        """Return the shortest text from a state to the end, in the fewest tokens.

        None for more than MAX_TEXT bytes.
        """
        if self._machine.least(state) > MAX_TEXT:
            return None
        text = self._machine.rest(state)
        ids, longest = self._vocabulary.ids, self._vocabulary.longest
        fewest, step = [0] * (len(text) + 1), [0] * len(text)
        for i in range(len(text) - 1, -1, -1):
            ends = range(i + 1, min(i + longest, len(text)) + 1)
            fewest[i], step[i] = min(
                (fewest[j] + 1, j) for j in ends if text[i:j] in ids
            )
        spelled, at = [], 0
        while at < len(text):
            spelled.append(ids[text[at : step[at]]])
            at = step[at]
        return tuple(spelled)

    def _search(
        self, state: State, spelled: tuple[int, ...] | None
    ) -> tuple[int, ...] | None:
        """Return the shortest way of a breadth-first search, else `spelled`."""
        before: dict[State, tuple[State, int] | None] = {state: None}
        queue, looked_at = deque([(state, 0)]), 0
        while queue:
            here, depth = queue.popleft()
            if self._machine.may_end(here):
                return _way(before, here)
            if spelled is not None and depth + 1 >= len(spelled):
                continue  # no shorter way leads through here
            for token, after, n in self._edges(here):
                looked_at += n
                if after not in before:
                    before[after] = (here, token)
                    queue.append((after, depth + 1))
            if looked_at > MAX_LOOKED_AT or len(before) > MAX_STATES:
                break
        return spelled

    def _edges(self, state: State) -> list[tuple[int, State, int]]:
        """Return one token to each state one token away, and how many there are."""
        found = self._vocabulary.walk(self._machine, state)
        numbers, first, counts = np.unique(
            found.number, return_index=True, return_counts=True
        )
        return [
            (token, found.states[number], n)
            for token, number, n in zip(
                found.token[first].tolist(),
                numbers.tolist(),
                counts.tolist(),
                strict=True,
            )
        ]


def _way(
    before: dict[State, tuple[State, int] | None], state: State
) -> tuple[int, ...]:
    """Return the tokens by which a search came to a state."""
    ids: list[int] = []
    while (step := before[state]) is not None:
        state, token = step
        ids.append(token)
    return tuple(reversed(ids))

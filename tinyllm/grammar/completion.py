"""How many tokens each state is away from the end, and by which tokens.

Public: Completion.

A search backwards from the accepting states over token edges (not bytes) finds the
shortest completion of every state at once. A state it does not meet cannot be completed
with this vocabulary, although its bytes could.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from tinyllm.errors import GrammarError
from tinyllm.grammar.automaton import DEAD, Automaton
from tinyllm.grammar.vocabulary import Vocabulary

FAR = -1
_CHUNK = 512  # states walked at once: bounds the memory of the walk


class Completion:
    """The shortest way to the end, in tokens, from each state of an automaton.

    distance[state] is its number of tokens, FAR if there is no way; `reachable` says
    the same as a bool array (states,). GrammarError if the start has no way: the
    message names the byte to blame where there is one.
    """

    def __init__(self, automaton: Automaton, vocabulary: Vocabulary) -> None:
        automaton.complete()
        self.distance = [0 if end else FAR for end in automaton.accepting]
        self._step: list[tuple[int, int]] = [(FAR, DEAD)] * automaton.n_states
        self._search(_token_edges(automaton, vocabulary))
        self.reachable: npt.NDArray[np.bool_] = np.array(self.distance) != FAR
        if self.distance[automaton.start] == FAR:
            raise GrammarError(_explain_empty(automaton, vocabulary))

    def tokens(self, state: int) -> tuple[int, ...]:
        """The token ids of the shortest completion, () in an accepting state."""
        ids = []
        for _ in range(self.distance[state]):
            token, state = self._step[state]
            ids.append(token)
        return tuple(ids)

    def _search(self, sources: dict[int, list[tuple[int, int]]]) -> None:
        queue = deque(s for s, far in enumerate(self.distance) if far == 0)
        while queue:
            target = queue.popleft()
            for source, token in sources.get(target, ()):
                if self.distance[source] == FAR:
                    self.distance[source] = self.distance[target] + 1
                    self._step[source] = (token, target)
                    queue.append(source)


def _token_edges(
    automaton: Automaton, vocabulary: Vocabulary
) -> dict[int, list[tuple[int, int]]]:
    """For each state, the states one token before it and one such token each."""
    sources: dict[int, list[tuple[int, int]]] = {}
    states = np.arange(1, automaton.n_states, dtype=np.int32)
    for begin in range(0, len(states), _CHUNK):
        edges = vocabulary.edges(automaton, states[begin : begin + _CHUNK])
        pairs = edges.source.astype(np.int64) * automaton.n_states + edges.target
        one = np.unique(pairs, return_index=True)[1]  # the shortest token of each pair
        columns = (edges.source[one], edges.token[one], edges.target[one])
        for source, token, target in zip(*(c.tolist() for c in columns), strict=True):
            sources.setdefault(target, []).append((source, token))
    return sources


def _explain_empty(automaton: Automaton, vocabulary: Vocabulary) -> str:
    if automaton.start == DEAD:
        return "the grammar allows no text at all: look for options that exclude it"
    start = "the vocabulary cannot spell any text of the grammar: "
    byte = _missing_byte(automaton, vocabulary.spelled)
    if byte is not None:
        return f"{start}no token has the byte {_show(byte)}"
    alone = frozenset(data[0] for data in vocabulary.token_bytes if len(data) == 1)
    byte = _missing_byte(automaton, alone)
    assert byte is not None, "single bytes would have spelled it"
    return f"{start}the byte {_show(byte)} occurs only inside longer tokens"


def _missing_byte(automaton: Automaton, spelled: frozenset[int]) -> int | None:
    """The first unspelled byte of a text with the fewest of them, None if it has none.

    A breadth-first search in which spelled bytes cost nothing and others one.
    """
    queue: deque[tuple[int, int | None]] = deque([(automaton.start, None)])
    done: set[int] = set()
    while queue:
        state, missing = queue.popleft()
        if state in done:
            continue
        done.add(state)
        if automaton.accepting[state]:
            return missing
        for byte, target in automaton.moves(state).items():
            if byte in spelled:
                queue.appendleft((target, missing))
            else:
                queue.append((target, byte if missing is None else missing))
    return None


def _show(byte: int) -> str:
    return f"0x{byte:02x} ({chr(byte)!r})" if byte < 0x80 else f"0x{byte:02x}"

"""The tokens of a vocabulary as a trie of their bytes, walked by an automaton.

Public: Tokenizer, Vocabulary, Edges.

All tokens that are legal in a state are found at once: level by level, the numpy arrays
hold every prefix that is still alive and the state it leads to. A prefix that dies
takes all its tokens with it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tinyllm.grammar.automaton import DEAD, Automaton, States

Ints = npt.NDArray[np.int64]


class Tokenizer(Protocol):
    """What the grammar needs of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end a text."""

    @property
    def special_ids(self) -> frozenset[int]:
        """The ids that stand for no text, those of `eos_ids` among them."""

    def token_bytes(self, token_id: int, /) -> bytes:
        """The bytes of one token, b"" for a special one."""


class Edges(NamedTuple):
    """Legal tokens of several states: token[i] leads from source[i] to target[i]."""

    source: States
    token: Ints
    target: States


class Vocabulary:
    """The bytes of each ordinary token, and the trie of them all.

    Nodes are numbered level by level from the root 0; the children of a node, and the
    tokens that end at a node, are contiguous. Special ids and tokens without bytes are
    not in the trie, whatever their text says.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.size = tokenizer.vocab_size
        ids = range(self.size)
        self.eos_ids = sorted(i for i in tokenizer.eos_ids if i in ids)
        silent = tokenizer.special_ids | tokenizer.eos_ids
        self.token_bytes = [
            b"" if i in silent else tokenizer.token_bytes(i) for i in ids
        ]
        self.spelled = frozenset(b for data in self.token_bytes for b in data)
        self._build(sorted((i for i in ids if self.token_bytes[i]), key=self._order))

    def edges(self, automaton: Automaton, states: States) -> Edges:
        """Every token that is legal in one of the states, and where it leads.

        states (N,) gives three arrays (E,), short tokens first.
        """
        source = state = states
        node = np.zeros(len(states), np.int64)  # (N,)
        found = [Edges(source[:0], node[:0], state[:0])]
        while len(node):
            parent, node = _spread(self._first_child[node], self._n_children[node])
            state = automaton.step(state[parent], self._byte[node])
            live = np.flatnonzero(state != DEAD)
            source, node, state = source[parent[live]], node[live], state[live]
            place, token = _spread(self._first_token[node], self._n_tokens[node])
            found.append(Edges(source[place], self._tokens[token], state[place]))
        return Edges(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def _order(self, token_id: int) -> bytes:
        return self.token_bytes[token_id]

    def _build(self, tokens: list[int]) -> None:
        """The trie from the tokens in the order of their bytes."""
        spellings = [self.token_bytes[i] for i in tokens]
        lengths = np.array([len(data) for data in spellings], np.int64)  # (V,)
        shared = _shared_prefix(spellings)  # (V,)
        node_of = np.zeros(len(tokens), np.int64)  # (V,) node of the prefix so far
        parents, byte, ends = [], [0], np.zeros(len(tokens), np.int64)
        n_nodes = 1
        for depth in range(int(lengths.max(initial=0))):
            longer = lengths > depth
            new = longer & (shared <= depth)
            parents.append(node_of[new])
            byte += [spellings[i][depth] for i in np.flatnonzero(new).tolist()]
            node_of = np.where(longer, n_nodes - 1 + np.cumsum(new), node_of)  # (V,)
            n_nodes += int(new.sum())
            ends[lengths == depth + 1] = node_of[lengths == depth + 1]
        order = np.argsort(ends, kind="stable")
        self._tokens = np.array(tokens, np.int64)[order]  # (V,)
        self._byte = np.array(byte, np.uint8)  # (nodes,)
        self._n_children, self._first_child = _groups(parents, n_nodes, first=1)
        self._n_tokens, self._first_token = _groups([ends], n_nodes, first=0)


def _shared_prefix(spellings: list[bytes]) -> Ints:
    """How many leading bytes each spelling has in common with the one before."""
    shared = [0] * len(spellings)
    for i, (before, data) in enumerate(pairwise(spellings), 1):
        limit = min(len(before), len(data))
        while shared[i] < limit and before[shared[i]] == data[shared[i]]:
            shared[i] += 1
    return np.array(shared, np.int64)


def _groups(owners: list[Ints], n_nodes: int, first: int) -> tuple[Ints, Ints]:
    """How many members each owner has, and where its first one stands."""
    flat = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    count = np.bincount(flat, minlength=n_nodes).astype(np.int64)  # (nodes,)
    return count, first + np.cumsum(count) - count


def _spread(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """All members of several groups: which group each is of, and the member.

    first [5, 9], count [2, 1] gives groups [0, 0, 1] and members [5, 6, 9].
    """
    group = np.repeat(np.arange(len(count)), count)
    begins = np.cumsum(count) - count
    return group, np.arange(len(group)) + (first - begins)[group]

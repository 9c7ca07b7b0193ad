"""The tokens of a vocabulary as a trie of their bytes, walked by a machine.

Public: Vocabulary, Found.

All tokens that are legal in a state are found at once: level by level, the numpy arrays
hold every prefix that is still alive and where it leads. A prefix that dies
takes all its tokens with it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tinyllm.engine import Tokens
from tinyllm.grammar.lazy import States
from tinyllm.grammar.stacks import Stacks

Ints = npt.NDArray[np.int64]
FEW, MANY = 16, 400  # first bytes and prefixes for which plain Python is tried
MOST = 32  # bytes that change nothing, as in a string, from which on that is used
PLAIN = frozenset(range(0x20, 0x80)) - {0x22, 0x5C}  # what a JSON string loops over
MAX_LOOPS = 8  # sets of such bytes whose tokens are remembered


class Found(NamedTuple):
    """Legal tokens of a control (N,), the control and the stack to which each leads.

    `exits` are the prefixes after which the rule of that control can have ended: what
    follows them is for whoever called it.
    """

    token: Ints
    control: States
    stack: Ints
    exits: Ints


class _Loop(NamedTuple):
    """Tokens and prefixes of some bytes alone, and the prefixes one byte beyond."""

    tokens: Ints
    inside: Ints
    border: Ints


class Vocabulary:
    """The bytes of each ordinary token, and the trie of them all.

    Nodes are numbered level by level from the root 0; the children of a node, and the
    tokens that end at a node, are contiguous. Special ids and tokens without bytes are
    not in the trie, whatever their text says.
    """

    def __init__(self, tokenizer: Tokens) -> None:
        self.size = tokenizer.vocab_size
        ids = range(self.size)
        self.eos_ids = sorted(i for i in tokenizer.eos_ids if i in ids)
        silent = tokenizer.special_ids | tokenizer.eos_ids
        self.token_bytes = [
            b"" if i in silent else tokenizer.token_bytes(i) for i in ids
        ]
        self.spelled = frozenset(b for data in self.token_bytes for b in data)
        self.longest = max(map(len, self.token_bytes), default=0)
        self.alone = frozenset(data[0] for data in self.token_bytes if len(data) == 1)
        # of tokens that have the same bytes, the first
        self.ids = {
            self.token_bytes[i]: i for i in reversed(ids) if self.token_bytes[i]
        }
        self._build(sorted((i for i in ids if self.token_bytes[i]), key=self._order))
        self._loop_of(PLAIN & self.spelled)

    def walk(self, stacks: Stacks, control: int, nodes: Ints | None = None) -> Found:
        """Every token that is legal from a control, and where it leads.

        nodes (N,): the prefixes that have been read already, by default the empty one.
        """
        if nodes is not None:
            return self._walk_from(stacks, control, nodes)
        moves = stacks.machine.moves(control)
        if len(moves) <= FEW and (found := self._walk_one_by_one(stacks, control)):
            return found
        loop = frozenset(byte for byte, move in moves.items() if move == control)
        if len(loop) < MOST:
            return self._walk_from(stacks, control, np.zeros(1, np.int64))
        return self._walk_around(stacks, control, self._loop_of(loop))

    def _walk_from(self, stacks: Stacks, control: int, node: Ints) -> Found:
        """The tokens that go on from some prefixes (N,), all in one control."""
        first = Found(*_nothing(), node if stacks.machine.final[control] else node[:0])
        begin = np.zeros(len(node), np.int64)  # (N,)
        parent, child = _spread(self._first_child[node], self._n_children[node])
        return self._levels(
            stacks, control + begin[parent], begin[parent], child, first
        )

    def _walk_around(self, stacks: Stacks, control: int, loop: _Loop) -> Found:
        """The tokens from a control in which many bytes change nothing."""
        here = np.zeros(len(loop.tokens), np.int64)
        exits = loop.inside if stacks.machine.final[control] else here[:0]
        first = Found(loop.tokens, (control + here).astype(np.int32), here, exits)
        begin = np.zeros(len(loop.border), np.int64)
        return self._levels(stacks, control + begin, begin, loop.border, first)

    def _levels(
        self, stacks: Stacks, controls: Ints, stack: Ints, node: Ints, first: Found
    ) -> Found:
        """What was found first, and all from nodes (N,) on whose bytes are not read.

        controls and stack (N,) are those before these bytes.
        """
        parts, now = [first], controls.astype(np.int32)
        while len(node):
            now, stack = stacks.step(now, stack, self._byte[node])
            live = np.flatnonzero(now)
            node, now, stack = node[live], now[live], stack[live]
            place, token = _spread(self._first_token[node], self._n_tokens[node])
            exits = node[(stack == 0) & stacks.machine.finals[now]]
            parts.append(Found(self._tokens[token], now[place], stack[place], exits))
            parent, node = _spread(self._first_child[node], self._n_children[node])
            now, stack = now[parent], stack[parent]
        return Found(*map(np.concatenate, zip(*parts, strict=True)))

    def _loop_of(self, loop: frozenset[int]) -> _Loop:
        """The prefixes and tokens of these bytes alone, remembered for a few sets."""
        if loop not in self._loops:
            if len(self._loops) >= MAX_LOOPS:
                del self._loops[next(iter(self._loops))]
            legal = np.zeros(256, np.bool_)
            legal[list(loop)] = True
            inside = np.ones(len(self._byte), np.bool_)  # (nodes,)
            for level in self._levels_of_nodes:
                inside[level] = inside[self._parent[level]] & legal[self._byte[level]]
            border = np.flatnonzero(inside[self._parent] & ~inside)
            tokens = self._tokens[inside[self._node_of_token]]
            self._loops[loop] = _Loop(tokens, np.flatnonzero(inside), border)
        return self._loops[loop]

    def _walk_one_by_one(self, stacks: Stacks, control: int) -> Found | None:
        """The same in plain Python, quicker for a few prefixes; None for too many."""
        found, exits = list[tuple[int, int, int]](), list[int]()
        work, n_seen = [(0, control, 0)], 0
        while work and n_seen < MANY:
            node, control, number = work.pop()
            if number == 0 and stacks.machine.final[control]:
                exits.append(node)
            returns = stacks.frames[number] and stacks.machine.final[control]
            legal = () if node or returns else stacks.machine.moves(control)
            begin = self._children[node]
            children = [self._roots[b] for b in legal if b in self._roots] or range(
                begin, begin + self._child_counts[node]
            )
            n_seen += len(children)
            for child in children:
                after, there = stacks.next(control, number, self._bytes[child])
                if after:
                    work.append((child, after, there))
                    found += [(t, after, there) for t in self._at.get(child, ())]
        if work:
            return None
        columns = np.array(found, np.int64).reshape(-1, 3).T  # (3, N)
        control_of = columns[1].astype(np.int32)
        return Found(columns[0], control_of, columns[2], np.array(exits, np.int64))

    def _order(self, token_id: int) -> bytes:
        return self.token_bytes[token_id]

    def _build(self, tokens: list[int]) -> None:
        """The trie from the tokens in the order of their bytes."""
        spellings = [self.token_bytes[i] for i in tokens]
        lengths = np.array([len(data) for data in spellings], np.int64)  # (V,)
        shared = _shared_prefix(spellings)  # (V,)
        node_of = np.zeros(len(tokens), np.int64)  # (V,) node of the prefix so far
        parents, byte, ends = [], [0], np.zeros(len(tokens), np.int64)
        self._levels_of_nodes: list[slice] = []
        n_nodes = 1
        for depth in range(int(lengths.max(initial=0))):
            longer = lengths > depth
            new = longer & (shared <= depth)
            parents.append(node_of[new])
            byte += [spellings[i][depth] for i in np.flatnonzero(new).tolist()]
            node_of = np.where(longer, n_nodes - 1 + np.cumsum(new), node_of)  # (V,)
            self._levels_of_nodes.append(slice(n_nodes, n_nodes + int(new.sum())))
            n_nodes += int(new.sum())
            ends[lengths == depth + 1] = node_of[lengths == depth + 1]
        order = np.argsort(ends, kind="stable")
        self._tokens = np.array(tokens, np.int64)[order]  # (V,)
        self._byte = np.array(byte, np.uint8)  # (nodes,)
        self._n_children, self._first_child = _groups(parents, n_nodes, first=1)
        self._n_tokens, self._first_token = _groups([ends], n_nodes, first=0)
        self._parent = np.concatenate([np.zeros(1, np.int64), *parents])  # (nodes,)
        self._node_of_token = ends[order]  # (V,)
        self._loops: dict[frozenset[int], _Loop] = {}
        # the same as lists, for walks that are too short for numpy
        self._bytes = self._byte.tolist()
        self._children = self._first_child.tolist()
        self._child_counts = self._n_children.tolist()
        self._roots = {self._bytes[i]: i for i in range(1, 1 + self._child_counts[0])}
        self._at: dict[int, list[int]] = {}
        for token, end in zip(
            self._tokens.tolist(), self._node_of_token.tolist(), strict=True
        ):
            self._at.setdefault(end, []).append(token)


def _nothing() -> tuple[Ints, States, Ints]:
    return np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64)


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

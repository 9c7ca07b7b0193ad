"""A network of rules made deterministic, one control at a time.

Public: Controls, DEAD, MAX_CONTROLS, Entry.

A control is a set of places in one rule, as a state of a deterministic automaton is a
set of nodes (automaton.py). A byte leads from one control to another, or begins a call.
Where it could begin two calls, or a call and something else, these are opened in place:
a place then holds where they return to.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import Rules
from tinyllm.grammar.network import FAR, Network

DEAD = 0  # the control without places
MAX_CONTROLS = 20_000
MAX_WORK = 4_000_000  # places and bytes looked at while controls are made
MAX_OPEN = 24  # calls opened in place, one inside the other
MAX_ALIKE = 2048  # places inside such calls that one byte leads to

Place = tuple[int, tuple[int, ...]]  # a node, and where the calls opened here return to
Effect = list[tuple[str, Place]]  # what a byte leads to: directly (""), or by a call
Entry = tuple[int, tuple[int, ...]]  # of a call: the control inside, the returns
ControlIds = npt.NDArray[np.int32]


class Controls:
    """The controls of some rules by number, made as far as they are asked for.

    Bytes outside `spelled` are never legal; those that are tokens `alone` are enough
    to complete any text, if the network says so. `table` (controls, 256) holds the next
    control, DEAD, or for a call minus the number of an entry in `calls`: the control
    inside, and where to return to, the outermost first.
    """

    def __init__(
        self, rules: Rules, spelled: Iterable[int], alone: Iterable[int]
    ) -> None:
        self.network = Network(rules, spelled, alone)
        self._ids: dict[frozenset[Place], int] = {}
        self._places: list[frozenset[Place]] = []
        self._moves: list[dict[int, int] | None] = []
        self._calls: dict[Entry, int] = {}
        self._rules = set[str]()  # whose first row is made
        self._work = 0
        self._n_unknown = 0
        self.calls: list[Entry] = [(DEAD, ())]
        self.table = np.zeros((64, 256), np.int32)
        self.final: list[bool] = []  # may the rule end here
        self.finals = np.zeros(64, np.bool_)  # the same as an array
        self.needed: list[int] = []  # the least bytes to the end of the rule
        self._control(())
        self._moves[DEAD] = {}
        self._n_unknown = 0
        self.first = self._control([(Network.ENTRY, ())])

    @property
    def n_controls(self) -> int:
        """The number of controls made so far, DEAD among them."""
        return len(self._places)

    def moves(self, control: int) -> dict[int, int]:
        """The entry of the table for each byte that a control can read."""
        known = self._moves[control]
        return self._expand(control) if known is None else known

    def step(self, controls: ControlIds, data: npt.NDArray[np.uint8]) -> ControlIds:
        """The entries of the table for controls (N,) and a byte each (N,)."""
        if self._n_unknown:
            for control in np.unique(controls).tolist():
                self.moves(control)
        return self.table[controls, data]  # (N,)

    def rest(self, control: int) -> bytes:
        """A shortest text from a control to the end of its rule."""
        text = bytearray()
        returns: list[int] = []
        while True:
            while self.needed[control]:
                byte, control = self._nearest(control, returns)
                text.append(byte)
            if not returns:
                return bytes(text)
            control = returns.pop()

    def _nearest(self, control: int, returns: list[int]) -> tuple[int, int]:
        """A byte after which the least is needed, and the control it leads to."""
        best: tuple[int, int, int, tuple[int, ...]] = (FAR, 0, DEAD, ())
        for byte, move in self.moves(control).items():
            if byte not in self.network.cheap:
                continue
            to, backs = self.calls[-move] if move < 0 else (move, ())
            found = self.needed[to] + sum(self.needed[back] for back in backs)
            best = min(best, (found, byte, to, backs))
        returns += best[3]
        return best[1], best[2]

    def _expand(self, control: int) -> dict[int, int]:
        """Make the row of a control: bytes with the same effect are worked out once."""
        effects: dict[int, Effect] = {}
        for node, back in self._places[control]:
            for allowed, to in self.network.edges[node]:
                self._count(len(allowed))
                for byte in allowed:
                    effects.setdefault(byte, []).append(("", (to, back)))
            for name, to in self.network.calls[node]:
                self._count(len(self.network.first[name]))
                for byte in self.network.first[name]:
                    effects.setdefault(byte, []).append((name, (to, back)))
        known: dict[tuple[tuple[str, Place], ...], int] = {}
        moves = {}
        for byte, effect in effects.items():
            move = self._move(byte, effect, known)
            if move != DEAD:
                moves[byte] = move
        self.table[control, list(moves)] = list(moves.values())
        self._moves[control] = moves
        self._n_unknown -= 1
        return moves

    def _move(
        self, byte: int, effect: Effect, known: dict[tuple[tuple[str, Place], ...], int]
    ) -> int:
        """The entry of the table for a byte with these effects."""
        names = {name for name, _ in effect}
        opened = [len(back) for _, (_, back) in effect if back]
        if len(names) > 1 and (
            max(opened, default=0) >= MAX_OPEN or len(opened) > MAX_ALIKE
        ):
            name = min(names)  # narrower than the grammar, never wider
            effect, names = [e for e in effect if e[0] == name], {name}
        if names == {""}:
            key = tuple(effect)
            if key not in known:
                known[key] = self._control(place for _, place in effect)
            return known[key]
        if len(names) == 1:
            return self._call(names.pop(), byte, [place for _, place in effect])
        return self._control(self._opened(byte, effect))

    def _call(self, name: str, byte: int, after: list[Place]) -> int:
        """Minus the number of the call that this byte begins, DEAD if none can."""
        back = self._control(after)
        move = self.moves(self._inside(name)).get(byte, DEAD)
        if back == DEAD or move == DEAD:
            return DEAD
        inner: Entry = self.calls[-move] if move < 0 else (move, ())
        entry = (inner[0], (back, *inner[1]))
        if entry not in self._calls:
            self._calls[entry] = len(self.calls)
            self.calls.append(entry)
        return -self._calls[entry]

    def _inside(self, name: str) -> int:
        """The control at the start of a rule; without recursion, however deep it calls.

        The rows of the rules that it may begin with are made before its own.
        """
        work = [name]
        while True:
            rule = work[-1]
            inside = self._control([(self.network.starts[rule], ())])
            if self._moves[inside] is None:
                unknown = [n for n in self.network.begins[rule] if n not in self._rules]
                work += unknown
                if unknown:
                    continue
                self._expand(inside)
            self._rules.add(work.pop())
            if not work:
                return inside

    def _opened(self, byte: int, effect: Effect) -> Iterable[Place]:
        """The places after a byte, with every call that it begins opened in place."""
        work, seen = list(effect), set[tuple[str, Place]]()
        while work:
            item = work.pop()
            if item in seen:
                continue
            seen.add(item)
            name, (to, back) = item
            if not name:
                yield to, back
                continue
            for node, open_ in self._closure(
                [(self.network.starts[name], (to, *back))]
            ):
                for allowed, after in self.network.edges[node]:
                    work += [("", (after, open_))] if byte in allowed else []
                for called, after in self.network.calls[node]:
                    begins = byte in self.network.first[called]
                    work += [(called, (after, open_))] if begins else []

    def _control(self, places: Iterable[Place]) -> int:
        """The control for some places and all that is free from them."""
        closure = self._closure(places)
        if closure not in self._ids:
            self._add(closure)
        return self._ids[closure]

    def _closure(self, places: Iterable[Place]) -> frozenset[Place]:
        """The places that tell two controls apart: something to read, or an end."""
        network, seen = self.network, set[Place]()
        work = list(places)
        while work:
            place = work.pop()
            node, back = place
            if place in seen or network.needed[node] >= FAR:
                continue
            seen.add(place)
            work += [(to, back) for to in network.graph.free[node]]
            if back and node in network.is_end:
                work.append((back[0], back[1:]))
            for name, to in network.calls[node]:
                work += [(to, back)] if name in network.nullable else []
        self._count(len(seen))
        return frozenset(
            (node, back)
            for node, back in seen
            if network.edges[node]
            or network.calls[node]
            or (node in network.is_end and not back)
        )

    def _count(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise GrammarError(
                "the automaton is too much work: its states hold too many nodes, most "
                "often a counted repetition of what may be empty, as in "
                "([a-z]?[0-9]?){1000}; lower the count or let the body not be empty"
            )

    def _add(self, closure: frozenset[Place]) -> None:
        if self.n_controls >= MAX_CONTROLS:
            raise GrammarError(
                f"the automaton has more than {MAX_CONTROLS:,} states: most often a "
                "counted repetition after an unbounded one, as in [ab]*a[ab]{20}, or "
                "a large maxLength or maxItems; lower the count"
            )
        if self.n_controls == len(self.table):
            self.table = np.concatenate((self.table, np.zeros_like(self.table)))
            self.finals = np.concatenate((self.finals, np.zeros_like(self.finals)))
        needed, is_end = self.network.needed, self.network.is_end
        self._ids[closure] = self.n_controls
        self._places.append(closure)
        self._moves.append(None)
        self._n_unknown += 1
        final = any(n in is_end and not back for n, back in closure)
        self.finals[len(self.final)] = final
        self.final.append(final)
        self.needed.append(
            min((needed[n] + sum(needed[b] for b in back) for n, back in closure),
                default=FAR)
        )  # fmt: skip

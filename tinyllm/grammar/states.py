"""The rules of a network made deterministic, one DFA state at a time.

Public: States, DFAState, Move, Pending.

The subset construction (Rabin and Scott, 1959): a DFA state is a set of NFA positions
of one rule, and its moves are made when they are first asked for. A byte leads from one
DFA state to another, or begins a call. Where one byte could begin two calls, or a call
and something else, these are inlined: a position then keeps its own return stack.

Many moves are never kept: beyond MAX_ROWS all are forgotten and made again on demand.
A DFA state holds all that it means, so one that somebody kept stays what it was.

Before: grammar.network. Next: grammar.pushdown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

from tinyllm.grammar.expression import FAR, Name, Rules
from tinyllm.grammar.network import Network

MAX_ROWS = 4096  # DFA states whose moves are kept
MAX_OPEN = 24  # calls inlined, one inside the other
MAX_ALIKE = 2048  # positions inside such calls that one byte leads to


class Return(NamedTuple):
    """An inlined call: where it goes on, and how often its rule is read again."""

    rule: Name
    to: int
    min_left: int
    max_left: int

    def again(self) -> Return:
        """Return the same when the rule is read once more."""
        return Return(self.rule, self.to, fewer(self.min_left), fewer(self.max_left))


Position = tuple[int, tuple[Return, ...]]  # a node, and the calls inlined around it
Callee = tuple[Name, int, int]  # a rule to read, and how often at least and at most
Effect = tuple[Callee | None, Position]  # what a byte does: begin a call or none


def fewer(count: int) -> int:
    """Return one less, but never below 0; FAR stays FAR."""
    return count - 1 if 0 < count < FAR else count


@dataclass(eq=False, slots=True, weakref_slot=True)
class DFAState:
    """A set of NFA positions as one state of a deterministic automaton.

    `final` says whether its rule may end here, `needed` is the fewest bytes to that.
    `moves` are those of each legal byte, None before they are made (`States.moves`).
    """

    positions: frozenset[Position]
    final: bool
    needed: int
    moves: dict[int, Move] | None = None


class Pending(NamedTuple):
    """A call that a byte begins: the DFA state to return to, and the repeats left.

    One more reading of the rule takes at least `unit` bytes.
    """

    state: DFAState
    min_left: int
    max_left: int
    unit: int


class Move(NamedTuple):
    """What a byte does: where it leads, and the calls that it begins, the outer first.

    `again`: the body of a counted repetition begins once more.
    """

    target: DFAState
    calls: tuple[Pending, ...] = ()
    again: bool = False


class States:
    """The DFA states of some rules, made as far as they are asked for.

    Bytes outside `alphabet` are never legal; those that are tokens `alone` are enough
    to complete any text, if the network says so (`by_bytes`).
    """

    def __init__(
        self, rules: Rules, alphabet: Iterable[int], alone: Iterable[int]
    ) -> None:
        self.network = Network(rules, alphabet, alone)
        self._known: WeakValueDictionary[frozenset[Position], DFAState] = (
            WeakValueDictionary()
        )
        self._rows: list[DFAState] = []  # the states whose moves are made
        self._starts: dict[Name, DFAState] = {}
        self.dead = self._state(())
        self.first = self._state([(Network.ENTRY, ())])

    @property
    def n_states(self) -> int:
        """Return the number of DFA states that there are now, the dead one included."""
        return len(self._known)

    def moves(self, state: DFAState) -> dict[int, Move]:
        """Return the move of each legal byte."""
        if state.moves is not None:
            return state.moves
        if len(self._rows) >= MAX_ROWS:  # forget: states that nobody has disappear
            for other in self._rows:
                other.moves = None
            self._rows.clear()
        return self._expand(state)

    def nearest(self, state: DFAState, again: bool) -> int:
        """Return a byte after which the fewest follow; `again`: it begins a body."""
        found = (FAR, 0)
        for byte, move in self.moves(state).items():
            if move.again == again and byte in self.network.cheap:
                calls = sum(c.state.needed + c.min_left * c.unit for c in move.calls)
                found = min(found, (move.target.needed + calls, byte))
        return found[1]

    def _expand(self, state: DFAState) -> dict[int, Move]:
        """Make the moves of a state."""
        network, effects = self.network, dict[int, list[Effect]]()
        for node, back in state.positions:
            for allowed, to in network.edges[node]:
                for byte in allowed:
                    effects.setdefault(byte, []).append((None, (to, back)))
            for rule, to, least, most in network.calls[node]:
                for byte in network.first[rule]:
                    effect = (rule, least, most), (to, back)
                    effects.setdefault(byte, []).append(effect)
        known: dict[object, Move | None] = {}
        moves = {}
        for byte, found in effects.items():
            move = self._move(byte, found, known)
            if move is not None:
                moves[byte] = move
        for body in {network.restart.get(n) for n, back in state.positions if not back}:
            if body is not None and state is not self._start(body):
                for byte, move in self._start_moves(body).items():
                    moves.setdefault(byte, move._replace(again=True))  # a tick
        state.moves = moves
        self._rows.append(state)
        return moves

    def _move(
        self, byte: int, effects: list[Effect], known: dict[object, Move | None]
    ) -> Move | None:
        """Return the move of a byte with these effects, None where none leads on."""
        callees = {callee for callee, _ in effects}
        inlined = [len(back) for _, (_, back) in effects if back]
        deep = max(inlined, default=0) >= MAX_OPEN or len(inlined) > MAX_ALIKE
        if len(callees) > 1 and deep:  # narrower than the grammar, never wider
            callees = {min(callees, key=lambda callee: str(callee or ""))}
            effects = [effect for effect in effects if effect[0] in callees]
        alike = len(callees) > 1
        callee = None if alike else effects[0][0]
        inner = self._start_moves(callee[0]).get(byte) if callee else None
        key = (byte if alike else inner, *effects)
        if key not in known:
            places = self._inlined(byte, effects) if alike else [p for _, p in effects]
            known[key] = self._begin(callee, inner, self._state(places))
        return known[key]

    def _begin(
        self, callee: Callee | None, inner: Move | None, after: DFAState
    ) -> Move | None:
        """Return the move to a state, or by a move inside a call that returns to it."""
        if callee is None or not after.positions:
            return Move(after) if after.positions else None
        if inner is None:
            return None
        rule, least, most = callee
        unit = self.network.needed[self.network.starts[rule]]
        call = Pending(after, fewer(least), fewer(most), unit)
        return Move(inner.target, (call, *inner.calls))

    def _start_moves(self, name: Name) -> dict[int, Move]:
        """Return the moves at the start of a rule; without recursion, however deep.

        Those of the rules that it may begin with are made before its own.
        """
        work = [name]
        while self._start(name).moves is None:
            state = self._start(work[-1])
            begins = self.network.begins[work[-1]] if state.moves is None else ()
            unknown = [rule for rule in begins if self._start(rule).moves is None]
            work += unknown
            if not unknown:
                work.pop()
                if state.moves is None:
                    self._expand(state)
        return self._start(name).moves or {}

    def _start(self, name: Name) -> DFAState:
        """Return the DFA state at the start of a rule."""
        if name not in self._starts:
            position = self.network.starts[name], ()
            self._starts[name] = self._state([position])
        return self._starts[name]

    def _inlined(self, byte: int, effects: list[Effect]) -> Iterable[Position]:
        """Return the positions after a byte, with every call that it begins inlined."""
        network, work, seen = self.network, list(effects), set[Effect]()
        while work:
            effect = work.pop()
            if effect in seen:
                continue
            seen.add(effect)
            callee, (to, back) = effect
            if callee is None:
                yield to, back
                continue
            rule, least, most = callee
            inside = (Return(rule, to, fewer(least), fewer(most)), *back)
            for node in network.entry[rule]:
                for allowed, after in network.edges[node]:
                    work += [(None, (after, inside))] if byte in allowed else []
                for name, after, *bounds in network.calls[node]:
                    if byte in network.first[name]:
                        work.append(((name, bounds[0], bounds[1]), (after, inside)))

    def _state(self, positions: Iterable[Position]) -> DFAState:
        """Return the state for some positions and all that is free from them."""
        closure = self._closure(positions)
        state = self._known.get(closure)
        if state is None:
            network, totals = self.network, [FAR]
            for node, back in closure:
                totals.append(network.needed[node])
                for rule, to, min_left, _ in back:
                    once = network.needed[network.starts[rule]]
                    totals[-1] += min_left * once + network.needed[to]
            final = any(node in network.is_end and not back for node, back in closure)
            state = DFAState(closure, final, min(totals))
            self._known[closure] = state
        return state

    def _closure(self, positions: Iterable[Position]) -> frozenset[Position]:
        """Return the positions that free edges reach and that read a byte or end."""
        network, seen = self.network, set[Position]()
        work = list(positions)
        while work:
            position = work.pop()
            node, back = position
            if position in seen or network.needed[node] >= FAR:
                continue
            seen.add(position)
            work += [(to, back) for to in network.graph.free[node]]
            for call in network.calls[node]:
                work += [(call.to, back)] if call.rule in network.nullable else []
            if back and node in network.is_end:
                inner, outer = back[0], back[1:]
                if not inner.min_left:
                    work.append((inner.to, outer))
                if inner.max_left:  # not by way of an empty text: that would not end
                    once_more = (inner.again(), *outer)
                    seen.update((n, once_more) for n in network.entry[inner.rule])
        return frozenset(
            (node, back)
            for node, back in seen
            if network.edges[node]
            or network.calls[node]
            or (node in network.is_end and not back)
        )

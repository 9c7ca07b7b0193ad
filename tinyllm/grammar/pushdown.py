"""Where a text stands: a control, and the stack of calls to return to.

Public: Pushdown, State, Frame.

A byte that begins a call puts a frame on the stack, the control to which the call will
return. Frames are shared and never changed, so a state is a value: undo, fork and
rewind cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from weakref import WeakValueDictionary

from tinyllm.grammar.controls import Controls
from tinyllm.grammar.expression import Rules
from tinyllm.grammar.lazy import DEAD


class Frame:
    """A call that is not over: the control it returns to, and the frame below.

    `needed` is the least number of bytes from that return to the end of the text.
    """

    __slots__ = ("__weakref__", "below", "control", "needed")

    def __init__(self, control: int, below: Frame | None, needed: int) -> None:
        self.control, self.below, self.needed = control, below, needed


class State(NamedTuple):
    """Where a text stands: a control and the calls that are not over."""

    control: int
    frame: Frame | None = None


class Pushdown(Controls):
    """The deterministic machine of some rules: controls, and states with a stack."""

    def __init__(
        self, rules: Rules, spelled: Iterable[int], alone: Iterable[int]
    ) -> None:
        super().__init__(rules, spelled, alone)
        self._frames: WeakValueDictionary[tuple[int, int], Frame] = (
            WeakValueDictionary()
        )
        self.start = State(self.first)

    def next(self, state: State, byte: int) -> State | None:
        """The state after one byte, None where it is illegal."""
        control, frame = state
        while True:
            move = self.moves(control).get(byte, DEAD)
            if move > 0:
                return State(move, frame)
            if move < 0:
                move, returns = self.calls[-move]
                for back in returns:
                    frame = self.frame(back, frame)
                return State(move, frame)
            if frame is None or not self.final[control]:
                return None
            control, frame = frame.control, frame.below

    def may_end(self, state: State) -> bool:
        """Whether the text is complete: every call that is not over may end here."""
        control, frame = state
        while self.final[control]:
            if frame is None:
                return True
            control, frame = frame.control, frame.below
        return False

    def accepts(self, data: bytes) -> bool:
        """Whether these bytes are a whole text."""
        state: State | None = self.start if self.start.control else None
        for byte in data:
            state = state and self.next(state, byte)
        return state is not None and self.may_end(state)

    def legal_bytes(self, state: State) -> frozenset[int]:
        """The bytes that may come next."""
        control, frame = state
        legal = set(self.moves(control))
        while frame is not None and self.final[control]:
            control, frame = frame.control, frame.below
            legal |= set(self.moves(control))
        return frozenset(legal)

    def least(self, state: State) -> int:
        """The number of bytes of the shortest completion."""
        frame = state.frame
        return self.needed[state.control] + (frame.needed if frame else 0)

    def frame(self, control: int, below: Frame | None) -> Frame | None:
        """The one frame that returns to this control above that frame.

        A return to where the rule ends at once is a return to the frame below.
        """
        if self.final[control] and not self.moves(control):
            return below
        key = (control, id(below))
        frame = self._frames.get(key)
        if frame is None:
            needed = self.needed[control] + (below.needed if below else 0)
            frame = self._frames[key] = Frame(control, below, needed)
        return frame

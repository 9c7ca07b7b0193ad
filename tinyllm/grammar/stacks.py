"""The stacks that the prefixes of one walk over the vocabulary have: `Stacks`.

Prefixes are many and stacks are few, so a walk carries numbers of stacks in an array.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tinyllm.grammar.lazy import DEAD, States
from tinyllm.grammar.pushdown import Frame, Pushdown

Ints = npt.NDArray[np.int64]


class Stacks:
    """The stacks of one walk by number: 0 is the one with which it began.

    Without a frame the walk stays above the place where it began: what returns from
    there is a dead end here.
    """

    def __init__(self, machine: Pushdown, frame: Frame | None = None) -> None:
        self.machine = machine
        self.frames: list[Frame | None] = [frame]
        self._numbers: dict[Frame | None, int] = {frame: 0}

    def next(self, control: int, number: int, byte: int) -> tuple[int, int]:
        """The control and the stack after one byte, DEAD where it is illegal."""
        while True:
            move = self.machine.moves(control).get(byte, DEAD)
            if move > 0:
                return move, number
            frame = self.frames[number]
            if move < 0:
                move, returns = self.machine.calls[-move]
                for back in returns:
                    frame = self.machine.frame(back, frame)
                return move, self._number(frame)
            if frame is None or not self.machine.final[control]:
                return DEAD, number
            control, number = frame.control, self._number(frame.below)

    def step(
        self, controls: States, stack: Ints, data: npt.NDArray[np.uint8]
    ) -> tuple[States, Ints]:
        """The controls, DEAD where there is none, and stacks after a byte: all (N,)."""
        moves = self.machine.step(controls, data)
        while any(self.frames):  # else there is nothing to return to
            stuck = (moves == DEAD) & self.machine.finals[controls]
            returned, at = False, stack.copy()  # so that none returns twice
            for number in np.unique(at[stuck]).tolist() if stuck.any() else ():
                frame = self.frames[number]
                if frame is None:
                    continue
                here = np.flatnonzero(stuck & (at == number))
                returned = True
                controls[here], stack[here] = frame.control, self._number(frame.below)
            if not returned:
                break
            again = np.flatnonzero(stuck)
            moves[again] = self.machine.step(controls[again], data[again])
        if (moves < 0).any():
            self._call(moves, stack)
        return moves, stack

    def _call(self, moves: States, stack: Ints) -> None:
        """Carry out the calls among some moves, in place."""
        calls = np.flatnonzero(moves < 0)
        n_calls = len(self.machine.calls)  # more may be made on the way
        keys = stack[calls] * n_calls - moves[calls]
        for key in np.unique(keys).tolist():
            number, entry = divmod(key, n_calls)
            control, returns = self.machine.calls[entry]
            frame = self.frames[number]
            for back in returns:
                frame = self.machine.frame(back, frame)
            here = calls[keys == key]
            moves[here], stack[here] = control, self._number(frame)

    def _number(self, frame: Frame | None) -> int:
        if frame not in self._numbers:
            self._numbers[frame] = len(self.frames)
            self.frames.append(frame)
        return self._numbers[frame]

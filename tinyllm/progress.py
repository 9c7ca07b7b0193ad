"""A progress line for long work: how far, how fast, how long it still takes.

Public: `Progress`, and `ignore`, the callback of whoever wants to hear nothing.

`with Progress(total, "training") as progress` is told with `progress.update(done)`
how much of the total is done. On a terminal it rewrites one line; elsewhere (a log
file, a pipe) it writes a plain line now and then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Self, TextIO

TERMINAL_SECONDS, LOG_SECONDS = 0.1, 30.0


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any.

    >>> duration(75), duration(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def ignore(*arguments: object) -> None:
    """Do nothing; the default callback."""


class Progress:
    """One line about work of `total` units, written to `stream` (standard error).

    A process without standard error (`2>&-`) has None there: then nothing is written.
    """

    def __init__(
        self,
        total: int,
        label: str,
        unit: str = "",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.label, self.unit, self.clock = total, label, unit, clock
        self.stream = sys.stderr if stream is None else stream
        self.on_terminal = self.stream is not None and self.stream.isatty()
        self.wait = TERMINAL_SECONDS if self.on_terminal else LOG_SECONDS
        self.began = self.shown = clock()
        self.base: int | None = None  # what was done before this run began
        self.width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def update(self, done: int, note: str = "") -> None:
        """Show that `done` of the total are done, unless the last line is still fresh.

        What the first update reports counts as done before: it has no part in the
        speed, so a resumed run does not boast.
        """
        now = self.clock()
        if self.base is None:
            self.base = done
        finished = done >= self.total
        if finished or now - self.shown >= self.wait:
            self.shown = now
            self._write(self._line(done, note, now), finished)

    def close(self) -> None:
        """End a line that was left unfinished, so that what follows starts afresh."""
        if self.stream is not None and self.width:
            self.stream.write("\n")
            self.stream.flush()
            self.width = 0

    def _line(self, done: int, note: str, now: float) -> str:
        parts = [f"{self.label}: {100 * done / max(1, self.total):.0f} %", note]
        new, seconds = done - (self.base or 0), now - self.began
        if new > 0 and seconds > 0:
            rate = new / seconds
            left = duration((self.total - done) / rate)
            speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
            parts += [f"{speed} {self.unit}".strip() + "/s", f"{left} left"]
        return ", ".join(part for part in parts if part)

    def _write(self, line: str, finished: bool) -> None:
        if self.stream is None:
            return
        if not self.on_terminal:
            self.stream.write(line + "\n")
        else:
            self.stream.write("\r" + line.ljust(self.width))
            self.width = len(line)
        self.stream.flush()
        if finished:
            self.close()

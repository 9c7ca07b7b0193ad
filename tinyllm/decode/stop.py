"""Stop strings in a text that arrives in pieces: `StopStrings`.

A character is held back while it might still belong to a stop string.

Before: decode.generate. Next: decode.threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyllm.errors import UsageError


class StopStrings:
    """Lets a text through up to the first stop string, where `stopped` becomes True.

    The first is the one that is complete first, and among several complete at once the
    longest. So the result depends on the text, not on the pieces in which it arrives.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not isinstance(stops, Sequence):
            raise UsageError(f"stop must be a list of strings, not {stops!r:.40}")
        self.stops = (stops,) if isinstance(stops, str) else tuple(stops)
        if not all(isinstance(stop, str) and stop for stop in self.stops):
            raise UsageError(f"stop strings must not be empty: {self.stops!r}")
        self.stopped = False
        self._held = ""

    def push(self, piece: str) -> str:
        """Return the text that certainly comes before any stop string.

        >>> watch = StopStrings(["own fox"])
        >>> [watch.push(piece) for piece in ("The quick br", "own f", "ox")]
        ['The quick br', '', '']
        """
        text = self._held + piece
        starts = [(text.find(stop), len(stop)) for stop in self.stops]
        # by where it ends, then by where it begins: so the longest of a tie
        found = [(at + length, at) for at, length in starts if at >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, stop) for stop in self.stops), default=0)
        self._held = text[len(text) - keep :]  # may still become a stop string
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Return the text that was held back; call it at the end of the text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of text that begins stop."""
    longest = min(len(text), len(stop) - 1)
    return next(n for n in range(longest, -1, -1) if text.endswith(stop[:n]))

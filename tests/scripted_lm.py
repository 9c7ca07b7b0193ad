"""A model that follows a script: for tests of everything above the forward pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from tinyllm.errors import ContextFullError

PAD, BOS, EOS = 0, 1, 2
MERGES = (b"\n\n", b"}\n", b"a\nb", b": ", b"ab", b"41", b"},", b'"}')


class ByteTokenizer:
    """One id a byte, and a few merges, so that encode(a) + encode(b) != encode(a + b).

    The text of a special token is encoded as bytes, never as the special id.
    """

    bos_id = BOS
    eos_ids = frozenset({EOS})
    special_ids = frozenset({PAD, BOS, EOS})
    vocab_size = 3 + 256 + len(MERGES)

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < 3:
            return b""
        token_id -= 3
        return bytes([token_id]) if token_id < 256 else MERGES[token_id - 256]

    def encode(self, text: str) -> list[int]:
        data, ids = text.encode(), []
        while data:
            found = next((m for m in MERGES if data.startswith(m)), data[:1])
            ids.append(self.merge(found) if len(found) > 1 else 3 + found[0])
            data = data[len(found) :]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def merge(self, content: bytes) -> int:
        return 3 + 256 + MERGES.index(content)


def spelled(text: str) -> list[int]:
    """The ids of a text byte by byte: another spelling than encode() gives."""
    return [3 + byte for byte in text.encode()]


class ScriptedSession:
    """Each feed begins the next line of the script; each extend moves along it.

    `trace` lists what was asked: ("feed", positions given, positions forwarded).
    """

    def __init__(self, lines: list[list[int]], n_ctx: int) -> None:
        self.lines, self.n_ctx = lines, n_ctx
        self.token_ids: list[int] = []
        self.trace: list[tuple[str, int, int]] = []
        self.forwarded = self.reused = 0
        self._line: list[int] = []

    @property
    def length(self) -> int:
        return len(self.token_ids)

    def feed(self, token_ids: Sequence[int]) -> np.ndarray:
        given = list(token_ids)
        kept = 0
        while kept < min(len(given) - 1, self.length):
            if given[kept] != self.token_ids[kept]:
                break
            kept += 1
        self._line = list(self.lines.pop(0))
        self.token_ids = self.token_ids[:kept]
        self.reused += kept
        return self._forward("feed", given[kept:])

    def extend(self, token_ids: Sequence[int]) -> np.ndarray:
        return self._forward("extend", list(token_ids))

    def rewind(self, n: int) -> None:
        del self.token_ids[n:]

    def reset(self) -> None:
        self.token_ids = []

    def _forward(self, name: str, new: list[int]) -> np.ndarray:
        if self.length + len(new) > self.n_ctx:
            raise ContextFullError(f"the context has {self.n_ctx} positions")
        self.token_ids += new
        self.forwarded += len(new)
        self.trace.append((name, self.length, len(new)))
        logits = np.zeros(ByteTokenizer.vocab_size, dtype=np.float32)
        logits[self._line.pop(0) if self._line else EOS] = 9.0
        return logits


class ScriptedLM:
    """An engine whose only session follows these lines: texts, or lists of ids."""

    def __init__(self, *lines: str | list[int], n_ctx: int = 4096) -> None:
        self.tokenizer = ByteTokenizer()
        self.config = SimpleNamespace(n_ctx=n_ctx)
        script = [spelled(x) if isinstance(x, str) else x for x in lines]
        self.only = ScriptedSession(script, n_ctx)

    def session(self) -> ScriptedSession:
        return self.only


def call(tool: str, **args: object) -> str:
    """A call as a model would write it."""
    return json.dumps({"tool": tool, "args": args}, separators=(",", ":"))

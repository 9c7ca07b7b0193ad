"""A model that follows a script: for tests of everything above the forward pass."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from tinyllm.errors import ContextFullError
from tinyllm.model.config import Config
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine

PAD, BOS, EOS = 0, 1, 2
MERGES = (b"\n\n", b"}\n", b"a\nb", b': "', b": ", b"ab", b"41", b"},", b'"}')


class ByteTokenizer:
    """One id a byte, and a few merges, so that encode(a) + encode(b) != encode(a + b).

    The text of a special token is encoded as bytes, never as the special id.
    """

    bos_id = BOS
    add_bos = True
    dummy_prefix = False
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

    @property
    def n_free(self) -> int:
        return self.n_ctx - self.length

    def last(self, n: int) -> list[int]:
        return self.token_ids[max(0, self.length - n) :]

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
        logits[self._line.pop(0) if self._line else EOS] = 30.0
        return logits


class ScriptedLM:
    """An engine whose only session follows these lines: texts, or lists of ids."""

    def __init__(self, *lines: str | list[int], n_ctx: int = 4096) -> None:
        self.tokenizer = ByteTokenizer()
        script = [spelled(x) if isinstance(x, str) else x for x in lines]
        self.only = ScriptedSession(script, n_ctx)

    def session(self) -> ScriptedSession:
        return self.only

    def tokenize(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def prefill(self, session: ScriptedSession, token_ids: Sequence[int]) -> np.ndarray:
        return session.feed(token_ids)

    def decode(self, session: ScriptedSession, token_id: int) -> np.ndarray:
        return session.extend([token_id])


def untrained_lm(n_ctx: int = 512) -> NumpyEngine:
    """A real engine with random weights: it wants nothing in particular."""
    config = Config(16, 24, 2, 2, 1, 8, ByteTokenizer.vocab_size, n_ctx)
    rng = np.random.default_rng(0)
    shapes = {"model.embed_tokens.weight": (config.vocab_size, 16)}
    norms = {"model.norm.weight"}
    for layer in range(2):
        at = f"model.layers.{layer}."
        norms |= {at + "input_layernorm.weight", at + "post_attention_layernorm.weight"}
        for name, rows, columns in (
            ("self_attn.q_proj", 16, 16),
            ("self_attn.k_proj", 8, 16),
            ("self_attn.v_proj", 8, 16),
            ("self_attn.o_proj", 16, 16),
            ("mlp.gate_proj", 24, 16),
            ("mlp.up_proj", 24, 16),
            ("mlp.down_proj", 16, 24),
        ):
            shapes[f"{at}{name}.weight"] = (rows, columns)
    weights = {name: rng.normal(0, 0.3, shape) for name, shape in shapes.items()}
    weights |= {name: np.ones(16) for name in norms}
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    return NumpyEngine(Model(config, weights), ByteTokenizer())


def call(tool: str, **args: object) -> str:
    """A call as a model would write it."""
    return json.dumps({"tool": tool, "args": args}, separators=(",", ":"))

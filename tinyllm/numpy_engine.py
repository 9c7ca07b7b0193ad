"""The engine that computes, in numpy on this machine: `NumpyEngine`, and `load`.

Before this: `engine`. Next: `toy`, or `text/bpe`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinyllm.decode.generate import Generation, generate
from tinyllm.decode.session import Session
from tinyllm.engine import Array, Tokenizer
from tinyllm.errors import CacheError, UsageError
from tinyllm.model.config import Config
from tinyllm.model.transformer import Model
from tinyllm.text.stream import after_bos


class NumpyEngine:
    """A `Model` and its tokenizer."""

    def __init__(self, model: Model, tokenizer: Tokenizer, name: str = "model") -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.name = name

    def __repr__(self) -> str:
        mode = "exact" if self.exact else "fast"
        return f"{type(self).__name__}({self.name!r}, {mode})"

    @property
    def config(self) -> Config:
        """Return the sizes of the model."""
        return self.model.config

    @property
    def exact(self) -> bool:
        """Return whether a row has the same bits whatever is forwarded with it."""
        return self.model.exact

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, without bos; TokenizationError."""
        return self.tokenizer.encode(text)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids; InvalidTokenError."""
        return self.tokenizer.decode(token_ids)

    def session(self) -> Session:
        """Return a new, empty session on this model."""
        return Session(self.model)

    def prefill(self, session: Session, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last id of a whole text; see `Session.feed`.

        Only what the session does not share with the text is forwarded. Raises
        InvalidTokenError, PromptTooShortError or ContextFullError, and then the session
        is as it was; CacheError for a session of another model.
        """
        return self._own(session).feed(token_ids)

    def decode(self, session: Session, token_id: int) -> Array:
        """Return logits (V,) after one more id; raises as `prefill` does."""
        return self._own(session).extend([token_id])

    def score(self, session: Session, token_ids: Sequence[int]) -> Array:
        """Return logits (T, V) after each id that `prefill` would forward."""
        return self._own(session).score(token_ids)

    def embed(self, texts: str | Sequence[str]) -> Array:
        """Return the mean state over a text's tokens, scaled to length 1: (D,).

        A list of N texts gives (N, D). Where the model's texts begin with bos, its own
        state counts too.
        """
        if isinstance(texts, str):
            return self._embedded(texts)
        vectors = np.empty((len(texts), self.config.dim), np.float32)  # (N, D)
        for i, text in enumerate(texts):
            vectors[i] = self._embedded(text)
        return vectors

    def generate(self, prompt: str, **options: Any) -> Generation:
        """Return the text that follows the prompt; see `decode.generate.stream`.

        Options: max_new_tokens=50, temperature=0.0, top_k=0, top_p=1.0, seed=0,
        stop=(), grammar=None, min_p=0.0, repetition_penalty=1.0, repetition_window=64.
        """
        return generate(self, prompt, **options)

    def _own(self, session: Session) -> Session:
        if session.model is self.model:
            return session
        raise CacheError(
            f"the session belongs to another model than {self!r}: call its own engine, "
            "or begin a session with engine.session()"
        )

    def _embedded(self, text: str) -> Array:
        ids = after_bos(self.tokenizer, self.tokenizer.encode(text))
        mean: Array = self.model.hidden(ids).mean(axis=0)  # (D,)
        # states may cancel out, and 0 / 0 would be NaN
        mean /= max(math.sqrt(mean.dot(mean)), 1e-12)
        return mean


def load(
    name_or_path: str | os.PathLike[str] = "agent",
    exact: bool = True,
    tokenizer: str | os.PathLike[str] | None = None,
    n_ctx: int | None = None,
) -> NumpyEngine:
    """Return the engine of a named model, or of the files at a path.

    A path is a folder with config.json and safetensors, a .gguf, or a llama2.c .bin
    with its `tokenizer`; the name "toy" needs no file. `exact`: every row the same bits
    whatever is forwarded with it; False is faster on long prompts. `n_ctx` shortens the
    context. Raises ModelNotFoundError, CheckpointError, TokenizationError or
    UsageError; nothing is downloaded.
    """
    if not isinstance(exact, bool):
        raise UsageError(f"exact must be True or False, not {exact!r:.40}")
    if name_or_path == "toy":
        from tinyllm.toy import ToyEngine  # late, for it imports this module

        engine: NumpyEngine = ToyEngine(exact)
    else:
        # late, since files and their formats are not part of the course
        from tinyllm.models.find import find
        from tinyllm.models.open import open_model

        model, text = open_model(find(name_or_path), exact, tokenizer)
        engine = NumpyEngine(model, text, Path(name_or_path).name)
    if n_ctx is not None:
        engine.model.shorten(n_ctx)
    return engine

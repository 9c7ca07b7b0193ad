"""The narrow waist: `Engine`, what everything above needs of a model, and `load`.

`NumpyEngine` is the one that computes; `tinyllm.toy` has one that needs no checkpoint.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tinyllm.decode.generate import Generation, generate
from tinyllm.decode.session import Forward, Session
from tinyllm.errors import InferenceError, UsageError
from tinyllm.model.config import Config
from tinyllm.model.layers import Array
from tinyllm.models.find import find
from tinyllm.models.open import open_model
from tinyllm.text.start import after_bos


class Tokenizer(Protocol):
    """Text to token ids and back; special ids are never spelled by a text."""

    vocab_size: int
    bos_id: int
    add_bos: bool
    dummy_prefix: bool
    eos_ids: frozenset[int]
    special_ids: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one id: none for a special id."""


class Engine(Protocol):
    """What the layers above ask of a model, whatever computes it."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer."""

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, without bos."""

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids."""

    def session(self) -> Session:
        """Return a new, empty session."""

    def prefill(self, session: Session, token_ids: Sequence[int]) -> Array:
        """Append ids to a session; return logits (V,) after the last."""

    def decode(self, session: Session, token_id: int) -> Array:
        """Append one id to a session; return logits (V,) after it."""

    def embed(self, text: str) -> Array:
        """Return a vector (D,) of length 1 for a text."""


class NumpyEngine:
    """A model and its tokenizer, computed by numpy on this machine."""

    def __init__(
        self, model: Forward, tokenizer: Tokenizer, name: str = "model"
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.name = name

    def __repr__(self) -> str:
        mode = "exact" if self.model.exact else "fast"
        return f"{type(self).__name__}({self.name!r}, {mode})"

    @property
    def config(self) -> Config:
        """Return the sizes of the model."""
        return self.model.config

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, without bos; TokenizationError."""
        return self.tokenizer.encode(text)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids; InvalidTokenError."""
        return self.tokenizer.decode(token_ids)

    def session(self) -> Session:
        """Return a new, empty session on this model."""
        return Session(self.model, self.tokenizer.eos_ids)

    def prefill(self, session: Session, token_ids: Sequence[int]) -> Array:
        """Append ids to a session; return logits (V,) after the last.

        Raises InvalidTokenError, PromptTooShortError or ContextFullError, and then the
        session is as it was; InferenceError for a session of another model.
        """
        if session.model is not self.model:
            raise InferenceError(
                f"the session is of another model than {self!r}: use its own engine, "
                "or begin one with engine.session()"
            )
        return session.extend(token_ids)

    def decode(self, session: Session, token_id: int) -> Array:
        """Append one id to a session; return logits (V,) after it; see `prefill`."""
        return self.prefill(session, [token_id])

    def embed(self, text: str) -> Array:
        """Return the mean state over the text's tokens (D,), scaled to length 1.

        Where the model's texts begin with bos, its own state counts too.
        """
        ids = after_bos(self.tokenizer, self.tokenizer.encode(text))
        mean: Array = self.model.hidden(ids).mean(axis=0)  # (D,)
        mean /= max(math.sqrt(mean.dot(mean)), 1e-12)
        return mean

    def generate(self, prompt: str, **options: Any) -> Generation:
        """Return the text that follows the prompt; see `decode.generate.stream`.

        Options: max_new_tokens=50, temperature=0.0, top_k=0, top_p=1.0, seed=0,
        stop=(), grammar=None, min_p=0.0, repetition_penalty=1.0, repetition_window=64.
        """
        return generate(self, prompt, **options)


def load(
    name_or_path: str | os.PathLike[str] = "agent",
    exact: bool = True,
    tokenizer: str | os.PathLike[str] | None = None,
) -> NumpyEngine:
    """Return the engine of a named model, or of what lies at a path.

    A path is a folder with config.json and safetensors, a .gguf, or a llama2.c .bin
    with its `tokenizer`. `exact`: every row the same bits whatever is forwarded with
    it; False is faster on long prompts. Raises ModelNotFoundError, CheckpointError or
    TokenizationError; nothing is downloaded.
    """
    if not isinstance(exact, bool):
        raise UsageError(f"exact must be True or False, not {exact!r:.40}")
    model, text = open_model(find(name_or_path), exact, tokenizer)
    return NumpyEngine(model, text, Path(name_or_path).name)

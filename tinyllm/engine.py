"""The narrow waist: what everything above asks of a model, and how text becomes ids.

Public: Tokens, Tokenizer, Engine. Sampling, grammar, agent and verifier talk to an
`Engine` and never see what computes it: `tinyllm.numpy_engine` has the one that does,
`tinyllm.toy` one that needs no file.

The first module to read. Next: `numpy_engine`.

Before: pico. Next: numpy_engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tinyllm.decode.session import Session

Array = NDArray[np.float32]


class Tokens(Protocol):
    """A vocabulary: the bytes of each id. This is all that a grammar needs."""

    vocab_size: int
    eos_ids: frozenset[int]  # the ids that end a text
    special_ids: frozenset[int]  # the ids without text, those of `eos_ids` among them

    def token_bytes(self, token_id: int, /) -> bytes:
        """Return the bytes of one id: none for a special id."""


class Tokenizer(Tokens, Protocol):
    """Text to token ids and back; no text is ever encoded to a special id."""

    bos_id: int
    add_bos: bool  # whether the model expects bos at the beginning of a text
    dummy_prefix: bool  # whether a text is encoded after a space of its own

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without bos."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""


class Engine(Protocol):
    """A model with its tokenizer; a session is one text and what was computed for it.

    Logits are float32. An engine raises TokenizationError, InvalidTokenError,
    PromptTooShortError, ContextFullError, CacheError or another InferenceError, and
    after each of them the session is as it was.
    """

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer."""

    @property
    def exact(self) -> bool:
        """Return whether a row has the same bits whatever is forwarded with it."""

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, without bos."""

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids."""

    def session(self) -> Session:
        """Return a new, empty session."""

    def prefill(self, session: Session, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last id of a whole text; forward what is new."""

    def decode(self, session: Session, token_id: int) -> Array:
        """Return logits (V,) after one more id."""

    def score(self, session: Session, token_ids: Sequence[int]) -> Array:
        """Return logits (T, V) after each id that `prefill` would forward."""

    def embed(self, texts: str | Sequence[str]) -> Array:
        """Return vectors of length 1: (D,) for one text, (N, D) for a list of N."""

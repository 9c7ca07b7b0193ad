"""How a text begins when a model is given it: `after_bos`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Begins(Protocol):
    """What must be known of a tokenizer to begin a text."""

    @property
    def bos_id(self) -> int:
        """The id that begins a text."""

    @property
    def add_bos(self) -> bool:
        """Whether the tokenizer's models expect it there."""


def after_bos(tokenizer: Begins, token_ids: Iterable[int]) -> list[int]:
    """The ids that a model is to see: after bos if it expects that, or has no other."""
    ids = list(token_ids)
    return [tokenizer.bos_id, *ids] if tokenizer.add_bos or not ids else ids

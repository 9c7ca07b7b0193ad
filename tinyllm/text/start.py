"""How a text begins when a model is given it: `after_bos`."""

from __future__ import annotations

from collections.abc import Iterable

from tinyllm.engine import Tokenizer


def after_bos(tokenizer: Tokenizer, token_ids: Iterable[int]) -> list[int]:
    """Return the ids for a model: after bos if it expects one, or has no other id."""
    ids = list(token_ids)
    return [tokenizer.bos_id, *ids] if tokenizer.add_bos or not ids else ids

"""An engine whose logits are a row of a table, chosen by the last id alone.

It has the sessions, caches and errors of the package, and a model that a test can set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyllm.model.cache import KVCache
from tinyllm.model.config import Config
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine


class TableModel(Model):
    """Row i of a table (V, V) are the logits after id i."""

    def __init__(self, table: np.ndarray, n_ctx: int) -> None:
        self.table, self.exact = table, True
        self.config = Config(len(table), 1, 1, 1, 1, 2, len(table), n_ctx)

    def hidden(
        self, token_ids: Sequence[int], cache: KVCache | None = None
    ) -> np.ndarray:
        """A row for each id: 1 at its own place, 0 elsewhere."""
        cache = KVCache(self.config) if cache is None else cache
        ids = self.check(token_ids, cache.length)
        cache.claim(self)
        cache.length += len(ids)
        return np.eye(len(self.table), dtype=np.float32)[ids]

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """The table's rows for states."""
        return self.table[hidden.argmax(axis=1)]


def table_engine(table: np.ndarray, tokenizer: Any, n_ctx: int = 64) -> NumpyEngine:
    """The engine of a table (V, V), or of one row (V,) that comes after every id."""
    if table.ndim == 1:
        table = np.tile(table, (len(table), 1))
    return NumpyEngine(TableModel(table, n_ctx), tokenizer)

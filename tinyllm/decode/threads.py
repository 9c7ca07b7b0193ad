"""One BLAS thread while generating: `one_blas_thread`.

The matrix products of a small model are too short to share: several threads mostly wait
for each other, and on busy cores they become many times slower. Needs threadpoolctl.
Without it, or where the user set a variable of `USER_CHOICE`, nothing is changed.

Before: decode.stop. Next: grammar.expression.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

USER_CHOICE = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

_lock = threading.Lock()
_depth = 0  # blocks that are open now, in all threads
_limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside; blocks may nest and overlap in any order.

    The first block in sets the limit, the last one out lifts it.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _depth, _limit
    with _lock:
        controller = None if any(map(os.environ.get, USER_CHOICE)) else _controller()
        if _depth == 0 and controller is not None:
            # one limit for all blocks: two could be lifted in the wrong order
            _limit = controller.limit(limits=1, user_api="blas")
        _depth += 1


def _leave() -> None:
    global _depth, _limit
    with _lock:
        _depth -= 1
        if _depth == 0 and _limit is not None:
            _limit.restore_original_limits()
            _limit = None


@cache  # looking for the library takes some milliseconds
def _controller() -> Any:
    """Return the controller of the BLAS that numpy has loaded, or None."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()

"""A mask for free text that must stay on one line: `OneLine`, in a grammar's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinyllm.errors import GrammarError

if TYPE_CHECKING:
    from tinyllm.engine import Tokenizer


class OneLine:
    """A mask in the shape of a grammar: one line of free text, ended by a line break.

    State 0 is the line, state 1 its end. A token with a line break inside is illegal,
    since text would follow the break; so are special ids, except that eos may end the
    line where `eos_ends`.
    """

    def __init__(self, tokenizer: Tokenizer, eos_ends: bool = False) -> None:
        self.eos_ids = frozenset(tokenizer.eos_ids) if eos_ends else frozenset()
        forbidden = set(tokenizer.special_ids) - self.eos_ids
        contents = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
        legal = [
            i not in forbidden and (b"\n" not in content or content == b"\n")
            for i, content in enumerate(contents)
        ]
        self.breaks = frozenset(i for i, c in enumerate(contents) if c == b"\n")
        self._line = np.array(legal, dtype=bool)  # (V,)
        self._end = np.zeros_like(self._line)  # (V,)
        self._line.flags.writeable = self._end.flags.writeable = False

    def start(self) -> int:
        """The state before the first token."""
        return 0

    def mask(self, state: int) -> NDArray[np.bool_]:
        """Which tokens are legal: bool (V,), read-only."""
        return self._end if state else self._line

    def advance(self, state: int, token_id: int) -> int:
        """The state after a legal token; GrammarError if it is illegal."""
        if not self.mask(state)[token_id]:
            raise GrammarError(f"token {token_id} cannot stand in a free line")
        return int(token_id in self.breaks)

    def is_done(self, state: int) -> bool:
        """Whether the line has ended, after which nothing is legal."""
        return state == 1

    def finish(self, state: int) -> tuple[int, ...]:
        """The shortest completion: a line may stop anywhere, so none is needed."""
        return ()

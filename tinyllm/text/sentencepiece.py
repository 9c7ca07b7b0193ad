"""SentencePiece's byte-pair encoding: merge by score, spell the rest in bytes.

`SentencePiece(pieces, scores, kinds, ...)`; `Kind` says what a piece is for. A text
gets a space in front and is merged as a whole, not word by word. Spaces are kept as
they are: the character U+2581, which stands for a space in files, is text like any
other here and comes back, whereas sentencepiece and llama.cpp turn it into a space.

Before: text.bpe. Next: text.stream.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import IntEnum

from tinyllm.errors import TokenizationError
from tinyllm.text.bpe import merge_all
from tinyllm.text.vocabulary import Vocabulary, utf8

MAX_SCORE = 3.4028235e38  # the largest float32
BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Kind(IntEnum):
    """What a piece is for; the numbers of sentencepiece_model.proto and of GGUF."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = (Kind.UNKNOWN, Kind.CONTROL, Kind.UNUSED)


class SentencePiece(Vocabulary):
    """A SentencePiece tokenizer of the BPE kind, with byte fallback.

    pieces: the text of each id, with real spaces; a byte is written `<0x0A>`. scores:
    the highest is merged first. kinds: see `Kind`. Normal pieces are made by merging,
    user-defined ones are cut out of a text first, the longest first. No text becomes a
    special piece (unknown, control, unused); the text `<0x0A>` is never the byte. Of
    equal pieces the first counts. `dummy_prefix`: a text is encoded after a space.
    Raises TokenizationError for a damaged vocabulary, or one without every byte.
    Source: google/sentencepiece, bpe_model.cc.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        scores: Sequence[float],
        kinds: Sequence[int],
        *,
        bos_id: int,
        eos_ids: Collection[int],
        add_bos: bool = True,
        dummy_prefix: bool = True,
    ) -> None:
        self.pieces, self.scores, self.kinds = list(pieces), list(scores), list(kinds)
        self._ids: dict[str, int] = {}
        self._byte_ids: dict[int, int] = {}
        if not len(self.pieces) == len(self.scores) == len(self.kinds):
            raise TokenizationError(
                f"{len(self.pieces)} pieces, {len(self.scores)} scores and "
                f"{len(self.kinds)} kinds: expected as many of each"
            )
        super().__init__(
            [self._add(token_id) for token_id in range(len(self.pieces))],
            [i for i, kind in enumerate(self.kinds) if kind in SPECIAL],
            bos_id=bos_id,
            eos_ids=eos_ids,
            add_bos=add_bos,
            dummy_prefix=dummy_prefix,
        )
        self.specials = {self.pieces[i]: i for i in sorted(self.special_ids)[::-1]}
        self._check()
        user = [p for p, i in self._ids.items() if self.kinds[i] == Kind.USER_DEFINED]
        user.sort(key=len, reverse=True)
        self._user = re.compile(f"({'|'.join(map(re.escape, user))})") if user else None

    def _add(self, token_id: int) -> bytes:
        """Enter one piece where its kind belongs; return the bytes it stands for."""
        piece, kind = self.pieces[token_id], self.kinds[token_id]
        if not abs(self.scores[token_id]) <= MAX_SCORE:
            raise TokenizationError(
                f"the score of piece {token_id} is {self.scores[token_id]}: expected a "
                "finite float32"
            )
        if kind in SPECIAL:
            return b""
        if kind in (Kind.NORMAL, Kind.USER_DEFINED):
            self._ids.setdefault(piece, token_id)
            return utf8(piece, f"piece {token_id}")
        if kind == Kind.BYTE and (name := BYTE_NAME.fullmatch(piece)):
            self._byte_ids.setdefault(int(name[1], 16), token_id)
            return bytes.fromhex(name[1])
        raise TokenizationError(
            f"piece {token_id} is {piece!r:.60} of kind {kind}: expected kinds 1 to 6, "
            "and bytes (6) written like <0x0A>"
        )

    def _check(self) -> None:
        if "" in self._ids:
            raise TokenizationError(f"piece {self._ids['']} is empty")
        if missing := [f"<0x{b:02X}>" for b in range(256) if b not in self._byte_ids]:
            raise TokenizationError(f"the vocabulary has no piece for {missing}")

    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`; no special id is ever among them.

        Raises TokenizationError where the text is not valid Unicode (a lone surrogate).
        """
        utf8(text)
        if text and self.dummy_prefix:
            text = " " + text
        ids: list[int] = []
        for i, part in enumerate(self._user.split(text) if self._user else [text]):
            for symbol in [part] if i % 2 else merge_all(part, self._found):
                if (token_id := self._ids.get(symbol)) is not None:
                    ids.append(token_id)
                else:
                    ids += [self._byte_ids[b] for b in symbol.encode()]
        return ids

    def _found(self, a: str, b: str) -> tuple[float, str] | None:
        """Two texts merge if they are a piece together; they need not be pieces."""
        token_id = self._ids.get(a + b)
        return None if token_id is None else (-self.scores[token_id], a + b)

"""Ids and the bytes that they stand for: what all tokenizers share.

Before: toy. Next: text.bpe.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tinyllm.errors import InvalidTokenError, TokenizationError


class Vocabulary:
    """The way back from ids to text, and what a harness must know.

    tokens: the bytes of each id, b"" for a special id. add_bos: a text that is given to
    the model begins with bos. dummy_prefix: a text is encoded after a space, which
    `decode` drops. Raises TokenizationError for a bos or eos that is not special.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        special_ids: Collection[int],
        *,
        bos_id: int,
        eos_ids: Collection[int],
        add_bos: bool,
        dummy_prefix: bool,
    ) -> None:
        self.tokens = list(tokens)
        self.vocab_size = len(self.tokens)
        self.special_ids = frozenset(special_ids)
        self.bos_id, self.eos_ids = bos_id, frozenset(eos_ids)
        self.add_bos, self.dummy_prefix = add_bos, dummy_prefix
        if not self.special_ids.issuperset({bos_id, *eos_ids}):
            raise TokenizationError(
                f"bos is {bos_id}, eos {sorted(self.eos_ids)}: not all of them are "
                "special tokens"
            )

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that `token_id` stands for; b"" for a special id.

        Raises InvalidTokenError for anything that is not an id of the vocabulary.
        """
        try:
            if token_id >= 0 and not isinstance(token_id, bool):
                return self.tokens[token_id]
        except (IndexError, TypeError):
            pass
        raise InvalidTokenError(
            f"{token_id!r} is not a token id: expected 0 to {self.vocab_size - 1}"
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, which begin a text, without its dummy space.

        Broken UTF-8 becomes U+FFFD, special ids nothing.
        """
        data = b"".join(map(self.token_bytes, ids))
        if self.dummy_prefix:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", errors="replace")


def utf8(text: str, what: str = "the text") -> bytes:
    """Return the bytes of a text; TokenizationError where it is not valid Unicode."""
    if not isinstance(text, str):
        raise TokenizationError(f"{what} must be a str, not {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TokenizationError(
            f"character {error.start} of {what} is a lone surrogate, which no UTF-8 "
            "text has"
        ) from error

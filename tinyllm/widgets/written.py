"""A token as a reader can see it: `written`, for all pictures and their words."""

from __future__ import annotations

from tinyllm.engine import Tokenizer

SHOWN_AS = {" ": "␣", "\n": "⏎"}


def written(tokenizer: Tokenizer, token_id: int) -> str:
    """A token as a reader can see it: blanks as ␣, line breaks as ⏎, specials by id.

    What the font of the pictures cannot draw is written as an escape.
    """
    data = tokenizer.token_bytes(token_id)
    if not data:
        return f"<{token_id}>"
    return "".join(map(_visible, data.decode("utf-8", errors="backslashreplace")))


def _visible(character: str) -> str:
    if character in SHOWN_AS:
        return SHOWN_AS[character]
    drawn = character.isprintable() and ord(character) < 0x250
    return character if drawn else character.encode("unicode_escape").decode()

"""Clean up a server's reply: drop labels and fences, keep one line, redact the API key.

Public: `Utf8`, `ThoughtLine`, `split_reasoning`, `strip_call`, `canonical_call`,
`strip_label`, `join_surrogates`, `hide_key`, `show`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence

from tinyllm import strict_json
from tinyllm.agent import protocol
from tinyllm.agent.backend import OnText
from tinyllm.errors import InvalidTokenError

TOKEN_LIMIT = 16  # characters a token, for servers that ignore max_tokens
SHOWN = 300  # characters of a server's message in an error
PART = 8  # characters of a key that are worth hiding
_BLANK = re.compile(r"\A[\s\ufeff]+")  # byte order marks count as blanks
_BEFORE_CALL = re.compile(r"\A(?:[\s\ufeff]+|CALL:|`{3,}\w*|<tool_call>)+")
_THINK, _END_THINK = "<think>", "</think>"
# The keys of a call in the words of other servers, and in ours.
_OUR_KEY = {"name": "tool", "arguments": "args", "parameters": "args"}


class Utf8:
    """A tokenizer whose ids are bytes of UTF-8: a transcript is its text, exactly."""

    vocab_size = 256
    bos_id = 0
    add_bos = dummy_prefix = False
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text; a lone surrogate becomes "?"."""
        return list(text.encode("utf-8", "replace"))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these bytes; InvalidTokenError for any other id."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the byte of an id; InvalidTokenError if it is not a byte."""
        if not 0 <= token_id < self.vocab_size:
            raise InvalidTokenError(f"a token id is a byte here, not {token_id!r}")
        return bytes([token_id])


class ThoughtLine:
    """The first line of a reply that is not blank, handed on in pieces as it comes."""

    def __init__(self, room: int, limit: int, on_text: OnText) -> None:
        self.text, self._room, self._on_text = "", room, on_text
        self._limit = limit

    def update(self, so_far: str) -> bool:
        """Return whether the line is complete; hand on what is new of it.

        It also ends at `room` bytes, in whole characters, and at `limit` characters.
        """
        body = strip_label(so_far[: self._limit], protocol.THOUGHT)
        line, line_break, _ = body.partition("\n")
        line = protocol.one_line(line)
        cut = line.encode("utf-8")[: self._room].decode("utf-8", "ignore").rstrip()
        new, self.text = cut[len(self.text) :], cut
        self._on_text(new)
        return bool(line_break) or cut != line or len(so_far) > self._limit


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the reasoning in tags with which a text may begin, and the rest of it.

    While the text is too short to tell, the rest is "".

    >>> split_reasoning("<think>Two digits.</think>42")
    ('Two digits.', '42')
    """
    start = _BLANK.sub("", text)
    if start.startswith(_THINK):
        reasoning, _, rest = start.removeprefix(_THINK).partition(_END_THINK)
        return reasoning, rest
    return "", "" if start and _THINK.startswith(start) else text


def strip_call(text: str) -> str:
    """Return the text without the blank lines, label, fence and tag before a call."""
    text = _BEFORE_CALL.sub("", text)
    if not text.startswith("{"):  # some templates open the reasoning, so only its end
        text = _BEFORE_CALL.sub("", text.rpartition(_END_THINK)[2])  # is in the reply
    return text


def canonical_call(text: str) -> str:
    """Return a call in the words of other servers in ours; any other text as it is.

    They say "name" and "arguments", and may write the arguments as a text of JSON.

    >>> canonical_call('{"name": "say", "arguments": "{\\"text\\": \\"hm\\"}"}')
    '{"tool":"say","args":{"text":"hm"}}'
    """
    try:
        found = strict_json.read_first(text)
        found = found.get("function", found)
        call = {_OUR_KEY.get(name, name): value for name, value in found.items()}
        tool, args = call.pop("tool"), call.pop("args")
        args = strict_json.read(args) if isinstance(args, str) else args
    except (AttributeError, KeyError, ValueError):
        return text  # not JSON, not an object, or without one of the two
    is_clear = len(found) == len(call) + 2 and set(call) <= {"id", "type"}
    is_call = is_clear and isinstance(args, dict)
    return protocol.call_text(tool, args) if is_call else text


def strip_label(text: str, label: str) -> str:
    """Return the text without the blank lines and the label it may begin with.

    While the text is too short to tell, the result is "".
    """
    text, name = _BLANK.sub("", text), label.strip()
    rest = "" if name.startswith(text) else text.removeprefix(name)
    return _BLANK.sub("", rest)


def join_surrogates(text: str) -> str:
    """Return the text with its surrogate pairs joined, without half a pair at its end.

    A server may cut a character in two; any other half becomes U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-16-le")(errors="replace")
    return decoder.decode(text.encode("utf-16-le", "surrogatepass"))


def hide_key(text: str, key: str, more: bool = False) -> str:
    """Return the text with asterisks in place of the key, or of its beginning.

    If more text may come, an end that may become the key is left out.

    >>> hide_key("I see sk-12345678 and sk-12", "sk-12345678", more=True)
    'I see *********** and '
    """
    text = text.replace(key, "*" * len(key))
    cut = max((n for n in range(1, len(key)) if text.endswith(key[:n])), default=0)
    if more or cut >= PART:  # a reply may break off within the key
        text = text[: len(text) - cut] + ("" if more else "*" * cut)
    return text


def show(said: object, key: str) -> str:
    """Return what a server said, in one line of at most SHOWN characters.

    Each part of the key of PART characters or more becomes asterisks.
    """
    text = said if isinstance(said, str) else json.dumps(said)
    text = text[: 2 * SHOWN]
    starts = [i for i in range(len(text) - PART + 1) if text[i : i + PART] in key]
    secret = {i + j for i in starts for j in range(PART)}
    hidden = "".join("*" if i in secret else c for i, c in enumerate(text))
    return protocol.one_line(hidden)[:SHOWN]

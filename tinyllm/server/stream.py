"""What a chat server sends, put together: `events`, `Draft`, `Reply`.

Compatible servers answer in many shapes: text or a list of parts, a call in the text or
beside it, the reasoning in a field of its own. A `Draft` collects them chunk by chunk,
and gives one kind of `Reply`, in which the API key is already hidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tinyllm.agent.backend import Count
from tinyllm.server.reply import hide_key, join_surrogates, split_reasoning

_FIELD = re.compile(rb"(data|event|id|retry)?:")  # how a line of a stream begins


@dataclass(frozen=True)
class Reply:
    """As much of a reply as has come, and the server's own counts, if it gives any.

    `text` is without the `reasoning`; `call` is one that came beside the text.
    """

    text: str = ""
    finish: str | None = None
    usage: Any = None
    reasoning: str = ""
    call: str = ""

    def count(self, *path: str) -> Count:
        """Return a number in `usage`; None where the server gives none."""
        value = self.usage
        for name in path:
            value = get(value, name)
        return value if type(value) is int and value >= 0 else None


class Draft:
    """A reply that is still coming, as the server sent it."""

    def __init__(self, key: str) -> None:
        self._key, self._text, self._reasoning = key, "", ""
        self._name, self._arguments = "", ""  # of the first call
        self._id: object = None
        self._usage: Any = None
        self.finish: str | None = None

    @property
    def empty(self) -> bool:
        """Return whether nothing has come of which a reply could be made."""
        return not (self.finish or self._text or self._reasoning or self._name)

    def add(self, chunk: object) -> None:
        """Take in one chunk of a stream, or the reply of a server that has none."""
        choices = get(chunk, "choices") or []
        choice = next((one for one in choices if not get(one, "index")), None)
        message = get(choice, "message")  # of a server that does not stream
        said = get(choice, "delta") or message
        self._text += _joined(get(said, "content")) or _joined(get(said, "refusal"))
        thinking = get(said, "reasoning_content") or get(said, "reasoning")
        self._reasoning += thinking if isinstance(thinking, str) else ""
        calls = get(said, "tool_calls") or []
        first = next((one for one in calls if not get(one, "index")), None)
        self._add_call(get(first, "function") or get(said, "function_call"), first)
        whole = "whole" if message else self.finish
        self.finish = get(choice, "finish_reason") or whole
        self._usage = get(chunk, "usage") or self._usage

    def _add_call(self, function: object, holder: object) -> None:
        """Take in a piece of the first call; a second one may have the same index."""
        identity = get(holder, "id") or self._id
        if identity != (self._id or identity):
            return
        self._id = identity
        self._name = self._name or get(function, "name") or ""
        arguments = get(function, "arguments") or ""
        if not isinstance(arguments, str):  # some send the object itself
            arguments = json.dumps(arguments, ensure_ascii=False)
        self._arguments += arguments

    def reply(self, more: bool = True) -> Reply:
        """Return the reply so far; without `more`, the whole of it."""

        def shown(text: str) -> str:
            return hide_key(join_surrogates(text), self._key, more)

        thinking, text = split_reasoning(shown(self._text))
        call = {"name": self._name, "arguments": self._arguments}
        written = shown(json.dumps(call, ensure_ascii=False)) if self._name else ""
        reasoning = shown(self._reasoning) or thinking
        return Reply(text, self.finish, self._usage, reasoning, written)


def events(kind: str, body: Iterable[bytes]) -> Iterator[Any]:
    """Yield the JSON of each event of a stream, up to its [DONE], or of a whole body.

    `kind` is the content type. Some servers give a wrong one, so the first line
    decides; where it could be anything, the type does.
    """
    lines = _lines(body)
    first = next((line for line in lines if line.strip()), b"")
    is_json = first[:1] == b"{" or "event-stream" not in kind
    if is_json and not _FIELD.match(first):
        yield json.loads(b"\n".join([first, *lines]))
        return
    for line in chain([first], lines):
        name, _, value = line.partition(b":")
        if name == b"data" and value.strip() == b"[DONE]":
            return
        if name == b"data":
            yield json.loads(value)


def get(holder: object, name: str) -> Any:
    """Return a value of a JSON object; None if it is missing or not an object."""
    return holder.get(name) if isinstance(holder, dict) else None


def _lines(body: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a body as they come, without the mark that some begin with."""
    rest, mark = b"", b"\xef\xbb\xbf"
    for data in chain(body, [b"\n"]):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.removeprefix(mark)


def _joined(content: Any) -> str:
    """Return the text of a content: a text, or a list of parts that hold some."""
    if isinstance(content, list):
        texts = [
            get(part, "text") if isinstance(part, dict) else part for part in content
        ]
        return "".join(text or "" for text in texts)
    if not isinstance(content, str | None):
        raise TypeError("the content of a message is a text or a list of parts")
    return content or ""

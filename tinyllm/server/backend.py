"""The backend that asks a chat server: `HttpBackend`.

Same loop, same tools, same protocol as the local backend, but the tokens are out of
sight. A server takes a JSON Schema or does not: every call is checked here, and asked
for again, with the reason, where it does not fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tinyllm.agent import protocol
from tinyllm.agent.backend import (
    Count,
    OnText,
    Slot,
    check_flag,
    check_seconds,
    parses,
    total,
)
from tinyllm.agent.protocol import CALL_LIMIT, MAX_CALL, MAX_THOUGHT
from tinyllm.agent.tools import Registry
from tinyllm.decode.sampling import in_range
from tinyllm.errors import (
    ContextFullError,
    ProtocolError,
    ToolError,
    UsageError,
    check_int,
)
from tinyllm.progress import ignore
from tinyllm.server.client import ChatServer, Piece, RefusedError
from tinyllm.server.reply import Told, Utf8, paired, spoken_call
from tinyllm.server.request import Dialect, again, instructions

N_CTX = 16_384  # bytes of transcript
_TOO_LONG = re.compile("context.?(length|size|window)|maximum context", re.IGNORECASE)
_Heard = Callable[[str], bool]  # gets the text so far; whether it is enough


@dataclass(frozen=True)
class _Reply:
    """A whole reply, or as much of it as was wanted, and its last piece's counts."""

    text: str
    finish: str | None
    counts: Piece
    options: dict[str, Any]


class HttpBackend:
    """Thoughts and calls from any OpenAI-compatible chat server.

    `timeout` bounds a whole reply, in seconds; `retries` how often a server that is
    busy or out of reach is asked again; `attempts` the replies of which one must be a
    call that fits; `n_ctx` the bytes of a transcript. Only `api_key` is sent, no key
    from the environment; one of fewer than 8 characters is no secret.
    `constrain=False` asks for no response_format. `calls`, `parsed` and `tokens` (None
    where the server does not say) count over its life.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        tools: Registry | None = None,
        *,
        api_key: str | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
        timeout: float = 60.0,
        attempts: int = 3,
        retries: int = 2,
        n_ctx: int = N_CTX,
        constrain: bool = True,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tokenizer = Utf8()
        self.base_url, self.name = base_url, _text("model", model)
        self.n_ctx = check_int("n_ctx", n_ctx, 1)
        self.attempts = check_int("attempts", attempts, 1)
        self.temperature = in_range("temperature", temperature, 2.0)
        self.constrain = check_flag("constrain", constrain)
        self.seed = None if seed is None else check_int("seed", seed)
        self._server = ChatServer(
            base_url,
            _sendable(api_key),
            check_seconds("timeout", timeout),
            check_int("retries", retries),
            _function("sleep", sleep),
            _function("clock", clock),
        )
        self._dialect = Dialect()
        self.calls = self.parsed = 0
        self.tokens: Count = 0
        self.set_tools(tools)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r}, {self.name!r})"

    def set_tools(self, tools: Registry | None) -> None:
        """Swap the tools; what the server was found to take is remembered."""
        if not isinstance(tools, Registry | None):
            raise UsageError(f"tools must be a Registry, not {tools!r:.40}")
        self.tools = tools or Registry([])
        self._system = instructions(self.tools)

    def reset(self) -> None:
        """Start afresh: a server has no memory, so there is nothing to do."""

    def thought(self, token_ids: Sequence[int], on_text: OnText = ignore) -> Slot:
        """The thought that follows the transcript.

        `on_text` gets the text while it comes. ContextFullError if there is no room,
        ServerError if the server does not do its part.
        """
        told = Told(self._room(token_ids), on_text)
        messages = self._messages(token_ids)
        wanted = {"max_tokens": MAX_THOUGHT, "stop": ["\n"]}
        replies = [self._reply(messages, wanted, None, told.hear)]
        stopped = "stop" in replies[0].options and replies[0].finish == "stop"
        if stopped and not told.text:
            # at a blank line with which it begins: never ask it to stop there again
            self._dialect = self._dialect.without("stop")
            replies.append(self._reply(messages, wanted, None, told.hear))
        return self._slot(told.text, replies, constrained=False)

    def call(self, token_ids: Sequence[int], on_text: OnText = ignore) -> Slot:
        """The call that follows the transcript; one that fits, if there is one.

        `on_text` gets it whole, at the end, and before that "" as often as something
        comes. ContextFullError if there is no room, ServerError if the server does not
        do its part, UsageError without tools.
        """
        if not self.tools:
            raise UsageError(
                "a call needs tools: give some to the backend or the agent"
            )
        room, say = self._room(token_ids), on_text
        messages = self._messages(token_ids)
        replies: list[_Reply] = []
        fault = text = ""
        while len(replies) < self.attempts and (fault or not replies):
            if replies:
                messages = messages + again(replies[-1].text, fault)
            replies.append(self._call_reply(messages, say))
            text, fault = self._fitted(replies[-1].text)
            # which shows a key that the reply spelled with escapes
            self._server.refuse_key(f"{text} {fault}")
        if len(self.tokenizer.encode(text)) > room:
            raise self._full(token_ids)
        say(text)
        self.calls += 1
        self.parsed += parses(text)
        formed = "response_format" in replies[-1].options and parses(text)
        return self._slot(text, replies, constrained=formed)

    def _call_reply(self, messages: list[dict[str, str]], say: OnText) -> _Reply:
        """One reply that should be a call."""

        def hear(text: str) -> bool:
            """Let the loop look at its clock; whether the text is long enough."""
            say("")
            return len(text) > CALL_LIMIT

        tools = self.tools if self.constrain else None
        return self._reply(messages, {"max_tokens": MAX_CALL}, tools, hear)

    def _reply(
        self,
        messages: list[dict[str, str]],
        wanted: dict[str, Any],
        tools: Registry | None,
        heard: _Heard,
    ) -> _Reply:
        """The reply in the first dialect that the server takes, which is remembered."""
        base = {"stream_options": {"include_usage": True}, **wanted}
        base |= {"temperature": self.temperature}
        base |= {} if self.seed is None else {"seed": self.seed}
        dialect: Dialect | None = self._dialect
        while dialect is not None:
            spoken = dialect.spoken(base, tools)
            try:
                reply = self._read(messages, spoken, heard)
            except RefusedError as error:
                refused = error
            else:
                self._dialect = dialect
                return reply
            if _TOO_LONG.search(str(refused)):
                raise ContextFullError(str(refused))
            dialect = dialect.simpler(spoken, str(refused))
        raise refused

    def _read(
        self, messages: list[dict[str, str]], spoken: dict[str, Any], heard: _Heard
    ) -> _Reply:
        """The reply to these messages, up to where it is enough."""
        raw, text, finish, counts = "", "", None, Piece()
        asked = {"model": self.name, "messages": messages, **spoken}
        with closing(self._server.ask(asked)) as pieces:
            for piece in pieces:
                raw += piece.text
                text = paired(raw)
                finish = piece.finish or finish
                counts = counts if piece.completion is None else piece
                if heard(text):
                    return _Reply(text, finish, Piece(), spoken)
        return _Reply(text, finish, counts, spoken)

    def _messages(self, token_ids: Sequence[int]) -> list[dict[str, str]]:
        """The protocol and the tools, and the transcript so far."""
        transcript = self.tokenizer.decode(token_ids).rstrip(" ")
        return [
            {"role": "system", "content": self._system},
            {"role": "user", "content": transcript},
        ]

    def _fitted(self, text: str) -> tuple[str, str]:
        """The text as one line, a call in canonical form, and why it does not fit."""
        text = spoken_call(text)[:CALL_LIMIT].rstrip()
        try:
            tool, args = protocol.parse_call(text)
        except ProtocolError as error:
            line = protocol.one_line(text.partition("\n")[0])
            if not parses(line):
                return line, str(error)
            tool, args = protocol.parse_call(line)  # a raw control became a space
        call = protocol.call_text(tool, args)
        try:
            protocol.parse_call(call)  # escapes may have made it too long
            self.tools.check(tool, args)
        except (ProtocolError, ToolError) as error:
            return call, str(error)
        return call, ""

    def _room(self, token_ids: Sequence[int]) -> int:
        """How many bytes may follow the transcript; ContextFullError if none."""
        if len(token_ids) >= self.n_ctx:
            raise self._full(token_ids)
        return self.n_ctx - len(token_ids)

    def _full(self, token_ids: Sequence[int]) -> ContextFullError:
        """The error for a transcript that leaves too little room for a reply."""
        taken = f"{len(token_ids)} of {self.n_ctx} bytes are taken"
        return ContextFullError(
            f"no room for the reply: {taken}; try fewer, shorter steps or more n_ctx"
        )

    def _slot(self, text: str, replies: list[_Reply], constrained: bool) -> Slot:
        """The slot of this text, which cost what all of the replies cost."""
        made = total([reply.counts.completion for reply in replies])
        self.tokens = total([self.tokens, made])
        return Slot(
            token_ids=tuple(self.tokenizer.encode(text)),
            text=text,
            tokens=made,
            constrained=constrained,
            forwarded=total([_forwarded(reply.counts) for reply in replies]),
            reused=total([reply.counts.cached for reply in replies]),
            attempts=len(replies),
        )


def _forwarded(counts: Piece) -> Count:
    """The positions that the server had to read anew, if it says so."""
    if counts.prompt is None or counts.cached is None:
        return None
    return max(0, counts.prompt - counts.cached)


def _text(name: str, value: str) -> str:
    """Return the value; UsageError unless it is a text with something in it."""
    if not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{name} must be a text that is not empty, not {value!r:.40}")
    return value


def _function(name: str, value: Callable[..., Any]) -> Callable[..., Any]:
    """Return the value; UsageError unless it can be called."""
    if not callable(value):
        raise UsageError(f"{name} must be a function, not {value!r:.40}")
    return value


def _sendable(key: str | None) -> str | None:
    """Return the API key; UsageError, which does not show it, if no header takes it."""
    if key is None:
        return None
    if not (isinstance(key, str) and re.fullmatch("[!-~]+", key)):
        raise UsageError("api_key must be printable ASCII without spaces, or None")
    return key

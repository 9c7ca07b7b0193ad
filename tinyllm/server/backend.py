"""The backend that asks a chat server: `HttpBackend`.

Same loop, same tools, same protocol as the local backend, but the server hides its
tokens, and it may ignore the JSON Schema that it is sent. So every call is checked
here, and asked for again, with the reason, if it does not fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
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
from tinyllm.server.client import ChatServer, RefusedError, Reply
from tinyllm.server.reply import ThoughtLine, Utf8, strip_call
from tinyllm.server.request import Features, ask_again, instructions

N_CTX = 16_384  # bytes of transcript
CACHED = "prompt_tokens_details", "cached_tokens"
_TOO_LONG = re.compile("context.?(length|size|window)|maximum context", re.IGNORECASE)
_KEY = re.compile(r"[!#-&(-\[\]-~]+")
Messages = list[dict[str, str]]
Enough = Callable[[str], bool]  # gets the text so far; whether no more is needed


class HttpBackend:
    """Thoughts and calls from any OpenAI-compatible chat server.

    `timeout` bounds a whole reply, in seconds; `retries` how often a server that is
    busy or out of reach is asked again; `attempts` the replies of which one must be a
    call that fits; `n_ctx` the bytes of a transcript. Only `api_key` is sent, no key
    from the environment; one of fewer than 8 characters is not treated as a secret.
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
        if not (isinstance(model, str) and model.strip()):
            raise UsageError(f"model must be the name of a model, not {model!r:.40}")
        self.tokenizer = Utf8()
        self.base_url, self.name = base_url, model
        self.n_ctx = check_int("n_ctx", n_ctx, 1)
        self.attempts = check_int("attempts", attempts, 1)
        self.temperature = in_range("temperature", temperature, 2.0)
        self.constrain = check_flag("constrain", constrain)
        self.seed = None if seed is None else check_int("seed", seed)
        timeout, retries = (
            check_seconds("timeout", timeout),
            check_int("retries", retries),
        )
        key = _check_key(api_key)
        self._server = ChatServer(base_url, key, timeout, retries, sleep, clock)
        self._features = Features()
        self.calls = self.parsed = 0
        self.tokens: Count = 0
        self.set_tools(tools)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r}, {self.name!r})"

    def set_tools(self, tools: Registry | None) -> None:
        """Swap the tools; the features of the server stay known."""
        if not isinstance(tools, Registry | None):
            raise UsageError(f"tools must be a Registry, not {tools!r:.40}")
        self.tools = tools or Registry([])
        self._system = instructions(self.tools)

    def reset(self) -> None:
        """Start afresh: a server has no memory, so there is nothing to do."""

    def thought(self, token_ids: Sequence[int], on_text: OnText = ignore) -> Slot:
        """Return the thought that follows the transcript.

        `on_text` gets the text while it comes. ContextFullError if there is no room,
        ServerError if the server fails.
        """
        line = ThoughtLine(self._room(token_ids), on_text)
        messages = self._messages(token_ids)
        wanted = {"max_tokens": MAX_THOUGHT, "stop": ["\n"]}
        replies = [self._reply(messages, wanted, None, line.update)]
        stopped = replies[0].finish == "stop" and "stop" not in self._features.refused
        if stopped and not line.text:
            # It stopped at a blank line before the thought: never ask it to stop again.
            self._features = self._features.without("stop")
            replies.append(self._reply(messages, wanted, None, line.update))
        return self._slot(line.text, replies, constrained=False)

    def call(self, token_ids: Sequence[int], on_text: OnText = ignore) -> Slot:
        """Return the call that follows the transcript; one that fits, if there is one.

        `on_text` gets it whole, at the end, and before that "" as often as something
        comes. ContextFullError if there is no room, ServerError if the server fails,
        UsageError without tools.
        """
        if not self.tools:
            raise UsageError(
                "a call needs tools: give some to the backend or the agent"
            )

        def enough(text: str) -> bool:
            on_text("")  # lets the loop look at its clock
            return len(text) > CALL_LIMIT

        room, messages = self._room(token_ids), self._messages(token_ids)
        tools = self.tools if self.constrain else None
        replies: list[Reply] = []
        fault = text = ""
        while len(replies) < self.attempts and (fault or not replies):
            if replies:
                messages = messages + ask_again(replies[-1].text, fault)
            wanted = {"max_tokens": MAX_CALL}
            replies.append(self._reply(messages, wanted, tools, enough))
            # a reply may have spelled the key with escapes
            text, fault = map(self._server.redact, self._fitted(replies[-1].text))
        if len(self.tokenizer.encode(text)) > room:
            raise self._full(token_ids)
        on_text(text)
        self.calls += 1
        self.parsed += parses(text)
        formed = self.constrain and self._features.formed and parses(text)
        return self._slot(text, replies, constrained=formed)

    def _reply(
        self,
        messages: Messages,
        wanted: dict[str, Any],
        tools: Registry | None,
        enough: Enough,
    ) -> Reply:
        """Return the reply to the first options that the server accepts."""
        base = {"stream_options": {"include_usage": True}, **wanted}
        base |= {"temperature": self.temperature}
        base |= {} if self.seed is None else {"seed": self.seed}
        features: Features | None = self._features
        while features is not None:
            options = features.options(base, tools)
            asked = {"model": self.name, "messages": messages, **options}
            try:
                reply = self._read(asked, enough)
            except RefusedError as error:
                refused = error
            else:
                self._features = features
                return reply
            if _TOO_LONG.search(str(refused)):
                raise ContextFullError(str(refused))
            features = features.reduced(options, str(refused))
        raise refused

    def _read(self, asked: dict[str, Any], enough: Enough) -> Reply:
        """Return the reply, up to where it is enough."""
        reply = Reply()
        with closing(self._server.ask(asked)) as replies:
            for reply in replies:
                if enough(reply.text):
                    break
        return reply

    def _messages(self, token_ids: Sequence[int]) -> Messages:
        """Return the protocol and the tools, and the transcript so far."""
        transcript = self.tokenizer.decode(token_ids).rstrip(" ")
        return [
            {"role": "system", "content": self._system},
            {"role": "user", "content": transcript},
        ]

    def _fitted(self, text: str) -> tuple[str, str]:
        """Return the text as one line, canonical if it is a call, and its fault."""
        text = strip_call(text)[:CALL_LIMIT].rstrip()
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
        """Return how many bytes may follow the transcript; ContextFullError if none."""
        if len(token_ids) >= self.n_ctx:
            raise self._full(token_ids)
        return self.n_ctx - len(token_ids)

    def _full(self, token_ids: Sequence[int]) -> ContextFullError:
        """Return the error for a transcript that leaves too little room for a reply."""
        taken = f"{len(token_ids)} of {self.n_ctx} bytes are taken"
        return ContextFullError(
            f"no room for the reply: {taken}; try fewer, shorter steps or more n_ctx"
        )

    def _slot(self, text: str, replies: list[Reply], constrained: bool) -> Slot:
        """Return the slot of this text, which cost what all of the replies cost."""
        made = total([reply.count("completion_tokens") for reply in replies])
        reused = [reply.count(*CACHED) for reply in replies]
        self.tokens = total([self.tokens, made])
        return Slot(
            token_ids=tuple(self.tokenizer.encode(text)),
            text=text,
            tokens=made,
            constrained=constrained,
            forwarded=total([_forwarded(reply) for reply in replies]),
            reused=total(reused),
            attempts=len(replies),
        )


def _forwarded(reply: Reply) -> Count:
    """Return the positions that the server had to read anew, if it says so."""
    prompt, cached = reply.count("prompt_tokens"), reply.count(*CACHED)
    return None if prompt is None or cached is None else max(0, prompt - cached)


def _check_key(key: str | None) -> str | None:
    """Return the API key; UsageError, which does not show it, if it cannot be one.

    Without quotes and backslashes, a key is spelled the same in JSON and in Python.
    """
    if key is not None and not (isinstance(key, str) and _KEY.fullmatch(key)):
        raise UsageError(
            "api_key must be printable ASCII without spaces, quotes and backslashes, "
            "or None"
        )
    return key

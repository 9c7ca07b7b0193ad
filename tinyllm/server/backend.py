"""The backend that asks a chat server: `HttpBackend`.

Same loop, same tools, same protocol as the local backend, but the server hides its
tokens, and it may ignore the JSON Schema that it is sent. So every call is checked
here, and asked for again, with the reason, if it does not fit; and no call is said to
be constrained before the server has shown that it enforces a schema.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from tinyllm.agent import protocol
from tinyllm.agent.backend import (
    Count,
    OnText,
    Slot,
    check_flag,
    check_seconds,
    parses,
    time_left,
    total,
)
from tinyllm.agent.protocol import CALL_LIMIT, MAX_CALL, MAX_THOUGHT
from tinyllm.agent.tools import Registry
from tinyllm.decode.sampling import in_range
from tinyllm.errors import (
    ContextFullError,
    ProtocolError,
    ServerError,
    ToolError,
    UsageError,
    check_int,
)
from tinyllm.progress import ignore
from tinyllm.server.client import ChatServer, RefusedError
from tinyllm.server.reply import (
    TOKEN_LIMIT,
    ThoughtLine,
    Utf8,
    canonical_call,
    strip_call,
)
from tinyllm.server.request import (
    PROBE,
    Features,
    Messages,
    ask_again,
    begins_call,
    instructions,
    renamed,
)
from tinyllm.server.stream import Reply

N_CTX = 16_384  # bytes of transcript
CACHED = "prompt_tokens_details", "cached_tokens"
_KEY = re.compile(r"[!#-&(-\[\]-~]+")
Enough = Callable[[str], bool]  # gets the text so far; whether no more is needed


class HttpBackend:
    """Thoughts and calls from any OpenAI-compatible chat server.

    `timeout` bounds a whole reply, in seconds; `retries` how often a server that is
    busy or out of reach is asked again; `attempts` the replies of which one must be a
    call that fits; `max_thought` and `max_call` the tokens of a thought and of a call
    (a call has at most 2,048 characters all the same); `n_ctx` the bytes of a
    transcript. Only `api_key` is sent, no key from the environment; one of fewer than 8
    characters is not treated as a secret. `constrain=False` asks for no
    response_format; else the first call costs one more request, in which the server
    shows whether it enforces one. `calls`, `parsed` and `tokens` (None where the server
    does not say) count over its life.
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
        max_thought: int = MAX_THOUGHT,
        max_call: int = MAX_CALL,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (isinstance(model, str) and model.strip()):
            raise UsageError(f"model must be the name of a model, not {model!r:.40}")
        self.tokenizer = Utf8()
        self.base_url, self.name = base_url, model
        self.n_ctx = check_int("n_ctx", n_ctx, 1)
        self.attempts = check_int("attempts", attempts, 1)
        self.max_thought = check_int("max_thought", max_thought, 1)
        self.max_call = check_int("max_call", max_call, 1)
        self.temperature = in_range("temperature", temperature, 2.0)
        self.constrain = check_flag("constrain", constrain)
        self.seed = None if seed is None else check_int("seed", seed)
        timeout = check_seconds("timeout", timeout)
        retries = check_int("retries", retries)
        key = _check_key(api_key)
        self._server = ChatServer(base_url, key, timeout, retries, sleep, clock)
        self._features, self._time_left = Features(), partial(time_left, ignore)
        self._enforces: dict[tuple[int, str], bool] = {}  # a form of a schema
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
        self._time_left = partial(time_left, on_text)
        limit = self.max_thought * TOKEN_LIMIT
        line = ThoughtLine(self._room(token_ids), limit, on_text)
        messages, replies = self._messages(token_ids), list[Reply]()
        wanted = {"max_tokens": self.max_thought, "stop": ["\n"]}
        while True:
            replies.append(self._reply(messages, wanted, None, line.update))
            if not line.text:
                line.update(replies[-1].reasoning)
            stopped = replies[-1].finish == "stop"
            if line.text or not stopped or "stop" in self._features.refused:
                return self._slot(line.text, replies)
            # It stopped at a blank line before the thought: never ask it to stop again.
            self._features = self._features.without("stop")

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

        self._time_left = partial(time_left, on_text)

        def enough(text: str) -> bool:
            on_text("")  # lets the loop look at its clock
            return _too_long(text)

        room, messages = self._room(token_ids), self._messages(token_ids)
        tools = self.tools if self.constrain else None
        replies: list[Reply] = []
        fault = text = ""
        while len(replies) < self.attempts and (fault or not replies):
            if replies:
                messages = messages + ask_again(text, fault)
            wanted = {"max_tokens": self.max_call}
            replies.append(self._reply(messages, wanted, tools, enough))
            fitted = self._fitted(replies[-1].call or replies[-1].text)
            # a reply may have spelled the key with escapes
            text, fault = map(self._server.redact, fitted)
        if len(self.tokenizer.encode(text)) > room:
            raise self._full(token_ids)
        on_text(text)
        self.calls += 1
        self.parsed += parses(text)
        asked = self.constrain and self._features.formed
        shown = asked and parses(text) and self._enforced(replies)
        return replace(self._slot(text, replies), asked=asked, constrained=shown)

    def _enforced(self, replies: list[Reply]) -> bool:
        """Return whether the server has shown that it enforces the schema it was sent.

        It has if it once wrote a call of tools that only the schema names, when asked
        for something else, and if each of the replies begins as a call.
        """
        schema = self._features.form, json.dumps(self.tools.schema())
        if not all(begins_call(reply.text, self.tools) for reply in replies):
            return False
        if schema not in self._enforces:
            tools, ask = renamed(self.tools), [{"role": "user", "content": PROBE}]
            wanted, reply = {"max_tokens": self.max_call}, Reply()
            with suppress(ServerError, ContextFullError):
                reply = self._reply(ask, wanted, tools, _too_long)
            self._enforces[schema] = begins_call(reply.text, tools)
            self.tokens = total([self.tokens, reply.count("completion_tokens")])
        return self._enforces[schema]

    def _reply(
        self,
        messages: Messages,
        wanted: dict[str, Any],
        tools: Registry | None,
        enough: Enough,
    ) -> Reply:
        """Return the reply to the first request that the server accepts."""
        base = {"model": self.name, "messages": messages, **wanted}
        base |= {"stream": True, "stream_options": {"include_usage": True}}
        base |= {"temperature": self.temperature}
        base |= {} if self.seed is None else {"seed": self.seed}
        features: Features | None = self._features
        while features is not None:
            asked = features.request(base, tools)
            try:
                reply = self._read(asked, enough)
            except RefusedError as error:
                refused = error
            else:
                self._features = features
                return reply
            features = features.reduced(asked, str(refused))
        raise refused

    def _read(self, asked: dict[str, Any], enough: Enough) -> Reply:
        """Return the reply, up to where it is enough."""
        reply = Reply()
        with closing(self._server.ask(asked, self._time_left)) as replies:
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
        text = canonical_call(strip_call(text)[:CALL_LIMIT].rstrip())
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

    def _slot(self, text: str, replies: list[Reply]) -> Slot:
        """Return the slot of this text, which cost what all of the replies cost."""
        made = total([reply.count("completion_tokens") for reply in replies])
        reused = [reply.count(*CACHED) for reply in replies]
        self.tokens = total([self.tokens, made])
        return Slot(
            token_ids=tuple(self.tokenizer.encode(text)),
            text=text,
            tokens=made,
            forwarded=total([_forwarded(reply) for reply in replies]),
            reused=total(reused),
            attempts=len(replies),
        )


def _too_long(text: str) -> bool:
    """Return whether a text has more characters than a call may have."""
    return len(text) > CALL_LIMIT


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

"""A chat server on loopback that follows a script and may misbehave on purpose."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat

import pytest

from tinyllm.agent import tools
from tinyllm.agent.tools import Registry
from tinyllm.errors import ServerError
from tinyllm.server.backend import HttpBackend
from tinyllm.server.request import PROBE, PROBED

TWO = Registry([tools.calc, tools.answer])
IDS = list(b"TOOLS: x\nTASK: y\nTHOUGHT: ")
NOWHERE = "http://127.0.0.1:9/v1"


@dataclass
class Answer:
    """What to send: pieces of a body, which may never end, or with `raw` of all.

    With `hold` nothing follows, and the connection stays open until the client goes.
    """

    pieces: Iterable[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bool = False
    hold: bool = False


@dataclass
class Request:
    """What a client sent."""

    path: str
    headers: dict[str, str]
    body: dict


def event(data: object) -> bytes:
    """One event of a stream; a text or bytes are sent as they are."""
    data = data if isinstance(data, str | bytes) else json.dumps(data)
    return b"data: " + (data if isinstance(data, bytes) else data.encode()) + b"\n\n"


def delta(
    text: str | None = None, finish: object = None, index: int = 0, **said: object
) -> bytes:
    """The event of a chunk."""
    said |= {} if text is None else {"content": text}
    choice = {"index": index, "delta": said, "finish_reason": finish}
    return event({"object": "chat.completion.chunk", "choices": [choice]})


def usage(completion: int, prompt: int, cached: int | None = None) -> bytes:
    """The event that tells the counts."""
    counts = {"completion_tokens": completion, "prompt_tokens": prompt}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return event({"choices": [], "usage": counts})


def streamed(*pieces: bytes, **options: object) -> Answer:
    """An event stream of just these pieces."""
    return Answer(pieces, headers={"Content-Type": "text/event-stream"}, **options)


def says(*texts: str, finish: str = "stop", counts: bytes = b"") -> Answer:
    """A stream of these texts, as it should be."""
    ends = [delta(None, finish), counts, event("[DONE]")]
    return streamed(*map(delta, texts), *ends)


def plain(body: object, status: int = 200, **headers: str) -> Answer:
    """A JSON body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    kind = {"Content-Type": "application/json"}
    return Answer([json.dumps(body).encode()], status, kind | named)


def whole(text: str | None, finish: str = "stop", **said: object) -> Answer:
    """The JSON body of a server that does not stream."""
    message = {"role": "assistant", "content": text, **said}
    return plain({"choices": [{"message": message, "finish_reason": finish}]})


def refusal(message: str, status: int = 400) -> Answer:
    """The JSON body of an error."""
    return plain({"error": {"message": message, "type": "invalid"}}, status)


def streamed_for_ever(piece: bytes) -> Answer:
    """A stream of this event again and again."""
    return Answer(repeat(piece), headers={"Content-Type": "text/event-stream"})


class ScriptedServer:
    """The server, as a context manager; one answer a request, in order.

    `requests` is what was asked. `gone` is set when a client went away before its
    answer was over. A probe is no part of the script: it is answered with `probed`, by
    default as a server does that `enforces` the schema, or that ignores it.
    """

    def __init__(
        self, *answers: Answer, enforces: bool = True, probed: Answer | None = None
    ) -> None:
        self.answers = list(answers)
        self.enforces, self.probed = enforces, probed
        self.probes: list[dict] = []
        self.requests: list[Request] = []
        self.gone = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.01)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def sent(self) -> list[dict]:
        """The bodies of the requests."""
        return [request.body for request in self.requests]

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length", 0))
        body = json.loads(handler.rfile.read(length) or "{}")
        answer = self._next(body, handler)
        try:
            if not answer.raw:
                handler.send_response(answer.status)
                for name, value in answer.headers.items():
                    handler.send_header(name, value)
                handler.end_headers()
            for piece in answer.pieces:
                handler.wfile.write(piece)
                handler.wfile.flush()
            if answer.hold and handler.rfile.read(1) == b"":
                self.gone.set()
        except OSError:
            self.gone.set()

    def _next(self, body: dict, handler: BaseHTTPRequestHandler) -> Answer:
        if body["messages"][-1]["content"] == PROBE:
            self.probes.append(body)
            name = re.findall(rf"{PROBED}_\w+", json.dumps(body))[-1]
            forced = json.dumps({"tool": name, "args": {}})
            said = forced if self.enforces else "hello"
            return self.probed or says(said, counts=usage(0, 0, 0))
        self.requests.append(Request(handler.path, dict(handler.headers), body))
        return self.answers.pop(0) if self.answers else Answer(status=500)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        script = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 30  # a client that forgets to hang up fails a test, no more

            def do_POST(self) -> None:
                script._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class Pauses(list):
    """A sleep that does not: it notes how long it should have been."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def backend(server, **options):
    """A backend for a scripted server; it never sleeps."""
    return HttpBackend(server.url, "m", TWO, **{"sleep": Pauses()} | options)


def thought(*answers, **options):
    """The slot of a thought, the pieces told, and the server."""
    told: list[str] = []
    with ScriptedServer(*answers) as server:
        slot = backend(server, **options).thought(IDS, told.append)
    return slot, told, server


def called(*answers, **options):
    """The slot of a call, the pieces told, and the server."""
    told: list[str] = []
    with ScriptedServer(*answers) as server:
        slot = backend(server, **options).call(IDS, told.append)
    return slot, told, server


def failure(*answers, ask="thought", **options):
    """The message of the error, and the server; nothing is chained to the error."""
    with ScriptedServer(*answers) as server:
        lm = backend(server, **options)
        with pytest.raises(ServerError) as caught:
            getattr(lm, ask)(IDS)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return str(caught.value), server

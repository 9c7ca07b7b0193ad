"""One bounded call to an OpenAI-compatible server: `ChatServer`.

The client `openai` asks. Whatever the server does, the outcome is a reply or one of the
package's own errors, with neither the API key nor the exception that it was made from.

The client's time-outs apply to each read, so a server that sends a byte now and then
would never end. Therefore every read from the connection, also those of the headers and
of an error, gets only the time that is left and counts towards the size of the reply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from tinyllm.errors import (
    ContextFullError,
    ServerError,
    TimeUpError,
    TinyllmError,
    UsageError,
)
from tinyllm.server.reply import PART, hide_key, show
from tinyllm.server.request import named
from tinyllm.server.stream import Draft, Reply, events, get

BYTE_LIMIT = 2**20  # of a reply with its headers; a call of 96 tokens takes 30 kB
LONGEST_WAIT = 20.0  # seconds; a server that wants more is not asked again
FIRST_PAUSE = 0.5  # seconds before the second try, doubled with each up to the next
LONGEST_PAUSE = 4.0
BUSY = (408, 429)  # statuses after which to try again, as after all from 500 on
INSTALL = 'pip install "tinyllm-notebooks[http]"'
EXAMPLE = "http://127.0.0.1:8000/v1"
_TOO_LONG = re.compile(
    r"context.?(length|size|window)|maximum context|(prompt|input) is too long",
    re.IGNORECASE,
)
_LOADING = re.compile(r"\bloading\b", re.IGNORECASE)
_HOST = r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d+)?"
_ADDRESS = re.compile(rf"https?://{_HOST}(/[^\s?#@]*)?", re.ASCII | re.IGNORECASE)
HEADERS = {  # all that is sent, beside Host, Content-Length and the key
    "Content-Type": "application/json",
    "User-Agent": "tinyllm",
    "Accept-Encoding": "identity",  # compressed, a small reply may become a huge one
    "Connection": "close",
}


class RefusedError(ServerError):
    """The server does not accept the request as it is, and says why.

    It says so with 400 or 422, or with 500 and the name of an option, as
    llama-cpp-python does.
    """


class LoadingError(ServerError):
    """The server is still loading its model: the time is the limit, not the tries."""


class ChatServer:
    """A server that continues chats, one reply at a time."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        timeout: float,
        retries: int,
        sleep: Callable[[float], object],
        clock: Callable[[], float],
    ) -> None:
        if not (isinstance(base_url, str) and _ADDRESS.fullmatch(base_url)):
            raise _not_an_address(base_url)
        if api_key and len(api_key) >= PART and api_key in base_url:
            raise UsageError(
                "the address (base_url) has the API key in it: leave it out"
            )
        openai = _client_library()
        self.base_url, self.timeout, self.retries = base_url, timeout, retries
        self._sleep, self._clock = sleep, clock
        self._headers = dict(HEADERS)
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        # local servers are given words such as "EMPTY": those are not secrets
        self._key = api_key if api_key and len(api_key) >= PART else ""
        self._end, self._size, self._tail = 0.0, 0, b""
        self._seconds, self._by_run = timeout, False  # does a run's end bound it?
        http = openai.DefaultHttpxClient(
            event_hooks={"request": [self._prepare], "response": [_refuse_compressed]},
            trust_env=False,
            follow_redirects=False,
        )
        # The client never has the real key, so it cannot log it. Without any key it
        # would look for one in the environment.
        made: dict[str, Any] = {"api_key": "none", "timeout": timeout, "max_retries": 0}
        try:
            if urlsplit(base_url).port == 0:
                raise _not_an_address(base_url)
            client = openai.OpenAI(base_url=base_url, http_client=http, **made)
        except Exception as error:  # such as ValueError for port 99999
            raise _not_an_address(base_url) from error
        # not its method for chats, which could not leave out "stream"
        asked: dict[str, Any] = {"cast_to": object, "stream": True}
        asked["stream_cls"] = openai.Stream[object]
        self._post = partial(client.post, "/chat/completions", **asked)

    def ask(
        self, request: dict[str, Any], time_left: Callable[[], float]
    ) -> Generator[Reply, None, None]:
        """Yield the reply so far, again and again; close the generator to hang up.

        The server is asked again, until a reply begins, if it is busy, broken or out of
        reach, and while it loads its model. ServerError, or RefusedError for a request
        that it does not accept; TimeUpError when `time_left` of the run, in seconds, is
        over.
        """
        pause, tries_left, patience = FIRST_PAUSE, self.retries, self.timeout
        while True:
            begun = False
            self._bound(time_left())
            try:
                for reply in self._replies(request):
                    begun = True
                    yield reply
                return
            except Exception as error:
                failure, wait = self._failure(error, request)
            if isinstance(failure, LoadingError):
                patience -= max(pause, wait or 0)
            else:
                tries_left -= 1
            if wait is None or begun or tries_left < 0 or patience < 0:
                raise failure  # outside of except, so that nothing is chained to it
            self._pause(max(pause, wait), time_left())
            pause = min(2 * pause, LONGEST_PAUSE)

    def redact(self, text: str) -> str:
        """Return the text with asterisks in place of the API key."""
        return hide_key(text, self._key)

    def _bound(self, seconds: float) -> None:
        """Set the end of the next reply; TimeUpError if the run has no time left."""
        if seconds <= 0:
            raise TimeUpError
        self._by_run = seconds < self.timeout
        self._seconds = min(seconds, self.timeout)
        self._end = self._clock() + self._seconds

    def _pause(self, seconds: float, time_left: float) -> None:
        """Wait, but not beyond the end of the run, which is a TimeUpError."""
        self._sleep(min(seconds, max(0.0, time_left)))
        if seconds >= time_left:
            raise TimeUpError

    def _replies(self, request: dict[str, Any]) -> Iterator[Reply]:
        """Yield the reply so far after each chunk, and the whole of it at the end.

        A stream may end without saying so: what came until then is the reply.
        ServerError if nothing came.
        """
        draft = Draft(self._key)
        for chunk in self._chunks(request):
            if error := get(chunk, "error"):
                raise self._error(f"reports an error: {show(error, self._key)}")
            draft.add(chunk)
            yield draft.reply()
        if draft.empty:
            raise self._error("sent no choices, or no text in them")
        yield draft.reply(more=False)

    def _chunks(self, request: dict[str, Any]) -> Iterator[Any]:
        """Yield the chunks of a stream, or the one of a server that does not stream."""
        empty = True
        for chunk in self._events(request):
            empty = False
            yield chunk
        if empty:  # llama-cpp-python hides an error when it is to stream
            streaming = ("stream", "stream_options")
            yield from self._events(
                {k: v for k, v in request.items() if k not in streaming}
            )

    def _events(self, request: dict[str, Any]) -> Iterator[Any]:
        """Yield the JSON of each event of one response, or of its whole body."""
        self._size, self._tail = 0, b""
        # the client would read only streams, and not those that begin with a BOM
        asked = self._post(body=request, options={"timeout": self._seconds})
        with closing(asked.response) as response:
            kind = response.headers.get("content-type", "")
            yield from events(kind, response.iter_bytes())

    def _prepare(self, request: Any) -> None:
        """Put our headers on a request, and have its reads bounded."""
        for name in set(request.headers) - {"host", "content-length"}:
            del request.headers[name]
        request.headers.update(self._headers)
        request.extensions["trace"] = self._wrap

    def _wrap(self, event: str, info: dict[str, Any]) -> None:
        """Replace the method `read` of a new connection by `_read`.

        The HTTP library calls this "trace" with each step that it takes.
        """
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            stream = info["return_value"]
            stream.read = partial(self._read, stream.read)

    def _read(
        self, read: Callable[..., bytes], n_bytes: int, timeout: float | None = None
    ) -> bytes:
        """Return what comes next, without the API key; TimeoutError after the end.

        Libraries log headers and quote a bad status line, so the key goes here.
        """
        left = self._end - self._clock()
        if left <= 0:
            raise TimeoutError
        data = read(n_bytes, left)
        self._size += len(data)
        if self._size > BYTE_LIMIT:
            raise self._error(f"sent a reply of more than {BYTE_LIMIT} bytes")
        if not self._key:
            return data
        key = self._key.encode()
        if key in self._tail + data[: len(key) - 1]:  # its beginning was passed on
            raise self._error("sent the API key back: do not trust it")
        self._tail = (self._tail + data)[1 - len(key) :]
        return data.replace(key, b"*" * len(key))

    def _failure(
        self, error: Exception, request: dict[str, Any]
    ) -> tuple[TinyllmError, float | None]:
        """Return the error to raise, and the seconds to wait if a retry may help."""
        if hasattr(error, "status_code"):
            return self._status(error, error.status_code, request)
        cause = _origin(error)
        kind, wait = type(cause).__name__, None
        if isinstance(cause, ServerError):
            return ServerError(str(cause)), None
        if isinstance(cause, TimeoutError) and self._by_run:
            return TimeUpError(), None
        if isinstance(cause, TimeoutError):
            what = f"gave no whole reply in {self.timeout:g} seconds: try more timeout"
        elif isinstance(cause, OSError) or kind == "RemoteProtocolError":
            what = f"cannot be reached, or broke off its reply ({kind}): is it running?"
            wait = 0.0
        else:
            kind = type(error).__name__
            what = f"sent no chat completion ({kind}): check its address (often …/v1)"
        return self._error(what), wait

    def _status(
        self, error: Any, status: int, request: dict[str, Any]
    ) -> tuple[TinyllmError, float | None]:
        """Return the same for a status of 300 or more."""
        said = show(error.body, self._key)
        wait = _seconds(error.response.headers.get("retry-after", ""))
        if status in (400, 413, 422) and _TOO_LONG.search(said):
            return ContextFullError(str(self._error(f"says {status}: {said}"))), None
        if status in (400, 422) or (status == 500 and named(request, said)):
            what = f"does not take the request ({status}): {said}"
            return RefusedError(str(self._error(what))), None
        if status == 503 and wait <= LONGEST_WAIT and _LOADING.search(said):
            what = f"is still loading after {self.timeout:g} seconds: try more timeout"
            return LoadingError(str(self._error(f"{what}; {said}"))), wait
        if status >= 500 or status in BUSY:
            if wait <= LONGEST_WAIT:
                what = f"says {status} ({self.retries + 1} tries): {said}"
                return self._error(what), wait
            what = f"says {status}, and to wait for {wait:g} seconds: try again then"
        elif status in (401, 403):
            what = f"refuses the API key, or wants one ({status}): try api_key="
            what += " (tinyllm agent --api-key-env)"
        else:
            what = f"says {status}: check its address (often …/v1) and model; {said}"
        return self._error(what), None

    def _error(self, what: str) -> ServerError:
        """Return the error that says which server did what."""
        return ServerError(f"the server at {self.base_url} {what}")


def _not_an_address(base_url: object) -> UsageError:
    """Return the error for a wrong address, without a secret that may be in it."""
    shown = f", not {base_url!r:.60}"
    if isinstance(base_url, str):  # a key may be behind the "?", or all that was given
        safe = re.match(r"(https?://|[\w.-]+:\d)[^@?#]*(?![^@]*@)", base_url)
        shown = f", not {safe[0]!r:.60}" if safe else ""
        shown += " and more" if safe and safe[0] != base_url else ""
    return UsageError(
        f"a server (base_url) is an address such as {EXAMPLE!r}, without user, "
        f"password, ? or #{shown}"
    )


def _client_library() -> Any:
    """Return the module `openai`; UsageError if it is not installed."""
    try:
        return import_module("openai")
    except ImportError as error:
        told = f"a chat server needs the package openai: {INSTALL}"
        raise UsageError(told) from error


def _origin(error: BaseException) -> BaseException:
    """Return our own or the system's exception in a chain, else where it begins.

    Libraries turn exceptions into theirs, and hide some with `raise … from None`.
    """
    while not isinstance(error, ServerError | OSError):
        hidden = error.__context__ if error.__suppress_context__ else None
        if (before := error.__cause__ or hidden) is None:
            break
        error = before
    return error


def _refuse_compressed(response: Any) -> None:
    """Raise ServerError for a compressed body, whose size nobody knows."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise ServerError("the server compresses its reply, which was not asked for")


def _seconds(text: str) -> float:
    """Return the seconds of a Retry-After; 0 if it is absent or a date."""
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else 0.0

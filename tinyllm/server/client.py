"""One bounded call to an OpenAI-compatible server: `ChatServer`, `Reply`.

The client `openai` asks. Whatever the server does, the outcome is a reply or one of the
package's own errors, with neither the API key nor the exception that it was made from.

The client's time-outs apply to each read, so a server that sends a byte now and then
would never end. Therefore every read from the connection, also those of the headers and
of an error, gets only the time that is left and counts towards the size of the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from tinyllm.agent.backend import Count
from tinyllm.errors import ServerError, UsageError
from tinyllm.server.reply import PART, hide_key, join_surrogates, show
from tinyllm.server.request import named

BYTE_LIMIT = 2**20  # of a reply with its headers; a call of 96 tokens takes 30 kB
LONGEST_WAIT = 20.0  # seconds; a server that wants more is not asked again
FIRST_PAUSE = 0.5  # seconds before the second try, doubled with each
BUSY = (408, 429)  # statuses after which to try again, as after all from 500 on
INSTALL = 'pip install "tinyllm-notebooks[http]"'
EXAMPLE = "http://127.0.0.1:8000/v1"
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


@dataclass(frozen=True)
class Reply:
    """As much of a reply as has come, and the server's own counts, if it gives any."""

    text: str = ""
    finish: str | None = None
    usage: Any = None

    def count(self, *path: str) -> Count:
        """Return a number in `usage`; None where the server gives none."""
        value = self.usage
        for name in path:
            value = _get(value, name)
        return value if type(value) is int and value >= 0 else None


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
        openai = _client_library()
        self.base_url, self.timeout, self.retries = base_url, timeout, retries
        self._sleep, self._clock = sleep, clock
        self._headers = dict(HEADERS)
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        # local servers are given words such as "EMPTY": those are not secrets
        self._key = api_key if api_key and len(api_key) >= PART else ""
        self._end, self._size, self._tail = 0.0, 0, b""
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
        self._create = client.chat.completions.create

    def ask(self, options: dict[str, Any]) -> Generator[Reply, None, None]:
        """Yield the reply so far, again and again; close the generator to hang up.

        The server is asked again, until a reply begins, if it is busy, broken or out of
        reach. ServerError, or RefusedError for a request that it does not accept.
        """
        pause = FIRST_PAUSE
        for retries_left in range(self.retries, -1, -1):
            begun = False
            try:
                for reply in self._replies(options):
                    begun = True
                    yield reply
                return
            except Exception as error:
                failure, wait = self._failure(error, options)
            if wait is None or begun or not retries_left:
                raise failure  # outside of except, so that nothing is chained to it
            self._sleep(max(pause, wait))
            pause *= 2

    def redact(self, text: str) -> str:
        """Return the text with asterisks in place of the API key."""
        return hide_key(text, self._key)

    def _replies(self, options: dict[str, Any]) -> Iterator[Reply]:
        """Yield the reply so far after each chunk; ServerError if it breaks off."""
        raw, reply = "", Reply()
        for chunk in self._chunks(options):
            if error := _get(chunk, "error"):
                raise self._error(f"reports an error: {show(error, self._key)}")
            choices = _get(chunk, "choices") or []
            choice = next((one for one in choices if not _get(one, "index")), None)
            message = _get(choice, "message")  # of a server that does not stream
            said = _get(choice, "delta") or message
            raw += _get(said, "content") or _get(said, "refusal") or ""
            whole = "whole" if message else reply.finish
            text = hide_key(join_surrogates(raw), self._key, more=True)
            finish = _get(choice, "finish_reason") or whole
            reply = Reply(text, finish, _get(chunk, "usage") or reply.usage)
            yield reply
        if reply.finish is None:
            raise self._error("ended its reply in the middle, or sent no choices")
        yield replace(reply, text=self.redact(join_surrogates(raw)))

    def _chunks(self, options: dict[str, Any]) -> Iterator[Any]:
        """Yield the chunks of a stream, or the one of a server that does not stream."""
        empty = True
        for chunk in self._events(options):
            empty = False
            yield chunk
        if empty:  # llama-cpp-python hides an error when it is to stream
            whole = {k: v for k, v in options.items() if k != "stream_options"}
            yield from self._events(whole | {"extra_body": {"stream": False}})

    def _events(self, options: dict[str, Any]) -> Iterator[Any]:
        """Yield the JSON of each event of one response, or of its whole body."""
        self._end, self._size, self._tail = self._clock() + self.timeout, 0, b""
        # the client would read only streams, and not those that begin with a BOM
        with closing(self._create(**options, stream=True).response) as response:
            if "text/event-stream" not in response.headers.get("content-type", ""):
                yield json.loads(response.read())
                return
            rest = b""
            for data in chain(response.iter_bytes(), [b"\n"]):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
                    if name == b"data" and value.strip() != b"[DONE]":
                        yield json.loads(value)

    def _prepare(self, request: Any) -> None:
        """Put our headers on a request, and have its reads bounded."""
        for name in set(request.headers) - {"host", "content-length"}:
            del request.headers[name]
        request.headers.update(self._headers)
        request.extensions["trace"] = self._bound

    def _bound(self, event: str, info: dict[str, Any]) -> None:
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
        self, error: Exception, options: dict[str, Any]
    ) -> tuple[ServerError, float | None]:
        """Return the error to raise, and the seconds to wait if a retry may help."""
        if hasattr(error, "status_code"):
            return self._status(error, error.status_code, options)
        cause = _origin(error)
        kind, wait = type(cause).__name__, None
        if isinstance(cause, ServerError):
            return ServerError(str(cause)), None
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
        self, error: Any, status: int, options: dict[str, Any]
    ) -> tuple[ServerError, float | None]:
        """Return the same for a status of 300 or more."""
        said = show(error.body, self._key)
        wait = _seconds(error.response.headers.get("retry-after", ""))
        if status in (400, 422) or (status == 500 and named(options, said)):
            what = f"does not take the request ({status}): {said}"
            return RefusedError(str(self._error(what))), None
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
    """Return the error for a wrong address, without a password that may be in it."""
    shown = "" if "@" in str(base_url) else f", not {base_url!r:.60}"
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


def _get(holder: object, name: str) -> Any:
    """Return a value of a JSON object; None if it is missing or not an object."""
    return holder.get(name) if isinstance(holder, dict) else None


def _seconds(text: str) -> float:
    """Return the seconds of a Retry-After; 0 if it is absent or a date."""
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else 0.0

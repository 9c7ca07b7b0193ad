"""A chat server, asked through the client `openai`: `ChatServer`, `Piece`.

Whatever a server does, the outcome is the pieces of a reply or one of the package's own
errors, which holds neither the API key nor the exception that it was made from.
"""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from http.client import HTTPException
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from tinyllm.agent.backend import Count
from tinyllm.errors import ServerError, UsageError
from tinyllm.server.bounded import EVENTS, Wire
from tinyllm.server.reply import Key
from tinyllm.server.request import named

LONGEST_WAIT = 20.0  # seconds; a server that wants more is not waited for
FIRST_PAUSE = 0.5  # seconds before the second try, doubled with each
WHOLE = "whole"  # the finish of a reply that came whole and gives none
BUSY = (408, 429)  # and all from 500 on
INSTALL = 'pip install "tinyllm-notebooks[http]"'


class RefusedError(ServerError):
    """The server does not take the request as it is, and says why.

    It says so with 400 or 422, or with 500 and the name of an option, as
    llama-cpp-python does.
    """


@dataclass(frozen=True)
class Piece:
    """A piece of a reply. Finish and counts come late, if the server gives them."""

    text: str = ""
    finish: str | None = None
    completion: Count = None  # tokens made
    prompt: Count = None  # tokens read
    cached: Count = None  # how many of these it had read before


@dataclass(frozen=True)
class Failure:
    """Why there is no reply, and whether it may be tried again, after how long."""

    error: ServerError
    again: bool = False
    wait: float | None = None  # seconds, where the server names them


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
        openai, library = client_libraries()
        self.base_url, self.timeout, self.retries = base_url, timeout, retries
        self._sleep, self._key = sleep, Key(api_key or "")
        self._wire = Wire(base_url, api_key, timeout, clock, library)
        client = library.Client(transport=self._wire, trust_env=False)
        # for the key None it would look into the environment
        made = openai.OpenAI(
            base_url=base_url, api_key="none", max_retries=0, http_client=client
        )
        self._create = made.chat.completions.with_raw_response.create

    def ask(self, options: dict[str, Any]) -> Generator[Piece, None, None]:
        """The pieces of one reply, as they come; close it to hang up before its end.

        Tried again, until a reply begins, where the server is busy, broken or cannot be
        reached. ServerError, or RefusedError for a request that it does not take.
        """
        try:
            told = yield from self._pieces(self._answered({"stream": True} | options))
            if not told:  # llama-cpp-python swallows an error when it is to stream
                whole = {k: v for k, v in options.items() if k != "stream_options"}
                told = yield from self._pieces(self._answered(whole))
            if not told:
                raise self._error("sent no choices")
        finally:
            self._wire.hang_up()

    def refuse_key(self, text: str) -> None:
        """Raise ServerError for a text of the server that holds the API key."""
        self._key.passed(self._key.watch(), text)

    def _answered(self, options: dict[str, Any]) -> Any:
        """The response whose head has come, if need be at a later try."""
        pause, left = FIRST_PAUSE, self.retries
        while isinstance(opened := self._opened(options), Failure):
            if not (opened.again and left):
                raise opened.error
            self._sleep(pause if opened.wait is None else opened.wait)
            pause, left = 2 * pause, left - 1
        return opened

    def _opened(self, options: dict[str, Any]) -> Any:
        """The response whose head has come, or a Failure."""
        try:
            return self._create(**options)
        except Exception as error:
            return self._failure(error, options)

    def _pieces(self, opened: Any) -> Generator[Piece, None, bool]:
        """The pieces of a response, and whether there were any.

        ServerError if it is damaged or breaks off.
        """
        told, ended, failure, watch = False, False, None, self._key.watch()
        streams = opened.http_response.headers.get("content-type") == EVENTS
        try:
            for chunk in opened.parse() if streams else [_whole(opened.http_response)]:
                piece = self._piece(chunk, streams)
                told, ended = True, ended or piece.finish is not None
                yield replace(piece, text=self._key.passed(watch, piece.text))
            if ended and (rest := watch.flush()):
                yield Piece(rest)
        except Exception as error:
            failure = self._damage(error)
        if failure is None and told and not ended:
            failure = self._error("ended its reply in the middle, or sent no choices")
        if failure is not None:
            raise failure
        return told

    def _piece(self, chunk: Any, streams: bool) -> Piece:
        """What a chunk of a stream, or a whole reply, says."""
        if error := getattr(chunk, "error", None):
            raise self._error(f"reports an error: {self._key.masked(error)}")
        usage = getattr(chunk, "usage", None)
        details = getattr(usage, "prompt_tokens_details", None)
        counts = (
            _count(usage, "completion_tokens"),
            _count(usage, "prompt_tokens"),
            _count(details, "cached_tokens"),
        )
        if (choice := _choice(chunk)) is None:
            return Piece("", None, *counts)
        message = getattr(choice, "message", None)
        said = getattr(choice, "delta", None) or message
        text = getattr(said, "content", None) or getattr(said, "refusal", None) or ""
        finish = getattr(choice, "finish_reason", None)
        finish = finish or (None if streams or message is None else WHOLE)
        return Piece("" + text, str(finish) if finish else None, *counts)

    def _failure(self, error: Exception, options: dict[str, Any]) -> Failure:
        """What an exception means that came instead of a response."""
        cause = error.__cause__ or error
        if hasattr(error, "status_code"):
            return self._status(error, error.status_code, options)
        if isinstance(cause, OSError) and not isinstance(cause, TimeoutError):
            told = f"cannot be reached ({type(cause).__name__}): is it running?"
            return Failure(self._error(told), again=not isinstance(cause, ssl.SSLError))
        return Failure(self._damage(error))

    def _status(self, error: Any, status: int, options: dict[str, Any]) -> Failure:
        """What a status of 300 or more means."""
        said = self._key.masked(error.body)
        if status in (400, 422) or (status == 500 and named(options, said)):
            refused = self._error(f"does not take the request ({status}): {said}")
            return Failure(RefusedError(str(refused)))
        if status in (401, 403):
            told = (
                f"refuses the API key, or that there is none ({status}): try api_key= "
                "(tinyllm agent --api-key-env)"
            )
            return Failure(self._error(told))
        if status < 400:
            told = f"sends on to another address ({status}): give that one"
            return Failure(self._error(told))
        if status < 500 and status not in BUSY:
            told = f"says {status}: check its address (often …/v1) and model; {said}"
            return Failure(self._error(told))
        wait = _seconds(error.response.headers.get("retry-after"))
        if wait is not None and wait > LONGEST_WAIT:
            told = f"says {status}, and to wait for {wait:g} seconds: try again then"
            return Failure(self._error(told))
        told = f"says {status} ({self.retries + 1} tries): {said}"
        return Failure(self._error(told), again=True, wait=wait)

    def _damage(self, error: Exception) -> ServerError:
        """What an exception means that came in the middle of a reply."""
        cause = error.__cause__ or error
        if isinstance(cause, ServerError):
            return ServerError(str(cause))
        if isinstance(cause, TimeoutError):
            told = f"gave no whole reply in {self.timeout:g} seconds: try more timeout"
        elif isinstance(cause, OSError | HTTPException):
            told = f"broke off its reply ({type(cause).__name__}): try again"
        elif isinstance(cause, UnicodeDecodeError):
            told = "cut its reply inside a character: try again"
        elif (body := getattr(error, "body", None)) is not None:
            told = f"reports an error: {self._key.masked(body)}"
        else:
            kind = type(cause).__name__
            told = f"sent no chat completion ({kind}): check its address (often …/v1)"
        return self._error(told)

    def _error(self, what: str) -> ServerError:
        """The error that says which server did what."""
        return ServerError(f"the server at {self.base_url} {what}")


def client_libraries() -> tuple[Any, Any]:
    """The module `openai` and the HTTP library beneath it; UsageError if absent."""
    try:
        openai: Any = import_module("openai")
        beneath = openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]
        return openai, import_module(beneath)  # httpx2, or httpx for older releases
    except ImportError as error:
        told = f"a chat server needs the package openai: {INSTALL}"
        raise UsageError(told) from error


def _whole(response: Any) -> Any:
    """The reply of a server that does not stream."""
    return json.loads(
        response.read(), object_hook=lambda found: SimpleNamespace(**found)
    )


def _choice(chunk: Any) -> Any:
    """The choice of index 0 or without an index, or None."""
    choices = getattr(chunk, "choices", None) or []
    return next((one for one in choices if not getattr(one, "index", None)), None)


def _count(holder: object, name: str) -> Count:
    """A count that a server gives, or None if it gives none."""
    value = getattr(holder, name, None)
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if good else None


def _seconds(text: str | None) -> float | None:
    """The seconds of a Retry-After; None where it is absent, a date or senseless."""
    try:
        seconds = float(text or "nan")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None

"""What goes over the wire to a server, bounded in time and size: `Wire`, `address`.

It connects to one address only, and holds to a time and a size for the whole reply,
however slowly a server drips. The API key and the headers are put on here, so that
neither a client nor its logs ever see the key, and nothing of the environment is sent.
"""

from __future__ import annotations

import http.client
import io
import re
import socket
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from tinyllm.errors import ServerError, UsageError

BYTE_LIMIT = 2**20  # of one reply with its headers; a call of 96 tokens takes 30 kB
READ = 2**16
HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "tinyllm",
    "Connection": "close",
}
EVENTS = "text/event-stream"
EXAMPLE = "http://127.0.0.1:8000/v1"
LONGEST = 2048  # characters of an address
MARK = b"\xef\xbb\xbf"  # a byte order mark, which a body may begin with


class Wire:
    """A transport for the HTTP client of `openai`: one connection a request.

    `library` is the HTTP library, whose Response is wanted. OSError if the server
    cannot be reached, TimeoutError (one of them) when the time is over, HTTPException
    for what is no HTTP, ServerError for a reply that is too long or compressed.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        timeout: float,
        clock: Callable[[], float],
        library: Any,
    ) -> None:
        self.host, self.port, tls = address(base_url)
        try:
            library.URL(base_url)
        except library.InvalidURL as error:
            raise _no_address(base_url) from error
        self._tls = library.create_ssl_context() if tls else None
        self._response = library.Response
        self._timeout, self._clock = timeout, clock
        self._end, self._bytes = 0.0, 0
        self._headers = dict(HEADERS)
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._connection: http.client.HTTPConnection | None = None
        self._answer: http.client.HTTPResponse | None = None

    def handle_request(self, request: Any) -> Any:
        """The response to a POST, whose body comes while it is iterated."""
        try:
            return self._asked(request)
        except HTTPException as error:
            kind = type(error).__name__
            gone = isinstance(error, OSError)
        # what a server said instead stays out of it, for clients log their exceptions
        raise ConnectionResetError(kind) if gone else HTTPException(kind)

    def _asked(self, request: Any) -> Any:
        """The response, or whatever exception."""
        self.hang_up()
        self._end, self._bytes = self._clock() + self._timeout, 0
        self._connection = connection = self._made()
        connection.connect()
        connection.sock = _TimedSocket(connection.sock, self)
        path = request.url.raw_path.decode("ascii")
        connection.request("POST", path, request.read(), self._headers)
        self._answer = answer = connection.getresponse()
        if (answer.getheader("Content-Encoding") or "identity").lower() != "identity":
            raise ServerError(
                "the server compresses its reply, which was not asked for"
            )
        body, headers = _body(answer), _kept(answer)
        return self._response(answer.status, headers=headers, content=body)

    def left(self) -> float:
        """The seconds that are left for this reply; TimeoutError if none are."""
        seconds = self._end - self._clock()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def count(self, n_bytes: int) -> None:
        """Note what has come; ServerError beyond BYTE_LIMIT."""
        self._bytes += n_bytes
        if self._bytes > BYTE_LIMIT:
            raise ServerError(
                f"the server sent a reply of more than {BYTE_LIMIT} bytes"
            )

    def hang_up(self) -> None:
        """Close the connection, if there is one."""
        for thing in (self._answer, self._connection):
            if thing is not None:
                thing.close()
        self._answer = self._connection = None

    def close(self) -> None:
        """The same, as the client calls it."""
        self.hang_up()

    def _made(self) -> http.client.HTTPConnection:
        """A connection that is not connected yet."""
        seconds = self.left()
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, seconds)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=seconds, context=self._tls
        )


class _TimedSocket:
    """A connected socket whose every wait is cut to the time that is left."""

    def __init__(self, sock: socket.socket, wire: Wire) -> None:
        self._sock, self._wire = sock, wire

    def sendall(self, data: bytes) -> None:
        """Send the data, all of it within the time."""
        self._sock.settimeout(self._wire.left())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """What http.client reads the response from; it keeps the socket open."""
        raw = self._sock.makefile("rb", buffering=0)
        return io.BufferedReader(_TimedReader(raw, self._sock, self._wire))

    def close(self) -> None:
        """Close it, as soon as its reader is closed as well."""
        self._sock.close()


class _TimedReader(io.RawIOBase):
    """The bytes of a socket, counted, each wait cut to the time that is left."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, wire: Wire) -> None:
        self._raw, self._sock, self._wire = raw, sock, wire

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read into the buffer; how many bytes came."""
        self._sock.settimeout(self._wire.left())
        n_bytes: int | None = self._raw.readinto(buffer)
        self._wire.count(n_bytes or 0)
        return n_bytes

    def close(self) -> None:
        """Close it, and with it the socket."""
        self._raw.close()
        super().close()


def _body(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body as it comes, without a byte order mark before it."""
    head = b""
    while head != MARK and MARK.startswith(head) and (more := answer.read1(READ)):
        head += more
    yield head.removeprefix(MARK)
    yield from iter(lambda: answer.read1(READ), b"")


def _kept(answer: http.client.HTTPResponse) -> dict[str, str]:
    """What is looked at of the headers; clients log them, whatever they hold."""
    headers = {}
    if EVENTS in (answer.getheader("Content-Type") or "").lower():
        headers["Content-Type"] = EVENTS
    if re.fullmatch("[0-9.]{1,20}", after := answer.getheader("Retry-After") or ""):
        headers["Retry-After"] = after
    return headers


def address(base_url: str) -> tuple[str, int, bool]:
    """Host, port and whether TLS; UsageError for what is no plain http(s) address.

    >>> address("http://localhost:8000/v1")
    ('localhost', 8000, False)
    """
    try:
        found = urlsplit(base_url)
        port, host = found.port, found.hostname
        plain = port != 0 and "@" not in found.netloc and len(base_url) <= LONGEST
        plain = plain and re.fullmatch("[!-~]+", base_url) is not None
        plain = plain and not re.search("[?#]", base_url)
        good = found.scheme in ("http", "https") and plain
    except (ValueError, TypeError, AttributeError):
        good, host = False, None
    if not (good and host):
        raise _no_address(base_url)
    tls = found.scheme == "https"
    return host, port or (443 if tls else 80), tls


def _no_address(base_url: object) -> UsageError:
    """The error for what is no plain address; a password is not shown."""
    shown = "" if "@" in str(base_url) else f", not {base_url!r:.60}"
    return UsageError(
        f"a server (base_url) is an address such as {EXAMPLE!r}, without user, "
        f"password, ? or #{shown}"
    )

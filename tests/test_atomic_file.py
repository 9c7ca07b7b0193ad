"""A file that appears whole or not at all."""

from __future__ import annotations

import stat

import pytest

from tinyllm.atomic_file import atomic_file


def test_the_new_file_takes_the_old_ones_place_at_the_end(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    with atomic_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["model.bin"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")

    def fail():
        with atomic_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["model.bin"]


def test_the_file_can_be_read_by_others_as_any_new_file_can(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    with atomic_file(tmp_path / "whole") as file:
        file.write(b"x")
    modes = {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {stat.S_IMODE(plain.stat().st_mode)}


def test_a_folder_in_the_way_is_the_error_of_opening_and_stays(tmp_path):
    (tmp_path / "model.bin.part").mkdir()
    with pytest.raises(OSError) as raised, atomic_file(tmp_path / "model.bin"):
        pass
    assert raised.value.__context__ is None
    assert [p.name for p in tmp_path.iterdir()] == ["model.bin.part"]


def test_a_link_in_the_place_of_the_unfinished_file_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"somebody's")
    (tmp_path / "model.bin.part").symlink_to(other)
    with atomic_file(tmp_path / "model.bin") as file:
        file.write(b"new")
    assert other.read_bytes() == b"somebody's"
    assert not (tmp_path / "model.bin").is_symlink()

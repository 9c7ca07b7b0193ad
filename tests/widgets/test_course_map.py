"""The map of the course agrees with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the notebooks extra is not installed")

import tinyllm
from tinyllm.widgets import course_map

PACKAGE = Path(tinyllm.__file__).parent


def test_every_part_of_the_map_is_a_folder_of_the_package():
    for name in course_map.PARTS:
        assert (PACKAGE / name / "__init__.py").is_file(), name


def test_every_folder_of_the_package_is_on_the_map():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders - {"cli", "models", "widgets"} == set(course_map.PARTS)


def test_every_chapter_is_on_the_map():
    chapters = {c for p in course_map.PARTS.values() for c in p.chapters.split(", ")}
    assert chapters == {f"{n:02}" for n in range(12)}


def test_the_words_name_every_arrow():
    for start, end in course_map.ARROWS:
        (line,) = (x for x in course_map.told().splitlines() if x.split()[0] == start)
        assert end in line


def test_the_picture_is_the_same_each_time_and_has_alt_text():
    one, two = course_map.draw(), course_map.draw()
    assert one.data == two.data
    assert one.alt == course_map.told()

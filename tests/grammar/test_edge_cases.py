"""Cases that other engines got wrong, through the machine that makes the masks.

`edge_cases.json`: rows of schema, text (`bytes` in Latin-1) and what is wanted;
"policy" is for each engine to decide, and here it is the smaller language.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.toy_tokenizer import byte_level
from tinyllm import grammar

ROWS = json.loads(Path(__file__).with_name("edge_cases.json").read_text("utf-8"))
TOKENIZER = byte_level(b'{"', b'":', b'"}', b"}}", b"]]", b'","', b"\\u00")
SPACED = {"ws: 1 space"}


@pytest.mark.parametrize("spaces", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_each_case_is_decided_as_wanted(row: dict[str, Any], spaces: bool) -> None:
    made = grammar.compile(row["schema"], TOKENIZER, spaces=spaces)
    accepted = made.machine.accepts(row["bytes"].encode("latin-1"))
    wanted = {"accept": True, "reject": False}.get(row["want"])
    if wanted is None:
        wanted = spaces and row["name"] in SPACED
    assert accepted == wanted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_receipt_of_each_case_refuses_nothing(row: dict[str, Any]) -> None:
    assert {verdict for *_, verdict in grammar.receipt(row["schema"])} <= {
        "enforced",
        "annotation",
    }

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import uuid
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grammar_acceptor import Acceptor, acceptor
from tinyllm.grammar.jsonschema.formats import FORMATS


@pytest.fixture(scope="module")
def readers() -> dict[str, Acceptor]:
    return {name: acceptor({"type": "string", "format": name}) for name in FORMATS}


ROWS: dict[str, tuple[list[str], list[str]]] = {
    "date": (["2024-02-29", "2000-02-29"], ["2023-02-29", "1900-02-29", "2024-13-01"]),
    "time": (["23:59:59Z", "00:00:00.5+23:59"], ["24:00:00Z", "12:00:00", "1:00:00Z"]),
    "date-time": (["1985-04-12T23:20:50.52Z"], ["1985-04-12 23:20:50Z", "1985-04-12"]),
    "duration": (
        ["P1Y2M3DT4H5M6S", "PT1S", "P2W"],
        ["P", "PT", "P1S", "P1YT"],
    ),
    "email": (["joe.bloggs@a.example"], ["joe", "@a", "a@", ".a@b", "a..b@c", "a@-b"]),
    "hostname": (["a", "www.example.com", "x-1"], ["-a", "a-", "a..b", "a" * 64, ""]),
    "ipv4": (["0.0.0.0", "255.255.255.255"], ["256.0.0.0", "1.2.3", "01.2.3.4"]),
    "ipv6": (["::", "1::8", "1:2:3:4:5:6:7:8", "::1.2.3.4"], ["1::2::3", ":1"]),
    "uuid": (
        ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"],
        ["2eb8aa08aa9811ea"],
    ),
    "uri": (["http://a.b/c?d=e#f", "urn:x:y", "mailto:a@b"], ["/a", "a b:c", "http:"]),
    "json-pointer": (["", "/a~0b/~1", "/a//b"], ["a", "/~2", "/~"]),
    "relative-json-pointer": (["0", "1/a", "2#"], ["01", "/a", "-1"]),
}


def test_every_format_has_a_row() -> None:
    assert ROWS.keys() == FORMATS.keys()


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_holds_its_texts_and_no_others(
    name: str, readers: dict[str, Acceptor]
) -> None:
    inside, outside = ROWS[name]
    for text in inside:
        assert readers[name].accepts(json.dumps(text).encode()), text
    for text in outside:
        assert not readers[name].accepts(json.dumps(text).encode()), text


READERS: dict[str, Callable[[str], object]] = {
    "date": datetime.date.fromisoformat,
    "date-time": lambda text: datetime.datetime.fromisoformat(text.upper()),
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uuid": uuid.UUID,
    "uri": urlsplit,
}


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_what_a_format_writes_is_read_by_the_standard_library(
    name: str, data: st.DataObject
) -> None:
    text = data.draw(st.from_regex(re.compile(FORMATS[name], re.ASCII), fullmatch=True))
    if name in ("date", "date-time") and text.startswith("0000"):
        return  # a year of RFC 3339, but not of Python
    READERS[name](text)


PIECES = st.sampled_from(["::", ":", "1", "ab", ":0", "1.2.3.4", "ffff"])


@given(st.lists(PIECES, min_size=1, max_size=11).map("".join))
def test_an_address_is_one_of_ipv6_exactly_if_the_standard_library_reads_it(
    text: str,
) -> None:
    try:
        ipaddress.IPv6Address(text)
        known = True
    except ValueError:
        known = False
    assert (re.fullmatch(FORMATS["ipv6"], text) is not None) is known

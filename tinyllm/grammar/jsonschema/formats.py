"""The formats of JSON Schema that are asserted, as patterns of a whole string.

Public: FORMATS, INEXACT.

Each is a subset of its RFC, so that what is written is valid; a comment beside it says
what is left out. Other formats are refused by name.
"""

from __future__ import annotations

_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_ANY_YEAR = r"(?:0{3}[1-9]|0{2}[1-9]\d|0[1-9]\d{2}|[1-9]\d{3})"  # from 0001
_DATE = (
    rf"(?:{_ANY_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
    rf"|{_YEAR}-02-29)"
)
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d"
_TIME = rf"{_CLOCK}:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-]{_CLOCK})"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_GROUP = "[0-9A-Fa-f]{1,4}"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_PERCENT = "%[0-9A-Fa-f]{2}"
_URI_CHAR = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|{_PERCENT})"
_HOST = rf"(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_PERCENT})"
_PATH_CHAR = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_PERCENT})"
_AUTHORITY = rf"//(?:{_HOST}+@)?{_HOST}+(?::\d*)?(?:/{_PATH_CHAR}*)*"
_QUERY = rf"(?:\?(?:{_URI_CHAR}|\?)*)?(?:#(?:{_URI_CHAR}|\?)*)?"
_DATE_PERIOD = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
_TIME_PERIOD = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_POINTER = "(?:/(?:[^~/]|~[01])*)*"


def _ipv6() -> str:
    """Return RFC 4291: eight groups, two of them as IPv4 or not, some as ::."""
    forms = [rf"(?:{_GROUP}:){{7}}{_GROUP}", rf"(?:{_GROUP}:){{6}}{_IPV4}"]
    for n_before in range(8):
        more = f"(?::{_GROUP}){{{n_before - 1}}}" if n_before > 1 else ""
        before = f"{_GROUP}{more}::" if n_before else "::"
        n_after = 7 - n_before
        limit = max(n_after - 1, 0)
        forms.append(
            f"{before}(?:{_GROUP}(?::{_GROUP}){{0,{limit}}})?" if n_after else before
        )
        if n_after >= 2:
            forms.append(f"{before}(?:{_GROUP}:){{0,{n_after - 2}}}{_IPV4}")
    return "|".join(forms)


_PATH = f"{_PATH_CHAR}*(?:/{_PATH_CHAR}*)*"
_WHOLE = {
    "date": _DATE,  # RFC 3339 full-date
    "time": _TIME,  # RFC 3339 full-time, without leap seconds
    "date-time": f"{_DATE}[Tt]{_TIME}",  # RFC 3339, without leap seconds
    "duration": rf"P(?:\d+W|{_DATE_PERIOD}(?:{_TIME_PERIOD})?|{_TIME_PERIOD})",
    "email": rf"{_ATOM}(?:\.{_ATOM})*@{_HOSTNAME}",  # RFC 5321: dot-atom, host name
    "hostname": _HOSTNAME,  # RFC 1123: up to four labels
    "ipv4": _IPV4,  # RFC 2673, without leading zeros
    "ipv6": _ipv6(),  # RFC 4291, without a zone
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",  # RFC 9562
    # RFC 3986: a host name or address as authority, or a path without one.
    "uri": f"[A-Za-z][A-Za-z0-9+.-]*:(?:{_AUTHORITY}|/?{_PATH_CHAR}{_PATH}){_QUERY}",
    "json-pointer": _POINTER,  # RFC 6901
    "relative-json-pointer": rf"(?:0|[1-9]\d*)(?:#|{_POINTER})",
}
FORMATS = {name: f"^(?:{pattern})$" for name, pattern in _WHOLE.items()}
# A string outside these may be of the format or not: no complement of them is written.
INEXACT = frozenset(
    FORMATS[name] for name in FORMATS if name not in {"ipv4", "uuid", "json-pointer"}
)

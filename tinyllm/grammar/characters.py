"""Sets of code points with a name in regular expressions.

Public: CLASSES, CONTROLS, LINE_BREAKS, SPACES, category.
"""

from __future__ import annotations

import sys
import unicodedata

from tinyllm.grammar.utf8 import Range, complement, merge

CLASSES: dict[str, list[Range]] = {
    "d": [(0x30, 0x39)],
    "s": [(0x09, 0x0D), (0x20, 0x20)],
    "w": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
}
CLASSES |= {name.upper(): complement(CLASSES[name]) for name in "dsw"}
CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0}
LINE_BREAKS = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]
# ECMA-262, WhiteSpace and LineTerminator: ASCII, NBSP, BOM, and the category Zs.
_SPACES = [*range(9, 14), 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B)]
_SPACES += [0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
SPACES: list[Range] = merge((code, code) for code in _SPACES)
_LONG_NAMES = {
    "Letter": "L",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "Punctuation": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Space_Separator": "Zs",
}
_SHORT_NAMES = {
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd"),
    *("Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc"),
}


def category(name: str) -> list[Range] | None:
    """The code points of a general category, as of unicodedata; None if unknown.

    category("Nd") and category("Decimal_Number") begin with (0x30, 0x39).
    """
    name = name.removeprefix("General_Category=").removeprefix("gc=")
    short = _LONG_NAMES.get(name, name)
    if short not in _SHORT_NAMES | {known[0] for known in _SHORT_NAMES} - {"C"}:
        return None
    category_of = unicodedata.category
    codes = range(sys.maxunicode + 1)
    return merge((c, c) for c in codes if category_of(chr(c)).startswith(short))

"""Regular expressions, read into an expression tree over UTF-8 bytes.

Public: parse, MAX_COUNT, MAX_DEPTH.

The whole text must match, so ^ at the very start and $ at the very end change nothing
and are allowed there only. Supported: characters, escapes, classes, groups, |, * + ?
{m} {m,} {m,n}, also with a lazy ? behind, which does not change the language. The dot
is any code point except a line break (\\n, \\r, U+2028, U+2029, as in ECMA-262);
\\d \\w \\s are ASCII; \\p{Lu} is a category of Unicode. Everything else raises
GrammarError, which names it. In a pattern of JSON Schema (`anchors`), ^ and $ may stand
anywhere and \\s holds the spaces of Unicode too, as in ECMA-262.

Before: grammar.utf8. Next: grammar.network.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import (
    Alternation,
    Concatenation,
    Expression,
    Repetition,
)
from tinyllm.grammar.utf8 import ANY, Range, code_points, complement, merge

MAX_COUNT = 1_000_000
MAX_DEPTH = 100  # groups inside groups

Bounds = tuple[int, int | None]
Spell = Callable[[Iterable[Range]], Expression]
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_SIGNS: dict[str, Bounds] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_COUNT = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_GROUPS = {
    "?=": "lookahead",
    "?!": "lookahead",
    "?<=": "lookbehind",
    "?<!": "lookbehind",
    "?P": "a named group",
    "?>": "an atomic group",
    "?(": "a conditional group",
    "?#": "a comment",
    "?": "an inline flag",
}

CLASSES: dict[str, list[Range]] = {
    "d": [(0x30, 0x39)],
    "s": [(0x09, 0x0D), (0x20, 0x20)],
    "w": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
}
# \D, \W and \S are all other code points.
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
_CATEGORIES = re.compile("L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|Cc")


def parse(
    pattern: str,
    spell: Spell = code_points,
    anchors: tuple[Expression, Expression] | None = None,
) -> Expression:
    """Return the tree of a regular expression that must match the whole text.

    parse("a|bc") matches "a" and "bc". `spell` turns a set of code points into the tree
    of their spellings; `anchors` are the trees of ^ and $ where these may stand
    anywhere. Raises GrammarError, which names what is not supported and where it is.
    """
    parser = _Parser(pattern, spell, anchors)
    if anchors is None:
        parser.take("^")
    tree = parser.alternation()
    if parser.position < len(pattern):
        raise parser.error("a ) without its (")
    return tree


def _short(pattern: str) -> str:
    short = pattern if len(pattern) <= 60 else pattern[:57] + "..."
    return short.encode("utf-8", "backslashreplace").decode()  # lone surrogates


@dataclass
class _Parser:
    """Recursive descent: one method for each level of precedence."""

    pattern: str
    spell: Spell
    anchors: tuple[Expression, Expression] | None
    position: int = 0
    depth: int = 0

    def error(self, what: str, hint: str = "") -> GrammarError:
        """Return the error for what is at the present position."""
        return GrammarError(
            f"{what} at position {self.position} of the regular expression "
            f"{_short(self.pattern)} cannot be used{hint and ': '}{hint}"
        )

    def peek(self, text: str) -> bool:
        """Return whether `text` comes next."""
        return self.pattern.startswith(text, self.position)

    def take(self, text: str) -> bool:
        """Return whether `text` comes next, and skip it if so."""
        if not self.peek(text):
            return False
        self.position += len(text)
        return True

    def next(self, inside: str) -> str:
        """Return the next character and skip it."""
        if self.position >= len(self.pattern):
            raise self.error(f"the end of {inside}", "it is not complete")
        self.position += 1
        return self.real(self.pattern[self.position - 1])

    def real(self, char: str) -> str:
        """Return the character itself. GrammarError for a surrogate."""
        if "\ud800" <= char <= "\udfff":
            raise self.error("a surrogate", "it has no UTF-8 bytes")
        return char

    def at_end(self) -> bool:
        """Return whether nothing is left but a final $."""
        if self.anchors is None and self.position == len(self.pattern) - 1:
            self.take("$")
        return self.position >= len(self.pattern)

    def alternation(self) -> Expression:
        """Return the tree of one or more sequences with | between them."""
        options = [self.sequence()]
        while self.take("|"):
            options.append(self.sequence())
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def sequence(self) -> Expression:
        """Return the tree of all pieces up to the next | or ) or the end."""
        parts: list[Expression] = []
        while not (self.at_end() or self.peek("|") or self.peek(")")):
            parts.append(self.repeated())
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def repeated(self) -> Expression:
        """Return the tree of one piece and the repetition after it, if any."""
        body, begin = self.atom(), self.position
        bounds = self.bounds()
        if bounds is None:
            return body
        if max(bounds[0], bounds[1] or 0) > MAX_COUNT:
            cause = f"the repetition {self.pattern[begin : self.position]}"
            raise self.error(cause, f"no count may exceed {MAX_COUNT}")
        self.take("?")
        if self.position < len(self.pattern) and self.pattern[self.position] in "*+?{":
            raise self.error("a repetition of a repetition", "put the first in (?:…)")
        return Repetition(body, *bounds)

    def bounds(self) -> Bounds | None:
        """Return the bounds of a repetition, None if none comes next."""
        for sign in _SIGNS:
            if self.take(sign):
                return _SIGNS[sign]
        if not self.peek("{"):
            return None
        found = _COUNT.match(self.pattern, self.position)
        if found is None:
            raise self.error("{", r"write {m}, {m,} or {m,n}, or \{ for itself")
        self.position = found.end()
        least, comma, most = found.groups()
        if len(least) > 9 or len(most or "") > 9:
            raise self.error(f"the repetition {found[0]}", f"at most {MAX_COUNT}")
        bounds = int(least), int(most or least) if most or not comma else None
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise self.error(f"the repetition {found[0]}", "its bounds are reversed")
        return bounds

    def atom(self) -> Expression:
        """Return the tree of a character, a class, the dot or a group."""
        char = self.pattern[self.position]
        if char in "^$":
            return self.anchor(char)
        if char in "*+?{":
            raise self.error(f"{char} with nothing before it", f"write \\{char}")
        if self.take("("):
            return self.group()
        if self.take("["):
            return self.spell(self.char_class())
        if self.take("."):
            return self.spell(complement(LINE_BREAKS))
        if self.take("\\"):
            return self.spell(self.escape())
        self.position += 1
        return self.spell([(ord(self.real(char)), ord(char))])

    def anchor(self, char: str) -> Expression:
        """Return the tree of ^ or $, which may not be repeated."""
        if self.anchors is None:
            raise self.error(f"the anchor {char} inside", r"the whole text must match")
        self.position += 1
        if self.position < len(self.pattern) and self.pattern[self.position] in "*+?{":
            raise self.error(f"a repetition of the anchor {char}")
        return self.anchors["^$".index(char)]

    def group(self) -> Expression:
        """Return the tree of a group whose ( was read."""
        if not (self.take("?:") or self.named()):
            for sign, name in _GROUPS.items():
                if self.peek(sign):
                    raise self.error(f"{name} (({sign}…))", "use (?:…) or (…)")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"a group more than {MAX_DEPTH} deep")
        tree = self.alternation()
        if not self.take(")"):
            raise self.error("the end of a group", "its ) is missing")
        self.depth -= 1
        return tree

    def named(self) -> bool:
        """Return whether a group has a name, ?<name>, and skip it if so."""
        found = re.compile(r"\?P?<[A-Za-z_]\w*>", re.ASCII).match(
            self.pattern, self.position
        )
        self.position = found.end() if found else self.position
        return found is not None

    def char_class(self) -> list[Range]:
        """Return the ranges of a class whose [ was read."""
        negated, ranges = self.take("^"), list[Range]()
        while not self.take("]"):
            first = self.class_member()
            if self.peek("-") and not self.peek("-]"):
                self.position += 1
                first = [self.between(first, self.class_member())]
            ranges += first
        if not ranges:
            raise self.error("an empty class", r"write \] for ] itself")
        return complement(ranges) if negated else ranges

    def class_member(self) -> list[Range]:
        """Return the ranges of one character or escape of a class."""
        char = self.next("a class")
        return self.escape() if char == "\\" else [(ord(char), ord(char))]

    def between(self, first: list[Range], last: list[Range]) -> Range:
        """Return the range from one character of a class to another."""
        (low, low_end), (high, high_end) = first[0], last[-1]
        if low != low_end or high != high_end or low > high:
            raise self.error("a range of a class", "it goes from a lower to a higher")
        return low, high

    def escape(self) -> list[Range]:
        r"""Return the ranges of an escape whose \ was read."""
        char = self.next("an escape")
        if self.anchors is not None and char in "sS":
            return SPACES if char == "s" else complement(SPACES)
        if char in CLASSES:
            return CLASSES[char]
        if char in "pP" and self.peek("{"):
            return self.property(negated=char == "P")
        if char in _HEX_DIGITS:
            return [self.hex_escape(char)]
        if char in "123456789":
            raise self.error(f"the backreference \\{char}")
        if char == "0" and self.pattern[self.position : self.position + 1].isdigit():
            raise self.error(
                "a digit after \\0", r"write \x00 for NUL, \xhh for others"
            )
        if char in CONTROLS:
            return [(CONTROLS[char], CONTROLS[char])]
        if char.isalnum():
            kind = "anchor" if char in "bBAZz" else "escape"
            raise self.error(f"the {kind} \\{char}")
        return [(ord(char), ord(char))]

    def hex_escape(self, kind: str) -> Range:
        r"""Return the code point of \xhh, \uhhhh or \Uhhhhhhhh after its letter."""
        digits = self.pattern[self.position : self.position + _HEX_DIGITS[kind]]
        if not re.fullmatch(f"[0-9a-fA-F]{{{_HEX_DIGITS[kind]}}}", digits):
            raise self.error(f"\\{kind}", f"{_HEX_DIGITS[kind]} hex digits must follow")
        code_point = int(digits, 16)
        if not any(first <= code_point <= last for first, last in ANY):
            raise self.error(f"\\{kind}{digits}", "it is not a character")
        self.position += len(digits)
        return code_point, code_point

    def property(self, negated: bool) -> list[Range]:
        r"""Return the code points of \p{Name} or \P{Name} after its letter."""
        found = re.compile(r"\{([A-Za-z_=]+)\}").match(self.pattern, self.position)
        ranges = category(found[1]) if found else None
        if found is None or ranges is None:
            raise self.error(r"the property of \p", r"write a category, as in \p{Lu}")
        self.position = found.end()
        return complement(ranges) if negated else ranges


def category(name: str) -> list[Range] | None:
    """Return the code points of a general category of Unicode, None if unknown.

    category("Nd") and category("Decimal_Number") begin with (0x30, 0x39).
    """
    name = name.removeprefix("General_Category=").removeprefix("gc=")
    short = _LONG_NAMES.get(name, name)
    if not _CATEGORIES.fullmatch(short):
        return None
    category_of = unicodedata.category
    codes = range(sys.maxunicode + 1)
    return merge((c, c) for c in codes if category_of(chr(c)).startswith(short))

"""A calculator for untrusted text: exact, and quick whatever it is given.

Public: `calc`.

Three gates, each enough to stop a whole kind of attack: only digits, operators and
brackets may appear and at most `LENGTH_LIMIT` of them; only whitelisted nodes of the
syntax tree are evaluated, by this module and never by `eval`; no intermediate value may
have more than about `DIGIT_LIMIT` digits, and a power is refused before it is raised.

All values are fractions, so 0.1 + 0.2 is 0.3 and 10 / 4 * 2 is 5.

Before: agent.protocol. Next: agent.files.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

from tinyllm.errors import ToolError

LENGTH_LIMIT = 200  # characters of an expression
DIGIT_LIMIT = 64  # decimal digits of any value on the way
BIT_LIMIT = DIGIT_LIMIT * 10 // 3  # a decimal digit takes log2(10) = 3.32 bits
PLACES = 6  # decimals of a result that is not a whole number

# no letters, so no names, no attributes and no calls
_FOREIGN = re.compile(r"[^0-9+\-*/%(). ]")


def calc(expression: str) -> str:
    """Calculate with + - * / // % ** and brackets.

    The result is exact where it is whole, else a decimal rounded to six places (six
    significant digits below 1). ToolError says what cannot be calculated, and why.

    >>> calc("4871 * 209"), calc("7 / 2"), calc("2 / 3"), calc("9 / 3")
    ('1018039', '3.5', '0.666667', '3')
    """
    text = expression.strip()
    if len(text) > LENGTH_LIMIT:
        raise ToolError(f"the expression has {len(text)} characters, > {LENGTH_LIMIT}")
    if foreign := _FOREIGN.search(text):
        raise ToolError(f"calc reads numbers, + - * / % and ( ), not {foreign[0]!r}")
    try:
        return _decimal(_value(ast.parse(text, mode="eval").body, text))
    except ZeroDivisionError as error:
        raise ToolError("division by zero") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"cannot read {text!r:.40} as arithmetic") from error


def _value(node: ast.expr, text: str) -> Fraction:
    """Return the value of a node; each kind that may occur has one line here."""
    if isinstance(node, ast.Constant):
        # from the digits as typed: node.value of 0.1 is a float, and not 1/10
        return _capped(Fraction(ast.get_source_segment(text, node) or ""))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, text))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, text), _value(node.right, text)
        return _capped(Fraction(_BINARY[type(node.op)](left, right)))
    raise ToolError(f"calc reads numbers and operators, not {text!r:.40}")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """Return base ** exponent, refused before it is raised if it must be too large."""
    if exponent.denominator != 1:
        raise ToolError("an exponent must be a whole number")
    # 9**9**9 would fill the memory, but the size of the result is known beforehand
    if (_bits(base) - 1) * abs(exponent) > BIT_LIMIT:
        raise ToolError(f"the power has more than {DIGIT_LIMIT} digits")
    return Fraction(base ** int(exponent))


def _capped(value: Fraction) -> Fraction:
    """Return the value; ToolError if it has too many digits to go on with."""
    if _bits(value) > BIT_LIMIT:
        raise ToolError(f"a number has more than {DIGIT_LIMIT} digits")
    return value


def _bits(value: Fraction) -> int:
    """Return the number of bits of numerator or denominator, the larger."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _decimal(value: Fraction) -> str:
    """Return the value as text: no exponent, no trailing zeros."""
    if value.denominator == 1:
        return str(value.numerator)
    whole = abs(int(value))
    # a Context counts significant digits: those before the point come on top
    context = Context(prec=PLACES + (len(str(whole)) if whole else 0))
    quotient = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{quotient:f}".rstrip("0").rstrip(".")


_UNARY: dict[type[ast.unaryop], Callable[[Fraction], Fraction]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_BINARY: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}

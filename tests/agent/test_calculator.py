"""The calculator: exact, and whatever it is given, it refuses at once or is done."""

from __future__ import annotations

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.agent.calculator import calc
from tinyllm.agent.tools import Registry
from tinyllm.errors import ToolError


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("4871 * 209", "1018039"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("-2**2", "-4"),
        ("2**3**2", "512"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("9 / 3", "3"),
        ("7 / 2", "3.5"),
        ("2 / 3", "0.666667"),
        ("-200 / 3", "-66.666667"),
        ("10 / 4 * 2", "5"),
        ("0.1 + 0.2", "0.3"),
        ("0.1 + 0.2 - 0.3", "0"),
        ("2**-3", "0.125"),
        ("2**200", str(2**200)),
        ("9007199254740993 + 0.0", "9007199254740993"),
        ("123456789012345678901234567890 * 10", "1234567890123456789012345678900"),
        ("1 / 7000000", "0.000000142857"),
        (" +5 ", "5"),
    ],
)
def test_the_calculator_is_exact(expression, value):
    assert calc(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('touch x')",
        "().__class__.__bases__[0].__subclasses__()",
        "9**9**9",
        "2**(10**9)",
        "(9**60)**(9**60)",
        "1/3**9**9",
        "1/0",
        "1 % 0",
        "0**-1",
        "(" * 10_000,
        "(" * 199,
        "9" * 10**6,
        "9" * 199,
        "-" * 10**6 + "1",
        "4**0.5",
        "1e5",
        "1 2",
        "(1)(2)",
        "()",
        "x",
        "1 if 1 else 2",
        "1 < 2",
        "1,2",
        "'a'*9",
        "1\n2",
        "\0",
        "١+١",
        "1_0",
        "007",
        "",
        "...",
    ],
    ids=lambda text: text[:40],
)
def test_the_calculator_refuses_at_once(expression, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = Registry([calc]).call("calc", {"expression": expression})
    assert seen.startswith("error: ")
    assert len(seen) < 160
    assert os.listdir(tmp_path) == []


def test_an_expression_may_have_200_characters():
    assert calc("1+" * 99 + "10") == "109"
    with pytest.raises(ToolError, match="201 characters"):
        calc("1+" * 100 + "1")


@given(st.integers(0, 10**12), st.sampled_from("+-*"), st.integers(0, 10**12))
def test_the_calculator_agrees_with_python(a, op, b):
    value = {"+": a + b, "-": a - b, "*": a * b}[op]
    assert calc(f"{a} {op} {b}") == str(value)


@given(st.text("0123456789+-*/%(). ", max_size=30) | st.text(max_size=30))
def test_the_calculator_raises_nothing_but_tool_errors(text):
    with contextlib.suppress(ToolError):
        assert len(calc(text)) < 150

"""Tools: schemas from signatures, errors as observations, nothing leaked."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.agent import tools
from tinyllm.agent.tools import Registry, Tool, calc
from tinyllm.errors import ToolError


def area(width: int, height: float = 1.0, unit: str = "m", square: bool = True) -> str:
    """Work out an area.

    A second line that is not shown.
    """
    return f"{width * height} {unit}{square}"


def object_schema(properties, required):
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def test_the_schema_is_the_signature():
    tool = Tool.of(area)
    properties = {
        "width": {"type": "integer"},
        "height": {"type": "number"},
        "unit": {"type": "string"},
        "square": {"type": "boolean"},
    }
    assert tool.parameters == object_schema(properties, ["width"])
    assert (tool.name, tool.description) == ("area", "Work out an area.")


def no_doc(x: int) -> str:
    return ""


def no_type(x) -> str:
    """Doc."""


def list_type(x: list[int]) -> str:
    """Doc."""


def maybe_type(x: int | None) -> str:
    """Doc."""


def many(*x: int) -> str:
    """Doc."""


def named(**x: int) -> str:
    """Doc."""


def by_position(x: int, /) -> str:
    """Doc."""


def lost_type(x: Nowhere) -> str:  # noqa: F821
    """Doc."""


@pytest.mark.parametrize(
    "function",
    [no_doc, no_type, list_type, maybe_type, many, named, by_position, lost_type]
    + [lambda: ""],
)
def test_a_function_that_cannot_be_described_is_refused_by_name(function):
    with pytest.raises(ToolError, match=function.__name__):
        Tool.of(function)


def test_a_registry_keeps_its_order_and_describes_itself(tmp_path):
    registry = Registry([tools.answer, tools.list_files(tmp_path), area])
    shown = "answer(text) list_files() area(width, height, unit, square)"
    assert registry.describe() == shown
    default = tools.default(tmp_path)
    assert default.describe() == "calc(expression) read_file(path) answer(text)"


def test_the_schema_of_a_registry_has_one_branch_a_tool():
    text = object_schema({"text": {"type": "string"}}, ["text"])
    expression = object_schema({"expression": {"type": "string"}}, ["expression"])
    answer = {"tool": {"const": "answer"}, "args": text}
    calculate = {"tool": {"const": "calc"}, "args": expression}
    assert Registry([tools.answer, calc]).schema() == {
        "anyOf": [
            object_schema(answer, ["tool", "args"]),
            object_schema(calculate, ["tool", "args"]),
        ]
    }


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ToolError, match="calc"):
        Registry([calc, tools.answer, calc])


def test_an_empty_registry_has_no_schema():
    with pytest.raises(ToolError, match="no tools"):
        Registry([]).schema()


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("nix", {}, "there is no tool 'nix', only area"),
        ("__class__", {}, "there is no tool"),
        ("area", {}, "needs width"),
        ("area", {"width": 1, "depth": 2}, "not 'depth'"),
        ("area", {"width": "1"}, "width must be of type integer"),
        ("area", {"width": 1.0}, "width must be of type integer"),
        ("area", {"width": True}, "width must be of type integer"),
        ("area", {"width": 1, "height": False}, "height must be of type number"),
        ("area", {"width": 1, "square": 1}, "square must be of type boolean"),
        ("area", {"width": None}, "width must be of type integer"),
    ],
)
def test_a_wrong_call_is_an_observation(name, args, reason):
    seen = Registry([area]).call(name, args)
    assert seen.startswith("error: ")
    assert reason in seen


def test_a_right_call_gives_what_the_tool_returns():
    assert Registry([area]).call("area", {"width": 2, "height": 3}) == "6 mTrue"


@pytest.mark.parametrize(
    "raised", [ValueError, RecursionError, SystemExit, MemoryError]
)
def test_a_raising_tool_is_an_observation(raised):
    def broken() -> str:
        """Fail."""
        raise raised("x" * 1000)

    seen = Registry([broken]).call("broken", {})
    assert seen.startswith(f"error: broken failed with {raised.__name__}: xxx")
    assert len(seen) < 200


def test_an_interrupt_passes_through():
    def slow() -> str:
        """Wait."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Registry([slow]).call("slow", {})


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


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "a.txt").write_text("17\n")
    (root / "folder" / "b.txt").write_text("deep")
    (root / "latin.txt").write_bytes("café".encode("latin-1"))
    (root / "inner.txt").symlink_to("a.txt")
    evil = tmp_path / "root-evil"
    evil.mkdir()
    for secret in (tmp_path / "secret.txt", evil / "secret.txt"):
        secret.write_text("TOP SECRET")
    (root / "leaves.txt").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    (root / "circle").symlink_to("circle")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize(
    "path", ["a.txt", "./a.txt", "folder/../a.txt", "inner.txt", "../root/a.txt"]
)
def test_a_file_inside_is_read_without_its_last_line_break(root, path):
    assert tools.default(root).call("read_file", {"path": path}) == "17"


def test_only_one_trailing_line_break_is_dropped(root):
    read = tools.default(root)
    for written, seen in [
        (b"x\n\n", "x\n"),
        (b"x\r\n", "x"),
        (b"", ""),
        (b" x ", " x "),
    ]:
        (root / "c.txt").write_bytes(written)
        assert read.call("read_file", {"path": "c.txt"}) == seen


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../secret.txt", "outside"),
        ("../root-evil/secret.txt", "outside"),
        ("../nothing.txt", "outside"),
        ("/etc/passwd", "outside"),
        ("leaves.txt", "outside"),
        ("out/secret.txt", "outside"),
        ("folder", "is a folder"),
        ("", "is a folder"),
        (".", "is a folder"),
        ("missing.txt", "there is no file"),
        ("a.txt/b", "there is no file"),
        ("latin.txt", "no UTF-8"),
        ("pipe", "not a regular file"),
        ("circle", "error: "),
        ("a\0b", "error: "),
        ("x" * 100_000, "error: "),
        ("~/secret.txt", "there is no file"),
    ],
    ids=lambda text: text[:30].replace("\0", "NUL"),
)
def test_a_path_that_may_not_be_read_is_an_observation(root, path, reason):
    seen = tools.default(root).call("read_file", {"path": path})
    assert seen.startswith("error: ")
    assert reason in seen
    assert "SECRET" not in seen
    assert str(root.parent) not in seen
    assert len(seen) < 160


def test_a_file_of_500_megabytes_is_refused_without_reading_it(root):
    with open(root / "big.txt", "wb") as file:
        file.truncate(500_000_000)
    tracemalloc.start()
    seen = tools.default(root).call("read_file", {"path": "big.txt"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == "error: 'big.txt' has more than 65536 bytes, too many to read"
    assert peak < 1_000_000


def test_a_file_of_exactly_the_limit_is_read(root):
    (root / "full.txt").write_text("x" * 65536)
    assert tools.default(root).call("read_file", {"path": "full.txt"}) == "x" * 65536


def test_a_circle_of_links_outside_is_told_from_nothing_else_there(root):
    (root.parent / "circle").symlink_to(root.parent / "circle")
    (root / "own").symlink_to(root / "own")
    read = tools.default(root)
    for path in ("../circle", "../nothing", "/etc/passwd"):
        seen = read.call("read_file", {"path": path})
        assert seen == f"error: {path!r} lies outside the folder that may be read"
    assert "outside" not in read.call("read_file", {"path": "own"})


def test_a_root_that_is_no_folder_is_refused(root):
    for path in (root / "a.txt", root / "nowhere"):
        with pytest.raises(ToolError, match="existing folder"):
            tools.read_file(path)


def test_files_are_listed_in_order_and_capped(root):
    for name in ("z.txt", "B.txt", ".hidden"):
        (root / name).write_text("")
    listing = Registry([tools.list_files(root)])
    seen = listing.call("list_files", {})
    assert seen == "B.txt, a.txt, inner.txt, latin.txt, z.txt"
    for i in range(1000):
        (root / f"{i:04}").write_text("")
    assert listing.call("list_files", {}).endswith("0049, …")


def test_an_empty_folder_says_so(tmp_path):
    assert Registry([tools.list_files(tmp_path)]).call("list_files", {}) == "no files"


def test_notes_are_kept_for_the_caller_and_capped():
    notes: list[str] = []
    keep = Registry([tools.remember(notes)])
    assert keep.call("remember", {"text": "tea"}) == "saved"
    assert notes == ["tea"]
    seen = [keep.call("remember", {"text": "x"}) for _ in range(200)]
    assert seen[-1].startswith("error: ")
    assert len(notes) == 100


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "parameters",
    [
        object_schema({"x": {"enum": [1]}}, []),
        object_schema({"x": {"anyOf": [TEXT]}}, []),
        object_schema({"x": {"type": ["string", "null"]}}, []),
        object_schema({"x": {"type": "null"}}, []),
        object_schema({"x": {"type": "array", "items": TEXT}}, []),
        object_schema({"x": {"type": "string", "maxLength": 3}}, []),
        object_schema({"x": TEXT}, ["y"]),
        object_schema({"x": TEXT}, [["x"]]),
        object_schema({"x": TEXT}, "x"),
        object_schema({3: TEXT}, []),
        object_schema([], []),
        {"type": "object", "additionalProperties": False},
        {"type": "object", "properties": {"x": TEXT}, "required": ["x"]},
        object_schema({}, []) | {"additionalProperties": 0},
        object_schema({}, []) | {"title": "t"},
        {},
        None,
    ],
)
def test_a_tool_made_by_hand_has_a_schema_that_check_can_enforce(parameters):
    with pytest.raises(ToolError, match="handmade: parameters must be"):
        Tool("handmade", "Doc.", parameters, lambda **_: "")


class Unprintable(BaseException):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    "raised",
    [
        Unprintable(),
        ToolError(Unprintable()),
        GeneratorExit(),
        asyncio.CancelledError(),
        BaseException("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_tool_raises_but_an_interrupt_is_an_observation(raised):
    def broken() -> str:
        """Fail."""
        raise raised

    seen = Registry([broken]).call("broken", {})
    assert seen.startswith("error: ")
    assert len(seen) < 200


class Callable:
    """An object that can be called."""

    def __call__(self, x: int) -> str:
        return ""


def no_syntax(x: "foo bar") -> str:  # noqa: F722
    """Doc."""


def no_attribute(x: int.foo) -> str:
    """Doc."""


def no_hash(x: []) -> str:
    """Doc."""


async def later(x: int) -> str:
    """Doc."""


def one_by_one(x: int) -> str:
    """Doc."""
    yield ""


@pytest.mark.parametrize(
    "function",
    [functools.partial(area, 1), Callable(), 3, no_syntax, no_attribute, no_hash]
    + [later, one_by_one],
)
def test_what_is_not_a_plain_function_is_a_tool_error(function):
    with pytest.raises(ToolError):
        Tool.of(function)


def test_a_plain_function_that_returns_a_coroutine_is_an_error_and_leaves_no_warning(
    recwarn,
):
    async def fetch(x: int) -> str:
        return "never"

    def lazy(x: int) -> str:
        """Return a coroutine."""
        return fetch(x)

    observation = Registry([lazy]).call("lazy", {"x": 1})
    assert observation == "error: lazy is async: a tool returns its text"
    assert not recwarn.list

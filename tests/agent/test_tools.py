"""Tools: schemas from signatures, errors as observations, nothing leaked."""

from __future__ import annotations

import asyncio
import functools

import pytest

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


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"a": [1, None, True]}, '{"a":[1,null,true]}'),
        (["é", "x\ny"], '["é","x\\ny"]'),
        (7, "7"),
        ("as it is", "as it is"),
        ({1: {2}}, "error: give failed with TypeError: "),
    ],
)
def test_a_dict_or_a_list_is_observed_as_json(result, text):
    def give() -> str:
        """Give something."""
        return result

    assert Registry([give]).call("give", {}).startswith(text)

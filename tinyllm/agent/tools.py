"""What an agent can do: tools made from typed Python functions, and a registry of them.

Public: `Tool`, `Registry`, `default`, `every`, and the tools `calc`, `read_file`,
`list_files`, `remember`, `answer`.

`inspect` reads the JSON Schema of a tool off its signature: four types are enough for a
course, and pydantic would be a dependency of the core. A tool that fails does not end
the loop: the model gets an observation "error: …" and can react to it. So the words of
a ToolError are input of the model, and other words would lead to other runs.

Before: agent.files. Next: agent.backend.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyllm.agent.calculator import calc
from tinyllm.agent.files import folder, list_names, read_text
from tinyllm.agent.protocol import describe, one_line_json
from tinyllm.errors import ToolError

__all__ = [
    "ANSWER",
    "Registry",
    "Tool",
    "answer",
    "calc",
    "default",
    "every",
    "list_files",
    "read_file",
    "remember",
]

ANSWER = "answer"  # the tool that ends a run
NOTE_LIMIT = 100  # notes that remember() keeps
MESSAGE_LIMIT = 120  # characters of a foreign exception's message

_JSON_TYPES: dict[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
}
_NOT_PLAIN = (
    inspect.iscoroutinefunction,
    inspect.isasyncgenfunction,
    inspect.isgeneratorfunction,
)


@dataclass(frozen=True)
class Tool:
    """A function that a model may call, with the JSON Schema of its arguments.

    ToolError for a schema that `check` could not enforce: only an object is one whose
    properties are {"type": "string"}, "integer", "number" or "boolean", with required
    and additionalProperties false.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., object]

    def __post_init__(self) -> None:
        if not _is_simple(self.parameters):
            types = "|".join(_JSON_TYPES.values())
            raise ToolError(
                f'{self.name}: parameters must be {{"type": "object", "properties": '
                f'{{name: {{"type": "{types}"}}}}, "required": [names], '
                '"additionalProperties": false}, and nothing more'
            )

    @classmethod
    def of(cls, function: Callable[..., object]) -> Tool:
        """Return the tool of a function whose parameters are str, int, float or bool.

        Name, description and schema are the function's name, the first line of its
        docstring and its signature; a parameter with a default may be left out.
        ToolError if one of them is missing or of another kind.
        """
        # a model writes the name inside a JSON string, and a prompt lists it as a word
        name = getattr(function, "__name__", None)
        if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
            raise ToolError(f"a tool needs a plain name, not {name!r}: use def")
        if any(kind(function) for kind in _NOT_PLAIN):
            raise ToolError(f"{name} is async or a generator: a tool returns its text")
        if not (doc := inspect.getdoc(function)):
            raise ToolError(f"the tool {name} needs a docstring that says what it does")
        return cls(name, doc.splitlines()[0], _parameters(function), function)

    def check(self, args: dict[str, Any]) -> None:
        """Raise ToolError unless the arguments fit the schema."""
        wanted = self.parameters["properties"]
        # a wrong name first: it is the likely reason why another one is missing
        for key in args:
            if key not in wanted:
                takes = ", ".join(wanted) or "no arguments"
                raise ToolError(f"{self.name} takes {takes}, not {key!r:.40}")
        for key in self.parameters["required"]:
            if key not in args:
                raise ToolError(f"{self.name} needs {key}")
        for key, value in args.items():
            if not _is_a(value, wanted[key]["type"]):
                raise ToolError(f"{key} must be of type {wanted[key]['type']}")


class Registry:
    """An ordered, unchanging set of tools with unique names.

    Takes tools and plain functions alike: `Registry([calc, read_file("."), answer])`.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., object]]) -> None:
        made = [tool if isinstance(tool, Tool) else Tool.of(tool) for tool in tools]
        # a dict keeps the order, which is the order of the prompt
        self._tools = {tool.name: tool for tool in made}
        if len(self._tools) != len(made):
            names = ", ".join(tool.name for tool in made)
            raise ToolError(f"each tool needs a name of its own: {names}")

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def describe(self) -> str:
        """Return the tools as prompts list them: "calc(expression) answer(text)"."""
        return describe({t.name: t.parameters["properties"] for t in self})

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one call, {"tool": name, "args": {…}}, of any tool.

        ToolError if there are no tools.
        """
        if not self._tools:
            raise ToolError("no tools, so no call is possible: register at least one")
        # a branch for each tool: its arguments belong to it and to no other
        calls = [{"tool": {"const": t.name}, "args": t.parameters} for t in self]
        return {"anyOf": [_object_schema(call, list(call)) for call in calls]}

    def check(self, name: str, args: dict[str, Any]) -> Tool:
        """Return the tool of that name; ToolError if none or the arguments misfit."""
        if name not in self._tools:
            known = ", ".join(self._tools)
            raise ToolError(f"there is no tool {name!r:.40}, only {known}")
        self._tools[name].check(args)
        return self._tools[name]

    def run(self, name: str, args: dict[str, Any]) -> str:
        """Return the tool's result as text (a dict or list as JSON); ToolError.

        Only KeyboardInterrupt passes through: anything else that a tool raises, even
        SystemExit, is its failure and not the end of the run.
        """
        # checked again although a grammar may have: a free call or a server has none
        tool = self.check(name, args)
        try:
            result = tool.function(**args)
            if inspect.iscoroutine(result):
                result.close()  # else Python warns that nobody awaited it
                raise ToolError(f"{name} is async: a tool returns its text")
            is_json = isinstance(result, dict | list)
            return one_line_json(result) if is_json else str(result)
        except KeyboardInterrupt:
            raise
        except ToolError as error:
            raise ToolError(_message(error)) from error
        except BaseException as error:  # a tool is foreign code: it may raise anything
            reason = f"{type(error).__name__}: {_message(error)}"[:MESSAGE_LIMIT]
            raise ToolError(f"{name} failed with {reason}") from error

    def call(self, name: str, args: dict[str, Any]) -> str:
        """Return the observation of a call: the text, or "error: …" and the reason."""
        try:
            return self.run(name, args)
        except ToolError as error:
            return f"error: {error}"


def answer(text: str) -> str:
    """Give the final answer."""
    return text


def read_file(root: str | Path = ".") -> Tool:
    """Return the tool that reads a text file in one folder: `files.read_text`."""
    inside = folder(root)

    def read_file(path: str) -> str:
        """Read a text file."""
        return read_text(inside, path)

    return Tool.of(read_file)


def list_files(root: str | Path = ".") -> Tool:
    """Return the tool that lists the files of one folder: `files.list_names`."""
    inside = folder(root)

    def list_files() -> str:
        """List the files that can be read."""
        return list_names(inside)

    return Tool.of(list_files)


def remember(notes: list[str] | None = None) -> Tool:
    """Return the tool that appends a text to the caller's list `notes`."""
    kept = [] if notes is None else notes

    def remember(text: str) -> str:
        """Keep a note."""
        # a model that repeats itself must not fill the memory
        if len(kept) >= NOTE_LIMIT:
            raise ToolError(f"there are {NOTE_LIMIT} notes already")
        kept.append(text)
        return "saved"

    return Tool.of(remember)


def default(root: str | Path = ".") -> Registry:
    """Return the registry of calc, read_file (inside the root) and answer."""
    return Registry([calc, read_file(root), answer])


def every(root: str | Path = ".", notes: list[str] | None = None) -> Registry:
    """Return the registry of all five: list_files and remember (`notes`) as well."""
    files = [read_file(root), list_files(root)]
    return Registry([calc, *files, remember(notes), answer])


def _parameters(function: Callable[..., object]) -> dict[str, Any]:
    """Return the JSON Schema of the function's arguments."""
    try:
        # under `from __future__ import annotations` the types are texts
        found = inspect.signature(function, eval_str=True).parameters
    except Exception as error:  # a type given as text may raise anything
        raise ToolError(f"{function.__name__} has types that are unknown") from error
    properties = {
        name: {"type": _json_type(function.__name__, p)} for name, p in found.items()
    }
    # what has a default may be left out
    required = [name for name, p in found.items() if p.default is p.empty]
    return _object_schema(properties, required)


def _json_type(tool: str, parameter: inspect.Parameter) -> str:
    """Return the JSON type of a parameter; ToolError if none or if not by name."""
    # a call gives arguments by name, so *args, **kwargs and f(x, /) cannot be called
    by_name = parameter.kind in (
        parameter.POSITIONAL_OR_KEYWORD,
        parameter.KEYWORD_ONLY,
    )
    kind = parameter.annotation
    if not (by_name and isinstance(kind, type) and kind in _JSON_TYPES):
        raise ToolError(
            f"{tool}, parameter {parameter}: give it a type, str, int, float or bool"
        )
    return _JSON_TYPES[kind]


def _is_simple(schema: object) -> bool:
    """Return whether `_object_schema` could have made it: `check` enforces those."""
    if not (isinstance(schema, dict) and isinstance(schema.get("properties"), dict)):
        return False
    properties, required = schema["properties"], schema.get("required")
    return (
        isinstance(required, list)
        and all(isinstance(name, str) for name in [*properties, *required])
        and schema == _object_schema(properties, required)
        and schema["additionalProperties"] is False  # 0 is equal to it
        and set(required) <= set(properties)
        and all(
            p in [{"type": t} for t in _JSON_TYPES.values()]
            for p in properties.values()
        )
    )


def _message(error: BaseException) -> str:
    """Return the message of an error, even of one whose own __str__ fails."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "no message that can be shown"


def _object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the schema of an object that has these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _is_a(value: object, json_type: str) -> bool:
    """Return whether a JSON value has a type; true and false are not numbers."""
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
    # to Python True is an int as well
    if isinstance(value, bool):
        return json_type == "boolean"
    return isinstance(value, kinds[json_type])  # type: ignore[arg-type]

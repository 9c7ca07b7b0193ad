"""Tools that the corpus never shows: the known ones under other names.

`renamed(task, tools)` gives a task and its registry in which each tool of the package
has a name and an argument that no training document contains; `answer` keeps its own.
They do what they did, so a task is solved as before, by a model that reads its list.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyllm.agent.tools import Registry, Tool
from tinyllm.train.tasks import Task

# each known name, with the one that stands for it
TOOLS = {
    "calc": "evaluate",
    "read_file": "open_document",
    "list_files": "show_folder",
    "remember": "store_note",
    "weather": "forecast",
    "search": "explore",
    "translate": "interpret",
    "send_mail": "post_letter",
}
ARGUMENTS = {
    "expression": "formula",
    "path": "location",
    "text": "content",
    "city": "destination",
    "query": "phrase",
    "to": "recipient",
}


def renamed(task: Task, tools: Registry) -> tuple[Task, Registry]:
    """The task with other names in its list and its solution, and its tools so."""
    names = {
        tool: tuple(_argument(tool, name) for name in names)
        for tool, names in task.tools.items()
    }
    moves = tuple(
        replace(
            move,
            tool=_tool(move.tool),
            args={_argument(move.tool, k): v for k, v in move.args.items()},
        )
        for move in task.moves
    )
    shown = {_tool(tool): arguments for tool, arguments in names.items()}
    made = Registry(_renamed(tool) for tool in tools)
    return replace(task, tools=shown, moves=moves), made


def _tool(name: str) -> str:
    return TOOLS.get(name, name)


def _argument(tool: str, name: str) -> str:
    """The other name of an argument, if its tool has another name."""
    return ARGUMENTS[name] if tool in TOOLS else name


def _renamed(tool: Tool) -> Tool:
    """The same tool under its other name, with its arguments so."""
    if tool.name not in TOOLS:
        return tool
    properties = tool.parameters["properties"]
    own = {_argument(tool.name, name): name for name in properties}
    schema = tool.parameters | {
        "properties": {new: properties[old] for new, old in own.items()},
        "required": [_argument(tool.name, n) for n in tool.parameters["required"]],
    }

    def function(**args: Any) -> object:
        return tool.function(**{own[name]: value for name, value in args.items()})

    return Tool(TOOLS[tool.name], tool.description, schema, function)

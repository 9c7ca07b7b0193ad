"""Tools that no training text contains: the known ones under other names.

`renamed(task, tools)` gives a task and its registry in which each tool of the package
has a name and an argument that no training document contains; `answer` keeps its own.
They work as before, so a model that reads its tool list can solve a task as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyllm.agent.tools import Registry, Tool
from tinyllm.train.tasks import Task

# known name -> new name
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
    """Return the task and its tools with the new names, in its solution too."""
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
    listed = {_tool(tool): arguments for tool, arguments in names.items()}
    made = Registry(_renamed(tool) for tool in tools)
    return replace(task, tools=listed, moves=moves), made


def _tool(name: str) -> str:
    return TOOLS.get(name, name)


def _argument(tool: str, name: str) -> str:
    """Return the new name of an argument, if its tool has one."""
    return ARGUMENTS[name] if tool in TOOLS else name


def _renamed(tool: Tool) -> Tool:
    """Return the tool under its new name, with new names for its arguments."""
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

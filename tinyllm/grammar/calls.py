"""The grammar of a tool call, straight from a registry: {"tool":name,"args":{…}}.

Public: rules_of, value_of.

A signature has few kinds of argument: the four plain types, None, constants (Literal),
unions (Optional), lists, and dataclasses, which are objects. A call is an object, too:
of a constant, the tool's name, and of an object, its arguments. A registry whose schema
says more is read by jsonschema/, which the course does not need.

Before: grammar.json_text. Next: agent.protocol.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from tinyllm.grammar.expression import Alternation, Call, Expression, Rules, literal
from tinyllm.grammar.json_text import (
    COMPACT,
    INTEGER,
    NUMBER,
    STRING,
    array,
    member,
    object_of,
)

RULES: dict[str, Expression] = {"string": STRING, "number": NUMBER}
PLAIN: dict[str, Expression] = {
    "string": Call("string"),  # rules, so that their states are made only once
    "number": Call("number"),
    "integer": INTEGER,
    "boolean": Alternation((literal("true"), literal("false"))),
    "null": literal("null"),
}
NOTES = {"title", "description", "default"}  # keywords that allow every value


class Registry(Protocol):
    """The tools of an agent."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a call: any of some objects, one for each tool."""


def rules_of(registry: Registry) -> Rules:
    """Return the rules of one call: a tool's name, and arguments in their order.

    GrammarError for a schema that cannot be enforced.
    """
    schema = registry.schema()
    try:
        return Rules(value_of(schema), RULES)
    except ValueError:  # it says more than a signature can
        from tinyllm.grammar.jsonschema.read import parse

        return parse(schema)


def value_of(schema: object) -> Expression:
    """Return the texts of one value; ValueError for a schema of another kind."""
    said = dict(schema) if isinstance(schema, dict) else {}
    said = {keyword: said[keyword] for keyword in said if keyword not in NOTES}
    match said:
        case {"type": str(name)} if name in PLAIN and len(said) == 1:
            return PLAIN[name]  # str, int, float, bool, None
        case {"const": value} if len(said) == 1:
            return _constant(value)  # the name of a tool
        case {"enum": [*values]} if len(said) == 1:
            return Alternation(tuple(map(_constant, values)))  # Literal
        case {"anyOf": [*options]} if len(said) == 1:
            return Alternation(tuple(map(value_of, options)))  # Optional, all tools
        case {"type": "array", "items": item} if len(said) == 2:
            return array(value_of(item), 0, None, COMPACT)  # list
        case {
            "type": "object",
            "properties": dict(properties),
            "required": [*required],
            "additionalProperties": False,
        } if len(said) == 4 and properties.keys() >= set(required):
            members = [  # a call, its arguments, a dataclass
                (member(name, value_of(inside), COMPACT), name in required)
                for name, inside in properties.items()
            ]
            return object_of(members, COMPACT)
    raise ValueError("not the schema of a signature")


def _constant(value: object) -> Expression:
    """Return the one text of a constant, as json.dumps writes it."""
    if value is None or isinstance(value, str | int):  # bool is an int
        return literal(json.dumps(value, ensure_ascii=False))
    raise ValueError("not a constant of a signature")

"""The agent's protocol: the pieces that make a transcript, and how a call is read.

Public: `prompt_ids`, `prompt_pieces`, `describe`, `encode_pieces`, `clean_task`,
`one_line`, `one_line_json`, `observation_literal`, `call_text`, `parse_call` and the
constants.

    TOOLS: calc(expression) read_file(path) answer(text)
    TASK: What is 4871 * 209?
    THOUGHT: I need the product.
    CALL: {"tool":"calc","args":{"expression":"4871*209"}}
    OBSERVATION: "1018039"
    THOUGHT: …

A transcript is token ids: bos, then each piece encoded alone. The harness writes the
scaffolding, the model fills the slots after THOUGHT and CALL, and every other text is
one line, so that nothing in it can begin a line of the protocol. The trainer builds its
corpus from the same pieces: at run time every boundary is one that it was trained on.

Before this: `grammar/calls`. Next: `calculator`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tinyllm import strict_json
from tinyllm.engine import Tokenizer
from tinyllm.errors import ProtocolError, UsageError
from tinyllm.text.stream import after_bos

# A label begins with the line break that ends the slot before it, and ends with the
# blank, so that a slot begins with its first word.
TOOLS = "TOOLS: "
FORMAT = "\nFORMAT: "
TASK = "\nTASK: "
THOUGHT = "\nTHOUGHT: "
CALL = "\nCALL: "
OBSERVATION = "\nOBSERVATION: "
END = "\n"  # after the final call, before eos; written by the trainer only

MAX_THOUGHT = 24  # tokens of a slot
MAX_CALL = 96
OBSERVATION_LIMIT = 160  # characters, before escaping
CALL_LIMIT = 2048  # characters of a free reply; a longer one is not parsed
CUT = "…"
CALL_FORMAT = 'a CALL is one line of JSON, {"tool": name, "args": {name: value}}'

# U+0085, U+2028 and U+2029 are line breaks to some readers, the rest is invisible
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: UTF-8 has none


def prompt_pieces(tools_text: str, task: str, instruction: str = "") -> list[str]:
    """Return the pieces from the start to the end of the task; THOUGHT comes next.

    An instruction, if there is one, gets a line between tools and task. UsageError if
    nothing of the task is left after cleaning.
    """
    extra = [FORMAT, one_line(instruction)] if instruction else []
    return [TOOLS, one_line(tools_text), *extra, TASK, clean_task(task)]


def describe(tools: Mapping[str, Iterable[str]]) -> str:
    """Return the tool list as a prompt shows it: each name with its arguments.

    >>> describe({"calc": ["expression"], "answer": ["text"]})
    'calc(expression) answer(text)'
    """
    return " ".join(f"{name}({', '.join(args)})" for name, args in tools.items())


def encode_pieces(tokenizer: Tokenizer, pieces: Iterable[str]) -> list[int]:
    """Return the ids of each piece encoded alone, in order; no bos, no special ids."""
    # never joined first: encode(a) + encode(b) need not be encode(a + b)
    return [token_id for piece in pieces for token_id in tokenizer.encode(piece)]


def prompt_ids(
    tokenizer: Tokenizer, tools_text: str, task: str, instruction: str = ""
) -> list[int]:
    """Return the first ids of a transcript: bos, then those of `prompt_pieces`."""
    pieces = prompt_pieces(tools_text, task, instruction)
    return after_bos(tokenizer, encode_pieces(tokenizer, pieces))


def clean_task(task: str) -> str:
    """Return the task on one line: runs of line breaks and controls become a space.

    UsageError if nothing is left or the task is not a text.
    """
    if not isinstance(task, str):
        raise UsageError(f"the task must be a text, not {type(task).__name__}")
    line = one_line(task)
    if not line:
        raise UsageError(f"the task is empty ({task!r:.60}): say what is to be done")
    return line


def observation_literal(text: str, limit: int = OBSERVATION_LIMIT) -> str:
    """Return a tool's output as a JSON string literal on one line.

    A text longer than `limit` characters is cut to `limit`, the last being "…".
    """
    # before escaping: half an escape would not be a literal
    if len(text) > limit:
        text = text[: limit - len(CUT)] + CUT
    return one_line_json(text)


def call_text(tool: str, args: dict[str, Any]) -> str:
    """Return a call as compact JSON on one line, as grammar and training write it.

    >>> call_text("calc", {"expression": "1+1"})
    '{"tool":"calc","args":{"expression":"1+1"}}'
    """
    return one_line_json({"tool": tool, "args": args})


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments of the object with which a reply begins.

    What follows the first object is ignored: a second call, a forged observation.
    ProtocolError if it is not strict JSON, repeats a key, is longer than CALL_LIMIT
    characters, or is anything but {"tool": text, "args": object}.
    """
    found = _first_object(text.strip())
    if set(found) != {"tool", "args"}:
        raise ProtocolError(f"a call has the keys tool and args, not {_keys(found)}")
    # whether the tool exists and the arguments fit is for the registry to say
    tool, args = found["tool"], found["args"]
    if not isinstance(tool, str) or not isinstance(args, dict):
        raise ProtocolError('"tool" must be a text and "args" an object')
    return tool, args


def _first_object(text: str) -> dict[str, Any]:
    """Return the JSON object at the start of the text, read strictly."""
    # These messages are observations: a model reads them, so other words here would
    # give other runs.
    if not text.startswith("{"):
        raise ProtocolError('a call must begin with {"tool": and end with }')
    if len(text) > CALL_LIMIT:
        raise ProtocolError(f"a call may have {CALL_LIMIT} characters, not {len(text)}")
    try:
        found = strict_json.read_first(text)
    except json.JSONDecodeError as error:
        raise ProtocolError(f"the call is no strict JSON: {error.msg}") from error
    except ValueError as error:
        raise ProtocolError(str(error)) from error
    assert isinstance(found, dict)  # it begins with a brace
    return found


def _keys(found: dict[str, Any]) -> str:
    """Return the keys for a message, cut to a readable length."""
    return f"{', '.join(map(repr, found)) or 'none':.60}"


def one_line(text: str) -> str:
    """Return the text without line breaks, control characters and half characters."""
    spaced = re.sub(f"{_CONTROL.pattern}+", " ", text)
    return _SURROGATE.sub("\ufffd", spaced).strip()


def one_line_json(value: Any) -> str:
    """Return compact JSON in which every line break and control character is escaped.

    json escapes those below U+0020; U+007F to U+009F, U+2028 and U+2029 are added.
    """
    # not ASCII: a letter with an accent is fewer tokens than its escape
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    escaped = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", raw)
    return _SURROGATE.sub("\ufffd", escaped)

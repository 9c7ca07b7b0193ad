"""A language-model agent from nothing but numpy, small enough to read in a day.

`load()` gives a model, `Agent` lets it use tools, `grammar.compile(schema, tokenizer)`
makes a malformed tool call impossible. Each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tinyllm.version import __version__

if TYPE_CHECKING:
    from tinyllm import grammar as grammar
    from tinyllm.agent import tools as tools
    from tinyllm.agent.loop import Agent as Agent
    from tinyllm.numpy_engine import load as load
    from tinyllm.verify.equivalence import verify as verify

__all__ = ["Agent", "__version__", "grammar", "load", "tools", "verify"]

_WHERE = {
    "load": ("tinyllm.numpy_engine", "load"),
    "Agent": ("tinyllm.agent.loop", "Agent"),
    "tools": ("tinyllm.agent.tools", None),
    "grammar": ("tinyllm.grammar", None),
    "verify": ("tinyllm.verify", None),
}


def __getattr__(name: str) -> Any:
    """Return the public name, importing its module on first use."""
    if name not in _WHERE:
        raise AttributeError(f"module 'tinyllm' has no attribute {name!r}")
    module_name, attribute = _WHERE[name]
    module = importlib.import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

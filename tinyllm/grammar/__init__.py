"""Which tokens are legal: a JSON Schema or a regular expression becomes a mask.

Public: compile, receipt, TokenGrammar, Vocabulary. In reading order: expression (the
tree), utf8 and regex (what becomes a tree), network (the rules as a graph), states (the
graph made deterministic), pushdown (states with a stack), vocabulary (all tokens of a
state at once), mask, completion (the shortest way to the end), explain, json_text (the
texts of JSON values) and calls (the calls of a tool registry). The course does not need
jsonschema/, which reads any JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyllm.engine import Tokens
from tinyllm.grammar import regex
from tinyllm.grammar.expression import Rules
from tinyllm.grammar.mask import TokenGrammar
from tinyllm.grammar.vocabulary import Vocabulary

__all__ = ["TokenGrammar", "Vocabulary", "compile", "receipt"]


def compile(
    source: Mapping[str, Any] | bool | str,
    tokenizer: Tokens | Vocabulary,
    *,
    spaces: bool = False,
) -> TokenGrammar:
    """Return the grammar of a JSON Schema (dict) or a regular expression (str).

    compile("[0-9]+", lm.tokenizer) allows one or more digits. JSON is compact; with
    `spaces`, one space may follow each comma and colon. For several grammars over one
    large vocabulary make its `Vocabulary` once. GrammarError names what cannot be
    enforced, what grew too large or the byte that cannot be spelled.
    """
    if not isinstance(tokenizer, Vocabulary):
        tokenizer = Vocabulary(tokenizer)
    if isinstance(source, str):
        return TokenGrammar(Rules(regex.parse(source)), tokenizer)
    from tinyllm.grammar.jsonschema.read import parse  # not needed by the course

    return TokenGrammar(parse(source, spaces), tokenizer)


def receipt(schema: object) -> list[tuple[str, str, str]]:
    """Return each keyword of a schema with its place and what becomes of it.

    The verdict is "enforced", "annotation" or "refused"; a schema that compiles has no
    row that is refused.
    """
    from tinyllm.grammar.jsonschema.receipt import receipt as rows

    return rows(schema)

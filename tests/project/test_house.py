"""The course and the outside world stay apart, and both keep their budgets of lines."""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import budget  # noqa: E402  (tools/budget.py, a script)

MODULES = budget.modules()


def imported(source: str, inside_functions: bool = False) -> set[str]:
    """The modules of tinyllm that a source imports when it is itself imported."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if function and not inside_functions:
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, "imports are written in full"
                for alias in child.names:
                    name = f"{child.module}.{alias.name}"
                    is_module = name.removeprefix("tinyllm.") in MODULES
                    found.add(name if is_module else str(child.module))
            visit(child)

    visit(ast.parse(source))
    own = {
        name.removeprefix("tinyllm.") for name in found if name.startswith("tinyllm.")
    }
    return {name for name in own if name in MODULES}


IMPORTS = {
    name: imported(path.read_text(encoding="utf-8")) for name, path in MODULES.items()
}


@pytest.mark.parametrize(
    "name", [name for name in MODULES if budget.part_of(name) == "course"]
)
def test_the_course_imports_the_outside_world_only_inside_a_function(name):
    outside = {n for n in IMPORTS[name] if budget.part_of(n) == "outside world"}
    assert outside == set()


@pytest.mark.parametrize("name", budget.COMMON)
def test_common_ground_imports_nothing_but_common_ground(name):
    assert IMPORTS[name] <= set(budget.COMMON)


def test_nobody_imports_the_widgets_at_once():
    for name, found in IMPORTS.items():
        if not name.startswith("widgets"):
            assert not any(n.startswith("widgets") for n in found), name


def test_no_module_imports_itself_by_a_circle():
    tuple(TopologicalSorter(IMPORTS).static_order())  # CycleError names the circle


def test_a_late_import_is_told_from_one_at_once():
    late = "def f():\n    from tinyllm.widgets import mask\n"
    assert imported(late) == set()
    assert imported(late, inside_functions=True) == {"widgets.mask"}
    assert imported("if True:\n    from tinyllm import errors\n") == {"errors"}


def test_every_part_module_and_function_is_within_its_budget():
    assert budget.over_budget() == []


def test_a_comment_a_docstring_and_a_blank_line_are_no_code(tmp_path):
    source = '"""Say."""\n\n# why\ndef f():\n    """Do."""\n    return """a\nb"""\n'
    assert budget.code_lines(source) == {4, 6, 7}

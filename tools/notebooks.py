"""Run notebooks again, in place.

    make notebooks                    all of them
    python tools/notebooks.py FILE…   some

A notebook is written only after its last cell has run, in one step, and in one form:
counts 1..n, no timings, no Python version, nothing of widgets but their text. So a run
that changes nothing leaves `git diff` empty, and a cell that fails, or Ctrl-C, leaves
the file as it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
CELL_TIMEOUT = 300  # seconds
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"  # holds a random model id
TRANSIENT = ("execution", "collapsed", "scrolled", "ExecuteTime")  # of a cell
KERNEL = {
    "display_name": "Python 3 (ipykernel)",
    "language": "python",
    "name": "python3",
}


class NotebookError(Exception):
    """A notebook cannot be run to its end; the message says where it stopped."""


def canonical(nb: NotebookNode) -> NotebookNode:
    """`nb`, changed in place, without what differs between two equal runs."""
    nb.metadata["kernelspec"] = dict(KERNEL)
    nb.metadata.get("language_info", {}).pop("version", None)
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        for key in TRANSIENT:
            cell.metadata.pop(key, None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
    return nb


def cleared(nb: NotebookNode) -> NotebookNode:
    """`nb`, changed in place, as if it had never been run."""
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nb


def run(nb: NotebookNode, folder: Path) -> NotebookNode:
    """`nb` with the outputs of a run in `folder`; NotebookError names a bad cell."""
    started: list[str] = []
    client = NotebookClient(
        cleared(nb),
        timeout=CELL_TIMEOUT,
        record_timing=False,
        coalesce_streams=True,
        kernel_name="python3",
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=lambda cell, cell_index: started.append(title(nb, cell_index)),
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(f"{started[-1]}\n{error}") from error
    return canonical(nb)


def title(nb: NotebookNode, index: int) -> str:
    """Which of the code cells the cell at `index` is, and how it begins."""
    code = [i for i, cell in enumerate(nb.cells) if cell.cell_type == "code"]
    if index not in code:
        return f"cell {index + 1}"
    first = nb.cells[index].source.strip().partition("\n")[0]
    return f"code cell {code.index(index) + 1} of {len(code)}: {first}"


def write(nb: NotebookNode, path: Path) -> bool:
    """Put `nb` in place of the file at `path` in one step; False where it is equal."""
    text = nbformat.writes(nb).rstrip("\n") + "\n"
    if path.read_text(encoding="utf-8") == text:
        return False
    with tempfile.NamedTemporaryFile(
        "w",
        encoding="utf-8",
        newline="\n",
        dir=path.parent,
        suffix=".tmp",
        delete=False,
    ) as file:
        file.write(text)
    os.chmod(file.name, path.stat().st_mode)
    os.replace(file.name, path)
    return True


def rerun(path: Path) -> bool:
    """Run the notebook at `path` and store it; True where that changed the file."""
    return write(run(nbformat.read(path, as_version=4), path.parent), path)


def rerun_all(paths: list[Path]) -> int:
    """Run notebooks one after the other, a line each; the exit code."""
    for number, path in enumerate(paths, 1):
        print(f"[{number}/{len(paths)}] {path.name} ", end="", flush=True)
        started = time.monotonic()
        try:
            changed = rerun(path)
        except (NotebookError, OSError, ValueError, nbformat.ValidationError) as error:
            print(f"\n{path}: left as it was. {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print(f"\ninterrupted: {path} left as it was", file=sys.stderr)
            return 130
        seconds = time.monotonic() - started
        print(f"{'changed' if changed else 'unchanged'} ({seconds:.1f} s)", flush=True)
    return 0


def main(arguments: list[str]) -> int:
    """Run the notebooks that `arguments` name, or all, and return the exit code."""
    parser = argparse.ArgumentParser(description="Run notebooks again, in place.")
    parser.add_argument("notebooks", nargs="*", type=Path)
    paths = parser.parse_args(arguments).notebooks
    paths = paths or sorted((ROOT / "notebooks").glob("*.ipynb"))
    with tempfile.TemporaryDirectory(prefix="tinyllm-ipython-") as profile:
        os.environ["IPYTHONDIR"] = profile  # not the user's own settings
        return rerun_all(paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

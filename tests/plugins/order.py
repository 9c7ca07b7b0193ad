"""A pytest plugin: unit tests first, then notebooks, then the browser.

The quick answers come first, and the browser's event loop cannot disturb the kernels.
"""

from __future__ import annotations

STAGES = ("unit", "notebook", "browser")


def stage(item):
    """The stage that a test belongs to, by where it is."""
    if item.path.suffix == ".ipynb":
        return "notebook"
    return "browser" if "browser" in item.path.parts else "unit"


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: STAGES.index(stage(item)))

"""Widgets for the notebooks; they read everything, and nothing imports them.

Each widget has a static twin: `still(…)` is a picture, `told(…)` the same in words.
"""

from importlib.util import find_spec

for _name in ("matplotlib", "ipywidgets", "anywidget"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(
            f"tinyllm.widgets needs {_name}, which is not installed: run "
            "pip install 'tinyllm-notebooks[notebooks]'",
            name=_name,
        )

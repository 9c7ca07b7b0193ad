from __future__ import annotations

import subprocess
import sys

import pytest

import tinyllm


def loaded_after(statement: str) -> set[str]:
    """The modules in memory after a statement, in a fresh Python."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(done.stdout.decode().split())


def test_importing_the_package_imports_nothing_heavy():
    assert not loaded_after("import tinyllm") & {
        "numpy",
        "regex",
        "tinyllm.numpy_engine",
    }


def test_a_public_name_is_imported_when_it_is_used():
    assert "tinyllm.numpy_engine" in loaded_after("import tinyllm; tinyllm.load")


def test_importing_the_engine_imports_neither_pictures_nor_widgets():
    heavy = {"matplotlib", "ipywidgets", "threadpoolctl", "safetensors"}
    assert not loaded_after("import tinyllm.numpy_engine") & heavy


def test_the_protocols_import_nothing_of_the_package():
    found = {
        name for name in loaded_after("import tinyllm.engine") if "tinyllm" in name
    }
    assert found == {"tinyllm", "tinyllm.engine", "tinyllm.version"}


def test_verify_is_a_function_and_a_package_in_whatever_order_it_is_imported():
    call = "assert tinyllm.verify(tinyllm.load('toy'), 'abc') == 0"
    for first in ("", "import tinyllm.verify.warm_cold", "from tinyllm import verify"):
        loaded_after(f"import tinyllm\n{first}\n{call}\ntinyllm.verify.equivalence")


def test_every_public_name_is_there():
    for name in tinyllm.__all__:
        assert getattr(tinyllm, name) is not None
    assert tinyllm.__version__ == "0.1.0"
    assert set(dir(tinyllm)) == set(tinyllm.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="lod"):
        tinyllm.lod  # noqa: B018

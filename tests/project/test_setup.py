"""The set-up script: what it checks, what it marks as done, what it says."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "setup.py"


@pytest.fixture
def setup():
    """tools/setup.py as a module of its own for each test."""
    spec = importlib.util.spec_from_file_location("tinyllm_setup", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path):
    """A folder with the two files that decide what is installed."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.fixture
def calls(setup, monkeypatch):
    """The commands that set-up would run; a venv appears when one is asked for."""
    seen = []

    def run(command, **_):
        seen.append(command)
        if "venv" in command:
            python = setup.venv_python(Path(command[-1]))
            python.parent.mkdir(parents=True)
            python.touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(setup.subprocess, "run", run)
    monkeypatch.setattr(setup, "works", lambda python: python.exists())
    return seen


def test_a_second_set_up_runs_nothing(setup, project, calls):
    setup.set_up("course", project)
    assert ["venv" in c for c in calls] == [True, False]
    setup.set_up("course", project)
    assert len(calls) == 2


def test_jupyterlab_does_not_ask_whether_it_may_fetch_news(setup, project, calls):
    setup.set_up("course", project)
    settings = project / ".venv" / "share" / "jupyter" / "lab" / "settings"
    (found,) = json.loads((settings / "overrides.json").read_text()).values()
    assert found == {"fetchNews": "false", "checkForUpdates": False}


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_requirement_installs_again_into_the_same_venv(
    setup, project, calls, name
):
    setup.set_up("course", project)
    with (project / name).open("a") as file:
        file.write("# changed\n")
    setup.set_up("course", project)
    assert ["venv" in c for c in calls] == [True, False, False]


def test_judges_include_the_course_but_not_the_reverse(setup, project, calls):
    setup.set_up("course", project)
    assert not setup.is_complete(project / ".venv", "judges", project)
    setup.set_up("judges", project)
    assert setup.is_complete(project / ".venv", "course", project)
    assert setup.is_complete(project / ".venv", "judges", project)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, subprocess.CalledProcessError])
def test_an_interrupted_set_up_is_not_taken_for_complete(
    setup, project, calls, monkeypatch, stop
):
    setup.set_up("course", project)
    (project / "constraints.txt").write_text("numpy==2.4.6\n")

    def interrupted(*_):
        raise stop(1, ["pip"]) if stop is not KeyboardInterrupt else stop

    monkeypatch.setattr(setup, "install", interrupted)
    with pytest.raises(stop):
        setup.set_up("course", project)
    shutil.copy(ROOT / "constraints.txt", project)  # what the old stamp stood for
    assert not setup.is_complete(project / ".venv", "course", project)


def test_a_broken_venv_is_made_anew(setup, project, calls, monkeypatch):
    monkeypatch.setattr(setup, "works", lambda python: False)
    (project / ".venv").mkdir()
    setup.make_venv(project / ".venv")
    assert "--clear" in calls[0]


def test_a_missing_venv_module_is_an_error_that_says_what_to_install(
    setup, project, monkeypatch
):
    monkeypatch.setattr(
        setup.importlib.util,
        "find_spec",
        lambda name: None if name == "ensurepip" else 1,
    )
    with pytest.raises(setup.SetupError, match="ensurepip") as error:
        setup.make_venv(project / ".venv")
    assert "sudo apt install python3-venv" in str(error.value)
    assert "uv run jupyter lab" in str(error.value)


@pytest.mark.parametrize("version", ["(3, 8, 10)", "(3, 15, 0)"])
def test_a_python_too_old_or_too_new_is_told_before_anything_is_installed(version):
    source = SCRIPT.read_text()
    old = f"import sys\nsys.version_info = {version}\nimport builtins\n"
    command = [sys.executable, "-c", f"{old}exec({source!r})"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "tinyllm needs Python 3.11 to 3.14" in result.stderr
    assert "make setup" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unknown_word_is_a_usage_error(setup, capsys):
    assert setup.main(["everything"]) == 2
    assert "course|judges" in capsys.readouterr().err

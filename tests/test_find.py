from __future__ import annotations

import pytest

from tinyllm.checkpoint import find as module
from tinyllm.checkpoint.find import available, find
from tinyllm.errors import ModelNotFoundError


@pytest.fixture
def embedded(tmp_path, monkeypatch):
    """A package that carries the model "agent" and no other."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "config.json").write_text("{}")
    (tmp_path / "stories").mkdir()
    monkeypatch.setattr(module, "EMBEDDED", tmp_path)
    return tmp_path


def test_a_name_is_a_folder_inside_the_package(embedded):
    assert find("agent") == embedded / "agent"
    assert available() == ["agent"]


def test_any_folder_is_found_by_its_path(embedded, tmp_path):
    (tmp_path / "mine").mkdir()
    assert find(tmp_path / "mine") == tmp_path / "mine"
    assert find(str(tmp_path / "mine")) == tmp_path / "mine"


def test_a_name_goes_before_a_folder_of_the_same_spelling(
    embedded, monkeypatch, tmp_path
):
    (tmp_path / "here" / "agent").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert find("agent") == embedded / "agent"
    assert find("./agent").resolve() == tmp_path / "here" / "agent"


@pytest.mark.parametrize(
    "name", ["stories", "gpt-5", "", "../../etc", "agent/config.json"]
)
def test_what_does_not_exist_lists_what_does(embedded, name, monkeypatch):
    monkeypatch.chdir(embedded / "agent")
    with pytest.raises(ModelNotFoundError, match=r"a name \(agent\)") as error:
        find(name)
    assert repr(name) in str(error.value)


def test_a_package_without_models_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "EMBEDDED", tmp_path)
    with pytest.raises(ModelNotFoundError, match="none in this copy"):
        find("agent")


def test_a_name_whose_model_is_absent_is_no_path_either(embedded, monkeypatch):
    monkeypatch.chdir(embedded)  # where a folder "stories" stands
    with pytest.raises(ModelNotFoundError, match="'stories'"):
        find("stories")

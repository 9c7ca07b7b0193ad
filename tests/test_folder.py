from __future__ import annotations

import json

import numpy as np
import pytest

from tinyllm.checkpoint import safetensors
from tinyllm.checkpoint.folder import load_folder, save_folder
from tinyllm.errors import CheckpointError, ModelNotFoundError


@pytest.fixture
def folder(tmp_path, config, weights, tokenizer):
    save_folder(tmp_path / "model", config, weights, tokenizer, "F32")
    return tmp_path / "model"


def test_a_saved_folder_loads_as_the_same_model(folder, model, tokenizer):
    loaded, same_tokenizer = load_folder(folder)
    assert loaded.config == model.config
    assert loaded.exact
    assert np.array_equal(loaded.forward([1, 5, 200]), model.forward([1, 5, 200]))
    assert same_tokenizer.encode("a 7 ü") == tokenizer.encode("a 7 ü")
    assert same_tokenizer.eos_ids == tokenizer.eos_ids


def test_the_mode_is_chosen_on_loading(folder):
    assert not load_folder(folder, exact=False)[0].exact


def test_f16_is_half_the_size_and_close(tmp_path, folder, config, weights, tokenizer):
    save_folder(tmp_path / "half", config, weights, tokenizer)
    sizes = [
        (p / "model.safetensors").stat().st_size for p in (tmp_path / "half", folder)
    ]
    assert sizes[0] < 0.6 * sizes[1]
    exact, half = load_folder(folder)[0], load_folder(tmp_path / "half")[0]
    assert np.abs(exact.forward([1, 5]) - half.forward([1, 5])).max() < 0.05


def test_config_json_says_what_other_engines_ask(folder):
    values = json.loads((folder / "config.json").read_text())
    assert values["architectures"] == ["LlamaForCausalLM"]
    assert (values["bos_token_id"], values["eos_token_id"]) == (1, 2)
    assert values["torch_dtype"] == "float32"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ModelNotFoundError, match=name):
        load_folder(folder)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\xff", "[" * 100_000])
def test_a_damaged_config_is_a_checkpoint_error(folder, text):
    (folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_that_cannot_be_read_is_named(folder, name):
    (folder / name).unlink()
    (folder / name).symlink_to("/proc/self/mem")
    if not (folder / name).is_file():
        pytest.skip("this system has no file that exists and cannot be read")
    with pytest.raises(CheckpointError, match=f"{name} cannot be read"):
        load_folder(folder)


def test_a_config_larger_than_any_real_one_is_not_parsed(folder):
    path = folder / "config.json"
    path.write_text(path.read_text() + " " * 2**20)
    with pytest.raises(CheckpointError, match="larger than 1048576 bytes"):
        load_folder(folder)


def test_sizes_that_a_header_merely_claims_are_refused_at_once(folder):
    path = folder / "config.json"
    values = json.loads(path.read_text())
    for key in ("num_hidden_layers", "max_position_embeddings"):
        path.write_text(json.dumps(values | {key: 2**20}))
        with pytest.raises(CheckpointError, match=r"n_layers|n_ctx"):
            load_folder(folder)


def test_weights_of_another_shape_are_refused(folder, weights):
    wrong = weights | {"model.norm.weight": np.ones(45, np.float32)}
    safetensors.write(folder / "model.safetensors", wrong)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        load_folder(folder)


def test_a_tokenizer_of_another_size_is_refused(tmp_path, config, weights):
    from tinyllm.text.bpe import BPE

    larger = BPE.from_merges([(100, 101)])
    save_folder(tmp_path, config, weights, larger)
    with pytest.raises(CheckpointError, match="260 ids"):
        load_folder(tmp_path)


def test_wrong_weights_are_refused_before_anything_is_written(
    tmp_path, config, weights, tokenizer
):
    short = {k: v for k, v in weights.items() if k != "model.norm.weight"}
    with pytest.raises(CheckpointError, match="missing"):
        save_folder(tmp_path / "new", config, short, tokenizer)
    assert not (tmp_path / "new").exists()

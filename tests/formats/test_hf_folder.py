from __future__ import annotations

import json
import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from tinyllm.errors import CheckpointError, ModelNotFoundError, TokenizationError
from tinyllm.formats import safetensors, tokenizer_json
from tinyllm.formats.hf_folder import load_folder, read_weights, save_folder
from tinyllm.model.transformer import Model
from tinyllm.text.bpe import BPE
from tinyllm.text.sentencepiece import SentencePiece

SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
INDEX = "model.safetensors.index.json"
EMBEDDING, NORM = "model.embed_tokens.weight", "model.norm.weight"


@pytest.fixture
def folder(tmp_path, config, weights, tokenizer):
    save_folder(tmp_path / "model", config, weights, tokenizer, "F32")
    return tmp_path / "model"


@pytest.fixture
def shards(folder, weights):
    """The folder with its weights in two files and an index."""
    (folder / "model.safetensors").unlink()
    where = {name: SHARDS[i % 2] for i, name in enumerate(weights)}
    for shard in SHARDS:
        part = {name: weights[name] for name in weights if where[name] == shard}
        safetensors.write(folder / shard, part)
    write_index(folder, where)
    return folder


def write_index(folder, where) -> None:
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


def weight_map(folder) -> dict[str, str]:
    return json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]


def change(path, **values) -> None:
    """Write a JSON object, or the one that is there with other values."""
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | values))


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
    (folder / name).symlink_to("/proc/self/mem")  # as long as nothing, for a map
    if not (folder / name).is_file():
        pytest.skip("this system has no file that exists and cannot be read")
    with pytest.raises(CheckpointError, match=f"{name}.*(cannot be read|0 bytes)"):
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


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(folder):
    tokenizer_json.save(BPE.from_merges([(100, 101)]), folder / "tokenizer.json")
    with pytest.raises(TokenizationError, match="260"):
        load_folder(folder)


def test_rows_that_only_round_up_the_vocabulary_are_special(folder):
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    last = max(values["model"]["vocab"], key=values["model"]["vocab"].get)
    assert values["model"]["vocab"].pop(last) == 258  # the byte 255, in no UTF-8
    path.write_text(json.dumps(values), encoding="utf-8")
    model, tokenizer = load_folder(folder)
    assert tokenizer.vocab_size == model.config.vocab_size == 259
    assert 258 in tokenizer.special_ids


def test_wrong_weights_are_refused_before_anything_is_written(
    tmp_path, config, weights, tokenizer
):
    short = {k: v for k, v in weights.items() if k != "model.norm.weight"}
    with pytest.raises(CheckpointError, match="missing"):
        save_folder(tmp_path / "new", config, short, tokenizer)
    assert not (tmp_path / "new").exists()


def test_the_ends_of_a_text_are_those_that_config_json_names(folder):
    change(folder / "config.json", bos_token_id=2, eos_token_id=[0, 1])
    with pytest.raises(TokenizationError, match="bos"):  # the template puts 1 first
        load_folder(folder)
    change(folder / "tokenizer.json", post_processor=None)
    tokenizer = load_folder(folder)[1]
    assert (tokenizer.bos_id, tokenizer.add_bos) == (2, False)
    assert tokenizer.eos_ids == {0, 1}


def test_sizes_that_no_weight_has_are_refused_before_a_token_is_made(folder):
    """A million ids that stand for nothing would cost seconds and gigabytes."""
    change(folder / "config.json", vocab_size=2**24)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="16777216"):
        load_folder(folder)
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


def test_a_save_that_cannot_be_read_back_changes_nothing(folder, config, weights):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    spm = SentencePiece(
        ["<s>", *(f"<0x{b:02X}>" for b in range(256))],
        [0.0] * 257,
        [3, *[6] * 256],
        bos_id=0,
        eos_ids={0},
    )
    wide = BPE.from_merges([(3 + 97, 3 + 98)])  # 260 ids, one more than the model
    for tokenizer, dtype in (
        (spm, "F32"),
        (wide, "F32"),
        (BPE.from_merges([]), "BF16"),
    ):
        with pytest.raises(CheckpointError):
            save_folder(folder, config, weights, tokenizer, dtype)
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(CheckpointError, match="BF16"):
        save_folder(folder / "new", config, weights, BPE.from_merges([]), "BF16")
    assert not (folder / "new").exists()


def test_saving_takes_away_what_belonged_to_the_model_before(folder, config, weights):
    change(folder / "generation_config.json", eos_token_id=[0])
    save_folder(folder, config, weights, BPE.from_merges([]), "F32")
    assert load_folder(folder)[1].eos_ids == {2}


def test_generation_config_adds_to_the_ends(folder):
    change(folder / "generation_config.json", eos_token_id=[0], bos_token_id="ignored")
    assert load_folder(folder)[1].eos_ids == {0, 2}
    change(folder / "config.json", eos_token_id=None)
    assert load_folder(folder)[1].eos_ids == {0}


def test_ends_that_no_file_names_are_the_packages_own(folder):
    change(folder / "config.json", bos_token_id=None, eos_token_id=None)
    tokenizer = load_folder(folder)[1]
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, {2})


@pytest.mark.parametrize("value", [-1, 259, True, 1.0, "2", [], [2, "2"], [[2]], {}])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_an_end_that_is_no_id_is_refused_by_name(folder, name, value):
    change(folder / name, eos_token_id=value)
    with pytest.raises(CheckpointError, match=rf"{name}: eos_token_id"):
        load_folder(folder)


@pytest.mark.parametrize("value", [-1, 259, True, "1", [1], [1, 2]])
def test_a_bos_that_is_not_one_id_is_refused_by_name(folder, value):
    change(folder / "config.json", bos_token_id=value)
    with pytest.raises(CheckpointError, match="bos_token_id"):
        load_folder(folder)


def test_several_ends_are_saved_as_a_list(tmp_path, folder, config, weights):
    change(folder / "config.json", eos_token_id=[2, 0])
    save_folder(tmp_path / "new", config, weights, load_folder(folder)[1])
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    assert values["eos_token_id"] == [0, 2]
    assert load_folder(tmp_path / "new")[1].eos_ids == {0, 2}


def test_what_is_read_from_a_folder_can_be_saved_as_another(
    tmp_path, folder, config, weights, tokenizer
):
    save_folder(tmp_path / "new", config, read_weights(folder), tokenizer, "F32")
    assert read_weights(tmp_path / "new").keys() == weights.keys()
    for name, stored in read_weights(tmp_path / "new").items():
        assert np.array_equal(np.asarray(stored), weights[name])


def test_shards_are_the_same_model(shards, model):
    loaded, _ = load_folder(shards)
    assert np.array_equal(loaded.forward([1, 5, 200]), model.forward([1, 5, 200]))


def test_one_file_goes_before_an_index(shards, weights):
    doubled = {name: 2 * array for name, array in weights.items()}
    safetensors.write(shards / "model.safetensors", doubled)
    found = np.asarray(read_weights(shards)[NORM])
    assert np.array_equal(found, doubled[NORM])


def test_only_the_shards_that_the_index_names_are_opened(shards):
    (shards / "model-00003-of-00002.safetensors").write_bytes(b"junk")
    load_folder(shards)


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "../outside.safetensors",
        "sub/inside.safetensors",
        "sub\\inside.safetensors",
        "C:inside.safetensors",
        "",
        "..",
        "a\0.safetensors",
        "a" * 300 + ".safetensors",
        "pytorch_model.bin",
        3,
        None,
        ["x.safetensors"],
    ],
)
def test_a_shard_that_is_no_name_in_the_folder_is_refused(shards, weights, name):
    norm = {NORM: weights[NORM]}  # a file that would fit lies at some of these names
    (shards / "sub").mkdir()
    for place in ("../outside.safetensors", "sub/inside.safetensors"):
        safetensors.write(shards / place, norm)
    write_index(shards, weight_map(shards) | {NORM: name})
    with pytest.raises(CheckpointError, match=f"'{NORM}' is in") as caught:
        load_folder(shards)
    assert repr(name) in str(caught.value)


def test_a_shard_with_half_a_surrogate_pair_is_refused(shards):
    write_index(shards, weight_map(shards) | {NORM: "a\ud800.safetensors"})
    with pytest.raises(CheckpointError, match="half a surrogate pair"):
        load_folder(shards)


def test_an_absolute_shard_is_refused_although_it_is_in_the_folder(shards):
    path = str(shards / SHARDS[0])
    write_index(shards, dict.fromkeys(weight_map(shards), path))
    with pytest.raises(CheckpointError, match="in the same folder"):
        load_folder(shards)


def test_a_tensor_in_another_shard_than_the_index_says_is_named(shards):
    where = weight_map(shards)
    other = SHARDS[1 - SHARDS.index(where[EMBEDDING])]
    write_index(shards, where | {EMBEDDING: other})
    with pytest.raises(CheckpointError, match=f"'{EMBEDDING}', which .* {other}"):
        load_folder(shards)


def test_a_tensor_that_the_index_leaves_out_is_named(shards):
    where = weight_map(shards)
    del where[EMBEDDING]
    write_index(shards, where)
    with pytest.raises(CheckpointError, match=f"'{EMBEDDING}'.* nowhere"):
        load_folder(shards)


def test_a_tensor_that_its_shard_lacks_is_named(shards):
    write_index(shards, weight_map(shards) | {"model.more.weight": SHARDS[0]})
    with pytest.raises(CheckpointError, match=rf"{SHARDS[0]} lacks .*model\.more"):
        load_folder(shards)


def test_a_tensor_in_two_shards_is_named(shards, weights):
    where = weight_map(shards)
    other = SHARDS[1 - SHARDS.index(where[NORM])]
    part = {name: weights[name] for name in where if where[name] == other}
    safetensors.write(shards / other, part | {NORM: weights[NORM]})
    with pytest.raises(CheckpointError, match=f"{other} holds tensor '{NORM}'"):
        load_folder(shards)


def test_a_tensor_twice_in_the_index_is_named(shards):
    path = shards / INDEX
    twice = f'"weight_map": {{"{NORM}": "{SHARDS[0]}", '
    path.write_text(path.read_text().replace('"weight_map": {', twice))
    with pytest.raises(CheckpointError, match=f"given twice among '{NORM}'"):
        load_folder(shards)


def test_a_weight_of_no_llama_is_refused_in_a_shard_too(shards, weights):
    safetensors.write(shards / "more.safetensors", {"model.more.weight": weights[NORM]})
    more = {"model.more.weight": "more.safetensors"}
    write_index(shards, weight_map(shards) | more)
    with pytest.raises(CheckpointError, match=r"model\.more\.weight is not part"):
        load_folder(shards)


def test_a_shard_that_is_not_there_is_named(shards):
    (shards / SHARDS[1]).unlink()
    with pytest.raises(ModelNotFoundError, match=SHARDS[1]):
        load_folder(shards)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', "\xff"])
def test_a_damaged_index_is_refused_by_name(shards, text):
    (shards / INDEX).write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"index\.json"):
        load_folder(shards)


def test_an_index_larger_than_any_real_one_is_not_parsed(shards):
    path = shards / INDEX
    path.write_text(path.read_text() + " " * 2**22)
    with pytest.raises(CheckpointError, match="larger than 4194304 bytes"):
        load_folder(shards)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "m.pt", "m.ckpt"]
)
def test_a_pickled_checkpoint_is_refused_and_never_unpickled(folder, name):
    class Trap:
        def __reduce__(self):
            return (open, (str(folder / "sprung"), "w"))

    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match=rf"{name} is pickled.*safetensors"):
        load_folder(folder)
    assert not (folder / "sprung").exists()


def test_a_pickled_checkpoint_beside_safetensors_does_no_harm(folder):
    (folder / "pytorch_model.bin").write_bytes(b"junk")
    load_folder(folder)


def test_a_head_beside_tied_embeddings_is_used_where_it_differs(
    tmp_path, config, weights, tokenizer
):
    tied = replace(config, tied_embeddings=True)
    plain = {n: w for n, w in weights.items() if n != "lm_head.weight"}
    ids = [1, 5, 9]
    for name, head in {
        "none": None,
        "equal": plain["model.embed_tokens.weight"],
        "other": weights["lm_head.weight"],
    }.items():
        given = plain if head is None else plain | {"lm_head.weight": head}
        save_folder(tmp_path / name, tied, given, tokenizer, "F32")
    found = {n: load_folder(tmp_path / n)[0].forward(ids) for n in ("none", "equal")}
    assert np.array_equal(found["none"], found["equal"])
    other = load_folder(tmp_path / "other")[0].forward(ids)
    assert np.array_equal(other, Model(config, weights).forward(ids))
    assert not np.allclose(other, found["none"], atol=1e-2)


def test_a_head_of_another_shape_beside_tied_embeddings_is_refused(config, weights):
    tied = replace(config, tied_embeddings=True)
    with pytest.raises(CheckpointError, match=r"lm_head.weight has shape \(3, 44\)"):
        Model(tied, weights | {"lm_head.weight": weights["lm_head.weight"][:3]})


def test_another_architecture_is_refused_with_the_file_and_a_way_out(shards):
    values = json.loads((shards / "config.json").read_text())
    values["model_type"] = "mistral"
    (shards / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="plain Llamas only") as caught:
        load_folder(shards)
    assert str(shards / "config.json") in str(caught.value)

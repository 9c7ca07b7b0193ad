"""Opening a model by the path of its file: which reader, and which tokenizer."""

from __future__ import annotations

import numpy as np
import pytest

import tinyllm
from tests.conftest import TINY, random_weights
from tests.odd_gguf import llama
from tinyllm.errors import (
    CheckpointError,
    ModelNotFoundError,
    TokenizationError,
    UsageError,
)
from tinyllm.formats import llama2c, tokenizer_bin
from tinyllm.formats.hf_folder import save_folder
from tinyllm.model.config import Config
from tinyllm.models.find import find
from tinyllm.models.open import open_model
from tinyllm.text.bpe import BPE
from tinyllm.text.sentencepiece import Kind, SentencePiece

BYTES = [f"<0x{b:02X}>" for b in range(256)]
SPM = SentencePiece(
    ["<unk>", "<s>", "</s>", *BYTES, " "],
    [0.0] * 260,
    [Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, *[Kind.BYTE] * 256, Kind.NORMAL],
    bos_id=1,
    eos_ids={2},
)
CONFIG = Config(
    dim=48,
    hidden_dim=20,
    n_layers=2,
    n_heads=8,
    n_kv_heads=4,
    head_dim=6,
    vocab_size=260,
    n_ctx=30,
)


@pytest.fixture
def story(tmp_path):
    """A llama2.c model with its tokenizer beside it."""
    llama2c.write(tmp_path / "model.bin", CONFIG, random_weights(CONFIG))
    tokenizer_bin.save(SPM, tmp_path / "tok260.bin")
    return tmp_path / "model.bin"


def test_a_bin_takes_the_tokenizer_beside_it_named_after_its_size(story):
    model, tokenizer = open_model(story)
    assert model.config == CONFIG
    assert tokenizer.pieces == SPM.pieces


def test_or_the_one_called_tokenizer_bin_or_the_one_that_is_given(story):
    beside = story.parent / "tok260.bin"
    assert open_model(story, tokenizer=beside)[1].vocab_size == 260
    beside.rename(story.parent / "tokenizer.bin")
    assert open_model(story)[1].vocab_size == 260
    (story.parent / "tokenizer.bin").rename(story.parent / "other.bin")
    with pytest.raises(ModelNotFoundError, match=r"tok260\.bin or tokenizer\.bin"):
        open_model(story)


def test_a_tokenizer_of_another_size_is_refused(story):
    tokenizer_bin.save(SPM, story.parent / "tok260.bin")
    small = CONFIG.__class__(**{**vars(CONFIG), "vocab_size": 259})
    llama2c.write(story, small, random_weights(small))
    with pytest.raises(TokenizationError, match="belong together"):
        open_model(story, tokenizer=story.parent / "tok260.bin")


def test_a_tokenizer_is_for_bin_models_and_a_bin_itself(story):
    with pytest.raises(UsageError, match="has its tokenizer with it"):
        open_model(find("agent"), tokenizer=story.parent / "tok260.bin")
    with pytest.raises(UsageError, match=r"a \.bin file too"):
        open_model(story, tokenizer=story.parent / "tokenizer.json")


def test_an_empty_tokenizer_name_is_not_taken_for_none(story):
    with pytest.raises(UsageError, match=r"a \.bin file too"):
        open_model(story, tokenizer="")


def test_a_gguf_whose_vocabulary_has_another_size_is_refused(tmp_path):
    """odd_gguf's Llama has a vocabulary without a tokenizer: that is named first."""
    path = tmp_path / "model.gguf"
    path.write_bytes(llama())
    with pytest.raises(TokenizationError, match=r"model\.gguf: tokenizer\.ggml\.model"):
        open_model(path)


def test_a_file_of_another_kind_is_no_model(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"PK")
    with pytest.raises(ModelNotFoundError, match="give the folder"):
        open_model(path)


def test_the_mode_goes_to_the_model(story):
    assert open_model(story)[0].exact
    assert not open_model(story, exact=False)[0].exact


def test_the_ending_counts_in_any_case(story):
    story.rename(story.with_name("MODEL.BIN"))
    assert open_model(story.with_name("MODEL.BIN"))[0].config == CONFIG


def test_a_padded_vocabulary_gets_ids_that_stand_for_nothing(tmp_path):
    """Models round their tables up; the ids beyond the tokenizer are never text."""
    wide = Config(**{**vars(TINY), "vocab_size": 264})
    save_folder(tmp_path, wide, random_weights(wide), BPE.from_merges([]), "F32")
    lm = tinyllm.load(tmp_path)
    assert lm.tokenizer.vocab_size == 264
    assert lm.tokenizer.decode([260, 263]) == ""
    assert np.isfinite(lm.session().feed([1, 263])).all()
    narrow = Config(**{**vars(TINY), "vocab_size": 258})
    with pytest.raises(CheckpointError, match="at most 258 ids"):
        save_folder(tmp_path, narrow, random_weights(narrow), BPE.from_merges([]))


def test_a_git_lfs_pointer_is_named_as_what_it_is(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n"
    for name in ("model.gguf", "model.bin"):
        (tmp_path / name).write_bytes(pointer)
        with pytest.raises(CheckpointError, match=r"Git LFS pointer.*git lfs pull"):
            open_model(tmp_path / name)


def test_a_git_lfs_pointer_in_place_of_a_tokenizer_is_named_too(story):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n"
    (story.parent / "tok260.bin").write_bytes(pointer)
    with pytest.raises(
        TokenizationError, match=r"tok260\.bin: it is a Git LFS pointer"
    ):
        open_model(story)


def test_a_gguf_file_under_the_name_of_a_bin_says_so(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(CheckpointError, match=r"is a GGUF file: .*\.gguf"):
        open_model(path)

"""The cache theorem on a real model: SmolLM2, in exact mode and in fast mode."""

from __future__ import annotations

import pytest

import tinyllm
from tinyllm.errors import ModelNotFoundError
from tinyllm.verify.equivalence import blind_spots, verify_kv
from tinyllm.verify.warm_cold import verify_cache

pytestmark = pytest.mark.judge
TEXT = "The keeper climbed 199 steps, and then"


@pytest.fixture(scope="module", params=[True, False], ids=["exact", "fast"])
def lm(request):
    try:
        return tinyllm.load("smollm2", exact=request.param)
    except ModelNotFoundError:
        pytest.skip("smollm2 is absent: make judges")


def test_every_split_and_every_rewind_point_holds_and_bugs_are_noticed(lm):
    ids = lm.tokenizer.encode(TEXT)
    checks = verify_kv(lm, ids)
    assert [check for check in checks if not check.passed] == []
    assert all(check.bits for check in checks[:3]) == lm.exact
    assert min(check.difference for check in checks[3:]) > 0.01


def test_a_shift_of_every_position_is_invisible(lm):
    made, same = blind_spots(lm, lm.tokenizer.encode(TEXT))
    assert made < 1e-3
    assert same >= 1


def test_warm_interleaved_and_cold_write_the_same(lm):
    tools = tinyllm.tools.default()
    tasks = ["What is 4871 * 209?", "What is 4871 + 36?"]
    verdicts = verify_cache(lambda: lm, tools, tasks, steps=1)  # 538 MB, loaded once
    assert [verdict for verdict in verdicts if not verdict.passed] == []

"""The agent on a real model that was never trained for it: syntax without sense."""

from __future__ import annotations

import pytest

import tinyllm
from tinyllm.errors import ModelNotFoundError
from tinyllm.evaluate.ablation import ARMS, CONDITIONS, outcomes

pytestmark = pytest.mark.judge


@pytest.fixture(scope="module")
def lm():
    try:
        return tinyllm.load("smollm2")
    except ModelNotFoundError:
        pytest.skip("smollm2 is absent: make judges")


@pytest.mark.parametrize("family", ["direct", "lookup", "no_tool"])
def test_under_the_mask_every_call_of_smollm2_fits_its_schema(lm, family):
    (found,) = outcomes(lm, CONDITIONS["smollm2"], ARMS["mask"], family, 1)
    assert found.valid
    assert found.mass_kept < 0.99, "it would have written something else"


def test_an_outcome_of_smollm2_is_the_same_each_time(lm):
    args = (lm, CONDITIONS["smollm2"], ARMS["retry"], "direct", 1)
    assert list(outcomes(*args)) == list(outcomes(*args))

"""What `check_int` accepts as a whole number, and the error for anything else."""

import numpy as np
import pytest

from tinyllm.errors import UsageError, check_int, is_int


@pytest.mark.parametrize("value", [0, 7, np.int64(7), np.uint8(0), 2**70])
def test_whole_numbers_are_pythons_and_numpys(value):
    assert is_int(value)
    assert check_int("seed", value) == value
    assert type(check_int("seed", value)) is int


@pytest.mark.parametrize(
    "value", [True, False, np.True_, 1.0, np.float32(2), "3", None, -1, np.int8(-1)]
)
def test_anything_else_is_refused_with_the_options_name(value):
    with pytest.raises(UsageError, match="seed must be a whole number of 0 or more"):
        check_int("seed", value)


def test_the_least_value_is_named_and_allowed():
    assert check_int("attempts", 1, least=1) == 1
    with pytest.raises(UsageError, match=r"attempts must be .* of 1 or more, not 0"):
        check_int("attempts", 0, least=1)

"""What `tinyllm.strict_json` reads and what it refuses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.strict_json import read, read_first

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(values.filter(lambda value: "Infinity" not in json.dumps(value)))
def test_what_json_writes_is_read_back(value):
    assert read(json.dumps(value)) == value
    assert read_first(json.dumps([value]) + " [and more") == [value]


@pytest.mark.parametrize("reader", [read, read_first])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": {"b": 1, "c": 2, "b": 1}}', "a key is given twice among 'b', 'c'"),
        ("[NaN]", "the number NaN is not finite"),
        ("[-Infinity]", "the number -Infinity is not finite"),
        ("[1e999]", "the number 1e999 is not finite"),
        (r'["\ud83d"]', "half a surrogate pair"),
        ('{"\ud83d": 1}', "half a surrogate pair"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1', "Expecting"),
        ("{'a': 1}", "Expecting"),
        ("", "Expecting"),
    ],
)
def test_what_others_would_refuse_or_understand_differently_is_an_error(
    reader, text, said
):
    with pytest.raises(ValueError, match=said):
        reader(text)


def test_only_the_first_value_may_be_followed_by_more():
    assert read_first('{"a": 1}{"a": 2}') == {"a": 1}
    with pytest.raises(json.JSONDecodeError, match="Extra data"):
        read('{"a": 1}{"a": 2}')


def test_a_whole_surrogate_pair_is_one_character():
    assert read(r'"\ud83e\udd99"') == "🦙"


def test_whole_numbers_are_made_by_the_function_given():
    assert read("[-0, 7]") == [0, 7]
    assert str(read("[-0, 7]", parse_int=float)) == "[-0.0, 7.0]"

"""The comparison of trees that other tests rely on."""

import numpy as np
import pytest
from trees import assert_close, distance

ONES = {"head": (np.ones(3), np.ones((2, 2))), "step": np.int32(4)}


def with_entry(value, at=(1, 0)):
    second = np.ones((2, 2))
    second[at] = value
    return ONES | {"head": (np.ones(3), second)}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_noticed_in_any_leaf(value):
    for found, expected in ((with_entry(value), ONES), (ONES, with_entry(value))):
        with pytest.raises(AssertionError, match=r"head\.1\[1, 0\]"):
            assert_close(found, expected, 1e9, 1e9)


def test_nan_equals_nothing_and_equal_infinities_are_equal():
    with pytest.raises(AssertionError, match=r"head\.1\[1, 0\] is nan, expected nan"):
        assert_close(with_entry(np.nan), with_entry(np.nan))
    assert_close(with_entry(np.inf), with_entry(np.inf))


def test_a_distance_to_nan_is_neither_small_nor_large():
    far = distance(with_entry(np.nan), ONES)
    assert not far < np.inf
    assert not far > 0


def test_a_failure_names_the_leaf_the_index_and_both_values():
    with pytest.raises(AssertionError) as failure:
        assert_close(with_entry(1.5) | {"step": np.int32(5)}, ONES, 0.1)
    assert str(failure.value) == (
        "head.1[1, 0] is 1.5, expected 1.0; 1 of 4 differ\nstep is 5.0, expected 4.0; 1 of 1 differ"
    )


def test_without_a_tolerance_the_last_bit_counts():
    assert_close(ONES, with_entry(1.0))
    nearly = with_entry(np.nextafter(np.float32(1), np.float32(2)))
    with pytest.raises(AssertionError):
        assert_close(nearly, ONES)
    assert_close(nearly, ONES, 1e-6)
    assert_close(nearly, ONES, rtol=1e-6)
    with pytest.raises(AssertionError):
        assert_close(nearly, ONES, 1e-8)


def test_other_shapes_and_other_leaves_are_noticed():
    with pytest.raises(AssertionError, match=r"step has shape \(1,\), expected \(\)"):
        assert_close(ONES | {"step": np.ones(1)}, ONES | {"step": np.ones(())})
    with pytest.raises(AssertionError, match="other leaves"):
        assert_close({"a": np.ones(1)}, {"b": np.ones(1)})
    with pytest.raises(AssertionError, match="other leaves"):
        assert_close([np.ones(1)], [np.ones(1)] * 2)


def test_a_distance_is_the_largest_over_all_leaves():
    assert distance(with_entry(-3.0), ONES) == 4.0
    assert distance({}, {}) == 0.0

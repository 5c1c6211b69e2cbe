"""Checkpoint files: written atomically, verified when read."""

import errno

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from grasp.runs import checkpoint


@pytest.fixture
def tree():
    return {
        "key": jax.random.split(jax.random.key(3), 2),
        "empty": jnp.zeros((4, 0)),
        "flags": jnp.array([True, False]),
        "nested": (jnp.arange(5), jnp.float32(1.5)),
    }


def test_a_tree_is_restored_exactly(tree, tmp_path):
    path = tmp_path / checkpoint.name_of(7)
    checkpoint.save(path, tree, {"journal": "12"})
    found, words = checkpoint.load(path, jax.eval_shape(lambda: tree))
    assert words["journal"] == "12"
    assert checkpoint.number_of(path) == 7
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(found), strict=True):
        assert a.dtype == b.dtype
        a, b = (jax.random.key_data(x) if checkpoint.is_key(x) else x for x in (a, b))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file_is_named_and_not_loaded(tree, tmp_path, keep):
    path = tmp_path / checkpoint.name_of(1)
    checkpoint.save(path, tree, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(checkpoint.Damaged, match=path.name):
        checkpoint.load(path, tree)


def test_one_flipped_bit_is_detected(tree, tmp_path):
    path = tmp_path / checkpoint.name_of(1)
    checkpoint.save(path, tree, {})
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(checkpoint.Damaged, match="digest"):
        checkpoint.load(path, tree)


def test_a_tree_of_another_shape_is_refused(tree, tmp_path):
    path = tmp_path / checkpoint.name_of(1)
    checkpoint.save(path, tree, {})
    with pytest.raises(checkpoint.Misfit, match="flags"):
        checkpoint.load(path, tree | {"flags": jnp.zeros(3, bool)})


def test_a_full_disk_leaves_the_old_file_and_no_partial_one(tree, tmp_path, monkeypatch):
    path = tmp_path / checkpoint.name_of(1)
    checkpoint.save(path, tree, {})
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(path, tree | {"flags": jnp.array([False, False])}, {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_only_the_newest_two_are_kept(tree, tmp_path):
    for number in (1, 2, 10, 3):
        checkpoint.save(tmp_path / checkpoint.name_of(number), tree, {})
    checkpoint.prune(tmp_path)
    assert [checkpoint.number_of(p) for p in checkpoint.stored(tmp_path)] == [3, 10]

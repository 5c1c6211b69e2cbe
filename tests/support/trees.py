"""Comparisons of nested containers of arrays that say which numbers differ, and that NaN does not pass."""

import jax
import numpy as np


def named(tree):
    """The leaves of nested containers by dotted names, such as `head.weight`."""
    return {
        ".".join(str(next(getattr(k, a) for a in ("key", "name", "idx") if hasattr(k, a))) for k in path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def pairs(found, expected):
    """(name, leaf of `found`, leaf of `expected`). A tuple may stand for a named tuple; keys of dicts must agree."""
    left, right = (jax.tree_util.tree_leaves_with_path(tree) for tree in (found, expected))
    keys = [[[k.key for k in path if hasattr(k, "key")] for path, _ in side] for side in (left, right)]
    assert keys[0] == keys[1], f"other leaves: {sorted(named(found))} for {sorted(named(expected))}"
    return zip(named(found), *([jax.device_get(leaf) for _, leaf in side] for side in (left, right)), strict=True)


def gap(a, b):
    """|a - b| of every entry, 0 where both are the same infinity."""
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(a, b), 0.0, np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)))


def assert_close(found, expected, atol=0.0, rtol=0.0):
    """Every number is within atol + rtol |expected|; equal, where no tolerance is given. NaN equals nothing, not even
    NaN. The message has every leaf that differs, with its largest difference."""
    wrong = []
    for name, *leaves in pairs(found, expected):
        mine, theirs = (np.asarray(leaf, np.float64) for leaf in leaves)
        if mine.shape != theirs.shape:
            wrong.append(f"{name} has shape {mine.shape}, expected {theirs.shape}")
            continue
        error = gap(mine, theirs)
        size = np.where(np.isfinite(theirs), np.abs(theirs), 0.0)
        close = error <= atol + rtol * size
        if not close.all():
            at = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, np.where(close, -1, error))), error.shape)
            place = f"{name}{list(map(int, at)) if at else ''}"
            wrong.append(f"{place} is {mine[at]}, expected {theirs[at]}; {(~close).sum()} of {close.size} differ")
    assert not wrong, "\n".join(wrong)


def distance(a, b):
    """The largest difference of two trees, for saying that they differ: NaN, which exceeds nothing, if one has NaN."""
    gaps = [np.max(gap(x, y)) for _, x, y in pairs(a, b)]
    return float(np.max(gaps)) if gaps else 0.0


def flat(tree):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def cosine(a, b):
    x, y = flat(a), flat(b)
    return x @ y / (np.linalg.norm(x) * np.linalg.norm(y))


def lengths(tree):
    """The norm of every agent's part of leaves [N, ...]."""
    return np.sqrt(sum(np.square(x).reshape(len(x), -1).sum(1) for x in jax.tree.leaves(jax.device_get(tree))))

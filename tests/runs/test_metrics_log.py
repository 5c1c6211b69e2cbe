"""The metrics file: exact numbers, whole lines, cut back to a checkpoint."""

import json

import numpy as np
import pytest

from grasp.runs.metrics_log import Journal, plain, read
from grasp.types import GraspError


@pytest.mark.parametrize("value", [0.1, 1e-30, 3.4e38, -7.25, 123456.79])
def test_a_float32_survives_the_file_exactly(value):
    number = np.float32(value)
    assert np.float32(json.loads(json.dumps(plain(number)))) == number


def test_arrays_become_lists_and_what_is_no_number_null():
    values = {
        "a": np.float32([[1, 2], [3, np.nan]]),
        "b": np.int64(3),
        "c": np.bool_(True),
        "d": float("inf"),
        "e": "x",
    }
    assert plain(values) == {"a": [[1.0, 2.0], [3.0, None]], "b": 3, "c": True, "d": None, "e": "x"}


def test_a_resumed_journal_forgets_what_its_checkpoint_did_not_see(tmp_path):
    path = tmp_path / "metrics.jsonl"
    journal = Journal(path)
    journal.write({"kind": "iteration", "env_steps": 0, "n": 1})
    size = journal.commit()
    journal.write({"kind": "iteration", "env_steps": 0, "n": 2})
    journal.close()
    journal = Journal(path, keep=size)
    journal.write({"kind": "iteration", "env_steps": 0, "n": 3})
    journal.close()
    assert [line["n"] for line in read(path)] == [1, 3]


@pytest.mark.parametrize("rest", ['{"kind": "x", "env', "\0\0\0\n", '[1]\n{"kind": "x", "env_steps": 3}\n'])
def test_reading_stops_where_a_crash_left_something_else(tmp_path, rest):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "x", "env_steps": 1}\n' + rest)
    assert [line["env_steps"] for line in read(path)] == [1]
    assert read(tmp_path / "none.jsonl") == []


def test_a_journal_shorter_than_its_checkpoint_is_refused_and_not_padded(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for content in ('{"kind": "x", "env_steps": 1}\n', '{"kind": "x", "env_steps": 1}\n{"ki', ""):
        path.write_text(content)
        with pytest.raises(GraspError, match="shorter than its checkpoint"):
            Journal(path, keep=100)
        assert path.read_text() == content
    path.write_text('xx\n{"kind": "x", "env_steps": 1}\n')
    with pytest.raises(GraspError, match="line 1 of .* is damaged"):  # which is why it is shorter
        Journal(path, keep=100)


LINES = [json.dumps({"kind": "x", "env_steps": 10**n}).encode() + b"\n" for n in range(5)]


@pytest.mark.parametrize(
    ("line", "put", "named"),
    [
        (2, b"\0" * 10 + b"\n", 2),
        (1, b'{"kind": "x", "env_steps": 1\n', 1),
        (3, b"\n", 3),
        (4, b'{"kind": "x", "env_steps": 44444}\n', 4),  # whole, but longer: the checkpoint's end lies inside
        (1, b"", 4),  # gone, so the checkpoint's end lies in what follows
    ],
)
def test_a_journal_damaged_before_its_checkpoint_is_refused_and_not_cut(tmp_path, line, put, named):
    path = tmp_path / "run" / "seed-3" / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    damaged = b"".join([*LINES[: line - 1], put, *LINES[line:]])
    path.write_bytes(damaged)
    words = f"line {named} of {path} is damaged; restore the file, or remove {path.parent} and train anew with: "
    with pytest.raises(GraspError) as mistake:
        Journal(path, keep=len(b"".join(LINES[:4])))
    assert str(mistake.value) == f"{words}grasp resume {tmp_path / 'run'}"
    assert path.read_bytes() == damaged


def test_what_a_kill_left_after_the_checkpoint_is_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(LINES[:3]) + b'\0\0\n{"kind": "x", "env')
    Journal(path, keep=len(b"".join(LINES[:2]))).close()
    assert path.read_bytes() == b"".join(LINES[:2])

"""The metrics log: exact numbers, whole records, truncated to a checkpoint on resume."""

import json
import os

import numpy as np
import pytest

from grasp.runs import metrics_log
from grasp.runs.metrics_log import Follower, MetricsWriter, Reader, is_finished, parse, plain, read
from grasp.types import GraspError


@pytest.mark.parametrize("value", [0.1, 1e-30, 3.4e38, -7.25, 123456.79])
def test_a_float32_survives_the_file_exactly(value):
    number = np.float32(value)
    assert np.float32(json.loads(json.dumps(plain(number)))) == number


def test_arrays_become_lists_and_nan_becomes_null():
    values = {
        "a": np.float32([[1, 2], [3, np.nan]]),
        "b": np.int64(3),
        "c": np.bool_(True),
        "d": float("inf"),
        "e": "x",
    }
    assert plain(values) == {"a": [[1.0, 2.0], [3.0, None]], "b": 3, "c": True, "d": None, "e": "x"}


def record(steps: int, kind: str = "iteration", **values) -> dict:
    return {"kind": kind, "env_steps": steps, "seed": 0} | values


def line(steps: int, kind: str = "iteration", **values) -> bytes:
    return json.dumps(record(steps, kind, **values)).encode() + b"\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_a_resumed_run_drops_what_was_written_after_its_checkpoint(path):
    log = MetricsWriter(path)
    log.write(record(0, n=1))
    size = log.commit()
    log.write(record(0, n=2))
    log.close()
    log = MetricsWriter(path, keep=size)
    log.write(record(0, n=3))
    log.close()
    assert [found["n"] for found in read(path).records] == [1, 3]


DAMAGED = {
    "text": b"not json",
    "binary": b"\xff\xfe\x00",
    "zeros": b"\0" * 10,
    "empty": b"",
    "truncated": b'{"kind": "iteration", "env_steps": 5',
    "list": b"[1]",
    "too deep": b'{"kind": "iteration", "env_steps": 3, "x": ' + b"[" * 200_000,
    "other program": b'{"kind": "log", "env_steps": 3, "seed": 0}',
    "kind is no text": b'{"kind": {"a": 1}, "env_steps": 3, "seed": 0}',
    "no steps": b'{"kind": "iteration", "seed": 0}',
    "steps in words": b'{"kind": "iteration", "env_steps": "many", "seed": 0}',
    "part of a step": b'{"kind": "iteration", "env_steps": 2.5, "seed": 0}',
    "negative": b'{"kind": "iteration", "env_steps": -5, "seed": 0}',
    "too large": b'{"kind": "evaluation", "env_steps": 3, "seed": 0, "return_mean": 1' + b"0" * 400 + b"}",
    "infinite": b'{"kind": "evaluation", "env_steps": 3, "seed": 0, "return_mean": 1e999}',
    "another metric is infinite": b'{"kind": "iteration", "env_steps": 3, "seed": 0, "loss": -Infinity}',
    "endless": b'{"kind": "iteration", "env_steps": 1e999, "seed": 0}',
    "nan": b'{"kind": "iteration", "env_steps": NaN, "seed": 0}',
    "no seed": b'{"kind": "iteration", "env_steps": 3}',
    "no score": line(3, "evaluation")[:-1],
    "score in words": line(3, "evaluation", return_mean="high")[:-1],
    "wins are no list": line(3, "evaluation", return_mean=1.0, wins=3)[:-1],
    "episodes are no count": line(3, "absolute", return_mean=1.0, episodes=0.5)[:-1],
    "metric is true": line(3, conflict_rate=True)[:-1],
    "clock in words": line(3, wall={"took": "long"})[:-1],
    "clock is no object": line(3, wall=3)[:-1],
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_left_out_and_counted_in_the_same_way_by_every_reader(path, damaged):
    path.write_bytes(b"")
    follower = Follower(path)
    path.write_bytes(line(1) + damaged + b"\n" + line(9))
    assert parse(damaged) is None
    assert read(path) == ([record(1), record(9)], [2], False)
    assert follower.news() == [record(1), record(9)]


def test_a_line_without_an_end_is_partial_and_not_damaged(path):
    assert read(path) == ([], [], False), "there is no file"
    path.write_bytes(line(1) + line(2)[:-1])
    assert read(path) == ([record(1)], [], True)
    path.write_bytes(line(1) + line(2))
    assert read(path) == ([record(1), record(2)], [], False)
    assert read(path, end=len(line(1)) + 5) == ([record(1)], [], True)


def test_whole_steps_may_be_written_as_a_float_and_null_stands_for_nan():
    assert parse(line(5.0, "evaluation", return_mean=None, win_rate=None)) == record(
        5, "evaluation", return_mean=None, win_rate=None
    )


@pytest.mark.parametrize("size", [metrics_log.LONGEST_LINE + 10, metrics_log.BLOCK, 2 * metrics_log.BLOCK + 7])
def test_a_gigantic_line_is_one_damaged_line_and_is_not_kept_in_memory(path, size):
    path.write_bytes(line(1) + b"x" * size)
    reader = Reader(path)
    assert sum(len(block.lines()) for block in reader.blocks()) <= 2
    assert len(reader.ending) <= metrics_log.ENDING
    with path.open("ab") as file:
        file.write(b"\n" + line(9) + b"\n" + line(10))
    assert read(path) == ([record(1), record(9), record(10)], [2, 4], False)


def test_a_file_is_read_block_by_block(path, monkeypatch):
    monkeypatch.setattr(metrics_log, "BLOCK", 200)
    path.write_bytes(b"".join(line(k) for k in range(50)) + b"?\n")
    blocks = list(Reader(path).blocks())
    assert len(blocks) > 10
    assert [block.start for block in blocks[1:]] == np.cumsum([len(block.content) for block in blocks])[:-1].tolist()
    assert read(path) == ([record(k) for k in range(50)], [51], False)


def test_only_a_whole_log_that_ends_with_the_absolute_metric_at_the_end_is_finished():
    assert is_finished(record(800, "absolute"), False, 800)
    assert not is_finished(record(400, "absolute"), False, 800), "of a run that was extended"
    assert not is_finished(record(800, "evaluation"), False, 800)
    assert not is_finished(record(800, "absolute"), True, 800), "a line is damaged"
    assert not is_finished(record(800, "absolute"), False, None), "its steps are unknown"
    assert not is_finished({}, False, 0)
    assert not is_finished(None, False, 0)


def news(follower: Follower) -> list[int]:
    return [found["env_steps"] for found in follower.news()]


def test_a_log_is_followed_as_it_grows_and_as_it_is_truncated(path):
    follower = Follower(path)
    assert news(follower) == []
    path.write_bytes(line(1) + line(2)[:10])
    assert news(follower) == [1]
    path.write_bytes(line(1) + line(2) + line(3))
    assert news(follower) == [2, 3]
    assert news(follower) == []
    path.write_bytes(line(1))
    assert news(follower) == []
    path.write_bytes(line(1) + line(2))
    assert news(follower) == [2]
    assert news(Follower(path)) == [], "what was written before is not new"


def test_a_log_that_is_truncated_and_grows_between_two_calls_is_followed_from_where_it_changed(path):
    path.write_bytes(line(1) + line(2, wall={"took": 1.0}) + line(3))
    follower = Follower(path)
    path.write_bytes(line(1) + line(2, wall={"took": 2.0}) + line(3) + line(4))
    assert news(follower) == [2, 3, 4]
    path.unlink()
    assert news(follower) == []
    path.write_bytes(line(1))
    assert news(follower) == [1]
    other = path.with_name("other")
    other.write_bytes(line(7) + line(8))
    os.replace(other, path)
    assert news(follower) == [7, 8]


def test_a_log_shorter_than_at_its_checkpoint_is_refused_and_not_padded(path):
    for content in (line(1), line(1) + b'{"ki', b""):
        path.write_bytes(content)
        with pytest.raises(GraspError, match="shorter than at its checkpoint"):
            MetricsWriter(path, keep=100)
        assert path.read_bytes() == content
    path.write_bytes(b"xx\n" + line(1))
    with pytest.raises(GraspError, match="line 1 of .* is damaged"):  # which is why it is shorter
        MetricsWriter(path, keep=100)


LINES = [line(10**n) for n in range(5)]


@pytest.mark.parametrize(
    ("place", "put", "named"),
    [
        (2, b"\0" * 10 + b"\n", 2),
        (1, line(1)[:-2] + b"\n", 1),
        (3, b"\n", 3),
        (4, line(44444), 4),  # a record, but longer: the checkpoint's end lies within it
        (1, b"", 4),  # removed, so that the checkpoint's end lies within a later line
    ],
)
def test_a_log_damaged_before_its_checkpoint_is_refused_and_not_truncated(tmp_path, place, put, named):
    path = tmp_path / "run" / "seed-3" / "metrics.jsonl"
    path.parent.mkdir(parents=True)
    damaged = b"".join([*LINES[: place - 1], put, *LINES[place:]])
    path.write_bytes(damaged)
    advice = f"line {named} of {path} is damaged; restore the file, or remove {path.parent} and train anew with: "
    with pytest.raises(GraspError) as mistake:
        MetricsWriter(path, keep=len(b"".join(LINES[:4])))
    assert str(mistake.value) == f"{advice}grasp resume {tmp_path / 'run'}"
    assert path.read_bytes() == damaged


def test_what_a_killed_process_left_after_the_checkpoint_is_dropped(path):
    path.write_bytes(b"".join(LINES[:3]) + b'\0\0\n{"kind": "iteration", "env')
    MetricsWriter(path, keep=len(b"".join(LINES[:2]))).close()
    assert path.read_bytes() == b"".join(LINES[:2])

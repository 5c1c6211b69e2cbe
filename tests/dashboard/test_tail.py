"""A metrics log that grows, shrinks, is replaced, or has damaged lines."""

import json
import os

import pytest
from dashboard_runs import as_lines, evaluation, iteration

from grasp.dashboard import tail as module
from grasp.dashboard.tail import Score, Tail, number
from grasp.runs.metrics_log import BLOCK, LONGEST_LINE


def read_all(tail: Tail) -> Tail:
    while tail.advance():
        pass
    return tail


@pytest.fixture
def path(tmp_path):
    return tmp_path.resolve() / "metrics.jsonl"


def test_evaluations_are_kept_and_iterations_skipped(path):
    path.write_bytes(as_lines(evaluation(0, 1.5), iteration(100), evaluation(200, 2.5, win_rate=0.25)))
    content = read_all(Tail(path)).content
    assert content.scores == {0: Score(0, 1.5, None), 200: Score(200, 2.5, 0.25)}
    assert content.offset == path.stat().st_size
    assert content.skipped == 0


def test_only_new_lines_are_read(path, monkeypatch):
    path.write_bytes(as_lines(evaluation(0, 1.0)))
    tail = read_all(Tail(path))
    taken = []
    monkeypatch.setattr(module, "_take", lambda content, block: taken.append((block.content, block.start)))
    assert not tail.advance()
    more = as_lines(evaluation(100, 2.0))
    before = path.stat().st_size
    with path.open("ab") as file:
        file.write(more)
    assert tail.advance()
    assert taken == [(more, before)]


def test_an_incomplete_line_is_read_once_it_is_complete(path):
    line = as_lines(evaluation(100, 2.0))
    path.write_bytes(as_lines(evaluation(0, 1.0)) + line[:30])
    tail = read_all(Tail(path))
    assert list(tail.content.scores) == [0]
    assert tail.content.skipped == 0
    with path.open("ab") as file:
        file.write(line[30:])
    assert list(read_all(tail).content.scores) == [0, 100]


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"",
        b"[1, 2]",
        b'{"kind": "evaluation"}',
        b'{"kind": "evaluation", "env_steps": "many"}',
        b'{"kind": "evaluation", "env_steps": -5}',
        b'{"kind": "evaluation", "env_steps": 1e999}',
        b'{"kind": {"a": 1}, "env_steps": 1}',
        b'{"kind": "evaluation", "env_steps": 3, "x": ' + b"[" * 200_000,
        b"\xff\xfe\x00",
    ],
)
def test_damaged_lines_are_skipped_and_counted(path, line):
    path.write_bytes(as_lines(evaluation(0, 1.0)) + line + b"\n" + as_lines(evaluation(100, 2.0)))
    content = read_all(Tail(path)).content
    assert list(content.scores) == [0, 100]
    assert content.skipped == 1


@pytest.mark.parametrize("start", [b'{"kind": "evaluation", "x": "', module.ITERATION, b""])
@pytest.mark.parametrize("size", [LONGEST_LINE + 10, 2 * BLOCK + 7])
def test_an_oversized_line_is_skipped_and_counted_once(path, start, size):
    path.write_bytes(as_lines(evaluation(0, 1.0)) + start + b"x" * size + b"\n" + as_lines(evaluation(100, 2.0)))
    content = read_all(Tail(path)).content
    assert list(content.scores) == [0, 100]
    assert content.skipped == 1


def test_an_oversized_line_without_end_is_not_kept_in_memory(path):
    path.write_bytes(as_lines(evaluation(0, 1.0)) + b"y" * (2 * BLOCK))
    tail = read_all(Tail(path))
    assert tail.content.offset == path.stat().st_size
    with path.open("ab") as file:
        file.write(b"yy\n" + as_lines(evaluation(100, 2.0)))
    assert list(read_all(tail).content.scores) == [0, 100]
    assert tail.content.skipped == 1


def test_a_truncated_file_is_read_again(path):
    path.write_bytes(as_lines(evaluation(0, 1.0), evaluation(100, 2.0)))
    tail = read_all(Tail(path))
    path.write_bytes(as_lines(evaluation(0, 5.0)))
    assert read_all(tail).content.scores == {0: Score(0, 5.0, None)}
    assert tail.generation == 1


def test_a_file_truncated_and_grown_beyond_the_offset_is_read_again(path):
    """A run that resumes between two reads writes the same lines with other times, and more."""
    path.write_bytes(as_lines(evaluation(0, 1.0), evaluation(100, 2.0)))
    tail = read_all(Tail(path))
    again = evaluation(100, 2.0) | {"wall": {"seconds": 77.123}}
    path.write_bytes(as_lines(evaluation(0, 1.0), again, evaluation(200, 3.0), evaluation(300, 4.0)))
    assert list(read_all(tail).content.scores) == [0, 100, 200, 300]
    assert tail.generation == 1


def test_a_replaced_file_is_read_again(path, tmp_path):
    path.write_bytes(as_lines(evaluation(0, 1.0)))
    tail = read_all(Tail(path))
    other = tmp_path / "other"
    other.write_bytes(as_lines(evaluation(0, 9.0), evaluation(50, 8.0)))
    os.replace(other, path)
    assert read_all(tail).content.scores[0].return_mean == 9.0


def test_a_removed_file_is_empty_until_it_exists_again(path):
    path.write_bytes(as_lines(evaluation(0, 1.0)))
    tail = read_all(Tail(path))
    path.unlink()
    assert tail.advance()
    assert tail.content.scores == {}
    assert not tail.advance()
    path.write_bytes(as_lines(evaluation(0, 2.0)))
    assert read_all(tail).content.scores[0].return_mean == 2.0


def test_the_later_of_two_evaluations_at_the_same_step_counts(path):
    path.write_bytes(as_lines(evaluation(100, 1.0), evaluation(100, 2.0)))
    assert read_all(Tail(path)).content.scores == {100: Score(100, 2.0, None)}


def test_memory_is_bounded_and_the_last_evaluation_kept(path):
    records = [evaluation(k, 1.0) for k in range(3 * module.MOST_EVALUATIONS)]
    path.write_bytes(as_lines(*records, *[iteration(k, skipped_steps=1.0) for k in range(2 * module.MOST_FLAGGED)]))
    content = read_all(Tail(path)).content
    assert len(content.scores) <= 1.5 * module.MOST_EVALUATIONS + 1
    assert {0, len(records) - 1} <= content.scores.keys()
    assert len(content.flagged) == module.MOST_FLAGGED


def test_offsets_of_lines_with_a_skipped_step_are_recorded(path):
    calm, skipped = iteration(100, critic_skipped_steps=1.0), iteration(200, skipped_steps=2.0)
    path.write_bytes(as_lines(evaluation(0, 1.0), calm, skipped, calm))
    (offset,) = read_all(Tail(path)).content.flagged
    assert json.loads(path.read_bytes()[offset:].split(b"\n")[0]) == skipped


def test_symbolic_links_and_pipes_are_not_opened(path, tmp_path):
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(as_lines(evaluation(0, 1.0)))
    path.symlink_to(outside)
    assert not Tail(path).advance()
    path.unlink()
    os.mkfifo(path)
    assert not Tail(path).advance()


def test_only_finite_numbers_are_numbers():
    assert number(None) is None
    assert number(True) is None
    assert number("1") is None
    assert number(float("nan")) is None
    assert number(10**400) is None
    assert number(3) == 3.0

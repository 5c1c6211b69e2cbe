"""A metrics file that grows, shrinks, is replaced, or holds what nobody should write."""

import json
import os

import pytest
from dashboard_runs import as_lines, evaluation, iteration

from grasp.dashboard import tail as tails
from grasp.dashboard.tail import Score, Tail, number
from grasp.runs.metrics_log import BLOCK, LONGEST_LINE


def read_all(tail: Tail) -> Tail:
    while tail.advance():
        pass
    return tail


@pytest.fixture
def path(tmp_path):
    return tmp_path.resolve() / "metrics.jsonl"


def test_evaluations_are_kept_and_iterations_passed_over(path):
    path.write_bytes(as_lines(evaluation(0, 1.5), iteration(100), evaluation(200, 2.5, win_rate=0.25)))
    seen = read_all(Tail(path)).seen
    assert seen.scores == {0: Score(0, 1.5, None), 200: Score(200, 2.5, 0.25)}
    assert seen.offset == path.stat().st_size
    assert seen.skipped == 0


def test_only_what_is_new_is_read(path, monkeypatch):
    path.write_bytes(as_lines(evaluation(0, 1.0)))
    tail = read_all(Tail(path))
    taken = []
    monkeypatch.setattr(tails, "_take", lambda seen, block: taken.append((block.content, block.start)))
    assert not tail.advance()
    more = as_lines(evaluation(100, 2.0))
    before = path.stat().st_size
    with path.open("ab") as file:
        file.write(more)
    assert tail.advance()
    assert taken == [(more, before)]


def test_a_half_written_line_waits_for_its_end(path):
    line = as_lines(evaluation(100, 2.0))
    path.write_bytes(as_lines(evaluation(0, 1.0)) + line[:30])
    tail = read_all(Tail(path))
    assert list(tail.seen.scores) == [0]
    assert tail.seen.skipped == 0
    with path.open("ab") as file:
        file.write(line[30:])
    assert list(read_all(tail).seen.scores) == [0, 100]


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
def test_what_is_no_record_is_skipped_and_counted(path, line):
    path.write_bytes(as_lines(evaluation(0, 1.0)) + line + b"\n" + as_lines(evaluation(100, 2.0)))
    seen = read_all(Tail(path)).seen
    assert list(seen.scores) == [0, 100]
    assert seen.skipped == 1


@pytest.mark.parametrize("start", [b'{"kind": "evaluation", "x": "', tails.ITERATION, b""])
@pytest.mark.parametrize("size", [LONGEST_LINE + 10, 2 * BLOCK + 7])
def test_a_gigantic_line_is_skipped_and_counted_once(path, start, size):
    path.write_bytes(as_lines(evaluation(0, 1.0)) + start + b"x" * size + b"\n" + as_lines(evaluation(100, 2.0)))
    seen = read_all(Tail(path)).seen
    assert list(seen.scores) == [0, 100]
    assert seen.skipped == 1


def test_a_gigantic_line_without_end_is_not_kept(path):
    path.write_bytes(as_lines(evaluation(0, 1.0)) + b"y" * (2 * BLOCK))
    tail = read_all(Tail(path))
    assert tail.seen.offset == path.stat().st_size
    with path.open("ab") as file:
        file.write(b"yy\n" + as_lines(evaluation(100, 2.0)))
    assert list(read_all(tail).seen.scores) == [0, 100]
    assert tail.seen.skipped == 1


def test_a_file_that_shrank_is_read_anew(path):
    path.write_bytes(as_lines(evaluation(0, 1.0), evaluation(100, 2.0)))
    tail = read_all(Tail(path))
    path.write_bytes(as_lines(evaluation(0, 5.0)))
    assert read_all(tail).seen.scores == {0: Score(0, 5.0, None)}
    assert tail.generation == 1


def test_a_file_cut_back_and_grown_past_where_we_were_is_read_anew(path):
    """What a resumed run does between two looks: the same lines but for their times, and more."""
    path.write_bytes(as_lines(evaluation(0, 1.0), evaluation(100, 2.0)))
    tail = read_all(Tail(path))
    again = evaluation(100, 2.0) | {"wall": {"seconds": 77.123}}
    path.write_bytes(as_lines(evaluation(0, 1.0), again, evaluation(200, 3.0), evaluation(300, 4.0)))
    assert list(read_all(tail).seen.scores) == [0, 100, 200, 300]
    assert tail.generation == 1


def test_a_replaced_file_is_read_anew(path, tmp_path):
    path.write_bytes(as_lines(evaluation(0, 1.0)))
    tail = read_all(Tail(path))
    other = tmp_path / "other"
    other.write_bytes(as_lines(evaluation(0, 9.0), evaluation(50, 8.0)))
    os.replace(other, path)
    assert read_all(tail).seen.scores[0].return_mean == 9.0


def test_a_file_that_went_leaves_nothing_and_may_come_back(path):
    path.write_bytes(as_lines(evaluation(0, 1.0)))
    tail = read_all(Tail(path))
    path.unlink()
    assert tail.advance()
    assert tail.seen.scores == {}
    assert not tail.advance()
    path.write_bytes(as_lines(evaluation(0, 2.0)))
    assert read_all(tail).seen.scores[0].return_mean == 2.0


def test_a_repeated_point_takes_its_later_value(path):
    path.write_bytes(as_lines(evaluation(100, 1.0), evaluation(100, 2.0)))
    assert read_all(Tail(path)).seen.scores == {100: Score(100, 2.0, None)}


def test_memory_is_bounded_and_the_newest_evaluation_stays(path):
    records = [evaluation(k, 1.0) for k in range(3 * tails.MOST_EVALUATIONS)]
    path.write_bytes(as_lines(*records, *[iteration(k, skipped_steps=1.0) for k in range(2 * tails.MOST_FLAGGED)]))
    seen = read_all(Tail(path)).seen
    assert len(seen.scores) <= 1.5 * tails.MOST_EVALUATIONS + 1
    assert {0, len(records) - 1} <= seen.scores.keys()
    assert len(seen.flagged) == tails.MOST_FLAGGED


def test_lines_with_a_skipped_step_are_noted_where_they_begin(path):
    calm, skipped = iteration(100, critic_skipped_steps=1.0), iteration(200, skipped_steps=2.0)
    path.write_bytes(as_lines(evaluation(0, 1.0), calm, skipped, calm))
    (place,) = read_all(Tail(path)).seen.flagged
    assert json.loads(path.read_bytes()[place:].split(b"\n")[0]) == skipped


def test_links_and_pipes_are_not_opened(path, tmp_path):
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(as_lines(evaluation(0, 1.0)))
    path.symlink_to(outside)
    assert not Tail(path).advance()
    path.unlink()
    os.mkfifo(path)
    assert not Tail(path).advance()


def test_gaps_and_numbers():
    assert number(None) is None
    assert number(True) is None
    assert number("1") is None
    assert number(float("nan")) is None
    assert number(10**400) is None
    assert number(3) == 3.0

"""The last lines of a metrics log, and a sample of its iterations."""

import pytest
from dashboard_runs import as_lines, evaluation, iteration

from grasp.dashboard import sampling
from grasp.dashboard.sampling import latest, sample, thinned
from grasp.dashboard.tail import Score, Tail


@pytest.fixture
def path(tmp_path):
    return tmp_path.resolve() / "metrics.jsonl"


def test_progress_and_rate_are_those_of_the_last_lines(path):
    path.write_bytes(as_lines(*[iteration(100 * k) for k in range(1, 2000)]))
    found = latest(path)
    assert found is not None
    assert found.env_steps == 199_900
    assert found.kind == "iteration"
    assert found.rate == pytest.approx(1000)
    assert found.gap == pytest.approx(0.1)


def test_the_rate_excludes_compilations(path):
    later = [iteration(100 * k) | {"wall": {"seconds": 400 + k / 10}} for k in range(1, 10)]
    path.write_bytes(as_lines(evaluation(0, 1.0), *later))
    assert latest(path).rate == pytest.approx(1000)
    assert latest(path).gap == pytest.approx(400.1)


def test_the_rate_starts_again_when_a_run_is_resumed(path):
    before = [iteration(100 * k) | {"wall": {"seconds": 1000 + k}} for k in range(1, 5)]
    after = [iteration(100 * k) | {"wall": {"seconds": k / 2}} for k in range(5, 10)]
    path.write_bytes(as_lines(*before, *after))
    assert latest(path).rate == pytest.approx(200)


def test_one_line_has_no_rate_and_an_empty_file_no_state(path):
    assert latest(path) is None
    path.write_bytes(b'{"kind": "evaluation", "env_st')
    assert latest(path) is None
    path.write_bytes(as_lines(evaluation(0, 1.0)))
    assert latest(path) == sampling.Latest(0, "evaluation", None, 0.0)


def test_a_short_file_is_returned_in_full(path):
    records = [iteration(100 * k) for k in range(1, 150)]
    path.write_bytes(as_lines(evaluation(0, 1.0), *records[:70], evaluation(7000, 2.0), *records[70:]))
    assert sample(path) == records


def test_a_long_file_is_sampled_evenly_and_includes_its_last_line(path):
    path.write_bytes(as_lines(*[iteration(100 * k) for k in range(1, 5001)]))
    steps = [record["env_steps"] for record in sample(path)]
    assert 190 <= len(steps) <= sampling.MOST_SAMPLES + 2
    assert steps[0] == 100
    assert steps[-1] == 500_000
    gaps = [b - a for a, b in zip(steps, steps[1:-1], strict=False)]
    assert max(gaps) <= 2 * min(gaps)


def test_a_growing_file_keeps_its_samples(path):
    records = [iteration(100 * k) for k in range(1, 5001)]
    path.write_bytes(as_lines(*records[:4500]))
    before = {record["env_steps"] for record in sample(path)}
    path.write_bytes(as_lines(*records[:4900]))
    after = {record["env_steps"] for record in sample(path)}
    assert len(before - after) <= 1, "only the line that was the last may be dropped"


def test_every_skipped_step_is_in_the_sample(path):
    records = [iteration(100 * k, skipped_steps=float(k == 3333)) for k in range(1, 5001)]
    path.write_bytes(as_lines(*records))
    tail = Tail(path)
    while tail.advance():
        pass
    assert [r["env_steps"] for r in sample(path, tail.content.flagged) if r["skipped_steps"]] == [333_300]


def test_incomplete_and_oversized_lines_are_not_sampled(path):
    records = [iteration(100 * k) for k in range(1, 50)]
    path.write_bytes(as_lines(*records[:20]) + b"x" * (3 << 20) + b"\n" + as_lines(*records[20:]) + b'{"kind": "iter')
    steps = {record["env_steps"] for record in sample(path)}
    assert {100, 4900} <= steps
    assert len(sample(path, most=10)) >= 2


def test_many_evaluations_are_thinned_and_spikes_kept():
    scores = [Score(k, 100.0 if k == 1234 else -50.0 if k == 1700 else float(k % 3), None) for k in range(2000)]
    kept = thinned(scores, 400)
    assert len(kept) <= 404
    assert {0, 1234, 1700, 1999} <= {score.env_steps for score in kept}
    assert thinned(scores[:400], 400) == scores[:400]
    gaps = [Score(k, None, None) for k in range(1000)]
    assert thinned(gaps, 100)[-1] == gaps[-1]


def test_latest_reports_whether_there_is_a_consensus(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for record, compares in ((iteration(100), True), (evaluation(100, 1.0), False)):
        path.write_bytes(as_lines(record))
        found = latest(path)
        assert found is not None
        assert found.compares is compares

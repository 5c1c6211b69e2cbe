"""A run without its networks: what is kept of it, and which commands still read it."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from comparison_runs import has, write_run
from paths import REPOSITORY

import grasp
from grasp import cli
from grasp.analysis.run_data import load_runs
from grasp.config import configure, to_json
from grasp.runs import condense as condensing
from grasp.runs.condense import ITERATIONS, condense, shortened
from grasp.types import GraspError

COMPLETE = json.loads(to_json(configure("mappo", "smax/3m", {"preset": "paper", "steps": 3200})))


def test_a_condensed_run_compares_like_the_run_itself(finished, tmp_path):
    small = condense(finished, tmp_path / "small")
    (whole,), (read,) = load_runs([finished]), load_runs([small])
    assert (read.config, read.versions, read.protocol, read.command) == (
        whole.config, whole.versions, whole.protocol, whole.command,
    )  # fmt: skip
    for mine, theirs in zip(read.seeds, whole.seeds, strict=True):
        np.testing.assert_allclose(mine.curve("return"), theirs.curve("return"), rtol=1e-5)
        assert mine.absolute is not None
        assert theirs.absolute is not None
        assert mine.absolute.return_mean == pytest.approx(theirs.absolute.return_mean, rel=1e-5)
        assert mine.absolute.returns == ()
        assert theirs.absolute.returns
        assert mine.sha256 == theirs.sha256, "the hash is the whole run's"
        assert mine.training.keys() == theirs.training.keys() == {"conflict_rate", "u_ratio"}
    assert read.seeds[0].sha256 == hashlib.sha256((finished / "seed-0" / "metrics.jsonl").read_bytes()).hexdigest()
    assert sorted(path.name for path in (small / "seed-0").iterdir()) == ["metrics.jsonl"]


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_both_hashes_are_written_and_a_changed_file_is_detected(finished, tmp_path):
    small = condense(finished, tmp_path / "small")
    files = [Path("seed-0", "metrics.jsonl"), Path("seed-1", "metrics.jsonl")]
    assert json.loads((small / "condensed.json").read_text()) == {
        str(seed): {"whole": sha256(finished / file), "kept": sha256(small / file)} for seed, file in enumerate(files)
    }
    assert load_runs([small])[0].warnings == ()
    lines = [json.loads(line) for line in (small / files[1]).read_text().splitlines()]
    better = [line | {"return_mean": 1e3} if "return_mean" in line else line for line in lines]
    (small / files[1]).write_text("".join(json.dumps(line) + "\n" for line in better))
    (run,) = load_runs([small])
    text = "was changed after it was condensed: its SHA-256 is not the one in condensed.json"
    assert run.warnings == (f"{small / files[1]} {text}",)
    assert [seed.sha256 for seed in run.seeds] == [sha256(finished / files[0]), sha256(small / files[1])]
    assert has(grasp.compare([small]).warnings, text)


def test_what_cannot_be_checked_is_one_warning_and_hashed_as_it_is_read(finished, tmp_path):
    small = condense(finished, tmp_path / "small")
    read = [sha256(small / f"seed-{seed}" / "metrics.jsonl") for seed in (0, 1)]
    for known in ({}, {"0": "abc", "1": "def"}, {"0": {"whole": "abc"}, "2": {"whole": "abc", "kept": "def"}}):
        (small / "condensed.json").write_text(json.dumps(known))
        (run,) = load_runs([small])
        assert len(run.warnings) == 1
        assert has(
            run.warnings, "condensed.json has no SHA-256 of the condensed file of seed 0, 1", "cannot be checked"
        )
        assert [seed.sha256 for seed in run.seeds] == read
    lost = {str(seed): {"whole": None, "kept": kept} for seed, kept in enumerate(read)}
    (small / "condensed.json").write_text(json.dumps(lost))
    (run,) = load_runs([small])
    assert run.warnings == ()
    assert [seed.sha256 for seed in run.seeds] == read, "of a run that was recovered from tables there is no other"


def test_the_committed_runs_are_as_they_were_condensed():
    found = sorted((REPOSITORY / "results").glob("*/runs/*"))
    assert len(found) > 50
    for path in found:
        recovered = "recovered" in json.loads((path / "versions.json").read_text())
        for seed, of in json.loads((path / "condensed.json").read_text()).items():
            assert of["kept"] == sha256(path / f"seed-{seed}" / "metrics.jsonl"), (path, seed)
            assert (of["whole"] is None) == recovered, path
    runs = load_runs(found)
    assert [warning for run in runs for warning in run.warnings] == []


def test_a_condensed_run_is_not_condensed_again(finished, tmp_path):
    """Its hash would not be that of a training run."""
    small = condense(finished, tmp_path / "small")
    with pytest.raises(GraspError, match="is condensed: .* take the run that it was made from"):
        condense(small, tmp_path / "smaller")
    assert not (tmp_path / "smaller").exists()


def test_iterations_are_kept_at_even_intervals_up_to_the_last():
    lines = [
        {"kind": "iteration", "env_steps": k, "seed": 0, "u_ratio": k / 3, "weights": [1], "signal": 0.5}
        for k in range(1, 1001)
    ]
    lines.insert(500, {"kind": "evaluation", "env_steps": 500, "seed": 0, "return_mean": 1 / 3, "returns": [1 / 3]})
    kept = shortened(lines)
    steps = [line["env_steps"] for line in kept if line["kind"] == "iteration"]
    assert len(steps) == ITERATIONS
    assert set(np.diff(steps)) == {1000 // ITERATIONS}
    assert steps[-1] == 1000
    assert [line for line in kept if line["kind"] == "evaluation"] == [
        {"kind": "evaluation", "env_steps": 500, "seed": 0, "return_mean": 0.333333}
    ]
    assert kept[0].keys() == {"kind", "env_steps", "seed", "u_ratio", "signal"}
    assert [line["env_steps"] for line in kept] == sorted(line["env_steps"] for line in kept)


def test_commands_that_need_networks_are_refused_in_one_sentence(finished, tmp_path):
    small = condense(finished, tmp_path / "small")
    before = {path: path.read_bytes() for path in small.rglob("*") if path.is_file()}
    for call in (grasp.evaluate, grasp.load, lambda p: grasp.resume(p, steps=10_000), grasp.play):
        with pytest.raises(GraspError, match="is condensed: it has no networks"):
            call(small)
    assert before == {path: path.read_bytes() for path in small.rglob("*") if path.is_file()}


def test_the_command_prints_the_size_and_overwrites_nothing(here, finished, capsys):
    assert cli.main(["condense", str(finished), "--out", "small"]) == 0
    size = sum(path.stat().st_size for path in (here / "small").rglob("*") if path.is_file())
    assert capsys.readouterr().out == f"small: {size / 1000:.0f} kB, for grasp compare and grasp watch\n"
    assert cli.main(["condense", str(finished), "--out", "small"]) == 2
    assert "small exists already; choose another --out" in capsys.readouterr().err
    assert cli.main(["compare", "small"]) == 0


def test_a_damaged_metrics_log_is_refused(finished, tmp_path):
    damaged = tmp_path / "run"
    shutil.copytree(finished, damaged)
    path = damaged / "seed-1" / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"{", b"?", 1))
    with pytest.raises(GraspError) as mistake:
        condense(damaged, tmp_path / "small")
    assert str(mistake.value) == f"line 1 of {path} is damaged; restore the file before condensing {damaged}"
    assert not (tmp_path / "small").exists()


def test_a_run_without_an_evaluation_is_refused(tmp_path):
    run = write_run(tmp_path / "run", {0: []}, config=COMPLETE)
    with pytest.raises(GraspError, match="seed 0 of .* has no evaluation yet; train it with: grasp resume"):
        condense(run, tmp_path / "small")
    assert not (tmp_path / "small").exists()


def test_lists_of_iterations_are_dropped():
    (kept,) = condensing.shortened(
        [{"kind": "iteration", "env_steps": 1, "seed": 0, "conflict_rate": 0.123456789, "cosines": [0.0] * 351}]
    )
    assert json.dumps(kept) == '{"kind": "iteration", "env_steps": 1, "seed": 0, "conflict_rate": 0.123457}'

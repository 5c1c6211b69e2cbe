"""Runs made by commit 3e33e2b still compare, condense, evaluate, act, play and resume (tests/fixtures/runs_3e33e2b).

What is read from files is compared exactly, and so are actions: with every weight changed by 1e-5 of itself, which is
more than rounding on another processor does, the stored policies act alike in these episodes (`make.py` has checked
it). Where something is computed anew, floats have a tolerance: see `close` and `same_state`.
"""

import csv
import hashlib
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import grasp

# The only names used here that are not public; where a module moves, only these lines change.
from grasp.runs.condense import condense
from grasp.training.loop import Session  # its `train(state)` is what a resumed run begins with

FIXTURES = Path(__file__).parent.parent / "fixtures" / "runs_3e33e2b"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
NAMES = list(EXPECTED["runs"])
EVERY = pytest.mark.full("every algorithm")
TIERED = [name if name in ("grasp-mappo", "qmix") else pytest.param(name, marks=EVERY) for name in NAMES]
KINDS = ("finished", "killed")
ITERATIONS, KILLED_AT = 3, 2
"""Of every run; and those that a killed run's newest checkpoint knows. Its metrics log has one more."""
STEPS_OF_A_SOLVER = "qp_iterations"
"""A metric that rounding may change by a whole number."""


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The environment of a user's own, in which one of the runs was made."""
    monkeypatch.syspath_prepend(FIXTURES)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The folder with `finished/NAME` and `killed/NAME`. Read-only."""
    folder = tmp_path_factory.mktemp("runs_3e33e2b")
    for name in NAMES:
        unpack(name, folder)
    return folder


def unpack(name: str, folder: Path) -> None:
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")


def numbers(value: Any, path: str = "") -> dict[str, float]:
    """The numbers of a JSON value by where they stand; words may change."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for name, item in items for k, v in numbers(item, f"{path}/{name}").items()}
    return {path: np.nan if value is None else value} if isinstance(value, int | float | None) else {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_comparison_gives_the_same_numbers(stored, kind, tmp_path):
    paths = [stored / kind / name for name in NAMES]
    grasp.compare(paths, out=tmp_path, labels=NAMES)
    expected = EXPECTED["compared"][kind]
    for file, key in (("rows.csv", "rows"), ("curves.csv", "curves")):
        found = list(csv.DictReader((tmp_path / file).read_text().splitlines()))
        found = [line for line in found if not line.get("score", "").startswith("sampled")]  # a score added since
        assert len(found) == len(expected[key])
        for mine, theirs in zip(found, expected[key], strict=True):
            assert {name: mine[name] for name in theirs} == theirs
    found = json.loads((tmp_path / "comparison.json").read_text())
    found = numbers({name: value for name, value in found.items() if name not in ("runs", "verdicts")})
    found = {path: value for path, value in found.items() if "/by/sampled" not in path}
    # all digits; numpy adds in another order on another processor
    assert found == pytest.approx(
        {k: np.nan if v is None else v for k, v in expected["numbers"].items()}, rel=1e-12, abs=1e-12, nan_ok=True
    )


@pytest.mark.parametrize("name", NAMES)
def test_condensed_files_are_the_same_bytes(stored, name, tmp_path):
    for kind in KINDS:
        small = condense(stored / kind / name, tmp_path / kind)
        files = sorted(file for file in small.rglob("*") if file.is_file())
        found = {str(file.relative_to(small)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        assert found == EXPECTED["runs"][name]["condensed"][kind]


@pytest.mark.parametrize("name", TIERED)
def test_a_stored_policy_scores_and_acts_as_it_did(stored, name):
    expected = EXPECTED["runs"][name]
    same_scores(
        grasp.evaluate(stored / "finished" / name, episodes=EXPECTED["episodes"]), expected["evaluated"]["finished"]
    )
    team = grasp.load(stored / "finished" / name)
    for episode in expected["acted"]:
        team.reset()
        actions = [team.act(np.array(obs), np.array(avail), np.array(alive)) for obs, avail, alive, _ in episode]
        assert [action.tolist() for action in actions] == [action for *_, action in episode]


@pytest.mark.parametrize("name", ["grasp-mappo-refresh", "qmix"])  # another file, not another program
def test_the_newest_snapshot_of_a_killed_run_scores_as_it_did(stored, name):
    found = grasp.evaluate(stored / "killed" / name, episodes=EXPECTED["episodes"])
    same_scores(found, EXPECTED["runs"][name]["evaluated"]["killed"])


def same_scores(found: dict[int, Any], expected: dict[str, Any]) -> None:
    assert {str(seed) for seed in found} == expected.keys()
    for seed, scores in found.items():
        theirs = expected[str(seed)]
        assert scores.length.tolist() == theirs["length"]
        assert scores.won.tolist() == theirs["won"]
        np.testing.assert_allclose(scores.returned, theirs["returned"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if "played" in EXPECTED["runs"][name]])
def test_a_film_shows_the_same_episode(stored, name, tmp_path):
    expected = EXPECTED["runs"][name]["played"]
    (episode,) = grasp.play(stored / "finished" / name, out=tmp_path / "film.gif", overlay=True)
    overlays = episode.overlays
    assert [np.asarray(overlay.action).tolist() for overlay in overlays] == expected["action"]
    close(episode.reward, expected["reward"], "reward")
    close([overlay.preference for overlay in overlays], expected["preference"], "preference")
    close([overlay.value for overlay in overlays], expected["value"], "value")
    assert (tmp_path / "film.gif").stat().st_size > 0


def digest(run_state: Any) -> str:
    """Of every array of one seed's state. Of a replay: its episodes in their order, in whatever slots they are."""
    arrays = {}
    if hasattr(run_state.state, "replay"):
        replay = run_state.state.replay
        finished, capacity = int(replay.finished), len(replay.ring)
        held = np.asarray(replay.ring)[np.arange(max(0, finished - capacity), finished) % capacity]
        order = np.concatenate([held, np.asarray(replay.running)])
        arrays = {f"episodes{name}": x[order] for name, x in flat(replay.slots).items()}
        run_state = run_state._replace(state=run_state.state._replace(replay=replay.finished))
    arrays |= flat(run_state)
    total = hashlib.sha256()
    for name in sorted(arrays):
        total.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()


def flat(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by their paths, random keys as their bits."""
    bits = jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)
    return {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_flatten_with_path(bits)[0]}


def is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@pytest.mark.parametrize("name", TIERED)
def test_a_killed_run_resumes_bit_for_bit_and_goes_on_as_the_old_code_did(name, tmp_path, monkeypatch):
    """A killed run has one iteration to go, so that its last checkpoint is the state after the first one resumed. The
    finished run is the same run, not interrupted, of the old code."""
    unpack(name, tmp_path)
    path, straight = tmp_path / "killed" / name, tmp_path / "finished" / name
    config = path / "config.json"  # in this process, so that the state is seen and compiled programs are found
    config.write_text(config.read_text().replace('"parallel": "processes"', '"parallel": "vmap"'))
    seeds = sorted(int(folder.name.removeprefix("seed-")) for folder in path.glob("seed-*"))
    before = {seed: lines_of(path, seed) for seed in seeds}
    begun, go_on = [], Session.train

    def train(session, state):
        begun.extend(digest(jax.tree.map(lambda x, p=place: x[p], state)) for place in range(len(seeds)))
        go_on(session, state)

    monkeypatch.setattr(Session, "train", train)
    grasp.resume(path)
    assert dict(zip(map(str, seeds), begun, strict=True)) == EXPECTED["runs"][name]["restored"]
    for seed in seeds:
        mine, theirs = lines_of(path, seed), lines_of(straight, seed)
        kinds = [(line["kind"], line["env_steps"]) for line in mine]
        assert kinds == [(line["kind"], line["env_steps"]) for line in theirs]
        assert len(mine) == ITERATIONS + 3 + 1, "an evaluation at 0, 2 and 3 iterations, and the absolute metric"
        known = KILLED_AT + 2
        assert mine[:known] == before[seed][:known] == theirs[:known], "what the checkpoint knew stays as it was"
        same_line(mine[known], theirs[known])
        newest = [p / f"seed-{seed}" / "checkpoints" / f"step-{ITERATIONS:012d}.safetensors" for p in (path, straight)]
        same_state(*map(load_file, newest))
    with pytest.raises(grasp.GraspError, match=f"{re.escape(str(path))} is finished"):
        grasp.resume(path)


def lines_of(path: Path, seed: int) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (path / f"seed-{seed}" / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "wall"} for line in lines]


def same_line(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """New metrics may stand beside the old ones, which must be there."""
    for name in theirs.keys() - {"kind", STEPS_OF_A_SOLVER}:
        close(mine[name], theirs[name], name)


def close(mine: Any, theirs: Any, name: str) -> None:
    """Equal but for rounding. One iteration compiled with other optimisations, which adds in another order, differs by
    1.4e-6 of the largest entry at most; newer code may add in a worse order, so about a hundred times that. Below 1e-5
    some metrics are differences of nearly equal numbers, as `approx_kl` is."""
    np.testing.assert_allclose(np.array(mine, float), np.array(theirs, float), rtol=1e-4, atol=1e-5, err_msg=name)


def same_state(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    """Equal but for rounding. The bias of attention's keys shifts all logits of a query equally: its gradient is 0, and
    what Adam makes of that gradient's rounding errors is noise of the size of a step."""
    assert mine.keys() == theirs.keys()
    for name, array in theirs.items():
        assert mine[name].dtype == array.dtype, name
        if name.endswith("['key']['bias']"):
            continue
        if np.issubdtype(array.dtype, np.floating):
            atol = 1e-4 * np.abs(array[np.isfinite(array)]).max(initial=0)  # MA2E starts from infinite errors
            np.testing.assert_allclose(mine[name], array, rtol=0, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(mine[name], array, err_msg=name)

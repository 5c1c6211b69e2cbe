"""Films are rendered one at a time, cached outside the run, and report an error in one sentence."""

import sys
import time
from pathlib import Path

import pytest

from grasp.dashboard import replay_queue
from grasp.dashboard.replay_queue import Film, ReplayQueue, Request
from grasp.types import GraspError

STUB = """
import pathlib, sys, time
args = sys.argv[1:]
out, run = pathlib.Path(args[args.index("--out") + 1]), pathlib.Path(args[1])
with (run / "calls").open("a") as file:
    file.write(" ".join(args[2:6]) + "\\n")
time.sleep(float((run / "seconds").read_text()))
if (run / "error").exists():
    print("something else", file=sys.stderr)
    print("grasp: " + (run / "error").read_text(), file=sys.stderr)
    sys.exit(2)
out.write_bytes(b"GIF89a")
"""


@pytest.fixture
def run(tmp_path) -> Path:
    (tmp_path / "seconds").write_text("0")
    return tmp_path


@pytest.fixture
def replays():
    made = ReplayQueue(command=(sys.executable, "-c", STUB))
    yield made
    made.close()


def wait_for(replays: ReplayQueue, request: Request, *states: str) -> Film:
    for _ in range(400):
        film = replays.get(request)
        if film.state in states:
            return film
        time.sleep(0.05)
    raise AssertionError(f"never {states}")


def test_a_film_is_rendered_once_and_outside_the_run(replays, run):
    request = Request(run, 1, 400, 0)
    assert replays.get(request).state in ("waiting", "drawing")
    film = wait_for(replays, request, "ready")
    assert film.path.read_bytes() == b"GIF89a"
    assert run not in film.path.parents
    assert wait_for(replays, request, "ready") is film
    assert (run / "calls").read_text() == "--seed 1 --checkpoint 400\n"


def test_a_new_run_in_the_same_directory_has_its_own_film(replays, run):
    wait_for(replays, Request(run, 0, 400, 0), "ready")
    wait_for(replays, Request(run, 0, 400, 1), "ready")
    assert (run / "calls").read_text().count("\n") == 2


def test_a_failure_is_one_sentence_and_the_next_request_tries_again(replays, run):
    (run / "error").write_text("this cannot be drawn")
    request = Request(run, 0, 400, 0)
    assert wait_for(replays, request, "failed").error == "this cannot be drawn"
    (run / "error").unlink()
    assert wait_for(replays, request, "ready").error == ""


def test_a_film_that_exceeds_the_timeout_is_stopped(replays, run, monkeypatch):
    monkeypatch.setattr(replay_queue, "TIMEOUT", 0.2)
    (run / "seconds").write_text("60")
    assert "was stopped" in wait_for(replays, Request(run, 0, 400, 0), "failed").error


def test_films_are_rendered_one_at_a_time_and_the_queue_is_bounded(replays, run):
    (run / "seconds").write_text("60")
    wait_for(replays, Request(run, 0, 0, 0), "drawing")
    while not (run / "calls").exists():
        time.sleep(0.05)
    for k in range(replay_queue.MOST_WAITING):
        assert replays.get(Request(run, 1, k, 0)).state == "waiting"
    with pytest.raises(GraspError, match="are waiting already"):
        replays.get(Request(run, 2, 0, 0))
    assert (run / "calls").read_text().count("\n") == 1


def test_old_films_are_deleted(replays, run, monkeypatch):
    monkeypatch.setattr(replay_queue, "MOST_KEPT", 2)
    films = [wait_for(replays, Request(run, 0, k, 0), "ready") for k in range(4)]
    assert [film.path.exists() for film in films] == [False, False, True, True]


def test_closing_kills_the_process_and_deletes_every_film(run):
    made = ReplayQueue(command=(sys.executable, "-c", STUB))
    film = wait_for(made, Request(run, 0, 1, 0), "ready")
    (run / "seconds").write_text("60")
    wait_for(made, Request(run, 0, 2, 0), "drawing")
    time.sleep(0.3)
    before = time.monotonic()
    made.close()
    assert time.monotonic() - before < 5
    assert not film.path.exists()

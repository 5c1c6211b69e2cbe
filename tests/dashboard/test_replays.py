"""Films on demand: one at a time, cached, outside the run, with a sentence where it fails."""

import sys
import time
from pathlib import Path

import pytest

from grasp.dashboard import replay_queue as module
from grasp.dashboard.replay_queue import Film, Replays, Wish
from grasp.types import GraspError

STUB = """
import pathlib, sys, time
words = sys.argv[1:]
out, run = pathlib.Path(words[words.index("--out") + 1]), pathlib.Path(words[1])
with (run / "calls").open("a") as file:
    file.write(" ".join(words[2:6]) + "\\n")
time.sleep(float((run / "seconds").read_text()))
if (run / "complaint").exists():
    print("something else", file=sys.stderr)
    print("grasp: " + (run / "complaint").read_text(), file=sys.stderr)
    sys.exit(2)
out.write_bytes(b"GIF89a")
"""


@pytest.fixture
def run(tmp_path) -> Path:
    (tmp_path / "seconds").write_text("0")
    return tmp_path


@pytest.fixture
def replays():
    made = Replays(command=(sys.executable, "-c", STUB))
    yield made
    made.close()


def wait_for(replays: Replays, wish: Wish, *states: str) -> Film:
    for _ in range(400):
        film = replays.get(wish)
        if film.state in states:
            return film
        time.sleep(0.05)
    raise AssertionError(f"never {states}")


def test_a_film_is_made_once_and_not_in_the_run(replays, run):
    wish = Wish(run, 1, 400, 0)
    assert replays.get(wish).state in ("waiting", "drawing")
    film = wait_for(replays, wish, "ready")
    assert film.path.read_bytes() == b"GIF89a"
    assert run not in film.path.parents
    assert wait_for(replays, wish, "ready") is film
    assert (run / "calls").read_text() == "--seed 1 --checkpoint 400\n"


def test_another_run_in_the_same_place_has_another_film(replays, run):
    wait_for(replays, Wish(run, 0, 400, 0), "ready")
    wait_for(replays, Wish(run, 0, 400, 1), "ready")
    assert (run / "calls").read_text().count("\n") == 2


def test_what_went_wrong_is_one_sentence_and_the_next_request_tries_again(replays, run):
    (run / "complaint").write_text("this cannot be drawn")
    wish = Wish(run, 0, 400, 0)
    assert wait_for(replays, wish, "failed").sentence == "this cannot be drawn"
    (run / "complaint").unlink()
    assert wait_for(replays, wish, "ready").sentence == ""


def test_a_film_that_takes_too_long_is_given_up(replays, run, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    (run / "seconds").write_text("60")
    assert "was given up" in wait_for(replays, Wish(run, 0, 400, 0), "failed").sentence


def test_one_at_a_time_and_not_too_many_wait(replays, run):
    (run / "seconds").write_text("60")
    wait_for(replays, Wish(run, 0, 0, 0), "drawing")
    while not (run / "calls").exists():
        time.sleep(0.05)
    for k in range(module.MOST_WAITING):
        assert replays.get(Wish(run, 1, k, 0)).state == "waiting"
    with pytest.raises(GraspError, match="are waiting already"):
        replays.get(Wish(run, 2, 0, 0))
    assert (run / "calls").read_text().count("\n") == 1


def test_old_films_go(replays, run, monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    films = [wait_for(replays, Wish(run, 0, k, 0), "ready") for k in range(4)]
    assert [film.path.exists() for film in films] == [False, False, True, True]


def test_closing_ends_the_process_and_deletes_every_film(run):
    made = Replays(command=(sys.executable, "-c", STUB))
    film = wait_for(made, Wish(run, 0, 1, 0), "ready")
    (run / "seconds").write_text("60")
    wait_for(made, Wish(run, 0, 2, 0), "drawing")
    time.sleep(0.3)
    before = time.monotonic()
    made.close()
    assert time.monotonic() - before < 5
    assert not film.path.exists()

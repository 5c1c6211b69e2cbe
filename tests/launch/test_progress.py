"""The display of a run in training."""

import io

import pytest
from rich.console import Console

from grasp.config import configure
from grasp.launch.progress import BLOCKS, CELLS, Display, SeedProgress, Trend
from grasp.runs import Run

CONFIG = configure("grasp-mappo", "matrix/climbing", {"steps": 12_000, "num_envs": 10, "rollout": 100, "seeds": 2})


def line(seed: int, steps: int, **values):
    known = {"kind": "iteration", "env_steps": steps, "seed": seed, "train_return": steps / 1000, "conflict_rate": 0.5}
    return known | values | {"wall": {"took": 0.5, "seconds": 1.0}}


def shown(is_terminal: bool, *messages, width=140, tmp_path=None) -> str:
    """All output."""
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=width, color_system=None)
    with Display(CONFIG, console) as display:
        display.expect(Run(tmp_path, CONFIG, (0, 1)), [0, 1])
        for message in messages:
            display(message)
        display.bars.refresh()
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_a_trend_is_drawn_from_its_lowest_to_its_highest_part_over_the_whole_run():
    trend = Trend()
    for k in range(6 * CELLS):  # half of the run
        trend.add(k / (12 * CELLS), float(k))
    assert str(trend) == "▁▂▄▅▇█"
    trend.add(1.0, 0.0)
    assert len(str(trend)) == CELLS
    assert str(trend).endswith(" ▁"), "a part without a value is a gap"


def test_a_trend_needs_two_parts_and_leaves_out_nan():
    trend = Trend()
    trend.add(0.0, None)
    trend.add(0.0, float("nan"))
    trend.add(0.01, 1.0)
    trend.add(0.02, 3.0)
    assert str(trend) == ""
    trend.add(0.5, 2.0)
    assert str(trend).replace(" ", "") == BLOCKS[0] * 2, "equal parts are all low"


def test_a_terminal_shows_a_bar_for_every_seed_with_trends_of_return_and_conflict(tmp_path):
    rising = [line(0, 1000 * k) for k in range(1, 7)]
    falling = [line(1, 1000 * k, train_return=-k, conflict_rate=1 - k / 10) for k in range(1, 7)]
    text = shown(True, *rising, *falling, tmp_path=tmp_path)
    last = [one for one in text.split("\n") if "seed" in one][-2:]
    assert "seed 0" in last[0]
    assert "return ▁▂▄▅▇█ 6.0" in last[0]
    assert "conflict ▁▁▁▁▁▁ 50%" in last[0]
    assert "return █▇▅▄▂▁ -6.0" in last[1]
    assert "conflict █▇▅▄▂▁ 40%" in last[1]


def last_line(seed: int, text: str) -> str:
    return [one for one in text.split("\n") if f"seed {seed} " in one][-1]


def test_compiling_is_shown(tmp_path):
    text = shown(True, {"kind": "began", "seed": 0}, tmp_path=tmp_path)
    assert "compiling" in last_line(0, text)
    assert "waiting" in last_line(1, text), "it has no free core yet"
    assert "compiling" in shown(False, tmp_path=tmp_path)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_after_the_first_evaluation_the_training_compiles(is_terminal, tmp_path):
    first = line(0, 0, kind="evaluation", return_mean=7.5, train_return=None, conflict_rate=None)
    assert "compiling  greedy 7.5" in last_line(0, shown(is_terminal, first, tmp_path=tmp_path))
    begun = [first, line(0, 1000), line(0, 1000, kind="evaluation", return_mean=8.5)]
    assert "compiling" not in last_line(0, shown(True, *begun, tmp_path=tmp_path))


def test_the_first_iteration_has_no_rate_since_it_includes_compiling(tmp_path):
    assert "steps/s" not in shown(True, line(0, 1000), tmp_path=tmp_path)
    assert "2,000 steps/s" in last_line(0, shown(True, line(0, 1000), line(0, 2000), tmp_path=tmp_path))


def test_without_a_terminal_there_is_a_plain_line_every_fifteen_seconds(tmp_path):
    text = shown(False, *(line(0, 1000 * k) for k in range(1, 7)), line(0, 12_000, kind="absolute"), tmp_path=tmp_path)
    lines = [one for one in text.split("\n") if one.startswith("seed 0")]
    assert len(lines) == 2, "the first, and the end: the others came within fifteen seconds"
    assert "\x1b" not in text
    assert not set(BLOCKS) & set(text)


@pytest.mark.parametrize("wins", [True, False])
def test_a_description_has_the_rate_the_return_and_the_greedy_score(wins):
    seed = SeedProgress(CONFIG)
    seed.update(line(0, 1000))
    seed.update(line(0, 2000, train_return=1.0, return_mean=7.5) | ({"win_rate": 0.25} if wins else {}))
    words = seed.describe()
    assert words.startswith("return 1.0  conflict 50%")
    assert words.endswith("2,000 steps/s  greedy 25% wins" if wins else "2,000 steps/s  greedy 7.5")


def test_eighty_columns_have_name_percentage_time_and_both_trends(tmp_path):
    lines = [line(0, 1000 * k, train_return=-123.4, train_win_rate=0.5, return_mean=-100.0) for k in range(1, 13)]
    last = last_line(0, shown(True, *lines, width=80, tmp_path=tmp_path)).split("\x1b[2K")[-1]
    assert len(last) == 80
    assert last.startswith("seed 0 ")
    assert "100% 0:00:00" in last or "100% 00:00" in last or "100% --:--" in last
    assert f"return {BLOCKS[0] * CELLS} -123.4  conflict {BLOCKS[0] * CELLS} 50%" in last
    assert last.endswith("…")

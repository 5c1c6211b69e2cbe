"""The order of evaluations, by which the best snapshot is chosen."""

from grasp.runs.restore import rank


def test_evaluations_are_ranked_by_wins_then_by_return_and_one_that_diverged_is_last():
    ordered = [
        {"return_mean": None, "win_rate": 0.0},  # NaN in the metrics log
        {"return_mean": -3.0, "win_rate": 0.0},
        {"return_mean": 9.0, "win_rate": None},
        {"return_mean": 2.0, "win_rate": 0.5},
        {"return_mean": 3.0, "win_rate": 0.5},
        {"return_mean": 1.0, "win_rate": 1.0},
    ]
    assert sorted([ordered[i] for i in (3, 0, 5, 2, 1, 4)], key=rank) == ordered
    without_wins = [{"return_mean": score} for score in (None, -1.0, 0.0, 2.0)]
    assert sorted([without_wins[i] for i in (3, 0, 2, 1)], key=rank) == without_wins

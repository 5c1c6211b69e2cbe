"""Verdicts: never stronger than the numbers behind them."""

import numpy as np
import pytest
from comparison_runs import finished, ramp, write_run

from grasp.analysis.comparison import OVERALL, Improvement, Summary, compare, pair
from grasp.analysis.permutation_test import permutation_p
from grasp.analysis.run_data import load_runs
from grasp.analysis.statistics import Estimate, Paired, difference, probability_of_improvement
from grasp.analysis.verdict import seen_from, sure, verdicts

HIGH, LOW = [0.8, 0.85, 0.9, 0.82, 0.88], [0.4, 0.45, 0.5, 0.42, 0.48]


def verdict(tmp_path, *tops, force=False, **keywords):
    """The verdicts on runs a, b, … with these absolute (and last) scores."""
    names = ("mappo", "qmix", "vdn", "happo")
    paths = [
        write_run(tmp_path / name, finished(top), algo=name, **keywords) for name, top in zip(names, tops, strict=False)
    ]
    return verdicts(compare(load_runs(paths), force=force))


def found(gap=0.1, interval=(0.05, 0.2), p=0.01, probability=0.9, fewest=5):
    return Improvement("e", "a", "b", probability, None, Estimate(gap, interval), p, None, fewest)


@pytest.mark.parametrize(
    ("expected", "numbers"),
    [
        ("clear", {}),
        ("clear", {"gap": -0.1, "interval": (-0.2, -0.05), "probability": 0.1}),
        ("clear", {"interval": None, "probability": 1.0}),  # all seeds of a side agree: the permutation test decides
        ("likely", {"p": 0.06}),
        ("likely", {"interval": None, "p": 0.1}),
        ("open", {"interval": (-0.01, 0.2)}),
        ("open", {"gap": 0.0, "interval": None, "p": 1.0, "probability": 0.5}),
        ("open", {"probability": 0.4}),  # the IQMs and the pairs of seeds point in different directions
        ("open", {"fewest": 1, "interval": None}),
        ("open", {"gap": float("nan"), "interval": None, "p": float("nan"), "probability": float("nan")}),
    ],
)
def test_certainty_of_a_difference(expected, numbers):
    assert sure(found(**numbers)) == expected


@pytest.mark.parametrize(
    ("seeds", "clear", "unsettled"), [(3, (0.0, 0.0), (0.12, 0.28)), (5, (0.01, 0.09), (0.0, 0.06))]
)
def test_equal_algorithms_are_rarely_called_different(seeds, clear, unsettled):
    def side(scores):
        return Summary(tuple(range(seeds)), tuple(scores.tolist()), 0.0, 0.0, 0.0, None)

    drawn = np.random.default_rng(0).normal(size=(300, 2, seeds))
    outcomes = [sure(pair("e", "a", "b", side(a), side(b))) for a, b in drawn]
    assert clear[0] <= outcomes.count("clear") / 300 <= clear[1]
    assert unsettled[0] <= outcomes.count("likely") / 300 <= unsettled[1]


def test_a_pair_can_be_seen_from_either_side():
    paired = Paired((0, 1), 0.1, (0.05, 0.15), (2,))
    one = Improvement("e", "a", "b", 0.9, (0.7, 1.0), Estimate(0.1, (-0.05, 0.2)), 0.01, paired, 5)
    other = seen_from(one, "b")
    assert (other.first, other.second) == ("b", "a")
    assert other.probability == pytest.approx(0.1)
    assert other.interval == pytest.approx((0.0, 0.3))
    assert other.difference == (-0.1, (-0.2, 0.05))
    assert other.paired == ((0, 1), -0.1, (-0.15, -0.05), (2,))
    assert seen_from(one, "a") is one


def test_five_seeds_far_apart_are_clear(tmp_path):
    (made,) = verdict(tmp_path, LOW, HIGH)
    assert (made.title, made.sure) == ("qmix is better than mappo on smax/3m", "clear")
    assert "The IQM of qmix (win rate) is 0.400 above that of mappo" in made.detail
    assert "permutation p 0.0079; 5 seeds per side." in made.detail


def test_three_seeds_are_never_clear(tmp_path):
    (made,) = verdict(tmp_path, HIGH[:3], LOW[:3])
    assert made.title == "mappo scored higher than qmix on smax/3m, but 3 seeds cannot settle it"
    assert made.sure == "likely"


def test_shorter_training_and_the_number_of_comparisons_are_mentioned(tmp_path):
    low, names = [0.1, 0.15, 0.12, 0.11, 0.13], ("mappo", "qmix", "vdn", "happo", "ma2e")
    paths = [write_run(tmp_path / name, finished(HIGH if name == "qmix" else LOW), algo=name) for name in names[:4]]
    early = {seed: ([top / 2, top], top) for seed, top in enumerate(low)}
    paths.append(write_run(tmp_path / "ma2e", early, algo="ma2e"))
    (made,) = verdicts(compare(load_runs(paths)))
    assert made.title == "qmix is best on smax/3m"
    assert "in pairwise comparisons: mappo, vdn, happo, ma2e (200 steps against 400)." in made.detail
    assert made.detail.endswith("Not corrected for 4 comparisons.")


def test_overlapping_seeds_are_no_clear_difference(tmp_path):
    (made,) = verdict(tmp_path, [0.5, 0.7, 0.9, 0.3, 0.6], [0.6, 0.4, 0.8, 0.5, 0.65])
    assert made.title.startswith("No clear difference between ")
    assert made.sure == "open"


def test_one_seed_is_too_few(tmp_path):
    (made,) = verdict(tmp_path, [0.9], [0.1])
    assert (made.title, made.sure) == ("One seed is too few to compare mappo and qmix on smax/3m", "open")


def test_one_algorithm_has_no_comparison(tmp_path):
    (made,) = verdict(tmp_path, HIGH)
    assert (made.title, made.sure) == ("mappo on smax/3m", "open")


def test_the_best_of_three(tmp_path):
    (made,) = verdict(tmp_path / "a", LOW, HIGH, [0.1, 0.15, 0.12, 0.11, 0.13])
    assert (made.title, made.sure) == ("qmix is best on smax/3m", "clear")
    assert made.detail.endswith("Clearly behind qmix in pairwise comparisons: mappo, vdn.")
    (made,) = verdict(tmp_path / "b", LOW, HIGH, [0.84, 0.86, 0.88, 0.83, 0.8])
    assert made.title == "qmix leads on smax/3m, but is not clearly ahead of vdn"
    assert made.detail.endswith("Clearly behind qmix in pairwise comparisons: mappo.")
    (made,) = verdict(tmp_path / "c", HIGH, HIGH[::-1], [0.84, 0.86, 0.88, 0.83, 0.8])
    assert (made.title, made.sure) == ("No clear winner on smax/3m", "open")
    assert "of 3 algorithms range from 0.843 to 0.850; at least 5 seeds each." in made.detail


def test_a_lucky_checkpoint_is_not_a_better_algorithm(tmp_path):
    """By the best policy mappo leads, in the last evaluations qmix does, both clearly."""
    a = write_run(tmp_path / "a", {s: (ramp(0.3 + 0.01 * s), high) for s, high in enumerate(HIGH)})
    b = write_run(tmp_path / "b", {s: (ramp(0.6 + 0.01 * s), low) for s, low in enumerate(LOW)}, algo="qmix")
    (made,) = verdicts(compare(load_runs([a, b])))
    assert made.sure == "open"
    assert made.title.startswith("Two scores disagree on smax/3m: mappo has the best policy, but qmix ends higher")
    assert made.detail.endswith("In the last tenth of evaluations qmix has 0.620 and mappo has 0.320.")


def test_forced_comparisons_are_never_clear(tmp_path):
    a = write_run(tmp_path / "a", finished(HIGH))
    b = write_run(tmp_path / "b", finished(LOW), algo="qmix", version="0.1.0")
    (made,) = verdicts(compare(load_runs([a, b]), force=True))
    assert made.title == "The runs differ in more than the algorithm: mappo is better than qmix on smax/3m"
    assert made.sure == "open"


def test_all_environments_come_first(tmp_path):
    paths = [
        write_run(tmp_path / f"{env}{algo}", finished(tops), algo=algo, env=f"smax/{env}")
        for env in ("3m", "8m")
        for algo, tops in (("mappo", LOW), ("qmix", HIGH))
    ]
    found = verdicts(compare(load_runs(paths)))
    assert [made.env for made in found] == [OVERALL, "smax/3m", "smax/8m"]
    assert found[0].title == "qmix is better than mappo over all environments"
    assert "(normalised score) is 0.400 above" in found[0].detail
    assert "permutation p 3.1e-05;" in found[0].detail


def test_a_diverged_seed_is_never_best(tmp_path):
    (made,) = verdict(tmp_path, [0.9, float("nan"), 0.9], LOW[:3])
    assert made.sure == "open"
    assert made.title == "No clear difference between qmix and mappo on smax/3m"
    assert made.detail == "A score of qmix or mappo is NaN."


def test_equal_algorithms_over_three_environments_are_rarely_called_different():
    """The environments' scores lie far apart, and one is saturated."""
    drawn = np.random.default_rng(0).normal(size=(200, 2, 3, 5)) * np.array([[[0.05], [0.1], [0.001]]]) + np.array(
        [[[0.2], [0.6], [0.99]]]
    )
    outcomes = []
    for a, b in drawn:
        chance, gap = probability_of_improvement(list(a), list(b)), difference(list(a), list(b))
        outcomes.append(sure(Improvement(OVERALL, "a", "b", *chance, gap, permutation_p(list(a), list(b)), None, 5)))
    assert 0.005 <= outcomes.count("clear") / 200 <= 0.08


def test_ties_in_one_score_are_broken_by_the_other(tmp_path):
    """As on the climbing game: equal best policies, and the first by name ends lower than another."""
    tied = {seed: ([0.1, 0.1, 0.1, end], 0.9) for seed, end in enumerate([0.3, 0.31, 0.32, 0.33, 0.34])}
    ahead = {seed: ([0.1, 0.1, 0.1, end], 0.9) for seed, end in enumerate([0.8, 0.81, 0.82, 0.83, 0.84])}
    paths = [write_run(tmp_path / name, of, algo=name) for name, of in (("happo", tied), ("qmix", ahead))]
    (made,) = verdicts(compare(load_runs(paths)))
    assert "disagree" not in made.title

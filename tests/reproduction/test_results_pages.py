"""The pages of results match the committed runs."""

import importlib.util
import re
from dataclasses import replace

import numpy as np
import pytest
from paths import REPOSITORY

from grasp import runs
from grasp.analysis import run_data
from grasp.reproduction import runner
from grasp.reproduction.suites import BUDGETS, SUITES

ROOT = REPOSITORY


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("results", ROOT / "scripts" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_what_their_command_writes(results):
    pages = results.pages()
    for path, text in pages.items():
        assert path.read_text() == text, f"{path.name} is out of date; type: python scripts/results.py"
    assert {results.PAGE, *results.PAGES.iterdir()} == pages.keys(), "a page of no task"


def test_every_link_between_the_pages_leads_somewhere(results):
    for path, text in results.pages().items():
        for link in re.findall(r"\]\(([^)]+)\)", text):
            target, _, anchor = link.partition("#")
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path.name} links to {link}"
            headings = [line.lstrip("# ").lower().replace(" ", "-") for line in lines_of(file) if line.startswith("#")]
            assert not anchor or anchor in headings, f"{path.name} links to {link}"


def lines_of(file):
    return file.read_text().splitlines() if file.suffix == ".md" else []


def test_every_committed_run_is_configured_by_its_suite(results):
    """`grasp reproduce results-TASK --budget results` trains it again."""
    for task in results.tasks():
        suite = SUITES[f"results-{task.name}"]
        entries = {entry.label: entry for entry in suite.entries}
        for run in results.read(task):
            found = runs.find(run.path).config
            job = runner.plan(task, found.env, entries[run.label], suite, BUDGETS["results"], {})
            assert replace(found, preset=job.config.preset) == job.config, run.path


def test_every_committed_run_is_condensed_and_small(results):
    for task in results.tasks():
        for run in results.read(task):
            assert (run.path / "condensed.json").is_file()
            assert run.versions["commit"] != "unknown"
            assert "dirty" not in run.versions["commit"], f"{run.path} ran on uncommitted code"
            assert len(run.seeds) >= 3
            assert all(seed.absolute for seed in run.seeds), f"{run.path} is not finished"
            assert sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file()) < 42_000 * len(run.seeds)


def test_a_difference_is_the_first_minus_the_second(results):
    high, low = np.array([3.0, 5.0, 4.0]), np.array([1.0, 2.0, 0.0])
    assert results.apart(high, low) == "+3.000 (p 0.1)"
    assert results.apart(low, high) == "-3.000 (p 0.1)"
    assert results.gap([high, low], [low, low]).startswith("+1.500 [")
    assert results.gap([low, low], [high, low]).startswith("-1.500 [")


def test_the_comparisons_fixed_beforehand_use_only_the_runs_of_the_confirmation(results):
    """GRASP-MAPPO minus each of three, on both maps; the decision follows from the exact p and the limit."""
    confirming = [task for task in results.tasks() if results.confirms(task)]
    lines = results.confirmed([run for task in confirming for run in results.read(task)]).split("\n")[2:]
    cells = [line.strip("| ").split(" | ") for line in lines]
    assert [line[0].split(" ")[0] for line in cells] == ["MAPPO", "an", "the"]
    scores = {
        (run.label, task): [seed.score("win rate", run_data.WHOLE) for seed in run.seeds]
        for task in confirming
        for run in results.read(task)
    }
    for line, other in zip(cells, ("mappo", "update-size", "mean"), strict=True):
        gaps = [np.mean(scores["grasp-mappo", task]) - np.mean(scores[other, task]) for task in confirming]
        shown = [float(cell.split(" ")[0]) for cell in line[1:4]]
        assert shown == pytest.approx([*gaps, np.mean(gaps)], abs=6e-4)
        assert line[-1] == ("yes" if float(line[-2]) < 0.05 / 3 else "no")


def test_clear_differences_are_counted(results):
    row = ("mappo", "5", "1 → 2", "+1 **higher**", "1 → 2", "+1 higher, not settled")
    lines = [row, (*row[:3], "-1 **lower**", *row[4:])]
    assert results.counts(lines) == "4 differences, 1 clearly higher and 1 clearly lower"


def test_the_readme_s_numbers_are_on_the_pages(results):
    """Every score with an interval in README.md stands on a page of results."""
    page = "\n".join(results.pages().values())
    found = re.findall(r"[−-]?\d+\.\d+ \[[^\]]+\]", (ROOT / "README.md").read_text())
    assert len(found) >= 4
    for cell in found:
        assert cell.replace("−", "-") in page.replace("−", "-"), f"{cell} is on no page of results"

"""`docs/paper_map.md` and the tags in the code name the same lines of the paper in the same files."""

import re
from pathlib import Path

from paths import REPOSITORY

import grasp

ROOT = Path(grasp.__file__).parent
PAGE = REPOSITORY / "docs" / "paper_map.md"
LAST_LINE = {1: 31, 2: 17}
CONFIGURATION = {"config/hyperparameters.py"}
"""Named for its options, which no line of code assigns."""


def rows() -> set[tuple[int, str, str]]:
    """(algorithm, lines, file) of every row that names a file."""
    found, algorithm = set(), 0
    for line in PAGE.read_text().splitlines():
        if heading := re.match(r"## Algorithm (\d)", line):
            algorithm = int(heading[1])
        if row := re.match(r"\| ([\d–]+) \|.*\| (.*) \|$", line):
            found |= {(algorithm, row[1], name) for name in re.findall(r"`([\w/]+\.py)`", row[2])}
    return found


def tags() -> set[tuple[int, str, str]]:
    """(algorithm, lines, file) of every tag in the code."""
    return {
        (int(algorithm), lines, str(path.relative_to(ROOT)))
        for path in ROOT.rglob("*.py")
        for algorithm, lines in re.findall(r"Alg\. (\d) l\. ([\d–]+)", path.read_text())
    }


def expand(lines: str) -> set[int]:
    first, _, last = lines.partition("–")
    return set(range(int(first), int(last or first) + 1))


def test_every_row_has_its_tag_and_every_tag_its_row():
    # a row over several files is met by a tag in any of them, but each tag must be in a file its row names
    named = {(algorithm, lines) for algorithm, lines, _ in rows()}
    assert named == {(algorithm, lines) for algorithm, lines, _ in tags()}
    assert tags() <= rows()


def test_every_row_s_files_carry_its_tag():
    """A row that names two files is met by a tag in each of them."""
    assert {row for row in rows() if row[2] not in CONFIGURATION} <= tags()


def test_tags_come_in_the_papers_order_within_each_file():
    for path in sorted(ROOT.rglob("*.py")):
        found = re.findall(r"Alg\. (\d) l\. (\d+)", path.read_text())
        lines = [(int(algorithm), int(first)) for algorithm, first in found]
        assert lines == sorted(lines), f"{path.name}: {lines}"


def test_the_update_of_algorithm_1_takes_at_most_three_files():
    files = {file for algorithm, lines, file in rows() if algorithm == 1 and 7 <= min(expand(lines)) <= 26}
    assert len(files) <= 3, files
    in_learn = [line for a, lines, file in tags() if (a, file) == (1, "algos/mappo.py") for line in expand(lines)]
    assert sorted(in_learn) == [7, 9, 10, 11, 13, 14, 16, 17, 18, 20, 21, 24, 25, 26], "`learn` has every line"


def test_no_line_of_the_paper_is_left_out():
    text = PAGE.read_text()
    for algorithm, last in LAST_LINE.items():
        covered = set().union(*(expand(lines) for a, lines, _ in rows() if a == algorithm))
        section = text.partition(f"## Algorithm {algorithm}")[2].partition("## Algorithm")[0]
        remarks = " ".join(line for line in section.splitlines() if not line.startswith("|"))
        covered |= set().union(*(expand(number) for number in re.findall(r"\d+(?:–\d+)?", remarks)), set())
        covered |= {int(n) for n in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
        assert covered >= set(range(1, last + 1)), f"Algorithm {algorithm}: {set(range(1, last + 1)) - covered}"

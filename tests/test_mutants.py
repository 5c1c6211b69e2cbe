"""The table of mistakes fits the code and the tests, so that `make mutants` says something about the tests alone."""

import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    from mutants_table import TABLE

    yield TABLE
    del sys.modules["mutants_table"]


def test_every_mistake_changes_exactly_one_place(table):
    sources = {row.file: (REPOSITORY / "src" / "grasp" / row.file).read_text() for row in table}
    assert [(row.file, row.right) for row in table if sources[row.file].count(row.right) != 1] == []
    assert [row for row in table if row.right == row.wrong] == []
    assert len({(row.file, row.right, row.wrong) for row in table}) == len(table)


def test_every_test_that_must_notice_a_mistake_exists(table):
    wanted = {tuple(re.sub(r"\[.*", "", test).split("::")) for row in table for test in row.tests}
    text = {file: (REPOSITORY / "tests" / file).read_text() for file, *_ in wanted}
    assert [(file, *name) for file, *name in sorted(wanted) if name and f"def {name[0]}(" not in text[file]] == []
    assert all(row.tests for row in table)

"""Whether the tests notice mistakes: applies every row of `mutants_table` to a copy and runs the tests that must fail.

make mutants              all rows
make mutants SAMPLE=10    ten, drawn by the contents of src and tests: other ones after every change, the same on every
                          machine

A mutant is killed if an assertion of one of its tests fails. A test that breaks in another way (a syntax error, a shape
that does not fit) tells nothing about the tests and counts as a mistake in the table, like a line that is not in its
file exactly once, a test that fails without any mutant, and tests that never end.
"""

import argparse
import hashlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from mutants_table import TABLE, Mutant

REPOSITORY = Path(__file__).resolve().parents[1]
COPIED = ("src", "tests", "docs", "pyproject.toml")
"""What the tests need."""
PATIENCE = 600.0
"""Seconds for the tests of one row, for which a few are enough."""
KILLED, SURVIVED = "killed", "survived"

REPORTER = '''
"""Writes down how each test failed, and which grasp was tested."""
import json, os, sys
import pytest

failures = []

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        by_assertion = call.when == "call" and call.excinfo.errisinstance((AssertionError, pytest.fail.Exception))
        failures.append({"test": item.nodeid, "by_assertion": by_assertion, "text": call.excinfo.exconly()[:300]})
    return report

def pytest_collectreport(report):
    if report.failed:
        failures.append({"test": report.nodeid, "by_assertion": False, "text": str(report.longrepr)[-300:]})

def pytest_sessionfinish():
    grasp = sys.modules.get("grasp")
    with open(os.environ["MUTANTS_REPORT"], "w") as file:
        json.dump({"grasp": grasp.__file__ if grasp else None, "failures": failures}, file)
'''


class ToolError(Exception):
    """The table or the tests are wrong, so that the score would mean nothing."""


class Run(NamedTuple):
    """One call of pytest."""

    code: int
    failures: list[dict]
    output: str


class Copy:
    """A copy of the repository, to which one mutant at a time is applied."""

    def __init__(self, root: Path):
        self.root = root
        for name in COPIED:
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy2(source, root / name)
        (root / "reporter").mkdir()
        (root / "reporter" / "mutants_reporter.py").write_text(REPORTER)

    def test(self, tests: Sequence[str], keep_bytecode: bool = False) -> Run:
        report = self.root / "report.json"
        report.unlink(missing_ok=True)
        path = os.pathsep.join(str(self.root / name) for name in ("src", "reporter"))
        environment = os.environ | {"PYTHONPATH": path, "MUTANTS_REPORT": str(report)}
        if not keep_bytecode:  # the mutant's must not be found when the file is as it was
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        # without the run-time type checks of pyproject.toml, which take a quarter of the time
        options = ["-x", "-q", "--timeout=0", "--tb=short", "-o", "addopts=", "-p", "no:cacheprovider"]
        options += ["-p", "mutants_reporter"]
        command = [sys.executable, "-m", "pytest", *options, *(f"tests/{test}" for test in tests)]
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"not finished after {PATIENCE:.0f} s: {' '.join(tests)}") from None
        output = done.stdout + done.stderr
        if not report.exists():
            raise ToolError(f"pytest ended with {done.returncode} and no report:\n{output[-3000:]}")
        found = json.loads(report.read_text())
        if found["grasp"] and not Path(found["grasp"]).is_relative_to(self.root):
            raise ToolError(f"the tests import {found['grasp']}, which is not in the copy {self.root}")
        return Run(done.returncode, found["failures"], output)

    def verdict(self, mutant: Mutant) -> str:
        """What becomes of a mutant: killed, survived, or why it is neither."""
        file = self.root / "src" / "grasp" / mutant.file
        original, stat = file.read_text(), file.stat()
        file.write_text(mutated(mutant, original))
        os.utime(file, (stat.st_atime, stat.st_mtime + 10))  # bytecode of the original, if any, is out of date
        try:
            run = self.test(mutant.tests)
        finally:
            file.write_text(original)
            os.utime(file, (stat.st_atime, stat.st_mtime))
        if run.code == 0:
            return SURVIVED
        if run.code == 1 and any(failure["by_assertion"] for failure in run.failures):
            return KILLED
        why = run.failures[0]["text"] if run.failures else run.output[-1000:]
        return f"broke otherwise than by an assertion (pytest's exit code {run.code}): {why}"


def mutated(mutant: Mutant, text: str) -> str:
    """The file's text with the mistake."""
    times = text.count(mutant.right)
    if times != 1:
        raise ToolError(f"{mutant.file} has {times or 'no'} places with:\n    {mutant.right}\na row needs exactly one")
    if mutant.right == mutant.wrong or not mutant.tests:
        raise ToolError(f"{mutant.file}: a row changes something and names tests:\n    {mutant.right}")
    return text.replace(mutant.right, mutant.wrong)


def contents() -> bytes:
    """A digest of the sources and tests."""
    digest = hashlib.sha256()
    for folder in ("src", "tests", "scripts"):
        for file in sorted((REPOSITORY / folder).rglob("*.py")):
            digest.update(file.relative_to(REPOSITORY).as_posix().encode() + file.read_bytes())
    return digest.digest()


def chosen(sample: int | None, only: str) -> list[tuple[int, Mutant]]:
    """Rows of the table, numbered from 1."""
    rows = [(number, row) for number, row in enumerate(TABLE, 1) if only in f"{row.file} {row.right} {row.tests}"]
    if sample is None or sample >= len(rows):
        return rows
    return sorted(random.Random(contents()).sample(rows, sample))


def check(copies: Sequence[Copy], rows: Sequence[tuple[int, Mutant]]) -> None:
    """Every row applies, and its tests pass without it."""
    for _, mutant in rows:
        mutated(mutant, (REPOSITORY / "src" / "grasp" / mutant.file).read_text())
    by_file: dict[str, dict[str, None]] = {}
    for _, mutant in rows:
        for test in mutant.tests:
            by_file.setdefault(test.partition("::")[0], {})[test] = None
    files = list(by_file)
    shares = [[test for file in files[start :: len(copies)] for test in by_file[file]] for start in range(len(copies))]

    def passes(copy: Copy, tests: list[str]) -> None:
        if tests and (run := copy.test(tests, keep_bytecode=True)).code != 0:
            raise ToolError(f"without any mutant pytest ends with {run.code}:\n{run.output[-3000:]}")

    with ThreadPoolExecutor(len(copies)) as pool:
        list(pool.map(passes, copies, shares))


def judged(copies: Sequence[Copy], rows: Sequence[tuple[int, Mutant]]) -> Iterator[tuple[int, Mutant, str, float]]:
    """Every row's verdict and seconds, as they come."""
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def judge(number: int, mutant: Mutant) -> tuple[int, Mutant, str, float]:
        copy, began = free.get(), time.monotonic()
        try:
            verdict = copy.verdict(mutant)
        except ToolError as error:
            verdict = str(error)
        finally:
            free.put(copy)
        return number, mutant, verdict, time.monotonic() - began

    with ThreadPoolExecutor(len(copies)) as pool:
        try:
            for future in as_completed([pool.submit(judge, *row) for row in rows]):
                yield future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether the tests notice mistakes.")
    parser.add_argument("--sample", type=int, help="so many rows, drawn by the contents of the repository")
    parser.add_argument("--only", default="", help="rows whose file, line or tests contain this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at once")
    options = parser.parse_args()
    rows = chosen(options.sample, options.only)
    killed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        try:
            jobs = range(max(1, min(options.jobs, len(rows))))
            copies = [Copy(Path(folder).resolve() / f"copy-{job}") for job in jobs]
            check(copies, rows)
        except ToolError as error:
            print(error)
            return 1
        print(f"without a mutant all named tests pass ({time.monotonic() - began:.0f} s)", flush=True)
        for number, mutant, verdict, seconds in judged(copies, rows):
            killed += verdict == KILLED
            change = " ".join(mutant.right.split())[:60], " ".join(mutant.wrong.split())[:60]
            word = verdict if verdict in (KILLED, SURVIVED) else "FAULTY"
            print(f"{word:8} {seconds:5.1f} s  {number:3} {mutant.file}: {change[0]}  ->  {change[1]}", flush=True)
            if verdict != KILLED:
                print(f"    {' '.join(mutant.tests)}" + ("" if verdict == SURVIVED else f"\n    {verdict}"), flush=True)
    print(f"{killed} of {len(rows)} killed ({time.monotonic() - began:.0f} s)")
    return 0 if rows and killed == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())

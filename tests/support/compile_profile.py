"""Where a run of the tests spends its time: a table per file of seconds, of those compiling, and of programs compiled.

A pytest plug-in: `python -m pytest -p compile_profile`. What a test's own subprocesses compile is not counted.
"""

from collections import Counter, defaultdict

import jax.monitoring
import pytest

STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
spent: Counter[str] = Counter()


def count(event: str, seconds: float, **_) -> None:
    if event in STAGES:
        spent[STAGES[event]] += seconds
        spent["programs"] += event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(count)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.user_properties = [*report.user_properties, ("compiling", dict(spent))]
    spent.clear()
    return report


def pytest_terminal_summary(terminalreporter):
    files = defaultdict(Counter)
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", []):
                if name == "compiling":
                    files[report.nodeid.split("::")[0]] += Counter(value) + Counter({"seconds": report.duration})
    total = sum(files.values(), Counter())
    columns = ("seconds", "trace", "lower", "compile", "programs")
    terminalreporter.section("seconds and compiled programs per file")
    terminalreporter.write_line("".join(f"{name:>10}" for name in columns) + "  file")
    for file, row in [("all", total), *sorted(files.items(), key=lambda entry: -entry[1]["seconds"])]:
        terminalreporter.write_line("".join(f"{row[name]:10.1f}" for name in columns) + f"  {file}")

"""Journals as they grow, for whoever sees nothing of their writers but the files."""

import os
from pathlib import Path
from typing import Any

from grasp.launch.base import Report, Task
from grasp.runs.metrics_log import parse


class Follower:
    """The new lines of one journal."""

    def __init__(self, path: Path):
        self.path, self.offset = path, 0
        if path.exists():
            self.offset = path.stat().st_size

    def news(self) -> list[dict[str, Any]]:
        """The whole lines since the last look. A journal that was cut back, to go on from a checkpoint, is followed
        from its new end."""
        try:
            file = self.path.open("rb")
        except OSError:
            return []
        with file:
            size = os.fstat(file.fileno()).st_size
            self.offset = min(self.offset, size)
            data = os.pread(file.fileno(), size - self.offset, self.offset)
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [line for text in whole.split(b"\n") if (line := parse(text)) is not None]


class Followers:
    """The journals of tasks."""

    def __init__(self, tasks: list[Task]):
        self.journals = {task: [Follower(task.run.journal(seed)) for seed in task.seeds] for task in tasks}

    def tell(self, report: Report) -> None:
        for task, journals in self.journals.items():
            for journal in journals:
                for line in journal.news():
                    report(task, line)

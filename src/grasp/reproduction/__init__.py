"""The paper's tables and figures as suites of runs (`grasp reproduce`).

`suites` is the data: which runs a suite has, with which budget, and the scores that the paper reports. `runner` trains
them and compares the result. Open `suites` first. Imports api and everything below it.
"""

from grasp.reproduction.runner import reproduce

__all__ = ["reproduce"]

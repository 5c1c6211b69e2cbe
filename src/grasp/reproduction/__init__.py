"""The paper's tables and figures as suites of runs (`grasp reproduce`).

`suites` is data only: the runs of each suite, the budgets, and the paper's scores. `runner` trains a suite's runs and
compares them with each other and with the paper. Open `suites` first. Imports api and everything below it.
"""

from grasp.reproduction.runner import reproduce

__all__ = ["reproduce"]

"""From run directories to scores, intervals, verdicts and reports (`grasp compare`).

`run_data` reads runs and `labels` names them; `comparability` checks that they may be compared; `comparison` computes
rows and pairs with `statistics` and `permutation_test`; `verdict` puts the result in a sentence; `tables`, `plots`,
`export` and `html_report` write it. Open `comparison` first. Imports runs, config and types.
"""

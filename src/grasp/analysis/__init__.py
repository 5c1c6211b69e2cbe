"""From run directories to numbers, verdicts and reports (`grasp compare`).

`run_data` reads runs; `comparison` turns them into rows and intervals with `statistics` and `permutation_test`;
`comparability` warns of what should not be compared; `verdict` says it in words. `tables`, `plots`, `export` and
`html_report` write it down. Open `comparison` first. Imports runs, config and types.
"""

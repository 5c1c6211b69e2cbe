"""The run directory: the files that training writes and every other command reads.

Open `directory` first: it has the layout. Beside it are `metrics_log` (metrics.jsonl), `checkpoint`, `replay_store` (a
Q-learner's finished episodes), `lock` (one writer per seed), `restore` (what a seed continues from), `condense` (a copy
without networks) and `tensorboard`. Imports types, config and algos.
"""

from grasp.runs.directory import (
    CONDENSED,
    Run,
    commit,
    create,
    default_path,
    extend,
    find,
    is_seed,
    is_unbegun,
    locate,
    move,
    read_object,
    spread,
    versions,
    writing,
)

__all__ = [
    "CONDENSED",
    "Run",
    "commit",
    "create",
    "default_path",
    "extend",
    "find",
    "is_seed",
    "is_unbegun",
    "locate",
    "move",
    "read_object",
    "spread",
    "versions",
    "writing",
]

"""The options of a run that trains within seconds."""

TINY = {
    "num_envs": 4, "rollout": 10, "chunk": 5, "epochs": 2, "hidden": 8,
    "eval_episodes": 3, "final_episodes": 5, "steps": 160, "parallel": "vmap",
}  # fmt: skip

"""Training: from a configuration to metrics, checkpoints and a policy.

Open `loop` first: collect, update, evaluate, save. `runner` compiles the functions that it calls. `rollout` and
`evaluation` step environments that JAX compiles, `host_rollout` those in worker processes, `remote_rollout` those on
other nodes. `compilation_cache` keeps compiled programs. Imports runs, algos, render, envs, nn, config and types.
"""

"""Training: from a configuration to metrics, checkpoints and a policy.

Open `loop` first: collect, update, evaluate, save. `runner` compiles what it calls; `rollout` and `evaluation` play
environments that JAX compiles, `host_rollout` those in worker processes, `remote_rollout` those on other machines.
`compilation_cache` keeps compiled programs. Imports runs, algos, envs, nn, config and types.
"""

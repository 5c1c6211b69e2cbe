"""A measured process: `python -m grasp.bench.child TASK CORES`, started by `grasp.bench.measure`.

It prints `ready` when everything is compiled, waits for a line, measures, and prints one JSON object.
"""

import json
import os
import sys
import time


def main() -> None:
    task, core = json.loads(sys.argv[1]), sys.argv[2]
    if core:
        from grasp.launch.worker import pin

        pin([int(number) for number in core.split(",")], task["options"].get("devices", 1))
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a simulator's output must not mix with the results
    from grasp.bench import envs, measure, plain_mappo
    from grasp.training import compilation_cache

    compilation_cache.enable()
    if task["kind"] == "plain_mappo":
        advance, steps = plain_mappo.trainer(**task["options"])
    elif task["kind"] == "play":
        advance, steps = envs.player(**task["options"]), envs.STEPS * task["options"]["num_envs"]
    else:
        config = measure.configure(task["algo"], task["env"], task["options"])
        advance, steps = measure.trainer(config), config.steps_per_iteration
    for _ in range(2):
        measure.jax.block_until_ready(advance())
    print("ready", file=stream)
    sys.stdin.readline()
    began, work = time.perf_counter(), time.process_time()
    for _ in range(task["iterations"]):
        measure.jax.block_until_ready(advance())
    seconds = time.perf_counter() - began
    rate = steps * task["iterations"] / seconds
    work = (time.process_time() - work) / task["iterations"]
    print(json.dumps({"rate": rate, "seconds": seconds, "work": work, "peak_mb": measure.peak_mb()}), file=stream)


if __name__ == "__main__":
    main()

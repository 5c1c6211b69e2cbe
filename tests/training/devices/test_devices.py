"""One run over several devices: the same numbers as on one, with little communication."""

import json
import os
import subprocess
import sys

import pytest
from device_cases import TRAINED
from paths import SUPPORT

from grasp import config
from grasp.launch import local
from grasp.types import GraspError

CASES = SUPPORT / "device_cases.py"
FIRST = next(iter(TRAINED))
WAIT = 300.0


def check(number, *words):
    """Run a case of `device_cases` in a process with `number` devices."""
    flags = f"--xla_backend_optimization_level=0 --xla_force_host_platform_device_count={number}"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(CASES), json.dumps(words)],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.stdout.endswith("done\n"), done.stderr[-3000:]


FULL = pytest.mark.full("every variant over several devices")


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=FULL)])
def test_the_consensus_of_parts_is_the_consensus_of_their_sums(number):
    check(number, "equal", number)


@FULL
def test_the_consensus_sends_slices_and_one_direction():
    check(4, "traffic", 4)


@pytest.mark.parametrize(
    ("case", "number"), [(FIRST, 4), *(pytest.param(case, 2, marks=FULL) for case in TRAINED if case != FIRST)]
)
def test_a_run_over_several_devices_equals_that_on_one(case, number):
    check(number, "trained", number, case)


def test_too_few_devices_is_one_error():
    check(2, "too_few", 3)


@pytest.mark.parametrize(
    ("algo", "options", "sentence"),
    [
        ("mappo", {"num_envs": 9}, "num_envs 9 cannot be sharded over 4 devices; the nearest that can is 8"),
        ("mappo", {"num_envs": 2}, "the nearest that can is 4"),
        ("mappo", {"num_envs": 4, "rollout": 30, "minibatches": 2}, "use minibatches 1"),
        ("grasp-mappo", {"gram": "crossfit"}, "gram crossfit is for one device"),
        ("mappo", {"parallel": "vmap"}, "does not support several devices; remove it"),
        ("grasp-qmix", {}, "the replay buffer of grasp-qmix is on one device; train it with --devices 1"),
    ],
)
def test_what_cannot_be_sharded_is_refused(algo, options, sentence):
    with pytest.raises(GraspError) as mistake:
        config.configure(algo, "probe/value", {"devices": 4, **options})
    assert sentence in str(mistake.value)
    assert "\n" not in str(mistake.value)


def test_a_run_over_several_devices_is_a_process():
    spread = config.configure("mappo", "probe/value", {"devices": 2})
    assert local.resolved(spread, simulated=False).parallel == "processes"

"""The PyTorch bridge compared with TorchJD, and the example's iteration with its baseline, as ratios in one run.

OMP_NUM_THREADS=1 python scripts/bridge.py      # needs grasp-marl[torch] mpe2 quadprog qpsolvers

The file cannot be named torch.py: a script's folder is first on Python's path, and `import torch` would import it.
"""

import argparse
import ctypes
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]
from torchjd.aggregation import MGDA, UPGrad  # pyright: ignore[reportMissingImports]
from torchjd.autojac import jac_to_grad  # pyright: ignore[reportMissingImports]

from grasp.consensus.torch import consensus

SHAPES = [(600, 1000), (1000,), (398, 1000), (1000,)]
"""One million numbers in four parameters."""


def parameters(family: str, num: int, seed: int) -> list[Any]:
    """Parameters with a Jacobian [N, ...] each, in the attribute that TorchJD reads."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for shape in SHAPES:
        one = torch.nn.Parameter(torch.zeros(shape))
        jac = torch.empty(num, *shape).normal_(generator=generator)
        if family == "conflicting":
            jac -= 0.95 * jac.mean(0)
        one.jac = jac
        made.append(one)
    return made


def ours(given: list[Any]) -> list[Tensor]:
    return consensus([one.jac for one in given])[0]


def theirs(aggregator: Any, lean: bool, given: list[Any]) -> list[Tensor]:
    for one in given:
        one.grad = None
    jac_to_grad(given, aggregator, retain_jac=True, optimize_gramian_computation=lean)
    return [one.grad for one in given]


def conflict(given: list[Any], u: list[Tensor]) -> tuple[float, float]:
    """The largest −cos(g_j, u), and how far u is from min-norm: max_j (‖u‖² − g_j·u)/(‖g_j‖‖u‖). In float64."""
    rows = [one.jac.flatten(1).double() for one in given]
    flat = [one.flatten().double() for one in u]
    inner = torch.stack([row @ part for row, part in zip(rows, flat, strict=True)]).sum(0)
    norms = torch.stack([row.square().sum(1) for row in rows]).sum(0).sqrt()
    length = torch.cat(flat).norm()
    cosine = inner / (norms * length)
    return float((-cosine).max()), float((length / norms - cosine).max())


def high_water(method: Callable[[list[Any]], Any], given: list[Any]) -> int:
    """Peak growth of the process's memory in bytes."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # return freed memory, so that new allocations count
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak

    def read(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024

    before = read("VmRSS")
    method(given)
    return read("VmHWM") - before


def aggregation(num: int, repeats: int) -> None:
    methods: dict[str, Callable[[list[Any]], list[Tensor]]] = {
        "grasp min_norm": ours,
        "TorchJD MGDA": lambda given: theirs(MGDA(), False, given),
        "TorchJD MGDA, lean": lambda given: theirs(MGDA(), True, given),
        "TorchJD UPGrad": lambda given: theirs(UPGrad(), False, given),
        "TorchJD UPGrad, lean": lambda given: theirs(UPGrad(), True, given),
    }
    print(
        "| gradients | method | time, ours = 1 | largest −cos(g_j, u) | off min-norm by | memory beside the gradients |"
    )
    print("|---|---|---|---|---|---|")
    for family in ("orthogonal", "conflicting"):
        given = parameters(family, num, seed=0)
        held = sum(one.jac.numel() * 4 for one in given)
        times: dict[str, list[float]] = {name: [] for name in methods}
        answers = {name: method(given) for name, method in methods.items()}  # compiles, too
        for _ in range(repeats):
            for name, method in methods.items():
                start = time.perf_counter()
                method(given)
                times[name].append(time.perf_counter() - start)
        for name, method in methods.items():
            worst, gap = conflict(given, answers[name])
            ratio = min(times[name]) / min(times["grasp min_norm"])
            extra = high_water(method, given) / held
            print(f"| {family} | {name} | {ratio:.2f} | {worst:.1e} | {gap:.1e} | {100 * extra:.1f} % |", flush=True)


def iterations(count: int) -> None:
    """Baseline and GRASP are interleaved, so that changes in load affect both."""
    path = Path(__file__).parents[1] / "examples" / "pytorch_mappo.py"
    spec = importlib.util.spec_from_file_location("pytorch_mappo", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    sides = []
    for arguments in ([], ["--grasp"]):
        options = example.parse(arguments)
        envs = example.Environments(options.num_envs, 0)
        sides.append((options, envs, example.Learner(options, *envs.current.shape[1:], 5)))
    times = np.zeros((count + 1, 2, 2))
    for i in range(count + 1):
        for j, (options, envs, learner) in enumerate(sides):
            start = time.perf_counter()
            data = example.collect(envs, learner.actor, options.rollout)
            between = time.perf_counter()
            learner.update(data)
            times[i, j] = between - start, time.perf_counter() - between
    whole, update = times[1:].sum(2), times[1:, :, 1]  # the first compiles the solver
    for name, part in (("iteration", whole), ("update alone", update)):
        print(f"example, {name}: grasp / baseline {np.median(part[:, 1]) / np.median(part[:, 0]):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=27)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=10)
    given = parser.parse_args()
    aggregation(given.agents, given.repeats)
    iterations(given.iterations)


if __name__ == "__main__":
    main()

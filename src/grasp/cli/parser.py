"""The command `grasp`: its commands and their options.

Built on argparse, whose every error can be replaced: a mistake is one sentence that suggests the nearest known name.
The options of `train` are defined once, as fields of `grasp.config`.
"""

import argparse
import os
import sys
from dataclasses import Field, fields
from typing import Any, NoReturn

from grasp.cli.commands import (
    run_bench,
    run_check_env,
    run_compare,
    run_condense,
    run_doctor,
    run_evaluate,
    run_list,
    run_play,
    run_reproduce,
    run_resume,
    run_tensorboard,
    run_train,
    run_watch,
)
from grasp.config import RUN_FIELDS, defaults, describe, parse
from grasp.config.hyperparameters import ALGORITHMS
from grasp.reproduction.suites import BUDGETS, SUITES
from grasp.types import GraspError, suggest
from grasp.version import __version__

RUN = "a run directory, or the folder of one of its seeds"
CHECKPOINT = "the policy of the evaluation at this many environment steps (default: the best)"


class Parser(argparse.ArgumentParser):
    """argparse that raises GraspError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise GraspError(f"{message}; see: {self.prog} --help")


def main(arguments: list[str] | None = None) -> int:
    """Run a command. The exit code is 0, 2 for a user's mistake (one sentence on standard error) or 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.path.append(os.getcwd())  # so that package.module:factory finds the user's own modules, as python -m would
    try:
        options = parser(arguments).parse_args(arguments)
        options.call(options)
    except GraspError as mistake:
        print(f"grasp: {mistake}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"grasp: {error.strerror or error}: {error.filename}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("grasp: stopped; continue from the last checkpoint with: grasp resume", file=sys.stderr)
        return 130
    return 0


def parser(arguments: list[str]) -> Parser:
    """The parser of all commands. `train` has the options of the algorithm that is named."""
    root = Parser(prog="grasp", description="Train teams of agents with consensus gradients.", allow_abbrev=False)
    root.add_argument("--version", action="version", version=f"grasp {__version__}")
    commands = root.add_subparsers(metavar="COMMAND", parser_class=Parser, required=True)
    adders = {
        "train": add_train,
        "resume": add_resume,
        "evaluate": add_evaluate,
        "play": add_play,
        "watch": add_watch,
        "compare": add_compare,
        "reproduce": add_reproduce,
        "condense": add_condense,
        "tensorboard": add_tensorboard,
        "list": add_list,
        "doctor": add_doctor,
        "check-env": add_check_env,
        "bench": add_bench,
    }
    word = arguments[0] if arguments else ""
    if word and not word.startswith("-") and word not in adders:
        raise GraspError(f"unknown command '{word}'; {suggest(word, adders)}")
    for add in adders.values():
        add(commands, arguments)
    if word in adders:
        refuse_unknown(arguments[1:], commands.choices[word])
    return root


def add_train(commands: Any, arguments: list[str]) -> None:
    algo = arguments[1] if len(arguments) > 1 and arguments[0] == "train" else ""
    if algo.startswith("--") and algo != "--help":
        raise GraspError("the algorithm and the environment come first; type: grasp train ALGO ENV --option VALUE")
    hyper = ALGORITHMS["grasp-mappo"] if algo in ("", "-h", "--help") else defaults(algo)
    command = commands.add_parser("train", help="train an algorithm in an environment", allow_abbrev=False)
    command.add_argument("algo", metavar="ALGO", help=", ".join(ALGORITHMS))
    command.add_argument("env", metavar="ENV", help="a name from `grasp list`, or package.module:factory")
    command.add_argument("--out", metavar="DIR", type=named, help="run directory (default: runs/ALGO_ENV)")
    add_on_flag(command)
    add_tensorboard_flag(command)
    known = [*RUN_FIELDS, *fields(hyper)]
    for option in known:
        default, kind = getattr(hyper, option.name, option.default), describe(option.type)
        choices = f"{kind}; " if kind.startswith("one of") else ""
        command.add_argument(
            *flags(option), dest=option.name, metavar="VALUE", type=typed(option), default=argparse.SUPPRESS,
            help=f"{option.metadata['help']} ({choices}default: {default})",
        )  # fmt: skip
    of_env = env_flags(arguments)
    for flag, kind in of_env.items():
        command.add_argument(
            flag, metavar="VALUE", default=argparse.SUPPRESS, help=f"option of the environment: {kind}"
        )
    command.set_defaults(call=run_train, names=[option.name for option in known], of_env=list(of_env))


def env_flags(arguments: list[str]) -> dict[str, str]:
    """`--env.NAME` for every option of the environment that is named, with a description of its type."""
    asked = any(word.startswith("--env.") or word in ("-h", "--help") for word in arguments)
    if len(arguments) < 3 or arguments[0] != "train" or not asked:
        return {}
    from grasp.envs import base as envs

    return {f"--env.{name}": describe(kind) for name, kind in envs.options(arguments[2]).items()}


def flags(option: Field) -> list[str]:
    """`--num_envs`, the field's name, and `--num-envs`."""
    return list(dict.fromkeys([f"--{option.name}", f"--{option.name.replace('_', '-')}"]))


def typed(option: Field) -> Any:
    """A function that reads the option's value."""

    def read(text: str) -> Any:
        try:
            return parse(option.metadata["renamed"].get(text, text), option.type)
        except ValueError:
            raise GraspError(f"{option.name} must be {describe(option.type)}, not '{text}'") from None

    return read


def refuse_unknown(words: list[str], command: argparse.ArgumentParser) -> None:
    """Suggest the nearest known flag for an unknown one; argparse would list everything it did not understand."""
    known = [flag for flag in command._option_string_actions if flag.startswith("--")]  # argparse has no other list
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            raise GraspError(f"unknown option '{name}'; {suggest(name, known)}")


def add_tensorboard_flag(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tensorboard", action="store_true", help="also write TensorBoard event files")


def add_on_flag(command: argparse.ArgumentParser) -> None:
    where = "where to train: this machine (local), or a Ray cluster (ray, ray://HOST:PORT)"
    command.add_argument("--on", metavar="WHERE", default="local", help=f"{where} (default: local)")


def add_resume(commands: Any, _: list[str]) -> None:
    command = commands.add_parser("resume", help="resume a stopped or killed run from its last checkpoint, bit for bit")
    command.add_argument("run", metavar="RUN", help=RUN)
    command.add_argument("--steps", type=whole("steps"), help="train up to this many environment steps in total")
    command.add_argument("--devices", type=whole("devices"), help="number of devices to resume on (default: unchanged)")
    add_on_flag(command)
    add_tensorboard_flag(command)
    command.set_defaults(call=run_resume)


def add_evaluate(commands: Any, _: list[str]) -> None:
    command = commands.add_parser("evaluate", help="score the stored policy with greedy and with sampled actions")
    command.add_argument("run", metavar="RUN", help=RUN)
    command.add_argument(
        "--episodes", type=whole("episodes"), default=32, help="episodes per seed, of each kind (default: 32)"
    )
    command.add_argument("--checkpoint", metavar="STEPS", type=whole("checkpoint", 0), help=CHECKPOINT)
    command.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    command.set_defaults(call=run_evaluate)


def add_play(commands: Any, _: list[str]) -> None:
    command = commands.add_parser(
        "play", help="render an episode of the stored policy as a GIF, or as an MP4 with ffmpeg"
    )
    command.add_argument("run", metavar="RUN", help=RUN)
    command.add_argument(
        "--out", metavar="FILE", type=named, default="episode.gif", help="a .gif or .mp4 (default: episode.gif)"
    )
    command.add_argument("--seed", type=whole("seed", 0), help="the seed whose policy acts (default: the first)")
    command.add_argument("--checkpoint", metavar="STEPS", type=whole("checkpoint", 0), help=CHECKPOINT)
    command.add_argument(
        "--episodes", type=whole("episodes"), default=1, help="episodes, one after another (default: 1)"
    )
    command.add_argument("--overlay", action="store_true", help="overlay action probabilities and critic value")
    command.set_defaults(call=run_play)


def add_watch(commands: Any, _: list[str]) -> None:
    command = commands.add_parser(
        "watch", help="serve a live page with the curves, gradient conflict and replays of runs"
    )
    command.add_argument(
        "directory", metavar="DIR", nargs="?", default="runs", help="a folder of run directories (default: runs)"
    )
    command.add_argument("--port", type=whole("port", 0), default=8400, help="port to listen on (default: 8400)")
    command.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
    )
    command.add_argument("--open", action="store_true", help="open the page in the browser")
    command.set_defaults(call=run_watch)


def add_compare(commands: Any, _: list[str]) -> None:
    command = commands.add_parser("compare", help="compare runs: scores, intervals, HTML report")
    command.add_argument("runs", metavar="RUN", nargs="+", help="run directories, or folders of seeds")
    command.add_argument(
        "--out", metavar="DIR", type=named, help="write report.html, tables, numbers and plots to this folder"
    )
    printed = command.add_mutually_exclusive_group()
    printed.add_argument("--latex", action="store_true", help="print the tables as LaTeX")
    printed.add_argument("--csv", action="store_true", help="print the rows as CSV")
    printed.add_argument("--marl-eval", action="store_true", help="print the evaluations in marl-eval's JSON format")
    command.add_argument(
        "--force",
        action="store_true",
        help="compare in spite of different environment versions or evaluation protocols",
    )
    timed = "report the steps to this win rate, or to this fraction of the return's scale"
    command.add_argument("--threshold", metavar="SCORE", type=float, help=timed)
    scored = "what to compare: the best policy, the last tenth of evaluations or all, with greedy or sampled actions"
    choices = ("absolute", "last", "whole", "sampled-last", "sampled-whole")
    command.add_argument("--score", choices=choices, help=scored)
    command.set_defaults(call=run_compare)


def add_reproduce(commands: Any, _: list[str]) -> None:
    command = commands.add_parser(
        "reproduce", help="train and compare the runs of a table or figure of the paper, or of its controls"
    )
    command.add_argument("suite", metavar="SUITE", help=", ".join(SUITES))
    budgets = "; ".join(f"{name}: {budget.help}" for name, budget in BUDGETS.items())
    command.add_argument("--budget", default="smoke", help=f"{budgets} (default: smoke)")
    command.add_argument(
        "--out", metavar="DIR", type=named, help="folder of the runs and the report (default: reproduced/SUITE-BUDGET)"
    )
    add_on_flag(command)
    command.add_argument("--jax", action="store_true", help="use GRASP's JAX environment in place of a simulator")
    for name in ("steps", "seeds"):
        command.add_argument(f"--{name}", type=whole(name), help="overrides the budget")
    command.set_defaults(call=run_reproduce)


def add_condense(commands: Any, _: list[str]) -> None:
    command = commands.add_parser("condense", help="copy a run without its networks, small enough to commit")
    command.add_argument("run", metavar="RUN", help=RUN)
    command.add_argument(
        "--out", metavar="DIR", type=named, required=True, help="folder of the copy, which must not exist"
    )
    command.set_defaults(call=run_condense)


def add_tensorboard(commands: Any, _: list[str]) -> None:
    command = commands.add_parser("tensorboard", help="export a run's metrics as TensorBoard event files")
    command.add_argument("run", metavar="RUN", help=RUN)
    command.set_defaults(call=run_tensorboard)


def add_list(commands: Any, _: list[str]) -> None:
    command = commands.add_parser("list", help="list algorithms, environments, operators, presets and suites")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(call=run_list)


def add_doctor(commands: Any, _: list[str]) -> None:
    command = commands.add_parser(
        "doctor", help="check which features work on this machine and how to install the others"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(call=run_doctor)


def add_check_env(commands: Any, _: list[str]) -> None:
    command = commands.add_parser("check-env", help="check an environment against the contract")
    command.add_argument("env", metavar="ENV", help="family/task, or package.module:factory")
    command.set_defaults(call=run_check_env)


def add_bench(commands: Any, _: list[str]) -> None:
    command = commands.add_parser("bench", help="run the benchmarks, each measured beside its baseline")
    command.add_argument("name", metavar="NAME", nargs="?", help="a benchmark (default: all)")
    command.add_argument("--json", action="store_true", help="print one JSON object per measurement")
    command.add_argument("--smoke", action="store_true", help="tiny sizes, to check that every benchmark runs")
    command.set_defaults(call=run_bench)


def named(text: str) -> str:
    """Read the name of a file or directory."""
    if not text.strip():
        raise GraspError("--out needs a name")
    return text


def whole(name: str, least: int = 1) -> Any:
    """A function that reads a whole number."""

    def read(text: str) -> int:
        try:
            number = parse(text, int)
        except ValueError:
            raise GraspError(f"{name} must be a whole number, not '{text}'") from None
        if number < least:
            raise GraspError(f"{name} must be at least {least}, not {number}")
        return number

    return read

"""What each command does with its parsed options. Everything slow to import is imported inside the functions."""

import argparse
import json
from pathlib import Path


def run_train(options: argparse.Namespace) -> None:
    from rich.console import Console

    from grasp import api
    from grasp.cli import summary
    from grasp.envs import base as envs
    from grasp.training import compilation_cache

    compilation_cache.enable()
    given = {name: getattr(options, name) for name in options.names if hasattr(options, name)}
    of_env = {flag.removeprefix("--env."): getattr(options, flag.removeprefix("--"), None) for flag in options.of_env}
    env = envs.with_options(options.env, {name: text for name, text in of_env.items() if text is not None})
    console = Console()
    where = {"out": options.out, "on": options.on, "tensorboard": options.tensorboard}
    run = api.train(options.algo, env, console=console, **where, **given)
    summary.print_run(run, console)


def run_resume(options: argparse.Namespace) -> None:
    from rich.console import Console

    from grasp import api
    from grasp.cli import summary
    from grasp.training import compilation_cache

    compilation_cache.enable()
    console = Console()
    where = {"on": options.on, "tensorboard": options.tensorboard}
    run = api.resume(options.run, steps=options.steps, devices=options.devices, console=console, **where)
    summary.print_run(run, console)


def run_evaluate(options: argparse.Namespace) -> None:
    from rich.console import Console

    from grasp import api, runs
    from grasp.cli import summary
    from grasp.training import compilation_cache

    compilation_cache.enable()
    scores = api.evaluations(options.run, options.episodes, options.checkpoint)
    rows = summary.score_rows(runs.find(options.run), scores, options.checkpoint)
    if options.json:
        print(json.dumps(rows))
    else:
        summary.print_scores(rows, Console())


def run_play(options: argparse.Namespace) -> None:
    from grasp import api
    from grasp.training import compilation_cache

    compilation_cache.enable()
    played = api.play(
        options.run,
        out=options.out,
        seed=options.seed,
        checkpoint=options.checkpoint,
        episodes=options.episodes,
        overlay=options.overlay,
    )
    steps = sum(len(episode.reward) for episode in played)
    print(f"{options.out}: {len(played)} episode{'s' * (len(played) > 1)}, {steps} steps")


def run_watch(options: argparse.Namespace) -> None:
    from grasp import dashboard

    dashboard.serve(options.directory, options.host, options.port, options.open)


def run_compare(options: argparse.Namespace) -> None:
    from rich.console import Console

    from grasp import api
    from grasp.analysis import comparison, export, run_data, tables

    if options.marl_eval:
        found = run_data.load_runs(options.runs)
        comparison.compare(found, options.force)  # refuses to mix evaluation protocols
        text = export.marl_eval(found)
        if options.out:
            (tables.folder(Path(options.out)) / "marl-eval.json").write_text(text, encoding="utf-8")
        else:
            print(text, end="")
        return
    chosen = {name: getattr(options, name) for name in ("out", "latex", "force", "threshold", "score")}
    result = api.compare(options.runs, **chosen)
    if options.latex or options.csv:
        print(tables.latex(result) if options.latex else export.rows(result), end="")
    else:
        Console().print(tables.render(result))


def run_reproduce(options: argparse.Namespace) -> None:
    from grasp import reproduction
    from grasp.training import compilation_cache

    compilation_cache.enable()
    given = {name: getattr(options, name) for name in ("steps", "seeds") if getattr(options, name) is not None}
    where = {"out": options.out, "on": options.on}
    reproduction.reproduce(options.suite, budget=options.budget, counterparts=options.jax, **where, **given)


def run_condense(options: argparse.Namespace) -> None:
    from grasp.runs import condense

    out = condense.condense(options.run, options.out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size / 1000:.0f} kB, for grasp compare and grasp watch")


def run_tensorboard(options: argparse.Namespace) -> None:
    from grasp import runs
    from grasp.runs import tensorboard

    print(f"view it with: tensorboard --logdir {tensorboard.export(runs.find(options.run))}")


def run_list(options: argparse.Namespace) -> None:
    from rich.console import Console

    from grasp.cli import listing

    if options.json:
        print(json.dumps(listing.catalogue(), indent=2))
    else:
        listing.show(Console())


def run_doctor(options: argparse.Namespace) -> None:
    from grasp.cli import doctor

    found = doctor.examine()
    if options.json:
        print(json.dumps([finding._asdict() for finding in found]))
    else:
        doctor.show(found)


def run_check_env(options: argparse.Namespace) -> None:
    from grasp.envs import base as envs
    from grasp.envs import check

    found = check.inspect(envs.make(options.env))
    spec = found.spec
    limits = f"{spec.num_actions} actions, {spec.horizon} steps at most"
    print(f"{spec.name}: {spec.num_agents} agents, observation {spec.obs_dim}, state {spec.state_dim}, {limits}")
    print(f"random episodes: {found.lengths[1:]} steps, returns {[round(value, 3) for value in found.returns[1:]]}")
    if not found.seeds_differ:
        print("note: two seeds gave the same episode; if episodes should differ, make reset use its seed")
    for note in found.notes:
        print(f"note: {note}")
    print(f"contract OK; train with: grasp train grasp-mappo '{options.env}'")


def run_bench(options: argparse.Namespace) -> None:
    from grasp import bench

    bench.run(options.name, as_json=options.json, smoke=options.smoke)

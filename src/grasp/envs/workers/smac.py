"""Adapter of SMAC and SMACv2: battles in StarCraft II itself, through the benchmarks' own packages.

`make("MMM2")` is a map of SMAC; `make("10gen_terran", game="smacv2", n_units=10, n_enemies=11)` one of SMACv2. The
reward is the benchmark's team reward. Dead agents keep their rows, with action 0 as their only legal action.

Behaviour of the packages that is corrected here:

- SMACv2's `reset` returns None after a second attempt at spawning: its result is not used. In the first battle such an
  attempt (in SMAC: units that appear late), or a `reset` before the battle's end, adds the enemies to `max_reward`, the
  divisor of all later rewards, a second time: `_settle` sets the right value and counts the battle as played.
- A lost connection is returned as the end of a battle with an empty `info`. If lost during `reset`, the units of the
  previous battle remain. Both raise here, so that the episode is dropped and the worker replaced.
- A battle at its time limit is returned as terminated. `continuing_episode` adds `info["episode_limit"]` and changes
  nothing else (checked in both sources). The adapter also counts steps, for packages that omit it.
- SMACv2's wrapper modifies its configuration: each environment gets a copy.
- pysc2 refuses to start a game before absl's flags are parsed: they are marked as parsed.
- Both packages register maps of the same names with pysc2, which refuses that: one process can import only one of them.

Seeds. The game takes a seed when it starts, which is at the first `reset(seed)`. Later battles continue its random
generator, so `reset(seed)` does not repeat a battle; the same seeds and actions in a new simulator do, as far as the
game is deterministic. SMACv2's teams and start positions are drawn outside the game and always follow from the seed of
their `reset`. The order in which its agents observe, which decides which agent sees an enemy first, comes from Python's
global generator, which the copies in a worker share.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # imported where it is used: `diagnose` must run in an interpreter without numpy
    import numpy as np

PROJECTS = {"smac": "oxwhirl/smac", "smacv2": "oxwhirl/smacv2"}
BUILD = "Base75689"
"""The folder of version 4.10, the last one with a Linux package."""
NO_OP = 0
TEAMS = {
    "10gen_terran": (["marine", "marauder", "medivac"], [0.45, 0.45, 0.1], ["medivac"]),
    "10gen_protoss": (["stalker", "zealot", "colossus"], [0.45, 0.45, 0.1], []),
    "10gen_zerg": (["zergling", "baneling", "hydralisk"], [0.45, 0.1, 0.45], ["baneling"]),
}
"""SMACv2's unit types, their weights, and the types that cannot be a whole team."""


def make(task: str, game: str = "smac", n_units: int | None = None, n_enemies: int | None = None) -> Battle:
    """A battle on the map `task`. Defaults of SMACv2: 10 units and as many enemies as units."""
    if game not in PROJECTS:
        raise ValueError(f"game must be smac or smacv2, not {game!r}")
    if game == "smac" and (n_units, n_enemies) != (None, None):
        raise ValueError(
            f"the teams of SMAC's map {task!r} are fixed; remove n_units and n_enemies, which need game=smacv2"
        )
    allies = 10 if n_units is None else n_units
    enemies = allies if n_enemies is None else n_enemies
    if min(allies, enemies) < 1:
        raise ValueError(f"n_units and n_enemies must be at least 1, not {allies} and {enemies}")
    _require(_package(game), _protobuf())
    file = _map_file(task, game)
    _require(_folder(), _build(), _map(file, game))
    arguments: dict[str, Any] = {"map_name": task, "continuing_episode": True}
    if game == "smacv2":
        arguments.update(conic_fov=False, obs_own_pos=True, use_unit_ranges=True, min_attack_range=2)
        arguments["capability_config"] = _capabilities(task, allies, enemies)
    return Battle(game, arguments)


def diagnose() -> list[tuple[str, bool, str]]:
    """(requirement, whether it is met, how to fix it) for all requirements of the game. Needs only the standard
    library."""
    needs = [_package("smac"), _package("smacv2"), _protobuf(), _folder(), _build(exactly=True)]
    needs += [_map("MMM2", "smac"), _map("32x32_flat", "smacv2")]
    return [(need.what, not need.wrong, f"{need.wrong}; {need.fix}" if need.wrong else "") for need in needs]


class Battle:
    """One game of StarCraft II, started by the first `reset`."""

    def __init__(self, game: str, arguments: dict[str, Any]):
        self._construct = functools.partial(_construct, game, arguments)
        self._env = self._construct(seed=None)
        self._started, self._steps = False, 0
        sizes = self._env.get_env_info()
        self.spec = {
            "num_agents": int(sizes["n_agents"]),
            "obs_dim": int(sizes["obs_shape"]),
            "state_dim": int(sizes["state_shape"]),
            "num_actions": int(sizes["n_actions"]),
            "horizon": int(sizes["episode_limit"]),
            "has_wins": True,
            "package": game,
        }

    def reset(self, seed: int) -> tuple:
        if not self._started:
            self._env, self._started = self._construct(seed=seed % 2**32), True
        _seed_draws(self._env, seed)
        restarts = self._env.force_restarts
        self._env.reset()
        if self._env.force_restarts != restarts:
            raise ConnectionError("the connection to StarCraft II was lost between two battles")
        if self._env._episode_count == 0:
            _settle(getattr(self._env, "env", self._env))
        self._steps = 0
        return self._look()

    def step(self, action: np.ndarray) -> tuple:
        orders = [int(one) if alive else NO_OP for one, alive in zip(action, self._alive)]
        reward, over, info = self._env.step(orders)
        if "battle_won" not in info:
            raise ConnectionError(f"the connection to StarCraft II was lost at step {self._steps + 1} of a battle")
        self._steps += 1
        seen, won = self._look(), bool(info["battle_won"])
        at_limit = self._steps >= self.spec["horizon"]
        truncated = bool(info.get("episode_limit", False)) or (at_limit and not (won or self._lost()))
        terminated = bool(over) and not truncated
        return seen, float(reward), terminated, truncated, terminated and won

    def close(self) -> None:
        self._env.close()

    def _lost(self) -> bool:
        """Whether the allies are dead or only healers remain. If both teams are dead the battle is over and not won."""
        return not self._alive.any() or bool(self._env.only_medivac_left(ally=True))

    def _look(self) -> tuple:
        import numpy as np

        obs = np.asarray(self._env.get_obs(), np.float32)
        state = np.asarray(self._env.get_state(), np.float32)
        avail = np.asarray(self._env.get_avail_actions(), np.bool_)
        units = [self._env.get_unit_by_id(agent) for agent in range(self.spec["num_agents"])]
        self._alive = np.array([unit.health > 0 for unit in units], np.bool_)
        return obs, state, avail, self._alive.copy()


def _construct(game: str, arguments: dict[str, Any], seed: int | None) -> Any:
    module = _import(f"{game}.env")
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    kind = module.StarCraft2Env if game == "smac" else module.StarCraftCapabilityEnvWrapper
    return kind(seed=seed, **copy.deepcopy(arguments))


def _capabilities(task: str, n_units: int, n_enemies: int) -> dict[str, Any]:
    """The benchmark's configuration of a race."""
    unit_types, weights, exceptions = TEAMS[task]
    team = {"dist_type": "weighted_teams", "unit_types": unit_types, "weights": weights, "observe": True}
    team["exception_unit_types"] = exceptions
    positions = {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32}
    return {"n_units": n_units, "n_enemies": n_enemies, "team_gen": team, "start_positions": positions}


def _seed_draws(env: Any, seed: int) -> None:
    """Seed SMACv2's distributions, which create unseeded generators and shuffle with the global one."""
    import numpy as np

    distributions = getattr(env, "env_key_to_distribution_map", None)
    if distributions is None:
        return
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (the generator that the package uses)
    seeds = np.random.SeedSequence(seed)
    for distribution in distributions.values():
        _seed_distribution(distribution, seeds)


def _seed_distribution(distribution: Any, seeds: np.random.SeedSequence) -> None:
    import numpy as np

    for name, part in list(vars(distribution).items()):
        if isinstance(part, np.random.Generator):
            setattr(distribution, name, np.random.default_rng(seeds.spawn(1)[0]))
        elif type(part).__module__.startswith("smacv2."):
            _seed_distribution(part, seeds)


def _settle(env: Any) -> None:
    """Count each enemy of the first battle once in `max_reward`, as the benchmark intends, and the battle as played."""
    worth = [env.reward_death_value + unit.health_max + unit.shield_max for unit in env.enemies.values()]
    env.max_reward = env.reward_win + sum(worth)
    env._episode_count = 1  # in SMACv2 it affects only launching, the reward scale and unit types


class Need(NamedTuple):
    """A requirement. `wrong` states what is not met, and is empty if all is."""

    what: str
    wrong: str
    fix: str
    error: type[Exception]


def _require(*needs: Need) -> None:
    for need in needs:
        if need.wrong:
            raise need.error(f"{need.wrong}; {need.fix}")


def _package(game: str) -> Need:
    found = importlib.util.find_spec(game)
    folders = list(found.submodule_search_locations or []) if found else []
    wrong = ""
    if not found:
        wrong = f"the package {game} is not installed in {sys.executable}"
    elif not any((Path(folder) / "env" / "starcraft2").is_dir() for folder in folders):
        wrong = f"the package {game} in {sys.executable} is another project of that name"
    another = " (`pip install smac` installs an unrelated optimiser)" if game == "smac" else ""
    fix = f"clone the GitHub project {PROJECTS[game]}{another} and type: {_pip(f'./{game}')}"
    return Need(f"package {game}", wrong, fix, ModuleNotFoundError)


def _protobuf() -> Need:
    try:
        version = importlib.metadata.version("protobuf")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    wrong = "" if version else f"the package protobuf is not installed in {sys.executable}"
    if version and tuple(int(word) for word in version.split(".")[:2]) >= (3, 21):
        wrong = f"protobuf {version} is too new for StarCraft II's protocol"
    fix = f"in an interpreter of its own, because JAX needs a newer one, type: {_pip()}"
    return Need("protobuf below 3.21", wrong, fix, ValueError)


def _folder() -> Need:
    given, folder = os.environ.get("SC2PATH"), _game_folder()
    wrong = ""
    if given is None and not folder.is_dir():
        wrong = f"SC2PATH is not set and there is no {folder}"
    elif given is not None and not (given and folder.is_dir()):
        wrong = f"SC2PATH is {given!r}, which is not a folder"
    fix = (
        "unpack the Linux package 4.10 that the GitHub project Blizzard/s2client-proto offers and type: "
        "export SC2PATH=/the/folder/StarCraftII"
    )
    return Need("SC2PATH", wrong, fix, FileNotFoundError)


def _build(exactly: bool = False) -> Need:
    """pysc2 starts the newest installed version. Other versions than 4.10 run, but with different dynamics."""
    versions = _game_folder() / "Versions"
    builds = sorted((path.name for path in versions.glob("Base*")), key=lambda name: (len(name), name))
    wrong = "" if builds else f"{versions} has no version of the game"
    if builds and exactly and builds[-1] != BUILD:
        wrong = f"the newest version in {versions} is {builds[-1]}, whose results are not comparable with 4.10"
    fix = f"unpack the Linux package 4.10 again, so that {versions / BUILD} is the newest"
    return Need("StarCraft II 4.10", wrong, fix, FileNotFoundError)


def _map(file: str, game: str) -> Need:
    maps = _game_folder() / "Maps"
    path = maps / "SMAC_Maps" / f"{file}.SC2Map"
    copied = f"mkdir -p {maps} && cp -r smac/smac/env/starcraft2/maps/SMAC_Maps {maps}"
    unpacked = f"mkdir -p {maps / 'SMAC_Maps'} && unzip -o SMAC_Maps.zip -d {maps / 'SMAC_Maps'}"
    fixes = {
        "smac": f"next to your clone of the GitHub project oxwhirl/smac type: {copied}",
        "smacv2": f"take SMAC_Maps.zip of the release 'maps' of the GitHub project oxwhirl/smacv2 and type: {unpacked}",
    }
    wrong = "" if path.is_file() else f"the map file {path} is missing"
    return Need(f"maps of {game}", wrong, fixes[game], FileNotFoundError)


def _map_file(task: str, game: str) -> str:
    """The name of the task's map file, which all tasks of SMACv2 share."""
    registry = _import(f"{game}.env.starcraft2.maps.smac_maps").get_smac_map_registry()
    known = sorted(TEAMS if game == "smacv2" else registry)
    if task not in known:
        raise LookupError(f"{game} has no map {task!r}", task, known, "")
    return registry[task].get("map_name", task)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        sentence = f"the package {name.partition('.')[0]} needs {error.name}; type: {_pip(str(error.name))}"
        raise ModuleNotFoundError(sentence, name=error.name) from error


def _game_folder() -> Path:
    return Path(os.environ.get("SC2PATH", "~/StarCraftII")).expanduser()


def _pip(*packages: str) -> str:
    """The command that installs packages in this interpreter. If it has JAX, whose protobuf would be replaced, the
    command first creates another environment."""
    python, first = sys.executable, ""
    if importlib.util.find_spec("jax"):
        python, names = ".venv-smac/bin/python", ("GRASP_SMAC_PYTHON", "GRASP_SMACV2_PYTHON")
        first = f"python3.9 -m venv .venv-smac && export {' '.join(f'{name}=$PWD/{python}' for name in names)} && "
    return " ".join([f"{first}{python} -m pip install", *packages, "'protobuf<3.21'"])

"""SMAC and SMACv2: battles of StarCraft II itself, through the benchmarks' own packages.

`make("MMM2")` is SMAC's map; `make("10gen_terran", game="smacv2", n_units=10, n_enemies=11)` is SMACv2's. The reward is
the benchmark's, one number for the team. Rows of the dead stay, with action 0 as their only legal one.

What the packages do that a learner must not see, and what is done here:

- SMACv2's `reset` gives None after a second attempt at spawning: its answer is never used. During the first battle such
  an attempt (in SMAC: units that come late) also adds the enemies to `max_reward`, the divisor of all later rewards,
  once more, as does a `reset` before its end, in a second game: the scale is set right, the battle counted as played.
- A lost connection is reported as the end of a battle, with an empty `info`; one lost in `reset` leaves the units of
  the battle before. Both raise, so that the episode is dropped and the worker started anew.
- A battle at its limit is reported as ended. `continuing_episode` adds `info["episode_limit"]` to that and changes
  nothing else (read in both sources); our own count of steps is the second witness, for packages that leave it out.
- SMACv2's wrapper writes into its configuration: each gets a copy.
- pysc2 refuses to start a game before absl's flags are parsed: they are marked so.
- Both packages name their maps alike to pysc2, which refuses that: a process has room for one of them.

Seeds. The game takes one when it is started, and it is started once: by the first `reset(seed)`. Later battles go on
from where its generator stands, so `reset(seed)` does not repeat a battle; the same seeds and actions from a new
simulator on do, as far as the game is deterministic. SMACv2's teams and starting places are drawn outside of the game:
they follow from the seed of their own `reset`, always. The order in which its agents look, which decides who is taken
to have seen an enemy first, comes from Python's global generator, which the copies in a worker share.
"""

from __future__ import annotations

import copy
import difflib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # imported where it is used: `diagnose` must run in an interpreter that has nothing yet
    import numpy as np

PROJECTS = {"smac": "oxwhirl/smac", "smacv2": "oxwhirl/smacv2"}
BUILD = "Base75689"
"""The folder of version 4.10, whose Linux package is the last."""
NO_OP = 0
TEAMS = {
    "10gen_terran": (["marine", "marauder", "medivac"], [0.45, 0.45, 0.1], ["medivac"]),
    "10gen_protoss": (["stalker", "zealot", "colossus"], [0.45, 0.45, 0.1], []),
    "10gen_zerg": (["zergling", "baneling", "hydralisk"], [0.45, 0.1, 0.45], ["baneling"]),
}
"""SMACv2's unit types, their weights, and those that cannot be a whole team."""


def make(task: str, game: str = "smac", n_units: int | None = None, n_enemies: int | None = None) -> Battle:
    """A battle on the map `task`. SMACv2's: 10 units, as many enemies, unless told."""
    if game not in PROJECTS:
        raise ValueError(f"game must be smac or smacv2, not {game!r}")
    if game == "smac" and (n_units, n_enemies) != (None, None):
        raise ValueError(f"SMAC's map {task!r} has its own teams; n_units and n_enemies belong to game=smacv2")
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
    """What the game needs, whether this interpreter has it, and what to do if not. It runs with nothing installed."""
    needs = [_package("smac"), _package("smacv2"), _protobuf(), _folder(), _build(exactly=True)]
    needs += [_map("MMM2", "smac"), _map("32x32_flat", "smacv2")]
    return [(need.what, not need.wrong, f"{need.wrong}; {need.fix}" if need.wrong else "") for need in needs]


class Battle:
    """One game of StarCraft II, which the first `reset` starts."""

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
        """A team of healers alone has lost too. Where both teams are gone nobody has won, and the battle is over."""
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
    places = {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32}
    return {"n_units": n_units, "n_enemies": n_enemies, "team_gen": team, "start_positions": places}


def _seed_draws(env: Any, seed: int) -> None:
    """Seeds what SMACv2 draws: its distributions make generators without a seed and shuffle with the global one."""
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
    """Counts every enemy of the first battle once, as the benchmark means to, and that battle as played."""
    worth = [env.reward_death_value + unit.health_max + unit.shield_max for unit in env.enemies.values()]
    env.max_reward = env.reward_win + sum(worth)
    env._episode_count = 1  # in SMACv2 seen to decide only launching, scale and unit types


class Need(NamedTuple):
    """Something that must be there: `wrong` says what is not as it should be, and is empty where it is."""

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
    places = list(found.submodule_search_locations or []) if found else []
    wrong = ""
    if not found:
        wrong = f"the package {game} is not installed in {sys.executable}"
    elif not any((Path(place) / "env" / "starcraft2").is_dir() for place in places):
        wrong = f"the package {game} in {sys.executable} is another program of that name"
    another = " (`pip install smac` gives another program, an optimiser)" if game == "smac" else ""
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
    fix = f"in an interpreter of its own, since JAX's packages want a newer one, type: {_pip()}"
    return Need("protobuf below 3.21", wrong, fix, ValueError)


def _folder() -> Need:
    given, folder = os.environ.get("SC2PATH"), _game_folder()
    wrong = ""
    if given is None and not folder.is_dir():
        wrong = f"SC2PATH is not set and there is no {folder}"
    elif given is not None and not (given and folder.is_dir()):
        wrong = f"SC2PATH is {given!r}, which is no folder"
    fix = (
        "unpack the Linux package 4.10 that the GitHub project Blizzard/s2client-proto offers and type: "
        "export SC2PATH=/the/folder/StarCraftII"
    )
    return Need("SC2PATH", wrong, fix, FileNotFoundError)


def _build(exactly: bool = False) -> Need:
    """pysc2 starts the newest version that it finds. Other versions run, but battles go otherwise in them."""
    versions = _game_folder() / "Versions"
    builds = sorted((path.name for path in versions.glob("Base*")), key=lambda name: (len(name), name))
    wrong = "" if builds else f"{versions} has no version of the game"
    if builds and exactly and builds[-1] != BUILD:
        wrong = f"the newest version in {versions} is {builds[-1]}, whose battles do not compare with those of 4.10"
    fix = f"unpack the Linux package 4.10 again, so that {versions / BUILD} is there and nothing newer"
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
    """The name of the task's map file: SMACv2's tasks share one."""
    registry = _import(f"{game}.env.starcraft2.maps.smac_maps").get_smac_map_registry()
    known = sorted(TEAMS if game == "smacv2" else registry)
    if task not in known:
        close = difflib.get_close_matches(task, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
        raise ValueError(f"{game} has no map {task!r}; {hint}")
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
    """In this interpreter; where JAX lives, which would lose its protobuf, in one that is made first."""
    python, first = sys.executable, ""
    if importlib.util.find_spec("jax"):
        python, names = ".venv-smac/bin/python", ("GRASP_SMAC_PYTHON", "GRASP_SMACV2_PYTHON")
        first = f"python3.9 -m venv .venv-smac && export {' '.join(f'{name}=$PWD/{python}' for name in names)} && "
    return " ".join([f"{first}{python} -m pip install", *packages, "'protobuf<3.21'"])

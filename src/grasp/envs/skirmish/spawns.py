"""The teams of a battle and their start positions."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from grasp.envs.skirmish.maps import RACES, Map
from grasp.envs.skirmish.unit_stats import NAMES, SC2, Profile, Unit, table
from grasp.types import Key

SIZE = 32.0
MIDDLE = SIZE / 2
SPAWN = ((9.0, 16.0), (23.0, 16.0))
"""The centres of the two formations on SMAC's maps: allies, enemies."""
GAP = 0.05
"""The gap between neighbours in a formation."""
SURROUNDED = 0.5
"""The probability that a battle of SMACv2 starts with the allies surrounded in the middle."""


def kinds(names: tuple[str, ...]) -> Int[np.ndarray, " K"]:
    return np.array([NAMES.index(name) for name in names], np.int32)


def formation(names: tuple[str, ...], spawn: tuple[float, float], side: int) -> Float[np.ndarray, "K 2"]:
    """Positions of a square formation around a point, row by row from the lower left; the enemy's is turned by 180°.
    Healers come first, which is at the back. Rows that stay empty still count as gaps."""
    order = sorted(range(len(names)), key=lambda k: not SC2[names[k]].heals)
    names = tuple(names[k] for k in order)
    radii = [float(table("sc2").radius[side][kind]) for kind in kinds(names)]
    columns = int(np.ceil(np.sqrt(len(names))))
    rows = [radii[k : k + columns] for k in range(0, len(names), columns)]
    width = max(sum(2 * r for r in line) for line in rows)
    height = sum(2 * max(line) for line in rows) + GAP * (columns - 1)
    offsets, y = [], -height / 2
    for line in rows:
        x = -width / 2
        for radius in line:
            offsets.append((x + radius, y + max(line)))
            x += 2 * radius + GAP
        y += 2 * max(line) + GAP
    sign = 1.0 if side == 0 else -1.0
    positions = np.array(spawn, np.float32) + sign * np.array(offsets, np.float32)
    return positions[np.argsort(order)]


def fixed(battlefield: Map) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, "N 2"]]:
    """Types and positions on a map of SMAC, with allies in the benchmark's order of agents."""
    teams = (battlefield.allies, battlefield.enemies)
    types = [kinds(team) for team in teams]
    places = [formation(team, SPAWN[side], side) for side, team in enumerate(teams)]
    order = np.lexsort((places[0][:, 1], places[0][:, 0], types[0]))
    return np.concatenate([types[0][order], types[1]]), np.concatenate([places[0][order], places[1]])


def generated(battlefield: Map, key: Key) -> tuple[Int[Array, " N"], Float[Array, "N 2"]]:
    """Random types and positions of a battle of SMACv2."""
    team_key, place_key = jax.random.split(key)
    num_allies, num_enemies = len(battlefield.allies), len(battlefield.enemies)
    types = teams(battlefield, team_key)
    choice_key, reflect_key, surround_key = jax.random.split(place_key, 3)
    is_surrounded = jax.random.uniform(choice_key) > 1 - SURROUNDED
    positions = jnp.where(
        is_surrounded,
        surrounded(types, num_allies, num_enemies, surround_key),
        reflected(num_allies, num_enemies, reflect_key),
    )
    return types, positions


def ranks(types: Int[Array, " N"], x: Float[Array, " N"], y: Float[Array, " N"], num_allies: int) -> Int[Array, " N"]:
    """The benchmark's order of units: allies sorted by type, x and y; enemies unchanged."""
    allies = slice(num_allies)
    return jnp.concatenate([jnp.lexsort((y[allies], x[allies], types[allies])), jnp.arange(num_allies, types.shape[0])])


def teams(battlefield: Map, key: Key) -> Int[Array, " N"]:
    """Random types. The enemy has the allies' types, and additional ones of the same race where its team is larger."""
    ally_key, extra_key = jax.random.split(key)
    num_allies, num_enemies = len(battlefield.allies), len(battlefield.enemies)
    allies = team(battlefield.race, num_allies, ally_key)
    parts = [allies, allies[:num_enemies]]
    if num_enemies > num_allies:
        parts.append(team(battlefield.race, num_enemies - num_allies, extra_key))
    return jnp.concatenate(parts)


def team(name: str, number: int, key: Key) -> Int[Array, " K"]:
    """Independent draws of types, repeated while all are of types that cannot be a whole team."""
    race = RACES[name]
    types, weights = jnp.array(kinds(race.types)), jnp.log(jnp.array(race.weights))
    alone = jnp.array([name in race.alone for name in race.types])

    def draw_again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        key = jax.random.split(carry[0])
        return key[0], jax.random.categorical(key[1], weights, shape=(number,))

    def is_rejected(carry: tuple[Array, Array]) -> Array:
        return alone[carry[1]].all()

    return types[jax.lax.while_loop(is_rejected, draw_again, draw_again((key, jnp.zeros(number, jnp.int32))))[1]]


def reflected(num_allies: int, num_enemies: int, key: Key) -> Float[Array, "N 2"]:
    """Positions with allies uniform on the left and enemies at their mirror images."""
    ally_key, extra_key = jax.random.split(key)
    allies = jax.random.uniform(ally_key, (num_allies, 2)) * jnp.array([[MIDDLE - 1, SIZE]])
    mirrored = jnp.stack([SIZE - allies[:, 0], allies[:, 1]], -1)
    extra = jax.random.uniform(extra_key, (num_enemies, 2)) * jnp.array([[MIDDLE, SIZE]]) + jnp.array([[MIDDLE, 0.0]])
    enemies = jnp.concatenate([mirrored, extra])[:num_enemies]
    return jnp.concatenate([allies, enemies])


def surrounded(types: Int[Array, " N"], num_allies: int, num_enemies: int, key: Key) -> Float[Array, "N 2"]:
    """Positions with allies in the middle and enemies in up to four groups, each on a diagonal of its own. Whole groups
    are kept on the map, because clipping single units would put them at the same position."""
    number_key, group_key, way_key, far_key = jax.random.split(key, 4)
    num_groups = jax.random.randint(number_key, (), 1, 5)
    group = jnp.sort(jax.random.randint(group_key, (num_enemies,), 0, num_groups))  # members fill the groups in order
    corner = jnp.array([[0.0, 0.0], [0.0, SIZE], [SIZE, SIZE], [SIZE, 0.0]])[jax.random.permutation(way_key, 4)]
    inner = MIDDLE + jnp.where(corner > 0, 2.0, -2.0)
    fraction = jax.random.uniform(far_key, (4, 1))
    centre = (fraction * inner + (1 - fraction) * corner)[group]
    rank = jnp.arange(num_enemies) - jnp.searchsorted(group, group)
    separation = jnp.array(table("sc2").separation[0])[types]
    allies = jnp.full((num_allies, 2), MIDDLE) + 2 * separation[:num_allies].max() * spiral(num_allies)
    together = group[:, None] == group[None]
    widest = jnp.where(together, separation[None, num_allies:], 0.0).max(1, keepdims=True)
    offset = 2 * widest * jnp.array(spiral(num_enemies))[rank]
    extent = jnp.where(together, jnp.abs(offset).max(1)[None], 0.0).max(1, keepdims=True) + table("sc2").inner.max()
    return jnp.concatenate([allies, jnp.clip(centre, extent, SIZE - extent) + offset])


def spiral(number: int) -> Float[np.ndarray, "K 2"]:
    """The first points of a hexagonal lattice, from its centre outwards."""
    reach = int(np.ceil(np.sqrt(number))) + 1
    grid = np.array(
        [(a + b / 2, b * np.sqrt(3) / 2) for a in range(-reach, reach + 1) for b in range(-reach, reach + 1)]
    )
    order = np.lexsort((np.arctan2(grid[:, 1], grid[:, 0]), np.round(np.hypot(*grid.T), 6)))
    return grid[order[:number]].astype(np.float32)


def stats(profile: Profile, types: Int[Array | np.ndarray, " N"], num_allies: int) -> Unit:
    """The stats of all units, by type and side."""
    side = (np.arange(types.shape[0]) >= num_allies).astype(np.int32)
    return Unit(*(jnp.asarray(column)[side, types] for column in table(profile)))

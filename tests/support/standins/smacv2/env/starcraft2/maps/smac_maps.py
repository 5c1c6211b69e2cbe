def entry(race, map_type):
    sizes = {"n_agents": 10, "n_enemies": 10, "limit": 200, "a_race": race, "b_race": race}
    return {**sizes, "unit_type_bits": 3, "map_type": map_type, "map_name": "32x32_flat"}


map_param_registry = {
    "10gen_terran": entry("T", "terran_gen"),
    "10gen_zerg": entry("Z", "zerg_gen"),
    "10gen_protoss": entry("P", "protoss_gen"),
    "3m": {**entry("T", "marines"), "n_agents": 3, "n_enemies": 3, "limit": 60, "unit_type_bits": 0, "map_name": "3m"},
}


def get_smac_map_registry():
    return map_param_registry

def entry(n_agents, n_enemies, limit, race, unit_type_bits, map_type):
    sizes = {"n_agents": n_agents, "n_enemies": n_enemies, "limit": limit, "a_race": race, "b_race": race}
    return {**sizes, "unit_type_bits": unit_type_bits, "map_type": map_type}


map_param_registry = {
    "3m": entry(3, 3, 60, "T", 0, "marines"),
    "5m_vs_6m": entry(5, 6, 70, "T", 0, "marines"),
    "2s3z": entry(5, 5, 120, "P", 2, "stalkers_and_zealots"),
    "MMM2": entry(10, 12, 180, "T", 3, "MMM"),
}


def get_smac_map_registry():
    return map_param_registry

from standin_battle import Battle

from smac.env.starcraft2.maps import get_map_params

TEAMS = {
    "3m": (["marine"] * 3, ["marine"] * 3),
    "5m_vs_6m": (["marine"] * 5, ["marine"] * 6),
    "2s3z": (["stalker"] * 2 + ["zealot"] * 3, ["stalker"] * 2 + ["zealot"] * 3),
    "MMM2": (
        ["marauder"] * 2 + ["marine"] * 7 + ["medivac"],
        ["marine"] * 8 + ["marauder"] * 3 + ["medivac"],
    ),
}


class StarCraft2Env(Battle):
    def __init__(
        self,
        map_name="8m",
        step_mul=8,
        move_amount=2,
        difficulty="7",
        game_version=None,
        seed=None,
        continuing_episode=False,
        obs_all_health=True,
        obs_own_health=True,
        obs_last_action=False,
        obs_pathing_grid=False,
        obs_terrain_height=False,
        obs_instead_of_state=False,
        obs_timestep_number=False,
        state_last_action=True,
        state_timestep_number=False,
        reward_sparse=False,
        reward_only_positive=True,
        reward_death_value=10,
        reward_win=200,
        reward_defeat=0,
        reward_negative_scale=0.5,
        reward_scale=True,
        reward_scale_rate=20,
        replay_dir="",
        replay_prefix="",
        window_size_x=1920,
        window_size_y=1200,
        heuristic_ai=False,
        heuristic_rest=False,
        debug=False,
    ):
        given, params = dict(locals()), get_map_params(map_name)
        super().__init__(given, params, params["n_agents"], params["n_enemies"], 6 + params["n_enemies"])

    def reset(self):
        return self.reset_with(*TEAMS[self.map_name])

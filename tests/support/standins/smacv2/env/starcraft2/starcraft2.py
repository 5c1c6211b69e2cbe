import random

from standin_battle import Battle, CannotResetException

from smacv2.env.starcraft2.maps import get_map_params

__all__ = ["CannotResetException", "StarCraft2Env"]


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
        obs_own_pos=False,
        obs_starcraft=True,
        conic_fov=False,
        num_fov_actions=12,
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
        use_unit_ranges=False,
        min_attack_range=2,
        kill_unit_step_mul=2,
        fully_observable=False,
        capability_config={},  # noqa: B006 (as in the real class)
        replay_dir="",
        replay_prefix="",
        window_size_x=1920,
        window_size_y=1200,
        heuristic_ai=False,
        heuristic_rest=False,
        debug=False,
        prob_obs_enemy=1.0,
        action_mask=True,
    ):
        given, params = dict(locals()), get_map_params(map_name)
        self.capability_config, self.use_unit_ranges, self.conic_fov = capability_config, use_unit_ranges, conic_fov
        n_agents, n_enemies = capability_config["team_gen"]["n_units"], capability_config["team_gen"]["n_enemies"]
        targets = max(n_agents, n_enemies) if params["map_type"] == "terran_gen" else n_enemies
        super().__init__(given, params, n_agents, n_enemies, 6 + targets)

    def reset(self, episode_config={}):  # noqa: B006 (as in the real class)
        teams = episode_config["team_gen"]
        places = episode_config["ally_start_positions"]["item"]
        return self.reset_with(teams["ally_team"], teams["enemy_team"], places, patient=False)

    def get_obs(self):
        order = list(range(self.n_agents))
        random.shuffle(order)
        found = {agent: self.get_obs_agent(agent) for agent in order}
        return [found[agent] for agent in range(self.n_agents)]

"""Mistakes that tests must notice, for `scripts/mutants.py`: one small change of a file each."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """A mistake, and tests of which one must fail by an assertion."""

    file: str
    """Within src/grasp."""
    right: str
    """Part of the file, which occurs in it once."""
    wrong: str
    tests: tuple[str, ...]
    """Within tests, as pytest names them: few and fast."""


RETURNS = (
    Mutant(
        "algos/returns.py",
        "jnp.where(terminated, 0.0, next_value) - value",
        "jnp.where(terminated | truncated, 0.0, next_value) - value",
        ("algos/test_returns.py::test_a_truncated_step_keeps_its_future_and_a_terminated_one_has_none",),
    ),
    Mutant(
        "algos/returns.py",
        "(1.0 - (terminated | truncated))",
        "(1.0 - terminated)",
        ("algos/test_returns.py::test_gae_equals_the_explicit_sum[0]",),
    ),
    Mutant(
        "algos/returns.py",
        "carries_on = gamma * gae_lambda * (",
        "carries_on = gamma * (",
        ("algos/test_returns.py::test_gae_equals_the_explicit_sum[0]",),
    ),
    Mutant(
        "algos/returns.py",
        "delta_t + carries_on_t * advantage_next",
        "delta_t - carries_on_t * advantage_next",
        ("algos/test_returns.py::test_gae_equals_the_explicit_sum[0]",),
    ),
    Mutant(
        "algos/returns.py",
        "last, inside = time == length[None] - 1,",
        "last, inside = time == length[None],",
        ("algos/test_returns.py::test_lambda_0_is_the_one_step_target",),
    ),
    Mutant(
        "algos/returns.py",
        "(1 - trace) * next_value + trace * target_next",
        "trace * next_value + (1 - trace) * target_next",
        ("algos/test_returns.py::test_lambda_0_is_the_one_step_target",),
    ),
    Mutant(
        "algos/returns.py",
        "last, jnp.where(terminated, 0.0, next_value), (1",
        "last, next_value, (1",
        ("algos/test_returns.py::test_lambda_0_is_the_one_step_target",),
    ),
    Mutant(
        "algos/returns.py",
        "jnp.where(inside, reward + gamma * following, 0.0)",
        "reward + gamma * following",
        ("algos/test_returns.py::test_td_lambda_is_the_weighted_sum_of_n_step_returns[0.6-1000000.0]",),
    ),
    Mutant(
        "algos/returns.py",
        "mean = (x * mask).sum() / count",
        "mean = x.mean()",
        ("algos/test_returns.py::test_masked_moments_count_only_what_the_mask_counts",),
    ),
)

VALUE_NORM = (
    Mutant(
        "algos/value_norm.py",
        "weight = jnp.maximum(norm.weight, DEBIAS_FLOOR)",
        "weight = jnp.ones(())",
        ("algos/test_value_norm.py::test_after_one_update_the_moments_are_the_batch_s",),
    ),
    Mutant(
        "algos/value_norm.py",
        "norm.square / weight - jnp.square(mean)",
        "norm.square / weight",
        ("algos/test_value_norm.py::test_after_one_update_the_moments_are_the_batch_s",),
    ),
    Mutant(
        "algos/value_norm.py",
        "values * spread + mean",
        "values * spread",
        ("algos/test_value_norm.py::test_denormalise_undoes_normalise",),
    ),
    Mutant(
        "algos/value_norm.py",
        "norm.mean + step * (returns.mean() - norm.mean)",
        "norm.mean + step * returns.mean()",
        ("algos/test_value_norm.py::test_older_batches_weigh_less_by_the_decay",),
    ),
)

LOSSES = (
    Mutant(
        "algos/losses.py",
        "jnp.where(avail, logits, ILLEGAL)",
        "logits",
        ("algos/test_losses.py::test_an_illegal_action_has_no_probability_and_no_gradient",),
    ),
    Mutant(
        "algos/losses.py",
        "jnp.minimum(ratio * advantage,",
        "jnp.maximum(ratio * advantage,",
        ("algos/test_losses.py::test_the_surrogate_is_clipped_only_where_that_lowers_it",),
    ),
    Mutant(
        "algos/losses.py",
        "return -(jnp.exp(log_probs) * log_probs)",
        "return (jnp.exp(log_probs) * log_probs)",
        ("algos/test_losses.py::test_entropy_of_the_uniform_distribution",),
    ),
    Mutant(
        "algos/losses.py",
        "return jnp.maximum(huber(value - target",
        "return jnp.minimum(huber(value - target",
        ("algos/test_losses.py::test_the_value_loss_takes_the_worse_of_plain_and_clipped",),
    ),
    Mutant(
        "algos/losses.py",
        "clipped = value_old + jnp.clip(value - value_old,",
        "clipped = target + jnp.clip(value - target,",
        ("algos/test_losses.py::test_the_value_loss_takes_the_worse_of_plain_and_clipped",),
    ),
    Mutant(
        "algos/losses.py",
        "delta * (size - 0.5 * delta)",
        "delta * (size - delta)",
        ("algos/test_losses.py::test_huber_is_linear_beyond_delta",),
    ),
)

MINIBATCHES = (
    Mutant(
        "algos/minibatches.py",
        "chunks = x.reshape(num_steps // length, length, num_envs, *rest)\n"
        "    return jax.lax.collapse(jnp.moveaxis(chunks, 1, 0), 1, 3)",
        "chunks = x.reshape(length, num_steps // length, num_envs, *rest)\n    return jax.lax.collapse(chunks, 1, 3)",
        ("algos/test_minibatches.py::test_a_chunk_is_contiguous_and_of_one_environment",),
    ),
    Mutant(
        "algos/minibatches.py",
        "lambda m: m[:-1], trajectory.memory",
        "lambda m: m[1:], trajectory.memory",
        ("algos/test_minibatches.py::test_a_chunk_starts_from_the_memory_its_first_step_found",),
    ),
    Mutant(
        "algos/minibatches.py",
        "obs=seen.obs * alive[..., None],",
        "obs=seen.obs,",
        ("algos/test_minibatches.py::test_a_dead_agent_sees_zeros",),
    ),
    Mutant(
        "algos/minibatches.py",
        "returns.masked_moments(advantage, weight)",
        "returns.masked_moments(advantage, jnp.ones_like(weight))",
        ("algos/test_minibatches.py::test_advantages_are_normalised_over_live_steps_only",),
    ),
    Mutant(
        "algos/minibatches.py",
        "jax.lax.dynamic_slice_in_dim(x, agent, 1, axis % x.ndim)",
        "jax.lax.dynamic_slice_in_dim(x, 0, 1, axis % x.ndim)",
        ("algos/test_minibatches.py::test_one_agent_s_part_keeps_the_agent_axis_and_the_team_s_columns",),
    ),
    Mutant(
        "algos/minibatches.py",
        ".reshape(pieces, -1)  # in the order of `cut`",
        ".reshape(-1, pieces).T",
        ("algos/test_ablations.py::test_folds_part_the_environments_and_their_mean_is_the_gradient",),
    ),
)

PPO = (
    Mutant(
        "algos/ppo.py",
        "seen = inputs.of_agents(hyper, observation.obs, memory.last_action) * observation.alive[..., None]",
        "seen = inputs.of_agents(hyper, observation.obs, memory.last_action)",
        ("algos/test_mappo.py::test_a_dead_agent_with_several_legal_actions_acts_on_zeros",),
    ),
    Mutant(
        "algos/ppo.py",
        "losses.greedy_or(greedy, jnp.argmax(log_probs, -1), jax.random.categorical(key, log_probs))",
        "jax.random.categorical(key, log_probs)",
        ("algos/test_mappo.py::test_greedy_actions_are_the_most_probable_legal_ones_and_others_are_drawn",),
    ),
    Mutant(
        "algos/ppo.py",
        "losses.greedy_or(greedy, jnp.argmax(log_probs, -1), jax.random.categorical(key, log_probs))",
        "jnp.argmax(log_probs, -1)",
        ("algos/test_mappo.py::test_greedy_actions_are_the_most_probable_legal_ones_and_others_are_drawn",),
    ),
    Mutant(
        "algos/ppo.py",
        "trajectory.memory.critic[1:], after)",
        "trajectory.memory.critic[:-1], after)",
        ("algos/test_mappo.py::test_the_recurrent_critic_bootstraps_from_its_memory_after_the_step",),
    ),
    Mutant(
        "algos/ppo.py",
        "return advantage, advantage + value",
        "return advantage, advantage",
        ("algos/test_mappo.py::test_the_recurrent_critic_bootstraps_from_its_memory_after_the_step",),
    ),
    Mutant(
        "algos/ppo.py",
        "if hyper.minibatches > 1:\n        order",
        "if hyper.minibatches > 100:\n        order",
        ("algos/test_mappo.py::test_every_epoch_shuffles_all_chunks_anew",),
    ),
    Mutant(
        "algos/ppo.py",
        "axis=1, independent=True)",
        "axis=1, independent=False)",
        ("algos/test_mappo.py::test_every_epoch_shuffles_all_chunks_anew",),
    ),
    Mutant(
        "algos/ppo.py",
        "value_norm_update(state.value_norm, tiles.steps.target)",
        "value_norm_update(state.value_norm, tiles.steps.value)",
        ("algos/test_mappo.py::test_value_norm_follows_the_targets_and_not_the_values",),
    ),
    Mutant(
        "algos/ppo.py",
        "ratio = jnp.exp(log_ratio)\n    each = steps.alive * weight[None, None]",
        "ratio = jnp.exp(log_ratio)\n    each = jnp.ones_like(steps.alive) * weight[None, None]",
        ("algos/test_mappo.py::test_the_steps_of_a_dead_agent_with_several_legal_actions_do_not_count[surrogate]",),
    ),
    Mutant(
        "algos/ppo.py",
        'entropy, summed over agents."""\n    each = steps.alive * weight[None, None]',
        'entropy, summed over agents."""\n    each = jnp.ones_like(steps.alive) * weight[None, None]',
        ("algos/test_mappo.py::test_the_steps_of_a_dead_agent_with_several_legal_actions_do_not_count[entropy]",),
    ),
    Mutant(
        "algos/ppo.py",
        "surrogate + hyper.entropy * entropy, moved",
        "surrogate - hyper.entropy * entropy, moved",
        ("algos/test_mappo.py::test_mappo_is_ppo",),
    ),
    Mutant(
        "algos/ppo.py",
        "target = normalise.normalise(norm, steps.target) if hyper.value_norm else steps.target",
        "target = steps.target",
        ("algos/test_mappo.py::test_mappo_is_ppo",),
    ),
    Mutant(
        "algos/ppo.py",
        "steps = alive.sum(range(alive.ndim - 1))",
        "steps = jnp.ones_like(alive).sum(range(alive.ndim - 1))",
        (
            "algos/test_mappo.py::test_at_theta_old_the_surrogates_head_gradient_is_the_policy_gradient[probe/mask_death]",
        ),
    ),
    Mutant(
        "algos/ppo.py",
        "steps = jnp.full_like(steps, steps.mean())",
        "steps = jnp.full_like(steps, steps.max())",
        ("algos/test_mappo.py::test_the_common_denominator_is_the_pooled_mean",),
    ),
    Mutant(
        "algos/ppo.py",
        "lambda g: g / num_agents, part",
        "lambda g: g, part",
        ("algos/test_mappo.py::test_per_agent_gradients_average_to_the_shared_gradient[shared]",),
    ),
    Mutant(
        "algos/ppo.py",
        "round(iterations * hyper.epochs * hyper.minibatches)",
        "round(iterations * hyper.epochs)",
        (
            "algos/test_optimiser.py::test_with_decay_the_learning_rate_anneals_linearly_to_0_over_that_many_environment_steps[2]",
        ),
    ),
    Mutant(
        "algos/optimiser.py",
        "optax.linear_schedule(lr, 0.0, decay_steps)",
        "optax.linear_schedule(lr, lr, decay_steps)",
        (
            "algos/test_optimiser.py::test_with_decay_the_learning_rate_anneals_linearly_to_0_over_that_many_environment_steps[2]",
        ),
    ),
    Mutant(
        "algos/optimiser.py",
        "jax.tree.map(jnp.negative, gradient)",
        "gradient",
        ("algos/test_optimiser.py::test_the_gradient_is_clipped_by_its_norm_not_by_its_entries",),
    ),
    Mutant(
        "algos/optimiser.py",
        "optax.clip_by_global_norm(max_grad_norm)",
        "optax.clip(max_grad_norm)",
        ("algos/test_optimiser.py::test_the_gradient_is_clipped_by_its_norm_not_by_its_entries",),
    ),
    Mutant(
        "algos/optimiser.py",
        "usable = jnp.isfinite(norm)",
        "usable = jnp.array(True)",
        ("algos/test_mappo.py::test_a_gradient_that_is_not_finite_changes_no_parameter_and_is_counted",),
    ),
    Mutant(
        "algos/optimiser.py",
        "before, is_leaf=is_counter)",
        "before)",
        ("algos/test_optimiser.py::test_a_skipped_step_is_counted_by_the_schedule",),
    ),
    Mutant(
        "algos/mappo.py",
        "consensus.u, hyper.weight)  # Alg. 1 l. 25",
        "consensus.u, 1.0)",
        ("algos/test_mappo.py::test_the_head_moves_by_g_i_plus_beta_u[1]",),
    ),
)

HAPPO = (
    Mutant(
        "algos/happo.py",
        "order = jax.random.permutation(order_key, num_agents)",
        "order = jnp.arange(num_agents)",
        ("algos/test_happo.py::test_the_order_is_drawn_anew_and_every_agent_gets_its_turn",),
    ),
    Mutant(
        "algos/happo.py",
        "compound * ratio(hyper, after[0], trajectory, seen, agent)",
        "ratio(hyper, after[0], trajectory, seen, agent)",
        ("algos/test_happo.py::test_an_iteration_is_the_paper_s_sequence[mpe/simple_spread-1]",),
    ),
    Mutant(
        "algos/happo.py",
        "compound * ratio(hyper, after[0], trajectory, seen, agent)",
        "compound * ratio(hyper, actor, trajectory, seen, agent)",
        ("algos/test_happo.py::test_an_iteration_is_the_paper_s_sequence[mpe/simple_spread-1]",),
    ),
    Mutant(
        "algos/happo.py",
        "mine.steps.advantage * compound[..., None]",
        "mine.steps.advantage",
        ("algos/test_happo.py::test_an_iteration_is_the_paper_s_sequence[mpe/simple_spread-1]",),
    ),
    Mutant(
        "algos/happo.py",
        "lax.dynamic_update_slice_in_dim(all_, one, agent, 0)",
        "lax.dynamic_update_slice_in_dim(all_, one, 0, 0)",
        ("algos/test_happo.py::test_the_order_is_drawn_anew_and_every_agent_gets_its_turn",),
    ),
    Mutant(
        "algos/happo.py",
        "jnp.exp(log_prob - mine(trajectory.record.log_prob, 2))",
        "jnp.exp(mine(trajectory.record.log_prob, 2) - log_prob)",
        ("algos/test_happo.py::test_the_compound_ratio_is_the_joint_ratio_of_new_to_old[mpe/simple_spread]",),
    ),
    Mutant(
        "algos/happo.py",
        "jnp.where(alive, jnp.exp(log_prob - mine(trajectory.record.log_prob, 2)), 1.0)[..., 0]",
        "jnp.exp(log_prob - mine(trajectory.record.log_prob, 2))[..., 0]",
        ("algos/test_happo.py::test_a_dead_agent_s_ratio_is_1",),
    ),
    Mutant(
        "algos/happo.py",
        "mine(trajectory.memory.actor[0], 1)",
        "mine(trajectory.memory.actor[1], 1)",
        ("algos/test_happo.py::test_a_ratio_starts_from_the_memory_with_which_the_rollout_began",),
    ),
    Mutant(
        "algos/happo.py",
        "lived = (mine.steps.alive > 0).any()",
        "lived = jnp.array(True)",
        ("algos/test_happo.py::test_an_agent_that_never_lived_stays_as_it_is_and_so_does_its_optimiser",),
    ),
)

GRASP = (
    Mutant(
        "algos/grasp.py",
        "lambda v: v.sum(0), moved[name]",
        "lambda v: v.mean(0), moved[name]",
        (
            "algos/test_qmix.py::"
            "test_the_rule_is_gamma_times_g_plus_u_and_the_sum_where_parameters_are_shared[shared-heads]",
        ),
    ),
    Mutant(
        "algos/grasp.py",
        "lambda _: factors.mean(), part",
        "lambda _: factors.sum(), part",
        ("algos/test_qmix.py::test_gamma_on_update_gives_parameters_that_all_share_the_mean_factor",),
    ),
    Mutant(
        "algos/grasp.py",
        "clip=not is_min_norm,",
        "clip=False,",
        ("algos/test_qmix.py::test_factors_of_other_operators_are_clipped_to_0_and_1_and_counted",),
    ),
    Mutant(
        "algos/grasp.py",
        "group = jax.tree.map(lambda g: g.mean(0), group)",
        "group = jax.tree.map(lambda g: g[0], group)",
        ("algos/test_ablations.py::test_the_metrics_of_a_crossfitted_consensus_are_of_the_u_that_is_added",),
    ),
    Mutant(
        "algos/controls.py",
        "jnp.roll(weights, shift)",
        "weights",
        ("algos/test_controls.py::test_permuted_gives_every_gradient_the_weight_of_another",),
    ),
    Mutant(
        "algos/ablations.py",
        "(index > 0) & (index % period == 0)",
        "(index > 0) & (index % period == 1)",
        ("algos/test_mappo.py::test_the_consensus_is_computed_anew_when_refresh_says",),
    ),
    Mutant(
        "algos/ablations.py",
        'jnp.where(index > 0, 0.0, hyper.weight) if hyper.refresh == "first"',
        'jnp.where(index > 1, 0.0, hyper.weight) if hyper.refresh == "first"',
        ("algos/test_mappo.py::test_a_held_consensus_is_added_at_every_step_or_at_the_first_only[first-1]",),
    ),
    Mutant(
        "algos/trust_region.py",
        "spread = p * (change - (p * change).sum(-1, keepdims=True))",
        "spread = p * change",
        ("algos/test_trust_region.py::test_the_curvature_is_that_of_the_divergence",),
    ),
    Mutant(
        "consensus/transforms.py",
        "g + beta * shared[None]",
        "g - beta * shared[None]",
        ("consensus/test_transforms.py::test_adds_weight_times_u_to_every_agent",),
    ),
    Mutant(
        "consensus/transforms.py",
        "(squared + inner) / jnp.where(total > 0, total, 1)",
        "(squared - inner) / jnp.where(total > 0, total, 1)",
        ("consensus/test_transforms.py::test_off_policy_factors_by_hand",),
    ),
    Mutant(
        "consensus/transforms.py",
        "total = own + squared",
        "total = own",
        ("consensus/test_transforms.py::test_off_policy_factors_by_hand",),
    ),
    Mutant(
        "consensus/transforms.py",
        "next_key, draw_key = jax.random.split(state.key)",
        "next_key = draw_key = state.key",
        ("consensus/test_transforms.py::test_the_key_changes_from_call_to_call",),
    ),
    Mutant(
        "consensus/transforms.py",
        "(1 - signal) * g + signal * v",
        "signal * g + (1 - signal) * v",
        ("algos/test_ablations.py::test_the_off_policy_rule_has_the_share_of_the_update_that_is_signal[gradient]",),
    ),
)

CONSENSUS = (
    Mutant(
        "consensus/min_norm.py",
        "zero.astype(G.dtype), x * b)",
        "zero.astype(G.dtype), x)",
        ("consensus/test_operators.py::test_values_by_hand[min_norm]",),
    ),
    Mutant(
        "consensus/min_norm.py",
        "certified = violation <= strict(parts.dtype)",
        "certified = violation >= 0",
        ("consensus/test_min_norm.py::test_residual_measures_the_violation",),
    ),
    Mutant(
        "consensus/min_norm.py",
        "jnp.maximum(jnp.max(jnp.where(counted, gap, 0)), 0)",
        "jnp.maximum(jnp.min(jnp.where(counted, gap, 0)), 0)",
        ("consensus/test_min_norm.py::test_residual_measures_the_violation",),
    ),
    Mutant(
        "consensus/min_norm.py",
        "stationary = length**2 <= slack",
        "stationary = length**2 < 0 * slack",
        ("consensus/test_min_norm.py::test_the_status_says_whether_weights_are_certified_and_if_not_why",),
    ),
    Mutant(
        "consensus/min_norm.py",
        "jnp.where(psd, status, Status.NOT_PSD)",
        "status",
        ("consensus/test_min_norm.py::test_the_status_says_whether_weights_are_certified_and_if_not_why",),
    ),
    Mutant(
        "consensus/nonnegative_qp.py",
        "wrong = jnp.where(s.support, x < 0, z < -slack)",
        "wrong = jnp.where(s.support, x < 0, z > slack)",
        ("consensus/test_min_norm.py::test_in_float32_u_is_the_shortest_vector_up_to_rounding[shared-27]",),
    ),
    Mutant(
        "consensus/nonnegative_qp.py",
        "(jnp.arange(num) == jnp.argmin(z))",
        "(jnp.arange(num) == jnp.argmax(z))",
        ("consensus/test_min_norm.py::test_wolfe_fallback_alone_reaches_the_optimum",),
    ),
    Mutant(
        "consensus/nonnegative_qp.py",
        "return jnp.all(x >= 0) & (error <= program.ridge * (jnp.max(x) + jnp.max(jnp.abs(program.b))))",
        "return jnp.isfinite(error)",
        ("consensus/test_min_norm.py::test_few_factorisations_where_gradients_are_dependent",),
    ),
    Mutant(
        "consensus/gram.py",
        "for row in _rows(grads)]  # Alg. 2 l. 4–6",
        "for row in _rows(grads)[:1]]",
        ("consensus/test_gram.py::test_gram_sums_over_leaves",),
    ),
    Mutant(
        "consensus/gram.py",
        "pairs = jnp.triu(jnp.ones((num, num), bool), 1)",
        "pairs = jnp.triu(jnp.ones((num, num), bool), 0)",
        ("consensus/test_gram.py::test_diagnose_by_hand",),
    ),
    Mutant(
        "consensus/operators.py",
        "hit = (j != i) & (dot < 0) & (G[j, j] > 0)",
        "hit = (j != i) & (dot > 0) & (G[j, j] > 0)",
        ("consensus/test_operators.py::test_values_by_hand_in_conflict[pcgrad]",),
    ),
    Mutant(
        "consensus/operators.py",
        "t = jnp.argmin(Gw)",
        "t = jnp.argmax(Gw)",
        ("consensus/test_operators.py::test_values_by_hand[frank_wolfe]",),
    ),
    Mutant(
        "consensus/operators.py",
        "smallest = jnp.min(jnp.where(kept, values, jnp.inf))",
        "smallest = jnp.max(values)",
        ("consensus/test_operators.py::test_values_by_hand[aligned_mtl]",),
    ),
    Mutant(
        "consensus/operators.py",
        "return preference + jnp.where(zero, 0, s",
        "return jnp.where(zero, 0, s",
        ("consensus/test_operators.py::test_values_by_hand[dualproj]",),
    ),
    Mutant(
        "consensus/operators.py",
        "gradient = H @ beta - 1 / beta",
        "gradient = H @ beta - beta",
        ("consensus/test_operators.py::test_nash_equation",),
    ),
    Mutant(
        "consensus/operators.py",
        "kappa = c * jnp.sqrt(squared)",
        "kappa = c * squared",
        ("consensus/test_operators.py::test_cagrad_solves_its_problem",),
    ),
    Mutant(
        "consensus/crossfit.py",
        "others = [jnp.sum(row, axis=0, keepdims=True) - row for row in rows]",
        "others = [jnp.sum(row, axis=0, keepdims=True) - 0 * row for row in rows]",
        ("consensus/test_crossfit.py::test_the_estimate_equals_plain_loops_over_pairs_of_folds[0.02-3]",),
    ),
    Mutant(
        "consensus/crossfit.py",
        "jnp.var(without, axis=0) * (num_folds - 1)",
        "jnp.var(without, axis=0)",
        ("consensus/test_crossfit.py::test_the_estimate_equals_plain_loops_over_pairs_of_folds[0.02-3]",),
    ),
    Mutant(
        "consensus/crossfit.py",
        "clipped = vectors * jnp.sqrt(jnp.maximum(values, 0))[None, :]",
        "clipped = vectors * jnp.sqrt(jnp.abs(values))[None, :]",
        ("consensus/test_crossfit.py::test_the_estimate_equals_plain_loops_over_pairs_of_folds[2.0-5]",),
    ),
    Mutant(
        "consensus/crossfit.py",
        "leaf * (signal * scale)",
        "leaf * scale",
        ("consensus/test_crossfit.py::test_the_signal_fraction_of_one_agent[4]",),
    ),
)

QMIX = (
    Mutant(
        "algos/qmix.py",
        "1.0 - state.env_steps / hyper.decay",
        "1.0 - 0.5 * state.env_steps / hyper.decay",
        (
            "algos/test_qmix.py::test_with_decay_the_step_size_anneals_linearly_to_zero_over_that_many_environment_steps[gradient-250-0.75]",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        "left = jnp.maximum(0.0, 1.0 - state.env_steps / hyper.decay)",
        "left = 1.0 - state.env_steps / hyper.decay",
        (
            "algos/test_qmix.py::test_with_decay_the_step_size_anneals_linearly_to_zero_over_that_many_environment_steps[gradient-4000-0.0]",
        ),
    ),
    Mutant(
        "algos/exploration.py",
        "choice_key, random_key = jax.random.split(key)",
        "choice_key = random_key = key",
        ("algos/test_exploration.py::test_which_action_is_explored_does_not_depend_on_whether_one_explores",),
    ),
    Mutant(
        "algos/exploration.py",
        "jnp.where(explores, anything, action)",
        "jnp.where(explores, action, anything)",
        ("algos/test_exploration.py::test_each_agent_explores_by_itself_with_probability_epsilon[100-0.1]",),
    ),
    Mutant(
        "algos/exploration.py",
        "jax.random.uniform(choice_key, action.shape) < epsilon",
        "jax.random.uniform(choice_key, (*action.shape[:-1], 1)) < epsilon",
        ("algos/test_exploration.py::test_each_agent_explores_by_itself_with_probability_epsilon[50-0.55]",),
    ),
    Mutant(
        "algos/exploration.py",
        "jax.random.categorical(random_key, jnp.where(avail, 0.0, losses.ILLEGAL))",
        "jax.random.categorical(random_key, jnp.zeros_like(q))",
        ("algos/test_exploration.py::test_exploring_is_uniform_over_the_legal_actions_and_never_illegal",),
    ),
    Mutant(
        "algos/exploration.py",
        "jnp.argmax(jnp.where(avail, q, losses.ILLEGAL), -1)",
        "jnp.argmax(q, -1)",
        ("algos/test_exploration.py::test_greedy_play_takes_the_best_legal_action_whatever_epsilon_is",),
    ),
    Mutant(
        "algos/exploration.py",
        "(1.0 - hyper.epsilon) * env_steps / hyper.anneal",
        "env_steps / hyper.anneal",
        ("algos/test_exploration.py::test_epsilon_anneals_linearly_over_environment_steps_and_stays",),
    ),
    Mutant(
        "algos/qmix.py",
        "state.env_steps, key, greedy)",
        "state.env_steps, key, False)",
        ("algos/test_exploration.py::test_greedy_play_takes_the_best_legal_action_whatever_epsilon_is",),
    ),
    Mutant(
        "algos/qmix.py",
        "obs = observation.obs * observation.alive[..., None]",
        "obs = observation.obs",
        ("algos/test_qmix.py::test_acting_step_by_step_sees_the_values_that_learning_sees[hybrid]",),
    ),
    Mutant(
        "algos/qmix.py",
        "judged = values(target.agent, Actor(hyper.sharing, hyper.sharing), seen)",
        "judged = values(online.agent, sharing, seen)",
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        "next_team = mixers.mix(target.mixer,",
        "next_team = mixers.mix(online.mixer,",
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        "greedy = exploration.best(jax.lax.stop_gradient(q), batch.avail)",
        "greedy = exploration.best(values(target.agent, Actor(hyper.sharing, hyper.sharing), seen), batch.avail)",
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        "losses.chosen(judged, greedy), batch.state)[1:]",
        "losses.chosen(judged, greedy), batch.state)[:-1]",
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        'hyper.time_limit == "terminal"',
        'hyper.time_limit == "bootstrap"',
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        "jnp.concatenate([jnp.zeros_like(done[:1]), done])",
        "jnp.concatenate([done, jnp.zeros_like(done[:1])])",
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        "played = jnp.arange(team.shape[0])[:, None] < batch.length[None]",
        "played = jnp.arange(team.shape[0])[:, None] <= batch.length[None]",
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
    Mutant(
        "algos/inputs.py",
        "jnp.broadcast_to(jnp.eye(num_agents), (",
        "jnp.broadcast_to(jnp.eye(num_agents)[::-1], (",
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        "episodes.finished // hyper.interval - since // hyper.interval, 0)",
        "(episodes.finished - since) // hyper.interval, 0)",
        (
            "algos/test_qmix.py::"
            "test_one_gradient_step_for_every_interval_of_episodes_and_none_before_a_batch_is_stored",
        ),
    ),
    Mutant(
        "algos/qmix.py",
        "episodes, jax.random.fold_in(key, index), see)",
        "episodes, key, see)",
        ("algos/test_qmix.py::test_every_gradient_step_of_an_update_draws_by_itself",),
    ),
    Mutant(
        "algos/qmix.py",
        "episodes.finished - state.copied >= hyper.target_interval",
        "episodes.finished >= hyper.target_interval",
        ("algos/test_qmix.py::test_targets_are_copied_every_so_many_episodes_and_constant_in_between",),
    ),
    Mutant(
        "algos/qmix.py",
        "fraction = steps / jnp.maximum(steps.sum(), 1)",
        "fraction = jnp.ones_like(steps) / len(steps)",
        ("algos/test_ablations.py::test_the_folds_of_a_replayed_batch_make_up_its_gradient",),
    ),
    Mutant(
        "nn/mixer.py",
        'weight_1 = jnp.abs(nets.mlp(params["weight_1"], state))',
        'weight_1 = nets.mlp(params["weight_1"], state)',
        ("nn/test_mixer.py::test_the_mixer_is_monotonic_in_every_agents_value[1.0]",),
    ),
    Mutant(
        "nn/mixer.py",
        "hidden = jax.nn.elu(",
        "hidden = jax.nn.relu(",
        ("nn/test_mixer.py::test_the_formula_against_numpy[1.0]",),
    ),
    Mutant(
        "nn/mixer.py",
        '(hidden * weight_2).sum(-1) + nets.mlp(params["bias_2"], state)[..., 0]',
        "(hidden * weight_2).sum(-1)",
        ("nn/test_mixer.py::test_the_formula_against_numpy[1.0]",),
    ),
)

REPLAY = (
    Mutant(
        "algos/replay_buffer.py",
        "(finished + jnp.cumsum(ended) - 1) % capacity",
        "(finished + jnp.cumsum(ended)) % capacity",
        ("algos/test_replay_buffer.py::test_every_finished_episode_is_whole_and_the_newest_are_kept[all_kinds-12]",),
    ),
    Mutant(
        "algos/replay_buffer.py",
        "(jnp.where(ended, slot, slots.length.shape[0]), time + 1)",
        "(jnp.where(ended, slot, slots.length.shape[0]), time)",
        ("algos/test_replay_buffer.py::test_every_finished_episode_is_whole_and_the_newest_are_kept[all_kinds-12]",),
    ),
    Mutant(
        "algos/replay_buffer.py",
        'terminated=slots.terminated.at[end].set(trajectory.terminated, mode="drop")',
        'terminated=slots.terminated.at[end].set(ended, mode="drop")',
        ("algos/test_replay_buffer.py::test_every_finished_episode_is_whole_and_the_newest_are_kept[all_kinds-12]",),
    ),
    Mutant(
        "algos/replay_buffer.py",
        "set(seen.obs * seen.alive[..., None]",
        "set(seen.obs",
        ("algos/test_replay_buffer.py::test_the_dead_are_stored_as_zeros_however_large_their_observation",),
    ),
    Mutant(
        "algos/replay_buffer.py",
        "jnp.where(jnp.arange(capacity) < replay.finished,",
        "jnp.where(jnp.arange(capacity) <= replay.finished,",
        ("algos/test_replay_buffer.py::test_a_sample_of_a_replay_that_is_not_full_holds_no_empty_slot",),
    ),
    Mutant(
        "algos/replay_buffer.py",
        "time <= length[:, None]",
        "time < length[:, None]",
        ("algos/test_replay_buffer.py::test_a_sample_holds_finished_episodes_whole_once_each_and_never_a_running_one",),
    ),
    Mutant(
        "algos/replay_buffer.py",
        "jax.random.uniform(key, (capacity,))",
        "jnp.arange(capacity) / capacity",
        ("algos/test_replay_buffer.py::test_other_keys_draw_other_episodes",),
    ),
)

GRU = (
    Mutant(
        "nn/gru.py",
        "before = jnp.where(first[..., None], 0.0, memory)",
        "before = memory",
        ("nn/test_gru.py::test_first_makes_the_stored_memory_irrelevant",),
    ),
    Mutant(
        "nn/gru.py",
        "return jnp.where(first[..., None], 0.0, d_before), (d_gates",
        "return d_before, (d_gates",
        ("nn/test_gru.py::test_first_stops_the_gradient_to_earlier_inputs_and_memory",),
    ),
    Mutant(
        "nn/gru.py",
        "candidate + update * (memory - candidate)",
        "memory + update * (candidate - memory)",
        ("nn/test_gru.py::test_gru_step_follows_the_pytorch_equations",),
    ),
    Mutant(
        "nn/critic.py",
        'backbone.sequence(params["front"], memory, state, first)',
        'backbone.sequence(params["front"], memory, state, jnp.zeros_like(first))',
        ("algos/test_mappo.py::test_the_recurrent_critic_sees_the_values_of_the_rollout",),
    ),
    Mutant(
        "nn/actor.py",
        "jax.vmap(layers.dense, in_axes=(0, -2), out_axes=-2)(head, features)",
        "jax.vmap(layers.dense, in_axes=(0, -2), out_axes=-2)(jax.tree.map(lambda x: x[::-1], head), features)",
        (
            "algos/test_qmix.py::test_the_loss_takes_its_lambda_its_discount_its_scale_and_its_limit[bootstrap-0.6-0.9-10.0]",
        ),
    ),
)

INPUTS_AND_NETWORKS = (
    Mutant(
        "algos/ppo.py",
        "last_action = jnp.where(trajectory.first[..., None, None], 0.0, last_action[:-1])",
        "last_action = last_action[:-1]",
        (
            "algos/test_mappo.py::test_the_update_of_the_reference_layout_sees_the_rollout_s_inputs_log_probabilities_and_values[shared]",
        ),
    ),
    Mutant(
        "algos/ppo.py",
        "0.0, last_action[:-1])",
        "0.0, last_action[1:])",
        (
            "algos/test_mappo.py::test_the_update_of_the_reference_layout_sees_the_rollout_s_inputs_log_probabilities_and_values[shared]",
        ),
    ),
    Mutant(
        "algos/ppo.py",
        "return inputs.of_agents(hyper, seen.obs, last_action) * seen.alive[..., None]",
        "return inputs.of_agents(hyper, seen.obs, last_action)",
        (
            "algos/test_mappo.py::test_the_update_of_the_reference_layout_sees_the_rollout_s_inputs_log_probabilities_and_values[shared]",
        ),
    ),
    Mutant(
        "algos/ppo.py",
        'if hyper.time_limit == "terminal":',
        'if hyper.time_limit == "bootstrap":',
        ("algos/test_ppo.py::test_advantages_and_targets_are_the_sums_of_the_loops[gru-True-terminal-team_state]",),
    ),
    Mutant(
        "algos/ppo.py",
        "terminated = terminated | truncated",
        "terminated = terminated & truncated",
        ("algos/test_ppo.py::test_advantages_and_targets_are_the_sums_of_the_loops[gru-True-terminal-team_state]",),
    ),
    Mutant(
        "nn/actor.py",
        'if init == "common":',
        'if init != "common":',
        ("algos/test_mappo.py::test_initial_parameters_of_the_agents_are_one_draw_or_one_for_each[hybrid]",),
    ),
    Mutant(
        "nn/backbone.py",
        'x = layers.norm(params["norm"], x)\n    for',
        "for",
        ("nn/test_backbone.py::test_a_sequence_and_single_steps_are_the_equations[blocks]",),
    ),
    Mutant(
        "nn/backbone.py",
        'layers.norm(block["norm"], jax.nn.relu(dense(block, x)))',
        'jax.nn.relu(layers.norm(block["norm"], dense(block, x)))',
        ("nn/test_backbone.py::test_a_sequence_and_single_steps_are_the_equations[blocks]",),
    ),
    Mutant(
        "nn/backbone.py",
        'return cell, jax.nn.relu(dense(params["rectified"], x))',
        'return cell, dense(params["rectified"], x)',
        ("nn/test_backbone.py::test_a_sequence_and_single_steps_are_the_equations[rectified]",),
    ),
    Mutant(
        "nn/backbone.py",
        'return memory if "rectified" in params else jax.nn.relu(memory)',
        "return jax.nn.relu(memory)",
        ("nn/test_backbone.py::test_a_sequence_and_single_steps_are_the_equations[rectified]",),
    ),
    Mutant(
        "nn/layers.py",
        "(centred * centred).mean(-1, keepdims=True) + NORM_EPSILON",
        "(centred * centred).sum(-1, keepdims=True) + NORM_EPSILON",
        ("nn/test_backbone.py::test_a_sequence_and_single_steps_are_the_equations[blocks]",),
    ),
)

TRAINING = (
    Mutant(
        "training/host_rollout.py",
        "active, state, key, False)",
        "active, state, key, True)",
        ("training/test_host_rollout.py::test_training_samples_films_are_greedy_and_an_evaluation_is_both",),
    ),
    Mutant(
        "training/host_rollout.py",
        "greedy = play(envs, state, key, episodes, True)",
        "greedy = play(envs, state, key, episodes, False)",
        ("training/test_host_rollout.py::test_training_samples_films_are_greedy_and_an_evaluation_is_both",),
    ),
    Mutant(
        "training/host_rollout.py",
        "group, state, key, True)",
        "group, state, key, False)",
        ("training/test_host_rollout.py::test_training_samples_films_are_greedy_and_an_evaluation_is_both",),
    ),
    Mutant(
        "training/remote_rollout.py",
        "first=self.number * copies",
        "first=0",
        ("training/test_remote_rollout.py::test_two_nodes_give_the_columns_of_one",),
    ),
    Mutant(
        "training/remote_rollout.py",
        "if self.number > 0:",
        "if self.number > 9:",
        ("training/test_remote_rollout.py::test_actions_depend_only_on_the_number_of_the_node",),
    ),
    Mutant(
        "training/rollout.py",
        "memory = cleared(arena.memory, arena.first)",
        "memory = arena.memory",
        ("training/test_rollout.py::test_memory_is_cleared_at_the_start_of_an_episode",),
    ),
    Mutant(
        "training/rollout.py",
        "observation, act_key, False)",
        "observation, act_key, True)",
        ("training/test_rollout.py::test_training_samples_and_an_evaluation_plays_greedy_and_sampled_episodes",),
    ),
    Mutant(
        "training/rollout.py",
        "decision.action, jax.random.split(env_key, num_envs))",
        "decision.action, jnp.broadcast_to(env_key, num_envs))",
        ("training/test_rollout.py::test_resets_steps_and_actions_of_every_copy_draw_by_themselves",),
    ),
    Mutant(
        "training/rollout.py",
        "jax.random.split(key, num_steps))",
        "jnp.broadcast_to(key, num_steps))",
        ("training/test_rollout.py::test_resets_steps_and_actions_of_every_copy_draw_by_themselves",),
    ),
    Mutant(
        "training/rollout.py",
        "act_key, env_key, reset_key = jax.random.split(step_key, 3)",
        "act_key = env_key = reset_key = step_key",
        ("training/test_rollout.py::test_resets_steps_and_actions_of_every_copy_draw_by_themselves",),
    ),
    Mutant(
        "training/rollout.py",
        "jax.random.split(reset_key, num_envs))",
        "jnp.broadcast_to(reset_key, num_envs))",
        ("training/test_rollout.py::test_resets_steps_and_actions_of_every_copy_draw_by_themselves",),
    ),
    Mutant(
        "training/rollout.py",
        "first=after.terminated | after.truncated,",
        "first=after.terminated,",
        ("training/test_rollout.py::test_an_episode_ends_and_the_next_begins",),
    ),
    Mutant(
        "training/rollout.py",
        "used=used | arena.first,",
        "used=used,",
        ("training/test_rollout.py::test_every_episode_is_a_new_one",),
    ),
    Mutant(
        "training/rollout.py",
        "returned=jnp.where(arena.first, 0.0, arena.returned)",
        "returned=arena.returned",
        ("training/test_rollout.py::test_episode_metrics_are_means_over_those_that_ended",),
    ),
    Mutant(
        "training/evaluation.py",
        "observation, act_key, greedy)",
        "observation, act_key, False)",
        ("training/test_rollout.py::test_training_samples_and_an_evaluation_plays_greedy_and_sampled_episodes",),
    ),
    Mutant(
        "training/loop.py",
        "Metric.SAMPLED_RETURN_MEAN: sampled.returned.mean(1)",
        "Metric.SAMPLED_RETURN_MEAN: greedy.returned.mean(1)",
        ("training/test_loop.py::test_an_evaluation_s_record_tells_greedy_from_sampled_episodes",),
    ),
    Mutant(
        "training/loop.py",
        "Metric.SAMPLED_DISTINCT: distinct(sampled)",
        "Metric.SAMPLED_DISTINCT: distinct(greedy)",
        ("training/test_loop.py::test_an_evaluation_s_record_tells_greedy_from_sampled_episodes",),
    ),
    Mutant(
        "analysis/run_data.py",
        "0.9 * reached if final == SAMPLED_LAST",
        "0.9 * reached if final != SAMPLED_LAST",
        (
            "analysis/test_comparison_numbers.py::test_scores_with_sampled_actions_are_those_of_the_evaluations_without_the_untrained",
        ),
    ),
    Mutant(
        "analysis/verdict.py",
        'degree == "open" or gap <= 0',
        'degree == "open"',
        (
            "analysis/test_comparison_numbers.py::test_a_verdict_on_greedy_scores_says_whether_it_holds_with_sampled_actions",
        ),
    ),
    Mutant(
        "training/evaluation.py",
        "greedy = jnp.arange(number) < width",
        "greedy = jnp.arange(number) >= width",
        ("training/test_rollout.py::test_training_samples_and_an_evaluation_plays_greedy_and_sampled_episodes",),
    ),
    Mutant(
        "training/evaluation.py",
        "number, state = 2 * width, algorithm.evaluated(state)",
        "number = 2 * width",
        ("training/test_rollout.py::test_training_samples_and_an_evaluation_plays_greedy_and_sampled_episodes",),
    ),
    Mutant(
        "training/evaluation.py",
        "(episodes.running & after.truncated)",
        "after.truncated",
        ("training/test_rollout.py::test_an_evaluation_scores_each_episode_once_and_stops_at_its_end",),
    ),
    Mutant(
        "algos/exploration.py",
        "jnp.full_like(state.env_steps, hyper.anneal)",
        "state.env_steps",
        ("algos/test_exploration.py::test_what_is_evaluated_explores_with_the_final_epsilon",),
    ),
    Mutant(
        "training/evaluation.py",
        "jnp.where(episodes.running, after.reward, 0.0)",
        "after.reward",
        ("training/test_rollout.py::test_an_evaluation_scores_each_episode_once_and_stops_at_its_end",),
    ),
    Mutant(
        "training/evaluation.py",
        "[jax.random.split(each, width) for each",
        "[jnp.broadcast_to(each, width) for each",
        ("training/test_rollout.py::test_no_two_episodes_of_an_evaluation_are_alike",),
    ),
    Mutant(
        "training/evaluation.py",
        "jax.random.split(key, batches)",
        "jnp.broadcast_to(key, batches)",
        ("training/test_rollout.py::test_no_two_episodes_of_an_evaluation_are_alike",),
    ),
    Mutant(
        "training/evaluation.py",
        "after.observation, decision.memory, running",
        "after.observation, episodes.memory, running",
        ("training/test_rollout.py::test_a_policy_that_is_evaluated_remembers",),
    ),
    Mutant(
        "training/runner.py",
        "jax.random.split(jax.random.fold_in(run.key, run.iteration))\n        arena",
        "jax.random.split(run.key)\n        arena",
        ("training/test_runner.py::test_every_iteration_acts_and_updates_with_keys_of_its_own",),
    ),
    Mutant(
        "training/runner.py",
        "score_best=scorer(config.final_episodes)",
        "score_best=scorer(config.eval_episodes)",
        ("training/test_runner.py::test_evaluations_have_as_many_greedy_and_sampled_episodes_as_configured",),
    ),
    Mutant(
        "training/runner.py",
        "score=scorer(config.eval_episodes)",
        "score=scorer(config.final_episodes)",
        ("training/test_runner.py::test_evaluations_have_as_many_greedy_and_sampled_episodes_as_configured",),
    ),
    Mutant(
        "training/loop.py",
        "self.runner.score_best(state.state._replace(**stack(policies)), keys)",
        "self.runner.score_best(state.state, keys)",
        ("training/test_loop.py::test_the_absolute_metric_is_of_the_best_snapshot_which_becomes_the_policy",),
    ),
    Mutant(
        "training/loop.py",
        "jax.random.fold_in(seed_keys(seed).evaluation, iteration)",
        "seed_keys(seed).evaluation",
        ("training/test_resume.py::test_no_random_key_is_used_twice",),
    ),
    Mutant(
        "runs/restore.py",
        "sorted(lines, key=rank, reverse=True)",
        "sorted(lines, key=rank)",
        ("training/test_loop.py::test_the_absolute_metric_is_of_the_best_snapshot_which_becomes_the_policy",),
    ),
    Mutant(
        "runs/restore.py",
        'return line.get(Metric.WIN_RATE) or 0.0, float("-inf") if score is None else score',
        'return float("-inf") if score is None else score, line.get(Metric.WIN_RATE) or 0.0',
        ("runs/test_restore.py::test_evaluations_are_ranked_by_wins_then_by_return_and_one_that_diverged_is_last",),
    ),
)

MA2E = (
    Mutant(
        "algos/ma2e/algorithm.py",
        '("all", dropout_key) if released else ("masked", None)',
        '("all", dropout_key) if released else ("all", None)',
        ("algos/test_ma2e_windows.py::test_a_window_is_cut_from_its_episode_and_padded_before_its_start[paper]",),
    ),
    Mutant(
        "algos/ma2e/algorithm.py",
        "_replace(env_steps=jnp.where(pretraining, steps_before, state.env_steps))",
        "_replace(env_steps=state.env_steps)",
        ("algos/test_ma2e.py::test_learning_begins_when_pretraining_is_over_and_counts_only_its_own_steps",),
    ),
    Mutant(
        "algos/ma2e/algorithm.py",
        "played = jnp.arange(len(seen))[:, None] <= batch.length[None]",
        "played = jnp.arange(len(seen))[:, None] <= batch.length[None] + 1",
        ("algos/test_ma2e_windows.py::test_beyond_an_episode_s_end_nothing_is_seen_and_nothing_was_done",),
    ),
    Mutant(
        "algos/ma2e/algorithm.py",
        "episodes.finished - 1 - back",
        "episodes.finished - back",
        (
            "algos/test_ma2e_windows.py::test_fine_tuning_takes_the_newest_episodes_and_pretraining_any_that_are_there[16-paper]",
        ),
    ),
    Mutant(
        "algos/ma2e/algorithm.py",
        "tutor.rounds < RELEASED_ROUNDS",
        "tutor.rounds <= RELEASED_ROUNDS",
        ("algos/test_ma2e.py::test_released_has_301_rounds_and_paper_no_end[301-0]",),
    ),
    Mutant(
        "algos/ma2e/algorithm.py",
        "enough = tutor.played >= hyper.pretrain",
        "enough = tutor.played > hyper.pretrain",
        ("algos/test_ma2e.py::test_pretraining_is_over_after_its_steps[12-True-paper]",),
    ),
    Mutant(
        "algos/ma2e/algorithm.py",
        "jnp.where(turn < num_agents, alone,",
        "jnp.where(turn < num_agents - 1, alone,",
        (
            "algos/test_ma2e_rounds.py::"
            "test_each_agent_is_shown_alone_in_turn_then_groups_of_two_or_more_but_never_all[paper-False]",
        ),
    ),
    Mutant(
        "algos/ma2e/algorithm.py",
        "step = end[:, None] + jnp.arange(1 - hyper.window, 1)[None]",
        "step = end[:, None] + jnp.arange(hyper.window)[None] - hyper.window",
        ("algos/test_ma2e_windows.py::test_a_window_is_cut_from_its_episode_and_padded_before_its_start[paper]",),
    ),
    Mutant(
        "algos/ma2e/algorithm.py",
        "state.env_steps, key, greedy)",
        "state.env_steps, key, False)",
        ("algos/test_ma2e.py::test_greedy_play_is_the_best_legal_action_of_what_is_perceived",),
    ),
    Mutant(
        "nn/transformer.py",
        "jnp.where(visible[..., None, None, :], logits, HIDDEN_LOGIT)",
        "logits",
        ("algos/test_autoencoder.py::test_the_whole_forward_pass_equals_numpy_token_by_token[paper]",),
    ),
    Mutant(
        "algos/ma2e/autoencoder.py",
        'masked_error if over == "masked" else',
        'masked_error if over == "nothing" else',
        ("algos/test_autoencoder.py::test_over_masked_ignores_visible_tokens_and_padding_even_as_targets",),
    ),
    Mutant(
        "algos/ma2e/autoencoder.py",
        "masked = real & ~keep[..., None, :]",
        "masked = real & keep[..., None, :]",
        ("algos/test_autoencoder.py::test_over_masked_ignores_visible_tokens_and_padding_even_as_targets",),
    ),
    Mutant(
        "algos/ma2e/autoencoder.py",
        "jnp.where(kept[..., None], tokens, 0.0) + jnp",
        "tokens + jnp",
        ("algos/test_autoencoder.py::test_the_one_kept_agent_decides_the_output_and_masked_agents_do_not_touch_it",),
    ),
    Mutant(
        "algos/ma2e/autoencoder.py",
        "visible = 1 + jax.random.randint(",
        "visible = jax.random.randint(",
        (
            "algos/test_autoencoder.py::test_random_group_masks_keep_k_plus_one_agents_with_every_k_and_every_agent_as_likely[4]",
        ),
    ),
    Mutant(
        "algos/ma2e/autoencoder.py",
        "jnp.arange(num_agents) == agent",
        "jnp.arange(num_agents) != agent",
        (
            "algos/test_autoencoder.py::test_single_agent_masks_keep_two_tokens_a_step_of_exactly_the_agent_asked_for[3]",
        ),
    ),
    Mutant(
        "algos/ma2e/perception.py",
        "jnp.concatenate([done[..., 1:], jnp.zeros_like(done[..., :1])], -1)",
        "done",
        (
            "algos/test_perception.py::"
            "test_in_paper_an_agent_reconstructs_the_others_from_its_own_window_in_its_own_place[1]",
        ),
    ),
    Mutant(
        "algos/ma2e/perception.py",
        "len(ago))) <= window.age[..., None]",
        "len(ago))) < window.age[..., None]",
        ("algos/test_perception.py::test_the_steps_of_this_episode_are_the_newest",),
    ),
    Mutant(
        "algos/ma2e/perception.py",
        "return jax.lax.stop_gradient(rows.reshape(*rows.shape[:-2], -1))",
        "return rows.reshape(*rows.shape[:-2], -1)",
        ("algos/test_perception.py::test_no_gradient_reaches_the_autoencoder_through_what_is_perceived[paper]",),
    ),
    Mutant(
        "algos/ma2e/perception.py",
        "seen, done = window.seen[..., agent, :], window.done[..., agent]",
        "seen, done = window.seen[..., 0, :], window.done[..., agent]",
        ("algos/test_perception.py::test_nothing_that_another_agent_holds_touches_an_agent_s_rows[paper-1]",),
    ),
)

SKIRMISH = (
    Mutant(
        "envs/skirmish/combat.py",
        "jnp.maximum(dealt - their.armour, min_damage)",
        "jnp.maximum(dealt, min_damage)",
        ("envs/skirmish/test_combat.py::test_a_hit_that_breaks_the_shield",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "min_damage = 0.0 if rules.smaclite else 0.5",
        "min_damage = 0.0",
        ("envs/skirmish/test_combat.py::test_a_hit_that_breaks_the_shield",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "dealt, shield = dealt - absorbed, shield - absorbed",
        "dealt, shield = dealt, shield - absorbed",
        ("envs/skirmish/test_combat.py::test_a_hit_that_breaks_the_shield",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "hit & (my.hits > number)",
        "hit & (number < 1)",
        ("envs/skirmish/test_combat.py::test_a_hit_that_breaks_the_shield",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "my.bonus_armoured * their.armoured",
        "my.bonus_armoured * their.light",
        ("envs/skirmish/test_combat.py::test_attacks_of_every_pair",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "& (battle.cooldown <= 0) & (gap",
        "& (gap",
        ("envs/skirmish/test_combat.py::test_a_hit_that_breaks_the_shield",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "(battle.cooldown <= 0) & (gap(unit, battle) <= unit.reach)",
        "(battle.cooldown <= 0)",
        ("envs/skirmish/test_movement.py::test_an_attacker_pursues_until_its_target_is_in_reach",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "unit.period + delay",
        "unit.period",
        ("envs/skirmish/test_skirmish_maps.py::test_the_random_delay_of_weapons_is_uniform_from_minus_1_to_2_loops",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "hp=jnp.where(suicide, 0.0, hp)",
        "hp=hp",
        ("envs/skirmish/test_combat.py::test_a_baneling_explodes_at_its_target",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "(far <= BLAST + their.radius)",
        "(far <= BLAST)",
        ("envs/skirmish/test_combat.py::test_a_baneling_explodes_at_its_target",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "across, along = jnp.abs(dx * along_y - dy * along_x), jnp.abs(dx * along_x + dy * along_y)",
        "along, across = jnp.abs(dx * along_y - dy * along_x), jnp.abs(dx * along_x + dy * along_y)",
        ("envs/skirmish/test_combat.py::test_a_colossus_damages_a_rectangle_across_its_line_of_fire",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "row(energy, index) / HEAL_COST), unit.hp - hp)",
        "row(energy, index) / HEAL_COST), 1e9)",
        ("envs/skirmish/test_combat.py::test_healing_rate_cost_and_limits",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "helped &= ~healed",
        "helped &= True",
        ("envs/skirmish/test_combat.py::test_two_medivacs_do_not_heal_one_unit_in_the_same_loop",),
    ),
    Mutant(
        "envs/skirmish/combat.py",
        "calm=jnp.where(hit, 0.0, battle.calm)",
        "calm=battle.calm",
        ("envs/skirmish/test_game_loop.py::test_a_shield_regenerates_160_loops_after_the_last_hit",),
    ),
    Mutant(
        "envs/skirmish/game_loop.py",
        "(calm >= SHIELD_DELAY)",
        "(calm > SHIELD_DELAY)",
        ("envs/skirmish/test_game_loop.py::test_a_shield_regenerates_160_loops_after_the_last_hit",),
    ),
    Mutant(
        "envs/skirmish/game_loop.py",
        "hp = jnp.where(alive, jnp.minimum(unit.hp, battle.hp + unit.regenerates), 0.0)",
        "hp = jnp.where(alive, battle.hp + unit.regenerates, 0.0)",
        ("envs/skirmish/test_game_loop.py::test_zerg_and_energy_regenerate_up_to_their_maximum",),
    ),
    Mutant(
        "envs/skirmish/state.py",
        "return (battle.hp > 0) & (battle.target >= 0)",
        "return (battle.target >= 0)",
        ("envs/skirmish/test_movement.py::test_stopped_and_dead_units_do_not_shoot",),
    ),
    Mutant(
        "envs/skirmish/state.py",
        "return far - unit.radius - at(unit.radius, battle.target)",
        "return far - unit.radius",
        ("envs/skirmish/test_combat.py::test_a_medivac_heals_within_4_cells_and_flies_there_first",),
    ),
    Mutant(
        "envs/skirmish/observation.py",
        "visible = (far < sight)",
        "visible = (far <= sight)",
        ("envs/skirmish/test_visibility.py::test_shooting_range_is_inclusive_and_sight_is_strict",),
    ),
    Mutant(
        "envs/skirmish/observation.py",
        "near = (far <= reach[:, None])",
        "near = (far < reach[:, None])",
        ("envs/skirmish/test_visibility.py::test_shooting_range_is_inclusive_and_sight_is_strict",),
    ),
    Mutant(
        "envs/skirmish/smacv2_visibility.py",
        "jnp.flip(jnp.cumsum(jnp.flip(~known, 1), 1), 1) - ~known",
        "jnp.cumsum(~known, 1) - ~known",
        ("envs/skirmish/test_visibility.py::test_enemies_before_an_unknown_one_are_hidden",),
    ),
    Mutant(
        "envs/skirmish/smacv2_visibility.py",
        "held = (holder != UNKNOWN) & alive[jnp.maximum(holder, 0)]",
        "held = holder != UNKNOWN",
        ("envs/skirmish/test_visibility.py::test_the_holder_is_uniform_and_forgotten_when_it_dies",),
    ),
    Mutant(
        "envs/skirmish/reward.py",
        "gained = lost + DEATH * died",
        "gained = lost",
        ("envs/skirmish/test_reward.py::test_a_win_returns_20_and_a_hit_point_its_fraction[3m]",),
    ),
    Mutant(
        "envs/skirmish/reward.py",
        "(unit.hp + unit.shield + DEATH)[enemies].sum() + WIN",
        "(unit.hp + unit.shield + DEATH)[enemies].sum()",
        ("envs/skirmish/test_reward.py::test_a_win_returns_20_and_a_hit_point_its_fraction[3m]",),
    ),
    Mutant(
        "envs/skirmish/reward.py",
        "lost = (strength(before) - strength(after))[enemies].sum()",
        "lost = (strength(before) - strength(after)).sum()",
        ("envs/skirmish/test_reward.py::test_a_win_returns_20_and_a_hit_point_its_fraction[3m]",),
    ),
    Mutant(
        "envs/skirmish/reward.py",
        "jnp.maximum(gained, 0.0) if rules.generated else jnp.abs(gained)",
        "jnp.abs(gained)",
        ("envs/skirmish/test_reward.py::test_the_reward_is_what_smac_pays_for_damage_kills_and_wins[zerg_5_vs_5]",),
    ),
    Mutant(
        "envs/skirmish/reward.py",
        "return ~allies | ~enemies, allies & ~enemies",
        "return ~allies | ~enemies, ~enemies",
        ("envs/skirmish/test_reward.py::test_termination_and_wins",),
    ),
    Mutant(
        "envs/skirmish/spawns.py",
        "mirrored = jnp.stack([SIZE - allies[:, 0], allies[:, 1]], -1)",
        "mirrored = jnp.stack([allies[:, 0] + MIDDLE, allies[:, 1]], -1)",
        ("envs/skirmish/test_spawns.py::test_reflected_starts_are_exact_mirrors_and_uniform",),
    ),
    Mutant(
        "envs/skirmish/spawns.py",
        "jnp.log(jnp.array(race.weights))",
        "jnp.array(race.weights)",
        ("envs/skirmish/test_spawns.py::test_teams_are_drawn_by_weight",),
    ),
    Mutant(
        "envs/skirmish/spawns.py",
        "jax.random.uniform(choice_key) > 1 - SURROUNDED",
        "jax.random.uniform(choice_key) > SURROUNDED / 2",
        ("envs/skirmish/test_spawns.py::test_half_of_the_battles_are_surrounded",),
    ),
    Mutant(
        "envs/skirmish/targeting.py",
        "scan = jnp.maximum(5.0, my.reach + 0.5) + my.radius",
        "scan = jnp.maximum(5.0, my.reach) + my.radius",
        ("envs/skirmish/test_targeting.py::test_the_scan_range_of_each_type[False]",),
    ),
    Mutant(
        "envs/skirmish/targeting.py",
        "can_hit(unit, mine)) & (at(battle.hp, target) > 0)",
        "can_hit(unit, mine))",
        ("envs/skirmish/test_targeting.py::test_an_order_to_attack_an_invalid_target_is_dropped",),
    ),
    Mutant(
        "envs/skirmish/targeting.py",
        "in_reach if holds else in_reach | attacks_me",
        "in_reach",
        ("envs/skirmish/test_targeting.py::test_an_enemy_keeps_a_target_out_of_reach_only_while_that_unit_attacks_it",),
    ),
    Mutant(
        "envs/skirmish/targeting.py",
        "jnp.where(noticed, cost, squared + LATER)",
        "cost",
        ("envs/skirmish/test_targeting.py::test_units_in_scan_range_come_before_distant_attackers[True]",),
    ),
    Mutant(
        "envs/skirmish/targeting.py",
        "better = valid & (cost < best[0])",
        "better = valid & (cost > jnp.where(jnp.isinf(best[0]), -1.0, best[0]))",
        ("envs/skirmish/test_targeting.py::test_a_focusing_enemy_attacks_the_weakest_in_scan_range",),
    ),
    Mutant(
        "envs/skirmish/movement.py",
        "step = jnp.where(walks, jnp.minimum(step, remaining), 0.0)",
        "step = jnp.where(walks, step, 0.0)",
        ("envs/skirmish/test_movement.py::test_a_move_order_goes_two_cells_and_stops",),
    ),
    Mutant(
        "envs/skirmish/movement.py",
        "goes = chases | ordered",
        "goes = ordered",
        ("envs/skirmish/test_movement.py::test_an_attacker_pursues_until_its_target_is_in_reach",),
    ),
    Mutant(
        "envs/skirmish/movement.py",
        "rules.low + edge)",
        "rules.low - edge)",
        ("envs/skirmish/test_movement.py::test_units_stay_within_the_walls_and_the_map",),
    ),
    Mutant(
        "envs/skirmish/env.py",
        "(time >= scenario.battlefield.limit)",
        "(time > scenario.battlefield.limit)",
        ("envs/skirmish/test_skirmish_env.py::test_only_the_time_limit_truncates_and_termination_takes_precedence",),
    ),
    Mutant(
        "envs/skirmish/env.py",
        "moves = is_legal & (action >= 2)",
        "moves = (action >= 2)",
        ("envs/skirmish/test_skirmish_env.py::test_a_legal_move_goes_two_cells_and_an_illegal_one_stops",),
    ),
    Mutant(
        "envs/skirmish/env.py",
        "attacks = is_legal & (action >= FIRST_TARGET)",
        "attacks = action >= FIRST_TARGET",
        ("envs/skirmish/test_skirmish_env.py::test_an_illegal_action_stops_and_a_key_repeats_a_step",),
    ),
    Mutant(
        "envs/skirmish/env.py",
        "DIRECTIONS = np.array([[0, 1], [0, -1],",
        "DIRECTIONS = np.array([[0, -1], [0, 1],",
        ("envs/skirmish/test_skirmish_env.py::test_a_legal_move_goes_two_cells_and_an_illegal_one_stops",),
    ),
)

JUMANJI = (
    Mutant(
        "envs/jumanji.py",
        "(clock >= spec.horizon) & ~terminated",
        "clock >= spec.horizon",
        (
            "envs/test_jumanji.py::test_a_task_that_ends_on_the_step_of_the_time_limit_is_terminated_not_truncated[LevelBasedForaging-v0]",
        ),
    ),
    Mutant(
        "envs/jumanji.py",
        "TaskRules(views, collided)",
        "TaskRules(views, no_future)",
        ("envs/test_jumanji.py::test_the_time_limit_truncates_the_warehouse",),
    ),
)

STATISTICS = (
    Mutant(
        "analysis/statistics.py",
        "cut = x.shape[-1] // 4",
        "cut = x.shape[-1] // 3",
        ("analysis/test_statistics.py::test_iqm_is_scipys_trimmed_mean",),
    ),
    Mutant(
        "analysis/statistics.py",
        "np.where(np.isnan(x).any(axis=-1), np.nan, kept.mean(axis=-1))[()]",
        "kept.mean(axis=-1)",
        ("analysis/test_statistics.py::test_iqm_does_not_hide_a_diverged_seed",),
    ),
    Mutant(
        "analysis/statistics.py",
        "low, high = np.quantile(x, [(1 - level) / 2, (1 + level) / 2])",
        "low, high = np.quantile(x, [1 - level, level])",
        ("analysis/test_statistics.py::test_bootstrap_of_the_mean_is_scipys_percentile_interval",),
    ),
    Mutant(
        "analysis/statistics.py",
        "if min(len(task) for task in tasks) < 2 or",
        "if min(len(task) for task in tasks) < 1 or",
        ("analysis/test_statistics.py::test_one_seed_has_no_interval",),
    ),
    Mutant(
        "analysis/statistics.py",
        "rng.integers(len(task), size=(reps, len(task)))",
        "rng.random((reps, len(task))).argsort(axis=1)",
        ("analysis/test_statistics.py::test_bootstrap_of_the_mean_is_scipys_percentile_interval",),
    ),
    Mutant(
        "analysis/statistics.py",
        " + 0.5 * (x[:, None] == y[None, :])",
        "",
        ("analysis/test_statistics.py::test_probability_of_improvement_in_known_cases",),
    ),
    Mutant(
        "analysis/statistics.py",
        "(x[:, None] > y[None, :]) +",
        "(x[:, None] < y[None, :]) +",
        ("analysis/test_statistics.py::test_probability_of_improvement_in_known_cases",),
    ),
    Mutant(
        "analysis/statistics.py",
        "weights_a, weights_b = (_weights(n, reps, rng) for n in above.shape)",
        "weights_a, weights_b = (_weights(n, reps, np.random.default_rng(seed)) for n in above.shape)",
        ("analysis/test_statistics.py::test_the_two_sides_of_an_improvement_are_resampled_apart",),
    ),
    Mutant(
        "analysis/statistics.py",
        "value = float(first - second)",
        "value = float(second - first)",
        ("analysis/test_statistics_tasks.py::test_difference_is_of_the_iqms_with_the_interval_of_plain_resampling",),
    ),
    Mutant(
        "analysis/statistics.py",
        "z = NormalDist().inv_cdf((1 + level) / 2)",
        "z = NormalDist().inv_cdf(level)",
        ("analysis/test_statistics.py::test_wilson_is_scipys",),
    ),
    Mutant(
        "analysis/statistics.py",
        "threshold - np.minimum(x, threshold)",
        "threshold - np.maximum(x, threshold)",
        ("analysis/test_statistics_tasks.py::test_median_and_gap_in_known_cases",),
    ),
    Mutant(
        "analysis/statistics.py",
        "float(steps[window - 1 :][reached[0]])",
        "float(steps[reached[0]])",
        (
            "analysis/test_statistics_tasks.py::test_steps_to_is_the_first_time_the_mean_of_three_evaluations_reaches_it",
        ),
    ),
    Mutant(
        "analysis/statistics.py",
        "above = [(task[:, None] > thresholds[None, :])",
        "above = [(task[:, None] < thresholds[None, :])",
        ("analysis/test_statistics_tasks.py::test_a_profile_computed_by_hand",),
    ),
    Mutant(
        "analysis/permutation_test.py",
        "(above + below).sum()",
        "above.sum()",
        ("analysis/test_permutation_test.py::test_one_task_is_scipys_exact_test[3-3]",),
    ),
    Mutant(
        "analysis/permutation_test.py",
        "(np.abs(drawn) >= far)",
        "(drawn >= far)",
        ("analysis/test_permutation_test.py::test_eight_seeds_on_two_tasks_are_counted_and_random_relabellings_agree",),
    ),
    Mutant(
        "analysis/permutation_test.py",
        "abs(gap) * (1 - ROUNDING) - ROUNDING *",
        "abs(gap) * (1 + ROUNDING) + ROUNDING *",
        ("analysis/test_permutation_test.py::test_one_task_is_scipys_exact_test[3-3]",),
    ),
)

TABLE = (
    *RETURNS,
    *VALUE_NORM,
    *LOSSES,
    *MINIBATCHES,
    *PPO,
    *HAPPO,
    *GRASP,
    *CONSENSUS,
    *QMIX,
    *REPLAY,
    *GRU,
    *INPUTS_AND_NETWORKS,
    *TRAINING,
    *MA2E,
    *SKIRMISH,
    *JUMANJI,
    *STATISTICS,
)

"""MAPPO, HAPPO and QMIX in plain PyTorch, from their equations: loops over agents, environments and time steps.

Oracles in float64. Nothing of grasp or JAX is used: parameters come as nested dicts of NumPy arrays, with a leading
agent axis where every agent has its own, and go as flat ones.
"""

import copy
from itertools import combinations

import numpy as np
import torch
from torch import nn


def real(x):
    return torch.as_tensor(np.asarray(x, np.float64))


def number(x):
    return float(x.detach())


# A network is a dict of tensors by name, such as "backbone.encoder.weight"; a team is a list of networks, with the same
# tensors where parameters are shared. Dense layers are `weight[in, out]` and `bias[out]`.


def net_of(tree, prefix=""):
    found = {}
    for name, x in tree.items():
        one = {prefix + name: real(x).clone().requires_grad_()} if not isinstance(x, dict) else None
        found |= one or net_of(x, f"{prefix}{name}.")
    return found


def team_of(actor, sharing, num_agents):
    """Everything is shared, or with `hybrid` the backbone, or with `separate` nothing."""
    own = {"backbone": sharing == "separate", "head": sharing != "shared"}
    parts = {name: getattr(actor, name) for name in own}
    shared = net_of({name: part for name, part in parts.items() if not own[name]})
    return [
        shared | net_of({name: part_of(part, i) for name, part in parts.items() if own[name]})
        for i in range(num_agents)
    ]


def part_of(tree, i):
    return {name: part_of(x, i) for name, x in tree.items()} if isinstance(tree, dict) else tree[i]


def own_parameters(team, i):
    """Those that only agent i has."""
    others = {p for j, net in enumerate(team) if j != i for p in net.values()}
    return [p for p in team[i].values() if p not in others]


def dump(net, read=lambda p: p):
    """The parameters by name, or something read of each, such as a moment of Adam's; a team's with an agent axis."""
    if isinstance(net, list):
        each = [dump(one, read) for one in net]
        shared = {name for name, p in net[0].items() if p is net[1][name]}
        return {name: x if name in shared else np.stack([one[name] for one in each]) for name, x in each[0].items()}
    return {name: read(p).detach().numpy().copy() for name, p in net.items()}


def dense(net, name, x):
    return x @ net[f"{name}.weight"] + net[f"{name}.bias"]


def mlp(net, x, prefix=""):
    """ReLU between layers."""
    for i in range(sum(name.startswith(prefix) for name in net) // 2):
        x = dense(net, f"{prefix}layer_{i}", torch.relu(x) if i else x)
    return x


def normed(net, name, x):
    return nn.functional.layer_norm(x, x.shape[-1:], net[f"{name}.scale"], net[f"{name}.bias"])


def recurrent(net, front, head, x, memory):
    """One step's output, and the memory after it: of linear → GRU → ReLU → linear; of linear → ReLU → GRU → linear;
    or of layer norm, blocks of linear → ReLU → layer norm, GRU → layer norm (unless there is no GRU), linear."""
    if f"{front}.encoder.weight" in net:
        x = dense(net, f"{front}.encoder", x)
    elif f"{front}.rectified.weight" in net:
        x = torch.relu(dense(net, f"{front}.rectified", x))
    else:
        x = normed(net, f"{front}.blocks.norm", x)
        for i in range(sum(name.startswith(f"{front}.blocks.block") and name.endswith("weight") for name in net)):
            block = f"{front}.blocks.block_{i}"
            x = normed(net, f"{block}.norm", torch.relu(dense(net, block, x)))
    if f"{front}.gru.input.weight" not in net:
        return dense(net, head, x), memory
    gru = [net[f"{front}.gru.{way}.{kind}"].t() for kind in ("weight", "bias") for way in ("input", "memory")]
    memory = torch.gru_cell(x[None], memory[None], *gru)[0]
    if f"{front}.norm.scale" in net:
        return dense(net, head, normed(net, f"{front}.norm", memory)), memory
    return dense(net, head, torch.relu(memory) if f"{front}.encoder.weight" in net else memory), memory


def act(net, obs, memory):
    return recurrent(net, "backbone", "head", obs, memory)


def judge(net, state, memory):
    """A state's value, by either kind of critic."""
    value, memory = (
        recurrent(net, "front", "value", state, memory) if "value.bias" in net else (mlp(net, state), memory)
    )
    return value[0], memory


def mix(net, q, state):
    """Q_tot = |W2(s)|ᵀ ELU(|W1(s)|ᵀ q + b1(s)) + b2(s), or the sum."""
    if not net:
        return q.sum()
    hidden = q @ mlp(net, state, "weight_1.").abs().reshape(len(q), -1) + mlp(net, state, "bias_1.")
    return nn.functional.elu(hidden) @ mlp(net, state, "weight_2.").abs() + mlp(net, state, "bias_2.")[0]


class Adam:
    """A step down the gradient of some networks, after a clip of its global norm."""

    def __init__(self, nets, lr, eps, max_norm):
        self.params = list(dict.fromkeys(p for net in nets for p in net.values()))
        self.adam, self.max_norm = torch.optim.Adam(self.params, lr=lr, eps=eps), max_norm

    def step(self, grads):
        norm = torch.sqrt(sum((g**2).sum() for g in grads.values()))
        for p in self.params:
            p.grad = grads[p] * min(1.0, self.max_norm / norm)
        self.adam.step()
        return float(norm)


def moment_of(adams, name):
    """Reads `exp_avg` or `exp_avg_sq` of a parameter."""
    state = {p: kept for one in adams for p, kept in one.adam.state.items()}
    return lambda p: state[p][name]


def shortest(gradients):
    """The weights of the shortest vector in the hull of the rows: the best of all faces' own shortest vectors."""
    gram, best = gradients @ gradients.T, None
    for size in range(1, len(gram) + 1):
        for face in map(list, combinations(range(len(gram)), size)):
            system = np.ones((size + 1, size + 1))
            system[:size, :size], system[size, size] = gram[np.ix_(face, face)], 0.0
            inside = np.linalg.lstsq(system, np.eye(size + 1)[size], rcond=None)[0][:size]
            weights = np.zeros(len(gram))
            weights[face] = inside
            if (inside >= 0).all() and (best is None or weights @ gram @ weights < best @ gram @ best):
                best = weights
    return best


def means(stats):
    return {name: np.mean([s[name] for s in stats], 0) for name in stats[0]}


def flat(tensors):
    return torch.cat([x.reshape(-1) for x in tensors])


class Ppo:
    """What MAPPO and HAPPO share. A chunk is (first step, environment)."""

    def __init__(self, hyper, state, trajectory):
        self.hyper, self.data = hyper, trajectory
        self.num_steps, self.num_envs, self.num_agents = trajectory.action.shape
        self.team, self.critic = team_of(state.actor, hyper.sharing, self.num_agents), net_of(state.critic)
        self.critic_adam = Adam([self.critic], hyper.critic_lr, hyper.adam_eps, hyper.max_grad_norm)
        self.norm = [float(x) for x in state.value_norm]  # the running mean, mean square and weight
        self.stats, self.agreed = [], {}
        self.alive = trajectory.observation.alive
        self.chunks = [(t, b) for t in range(0, self.num_steps, hyper.chunk) for b in range(self.num_envs)]

    def policy(self, i, t, b, memory):
        """Agent i's distribution over its legal actions, the taken one's place among them, and its next memory."""
        seen = self.data.observation
        if self.data.first[t, b]:
            memory = torch.zeros_like(memory)
        logits, memory = act(self.team[i], self.alive[t, b, i] * self.inputs(i, t, b), memory)
        legal = list(np.flatnonzero(seen.avail[t, b, i]))
        taken = torch.tensor(legal.index(self.data.action[t, b, i]))
        return torch.distributions.Categorical(logits=logits[legal]), taken, memory

    def inputs(self, i, t, b):
        """Observation, last action and agent index, as the options say."""
        data, found = self.data, [real(self.data.observation.obs[t, b, i])]
        if self.hyper.last_action:
            num_actions = data.observation.avail.shape[-1]
            before = np.eye(num_actions)[data.action[t - 1, b, i]] if t else data.memory.last_action[0, b, i]
            found.append(real(np.zeros(num_actions) if data.first[t, b] else before))
        if self.hyper.agent_id:
            found.append(torch.eye(self.num_agents).double()[i])
        return torch.cat(found)

    def along(self, i, chunks):
        """Agent i's live steps, their distributions and the log-probabilities of what it did, chunk by chunk."""
        for start, b in chunks:
            memory = real(self.data.memory.actor[start, b, i])
            for t in range(start, start + self.hyper.chunk):
                policy, taken, memory = self.policy(i, t, b, memory)
                if self.alive[t, b, i]:
                    yield t, b, policy, policy.log_prob(taken)

    # The critic: one value of the team's state, or one of every agent's own. `at` is (environment, [agent]).

    def moments(self):
        mean, square, weight = self.norm
        mean, square = mean / max(weight, 1e-5), square / max(weight, 1e-5)
        return mean, max(square - mean**2, 1e-2) ** 0.5

    def in_rewards(self, value):
        mean, spread = self.moments()
        return value * spread + mean

    def estimate(self):
        """δ_t = r_t + γ V(s_{t+1}) − V(s_t), no future if terminated (or at a time-out, if that is terminal); the sum
        of (γλ)^l δ_{t+l} ends with the episode."""
        data, hyper = self.data, self.hyper
        advantage, target = np.zeros_like(data.record.value), np.zeros_like(data.record.value)
        for t, *at in reversed(list(np.ndindex(advantage.shape))):
            b = at[0]
            after, _ = judge(
                self.critic, real(data.next_observation.state[t, *at]), real(data.memory.critic[t + 1, *at])
            )
            over = data.terminated[t, b] or (hyper.time_limit == "terminal" and data.truncated[t, b])
            future = 0.0 if over else hyper.gamma * self.in_rewards(number(after))
            value = self.in_rewards(data.record.value[t, *at])
            goes_on = t + 1 < self.num_steps and not data.terminated[t, b] and not data.truncated[t, b]
            later = hyper.gamma * hyper.gae_lambda * advantage[t + 1, *at] if goes_on else 0.0
            advantage[t, *at] = data.reward[t, b] + future - value + later
            target[t, *at] = advantage[t, *at] + value
        return advantage, target

    def critic_step(self, chunks, target):
        """ValueNorm sees the targets first; then the larger of the plain and the clipped Huber loss."""
        data, hyper = self.data, self.hyper
        streams = [(range(start, start + hyper.chunk), at) for start, b in chunks for at in self.streams(b)]
        goals = np.array([target[t, *at] for times, at in streams for t in times])
        for k, new in enumerate((goals.mean(), (goals**2).mean(), 1.0)):
            self.norm[k] += (1 - 0.99999) * (new - self.norm[k])
        mean, spread = self.moments()
        losses = []
        for times, at in streams:
            memory = real(data.memory.critic[times[0], *at])
            for t in times:
                if data.first[t, at[0]]:
                    memory = torch.zeros_like(memory)
                value, memory = judge(self.critic, real(data.observation.state[t, *at]), memory)
                old, goal = real(data.record.value[t, *at]), real((target[t, *at] - mean) / spread)
                clipped = old + (value - old).clamp(-hyper.clip, hyper.clip)
                errors = [nn.functional.huber_loss(v, goal, delta=hyper.huber) for v in (value, clipped)]
                losses.append(torch.maximum(*errors))
        loss = torch.stack(losses).mean()
        grads = torch.autograd.grad(loss, self.critic_adam.params)
        norm = self.critic_adam.step(dict(zip(self.critic_adam.params, grads, strict=True)))
        return {"value_loss": number(loss), "critic_grad_norm": norm}

    def streams(self, b):
        return [(b, i) for i in range(self.num_agents)] if self.data.record.value.ndim == 3 else [(b,)]

    # The actors.

    def normalised(self, advantage, per_agent):
        """(Â − mean) / (std + 1e-5) over all agents' live steps, or over each agent's own."""
        whole = np.stack([advantage] * self.num_agents, -1) if advantage.ndim == 2 else advantage.copy()
        for group in [[i] for i in range(self.num_agents)] if per_agent else [list(range(self.num_agents))]:
            counted = np.array([whole[*at, i] for i in group for at in np.argwhere(self.alive[..., i])])
            whole[..., group] = (whole[..., group] - counted.mean()) / (counted.std() + 1e-5)
        return whole

    def live(self, i, chunks):
        return sum(self.alive[start : start + self.hyper.chunk, b, i].sum() for start, b in chunks)

    def ascent(self, i, chunks, advantage, factor, steps):
        """Agent i's gradient of the negated objective: factor · clipped surrogate + entropy, over `steps` steps."""
        hyper, total, kl, clipped, entropy = self.hyper, 0.0, 0.0, 0.0, 0.0
        for t, b, policy, log_prob in self.along(i, chunks):
            change = log_prob - real(self.data.record.log_prob[t, b, i])
            gain, ratio = float(advantage[t, b, i]), change.exp()
            surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - hyper.clip, 1 + hyper.clip) * gain)
            total = total + (float(factor[t, b]) * surrogate + hyper.entropy * policy.entropy()) / steps
            kl += number(ratio - 1 - change) / steps
            clipped += (abs(number(ratio) - 1) > hyper.clip) / steps
            entropy += number(policy.entropy()) / steps
        params = list(self.team[i].values())
        grads = torch.autograd.grad(-total, params) if torch.is_tensor(total) else map(torch.zeros_like, params)
        return dict(zip(params, grads, strict=True)), {"approx_kl": kl, "clip_fraction": clipped, "entropy": entropy}

    def consensus(self, advantage):
        """u*, of every agent's mean of Â ∇log π over its live steps, for its own parameters."""
        if self.hyper.operator == "none":
            return None
        rows = []
        for i in range(self.num_agents):
            steps = list(self.along(i, self.chunks))
            gain = sum(float(advantage[t, b, i]) * log_prob for t, b, _, log_prob in steps) / len(steps)
            rows.append(flat(torch.autograd.grad(gain, own_parameters(self.team, i))))
        weights = shortest(torch.stack(rows).numpy())
        u = real(weights) @ torch.stack(rows)
        self.agreed = {"weights": weights, "u_norm": number(u.norm())}
        return u

    def add(self, u, i, grads):
        if u is None:
            return
        params = own_parameters(self.team, i)
        for p, part in zip(params, u.split([p.numel() for p in params]), strict=True):
            grads[p] = grads[p] - self.hyper.weight * part.reshape(p.shape)


class Mappo(Ppo):
    def __init__(self, hyper, state, trajectory):
        super().__init__(hyper, state, trajectory)
        self.actor_adam = Adam(self.team, hyper.lr, hyper.adam_eps, hyper.max_grad_norm)
        self.adams = [self.actor_adam, self.critic_adam]

    def iterate(self, minibatches):
        advantage, target = self.estimate()
        advantage, whole = self.normalised(advantage, per_agent=False), np.ones((self.num_steps, self.num_envs))
        u = self.consensus(advantage)
        for chunks in minibatches:
            stats = [self.critic_step(chunks, target)]
            grads = {p: torch.zeros_like(p) for p in self.actor_adam.params}
            live = [self.live(i, chunks) for i in range(self.num_agents)]
            if self.hyper.denominator == "common":
                live = [np.mean(live)] * self.num_agents
            for i in range(self.num_agents):
                mine, stat = self.ascent(i, chunks, advantage, whole, max(live[i], 1))
                own = set(own_parameters(self.team, i))
                for p, g in mine.items():
                    grads[p] += g if p in own else g / self.num_agents
                self.add(u, i, grads)
                stats.append(stat)
            norm = self.actor_adam.step(grads)
            self.stats.append(stats[0] | means(stats[1:]) | {"grad_norm": norm})

    def metrics(self):
        return self.agreed | means(self.stats)


class Happo(Ppo):
    def __init__(self, hyper, state, trajectory):
        super().__init__(hyper, state, trajectory)
        self.actor_adams = [Adam([net], hyper.lr, hyper.adam_eps, hyper.max_grad_norm) for net in self.team]
        self.adams = [*self.actor_adams, self.critic_adam]
        self.compound = np.ones((self.num_steps, self.num_envs))

    def iterate(self, turns, critic_minibatches):
        """`turns` are pairs of an agent and its minibatches."""
        advantage, target = self.estimate()
        advantage = self.normalised(advantage, per_agent=advantage.ndim == 2)
        u = self.consensus(advantage)
        for i, minibatches in turns:
            for chunks in minibatches:
                grads, stat = self.ascent(i, chunks, advantage, self.compound, max(self.live(i, chunks), 1))
                self.add(u, i, grads)
                self.stats.append(stat | {"grad_norm": self.actor_adams[i].step(grads)})
            self.compound = self.compound * self.change(i)
        self.critic_stats = [self.critic_step(chunks, target) for chunks in critic_minibatches]

    def change(self, i):
        """π_new / π_old of what agent i did, the new policy along the whole rollout; 1 where it was dead."""
        found = np.ones((self.num_steps, self.num_envs))
        for b in range(self.num_envs):
            memory = real(self.data.memory.actor[0, b, i])
            for t in range(self.num_steps):
                policy, taken, memory = self.policy(i, t, b, memory)
                if self.alive[t, b, i]:
                    log_prob = number(policy.log_prob(taken))
                    found[t, b] = np.exp(log_prob - self.data.record.log_prob[t, b, i])
        return found

    def metrics(self):
        found = self.agreed | means(self.stats) | means(self.critic_stats)
        return found | {"compound_ratio_max": self.compound.max()}


class Qmix:
    """Double-Q and TD(λ) on whole episodes. An episode is a dict of lists over time."""

    def __init__(self, hyper, num_agents, state):
        self.hyper, self.num_agents = hyper, num_agents
        self.team, self.mixer = team_of(state.agent, hyper.sharing, num_agents), net_of(state.mixer)
        self.target = team_of(state.target.agent, hyper.sharing, num_agents), net_of(state.target.mixer)
        self.adam = Adam([*self.team, self.mixer], hyper.lr, hyper.adam_eps, hyper.max_grad_norm)
        self.adams = [self.adam]
        self.running, self.episodes, self.copied, self.stats = {}, [], 0, []

    def store(self, data):
        """The rollout's steps join the running episodes of their environments, in the order in which they end."""
        for t, b in np.ndindex(data.reward.shape):
            if data.first[t, b] or b not in self.running:
                self.running[b] = {"seen": [], "action": [], "reward": []}
            episode = self.running[b]
            episode["seen"].append(look(data.observation, t, b))
            episode["action"].append(data.action[t, b])
            episode["reward"].append(data.reward[t, b])
            if data.terminated[t, b] or data.truncated[t, b]:
                episode["seen"].append(look(data.next_observation, t, b))
                episode["terminated"] = bool(data.terminated[t, b])
                self.episodes.append(self.running.pop(b))

    def values(self, team, episode):
        """Q_i(·) at every time step, the last included: [time step][agent]."""
        along = []
        for i, net in enumerate(team):
            memory, last = (torch.zeros(size).double() for size in net["head.weight"].shape)
            each = []
            for t, (obs, *_) in enumerate(episode["seen"]):
                seen = [real(obs[i])] + [last] * self.hyper.last_action
                seen += [torch.eye(self.num_agents).double()[i]] * self.hyper.agent_id
                q, memory = act(net, torch.cat(seen), memory)
                each.append(q)
                if t < len(episode["action"]):
                    last = torch.eye(len(q)).double()[episode["action"][t][i]]
            along.append(each)
        return list(zip(*along, strict=True))

    def errors(self, episode):
        """Q_tot and its TD(λ) target at every step."""
        hyper, steps = self.hyper, len(episode["action"])
        values = self.values(self.team, episode)
        with torch.no_grad():
            judged = []
            for now, other, (_, state, avail) in zip(
                values, self.values(self.target[0], episode), episode["seen"], strict=True
            ):
                best = [
                    max(np.flatnonzero(legal), key=lambda a, q=q: q[a]) for q, legal in zip(now, avail, strict=True)
                ]
                picked = torch.stack([q[a] for q, a in zip(other, best, strict=True)])
                judged.append(float(mix(self.target[1], picked, real(state))))
        team, goals = [], [0.0] * steps
        for t in reversed(range(steps)):
            ahead = judged[t + 1]
            if t == steps - 1:
                ahead *= 0.0 if episode["terminated"] or hyper.time_limit == "terminal" else 1.0
            else:
                ahead = (1 - hyper.td_lambda) * ahead + hyper.td_lambda * goals[t + 1]
            goals[t] = hyper.reward_scale * episode["reward"][t] + hyper.gamma * ahead
        for t in range(steps):
            done = torch.stack([q[a] for q, a in zip(values[t], episode["action"][t], strict=True)])
            team.append(mix(self.mixer, done, real(episode["seen"][t][1])))
        return torch.stack(team), real(goals)

    def learn(self, numbers):
        """One step on the episodes of these numbers."""
        pairs = [self.errors(self.episodes[n]) for n in numbers]
        team, goal = (torch.cat(x) for x in zip(*pairs, strict=True))
        loss = 0.5 * ((team - goal) ** 2).mean()
        grads = dict(zip(self.adam.params, torch.autograd.grad(loss, self.adam.params), strict=True))
        stat = {"loss": loss, "td_error": (team - goal).abs().mean(), "q_team": team.mean(), "target": goal.mean()}
        if self.hyper.operator != "none":
            stat["factors"] = self.realign(grads)
        self.stats.append({k: v.detach().numpy() for k, v in stat.items()} | {"grad_norm": self.adam.step(grads)})
        if len(self.episodes) - self.copied >= self.hyper.target_interval:
            self.target, self.copied = copy.deepcopy((self.team, self.mixer)), len(self.episodes)

    def realign(self, grads):
        """Γ_i (g_i + u*) with Γ_i = (‖u*‖² + g_i·u*) / (‖g_i‖² + ‖u*‖²); of the loss, so every sign is turned."""
        params = [own_parameters(self.team, i) for i in range(self.num_agents)]
        rows = torch.stack([flat([grads[p] for p in own]) for own in params])
        u = real(shortest(rows.numpy())) @ rows
        factors = (u @ u + rows @ u) / ((rows**2).sum(1) + u @ u)
        for own, row, factor in zip(params, rows, factors, strict=True):
            for p, part in zip(own, (factor * (row + u)).split([p.numel() for p in own]), strict=True):
                grads[p] = part.reshape(p.shape)
        return factors

    def metrics(self):
        return means(self.stats)


def look(seen, t, b):
    """What the team sees: observations, zeros for the dead; the state; the legal actions."""
    return seen.obs[t, b] * seen.alive[t, b][:, None], seen.state[t, b], seen.avail[t, b]

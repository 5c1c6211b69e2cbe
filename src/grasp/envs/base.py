"""The environment contract, once, and the registry that turns a name into an environment.

An environment is an `Env`: a spec and two pure functions for one copy of it, usable under `jit` and `vmap`.

- `reset(key) -> (env_state, observation)` and `step(env_state, action[N], key) -> (env_state, step)`.
- `Step.observation` is always the true next observation. The environment never resets itself: the collector does,
  so the final observation is kept and no reset is computed at a step that needs none.
- `terminated` means the task ended (nothing more could be earned); `truncated` means only the clock stopped it, after
  exactly `spec.horizon` steps. At most one of them is true. `won` may be true only on a terminated step (or on a
  truncated one where the task itself counts it), and never where `spec.has_wins` is false.
- `reward` is the team's, one float32 scalar. An adapter says in its docstring how it was made from per-agent rewards.
- `avail[N, a]` has a legal action for every agent, dead ones too. A dead agent's `obs` row may hold anything finite:
  algorithms mask it with `alive`.
- Agents of different sizes are padded to the largest: observation rows with zeros, actions through `avail`.
- `obs` and `state` are float32, `avail` and `alive` bool, shapes as `spec` says. Stepping a finished episode is legal
  and ignored by the caller.

A family is a module with `names() -> list[str]` and `make(task) -> Env`; the spec's name is `family/task`.
"""

"""The replay buffer on disk: each episode once, without padding, restored exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import assert_close

from grasp.algos import replay_buffer
from grasp.runs import checkpoint, replay_store
from grasp.types import EnvSpec, Observation, Trajectory

SPEC = EnvSpec("toy", num_agents=2, obs_dim=3, state_dim=4, num_actions=5, horizon=6)
CAPACITY, NUM_ENVS, STEPS = 12, 3, 4


def rollout(seed):
    """Random numbers, with episodes of random lengths up to the horizon."""
    rng = np.random.default_rng(seed)
    shape = (STEPS, NUM_ENVS)

    def seen():
        return Observation(
            jnp.asarray(rng.normal(size=(*shape, 2, 3)), jnp.float32),
            jnp.asarray(rng.normal(size=(*shape, 4)), jnp.float32),
            jnp.asarray(rng.random((*shape, 2, 5)) < 0.7),
            jnp.ones((*shape, 2), bool),
        )

    terminated = jnp.asarray(rng.random(shape) < 0.4)
    return Trajectory(
        observation=seen(), memory=(), first=jnp.zeros(shape, bool), record=(),
        action=jnp.asarray(rng.integers(5, size=(*shape, 2)), jnp.int32),
        reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
        terminated=terminated, truncated=~terminated & (jnp.arange(STEPS)[:, None] == 1),
        next_observation=seen(),
    )  # fmt: skip


def history(number):
    """Replay buffers after each of several rollouts."""
    found, append = replay_buffer.empty(SPEC, CAPACITY, NUM_ENVS), jax.jit(replay_buffer.append)
    for seed in range(number):
        found = append(found, rollout(seed))
        yield found


def save(folder, held):
    replay_store.append(folder, jax.tree.map(lambda x: x[None], held), 0, int(held.finished))


def played(held, numbers):
    """Finished episodes without padding."""
    return replay_store.packed(jax.device_get(replay_buffer.numbered(held, jnp.asarray(numbers))))


def test_a_replay_buffer_is_restored_and_continues_exactly(tmp_path):
    append = jax.jit(replay_buffer.append)
    for step, held in enumerate(history(9)):
        save(tmp_path, held)
        back = replay_store.restore(tmp_path, jax.device_get(replay_buffer.checkpointed(held)), CAPACITY)
        for _ in range(2):
            numbers = range(max(0, int(held.finished) - CAPACITY), int(held.finished))
            assert back.finished == held.finished
            assert_close(played(back, list(numbers)), played(held, list(numbers)))
            assert_close(replay_buffer.checkpointed(back), replay_buffer.checkpointed(held)) if _ == 0 else None
            held, back = append(held, rollout(100 + step)), append(back, rollout(100 + step))
    assert held.finished > 2 * CAPACITY


def test_a_segment_is_written_once_and_has_no_padding(tmp_path):
    seen = {}
    for held in history(4):
        save(tmp_path, held)
        for path in replay_store.stored(tmp_path):
            stamp = (path.stat().st_ino, path.stat().st_mtime_ns)
            assert seen.setdefault(path.name, stamp) == stamp
    spans = [replay_store.span_of(path) for path in replay_store.stored(tmp_path)]
    assert spans[0][0] == 0
    assert all(end == first for (_, end), (first, _) in zip(spans, spans[1:], strict=False))
    assert len(spans) == 4
    arrays, _ = checkpoint.read(replay_store.stored(tmp_path)[-1])
    lengths = arrays[".length"]
    assert arrays[".reward"].shape == (lengths.sum(),)
    assert arrays[".obs"].shape == (lengths.sum() + len(lengths), 2, 3)
    assert lengths.sum() < len(lengths) * SPEC.horizon


def test_segments_after_the_checkpoint_are_removed_and_old_ones_pruned(tmp_path):
    held = list(history(6))
    for one in held:
        save(tmp_path, one)
    tail = jax.device_get(replay_buffer.checkpointed(held[3]))
    replay_store.restore(tmp_path, tail, CAPACITY)
    assert replay_store.span_of(replay_store.stored(tmp_path)[-1])[1] == int(held[3].finished)
    replay_store.prune(tmp_path, int(held[1].finished))
    assert replay_store.span_of(replay_store.stored(tmp_path)[0])[0] == int(held[1].finished)


@pytest.mark.parametrize("fault", ["lost", "torn", "changed"])
def test_a_missing_or_damaged_segment_is_detected(tmp_path, fault):
    held = list(history(5))
    for one in held:
        save(tmp_path, one)
    victim = replay_store.stored(tmp_path)[-2]
    data = bytearray(victim.read_bytes())
    data[-3] ^= 1
    victim.unlink() if fault == "lost" else victim.write_bytes(data if fault == "changed" else data[:-20])
    with pytest.raises(checkpoint.Damaged, match="lacks|damaged|cannot be read"):
        replay_store.restore(tmp_path, jax.device_get(replay_buffer.checkpointed(held[-1])), CAPACITY)


def test_more_episodes_than_the_buffer_holds_may_finish_between_two_checkpoints(tmp_path):
    held = list(history(9))
    save(tmp_path, held[0])
    save(tmp_path, held[-1])
    back = replay_store.restore(tmp_path, jax.device_get(replay_buffer.checkpointed(held[-1])), CAPACITY)
    numbers = list(range(int(held[-1].finished) - CAPACITY, int(held[-1].finished)))
    assert_close(played(back, numbers), played(held[-1], numbers))

"""A share of the episodes on the device: the number of updates alone decides which, and all have their turn."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.data.chunk_writer import write_chunk
from dreamproof.data.library import EpisodeLibrary, RecordedEpisodes
from dreamproof.data.recordings import Recording, write_recording
from dreamproof.envs import registry
from dreamproof.settings.cell import BehaviorDraws, PwmOfflineCell
from dreamproof.settings.recorded import RecordedData
from dreamproof.train.offline import sample_steps, sample_windows
from dreamproof.train.offline_pack import OfflinePack, draw_steps, make_offline_pack
from dreamproof.train.streaming import SHARDS, EpisodeRing, StreamedData, episodes_needed, on_device

EPISODES, LENGTH, SHARE = 90, 6, 32
TASKS = ("ProbeTarget", "ProbeRecall")
MODEL_UPDATES, UPDATES, REFRESH = 23, 40, 4


def recording(episodes: int = EPISODES, ends_early: bool = True) -> Recording:
    """Episodes that can be recognised by their values; every third is of the first task, some may end early."""
    number = np.arange(episodes)
    values = number[:, None] + np.linspace(0.0, 0.5, LENGTH)[None]
    observation = np.stack([values, -values], axis=-1).astype(np.float32)
    rows = np.where(ends_early & (number % 5 == 0), 4, LENGTH)
    task = (number % 3 > 0).astype(int)
    return Recording(observation, observation[..., :1] / episodes, values.astype(np.float32), task, rows, rows < LENGTH)


@pytest.fixture(params=["npz", "pt"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedData:
    """Two files of one form; episodes of a chunk never end early."""
    is_chunk = request.param == "pt"
    write = write_chunk if is_chunk else write_recording
    files = [tmp_path / f"{number}.{request.param}" for number in range(2)]
    for number, file in enumerate(files):
        write(file, recording(EPISODES - 30 * number, not is_chunk))
    return RecordedData(
        files=tuple(map(str, files)),
        tasks=TASKS,
        observation_size=2,
        action_size=1,
        device_episodes=SHARE,
        refresh_updates=REFRESH,
    )


def ring_of(data: RecordedData) -> EpisodeRing:
    library = EpisodeLibrary(data)
    return EpisodeRing(library, np.arange(len(library)), library.tasks, SHARE)


def equal(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_episodes_of_all_files_are_loaded_by_their_numbers(data: RecordedData) -> None:
    library = EpisodeLibrary(data)
    whole = library.load(np.arange(len(library)))
    assert len(library) == 2 * EPISODES - 30
    chosen = np.array([3, EPISODES + 1, 7, EPISODES + 40])
    equal(library.load(chosen), RecordedEpisodes(*(part[chosen] for part in whole)))
    assert whole.observation[3, 0, 0] == 3.0 and whole.observation[EPISODES + 1, 0, 0] == 1.0


def test_what_is_held_depends_on_the_number_of_refreshes_alone(data: RecordedData) -> None:
    steps = ring_of(data)
    for refreshes in range(12):
        held, numbers = steps.after(refreshes)
        again, same_numbers = ring_of(data).after(refreshes)
        equal(held, again)
        equal(numbers, same_numbers)
    back, _ = steps.after(2)
    equal(back, ring_of(data).after(2)[0])
    assert steps.after(3)[0].reward.shape == (SHARE, LENGTH)


def test_every_refresh_replaces_one_shard(data: RecordedData) -> None:
    ring = ring_of(data)
    before, after = (np.asarray(ring.after(refreshes)[0].observation) for refreshes in (5, 6))
    size = SHARE // SHARDS
    changed = (before != after).reshape(SHARDS, -1).any(1)
    assert changed.nonzero()[0].tolist() == [5 % SHARDS]
    assert size == 2


def test_every_episode_has_its_turn_once_a_round(data: RecordedData) -> None:
    ring = ring_of(data)
    shards = len(ring.chosen) // ring.shard_episodes
    first, second = (
        np.concatenate([ring.numbers(shard) for shard in range(start, start + shards)]) for start in (0, shards)
    )
    assert sorted(first) == sorted(second) == ring.chosen.tolist()
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("counts", [[3, 40], [1, 1, 1], [200, 5, 95, 5], [1000] * 7 + [17]])
def test_as_many_episodes_as_are_needed_hold_some_of_every_kind_at_any_time(counts: list[int]) -> None:
    kinds = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    needed = episodes_needed(kinds)
    ring = EpisodeRing.__new__(EpisodeRing)
    ring.chosen, ring.kinds = np.arange(len(kinds)), kinds
    order = kinds[np.concatenate([ring._order(number) for number in range(20)])]
    for kind in range(len(counts)):
        places = np.flatnonzero(order == kind)
        longest_wait = max(places[0], np.diff(places).max() - 1) if len(places) > 1 else len(order)
        assert longest_wait < needed, kind
    assert needed % SHARDS == 0 and needed <= 2 * len(kinds) / min(counts) + len(counts) + SHARDS


def test_a_share_that_may_miss_a_task_is_refused_at_the_start(data: RecordedData) -> None:
    with pytest.raises(BadInput, match="16 of 150 episodes may hold none of a task") as error:
        StreamedData(EpisodeLibrary(data.model_copy(update={"device_episodes": 16})), [0, 1], 3, 0, rare(150))
    needed = int(error.value.hint.removeprefix("set data.device_episodes: "))
    enough = data.model_copy(update={"device_episodes": needed})
    StreamedData(EpisodeLibrary(enough), [0, 1], 3, 0, rare(150))


def rare(count: int) -> np.ndarray:
    """Every twentieth episode is cloned."""
    return np.arange(count) % 20 < 2


def test_what_is_drawn_from_has_one_size_whatever_the_share_holds(data: RecordedData) -> None:
    library = EpisodeLibrary(data.model_copy(update={"device_episodes": 48}))
    stream = StreamedData(library, [0, 1], 3, 0, np.arange(len(library)) % 7 < 2)
    seen = [stream.at(refreshes * REFRESH) for refreshes in range(30)]
    assert all(each.copied is not None for each in seen)
    shapes = {str(jax.tree.map(jnp.shape, each)) for each in seen}
    assert len(shapes) == 1
    cloned = {
        int((np.asarray(each.copied.windows.until)[:-1] != each.copied.last[-1]).sum()) for each in seen if each.copied
    }
    assert len(cloned) > 1, "the numbers of episodes must differ, or nothing was tested"


def test_a_faulty_episode_is_found_before_its_turn(data: RecordedData, tmp_path: Path) -> None:
    broken = recording()
    broken.reward[EPISODES - 1, 3] = np.nan
    write_recording(tmp_path / "broken.npz", broken._replace(rows=np.full(EPISODES, LENGTH)))
    with pytest.raises(BadInput, match=r"broken\.npz: 1 of"):
        pack_of(data.model_copy(update={"files": (str(tmp_path / "broken.npz"),)}))


def test_values_that_float16_cannot_hold_are_refused(tmp_path: Path, data: RecordedData) -> None:
    large = recording()
    large.observation[3, 1] = 1e5
    write_recording(tmp_path / "large.npz", large)
    stored = data.model_copy(update={"files": (str(tmp_path / "large.npz"),), "storage": "float16"})
    with pytest.raises(BadInput, match="a recorded value of 100000 is above its largest, 65,504"):
        EpisodeLibrary(stored).check()
    EpisodeLibrary(stored.model_copy(update={"storage": "bfloat16"})).check()


def test_windows_of_the_share_are_complete(data: RecordedData) -> None:
    pack = pack_of(data)
    assert pack.stream is not None
    held, index, *_ = pack.stream.at(9 * REFRESH)
    np.testing.assert_array_equal(index.windows, np.asarray(held.rows) - 2)
    assert int(index.until[-1]) == int((np.asarray(held.rows) - 2).sum())


class CountState(NamedTuple):
    weight: jax.Array
    gradient_steps: jax.Array
    finite: jax.Array


class CountingAgent:
    """Adds up what it is shown, so that two runs are equal only if they learned from the same windows."""

    settings = None
    model_fields = ("weight",)

    def init_state(self, key: jax.Array) -> CountState:
        return CountState(jnp.zeros(2), jnp.ones((), jnp.int32), jnp.asarray(True))

    def init_memory(self, envs: int) -> jax.Array:
        return jnp.zeros(envs)

    def act(self, state: Any, memory: Any, seen: Any, key: Any, scalars: Any, explore: bool) -> Any:
        raise NotImplementedError

    def update(self, state: Any, batch: Any, key: Any, scalars: Any, progress: Any) -> Any:
        raise NotImplementedError

    def update_model(self, state: Any, batch: Any, key: Any, scalars: Any, progress: Any) -> Any:
        seen = batch.observation[..., 0].sum()
        return state._replace(weight=0.9 * state.weight + jnp.stack([seen, 0.0])), {"seen": seen}

    def update_behavior(self, state: Any, steps: Any, key: Any, scalars: Any, progress: Any) -> Any:
        # Every third episode is of the own task, so its numbers are multiples of three.
        first = steps.observation[:, 0]
        other = jnp.abs(jnp.round(jnp.floor(first)) % 3).sum()
        return state._replace(weight=0.9 * state.weight + jnp.stack([first.sum(), other])), {"other": other}


def pack_of(data: RecordedData) -> OfflinePack:
    behavior = {"warm_up_epochs": MODEL_UPDATES, "replayed_starts": 8}
    cell = PwmOfflineCell.model_validate(
        {
            "agent": {"world_model": {"tasks": 2, "task_size": 4}, "behavior": behavior},
            "train": {"batch": 4, "window": 3},
            "data": data.model_dump(),
        }
    )
    return make_offline_pack(CountingAgent(), registry.make(TASKS[0]), cell, [0, 1], {}, UPDATES)  # type: ignore[arg-type]


def trained(data: RecordedData, *counts: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Weights after so many updates, with another pack for every count, as after resuming."""
    state, metrics = pack_of(data).init(), {}
    for count in counts:
        state, metrics = pack_of(data).chunk(state, count)
    return np.asarray(state.agent.weight), metrics


def test_resuming_within_the_stream_is_exact_in_both_stages(data: RecordedData) -> None:
    whole, metrics = trained(data, UPDATES)
    parts, _ = trained(data, 2, 9, 12, 5, 12)
    np.testing.assert_array_equal(whole, parts)
    assert metrics["seen"].shape == metrics["other"].shape == (1, 2)
    assert whole[0, 0] != whole[1, 0]


def test_the_behaviour_starts_in_episodes_of_its_own_task(data: RecordedData) -> None:
    _, metrics = trained(data, UPDATES)
    assert not metrics["other"].any()


@pytest.mark.parametrize("share", [SHARE, 1000])
def test_actions_are_copied_from_the_best_episodes_alone(data: RecordedData, share: int) -> None:
    """The later an episode stands in its file, the higher is its return."""
    pack = pack_of(data.model_copy(update={"device_episodes": share, "cloning_share": 0.5}))
    recorded = pack.inputs.recorded if pack.stream is None else pack.stream.at(MODEL_UPDATES)
    assert recorded.copied is not None
    steps = sample_steps(recorded.episodes, recorded.own_tasks, jax.random.key(0), 200)
    copied = sample_steps(recorded.episodes, recorded.copied, jax.random.key(0), 200)
    assert float(copied.observation[..., 0].min()) > 20 > float(steps.observation[..., 0].min())
    np.testing.assert_allclose(np.floor(EPISODES * copied.action[..., 0]) % 3, 0, atol=3)


def test_an_update_draws_what_is_declared_from_the_declared_episodes(data: RecordedData) -> None:
    pack = pack_of(data.model_copy(update={"device_episodes": 1000, "cloning_share": 0.5}))
    recorded, key = pack.inputs.recorded, jax.random.key(0)
    plain = draw_steps(recorded, BehaviorDraws(50, copied_starts=False, cloned=None, windows=0), key, 3)
    own = sample_steps(recorded.episodes, recorded.own_tasks, key, 50)
    copied = sample_steps(recorded.episodes, recorded.copied, jax.random.fold_in(key, 1), 50)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(own._replace(copied=copied)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert float(plain.observation[..., 0].min()) < 20
    drawn = draw_steps(recorded, BehaviorDraws(50, copied_starts=True, cloned=70, windows=60), key, 3)
    assert drawn.copied is not None and drawn.windows is not None
    assert (drawn.observation.shape[1], drawn.copied.action.shape[1]) == (50, 70)
    assert drawn.windows.reward.shape == (len(drawn.observation), 3, 60)
    for seen in (drawn.observation, drawn.copied.observation, drawn.windows.observation):
        assert float(seen[..., 0].min()) > 20
    # The action of a row led to it, so that of a window's second row was taken in the first.
    again = sample_steps(recorded.episodes, recorded.copied, jax.random.fold_in(key, 2), 60)
    np.testing.assert_array_equal(drawn.windows.observation[:, 0], again.observation)
    np.testing.assert_array_equal(drawn.windows.action[:, 1], again.action)


def test_a_number_of_cloned_states_holds_without_a_share_too(data: RecordedData) -> None:
    recorded = pack_of(data.model_copy(update={"device_episodes": 1000})).inputs.recorded
    drawn = draw_steps(recorded, BehaviorDraws(5, copied_starts=True, cloned=9, windows=0), jax.random.key(0), 3)
    assert drawn.copied is not None and drawn.copied.action.shape[1] == 9 and drawn.windows is None


@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_the_host_holds_values_in_the_type_of_the_device(
    data: RecordedData, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = EpisodeLibrary(data.model_copy(update={"storage": storage}))
    whole, kinds, load = library.load(np.arange(len(library))), [], library.load

    def watched(*asked: Any) -> RecordedEpisodes:
        found = load(*asked)
        kinds.extend(str(part.dtype) for part in found[:3])
        return found

    monkeypatch.setattr(library, "load", watched)
    held = on_device(library, np.arange(len(library)))
    assert kinds == [storage] * 3
    for part, expected in zip(held[:3], whole[:3], strict=True):
        np.testing.assert_array_equal(part, jnp.asarray(expected).astype(storage))


def test_without_a_share_all_actions_may_be_copied(data: RecordedData) -> None:
    pack = pack_of(data)
    assert pack.stream is not None and pack.stream.at(MODEL_UPDATES).copied is None


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_the_next_shard_waits_on_the_device(data: RecordedData, storage: str) -> None:
    ring = ring_of(data.model_copy(update={"storage": storage}))
    ring.after(0)
    assert ring._next is not None
    waiting = ring._next[1].result()
    assert all(isinstance(part, jax.Array) for part in waiting) and str(waiting.observation.dtype) == storage
    held, _ = ring.after(1)
    np.testing.assert_array_equal(held.observation[: len(waiting.observation)], waiting.observation)


@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_values_are_kept_in_half_the_memory_and_used_in_full_precision(data: RecordedData, storage: str) -> None:
    for share in (SHARE, 1000):
        pack = pack_of(data.model_copy(update={"storage": storage, "device_episodes": share}))
        recorded = pack.inputs.recorded if pack.stream is None else pack.stream.at(MODEL_UPDATES)
        held, index, tasks, _ = recorded
        assert {str(part.dtype) for part in held[:3]} == {storage}
        windows = sample_windows(held, index, jax.random.key(0), (3, 8))
        steps = sample_steps(held, tasks, jax.random.key(0), 8)
        assert {str(part.dtype) for part in (*windows[:3], *steps[:2])} == {"float32"}
        whole, _ = trained(data, UPDATES)
        half, _ = trained(data.model_copy(update={"storage": storage}), UPDATES)
        np.testing.assert_allclose(half, whole, rtol=0.01)


def test_a_share_that_holds_everything_is_not_streamed(data: RecordedData) -> None:
    pack = pack_of(data.model_copy(update={"device_episodes": 1000}))
    assert pack.stream is None and pack.inputs.recorded.episodes.reward.shape[0] == 2 * EPISODES - 30


def test_an_episode_that_is_not_finite_is_refused_when_its_turn_comes(tmp_path: Path) -> None:
    made = recording()
    made.observation[41, 1] = np.nan
    write_recording(tmp_path / "bad.npz", made)
    data = RecordedData(
        files=(str(tmp_path / "bad.npz"),), tasks=TASKS, observation_size=2, action_size=1, device_episodes=SHARE
    )
    ring = ring_of(data)
    with pytest.raises(BadInput, match="hold values that are not finite"):
        for refreshes in range(EPISODES):
            ring.after(refreshes)

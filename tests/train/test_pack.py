"""Packs: a replica trains as it would alone, and an env whose episode ended starts anew without the others."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from tests.tiny import AGENT_STEPS, CELLS, TASK, make_pack, make_pwm_pack, merged, tiny_cell, tiny_pwm_cell, with_inputs

from dreamproof.envs import registry
from dreamproof.envs.episodes import episode_keys
from dreamproof.envs.probes import PROBES, CreditProbe, SurviveProbe
from dreamproof.envs.wrappers import AutoReset
from dreamproof.settings.traced import static_key, traced_values
from dreamproof.settings.train import EpochTrain
from dreamproof.train.log import MetricSums
from dreamproof.train.pack import Pack, PackState, draw_factors
from dreamproof.train.replay import SCALARS

pytestmark = [pytest.mark.xdist_group("trained"), pytest.mark.long(300)]

CHUNK = 2
# Fresh networks value all candidates alike, and a last bit decides which is best; their mean does not jump.
MEAN: dict[str, Any] = {"planner": {"execute_best": 0.0}}
PREFILL = 20


@pytest.fixture(scope="module")
def alone() -> Pack:
    """One cell."""
    return make_pack(registry.make(TASK), [tiny_cell(MEAN)], [0], AGENT_STEPS)


@pytest.fixture(scope="module")
def started(alone: Pack) -> Any:
    """Makes a state of `alone` with a prefilled replay and one chunk trained; compiled functions take states away."""

    def start() -> PackState:
        state, _ = alone.prefill(alone.init(), PREFILL)
        return alone.chunk(state, CHUNK)[0]

    return start


def replica(tree: Any, index: int) -> list[np.ndarray]:
    """All arrays of one replica."""
    return [np.asarray(leaf[index]) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def test_a_replica_in_a_pack_of_three_equals_the_same_one_trained_alone(started: Any, pack_of_three: Pack) -> None:
    seeds, changes = zip(*(CELLS[name] for name in ("full", "baseline", "full")), strict=True)
    three = with_inputs(pack_of_three, [tiny_cell(merged(change, MEAN)) for change in changes], seeds)
    state, _ = three.prefill(three.init(), PREFILL)
    state, _ = three.chunk(state, CHUNK)
    single = started()
    assert int(single.agent.gradient_steps[0]) == CHUNK
    np.testing.assert_allclose(state.replay.rows[1], single.replay.rows[0], rtol=1e-5, atol=1e-6)
    for packed, by_itself in zip(replica(state.agent, 1), replica(single.agent, 0), strict=True):
        np.testing.assert_allclose(packed, by_itself, rtol=1e-5, atol=2e-6)


def test_a_replica_does_not_depend_on_who_is_in_its_pack(pack_of_three: Pack) -> None:
    found = []
    for names in (("full", "baseline", "wild"), ("wild", "baseline", "full")):
        seeds, changes = zip(*(CELLS[name] for name in names), strict=True)
        pack = with_inputs(pack_of_three, [tiny_cell(change) for change in changes], seeds)
        state, _ = pack.prefill(pack.init(), PREFILL)
        for _ in range(5):
            state, _ = pack.chunk(state, CHUNK)
        np.testing.assert_array_equal(state.agent.finite, [name != "wild" for name in names])
        found.append((replica(state.agent, 1), np.asarray(state.replay.rows[1])))
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_training_twice_gives_the_same_bits(started: Any) -> None:
    for one, other in zip(replica(started().agent, 0), replica(started().agent, 0), strict=True):
        np.testing.assert_array_equal(one, other)


def types_of(tree: Any) -> dict[str, Any]:
    """What decides whether a compiled program fits: shape, dtype, and whether the dtype is weak."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    shaped = {path: leaf for path, leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct)}
    assert shaped
    return {jax.tree_util.keystr(path): (leaf.shape, leaf.dtype, leaf.weak_type) for path, leaf in shaped.items()}


@pytest.mark.parametrize("agent", ["dreamer", "pwm"])
def test_the_program_of_the_first_chunk_serves_all_others(alone: Pack, agent: str) -> None:
    pack = alone if agent == "dreamer" else make_pwm_pack(registry.make(TASK), [tiny_pwm_cell()], [0], AGENT_STEPS)
    fresh = eqx.filter_eval_shape(pack._init, pack.inputs)
    prefilled = eqx.filter_eval_shape(lambda state: pack._prefill(pack.inputs, state, PREFILL)[0], fresh)
    train = pack._epoch if pack.epoch_env_steps else lambda inputs, state: pack._chunk(inputs, state, CHUNK)
    trained = eqx.filter_eval_shape(lambda state: train(pack.inputs, state)[0], prefilled)
    assert not any(weak for *_, weak in types_of(fresh).values()), "a restored state has no weak types"
    assert types_of(prefilled) == types_of(fresh)
    assert types_of(trained) == types_of(prefilled)
    if agent == "dreamer":
        played = eqx.filter_eval_shape(
            pack._evaluate, pack.inputs, trained.agent, pack.env.default_params(), episode_keys(0, "calibration", 4)
        )
        assert types_of(eqx.filter_eval_shape(pack._calibrate, trained.agent, played)) == types_of(trained.agent)


def test_one_long_chunk_of_randomness_depends_on_the_step_not_on_the_call(alone: Pack) -> None:
    whole, _ = alone.prefill(alone.init(), 2 * PREFILL)
    halves, _ = alone.prefill(alone.prefill(alone.init(), PREFILL)[0], PREFILL)
    jax.tree.map(np.testing.assert_array_equal, whole.replay, halves.replay)
    assert int(whole.env_steps) == int(halves.env_steps) == 2 * PREFILL


def test_episodes_of_one_length_end_together_and_leave_both_observations(alone: Pack) -> None:
    state, metrics = alone.prefill(alone.init(), 25)
    np.testing.assert_array_equal(np.flatnonzero(metrics["episode/done"][:, 0]), [9, 19])
    assert float(metrics["episode/done"][9, 0]) == alone.envs
    # 25 steps, the very first observation, and one after each of two ends.
    assert int(state.replay.written) == 25 + 1 + 2
    first = np.asarray(state.replay.rows)[0, :, :28, -len(SCALARS) + SCALARS.index("first")]
    np.testing.assert_array_equal(np.flatnonzero(first.all(0)), [0, 11, 22])
    assert first.sum() == 3 * alone.envs


def test_host_memory_does_not_grow(alone: Pack, started: Any) -> None:
    state, sums, process = started(), MetricSums(1), psutil.Process()
    megabytes = []
    for index in range(300):
        state, metrics = alone.chunk(state, CHUNK)
        sums.add(jax.device_get(metrics))
        if index >= 100:
            megabytes.append(process.memory_info().rss / 2**20)
    slope = np.polyfit(np.arange(len(megabytes)) * CHUNK / 1000, megabytes, 1)[0]
    # A miniature of benchmarks/memory.py: over 400 updates one page more or less is already visible.
    assert slope < 5.0, f"{slope:.2f} MB per 1,000 updates"


class Lives(SurviveProbe):
    """Stays alive for as many steps as the env's own noise says."""

    def step_one(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """Ends at random, whatever is done; the observation counts the steps of the episode."""
        doomed = jnp.where(jax.random.bernoulli(key, 0.2), -1.0, 1.0)
        state, shown = super().step_one(key, state, doomed[None], params)
        return state, shown._replace(observation=state.agent_steps[None].astype(jnp.float32))


class Idle:
    """An agent that knows nothing; enough for random actions."""

    def init_state(self, key: Any) -> Any:
        """Nothing is learned."""
        return jnp.zeros(())

    def init_memory(self, envs: int) -> Any:
        """Nothing is remembered."""
        return jnp.zeros(envs)


def lives_pack(seeds: list[int]) -> Pack:
    """Replicas that play Lives with random actions."""
    return Pack(Idle(), Lives(), tiny_cell().train, seeds, {}, 400)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def lives() -> tuple[PackState, dict[str, np.ndarray], int]:
    """Rows of forty steps of a task that terminates, and what was logged of its episodes."""
    pack = lives_pack([0, 1])
    state, metrics = pack.prefill(pack.init(), 40)
    return state, jax.device_get(metrics), pack.envs


def columns(state: PackState) -> dict[str, np.ndarray]:
    """Named columns (R, N, T) of what was written."""
    rows = np.asarray(state.replay.rows)[:, :, : int(state.replay.written)]
    named = {name: rows[..., -len(SCALARS) + place] for place, name in enumerate(SCALARS)}
    return named | {"observation": rows[..., 0], "action": rows[..., 1]}


def test_every_env_starts_anew_by_itself_after_its_termination(lives: Any) -> None:
    state, _, _ = lives
    seen = columns(state)
    assert seen["reward"].shape[-1] == 41
    ended = (seen["terminated"] > 0) | (seen["observation"] == 10)
    assert ended.sum() > 20
    np.testing.assert_array_equal(seen["first"][..., 1:], ended[..., :-1])
    assert (seen["first"][..., 0] == 1).all()
    # Envs do not end together.
    assert ended.any((0, 1)).mean() > 0 and (ended.all((0, 1)) == 0).all()


def test_the_last_observation_and_the_first_are_both_kept_and_whole(lives: Any) -> None:
    seen = columns(lives[0])
    first = seen["first"] > 0
    assert (seen["observation"][first] == 0).all()
    assert (seen["reward"][first] == 0).all()
    assert (seen["action"][first] == 0).all()
    assert (seen["terminated"][first] == 0).all()
    later = ~first[..., 1:]
    np.testing.assert_array_equal(np.diff(seen["observation"], axis=-1)[later], 1.0)


def test_returns_are_those_of_the_episodes_that_ended(lives: Any) -> None:
    state, metrics, _ = lives
    seen = columns(state)
    ended = ((seen["terminated"] > 0) | (seen["observation"] == 10))[..., 1:]
    np.testing.assert_array_equal(metrics["episode/done"], ended.sum(1).T)
    sums = MetricSums(2)
    sums.add({name: value for name, value in metrics.items() if name.startswith("episode/")})
    for index, row in enumerate(sums.take()):
        # One reward a step alive: an episode that ended at step k paid k − 1, or 10 where time ran out.
        lengths = seen["observation"][index, :, 1:][ended[index]]
        alive = np.where(seen["terminated"][index, :, 1:][ended[index]] > 0, lengths - 1, lengths)
        assert row["episode/return"] == pytest.approx(alive.mean(), rel=1e-5)


def test_a_replica_of_a_terminating_task_does_not_depend_on_its_pack(lives: Any) -> None:
    pack = lives_pack([1])
    state, _ = pack.prefill(pack.init(), 40)
    np.testing.assert_array_equal(state.replay.rows[0], lives[0].replay.rows[1])


def test_first_episodes_of_an_epochs_envs_are_cut_short_so_that_later_ones_end_at_different_times() -> None:
    settings = EpochTrain(envs=4, epoch_env_steps=2, window=3, replay_agent_steps=None)
    pack = Pack(Idle(), CreditProbe(), settings, [0, 1], {}, 160)  # type: ignore[arg-type]
    state, metrics = pack.prefill(pack.init(), 40)
    # An episode lasts ten steps, and its first observation takes a step of its own.
    for env, end in enumerate([2, 5, 7, 10]):
        firsts = np.flatnonzero(columns(state)["first"][1, env])
        np.testing.assert_array_equal(firsts, [0, *range(end + 1, 41, 11)])
    # What was cut short says nothing about the return of an episode.
    done = np.asarray(metrics["episode/done"])[:, 0]
    whole = [step for end in (2, 5, 7, 10) for step in range(end, 41, 11) if step not in (2, 5, 7)]
    np.testing.assert_array_equal(np.flatnonzero(done) + 1, sorted(whole))
    together = Pack(Idle(), CreditProbe(), settings.model_copy(update={"staggered": False}), [0], {}, 160)  # type: ignore[arg-type]
    _, metrics = together.prefill(together.init(), 40)
    np.testing.assert_array_equal(np.asarray(metrics["episode/done"])[[9, 19, 29, 39], 0], 4)


@pytest.mark.parametrize("name", list(PROBES))
def test_a_task_that_says_it_never_terminates_never_does(name: str) -> None:
    probe = PROBES[name]()
    assert probe.spec.terminates == isinstance(probe, SurviveProbe)


def test_a_wrapped_task_says_the_same_of_itself() -> None:
    assert AutoReset(SurviveProbe()).spec.terminates
    assert not AutoReset(CreditProbe()).spec.terminates


def test_validation_calibrates_the_certificate_on_layouts_of_its_own(started: Any, alone: Pack) -> None:
    agent = started().agent
    episodes, calibrated = alone.validate(agent, 10)
    assert episodes.returns.shape == (1, 10)
    # The margin of this task is always 0, so the offset is a high value of the barrier, whatever its sign.
    assert float(calibrated.offset[0]) != 0.0
    assert abs(float(calibrated.offset[0])) < 0.5
    for before, after in zip(replica(agent.model, 0), replica(calibrated.model, 0), strict=True):
        np.testing.assert_array_equal(before, after)


def test_what_is_validated_is_the_calibrated_agent(started: Any, alone: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, float]] = []
    play = alone.evaluate

    def evaluate(agent: Any, params: Any, split: Any, episodes: int) -> Any:
        seen.append((split, float(agent.offset[0])))
        return play(agent, params, split, episodes)

    monkeypatch.setattr(alone, "evaluate", evaluate)
    _, calibrated = alone.validate(started().agent, 10)
    assert seen == [("calibration", 0.0), ("validation", float(calibrated.offset[0]))]


def test_a_frozen_replica_is_not_calibrated(started: Any, alone: Pack) -> None:
    agent = started().agent
    frozen = agent._replace(finite=jnp.zeros_like(agent.finite))
    assert float(alone.validate(frozen, 10)[1].offset[0]) == 0.0


DELAYS = {"filter": {"hypotheses": 3}}


def randomised(spreads: list[dict[str, float]]) -> Pack:
    """A pack on the point robot whose replicas differ in how widely their episodes differ; all actions are random."""
    cells = [tiny_cell(DELAYS, {"randomise": spread}) for spread in spreads]
    values = [traced_values(cell.train)["randomise"] for cell in cells]
    stacked = {name: jnp.asarray([value[name] for value in values]) for name in values[0]}
    seeds, env = list(range(len(cells))), registry.make("SafetyPointGoal1")
    return Pack(Idle(), env, cells[0].train, seeds, {"randomise": stacked}, AGENT_STEPS)  # type: ignore[arg-type]


def test_randomised_cells_train_beside_plain_ones_in_one_compile() -> None:
    plain, wide = tiny_cell(DELAYS), tiny_cell(DELAYS, {"randomise": {"mass_spread": 2.0, "max_delay": 2}})
    assert static_key(plain) == static_key(wide)


def test_random_delays_without_a_filter_for_each_are_refused() -> None:
    for belief in ({"hypotheses": 2}, {"hypotheses": 3, "max_delay": 1}):
        with pytest.raises(
            ValueError, match=r"max_delay 2 needs a filter for every delay: set .*hypotheses to at least 3"
        ):
            tiny_cell({"filter": belief}, {"randomise": {"max_delay": 2}})


def test_every_randomised_episode_has_a_body_of_its_own() -> None:
    pack = randomised([{}, {"mass_spread": 2.0, "damping_spread": 3.0, "max_delay": 2}])
    default = pack.env.default_params()
    first, second = (pack._params(pack.inputs, jnp.asarray(episode)) for episode in (0, 1))
    mass = np.asarray(first.physics.mass / default.physics.mass).reshape(2, pack.envs)
    np.testing.assert_array_equal(mass[0], 1.0)
    assert len(np.unique(mass[1])) == pack.envs
    assert mass[1].min() >= 0.5 and mass[1].max() <= 2.0
    assert not np.array_equal(first.physics.mass, second.physics.mass)
    np.testing.assert_array_equal(np.asarray(first.physics.force_gain), np.asarray(default.physics.force_gain))
    assert set(np.asarray(first.actuators.delay).reshape(2, -1)[0].tolist()) == {0}


def test_the_replay_holds_the_actions_that_took_effect() -> None:
    pack, steps = randomised([{}, {"max_delay": 2}]), 6
    drawn = [pack._keys(pack.inputs, "prefill", jnp.asarray(step)) for step in range(steps)]
    shape = (pack.envs, pack.env.spec.action_size)
    issued = np.stack(
        [jax.vmap(lambda key: jax.random.uniform(key, shape, minval=-1.0))(keys) for keys in drawn], axis=2
    )
    delays = np.asarray(pack._params(pack.inputs, jnp.zeros((), jnp.int32)).actuators.delay).reshape(2, -1)
    assert set(delays[1].tolist()) > {0}
    state, _ = pack.prefill(pack.init(), steps)
    stored = np.asarray(state.replay.rows)[..., 1 : 1 + steps, :][..., pack.env.spec.observation_size :]
    for replica, env in np.ndindex(delays.shape):
        late = delays[replica, env]
        np.testing.assert_array_equal(stored[replica, env, late:, :2], issued[replica, env, : steps - late])
        np.testing.assert_array_equal(stored[replica, env, :late, :2], 0.0)


def test_factors_lie_evenly_around_one_and_delays_are_whole() -> None:
    spreads = {name: jnp.asarray(2.0) for name in ("mass_spread", "damping_spread", "force_spread", "max_delay")}
    drawn = draw_factors(jax.random.key(0), spreads, 3000)
    logs = np.log2(np.asarray(drawn["mass"]))
    assert abs(logs.mean()) < 0.05 and logs.min() < -0.98 and logs.max() > 0.98
    counts = np.bincount(np.asarray(drawn["delay"]))
    assert len(counts) == 3 and counts.min() > 900


def test_other_bodies_move_otherwise_within_one_batch() -> None:
    pack = randomised([{}, {"force_spread": 3.0}])
    params = pack._params(pack.inputs, jnp.zeros((), jnp.int32))
    keys = jax.random.split(jax.random.key(0), 2 * pack.envs)
    action = jnp.ones((2 * pack.envs, 2)) * jnp.array([1.0, 0.0])

    @jax.jit
    def three_steps(params: Any) -> Any:
        start = pack.env.reset(keys, params)[0]
        return jax.lax.fori_loop(0, 3, lambda _, state: pack.env.step(keys, state, action, params)[0], start)

    state = three_steps(params)
    speed = np.hypot(np.asarray(state.body.velocity_x), np.asarray(state.body.velocity_y)).reshape(2, -1)
    # From rest, whichever way it looks, one body gains one speed.
    assert np.ptp(speed[0]) < 1e-4 < 1e-2 < np.ptp(speed[1])

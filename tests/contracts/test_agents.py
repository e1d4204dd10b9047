"""One suite over every agent: what the training loop, packs and the evaluator rely on."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.tiny import tiny_cell, tiny_pwm_cell

from dreamproof.agents.api import Batch, Calibrated, EpochBatch, Reflective
from dreamproof.agents.registry import AGENTS, make_agent
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.settings.traced import traced_values

pytestmark = pytest.mark.long(100)

ENVS = 3
SPEC = Spec(
    "Contract",
    observation_size=7,
    action_size=2,
    episode_agent_steps=10,
    slots=(("hazards", 3, 7),),
    entities=(3, 7, 2),
)
SETTINGS: dict[str, Any] = {"dreamer": tiny_cell().agent, "pwm": tiny_pwm_cell().agent}
REFLECTIVE = [name for name in AGENTS if isinstance(make_agent(name, SPEC, SETTINGS[name]), Reflective)]
CALIBRATED = [name for name in AGENTS if isinstance(make_agent(name, SPEC, SETTINGS[name]), Calibrated)]
# One step a part and update; or one of the actor, two passes over two minibatches of the critics, two of the model.
GRADIENT_STEPS = {"dreamer": 1, "pwm": 1 + 2 * 2 + 2}


def some_batch(key: jax.Array) -> Batch:
    """Windows (6, 4) of random numbers, an episode's start among them."""
    keys = jax.random.split(key, 4)
    zero = jnp.zeros((6, 4))
    return Batch(
        observation=jax.random.normal(keys[0], (6, 4, SPEC.observation_size)),
        action=jax.random.uniform(keys[1], (6, 4, SPEC.action_size), minval=-1.0),
        reward=jax.random.normal(keys[2], (6, 4)),
        cost=jax.random.bernoulli(keys[3], 0.2, (6, 4)).astype(jnp.float32),
        margin=zero + 0.1,
        first=zero.at[3, 1].set(1.0),
        terminated=zero.at[2, 1].set(1.0),
        held_out=jnp.array([1.0, 0.0, 0.0, 0.0]),
    )


def some_epoch(key: jax.Array) -> EpochBatch:
    """Two batches of such windows, and what three envs show."""
    keys = jax.random.split(key)
    return EpochBatch(jax.vmap(some_batch)(keys), some_sight(key))


BATCHES: dict[str, Any] = {"dreamer": some_batch, "pwm": some_epoch}


def spoilt(batch: Any) -> Any:
    """The same with one observation that is no number."""
    if isinstance(batch, EpochBatch):
        return batch._replace(replayed=spoilt(batch.replayed))
    return batch._replace(observation=batch.observation.at[1, 1, 0].set(jnp.nan))


def some_sight(key: jax.Array) -> TimeStep:
    """What three envs show in the middle of an episode."""
    zero, no = jnp.zeros(ENVS), jnp.zeros(ENVS, bool)
    return TimeStep(jax.random.normal(key, (ENVS, SPEC.observation_size)), zero, zero, zero, zero, no, no, no)


class Subject:
    """One agent, its compiled functions, and two states after an update, alone and side by side."""

    def __init__(self, name: str) -> None:
        self.name, self.agent = name, make_agent(name, SPEC, SETTINGS[name])
        self.traces = 0
        self.scalars = jax.tree.map(jnp.asarray, traced_values(SETTINGS[name]))
        self.init = eqx.filter_jit(eqx.filter_vmap(self.agent.init_state))
        self.update = eqx.filter_jit(self._update)
        self.update_both = eqx.filter_jit(eqx.filter_vmap(self._update, in_axes=(0, 0, 0, None)))
        self.act = eqx.filter_jit(self._act)
        self.keys = jax.random.split(jax.random.key(7), 2)
        self.batches = jax.vmap(BATCHES[name])(self.keys)
        self.fresh = self.init(self.keys)
        self.pair, self.pair_metrics = self.update_both(self.fresh, self.batches, self.keys, self.scalars)
        self.one, self.one_metrics = self.update(*self.of(1, self.fresh, self.batches, self.keys), self.scalars)

    @staticmethod
    def of(index: int, *trees: Any) -> tuple[Any, ...]:
        """One member of things side by side."""
        return tuple(jax.tree.map(lambda x: x[index] if eqx.is_array(x) else x, tree) for tree in trees)

    def _update(self, state: Any, batch: Any, key: jax.Array, scalars: Any) -> Any:
        self.traces += 1
        return self.agent.update(state, batch, key, scalars, jnp.float32(0.5))

    def _act(self, state: Any, memory: Any, seen: TimeStep, key: jax.Array, explore: bool) -> Any:
        return self.agent.act(state, memory, seen, key, self.scalars, explore)


@pytest.fixture(scope="module", params=list(AGENTS))
def subject(request: pytest.FixtureRequest) -> Subject:
    """Each agent once."""
    return Subject(request.param)


def arrays(tree: Any) -> list[np.ndarray]:
    """All arrays of a tree on the host."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def test_an_update_in_a_pack_equals_the_update_alone(subject: Subject) -> None:
    (member,) = subject.of(1, subject.pair)
    for packed, alone in zip(arrays(member), arrays(subject.one), strict=True):
        np.testing.assert_allclose(packed, alone, rtol=1e-4, atol=1e-6)


def test_an_update_counts_itself_and_changes_what_is_learned(subject: Subject) -> None:
    before, after = subject.of(1, subject.fresh)[0], subject.one
    assert int(before.gradient_steps) == 0
    assert int(after.gradient_steps) == GRADIENT_STEPS[subject.name]
    same = [np.array_equal(a, b) for a, b in zip(arrays(before), arrays(after), strict=True)]
    assert sum(same) < len(same) / 2


def test_an_update_gives_back_what_it_took_in_shape_and_type(subject: Subject) -> None:
    # What comes back otherwise would be compiled for once more.
    states = (subject.of(1, subject.fresh)[0], subject.one)
    for before, after in zip(*(jax.tree.leaves(eqx.filter(tree, eqx.is_array)) for tree in states), strict=True):
        assert (before.shape, before.dtype, before.weak_type) == (after.shape, after.dtype, after.weak_type)


def test_everything_stays_finite(subject: Subject) -> None:
    assert bool(subject.one.finite)
    numbers = [*arrays(subject.one), *arrays(subject.one_metrics)]
    assert all(np.isfinite(leaf).all() for leaf in numbers)


def test_a_batch_that_is_not_finite_is_noticed_and_changes_no_parameter(subject: Subject) -> None:
    state, batch, key = subject.of(1, subject.pair, subject.batches, subject.keys)
    after, _ = subject.update(state, spoilt(batch), key, subject.scalars)
    assert not bool(after.finite)
    assert all(np.isfinite(leaf).all() for leaf in arrays((after.model, after.actor, after.critics)))


def test_other_scalars_compile_nothing_anew(subject: Subject) -> None:
    state, batch, key = subject.of(1, subject.pair, subject.batches, subject.keys)
    before = subject.traces
    dearer = jax.tree.map(lambda value: value * 2 + 0.1, subject.scalars)
    changed, _ = subject.update(state, batch, key, dearer)
    again, _ = subject.update(state, batch, key, subject.scalars)
    assert subject.traces == before
    assert any(not np.array_equal(a, b) for a, b in zip(arrays(changed), arrays(again), strict=True))


def test_metrics_are_plain_numbers_with_a_room_in_their_names(subject: Subject) -> None:
    assert all(value.shape == () for value in subject.one_metrics.values())
    assert all("/" in name for name in subject.one_metrics)


def test_acting_without_exploring_is_deterministic_and_in_range(subject: Subject) -> None:
    memory, seen = subject.agent.init_memory(ENVS), some_sight(jax.random.key(8))
    first = subject.act(subject.one, memory, seen, jax.random.key(9), False)
    again = subject.act(subject.one, memory, seen, jax.random.key(9), False)
    np.testing.assert_array_equal(first.action, again.action)
    assert first.action.shape == (ENVS, SPEC.action_size)
    assert float(jnp.abs(first.action).max()) <= 1.0
    jax.tree.map(lambda a, b: np.testing.assert_equal(a.shape, b.shape), first.memory, memory)


def test_exploring_adds_noise(subject: Subject) -> None:
    memory, seen = subject.agent.init_memory(ENVS), some_sight(jax.random.key(8))
    quiet = subject.act(subject.one, memory, seen, jax.random.key(9), False)
    noisy = subject.act(subject.one, memory, seen, jax.random.key(9), True)
    assert float(jnp.abs(quiet.action - noisy.action).max()) > 1e-3
    assert float(jnp.abs(noisy.action).max()) <= 1.0


def test_what_is_logged_of_a_decision_has_one_number_an_env(subject: Subject) -> None:
    decided = subject.act(
        subject.one, subject.agent.init_memory(ENVS), some_sight(jax.random.key(8)), jax.random.key(9), True
    )
    assert all(value.shape == (ENVS,) for value in decided.metrics.values())


def test_what_happens_in_one_env_does_not_reach_another(subject: Subject) -> None:
    memory, seen = subject.agent.init_memory(ENVS), some_sight(jax.random.key(8))
    other = seen._replace(observation=seen.observation.at[0].add(5.0))
    one, two = (subject.act(subject.one, memory, sight, jax.random.key(9), False) for sight in (seen, other))
    np.testing.assert_allclose(one.action[1:], two.action[1:], rtol=1e-5, atol=1e-6)


def test_the_agents_that_reflect_are_found() -> None:
    assert REFLECTIVE == CALIBRATED == ["dreamer"]


@pytest.mark.parametrize("subject", REFLECTIVE, indirect=True)
def test_an_agent_that_reflects_learns_which_surprise_is_usual(subject: Subject) -> None:
    assert isinstance(subject.agent, Reflective)
    decided = subject.act(
        subject.one, subject.agent.init_memory(ENVS), some_sight(jax.random.key(8)), jax.random.key(9), True
    )
    shown = decided.metrics | {"episode/done": jnp.zeros(()), "episode/cost": jnp.zeros(())}
    means = {
        surprise: subject.agent.reflect(
            subject.one, shown | {"risk/surprise": jnp.full(ENVS, surprise)}, subject.scalars
        ).feedback.surprise_mean
        for surprise in (-50.0, float(subject.one.feedback.surprise_mean), 50.0)
    }
    low, same, high = means.values()
    assert low < same < high and same == subject.one.feedback.surprise_mean


@pytest.mark.parametrize("subject", REFLECTIVE, indirect=True)
def test_only_the_cost_of_finished_episodes_counts_and_nothing_learned_changes(subject: Subject) -> None:
    assert isinstance(subject.agent, Reflective)
    shown = {"risk/surprise": jnp.zeros(ENVS), "episode/cost": jnp.asarray(9.0)}
    running, ended = (
        subject.agent.reflect(subject.one, shown | {"episode/done": jnp.asarray(done)}, subject.scalars)
        for done in (0.0, 2.0)
    )
    before = subject.one.feedback.cost
    assert running.feedback.cost == before < ended.feedback.cost
    learned = subject.one._replace(feedback=ended.feedback)
    for kept, after in zip(arrays(learned), arrays(ended), strict=True):
        np.testing.assert_array_equal(kept, after)


@pytest.mark.parametrize("subject", CALIBRATED, indirect=True)
def test_an_agent_is_calibrated_on_held_out_episodes_whatever_the_sign(subject: Subject) -> None:
    assert isinstance(subject.agent, Calibrated)
    values, margins = jnp.full((10, 20), 0.1), jnp.full((10, 20), 0.3)
    # Values 0.2 below what came true: the promise may be raised by as much.
    assert float(subject.agent.calibrate(subject.one, values, margins).offset) == pytest.approx(-0.2)
    assert float(subject.agent.calibrate(subject.one, margins, values).offset) == pytest.approx(0.2)


@pytest.mark.parametrize("subject", CALIBRATED, indirect=True)
def test_too_few_episodes_leave_the_promise_as_it_was(subject: Subject) -> None:
    assert isinstance(subject.agent, Calibrated)
    before = subject.one._replace(offset=jnp.asarray(0.07))
    after = subject.agent.calibrate(before, jnp.zeros((10, 8)), jnp.ones((10, 8)))
    assert float(after.offset) == pytest.approx(0.07)


def test_an_agent_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(BadInput, match=r"known: .*dreamer, pwm"):
        make_agent("nobody", SPEC, None)

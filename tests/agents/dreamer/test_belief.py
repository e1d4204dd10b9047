"""Delay hypotheses and the memory of entities, on a world whose motion is known exactly."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from dreamproof.agents.dreamer import belief as believing
from dreamproof.agents.dreamer.world_model import Latent
from dreamproof.jaxcore.types import Spec

ON = {
    "max_delay": jnp.asarray(2.0),
    "patience": jnp.asarray(4.0),
    "gate": jnp.asarray(0.2),
    "gain": jnp.asarray(1.0),
}
OFF = ON | {"patience": jnp.asarray(0.0)}


class Line:
    """A model of a point on a line: an action is its step, and one entity comes as much nearer."""

    spec = Spec("Line", 1, 1, 10)

    def observe(self, state: Latent, action: Array, seen: tuple[Array, Array], first: Array, noise: Array) -> Any:
        del noise
        expected = state.h * (1 - first)[:, None] + action
        return Latent(seen[0], seen[0], seen[1]), expected

    def surprise(self, before: Latent, now: Latent, posterior: Array) -> Array:
        del before
        return jnp.abs(now.h - posterior)[:, 0] / 0.05

    def moved(self, h: Array, entities: Array) -> Array:
        del h
        return entities

    def imagine(self, state: Latent, action: Array, noise: Array) -> Latent:
        del noise
        return state._replace(h=state.h + action)


MODEL: Any = Line()


def started(hypotheses: int, envs: int = 1) -> believing.Belief:
    """Before anything was seen: no entities, one action."""
    zero = jnp.zeros((hypotheses, envs, 1))
    return believing.init_belief(Latent(zero, zero, jnp.zeros((hypotheses, envs, 0, 0))), 1)


def ridden(
    delay: int, hypotheses: int, steps: int = 30, scalars: dict[str, Array] = ON
) -> tuple[believing.BeliefUpdate, list[float], list[float]]:
    """The belief after random actions that act `delay` steps late; also actions and places so far."""
    generator = np.random.default_rng(0)
    belief, place = started(hypotheses), 0.0
    actions: list[float] = []
    places = [0.0]
    for step in range(steps):
        shown = (jnp.full((1, 1), place), jnp.zeros((1, 0, 0)))
        seen = believing.observe(MODEL, belief, shown, jnp.full(1, float(step == 0)), jnp.zeros(1), scalars)
        actions.append(float(generator.uniform(-0.2, 0.2)))
        belief = believing.with_action(seen.belief, jnp.full((1, 1), actions[-1]))
        acting = step - delay
        place += actions[acting] if acting >= 0 else 0.0
        places.append(place)
    shown = (jnp.full((1, 1), place), jnp.zeros((1, 0, 0)))
    return believing.observe(MODEL, belief, shown, jnp.zeros(1), jnp.zeros(1), scalars), actions, places


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_delay_that_explains_what_is_seen_wins(delay: int) -> None:
    seen, _, _ = ridden(delay, hypotheses=3)
    assert seen.delay.tolist() == [delay]
    assert float(seen.surprise[0]) == pytest.approx(0.0, abs=1e-4)


def test_without_hypotheses_a_delay_only_surprises() -> None:
    seen, _, _ = ridden(2, hypotheses=1)
    assert seen.delay.tolist() == [0]
    assert float(seen.belief.surprise[0, 0]) > 10


def test_longer_delays_than_allowed_never_win() -> None:
    seen, _, _ = ridden(2, hypotheses=3, scalars=ON | {"max_delay": jnp.asarray(0.0)})
    assert seen.delay.tolist() == [0]


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_planning_starts_where_pending_actions_will_have_led(delay: int) -> None:
    seen, actions, places = ridden(delay, hypotheses=3)
    ahead = believing.through_pending(MODEL, seen.latent, seen.delay, seen.belief.actions, jnp.zeros((2, 1)))
    pending = sum(actions[len(actions) - delay :])
    assert float(ahead.h[0, 0]) == pytest.approx(places[-1] + pending, abs=1e-5)


def test_standing_still_speaks_for_no_delay() -> None:
    belief = started(3)
    for step in range(20):
        shown = (jnp.zeros((1, 1)), jnp.zeros((1, 0, 0)))
        seen = believing.observe(MODEL, belief, shown, jnp.full(1, float(step == 0)), jnp.zeros(1), ON)
        belief = believing.with_action(seen.belief, jnp.zeros((1, 1)))
    assert seen.delay.tolist() == [0]


def test_a_new_episode_forgets_the_evidence_and_the_actions() -> None:
    seen, _, _ = ridden(2, hypotheses=3)
    shown = (jnp.zeros((1, 1)), jnp.zeros((1, 0, 0)))
    again = believing.observe(MODEL, seen.belief, shown, jnp.ones(1), jnp.zeros(1), ON)
    assert again.delay.tolist() == [0]
    assert float(jnp.abs(again.belief.actions).max()) == 0.0


def watched(sights: list[float], scalars: dict[str, Array]) -> list[float]:
    """Where an entity that should stay at 1 is taken to be, when it is seen at these places."""
    trust, place, places = jnp.zeros((1, 1)), jnp.array([[[sights[0], 0.0]]]), []
    for sight in sights:
        seen = jnp.array([[[sight, 0.0]]])
        place, trust = believing.remember((place, place, seen), trust, scalars)
        places.append(round(float(place[0, 0, 0]), 3))
    return places


def test_without_patience_every_observation_is_believed() -> None:
    assert watched([1.0, 1.0, 3.0, 1.0], OFF) == [1.0, 1.0, 3.0, 1.0]


def test_a_hazard_that_vanishes_for_a_few_steps_keeps_its_place() -> None:
    assert watched([1.0] * 6 + [3.0] * 3 + [1.0], ON) == [1.0] * 10


def test_evidence_that_lasts_wins() -> None:
    # Four steps of trust: three steps of contrary evidence are overruled, the fourth is believed.
    assert watched([1.0] * 6 + [3.0] * 5, ON) == [1.0] * 9 + [3.0] * 2


def test_what_was_seen_briefly_is_given_up_quickly() -> None:
    assert watched([3.0, 3.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0], ON)[-3:] == [1.0, 3.0, 3.0]


def test_small_changes_are_followed_at_once_or_by_the_gain() -> None:
    assert watched([1.0, 1.1, 1.2], ON) == [1.0, 1.1, 1.2]
    assert watched([1.0, 1.1], ON | {"gain": jnp.asarray(0.5)}) == [1.0, 1.05]


def test_the_alarm_is_silent_on_ordinary_steps_and_on_a_single_jump() -> None:
    belief = started(1)
    for innovation in [0.3, -0.2, 0.5, 0.0, 60.0]:
        belief = believing.with_innovation(belief, jnp.full(1, innovation))
    assert float(believing.alarm(belief)[0]) < 0.02
    for _ in range(30):
        belief = believing.with_innovation(belief, jnp.full(1, 12.0))
    assert float(believing.alarm(belief)[0]) == 1.0


def test_a_nearer_hazard_in_the_slot_is_believed_at_once() -> None:
    # More hazards than slots: the slot changes to another hazard, which is nearer.
    assert watched([1.0] * 6 + [0.5, 0.5], ON) == [1.0] * 6 + [0.5] * 2


def test_a_hazard_in_an_empty_slot_needs_evidence() -> None:
    assert watched([3.0] * 6 + [0.5] * 5, ON) == [3.0] * 9 + [0.5] * 2


def test_an_empty_slot_stays_empty_while_the_robot_turns_and_drives() -> None:
    parked, trust = jnp.array([[[3.0, 0.0]]]), jnp.full((1, 1), 4.0)
    for turn in (0.5, 1.0, 1.5):
        predicted = jnp.array([[[3.0 * np.cos(turn) - 1.0, 3.0 * np.sin(turn)]]])
        place, trust = believing.remember((parked, predicted, parked), trust, ON | {"gain": jnp.asarray(0.5)})
        np.testing.assert_array_equal(place, parked)
        assert float(trust[0, 0]) == 4.0

"""SafetyPointGoal1 and 2 and SafetyCarGoal1: reach goals, keep out of hazards and off vases.

N envs at a time; one agent step is several simulator steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Condition, Env, Spec, TimeStep, per_env
from dreamproof.envs.point import perception as perceiving
from dreamproof.envs.point import sensors
from dreamproof.envs.point.layout import GoalBank, InitialLayout, distance, draw_placement, take_goal
from dreamproof.envs.point.params import (
    GHOST_CAPACITY,
    HAZARD_CAPACITY,
    LEVEL_1,
    PARKED,
    GoalLevel,
    PointParams,
    default_params,
)
from dreamproof.envs.point.perception import Perception, init_perception
from dreamproof.envs.point.robots import POINT, Robot
from dreamproof.envs.point.touch import HALF_SIZE, gap
from dreamproof.envs.point.vase import Vase, at_rest, moves, push
from dreamproof.envs.shift import apply_shift, named_shifts, point_conditions
from dreamproof.settings.env import EnvSettings, Shift

ACTION_SIZE = 2
MIN_MARGIN, MAX_MARGIN = -0.2, 0.5


class PointState(NamedTuple):
    """N envs: body, places of objects, vases (N, V), next goals, and perception and actions of earlier steps."""

    body: Any
    goal: Array
    goal_distance: Array
    hazards: Array
    vases: Vase
    bank: GoalBank
    perception: Perception
    action_queue: Array
    last_action: Array
    agent_steps: Array


class _StepState(NamedTuple):
    """State and sums over the simulator steps of one agent step; `met_at` (2,) is where the goal was reached.

    costs (K,): steps that violated each constraint; cost: steps that violated any.
    """

    body: Any
    vases: Vase
    goal_distance: Array
    met: Array
    met_at: Array
    reward: Array
    cost: Array
    costs: Array


@dataclass(frozen=True)
class PointGoal(Env):
    """The task; its fields are static, everything else is in the parameters."""

    name: str = "SafetyPointGoal1"
    level: GoalLevel = LEVEL_1
    robot: Robot = POINT
    lidar: bool = False
    ghost_slots: int = 2
    action_repeat: int = 5
    episode_agent_steps: int = 200
    vases_are_pushed: bool = False
    varies = True

    @classmethod
    def from_settings(
        cls, task: str, settings: EnvSettings, level: GoalLevel = LEVEL_1, robot: Robot = POINT
    ) -> "PointGoal":
        """Builds the task that the settings describe."""
        lidar = settings.observation == "lidar"
        if robot.wheels and (lidar or settings.vase == "pushed"):
            raise BadInput(f"'{task}' has no lidar, and its vase stands still", "remove env.observation and env.vase")
        if level.vases_cost and settings.vase == "still":
            raise BadInput(f"the vases of '{task}' cost when they move, so they cannot be still", "remove env.vase")
        pushed = lidar or level.vases_cost if settings.vase is None else settings.vase == "pushed"
        return cls(
            name=task,
            level=level,
            robot=robot,
            lidar=lidar,
            ghost_slots=GHOST_CAPACITY if lidar else settings.ghost_slots,
            action_repeat=settings.action_repeat,
            episode_agent_steps=settings.episode_simulator_steps // settings.action_repeat,
            vases_are_pushed=pushed,
        )

    @cached_property
    def spec(self) -> Spec:
        """Sizes and named slots of the observation."""
        slots = sensors.lidar_slots() if self.lidar else sensors.coordinate_slots(self.level, self.ghost_slots)
        size = slots[-1][2]
        return Spec(
            name=self.name,
            observation_size=size,
            action_size=ACTION_SIZE,
            episode_agent_steps=self.episode_agent_steps,
            has_cost=True,
            max_step_cost=float(self.action_repeat),
            reconstruction_weights=sensors.reconstruction_weights(slots, size),
            has_margin=True,
            action_repeat=self.action_repeat,
            slots=slots,
            absolute=("magnetometer",) if self.lidar else ("magnetometer", "rotation", "position"),
            entities=None if self.lidar else self._entities(slots),
            entity_types=0 if self.lidar or not self.level.vases_cost else 2,
            terminates=False,
            costs=self.level.costs,
            wheels=self.robot.wheels,
        )

    def _entities(self, slots: tuple[tuple[str, int, int], ...]) -> tuple[int, int, int]:
        ranges = [part[1:] for part in slots if part[0] in ("hazards", "vases")]
        return ranges[0][0], ranges[-1][1], sensors.entity_width(self.level)

    @property
    def hazard_slots(self) -> int:
        """Number of real hazards in an observation; the lidar shows all."""
        return HAZARD_CAPACITY if self.lidar else self.level.hazards

    def default_params(self) -> PointParams:
        """The official task."""
        return default_params(self.level, self.robot.physics())

    def conditions(self) -> Mapping[str, Condition]:
        """All named shifts of this task."""
        return point_conditions(self.ghost_slots, self.robot.wheels)

    def named_shifts(self) -> Mapping[str, Shift]:
        """The shifts of those conditions."""
        return named_shifts(self.robot.wheels)

    def apply_shift(self, params: PointParams, shift: Shift) -> PointParams:
        """The parameters with the shift applied."""
        return apply_shift(params, shift)

    def vary(self, params: PointParams, drawn: dict[str, Array]) -> PointParams:
        """Parameters with different physics and delay in every env."""
        return params._replace(
            physics=params.physics.varied(drawn["mass"], drawn["damping"], drawn["force"]),
            actuators=params.actuators._replace(delay=drawn["delay"]),
        )

    def executed(self, state: PointState) -> Array:
        """The actions (N, 2) that reached the motors in the last step."""
        return state.last_action

    def reset(self, keys: Array, params: PointParams) -> tuple[PointState, TimeStep]:
        """Lays out N episodes."""
        state = self._per_env(self.start)(keys, params)
        count = keys.shape[0]
        observation, perception = self._observe(keys, state, jnp.ones(count, bool), params)
        state = state._replace(perception=perception)
        margin = self._per_env(self._margin)(state, params)
        zero, no = jnp.zeros(count), jnp.zeros(count, bool)
        costs = jnp.zeros((count, len(self.level.costs)))
        return state, TimeStep(observation, zero, zero, margin, zero, ~no, no, no, costs=costs)

    def step(self, keys: Array, state: PointState, action: Array, params: PointParams) -> tuple[PointState, TimeStep]:
        """One agent step of N envs; the last one of an episode is truncated."""
        action, queue = self._act(keys, state.action_queue, action, params)
        moved = self._per_env(self._simulate)(state, action, params)
        goal, bank, reward, goal_distance = self._redraw(state, moved, params)
        state = state._replace(
            body=moved.body,
            goal=goal,
            goal_distance=goal_distance,
            vases=moved.vases,
            bank=bank,
            action_queue=queue,
            last_action=action,
            agent_steps=state.agent_steps + 1,
        )
        no = jnp.zeros(action.shape[0], bool)
        observation, perception = self._observe(keys, state, no, params)
        state = state._replace(perception=perception)
        margin = self._per_env(self._margin)(state, params)
        truncated = state.agent_steps >= self.episode_agent_steps
        goals = moved.met.astype(jnp.float32)
        return state, TimeStep(observation, reward, moved.cost, margin, goals, no, no, truncated, costs=moved.costs)

    def render_state(self, state: PointState, params: PointParams) -> dict[str, Array]:
        """Positions (N, ...) in metres; hazards that are absent are NaN."""
        count = state.goal.shape[0]
        present = jnp.arange(HAZARD_CAPACITY) < jnp.broadcast_to(params.layout.hazards, (count,))[:, None]
        return {
            "agent": jnp.stack([state.body.x, state.body.y], axis=-1),
            "heading": state.body.heading,
            "goal": state.goal,
            "goal_radius": jnp.broadcast_to(params.layout.goal_radius, (count,)),
            "hazards": jnp.where(present[..., None], state.hazards, jnp.nan),
            "hazard_radius": jnp.broadcast_to(params.layout.hazard_radius, (count,)),
            "vases": _places(state.vases),
            "vase_size": jnp.full((count,), 2 * HALF_SIZE),
            "extent": jnp.broadcast_to(params.layout.extent, (count,)),
        }

    def place(self, placement: InitialLayout, body: Any, goal: Array) -> PointState:
        """The state of one env with a given layout, body and goal, before the first observation."""
        here = jnp.stack([body.x, body.y])
        return PointState(
            body=body,
            goal=goal,
            goal_distance=distance(here, goal),
            hazards=placement.hazards,
            vases=at_rest(placement.vases, placement.vase_headings),
            bank=placement.bank,
            perception=init_perception(self.hazard_slots, self.spec.observation_size),
            action_queue=jnp.zeros((perceiving.LONGEST_DELAY, ACTION_SIZE)),
            last_action=jnp.zeros(ACTION_SIZE),
            agent_steps=jnp.zeros((), jnp.int32),
        )

    def start(self, key: Array, params: PointParams) -> PointState:
        """Lays out one env, before the first observation."""
        placement = draw_placement(key, params.layout, self.level.vases)
        goal, bank = take_goal(placement.bank, placement.agent, placement.vases, params.layout)
        body = self.robot.start(placement.agent, placement.heading)
        return self.place(placement._replace(bank=bank), body, goal)

    def _per_env(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return per_env(function, self.default_params())

    def _act(self, keys: Array, queue: Array, action: Array, params: PointParams) -> tuple[Array, Array]:
        """The action (N, A) that reaches the motors after delay and noise, and the queue of earlier ones."""
        noisy = jnp.any(params.actuators.noise > 0)
        noise = lax.cond(noisy, self._per_env(_action_noise), lambda *_: jnp.zeros_like(action), keys, params)
        line = jnp.concatenate([action[:, None], queue], axis=1)
        delayed = self._per_env(lambda one, params: one[params.actuators.delay])(line, params)
        return jnp.clip(delayed + noise, -1.0, 1.0), line[:, :-1]

    def _simulate(self, state: PointState, action: Array, params: PointParams) -> _StepState:
        """The simulator steps of one agent step of one env, up to and beyond a reached goal."""

        def tick(moved: _StepState, _: None) -> tuple[_StepState, None]:
            body = self.robot.simulate(moved.body, action, params.physics)
            here = jnp.stack([body.x, body.y])
            to_goal = distance(here, state.goal)
            hit = (to_goal <= params.layout.goal_radius) & ~moved.met
            progress = jnp.where(moved.met, 0.0, moved.goal_distance - to_goal)
            vases = push(moved.vases, body) if self.vases_are_pushed else moved.vases
            costs = [jnp.min(_squares(here, state.hazards)) < params.layout.hazard_radius**2]
            # A vase that is touched moves, so its motion is the whole cost.
            costs += [jnp.any(moves(vases))] if self.level.vases_cost else []
            return _StepState(
                body=body,
                vases=vases,
                goal_distance=to_goal,
                met=moved.met | hit,
                met_at=jnp.where(hit, here, moved.met_at),
                reward=moved.reward + progress + hit,
                cost=moved.cost + jnp.any(jnp.stack(costs)),
                costs=moved.costs + jnp.stack(costs),
            ), None

        zero, none = jnp.zeros(()), jnp.zeros(len(self.level.costs))
        met = (jnp.zeros((), bool), jnp.zeros(2))
        start = _StepState(state.body, state.vases, state.goal_distance, *met, zero, zero, none)
        moved, _ = lax.scan(tick, start, None, length=self.action_repeat)
        return moved

    def _redraw(
        self, state: PointState, moved: _StepState, params: PointParams
    ) -> tuple[Array, GoalBank, Array, Array]:
        """Goals (N, 2) after this step, bank, reward and goal distance; drawn inside one batched condition.

        A fresh goal is at least 0.405 m from being reached, farther than a robot drives in one agent step, so at most
        one goal is reached per step, and the progress towards the fresh one is a difference of two distances.
        """

        def draw() -> tuple[Array, ...]:
            goal, following = self._per_env(_take_goal)(state.bank, moved.met_at, _places(moved.vases), params)
            following = jnp.where(moved.met, following, state.bank.following)
            goal = jnp.where(moved.met[:, None], goal, state.goal)
            here = jnp.stack([moved.body.x, moved.body.y], axis=-1)
            fresh = jnp.where(moved.met, distance(goal, moved.met_at) - distance(goal, here), 0.0)
            return goal, following, moved.reward + fresh, distance(goal, here)

        def keep() -> tuple[Array, ...]:
            return state.goal, state.bank.following, moved.reward, moved.goal_distance

        goal, following, reward, goal_distance = lax.cond(jnp.any(moved.met), draw, keep)
        return goal, state.bank._replace(following=following), reward, goal_distance

    def _observe(self, keys: Array, state: PointState, first: Array, params: PointParams) -> tuple[Array, Perception]:
        """Observations (N, O), and the perception memory; the shifted path runs only if something is shifted."""

        def plain() -> tuple[Array, Perception]:
            observation: Array = self._per_env(self._look)(state, params)
            return observation, state.perception

        def shifted() -> tuple[Array, Perception]:
            looked: tuple[Array, Perception] = self._per_env(self._look_shifted)(keys, state, first, params)
            return looked

        seen: tuple[Array, Perception] = lax.cond(perceiving.is_shifted(params, self.hazard_slots), shifted, plain)
        return seen

    def _look(self, state: PointState, params: PointParams) -> Array:
        inner = self.robot.sense(state.body, state.last_action, params.physics)
        hazards = _true_hazards(state, inner, params)[0][: self.hazard_slots]
        extra = jnp.broadcast_to(jnp.asarray(PARKED), (self.ghost_slots, 2))
        return self._vector(inner, state, jnp.concatenate([hazards, extra]))

    def _look_shifted(
        self, key: Array, state: PointState, first: Array, params: PointParams
    ) -> tuple[Array, Perception]:
        hallucination = params.hallucination
        slots = (self.hazard_slots, self.hazard_slots + self.ghost_slots)
        noise = perceiving.draw_noise(jax.random.fold_in(key, _LOOK), *slots, self.spec.observation_size)
        inner = self.robot.sense(state.body, state.last_action, params.physics)
        hazards, is_present = _true_hazards(state, inner, params)
        order = perceiving.nearest_slots(_squares(inner.place, state.hazards), self.hazard_slots)
        hazards, is_present = hazards[order], is_present[order]
        memory = state.perception
        memory = memory._replace(shown_hazards=jnp.where(first, hazards, memory.shown_hazards))
        memory = perceiving.hallucinate(noise, memory, is_present, inner.place, hallucination)
        ghosts = sensors.ego(memory.ghosts - inner.place, inner.cosine, inner.sine)
        shown = perceiving.shown_hazards(memory, hazards, ghosts, self.ghost_slots, hallucination)
        noisy = perceiving.misplace(noise, shown, params.sensors)
        vector = self._vector(inner, state, noisy, params.sensors.place_noise * noise.goal_error)
        observation, queue = perceiving.disturb(noise, memory, vector, first, params.sensors)
        return observation, memory._replace(shown_hazards=shown[: self.hazard_slots], shown=queue)

    def _vector(
        self, inner: sensors.Inner, state: PointState, hazards: Array, goal_error: Array | float = 0.0
    ) -> Array:
        goal_ego = sensors.ego(state.goal - inner.place, inner.cosine, inner.sine) + goal_error
        vases_ego = sensors.ego(_places(state.vases) - inner.place, inner.cosine, inner.sine)
        seen = sensors.EgoView(goal_ego, hazards, vases_ego)
        if self.lidar:
            return sensors.lidar_vector(inner, seen)
        return sensors.coordinates(inner, sensors.entities(seen, self.level), goal_ego)

    def _margin(self, state: PointState, params: PointParams) -> Array:
        """Metres from the true state to the edge of the nearest hazard, or to a vase that costs; negative inside."""
        here = jnp.stack([state.body.x, state.body.y])
        nearest = jnp.sqrt(jnp.min(_squares(here, state.hazards))) - params.layout.hazard_radius
        if self.level.vases_cost:
            nearest = jnp.minimum(nearest, jnp.min(gap(state.vases, state.body, jnp)))
        return jnp.clip(nearest, MIN_MARGIN, MAX_MARGIN)


# Folded into the key of a step, so that its uses are independent; a reset uses the key itself.
_ACT, _LOOK = 1, 2


def _squares(here: Array, hazards: Array) -> Array:
    return (hazards[:, 0] - here[0]) ** 2 + (hazards[:, 1] - here[1]) ** 2


def _places(vases: Vase) -> Array:
    """Centres (..., V, 2)."""
    return jnp.stack([vases.x, vases.y], axis=-1)


def _action_noise(key: Array, params: PointParams) -> Array:
    return params.actuators.noise * jax.random.normal(jax.random.fold_in(key, _ACT), (ACTION_SIZE,))


def _take_goal(bank: GoalBank, agent: Array, vases: Array, params: PointParams) -> tuple[Array, Array]:
    goal, bank = take_goal(bank, agent, vases, params.layout)
    return goal, bank.following


def _true_hazards(state: PointState, inner: sensors.Inner, params: PointParams) -> tuple[Array, Array]:
    """Body-frame hazards (16, 2), absent ones parked, and which are present."""
    is_present = jnp.arange(HAZARD_CAPACITY) < params.layout.hazards
    hazards = sensors.ego(state.hazards - inner.place, inner.cosine, inner.sine)
    return jnp.where(is_present[:, None], hazards, jnp.asarray(PARKED)), is_present

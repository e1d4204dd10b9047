"""The Goal tasks of safety-gymnasium themselves, with our observation and action repeat, for parity and evaluation.

Needs the extra `official`; imports neither JAX nor Gymnasium's registry, so it runs with the official version pins too.
"""

import dataclasses
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.envs.point.touch import gap
from dreamproof.settings.env import EnvSettings

PACKAGE = "safety_gymnasium"
TASKS = {"SafetyPointGoal1": ("Point", 1), "SafetyPointGoal2": ("Point", 2), "SafetyCarGoal1": ("Car", 1)}
"""Robot and level of every task."""
PARKED = (3.0, 0.0)
HAZARD_RADIUS = 0.2
MIN_MARGIN, MAX_MARGIN = -0.2, 0.5
Step = tuple[np.ndarray, float, float, bool, bool, dict[str, Any]]


class _HashableArray(np.ndarray):
    """A hashable array, which dataclasses accept as a default."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


@contextmanager
def _lenient_dataclasses() -> Iterator[None]:
    """Allows arrays as dataclass defaults, which Python 3.11 refuses."""
    name = "_get_field"
    original: Callable[..., Any] = getattr(dataclasses, name)

    def get_field(owner: type, field: str, *rest: Any) -> Any:
        default = owner.__dict__.get(field)
        if type(default) is np.ndarray:
            setattr(owner, field, default.view(_HashableArray))
        return original(owner, field, *rest)

    setattr(dataclasses, name, get_field)
    try:
        yield
    finally:
        setattr(dataclasses, name, original)


def _bare_package(name: str, place: str) -> types.ModuleType:
    """A package whose modules can be imported without its __init__."""
    package = types.ModuleType(name)
    package.__path__ = [place]
    package.__file__ = os.path.join(place, "__init__.py")
    sys.modules[name] = package
    return package


def _without_textures(xmltodict: Any) -> types.SimpleNamespace:
    """Writes world files without textures: a reset takes 20 ms instead of 1.2 s, with the same physics."""

    def unparse(tree: Any, **options: Any) -> str:
        tree["mujoco"].pop("asset", None)
        for geom in tree["mujoco"]["worldbody"]["geom"]:
            geom.pop("@material", None)
        return str(xmltodict.unparse(tree, **options))

    return types.SimpleNamespace(parse=xmltodict.parse, unparse=unparse)


class _LenientModel:
    """A MuJoCo model that finds a joint by an array of one index, as MuJoCo 2 does."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def jnt(self, index: Any) -> Any:
        """The joint."""
        return self._model.jnt(int(np.ravel(index)[0]))


def _accept_joint_arrays(agent_class: Any) -> None:
    """Lets robots with joint sensors start on MuJoCo 3."""
    original = agent_class._init_jnt_sensors

    def find_sensors(agent: Any) -> None:
        engine = agent.engine
        agent.engine = types.SimpleNamespace(model=_LenientModel(engine.model))
        original(agent)
        agent.engine = engine

    agent_class._init_jnt_sensors = find_sensors


def load_builder() -> Any:
    """The official environment class, without the package's __init__, whose pins exclude Python 3.11."""
    if f"{PACKAGE}.builder" in sys.modules:
        return sys.modules[f"{PACKAGE}.builder"].Builder
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise BadInput("safety-gymnasium is not installed", "make official")
    place = found.submodule_search_locations[0]
    package = _bare_package(PACKAGE, place)
    tasks = _bare_package(f"{PACKAGE}.tasks", os.path.join(place, "tasks"))
    package.tasks = tasks  # type: ignore[attr-defined]
    with _lenient_dataclasses():
        builder = importlib.import_module(f"{PACKAGE}.builder")
        for level in sorted({level for _, level in TASKS.values()}):
            module = importlib.import_module(f"{PACKAGE}.tasks.safe_navigation.goal.goal_level{level}")
            setattr(tasks, f"GoalLevel{level}", getattr(module, f"GoalLevel{level}"))
        agents = importlib.import_module(f"{PACKAGE}.bases.base_agent")
    _accept_joint_arrays(agents.BaseAgent)
    world = importlib.import_module(f"{PACKAGE}.world")
    world.xmltodict = _without_textures(world.xmltodict)  # type: ignore[attr-defined]
    return builder.Builder


@dataclass(frozen=True)
class TrueState:
    """The true state in world coordinates: metres, radians, metres per second.

    vases (V, 7): x, y, heading, velocity, yaw rate, and the amount of the vertical speed.
    body: the robot's whole state in the order of our dynamics, (6,) of the point robot, (18,) of the car.
    """

    place: np.ndarray
    heading: float
    body: np.ndarray
    goal: np.ndarray
    hazards: np.ndarray
    vases: np.ndarray


class OfficialPointGoal:
    """One official environment; `step` returns observation, reward, cost, terminated, truncated, info."""

    def __init__(self, settings: EnvSettings, task: str = "SafetyPointGoal1") -> None:
        robot, level = TASKS[task]
        self.settings, self.vases_cost, self.wheels = settings, level > 1, robot == "Car"
        # Gymnasium casts infinite bounds, which NumPy 2 warns about.
        with np.errstate(over="ignore"):
            self._env = load_builder()(f"{task}-v0", config={"agent_name": robot})
        self.action_space = self._env.action_space
        # Reading all lidars takes most of a simulator step, so it is done once per agent step.
        self._read_numbers: Callable[[], np.ndarray] = self._env.task.obs
        self._env.task.obs = lambda: None
        self._frame = np.eye(2)
        self._numbers = np.zeros(60)

    def reset(self, *, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode with the layout of a seed."""
        self._env.reset(seed=seed)
        self._numbers = self._read_numbers()
        # The slide joints run along the axes of the initial heading.
        self._frame = np.array(self._env.task.agent.mat)[:2, :2].copy()
        return self.observation(), {"margin": self.margin(), "goals": 0.0}

    def step(self, action: np.ndarray) -> Step:
        """One agent step: the action is repeated, reward and cost are summed."""
        reward = cost = goals = hazards = vases = 0.0
        terminated = truncated = False
        for _ in range(self.settings.action_repeat):
            _, gained, step_cost, terminated, truncated, info = self._env.step(np.asarray(action, np.float64))
            reward, cost, goals = reward + gained, cost + step_cost, goals + float(info.get("goal_met", False))
            hazards += info["cost_hazards"]
            vases += max(info.get("cost_vases_contact", 0.0), info.get("cost_vases_velocity", 0.0))
            if terminated or truncated:
                break
        self._numbers = self._read_numbers()
        costs = [hazards, vases] if self.vases_cost else [hazards]
        info = {"margin": self.margin(), "goals": goals, "cost": cost, "costs": costs}
        return self.observation(), reward, cost, terminated, truncated, info

    def facts(self) -> TrueState:
        """The true state."""
        task = self._env.task
        # The car drives along its own -y, the point robot along its x.
        forward = -np.array(task.agent.mat)[:, 1] if self.wheels else np.array(task.agent.mat)[:, 0]
        place, heading = np.array(task.agent.pos)[:2], float(np.arctan2(forward[1], forward[0]))
        return TrueState(
            place=place,
            heading=heading,
            body=self._car() if self.wheels else self._point(place, heading),
            goal=np.array(task.goal.pos)[:2],
            hazards=np.array(task.hazards.pos)[:, :2],
            vases=np.array([self._vase(f"vase{index}") for index in range(task.vases.num)]),
        )

    def _point(self, place: np.ndarray, heading: float) -> np.ndarray:
        """x, y, heading, velocity, yaw rate."""
        motion = self._env.task.data.qvel
        return np.array([*place, heading, *(self._frame @ np.array(motion[:2])), motion[2]])

    def _car(self) -> np.ndarray:
        """Place (3), quaternion (4), velocity (3), angular velocity (3), spins of wheels (2) and ball (3)."""
        data = self._env.task.data
        chassis, ball = (np.array(data.body(name).xmat).reshape(3, 3) for name in ("agent", "rear"))
        # MuJoCo counts the ball's spin in the ball's own frame; ours is in that of the chassis.
        spin = chassis.T @ ball @ np.array(data.joint("rear").qvel)
        wheels = [data.joint(name).qvel[0] for name in ("left", "right")]
        free = data.joint("agent")
        return np.concatenate([free.qpos, free.qvel, wheels, spin])

    def _vase(self, name: str) -> np.ndarray:
        data = self._env.task.data
        body, motion = data.body(name), data.joint(name).qvel
        heading = np.arctan2(body.xmat[3], body.xmat[0])
        # The last three of a free joint's velocities are in the body's own frame; a vase is hardly ever tilted.
        return np.array([*body.xpos[:2], heading, *motion[:2], motion[5], abs(motion[2])])

    def numbers(self) -> np.ndarray:
        """The official observation (60,)."""
        return np.asarray(self._numbers)

    def margin(self) -> float:
        """Metres to the edge of the nearest hazard, or to a vase that costs, clipped as in our task."""
        facts = self.facts()
        nearest = np.min(np.linalg.norm(facts.hazards - facts.place, axis=1)) - HAZARD_RADIUS
        if self.vases_cost:
            body = types.SimpleNamespace(x=facts.place[0], y=facts.place[1], heading=facts.heading)
            vases = types.SimpleNamespace(x=facts.vases[:, 0], y=facts.vases[:, 1], heading=facts.vases[:, 2])
            nearest = min(nearest, np.min(gap(vases, body, np)))
        return float(np.clip(nearest, MIN_MARGIN, MAX_MARGIN))

    def _own_of_car(self) -> list[np.ndarray]:
        """Velocity, forward acceleration, yaw rate and magnetometer, x ahead and y left."""
        names = ("velocimeter", "accelerometer", "gyro", "magnetometer")
        read = [np.array(self._env.task.data.sensor(name).data) for name in names]
        velocity, acceleration, _, magnet = (np.array([-one[1], one[0], one[2]]) for one in read)
        return [velocity[:2], acceleration[:1], read[2][2:], magnet]

    def observation(self) -> np.ndarray:
        """The observation that the settings ask for, float32."""
        if self.settings.observation == "lidar":
            return self.numbers().astype(np.float32)
        facts, numbers = self.facts(), self._numbers
        cosine, sine = np.cos(facts.heading), np.sin(facts.heading)
        to_ego = np.array([[cosine, sine], [-sine, cosine]])
        own = self._own_of_car() if self.wheels else [numbers[3:5], numbers[0:1], numbers[8:9], numbers[9:12]]
        hazards = (facts.hazards - facts.place) @ to_ego.T
        sets = [np.vstack([hazards, np.tile(PARKED, (self.settings.ghost_slots, 1))])]
        if self.vases_cost:
            sets.append((facts.vases[:, :2] - facts.place) @ to_ego.T)
            kinds = zip(sets, np.eye(2), strict=True)
            sets = [np.hstack([places, np.tile(kind, (len(places), 1))]) for places, kind in kinds]
        seen = [to_ego @ (facts.goal - facts.place), *(each.ravel() for each in sets)]
        return np.concatenate([*own, *seen, [cosine, -sine], facts.place]).astype(np.float32)

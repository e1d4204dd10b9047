"""The built-in tasks with sizes, back ends and floors, for readers that do not import JAX; a test compares them."""

from typing import NamedTuple

from dreamproof.settings.task_sets import MT30

RANDOM_RETURNS = {
    "walker-stand": 137.0,
    "walker-walk": 40.0,
    "walker-run": 25.0,
    "cheetah-run": 7.0,
    "reacher-easy": 53.0,
    "reacher-hard": 10.0,
    "acrobot-swingup": 3.0,
    "pendulum-swingup": 1.0,
    "cartpole-balance": 326.0,
    "cartpole-balance-sparse": 40.0,
    "cartpole-swingup": 51.0,
    "cartpole-swingup-sparse": 0.0,
    "cup-catch": 36.0,
    "finger-spin": 1.0,
    "finger-turn-easy": 142.0,
    "finger-turn-hard": 93.0,
    "fish-swim": 72.0,
    "hopper-stand": 1.0,
    "hopper-hop": 0.0,
    "walker-walk-backwards": 43.0,
    "walker-run-backwards": 25.0,
    "cheetah-run-backwards": 30.0,
    "cheetah-run-front": 7.0,
    "cheetah-run-back": 7.0,
    "cheetah-jump": 170.0,
    "hopper-hop-backwards": 0.0,
    "reacher-three-easy": 19.0,
    "reacher-three-hard": 2.0,
    "cup-spin": 173.0,
    "pendulum-spin": 124.0,
}
"""MT30 under uniform actions, mean of 100 recorded episodes (gallery/mt30_data/mt30.md)."""


class TaskFacts(NamedTuple):
    """A task with its default settings.

    mt30: its number in MT30. random_return, random_cost: means of an episode under uniform actions,
    None if not measured; without a cost also None. costs: the parts of the cost that may have
    limits of their own.
    """

    name: str
    mt30: int | None
    observation_size: int
    action_size: int
    episode_agent_steps: int
    back_end: str
    random_return: float | None
    random_cost: float | None = None
    costs: tuple[str, ...] = ()


HAZARDS_AND_VASES = ("cost_hazards", "cost_vases")
OTHERS = (
    TaskFacts("Ant", None, 37, 8, 1000, "MJX", None),
    TaskFacts("Hopper", None, 11, 3, 1000, "MJX", None),
    TaskFacts("SafetyCheetahVelocity", None, 17, 6, 500, "MJX", RANDOM_RETURNS["cheetah-run"], 0.0),
    TaskFacts("SafetyPointGoal1", None, 33, 2, 200, "JAX", -0.5, 55.5),
    TaskFacts("SafetyPointGoal2", None, 101, 2, 200, "JAX", -0.6, 100.9, HAZARDS_AND_VASES),
    TaskFacts("SafetyCarGoal1", None, 33, 2, 200, "JAX", -0.4, 58.7),
    TaskFacts("OfficialSafetyPointGoal1", None, 33, 2, 200, "CPU", -0.3, 50.8),
    TaskFacts("OfficialSafetyPointGoal2", None, 101, 2, 200, "CPU", -0.4, 78.8, HAZARDS_AND_VASES),
    TaskFacts("OfficialSafetyCarGoal1", None, 33, 2, 200, "CPU", -0.6, 61.1),
    TaskFacts("ProbeTarget", None, 1, 1, 10, "JAX", 3.3),
    TaskFacts("ProbeCredit", None, 2, 1, 10, "JAX", 0.0),
    TaskFacts("ProbeRecall", None, 2, 1, 10, "JAX", 0.0),
    TaskFacts("ProbeSurvive", None, 1, 1, 10, "JAX", 1.0),
    TaskFacts("ProbeCostLine", None, 1, 1, 20, "JAX", 0.0, 1.8),
)


def built_in_tasks() -> list[TaskFacts]:
    """Every task that a study can name without a file of its own, MT30 first."""
    suite = [
        TaskFacts(task.name, number, *task[1:], 500, "MJX", RANDOM_RETURNS[task.name])
        for number, task in enumerate(MT30)
    ]
    return [*suite, *OTHERS]

"""The multi-task sets of TD-MPC2: their tasks in the order of their numbers, with the sizes of each."""

from typing import NamedTuple


class TaskSize(NamedTuple):
    """A task and how many numbers of an observation and an action are its own; the others of a row are padding."""

    name: str
    observation_size: int
    action_size: int


SIZES = {
    "walker": (24, 6),
    "cheetah": (17, 6),
    "reacher-three": (8, 3),
    "reacher": (6, 2),
    "acrobot": (6, 1),
    "pendulum": (3, 1),
    "cartpole": (5, 1),
    "cup": (8, 2),
    "finger-spin": (9, 2),
    "finger-turn": (12, 2),
    "fish": (24, 5),
    "hopper": (15, 4),
    "mw": (39, 4),
}
"""Observation and action size by the beginning of a task's name; the longest beginning counts."""

DM_CONTROL = """
walker-stand walker-walk walker-run cheetah-run reacher-easy reacher-hard acrobot-swingup pendulum-swingup
cartpole-balance cartpole-balance-sparse cartpole-swingup cartpole-swingup-sparse cup-catch finger-spin
finger-turn-easy finger-turn-hard fish-swim hopper-stand hopper-hop
"""
CUSTOM = """
walker-walk-backwards walker-run-backwards cheetah-run-backwards cheetah-run-front cheetah-run-back cheetah-jump
hopper-hop-backwards reacher-three-easy reacher-three-hard cup-spin pendulum-spin
"""
META_WORLD = """
assembly basketball button-press-topdown button-press-topdown-wall button-press button-press-wall coffee-button
coffee-pull coffee-push dial-turn disassemble door-open door-close drawer-close drawer-open faucet-open faucet-close
hammer handle-press-side handle-press handle-pull-side handle-pull lever-pull peg-insert-side peg-unplug-side
pick-out-of-hole pick-place pick-place-wall plate-slide plate-slide-side plate-slide-back plate-slide-back-side
push-back push push-wall reach reach-wall shelf-place soccer stick-push stick-pull sweep-into sweep window-open
window-close bin-picking box-close door-lock door-unlock hand-insert
"""


def task_size(name: str) -> TaskSize:
    """The sizes of a task of the sets."""
    body = max((body for body in SIZES if f"{name}-".startswith(f"{body}-")), key=len)
    return TaskSize(name, *SIZES[body])


MT8_TASKS = """
cartpole-balance cartpole-swingup pendulum-swingup pendulum-spin reacher-easy reacher-hard reacher-three-easy
reacher-three-hard
"""
"""The tasks of four bodies without contacts: quick on a CPU."""

MT30 = tuple(map(task_size, (DM_CONTROL + CUSTOM).split()))
MT80 = (*MT30, *(task_size(f"mw-{name}") for name in META_WORLD.split()))
MT8 = tuple(map(task_size, MT8_TASKS.split()))
TASK_SETS = {"mt8": MT8, "mt30": MT30, "mt80": MT80}
ROWS = {501: "mt30", 101: "mt80"}
"""Which set a chunk belongs to, by the rows of its episodes."""

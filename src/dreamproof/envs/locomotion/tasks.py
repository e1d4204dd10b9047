"""The tasks on MJX by name: PWM's two, and as bodies with reward functions MT30 and one with a speed limit."""

from dreamproof.envs.locomotion.ant import Ant
from dreamproof.envs.locomotion.cup import Cup, FullCup, cup_catch, cup_spin
from dreamproof.envs.locomotion.finger import PreciseFinger, SpinningFinger, TurningFinger, finger_spin, finger_turn
from dreamproof.envs.locomotion.fish import Fish, fish_swim
from dreamproof.envs.locomotion.hopper import Hopper
from dreamproof.envs.locomotion.reacher import Reacher, ThreeLinkReacher, reach
from dreamproof.envs.locomotion.runners import (
    Cheetah,
    SpeedLimitedCheetah,
    SuiteHopper,
    Walker,
    cheetah_jump,
    cheetah_run,
    cheetah_run_raised,
    hopper_hop,
    hopper_stand,
    walker_move,
    walker_stand,
)
from dreamproof.envs.locomotion.suite import Reward, SuiteTask
from dreamproof.envs.locomotion.swings import (
    Acrobot,
    BalancedCartpole,
    Cartpole,
    Pendulum,
    acrobot_swing_up,
    cartpole_smooth,
    cartpole_sparse,
    pendulum_spin,
    pendulum_swing_up,
)
from dreamproof.envs.locomotion.task import Locomotion
from dreamproof.settings.env import EnvSettings

PWM_TASKS: dict[str, type[Locomotion]] = {"Ant": Ant, "Hopper": Hopper}

SUITE_TASKS: dict[str, tuple[type[SuiteTask], Reward]] = {
    "walker-stand": (Walker, walker_stand),
    "walker-walk": (Walker, walker_move(1.0)),
    "walker-run": (Walker, walker_move(8.0)),
    "walker-walk-backwards": (Walker, walker_move(-1.0)),
    "walker-run-backwards": (Walker, walker_move(-8.0)),
    "cheetah-run": (Cheetah, cheetah_run(10.0)),
    "cheetah-run-backwards": (Cheetah, cheetah_run(-8.0)),
    "cheetah-run-front": (Cheetah, cheetah_run_raised(Cheetah.back_foot, 6.0)),
    "cheetah-run-back": (Cheetah, cheetah_run_raised(Cheetah.front_foot, 6.0)),
    "cheetah-jump": (Cheetah, cheetah_jump),
    "hopper-stand": (SuiteHopper, hopper_stand),
    "hopper-hop": (SuiteHopper, hopper_hop(2.0)),
    "hopper-hop-backwards": (SuiteHopper, hopper_hop(-1.0)),
    "cartpole-balance": (BalancedCartpole, cartpole_smooth),
    "cartpole-balance-sparse": (BalancedCartpole, cartpole_sparse),
    "cartpole-swingup": (Cartpole, cartpole_smooth),
    "cartpole-swingup-sparse": (Cartpole, cartpole_sparse),
    "pendulum-swingup": (Pendulum, pendulum_swing_up),
    "pendulum-spin": (Pendulum, pendulum_spin),
    "acrobot-swingup": (Acrobot, acrobot_swing_up),
    "reacher-easy": (Reacher, reach(0.05)),
    "reacher-hard": (Reacher, reach(0.015)),
    "reacher-three-easy": (ThreeLinkReacher, reach(0.05)),
    "reacher-three-hard": (ThreeLinkReacher, reach(0.015)),
    "cup-catch": (Cup, cup_catch),
    "cup-spin": (FullCup, cup_spin),
    "finger-spin": (SpinningFinger, finger_spin),
    "finger-turn-easy": (TurningFinger, finger_turn),
    "finger-turn-hard": (PreciseFinger, finger_turn),
    "fish-swim": (Fish, fish_swim),
    "SafetyCheetahVelocity": (SpeedLimitedCheetah, cheetah_run(10.0)),
}


def make_task(task: str, settings: EnvSettings) -> Locomotion:
    """The environment of a task."""
    if task in PWM_TASKS:
        return PWM_TASKS[task].from_settings(task, settings)
    body, reward = SUITE_TASKS[task]
    return body.from_settings(task, settings, rewarded=reward)

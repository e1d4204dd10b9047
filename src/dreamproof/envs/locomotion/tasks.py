"""The locomotion tasks by name."""

from dreamproof.envs.locomotion.ant import Ant
from dreamproof.envs.locomotion.hopper import Hopper
from dreamproof.envs.locomotion.suite import CartpoleSwingup, CheetahRun, HopperHop, WalkerWalk
from dreamproof.envs.locomotion.task import Locomotion

TASKS: dict[str, type[Locomotion]] = {
    "Ant": Ant,
    "Hopper": Hopper,
    "cheetah-run": CheetahRun,
    "walker-walk": WalkerWalk,
    "hopper-hop": HopperHop,
    "cartpole-swingup": CartpoleSwingup,
}

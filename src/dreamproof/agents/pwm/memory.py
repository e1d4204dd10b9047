"""What acting remembers between steps, and acting in open loop, on imagined latents."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from dreamproof.jaxcore.types import TimeStep


class PwmMemory(NamedTuple):
    """Memory of N envs: the last action; in open loop also imagined latents (N, L) and the number of steps so far."""

    action: Array
    z: Array | None = None
    agent_steps: Array | None = None


def init_pwm_memory(envs: int, actions: int, latent: int | None) -> PwmMemory:
    """Zero actions, and zero latents of a size if there are any."""
    memory = PwmMemory(jnp.zeros((envs, actions)))
    if latent is None:
        return memory
    return memory._replace(z=jnp.zeros((envs, latent)), agent_steps=jnp.zeros((), jnp.int32))


def open_loop_latents(memory: PwmMemory, seen: TimeStep, encoded: Array, horizon: int) -> Array:
    """Imagined latents (N, L); encoded observations in new episodes, and in all envs after every `horizon` steps."""
    assert memory.agent_steps is not None and memory.z is not None
    is_due = memory.agent_steps % horizon == 0
    return jnp.where((seen.first | is_due)[:, None], encoded, memory.z)


def with_imagined(memory: PwmMemory, following: Array) -> PwmMemory:
    """The memory one step later, with the latents that are predicted to follow."""
    assert memory.agent_steps is not None
    return memory._replace(z=following, agent_steps=memory.agent_steps + 1)

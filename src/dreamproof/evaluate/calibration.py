"""The certificate's offset as the evaluation of a run calibrated it, for acting outside of the evaluation."""

from dataclasses import replace

import jax.numpy as jnp

from dreamproof.agents.api import Calibrated
from dreamproof.evaluate.loading import Loaded
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import plain_evaluations, read_evaluation

OFFSET = "certificate/offset"
"""Name of the offset among the scalars of an evaluation."""


def with_offset(loaded: Loaded, offset: float) -> Loaded:
    """The agent with this offset, which no evaluation calibrates again."""
    assert isinstance(loaded.agent, Calibrated)
    state = loaded.agent.with_offset(loaded.state, jnp.asarray(offset, jnp.float32))
    return replace(loaded, state=state, is_calibrated=True)


def as_evaluated(loaded: Loaded, run: RunFolder) -> Loaded:
    """The agent as the evaluation of this checkpoint under `id`, or else another condition, calibrated it.

    Without such an evaluation the offset stays that of the last validation in training.
    """
    if not isinstance(loaded.agent, Calibrated):
        return loaded
    for condition in sorted(plain_evaluations(run) or {}, key=lambda name: (name != "id", name)):
        record = read_evaluation(run, condition)
        for checkpoint in record.checkpoints.values() if record else ():
            if checkpoint.parameter_hash == loaded.record.parameter_hash and OFFSET in checkpoint.scalars:
                return with_offset(loaded, checkpoint.scalars[OFFSET])
    return loaded

"""A flow model with a flow policy learns what it can: one pack of probes with known answers."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.tiny import ManyProbes, make_pwm_pack, merged, tiny_pwm_cell

from dreamproof.envs.probes import CostLineProbe, CreditProbe, SurviveProbe, TargetProbe

# Remembering is not among them: the agent knows only what it sees.
PROBES = tuple(kind(episode_agent_steps=10) for kind in (TargetProbe, CreditProbe, SurviveProbe, CostLineProbe))
NAMES = [type(probe).__name__ for probe in PROBES]
AGENT: dict[str, Any] = {
    "world_model": {"units": [32], "encoder_units": [32], "latent": 32, "learning_rate": 3e-3},
    "behavior": {
        "actor_units": [24],
        "critic_units": [24],
        "horizon": 4,
        "replayed_starts": 16,
        "rounds": 4,
        "critic_passes": 2,
        "warm_up_epochs": 10,
        "actor_learning_rate": 4e-3,
        "critic_learning_rate": 4e-3,
    },
}
TRAIN: dict[str, Any] = {
    "envs": 8,
    "epoch_env_steps": 16,
    "batch": 32,
    "batches": 8,
    "window": 17,
    "prefill_agent_steps": 320,
    "replay_agent_steps": 8000,
}
FLOWS: dict[str, Any] = {
    "dynamics": {"kind": "flow", "integrator": "euler", "substeps": 2},
    "behavior": {"policy": "flow", "flow_substeps": 1},
}
MOST_EPOCHS, CHUNK_EPOCHS, EPISODES = 1000, 50, 32


class Learnt(NamedTuple):
    """Mean return of every probe, after so many epochs."""

    returns: np.ndarray
    epochs: int

    def is_enough(self, index: int) -> bool:
        """Whether four fifths of the way from random to best are gone."""
        known = PROBES[index].known()
        return bool(self.returns[index] > known.random_return + 0.8 * (known.best_return - known.random_return))


@pytest.fixture(scope="module")
def learnt(program_cache: Any) -> Learnt:
    """Validation episodes once all probes are learnt, or after the most epochs."""
    env = ManyProbes(PROBES)
    cell = tiny_pwm_cell(merged(AGENT, FLOWS), TRAIN)
    pack = make_pwm_pack(env, [cell] * len(PROBES), range(len(PROBES)), MOST_EPOCHS * 4 * 8)
    state, _ = pack.prefill(pack.init(), 40)
    for epochs in range(CHUNK_EPOCHS, MOST_EPOCHS + 1, CHUNK_EPOCHS):
        state, _ = pack.chunk(state, 4 * CHUNK_EPOCHS)
        found = pack.evaluate(state.agent, env.default_params(), "validation", EPISODES)
        now = Learnt(np.asarray(found.returns).mean(1), epochs)
        if all(now.is_enough(index) for index in range(len(PROBES))):
            break
    assert bool(state.agent.finite.all())
    return now


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_is_learnt_to_near_its_known_best(learnt: Learnt, name: str) -> None:
    index = NAMES.index(name)
    got = learnt.returns[index]
    assert learnt.is_enough(index), f"{got:.2f} after {learnt.epochs} epochs; {PROBES[index].known()}"

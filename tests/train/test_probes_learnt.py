"""Learning is proven on problems with known answers: one pack, five probes, one agent each."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.tiny import ManyProbes, make_pack, merged, tiny_cell

from dreamproof.envs.probes import PROBES

AGENT: dict[str, Any] = {
    "world_model": {
        "deterministic": 24,
        "bin_reach": 2.5,
        "learning_rate": 2e-2,
        "free_nats": 0.3,
        "margin_scale": 1.0,
    },
    "behavior": {
        "horizon": 5,
        "starts": 24,
        "discount": 0.9,
        "actor_learning_rate": 8e-3,
        "critic_learning_rate": 2e-2,
        "entropy": 3e-2,
        # Beyond the border of the line a step pays at most 1, so a price of 2 must keep the actor out.
        "multiplier_start": 2.0,
        "multiplier_most": 2.0,
    },
    "planner": {"samples": 16, "proposals": 8},
    "risk": {"learning_rate": 1e-2},
}
TRAIN = {"batch": 8, "window": 10, "updates_per_agent_step": 1.0, "prefill_agent_steps": 160}
MOST_ENV_STEPS, CHUNK = 400, 40
EPISODES = 32
NAMES = list(PROBES)
KNOWN = [probe(episode_agent_steps=10).known() for probe in PROBES.values()]
LINE = NAMES.index("ProbeCostLine")
MODES = ("constrained", "off")


class Learnt(NamedTuple):
    """Mean return and cost of every probe, led by the planner or by the actor alone, and the updates it took."""

    returns: dict[str, np.ndarray]
    costs: dict[str, np.ndarray]
    updates: int

    def is_enough(self, mode: str, index: int) -> bool:
        """Whether four fifths of the way from random to best are gone; on the line half of the safe way, safely."""
        known, got = KNOWN[index], float(self.returns[mode][index])
        if index == LINE:
            return got > 0.5 * known.best_safe_return and float(self.costs[mode][index]) <= 1.0
        return got > known.random_return + 0.8 * (known.best_return - known.random_return)


@pytest.fixture(scope="module")
def learnt(program_cache: Any) -> Learnt:
    """Validation episodes once all probes are learnt, or after 1,600 updates."""
    env = ManyProbes()
    cells = {mode: tiny_cell(merged(AGENT, {"planner": {"mode": mode}}), TRAIN) for mode in MODES}
    packs = {mode: make_pack(env, [cell] * 5, range(5), 4 * MOST_ENV_STEPS) for mode, cell in cells.items()}
    pack = packs["constrained"]
    state, _ = pack.prefill(pack.init(), 40)
    for _ in range(MOST_ENV_STEPS // CHUNK):
        state, _ = pack.chunk(state, CHUNK)
        now = Learnt({}, {}, int(state.agent.gradient_steps[0]))
        for mode, each in packs.items():
            found = each.evaluate(state.agent, env.default_params(), "validation", EPISODES)
            now.returns[mode], now.costs[mode] = (np.asarray(part).mean(1) for part in (found.returns, found.costs))
        if all(now.is_enough(mode, index) for mode in MODES for index in range(5)):
            break
    assert bool(state.agent.finite.all())
    return now


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "ProbeCostLine"])
def test_a_probe_is_learnt_to_near_its_known_best(learnt: Learnt, name: str, mode: str) -> None:
    index = NAMES.index(name)
    got = learnt.returns[mode][index]
    assert learnt.is_enough(mode, index), f"{got:.2f} after {learnt.updates} updates; {KNOWN[index]}"


@pytest.mark.parametrize("mode", MODES)
def test_a_constraint_is_kept_and_the_best_safe_return_approached(learnt: Learnt, mode: str) -> None:
    # Walking on to the end would cost 8 of 10 steps and pay 8.0; the best safe walk pays 4.6.
    got, cost = learnt.returns[mode][LINE], learnt.costs[mode][LINE]
    assert learnt.is_enough(mode, LINE), f"{got:.2f} at cost {cost:.2f} after {learnt.updates} updates"

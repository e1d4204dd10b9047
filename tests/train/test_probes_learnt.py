"""Learning is proven on problems with known answers: one pack, five probes, one agent each."""

import itertools
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
# Prices rise over the planned steps; how soon after them all is learnt differs from processor to processor.
PLANNED_AGENT_STEPS, MOST_ENV_STEPS, CHUNK = 1600, 800, 40
EPISODES = 32
NAMES = list(PROBES)
KNOWN = [probe(episode_agent_steps=10).known() for probe in PROBES.values()]
LINE = NAMES.index("ProbeCostLine")
MODES = ("constrained", "off")


class Learnt(NamedTuple):
    """What validations said of each mode and probe, (V, 5): led by the planner or by the actor alone."""

    returns: dict[str, list[np.ndarray]]
    costs: dict[str, list[np.ndarray]]

    def good(self, mode: str, index: int) -> list[bool]:
        """Whether four fifths of the way from random to best were gone; on the line half of the safe way, safely."""
        known, got = KNOWN[index], np.asarray(self.returns[mode])[:, index]
        if index == LINE:
            is_safe = np.asarray(self.costs[mode])[:, index] <= 1.0
            return list((got > 0.5 * known.best_safe_return) & is_safe)
        return list(got > known.random_return + 0.8 * (known.best_return - known.random_return))

    def is_learnt(self, mode: str, index: int) -> bool:
        """Whether that held twice in a row: where the planner walks along a border, costs come and go."""
        good = self.good(mode, index)
        return any(map(all, itertools.pairwise(good)))

    def told(self, mode: str, index: int) -> str:
        """The whole course, for a failure's message."""
        pairs = zip(self.returns[mode], self.costs[mode], strict=True)
        return " ".join(f"{returns[index]:.2f}/{costs[index]:.2f}" for returns, costs in pairs)


@pytest.fixture(scope="module")
def learnt(program_cache: Any) -> Learnt:
    """Validations until all probes are learnt, or for 3,200 updates."""
    env = ManyProbes()
    cells = {mode: tiny_cell(merged(AGENT, {"planner": {"mode": mode}}), TRAIN) for mode in MODES}
    packs = {mode: make_pack(env, [cell] * 5, range(5), PLANNED_AGENT_STEPS) for mode, cell in cells.items()}
    pack = packs["constrained"]
    state, _ = pack.prefill(pack.init(), 40)
    found = Learnt({mode: [] for mode in MODES}, {mode: [] for mode in MODES})
    for _ in range(MOST_ENV_STEPS // CHUNK):
        state, _ = pack.chunk(state, CHUNK)
        for mode, each in packs.items():
            seen = each.evaluate(state.agent, env.default_params(), "validation", EPISODES)
            found.returns[mode].append(np.asarray(seen.returns).mean(1))
            found.costs[mode].append(np.asarray(seen.costs).mean(1))
        if all(found.is_learnt(mode, index) for mode in MODES for index in range(5)):
            break
    assert bool(state.agent.finite.all())
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "ProbeCostLine"])
def test_a_probe_is_learnt_to_near_its_known_best(learnt: Learnt, name: str, mode: str) -> None:
    index = NAMES.index(name)
    assert learnt.is_learnt(mode, index), f"{learnt.told(mode, index)}; {KNOWN[index]}"


@pytest.mark.parametrize("mode", MODES)
def test_a_constraint_is_kept_and_the_best_safe_return_approached(learnt: Learnt, mode: str) -> None:
    # Walking on to the end would cost 8 of 10 steps and pay 8.0; the best safe walk pays 4.6.
    assert learnt.is_learnt(mode, LINE), learnt.told(mode, LINE)

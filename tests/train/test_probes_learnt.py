"""Learning is proven on problems with known answers: one pack, five probes, five seeds each, judged at a fixed end."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.tiny import ManyProbes, make_pack, merged, tiny_cell

from dreamproof.envs.probes import PROBES
from dreamproof.settings.cell import DreamerCell
from dreamproof.testing.many_probes import way_from_random

pytestmark = [pytest.mark.long(250), pytest.mark.optimised]

AGENT: dict[str, Any] = {
    "world_model": {
        "deterministic": 24,
        "bin_reach": 2.5,
        "learning_rate": 1e-2,
        "free_nats": 0.3,
        "margin_scale": 1.0,
    },
    "behavior": {
        "horizon": 5,
        "starts": 24,
        "discount": 0.9,
        "actor_learning_rate": 2e-3,
        "critic_learning_rate": 2e-2,
        "entropy_coef": 3e-2,
        # Beyond the border of the line a step returns at most 1, so a cost coefficient of 2 must keep the actor out.
        "multiplier_start": 2.0,
        "multiplier_max": 2.0,
    },
    # The planner may spend less than the test allows.
    "planner": {"samples": 16, "proposals": 8, "cost_limit": 0.25},
    "risk": {"learning_rate": 1e-2},
}
# The best safe walk ends on the border, where the smallest error of the model costs every step: keep a distance.
OF_PROBE: dict[str, dict[str, Any]] = {"ProbeCostLine": {"planner": {"margin": 0.1}}}
TRAIN = {"batch": 8, "window": 10, "updates_per_agent_step": 1.0, "prefill_agent_steps": 160}
SEEDS, MIN_LEARNT = 5, 4
PLANNED_AGENT_STEPS, ENV_STEPS = 1600, 400
EPISODES = 32
NAMES = list(PROBES)
KNOWN = [probe(episode_agent_steps=10).known() for probe in PROBES.values()]
LINE = NAMES.index("ProbeCostLine")
MODES = ("constrained", "off")


class Learnt(NamedTuple):
    """Mean returns and costs (5, S) of every probe and seed at the end, with the planner in a mode or without it."""

    returns: np.ndarray
    costs: np.ndarray

    def solved(self, index: int) -> np.ndarray:
        """Whether 80 % of the way from random to best are reached; on the line half of the safe way, safely. (S,)."""
        if index == LINE:
            return (self.returns[index] > 0.5 * KNOWN[index].best_safe_return) & (self.costs[index] <= 1.0)
        return way_from_random(self.returns[index], KNOWN[index]) > 0.8

    def shown(self, index: int) -> str:
        """Return and cost of every seed, for a failure's message."""
        pairs = zip(self.returns[index], self.costs[index], strict=True)
        return " ".join(f"{gained:.2f}/{cost:.2f}" for gained, cost in pairs)


def cells_of(mode: str) -> list[DreamerCell]:
    """All seeds of the first probe, then of the second, and so on."""
    agents = [merged(merged(AGENT, OF_PROBE.get(name, {})), {"planner": {"mode": mode}}) for name in NAMES]
    return [tiny_cell(agent, TRAIN) for agent in agents for _ in range(SEEDS)]


@pytest.fixture(scope="module")
def learnt() -> dict[str, Learnt]:
    """What the same agents do at the end of training, with the planner and without it."""
    env = ManyProbes()
    seeds = list(range(SEEDS)) * len(NAMES)
    packs = {mode: make_pack(env, cells_of(mode), seeds, PLANNED_AGENT_STEPS) for mode in MODES}
    pack = packs["constrained"]
    state, _ = pack.prefill(pack.init(), 40)
    state, _ = pack.chunk(state, ENV_STEPS)
    assert bool(state.agent.finite.all())
    found = {}
    for mode, each in packs.items():
        seen = each.evaluate(state.agent, env.default_params(), "validation", EPISODES)
        found[mode] = Learnt(*(np.asarray(part).mean(1).reshape(-1, SEEDS) for part in (seen.returns, seen.costs)))
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "ProbeCostLine"])
def test_a_probe_is_learnt_to_near_its_known_best(learnt: dict[str, Learnt], name: str, mode: str) -> None:
    index = NAMES.index(name)
    assert learnt[mode].solved(index).sum() >= MIN_LEARNT, f"{learnt[mode].shown(index)}; {KNOWN[index]}"


@pytest.mark.parametrize("mode", MODES)
def test_a_constraint_is_kept_and_the_best_safe_return_approached(learnt: dict[str, Learnt], mode: str) -> None:
    # Walking on to the end would cost 8 of 10 steps and return 8.0; the best safe walk returns 4.6.
    assert learnt[mode].solved(LINE).sum() >= MIN_LEARNT, learnt[mode].shown(LINE)

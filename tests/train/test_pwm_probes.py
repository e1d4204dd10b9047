"""A flow model with a flow policy learns what it can: five seeds of four probes with known answers, in one pack.

Judged at a fixed end, never at a first success, and with room for one seed of five: what a seed does differs with the
last bits of a processor's sums. `python -m dreamproof.testing.pwm_probes` tries more seeds and other dynamics.
"""

import pytest
from tests.tiny import merged

from dreamproof.testing.pwm_probes import AGENT, END, FLOW_POLICY, PROBES, TRAIN, ProbePlan, ProbeResult, results

pytestmark = [pytest.mark.long(60), pytest.mark.optimised]

PLAN = ProbePlan(seeds=range(5), epochs=60, looks=1, train=merged(TRAIN, {"batch": 16}))
MIN_SOLVED = 4
NAMES = [type(probe).__name__ for probe in PROBES]


@pytest.fixture(scope="module")
def learnt() -> ProbeResult:
    """Returns at the end."""
    return list(results(merged(merged(AGENT, END), FLOW_POLICY), PLAN))[-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_probe_is_learnt_to_near_its_known_best(learnt: ProbeResult, name: str) -> None:
    index = NAMES.index(name)
    got = learnt.returns[index].round(2).tolist()
    assert learnt.solved[index].sum() >= MIN_SOLVED, f"{got}; {PROBES[index].known()}"

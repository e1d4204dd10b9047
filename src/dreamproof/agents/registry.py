"""Names of agents."""

from typing import Any

from dreamproof.agents.api import Agent
from dreamproof.agents.dreamer.agent import DreamerAgent
from dreamproof.agents.pwm.agent import PwmAgent
from dreamproof.agents.pwm.many import ManyPolicies
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec

AGENTS: dict[str, Any] = {"dreamer": DreamerAgent, "pwm": PwmAgent}
MANY_POLICIES: dict[str, Any] = {"pwm": ManyPolicies}


def make_agent(name: str, spec: Spec, settings: Any) -> Agent:
    """The agent of that name for a task."""
    if name not in AGENTS:
        raise BadInput(f"there is no agent '{name}'; known: {', '.join(AGENTS)}", "dreamproof schema")
    agent: Agent = (MANY_POLICIES if spec.policies else AGENTS)[name](spec, settings)
    return agent

"""Replicas that collect their own experience and start from a pretrained world model."""

from pathlib import Path
from typing import Any

from dreamproof.agents.api import Agent, FreezableModel
from dreamproof.envs.api import Env
from dreamproof.settings.train import EpochTrain
from dreamproof.train.pack import Pack, PackState
from dreamproof.train.world_models import Wanted, check_world_model, with_world_model


class PretrainedPack(Pack):
    """A pack whose world models come from another run and are frozen, or keep learning with `fine_tune`.

    source: where the world model is. wanted: what it must fit, for each replica.
    """

    source: str
    wanted: Wanted

    def __init__(
        self, agent: Agent, env: Env, settings: EpochTrain, seeds: list[int], scalars: dict[str, Any], steps: int
    ) -> None:
        assert isinstance(agent, FreezableModel), type(agent)
        self.model_fields = agent.model_fields
        learner = agent if settings.fine_tune else agent.with_frozen_model()
        super().__init__(learner, env, settings, seeds, scalars, steps)

    def prepare(self, state: PackState) -> PackState:
        """Takes over the world model, then fills the replay; donates `state`."""
        place = Path(self.source)
        agents, self.sources[self.source] = with_world_model(state.agent, self.model_fields, place, self.wanted)
        return super().prepare(state._replace(agent=agents))

    def check_sources(self, sources: dict[str, str]) -> None:
        """Refuses to resume from a checkpoint that started with another world model."""
        check_world_model(Path(self.source), sources)
        super().check_sources(sources)

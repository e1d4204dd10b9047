"""Settings of the Dreamer-style safe agent. Traced ones are scalars that may differ between replicas of one compile."""

from typing import Annotated, Literal

from pydantic import Field

from dreamproof.settings.strict import Settings
from dreamproof.settings.traced import TRACED

Traced = Annotated[float, TRACED]


class WorldModel(Settings):
    """The recurrent state-space model and its heads."""

    latent: Literal["categorical", "gaussian"] = "gaussian"
    groups: int = Field(32, ge=1, description="categoricals, or dimensions of the gaussian latent")
    classes: int = Field(16, ge=2, description="classes of one categorical")
    deterministic: int = Field(256, ge=1, description="width of the recurrent state")
    units: int = Field(256, ge=1, description="width of every hidden layer")
    encoder_layers: int = Field(2, ge=1)
    head_layers: int = Field(2, ge=1)
    entities: bool = Field(True, description="carry sets of entities as themselves where the task names them")
    entity_units: int = Field(64, ge=1)
    absolute: bool = Field(False, description="also model slots that only tell where the world's origin and axes are")
    bins: int = Field(101, ge=3, description="bins of a two-hot head; odd")
    bin_reach: float = Field(5.0, gt=0, description="outermost bins are ±symexp(reach)")
    uniform_mix: float = Field(0.01, ge=0, lt=1)
    learning_rate: Traced = Field(3e-4, gt=0)
    clip: float = Field(1000.0, gt=0)
    reconstruction_scale: Traced = Field(20.0, gt=0, description="weight of the squared error of symlog observations")
    entity_scale: Traced = Field(500.0, ge=0, description="weight of the squared error of where entities go")
    margin_scale: Traced = Field(5.0, ge=0)
    dynamics_scale: Traced = Field(1.0, ge=0)
    representation_scale: Traced = Field(0.1, ge=0)
    free_nats: Traced = Field(1.0, ge=0)

    @property
    def latent_size(self) -> int:
        """Numbers in the stochastic state."""
        return self.groups * (self.classes if self.latent == "categorical" else 1)


class Behavior(Settings):
    """Actor and critics, learned in imagination."""

    horizon: int = Field(15, ge=1)
    starts: int = Field(256, ge=1, description="imagined trajectories an update")
    discount: float = Field(0.997, gt=0, lt=1)
    mixing: float = Field(0.95, ge=0, le=1, description="lambda of the returns")
    actor_learning_rate: Traced = Field(1e-4, gt=0)
    critic_learning_rate: Traced = Field(1e-4, gt=0)
    clip: float = Field(100.0, gt=0)
    entropy: Traced = Field(3e-4, ge=0)
    least_sigma: float = Field(0.1, gt=0)
    most_sigma: float = Field(1.0, gt=0)
    slow_fraction: float = Field(0.02, gt=0, le=1)
    slow_scale: float = Field(1.0, ge=0, description="weight of the pull towards the slow critic")
    replay_value_scale: Traced = Field(0.3, ge=0, description="weight of the critics' loss on replayed returns")
    imagined_cost_scale: Traced = Field(
        0.0, ge=0, description="weight of imagined returns for the cost critic; 0 learns from executed steps alone"
    )
    multiplier_start: Traced = Field(0.0, ge=0, description="price of one unit of cost")
    multiplier_from: Traced = Field(0.0, ge=0, description="trained fraction at which the price begins to rise from 0")
    multiplier_to: Traced = Field(0.0, ge=0, description="trained fraction at which the price is whole")
    multiplier_rate: Traced = Field(0.0, ge=0, description="how much an excess of imagined cost raises the price")
    multiplier_growth: Traced = Field(0.0, ge=0, description="growth of that rate an update (augmented Lagrangian)")
    multiplier_most: Traced = Field(1.0, ge=0)
    cost_limit: Traced = Field(1.0, ge=0, description="cost of an episode, in simulator steps, that is tolerated")


class Planner(Settings):
    """Constrained cross-entropy planning at every decision."""

    mode: Literal["constrained", "filter", "off"] = "constrained"
    horizon: int = Field(12, ge=1)
    samples: int = Field(64, ge=1)
    proposals: int = Field(24, ge=0, description="actor rollouts among the candidates")
    elites: int = Field(12, ge=1)
    iterations: int = Field(2, ge=1)
    momentum: float = Field(0.1, ge=0, lt=1)
    first_sigma: float = Field(0.3, gt=0)
    least_sigma: float = Field(0.05, ge=0)
    draws: int = Field(1, ge=1, description="latent draws that every candidate is scored on")
    worst_draw: Traced = Field(0.0, ge=0, le=1, description="0: mean cost over the draws, 1: their worst")
    evaluation_samples: int | None = Field(None, ge=1, description="samples without exploration; None: as in training")
    evaluation_iterations: int | None = Field(None, ge=1)
    evaluation_draws: int | None = Field(None, ge=1)
    execute_best: Traced = Field(
        1.0, ge=0, le=1, description="1: execute the best of elite mean, elites and actor, each scored; 0: the mean"
    )
    explore_sigma: Traced = Field(0.1, ge=0, description="noise on the executed action while training")
    cost_limit: Traced = Field(5.0, ge=0, description="cost of an episode up to which a candidate is safe; 0 works")
    margin: Traced = Field(0.0, ge=0, lt=1, description="metres by which every hazard counts as larger")
    terminal_cost: Traced = Field(
        0.0, ge=0, le=1, description="share of the cost critic in what is predicted beyond the horizon"
    )
    cost_price: Traced = Field(0.0, ge=0, description="price of predicted cost among safe candidates")
    proportional_gain: Traced = Field(0.0, ge=0, description="of a PID controller on that price (OSRP-Lag)")
    integral_gain: Traced = Field(0.0, ge=0)
    derivative_gain: Traced = Field(0.0, ge=0)
    price_most: Traced = Field(0.1, ge=0)

    def at_evaluation(self) -> "Planner":
        """The same planner with the effort of evaluation."""
        asked = {name: getattr(self, f"evaluation_{name}") for name in ("samples", "iterations", "draws")}
        return self.model_copy(update={name: value for name, value in asked.items() if value is not None})


class Filter(Settings):
    """How observations become a belief. The defaults trust every observation and assume no delay."""

    hypotheses: Literal[1, 2, 3] = Field(1, description="filters side by side, the k-th for actions k - 1 steps late")
    longest_delay: Traced = Field(2.0, ge=0, le=2, description="agent steps; hypotheses of a longer delay never win")
    patience: Traced = Field(
        0.0, ge=0, description="steps of evidence that an entity which jumps or vanishes keeps its predicted place by"
    )
    gate: Traced = Field(0.2, gt=0, description="relative distance from the predicted place that counts as a jump")
    gain: Traced = Field(1.0, gt=0, le=1, description="share of the observation in where an entity is; 1: all of it")


class Risk(Settings):
    """Epistemic uncertainty and the calibrated barrier; weights 0 leave only the shadow values."""

    uncertainty_weight: Traced = Field(0.0, ge=0)
    certificate_weight: Traced = Field(0.0, ge=0)
    price: Traced = Field(0.1, ge=0, description="beta: price of one unit of risk penalty")
    price_rate: Traced = Field(0.0, ge=0, description="how fast beta follows the cost of training episodes")
    price_most: Traced = Field(2.0, ge=0)
    tube: Traced = Field(0.0, ge=0, description="kappa: metres of margin per metre of disagreement about the margin")
    innovation_margin: Traced = Field(
        0.0, ge=0, lt=1, description="metres of margin while observations are far from what was predicted"
    )
    certified_only: Traced = Field(0.0, ge=0, le=1, description="1: candidates must keep the lower barrier above 0")
    certificate_steps: int = Field(12, ge=1, description="agent steps for which the certificate promises a margin >= 0")
    members: int = Field(5, ge=2)
    units: int = Field(64, ge=1)
    prior_scale: float = Field(0.5, ge=0)
    mask_probability: float = Field(0.8, gt=0, le=1)
    learning_rate: Traced = Field(3e-4, gt=0)
    barrier_discount: float = Field(0.95, gt=0, lt=1)
    barrier_quantile: float = Field(0.2, gt=0, lt=1)
    barrier_decay: float = Field(0.2, gt=0, le=1)
    miscoverage: float = Field(0.1, gt=0, lt=1, description="delta of the certificate")
    warm_up: float = Field(0.15, ge=0, lt=1, description="trained fraction before risk begins to count")
    ramp_end: float = Field(0.4, gt=0, le=1, description="trained fraction from which it counts in full")


class Dreamer(Settings):
    """The whole agent."""

    world_model: WorldModel = WorldModel()
    behavior: Behavior = Behavior()
    planner: Planner = Planner()
    filter: Filter = Filter()
    risk: Risk = Risk()
    latent_swaps: Traced = Field(0.0, ge=0, description="evaluation only: parts of the latent replaced by prior draws")
    precision: Literal["float32", "bfloat16"] = "float32"

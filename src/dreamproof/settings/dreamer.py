"""Settings of the Dreamer-style safe agent. Traced ones are scalars that may differ between replicas of one compile."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from dreamproof.settings.strict import Settings
from dreamproof.settings.traced import TRACED

Traced = Annotated[float, TRACED]


class DreamerModelSettings(Settings):
    """The recurrent state-space model and its heads."""

    latent: Literal["categorical", "gaussian"] = "gaussian"
    groups: int = Field(32, ge=1, description="categoricals, or dimensions of the gaussian latent")
    classes: int = Field(16, ge=2, description="classes of one categorical")
    deterministic: int = Field(256, ge=1, description="width of the recurrent state")
    units: int = Field(256, ge=1, description="width of every hidden layer")
    encoder_layers: int = Field(2, ge=1)
    head_layers: int = Field(2, ge=1)
    entities: bool = Field(True, description="model entities as a set if the task names them")
    entity_units: int = Field(64, ge=1)
    absolute: bool = Field(False, description="also model slots that depend on the world's origin and axes")
    bins: int = Field(101, ge=3, description="bins of a two-hot head; odd")
    bin_reach: float = Field(5.0, gt=0, description="outermost bins are ±symexp(reach)")
    uniform_mix: float = Field(0.01, ge=0, lt=1)
    learning_rate: Traced = Field(3e-4, gt=0)
    clip: float = Field(1000.0, gt=0)
    reconstruction_scale: Traced = Field(20.0, gt=0, description="weight of the squared error of symlog observations")
    entity_scale: Traced = Field(500.0, ge=0, description="weight of the squared error of predicted entity positions")
    margin_scale: Traced = Field(5.0, ge=0)
    dynamics_scale: Traced = Field(1.0, ge=0)
    representation_scale: Traced = Field(0.1, ge=0)
    free_nats: Traced = Field(1.0, ge=0)

    @property
    def latent_size(self) -> int:
        """Size of the stochastic state."""
        return self.groups * (self.classes if self.latent == "categorical" else 1)


class DreamerBehaviorSettings(Settings):
    """Actor and critics, learned in imagination."""

    old_names: ClassVar[dict[str, str]] = {
        "mixing": "gae_lambda",
        "entropy": "entropy_coef",
        "least_sigma": "min_std",
        "most_sigma": "max_std",
        "multiplier_most": "multiplier_max",
    }

    horizon: int = Field(15, ge=1)
    starts: int = Field(256, ge=1, description="imagined trajectories per update")
    discount: float = Field(0.997, gt=0, lt=1)
    gae_lambda: float = Field(0.95, ge=0, le=1, description="lambda of the λ-returns")
    actor_learning_rate: Traced = Field(1e-4, gt=0)
    critic_learning_rate: Traced = Field(1e-4, gt=0)
    clip: float = Field(100.0, gt=0)
    entropy_coef: Traced = Field(3e-4, ge=0, description="weight of the entropy bonus")
    min_std: float = Field(0.1, gt=0, description="lower bound of the policy's standard deviation")
    max_std: float = Field(1.0, gt=0, description="upper bound of the policy's standard deviation")
    slow_fraction: float = Field(0.02, gt=0, le=1, description="rate of the slow target critic's moving average")
    slow_scale: float = Field(1.0, ge=0, description="weight of the loss towards the slow critic's values")
    replay_value_scale: Traced = Field(0.3, ge=0, description="weight of the critics' loss on replayed returns")
    imagined_cost_scale: Traced = Field(
        0.0, ge=0, description="weight of imagined returns for the cost critic; 0: executed steps only"
    )
    multiplier_start: Traced = Field(0.0, ge=0, description="initial Lagrange multiplier of the cost")
    multiplier_from: Traced = Field(
        0.0, ge=0, description="trained fraction at which the multiplier starts to ramp up from 0"
    )
    multiplier_to: Traced = Field(0.0, ge=0, description="trained fraction at which the multiplier is fully ramped up")
    multiplier_rate: Traced = Field(0.0, ge=0, description="step size of the multiplier on the excess of imagined cost")
    multiplier_growth: Traced = Field(
        0.0, ge=0, description="growth of that step size per update (augmented Lagrangian)"
    )
    multiplier_max: Traced = Field(1.0, ge=0)
    cost_limit: Traced = Field(1.0, ge=0, description="tolerated cost per episode, in simulator steps")


class PlannerSettings(Settings):
    """Constrained cross-entropy planning at every decision."""

    added: ClassVar[dict[str, Any]] = {"cost_limits": {}, "evaluation_margin": 0.0}
    old_names: ClassVar[dict[str, str]] = {
        "first_sigma": "init_std",
        "least_sigma": "min_std",
        "explore_sigma": "explore_std",
        "cost_price": "cost_coef",
        "price_most": "cost_coef_max",
    }

    mode: Literal["constrained", "filter", "off"] = "constrained"
    horizon: int = Field(12, ge=1)
    samples: int = Field(64, ge=1)
    proposals: int = Field(24, ge=0, description="actor rollouts among the candidates")
    elites: int = Field(12, ge=1)
    iterations: int = Field(2, ge=1)
    momentum: float = Field(0.1, ge=0, lt=1)
    init_std: float = Field(0.3, gt=0, description="initial standard deviation of sampled actions")
    min_std: float = Field(0.05, ge=0)
    draws: int = Field(1, ge=1, description="latent samples on which every candidate is scored")
    check_draws: int = Field(
        0,
        ge=0,
        description="new latent samples on which elite mean, elites and actor are scored before one is executed",
    )
    worst_draw: Traced = Field(0.0, ge=0, le=1, description="0: mean cost over the latent samples, 1: the worst one")
    evaluation_samples: int | None = Field(None, ge=1, description="samples without exploration; None: as in training")
    evaluation_iterations: int | None = Field(None, ge=1)
    evaluation_draws: int | None = Field(None, ge=1)
    evaluation_check_draws: int | None = Field(None, ge=0)
    execute_best: Traced = Field(
        0.0, ge=0, le=1, description="1: execute the best of elite mean, elites and actor, each scored; 0: the mean"
    )
    execute_safe: Traced = Field(
        0.0, ge=0, le=1, description="1: execute the best of them where the elite mean exceeds the limit, else the mean"
    )
    explore_std: Traced = Field(0.1, ge=0, description="standard deviation of action noise in training")
    cost_limit: Traced = Field(
        5.0, ge=0, description="predicted episode cost up to which a candidate is safe; may be 0"
    )
    cost_limits: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict,
        description="limits of named costs of the task, {hazards: 5, vases: 1}: a candidate is safe if it keeps all, "
        "and cost_limit is not used; empty: the total cost alone",
    )
    margin: Traced = Field(0.0, ge=0, lt=1, description="metres added to the radius of every hazard")
    evaluation_margin: Traced = Field(
        0.0, ge=0, lt=1, description="metres added to `margin` when acting without exploration"
    )
    terminal_cost: Traced = Field(
        0.0, ge=0, le=1, description="weight of the cost critic in the predicted cost beyond the horizon"
    )
    cost_coef: Traced = Field(0.0, ge=0, description="weight of predicted cost among safe candidates")
    proportional_gain: Traced = Field(0.0, ge=0, description="of a PID controller of cost_coef (OSRP-Lag)")
    integral_gain: Traced = Field(0.0, ge=0)
    derivative_gain: Traced = Field(0.0, ge=0)
    cost_coef_max: Traced = Field(0.1, ge=0)

    def at_evaluation(self) -> "PlannerSettings":
        """The same planner with the compute budget of evaluation."""
        overrides = {
            "samples": self.evaluation_samples,
            "iterations": self.evaluation_iterations,
            "draws": self.evaluation_draws,
            "check_draws": self.evaluation_check_draws,
        }
        return self.model_copy(update={name: value for name, value in overrides.items() if value is not None})


class FilterSettings(Settings):
    """How observations become a belief. The defaults trust every observation and assume no delay."""

    old_names: ClassVar[dict[str, str]] = {"longest_delay": "max_delay"}

    hypotheses: Literal[1, 2, 3] = Field(1, description="parallel filters, the k-th for actions delayed by k - 1 steps")
    max_delay: Traced = Field(2.0, ge=0, le=2, description="agent steps; longer delays are never selected")
    patience: Traced = Field(
        0.0, ge=0, description="steps for which an entity that jumps away or vanishes keeps its predicted position"
    )
    gate: Traced = Field(0.2, gt=0, description="relative distance from the predicted position that counts as a jump")
    gain: Traced = Field(
        1.0, gt=0, le=1, description="weight of the observation in an entity's position; 1: observation only"
    )


class RiskSettings(Settings):
    """Epistemic uncertainty and the calibrated barrier; with weights of 0 both are only logged."""

    old_names: ClassVar[dict[str, str]] = {"price": "coef", "price_rate": "coef_rate", "price_most": "coef_max"}

    uncertainty_weight: Traced = Field(0.0, ge=0)
    certificate_weight: Traced = Field(0.0, ge=0)
    coef: Traced = Field(0.1, ge=0, description="beta: weight of the risk penalty")
    coef_rate: Traced = Field(0.0, ge=0, description="step size of beta on the excess cost of training episodes")
    coef_max: Traced = Field(2.0, ge=0)
    tube: Traced = Field(0.0, ge=0, description="kappa: metres of margin per metre of disagreement about the margin")
    innovation_margin: Traced = Field(
        0.0, ge=0, lt=1, description="metres of margin added while observations are far from their predictions"
    )
    certified_only: Traced = Field(
        0.0, ge=0, le=1, description="1: the lower barrier bound of candidates must stay above 0"
    )
    certificate_steps: int = Field(
        12, ge=1, description="agent steps for which the certificate guarantees a margin >= 0"
    )
    members: int = Field(5, ge=2)
    units: int = Field(64, ge=1)
    prior_scale: float = Field(0.5, ge=0)
    mask_probability: float = Field(0.8, gt=0, le=1)
    learning_rate: Traced = Field(3e-4, gt=0)
    barrier_discount: float = Field(0.95, gt=0, lt=1)
    barrier_quantile: float = Field(0.2, gt=0, lt=1)
    barrier_decay: float = Field(0.2, gt=0, le=1)
    miscoverage: float = Field(0.1, gt=0, lt=1, description="delta of the certificate")
    warm_up: float = Field(0.15, ge=0, lt=1, description="trained fraction before the risk penalty starts")
    ramp_end: float = Field(
        0.4, gt=0, le=1, description="trained fraction from which the risk penalty has its full weight"
    )


class DreamerSettings(Settings):
    """The whole agent."""

    world_model: DreamerModelSettings = DreamerModelSettings()
    behavior: DreamerBehaviorSettings = DreamerBehaviorSettings()
    planner: PlannerSettings = PlannerSettings()
    filter: FilterSettings = FilterSettings()
    risk: RiskSettings = RiskSettings()
    latent_swaps: Traced = Field(0.0, ge=0, description="evaluation only: latent groups replaced by prior samples")
    precision: Literal["float32", "bfloat16"] = "float32"

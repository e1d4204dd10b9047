"""Settings of the PWM agent (policy learning through a world model), with MLP or flow-matching dynamics."""

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from dreamproof.settings.strict import Settings
from dreamproof.settings.traced import TRACED

Traced = Annotated[float, TRACED]
Size = Literal["5M", "19M", "48M", "317M"]


class Widths(NamedTuple):
    """Layer widths of a world model: hidden units of dynamics and reward, of the encoder, and the latent."""

    units: tuple[int, ...]
    encoder: tuple[int, ...]
    latent: int


# Named after the whole TD-MPC2 agent (2024) of these widths; the world model alone is 2.5 to 3.6 times smaller.
WIDTHS: dict[Size, Widths] = {
    "5M": Widths((512, 512), (256,), 512),
    "19M": Widths((1024, 1024), (1024, 1024), 512),
    "48M": Widths((1792, 1792), (1792,) * 3, 768),
    "317M": Widths((4096, 4096), (4096,) * 4, 1376),
}


class DynamicsSettings(Settings):
    """How the next latent is predicted."""

    added: ClassVar[dict[str, Any]] = {"skip": False}

    kind: Literal["mlp", "flow"] = "mlp"
    integrator: Literal["euler", "heun"] = Field(
        "heun", description="flow: Heun evaluates the network twice per substep"
    )
    substeps: int = Field(4, ge=1, description="flow: integration substeps per agent step")
    predicts: Literal["velocity", "end"] = Field(
        "velocity",
        description="flow: the network predicts the velocity, or the end point of the straight path; "
        "the velocity is then (end - x) / (1 - time)",
    )
    space: Literal["simplex", "logits", "broken"] = Field(
        "simplex",
        description="flow: tangent to the simplexes and projected once per step; in logits; or that of recipe: fork",
    )
    source_noise: float = Field(
        0.0, ge=0, description="flow: standard deviation of tangent noise on the source of a flow"
    )
    skip: bool = Field(
        False,
        description="flow, predicts: end: the prediction is SimNorm((1 - time) · network + time · log x); so the "
        "identity at time 1 is not learned",
    )

    @model_validator(mode="after")
    def _ends_are_latents(self) -> Self:
        if self.predicts == "end" and self.space != "simplex":
            raise ValueError("predicts: end needs space: simplex; or write predicts: velocity")
        if self.skip and (self.kind, self.predicts) != ("flow", "end"):
            raise ValueError("skip has no effect without kind: flow and predicts: end; write both, or leave skip out")
        return self

    @property
    def evaluations(self) -> int:
        """Network evaluations of one imagined step."""
        if self.kind == "mlp":
            return 1
        return self.substeps * (2 if self.integrator == "heun" else 1)


class PwmModelSettings(Settings):
    """Encoder, dynamics, reward and termination."""

    added: ClassVar[dict[str, Any]] = {"reward_normalisation": "scale", "reward_clip": 5.0}
    old_names: ClassVar[dict[str, str]] = {
        "least_reward_unit": "min_reward_scale",
        "least_reward_deviation": "min_reward_std",
        "kept": "remat_policy",
    }

    size: Size = "5M"
    units: tuple[int, ...] | None = Field(None, description="hidden units of dynamics and reward; overrides size")
    encoder_units: tuple[int, ...] | None = Field(None, description="hidden units of the encoder; overrides size")
    latent: int | None = Field(None, ge=1, description="latent size; overrides size")
    group: int = Field(8, ge=2, description="SimNorm group size: latent values that sum to one")
    termination_units: int = Field(256, ge=1)
    reward: Literal["scalar", "two_hot", "broken"] = Field(
        "scalar", description="broken: the head of recipe: fork, whose imagined rewards are always 0"
    )
    reward_normalisation: Literal["scale", "standardise"] = Field(
        "scale",
        description="rewards are divided by their scale; or their running mean is subtracted, they are divided by "
        "their standard deviation and clipped",
    )
    reward_clip: float = Field(5.0, gt=0, description="standardise: largest magnitude of a reward")
    bins: int = Field(101, ge=3, description="of the two-hot or broken reward; odd")
    bin_reach: float = Field(10.0, gt=0, description="outermost bins are ±symexp(reach)")
    tasks: int = Field(0, ge=0, description="number of tasks with an embedding; 0 for a single task")
    task_size: int = Field(64, ge=1, description="size of a task embedding")
    decay: float = Field(
        0.99, gt=0, le=1, description="temporal decay of the loss: weight of a step relative to the one before"
    )
    learning_rate: Traced = Field(3e-4, gt=0)
    clip: float = Field(20.0, gt=0)
    dynamics_scale: Traced = Field(
        1.0, ge=0, description="weight of the latent prediction loss, or of the flow-matching loss"
    )
    endpoint_scale: Traced = Field(1.0, ge=0, description="flow: weight of the loss of the integrated latent")
    source_pull: Traced = Field(
        0.0,
        ge=0,
        le=1,
        description="flow of velocities: fraction of the gradient that moves the source of a flow towards its target",
    )
    reward_scale: Traced = Field(1.0, ge=0)
    min_reward_scale: Traced = Field(
        1.0, gt=0, description="rewards are divided by their root mean square, but at least by this"
    )
    min_reward_std: Traced = Field(
        1.0,
        gt=0,
        description="scalar rewards: errors are divided by the standard deviation of rewards, but at least by this",
    )
    termination_scale: Traced = Field(1.0, ge=0, description="0: imagined rollouts never terminate")
    decoder: bool = Field(False, description="a decoder reconstructs observations from the latents")
    observation_scale: Traced = Field(
        1.0, ge=0, description="decoder: weight of the reconstruction loss of standardised observations"
    )
    remat_policy: Literal["everything", "products", "steps"] = Field(
        "products",
        description="what is saved for the backward pass of imagined rollouts, and of model rollouts without deferred: "
        "everything, matrix products, or only the latents of each step",
    )
    deferred: bool = Field(
        True,
        description="compute weight gradients of the dynamics in one product after the scan; saves matrix products",
    )
    micro_batches: int = Field(
        1, ge=1, description="gradient accumulation: pieces of one batch; the effective batch is the same"
    )

    @property
    def widths(self) -> Widths:
        """The widths of the size, with overrides."""
        named = WIDTHS[self.size]
        return Widths(self.units or named.units, self.encoder_units or named.encoder, self.latent or named.latent)

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.widths.latent % self.group:
            raise ValueError(f"a latent of {self.widths.latent} is not a multiple of group, {self.group}")
        return self

    @model_validator(mode="after")
    def _decoder_has_a_scale(self) -> Self:
        if self.observation_scale != 1.0 and not self.decoder:
            raise ValueError("observation_scale has no effect without a decoder: set decoder: true")
        return self


class PwmBehaviorSettings(Settings):
    """Actor and critics, learned by first-order gradients through imagined steps."""

    added: ClassVar[dict[str, Any]] = {
        "acting": "closed_loop",
        "cloning_scale": 0.0,
        "shuffled": True,
        "final_value_power": "horizon",
        "cloned_states": None,
        "starts": "recorded",
        "critic_warm_up": 0.0,
        "recorded_value_scale": 0.0,
        "min_return_std": 0.0,
    }
    old_names: ClassVar[dict[str, str]] = {
        "mixing": "gae_lambda",
        "last_learning_rate": "final_learning_rate",
        "first_log_sigma": "init_log_std",
        "least_log_sigma": "min_log_std",
        "flow_least_log_sigma": "flow_min_log_std",
        "entropy_price": "entropy_coef",
    }

    policy: Literal["gaussian", "flow"] = "gaussian"
    objective: Literal["imagined_return", "cloning"] = Field(
        "imagined_return",
        description="offline: what the actor learns; cloning: the recorded actions, in latents of the world model",
    )
    cloning_scale: Traced = Field(
        0.0,
        ge=0,
        description="offline: weight of the squared distance to the recorded actions in the actor's loss; keeps the "
        "policy where the world model has seen data",
    )
    cloned_states: int | None = Field(
        None,
        ge=1,
        description="offline: recorded states per task and update whose actions are cloned; as many as replayed_starts "
        "if left out",
    )
    starts: Literal["recorded", "copied"] = Field(
        "recorded",
        description="offline: imagination starts in all recorded states, or in those of the episodes whose actions may "
        "be cloned (`data.cloning_share`)",
    )
    critic_warm_up: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="offline: first fraction of the behaviour's updates; in it critics learn and the actor only clones",
    )
    recorded_value_scale: float = Field(
        0.0,
        ge=0,
        description="offline: weight of the critics' errors on recorded windows, as many as replayed_starts, of the "
        "episodes whose actions may be cloned; their targets are λ-returns of the recorded rewards",
    )
    horizon: int = Field(4, ge=1, description="imagined steps")
    replayed_starts: int = Field(
        256,
        ge=0,
        description="imagined rollouts per round that start from replayed observations, besides one per env; "
        "offline: all of them, from recorded observations of the cell's task",
    )
    acting: Literal["closed_loop", "open_loop"] = Field(
        "closed_loop",
        description="training acts on every observation; or on imagined latents, which start from an observation every "
        "`horizon` steps and in new episodes. Evaluation is always in closed loop",
    )
    discount: float = Field(0.99, gt=0, lt=1)
    final_value_power: Literal["horizon", "horizon_plus_one"] = Field(
        "horizon", description="power of the discount of the value behind the last imagined step"
    )
    gae_lambda: float = Field(0.95, ge=0, le=1, description="lambda of the critics' λ-returns")
    actor_units: tuple[int, ...] = (400, 200, 100)
    critic_units: tuple[int, ...] = (400, 200)
    critics: int = Field(3, ge=1, description="ensemble of value functions; the minimum is used")
    actor_learning_rate: Traced = Field(5e-4, gt=0)
    critic_learning_rate: Traced = Field(5e-4, gt=0)
    final_learning_rate: Traced = Field(1e-5, ge=0, description="linear schedule: learning rate at the end of training")
    actor_clip: float = Field(1.0, gt=0)
    min_return_std: Traced = Field(
        0.0,
        ge=0,
        description="the actor's imagined return is divided by its standard deviation, but at least by this; where all "
        "starts are worth the same, a small one makes `cloning_scale` and the entropy bonus count for nothing",
    )
    critic_clip: float = Field(100.0, gt=0)
    rounds: int = Field(
        16,
        ge=1,
        description="rounds per epoch: an actor step on one imagined rollout, then the critics' passes over it",
    )
    critic_passes: int = Field(1, ge=1, description="passes over the imagined states of a round")
    critic_batches: int = Field(4, ge=1, description="minibatches of one pass")
    shuffled: bool = Field(True, description="minibatches of random states; otherwise of consecutive imagined steps")
    init_log_std: float = Field(-1.0, description="initial log standard deviation of the policy")
    min_log_std: float = Field(-1.427, description="lower bound for the gaussian policy")
    flow_min_log_std: float = Field(-10.0, description="lower bound for the flow policy")
    flow_substeps: int = Field(2, ge=1, description="Heun substeps of the flow policy")
    entropy_coef: Traced = Field(
        0.0,
        ge=0,
        description="weight of the policy's entropy (mean over actions, in nats) in imagined rewards; a flow policy's "
        "entropy is that of its source noise and of the tanh",
    )
    detached: bool = Field(True, description="stop gradients at the policy's input; they flow through its actions only")
    warm_up_epochs: int = Field(
        100, ge=0, description="epochs before the actor learns; offline: updates of the model alone, on all tasks"
    )

    @model_validator(mode="after")
    def _recorded_rewards_have_no_bonus(self) -> Self:
        if self.recorded_value_scale and self.entropy_coef:
            raise ValueError("recorded_value_scale needs entropy_coef: 0: recorded rewards hold no entropy bonus")
        return self


class PwmSettings(Settings):
    """The whole agent."""

    added: ClassVar[dict[str, Any]] = {"running_scales": "exponential"}

    world_model: PwmModelSettings = PwmModelSettings()
    dynamics: DynamicsSettings = DynamicsSettings()
    behavior: PwmBehaviorSettings = PwmBehaviorSettings()
    running_scales: Literal["exponential", "cumulative"] = Field(
        "exponential", description="scales of rewards and returns: exponential averages, or averages over all history"
    )
    precision: Literal["float32", "bfloat16"] = "bfloat16"

    @model_validator(mode="after")
    def _pull_has_a_source(self) -> Self:
        pull, dynamics = self.world_model.source_pull, self.dynamics
        if pull and dynamics.kind == "flow" and dynamics.predicts == "end":
            raise ValueError(
                f"world_model.source_pull: {pull:g} has no effect with dynamics.predicts: end, whose errors do "
                "not contain the source of a flow: set source_pull: 0, or write predicts: velocity"
            )
        return self

    @property
    def model_meaning(self) -> dict[str, Any]:
        """Settings without which parameters of the same shapes are another world model, by their dotted names."""
        dynamics, model = self.dynamics, self.world_model
        meaning: dict[str, Any] = {"dynamics.kind": dynamics.kind, "world_model.group": model.group}
        meaning |= {f"world_model.{name}": getattr(model, name) for name in ("reward", "reward_normalisation")}
        meaning["running_scales"] = self.running_scales
        if dynamics.kind == "flow":
            # The error of the end point is sent through the integrator: a network is trained for its substeps.
            names = ("integrator", "substeps", "predicts", "space", "skip")
            meaning |= {f"dynamics.{name}": getattr(dynamics, name) for name in names}
        used = "min_reward_scale" if model.reward_normalisation == "scale" else "reward_clip"
        meaning[f"world_model.{used}"] = getattr(model, used)
        if model.reward != "scalar":
            meaning |= {"world_model.bins": model.bins, "world_model.bin_reach": model.bin_reach}
        return meaning

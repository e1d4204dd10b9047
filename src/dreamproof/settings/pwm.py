"""Settings of the PWM agent (policy learning through a world model), with MLP or flow-matching dynamics."""

from typing import Annotated, Literal, NamedTuple, Self

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


class Dynamics(Settings):
    """How the latent goes from one step to the next."""

    kind: Literal["mlp", "flow"] = "mlp"
    integrator: Literal["euler", "heun"] = Field("heun", description="flow: Heun evaluates twice a substep")
    substeps: int = Field(4, ge=1, description="flow: equal parts of one agent step")
    predicts: Literal["velocity", "end"] = Field(
        "velocity",
        description="flow: whether the network predicts the velocity or the end of the straight line, as a latent; "
        "the velocity is then (end - x) / (1 - time)",
    )
    space: Literal["simplex", "logits", "broken"] = Field(
        "simplex",
        description="flow: tangent to simplexes and projected once a step; between logits; or the users' broken head",
    )
    source_noise: float = Field(
        0.0, ge=0, description="flow: standard deviation of tangent noise on where a flow starts"
    )

    @model_validator(mode="after")
    def _ends_are_latents(self) -> Self:
        if self.predicts == "end" and self.space != "simplex":
            raise ValueError("predicts: end needs space: simplex; or write predicts: velocity")
        return self

    @property
    def evaluations(self) -> int:
        """Network evaluations of one imagined step."""
        if self.kind == "mlp":
            return 1
        return self.substeps * (2 if self.integrator == "heun" else 1)


class WorldModel(Settings):
    """Encoder, dynamics, reward and termination."""

    size: Size = "5M"
    units: tuple[int, ...] | None = Field(None, description="instead of the size's hidden units of dynamics and reward")
    encoder_units: tuple[int, ...] | None = Field(None, description="instead of the size's hidden units of the encoder")
    latent: int | None = Field(None, ge=1, description="instead of the size's latent numbers")
    group: int = Field(8, ge=2, description="latent numbers that sum to one")
    termination_units: int = Field(256, ge=1)
    reward: Literal["scalar", "two_hot"] = "scalar"
    bins: int = Field(101, ge=3, description="of the two-hot reward; odd")
    bin_reach: float = Field(10.0, gt=0, description="outermost bins are ±symexp(reach)")
    tasks: int = Field(0, ge=0, description="tasks with an embedding of their own; 0 for a single task")
    task_size: int = Field(64, ge=1, description="numbers of a task's embedding")
    decay: float = Field(0.99, gt=0, le=1, description="weight of a step of a window relative to the one before")
    learning_rate: Traced = Field(3e-4, gt=0)
    clip: float = Field(20.0, gt=0)
    dynamics_scale: Traced = Field(1.0, ge=0, description="weight of the next latent's error, or of the flow matching")
    endpoint_scale: Traced = Field(1.0, ge=0, description="flow: weight of the integrated latent's error")
    source_pull: Traced = Field(
        0.0, ge=0, le=1, description="flow: share of the gradient that draws where a flow starts towards what follows"
    )
    reward_scale: Traced = Field(1.0, ge=0)
    least_reward_unit: Traced = Field(
        1.0, gt=0, description="rewards count in multiples of their root mean square, but never of less than this"
    )
    least_reward_deviation: Traced = Field(
        1.0,
        gt=0,
        description="scalar rewards: errors count in their standard deviations, but never in less than this",
    )
    termination_scale: Traced = Field(1.0, ge=0, description="0: no imagined step is taken for the last")
    decoder: bool = Field(
        False,
        description="latents have to tell what is observed, or they may forget what is hard to foresee",
    )
    observation_scale: Traced = Field(
        1.0, ge=0, description="decoder: weight of errors of observations, in deviations of each of their numbers"
    )
    kept: Literal["everything", "products", "steps"] = Field(
        "products",
        description="what the backward pass finds again, of dreams and of roll-outs that are not deferred: "
        "all, matrix products, or the latents of steps alone",
    )
    deferred: bool = Field(
        True, description="weight gradients of the dynamics in one product after all steps; keeps matrix products"
    )
    micro_batches: int = Field(
        1, ge=1, description="pieces in which a batch is worked through; the same batch in effect"
    )

    @property
    def widths(self) -> Widths:
        """The size's widths, with what was said instead."""
        named = WIDTHS[self.size]
        return Widths(self.units or named.units, self.encoder_units or named.encoder, self.latent or named.latent)

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.widths.latent % self.group:
            raise ValueError(f"a latent of {self.widths.latent} is no whole number of groups of {self.group}")
        return self

    @model_validator(mode="after")
    def _weighs_what_is_there(self) -> Self:
        if self.observation_scale != 1.0 and not self.decoder:
            raise ValueError("observation_scale weighs what a decoder tells, and there is none: say decoder: true")
        return self


class Behavior(Settings):
    """Actor and critics, learned by first-order gradients through imagined steps."""

    policy: Literal["gaussian", "flow"] = "gaussian"
    horizon: int = Field(4, ge=1, description="imagined steps")
    replayed_starts: int = Field(
        256,
        ge=0,
        description="imagined trajectories of a round that start in replayed observations, beside one for every env; "
        "offline: all of them, in recorded observations of the cell's task",
    )
    discount: float = Field(0.99, gt=0, lt=1)
    mixing: float = Field(0.95, ge=0, le=1, description="lambda of the critics' returns")
    actor_units: tuple[int, ...] = (400, 200, 100)
    critic_units: tuple[int, ...] = (400, 200)
    critics: int = Field(3, ge=1, description="independent values, of which the least counts")
    actor_learning_rate: Traced = Field(5e-4, gt=0)
    critic_learning_rate: Traced = Field(5e-4, gt=0)
    last_learning_rate: Traced = Field(1e-5, ge=0, description="to which all rates fall, straight, over the whole run")
    actor_clip: float = Field(1.0, gt=0)
    critic_clip: float = Field(100.0, gt=0)
    rounds: int = Field(
        16, ge=1, description="an epoch's rounds: an actor step in a dream of its own, then the critics' passes over it"
    )
    critic_passes: int = Field(1, ge=1, description="passes over the imagined states of a round")
    critic_batches: int = Field(4, ge=1, description="minibatches of one pass")
    first_log_sigma: float = -1.0
    least_log_sigma: float = Field(-1.427, description="floor of the gaussian policy's noise")
    flow_least_log_sigma: float = Field(-10.0, description="floor of the flow policy's noise")
    flow_substeps: int = Field(2, ge=1, description="Heun substeps of the flow policy")
    entropy_price: Traced = Field(
        0.0,
        ge=0,
        description="what imagined steps earn by the policy's entropy (mean over actions, in nats), beside scaled "
        "rewards; a flow policy's is that of its start and of the room to the limits alone",
    )
    detached: bool = Field(True, description="no gradient through what the policy sees, only through what it does")
    warm_up_epochs: int = Field(
        100, ge=0, description="epochs in which the actor holds still; offline: updates of the model, on all tasks"
    )


class Pwm(Settings):
    """The whole agent."""

    world_model: WorldModel = WorldModel()
    dynamics: Dynamics = Dynamics()
    behavior: Behavior = Behavior()
    precision: Literal["float32", "bfloat16"] = "bfloat16"

"""Recurrent state-space model (DreamerV3, 2023) with entities: encode, observe, imagine, decode, and their losses.

Entities are parts of the observation that form a set (hazards around the robot). A network that sees the whole set, or
its position in the world, memorises the few hundred layouts of a run and does not generalise to new ones. So each
entity is modelled on its own: one shared map predicts its motion, cost and margin are predicted per entity (the worst
one counts), and actor and critics see an embedding pooled over all entities; slots in world coordinates are left out.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from dreamproof.agents.api import Batch
from dreamproof.agents.dreamer.entities import Entities, entity_error, nearer
from dreamproof.jaxcore.devices import scan_unroll
from dreamproof.jaxcore.types import Spec
from dreamproof.nn.deferred import tap_gradient
from dreamproof.nn.heads import Categoricals, Normal, TwoHot, bernoulli_nll, symlog
from dreamproof.nn.layers import MLP, Dense, Linear, Norm, in_compute_dtype
from dreamproof.settings.dreamer import DreamerModelSettings

MIN_LATENT_STD = 0.01
ENTITY_ERROR_SCALE = 1e-4
"""Squared error of an entity's position per unit of surprise: about a centimetre nearby."""

MARGIN_RAMP = 0.02
"""How far inside the violated set (in the margin's unit) a step has its maximum cost, for tasks without entities."""
SHARED_COST = 1e-3
"""Part of a step's maximum cost: where no constraint has a larger learned cost, they share equally."""

SAVED = jax.checkpoint_policies.save_only_these_names("product", "gates")
"""What a step of an observed sequence keeps for its gradient: products, and the gates, whose norm is a reduction."""


class Latent(NamedTuple):
    """Recurrent state h (..., D), stochastic state z (..., Z) and entities e (..., J, W)."""

    h: Array
    z: Array
    e: Array


def entity_shape(spec: Spec, settings: DreamerModelSettings) -> tuple[int, int]:
    """Number of entities in the model and their width; (0, 0) for none."""
    if spec.entities is None or not settings.entities:
        return 0, 0
    start, stop, width = spec.entities
    return (stop - start) // width, width


class DreamerWorldModel(eqx.Module):
    """Encoder, recurrent state-space model, decoder and heads.

    costs: how many costs it predicts, the total first, then that of each constraint with a limit of its own.
    """

    encoder: MLP
    inward: Dense
    gates: Linear
    gates_norm: Norm
    prior: MLP
    posterior: MLP
    decoder: MLP
    reward: MLP
    cost: MLP
    continue_head: MLP
    margin: MLP
    entities: Entities | None
    settings: DreamerModelSettings = eqx.field(static=True)
    spec: Spec = eqx.field(static=True)
    costs: int = eqx.field(static=True)

    def __init__(self, key: Array, spec: Spec, settings: DreamerModelSettings, dtype: Any, costs: int = 1) -> None:
        keys = jax.random.split(key, 12)
        self.settings, self.spec, self.costs = settings, spec, costs
        units, h, z = settings.units, settings.deterministic, settings.latent_size
        outputs = z if settings.latent == "categorical" else 2 * z
        rest = len(self.rest_slots)
        head = (self.feature_size, *[units] * settings.head_layers)
        self.encoder = MLP(keys[0], (rest, *[units] * settings.encoder_layers), None, dtype)
        self.inward = Dense(keys[1], z + spec.action_size, units, dtype)
        self.gates = Linear(keys[2], h + units, 3 * h, dtype, bias=False)
        self.gates_norm = Norm(3 * h)
        self.prior = MLP(keys[3], (h, units), outputs, dtype)
        self.posterior = MLP(keys[4], (h + units, units), outputs, dtype)
        self.decoder = MLP(keys[5], (h + z, *[units] * settings.encoder_layers), rest, dtype)
        self.reward = MLP(keys[6], head, settings.bins, dtype, scale=0.0)
        self.cost = MLP(keys[7], head, costs * settings.bins, dtype, scale=0.0)
        self.continue_head = MLP(keys[8], head, 1, dtype)
        self.margin = MLP(keys[9], head, 1, dtype)
        width = (self.entity_shape[1], spec.entity_types)
        self.entities = Entities(keys[10], width, h, settings.entity_units, costs) if self.has_entities else None

    @property
    def entity_shape(self) -> tuple[int, int]:
        """Number of entities and their width; (0, 0) without."""
        return entity_shape(self.spec, self.settings)

    @property
    def has_entities(self) -> bool:
        """Whether the task has entities and the settings use them."""
        return self.entity_shape[0] > 0

    @property
    def rest_slots(self) -> tuple[int, ...]:
        """Observation slots of the recurrent model: without entities and without slots in world coordinates."""
        left_out: set[int] = set()
        if self.has_entities and self.spec.entities is not None:
            left_out |= set(range(*self.spec.entities[:2]))
        if not self.settings.absolute:
            named = [range(start, stop) for name, start, stop in self.spec.slots if name in self.spec.absolute]
            left_out |= {slot for slots in named for slot in slots}
        return tuple(slot for slot in range(self.spec.observation_size) if slot not in left_out)

    @property
    def feature_size(self) -> int:
        """Width of the feature that heads, actor and critics see."""
        pooled = self.settings.entity_units if self.has_entities else 0
        return self.settings.deterministic + self.settings.latent_size + pooled

    def rest(self, observation: Array) -> Array:
        """The part of an observation (..., O) that the recurrent model sees."""
        return observation[..., jnp.asarray(self.rest_slots)]

    def seen_entities(self, observation: Array) -> Array:
        """The entities (..., J, W) in an observation."""
        count, width = self.entity_shape
        if self.spec.entities is None or not self.has_entities:
            return jnp.zeros((*observation.shape[:-1], 0, 0))
        start, stop, _ = self.spec.entities
        return observation[..., start:stop].reshape(*observation.shape[:-1], count, width)

    def feature(self, state: Latent) -> Array:
        """The feature that heads, actor and critics see, in their compute dtype."""
        parts = [state.h, state.z] + ([self.entities.pool(state.e)] if self.entities is not None else [])
        return jnp.concatenate(parts, axis=-1).astype(self.gates.dtype)

    def step_costs(self, state: Latent, feature: Array, metres: Array | float = 0.0) -> Array:
        """Expected costs (C, ...) of the step that led to a state, with every hazard larger by `metres` (...).

        At 0 metres these are the learned costs, bit for bit; they are continuous in `metres`.
        """
        if self.entities is None:
            costs = jnp.maximum(0.0, self.two_hot.decode(self._cost_bins(feature)))
            return widened_costs(costs, self.step_margin(state, feature), metres, self.spec.max_step_cost)
        logits = self.entities.cost_logits(state.h, nearer(state.e, metres, self.spec.entity_types))
        return self.spec.max_step_cost * jax.nn.sigmoid(jnp.moveaxis(logits, -1, 0))

    def _cost_bins(self, feature: Array) -> Array:
        """Two-hot logits (C, ..., bins) of the costs of a step."""
        bins = self.cost(feature)
        return jnp.moveaxis(bins.reshape(*bins.shape[:-1], self.costs, self.settings.bins), -2, 0)

    def step_margin(self, state: Latent, feature: Array) -> Array:
        """Expected margin in a state, (...)."""
        return self.margin(feature)[..., 0] if self.entities is None else self.entities.margin(state.e)

    def cost_loss(self, state: Latent, feature: Array, targets: Array) -> Array:
        """Cross-entropy of the costs (C, ...) of a step, (...)."""
        if self.entities is None:
            return self.two_hot.loss(self._cost_bins(feature), targets).sum(0)
        logits = jnp.moveaxis(self.entities.cost_logits(state.h, state.e), -1, 0)
        return bernoulli_nll(logits, targets / self.spec.max_step_cost).sum(0)

    @property
    def two_hot(self) -> TwoHot:
        """The bins of all two-hot heads."""
        return TwoHot.make(self.settings.bins, self.settings.bin_reach)

    def initial(self, shape: tuple[int, ...]) -> Latent:
        """The initial state."""
        sizes = ((self.settings.deterministic,), (self.settings.latent_size,), self.entity_shape)
        return Latent(*(jnp.zeros((*shape, *size)) for size in sizes))

    def distribution(self, output: Array) -> Categoricals | Normal:
        """The latent's distribution from the output of prior or posterior."""
        if self.settings.latent == "categorical":
            return Categoricals.make(output, self.settings.groups, self.settings.uniform_mix)
        mean, raw = jnp.split(output, 2, axis=-1)
        return Normal(mean, MIN_LATENT_STD + jax.nn.softplus(raw))

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Noise for `draw`, for states of this shape; drawn for a whole scan at once."""
        groups = self.settings.groups
        if self.settings.latent == "categorical":
            return jax.random.gumbel(key, (*shape, groups, self.settings.classes))
        return jax.random.normal(key, (*shape, groups))

    def draw(self, distribution: Categoricals | Normal, noise: Array) -> Array:
        """A sample as a flat vector (..., Z)."""
        sample = distribution.at(noise)
        return sample.reshape(*sample.shape[:-2], -1) if self.settings.latent == "categorical" else sample

    def recur(self, state: Latent, action: Array) -> Array:
        """The next recurrent state (gated recurrent unit with one norm over all gates)."""
        x = self.inward.finish(checkpoint_name(self.inward.linear.product(state.z, action), "product"))
        joint = jnp.concatenate([state.h.astype(x.dtype), x], axis=-1)
        gates = self.gates_norm(checkpoint_name(self.gates(joint), "product"))
        reset, candidate, update = jnp.split(checkpoint_name(gates, "gates").astype(jnp.float32), 3, axis=-1)
        update = jax.nn.sigmoid(update - 1)
        return update * jnp.tanh(jax.nn.sigmoid(reset) * candidate) + (1 - update) * state.h

    def moved(self, h: Array, entities: Array) -> Array:
        """Predicted entities after the step that produced `h`."""
        return entities if self.entities is None else self.entities.move(h, entities)

    def imagine(self, state: Latent, action: Array, noise: Array) -> Latent:
        """One step by the prior."""
        h = self.recur(state, action)
        return Latent(h, self.draw(self.distribution(self.prior(h)), noise), self.moved(h, state.e))

    def encode(self, observation: Array) -> Array:
        """What the recurrent model sees of (..., O), as its part of the posterior's first product."""
        return self.posterior.hidden[0].linear.trailing(self.encoder(symlog(self.rest(observation))))

    def observe(
        self, state: Latent, action: Array, seen: tuple[Array, Array], first: Array, noise: Array
    ) -> tuple[Latent, Array]:
        """One step by the posterior from (embedding, entities); returns the state and the posterior's raw output."""
        embedding, entities = seen
        keep = 1.0 - first[..., None]
        state = Latent(state.h * keep, state.z * keep, state.e)
        h = self.recur(state, action * keep)
        product = self.posterior.hidden[0].linear.leading(h) + embedding
        output = checkpoint_name(self.posterior.finish(checkpoint_name(product, "product")), "product")
        return Latent(h, self.draw(self.distribution(output), noise), entities), output

    def surprise(self, before: Latent, now: Latent, posterior: Array) -> Array:
        """Surprise of a step, (...): KL of the posterior to the prior, plus the prediction error of entities."""
        seen, expected = (self.distribution(output) for output in (posterior, self.prior(now.h)))
        kl = jnp.asarray(seen.kl(expected))  # type: ignore[arg-type]
        if self.entities is None:
            return kl
        error = entity_error(self.moved(now.h, before.e), now.e, self.spec.entity_types)
        return kl + jnp.log1p(error.mean(-1) / ENTITY_ERROR_SCALE)


def widened_costs(costs: Array, margin: Array, metres: Array | float, max_step_cost: float) -> Array:
    """Costs (C, ...) of a step with this predicted margin (...), if the safe set is smaller by `metres`.

    The depth inside the violated set counts, up to `MARGIN_RAMP`; what the smaller set adds to the total is divided
    between the constraints, if there are several, in proportion to their learned costs: one margin names none of them.
    """

    def violated(margin: Array) -> Array:
        return jnp.clip(-margin / MARGIN_RAMP, 0.0, 1.0)

    added = max_step_cost * (violated(margin - metres) - violated(margin))
    each = costs[1:] + SHARED_COST * max_step_cost
    shares = jnp.concatenate([jnp.ones_like(costs[:1]), each / each.sum(0)])
    return jnp.maximum(costs, jnp.minimum(costs + shares * added, max_step_cost))


def swap_latents(model: DreamerWorldModel, state: Latent, count: Array, key: Array) -> Latent:
    """`count` randomly chosen latent groups replaced by prior samples."""
    order_key, draw_key = jax.random.split(key)
    groups = model.settings.groups
    noise = model.noise(draw_key, state.z.shape[:-1])
    expected = model.draw(model.distribution(model.prior(state.h)), noise)
    lots = jax.random.uniform(order_key, (*state.z.shape[:-1], groups))
    place = (lots[..., None, :] < lots[..., :, None]).sum(-1)
    swapped = jnp.repeat(place < count, state.z.shape[-1] // groups, axis=-1)
    return state._replace(z=jnp.where(swapped, expected, state.z))


class WorldModelLoss(NamedTuple):
    """States (T, B, ...) without gradient, and metrics."""

    states: Latent
    metrics: dict[str, Array]


def observe_sequence(model: DreamerWorldModel, batch: Batch, key: Array) -> tuple[Latent, Array]:
    """Posterior states (T, B, ...) of a batch and the posterior's raw outputs; windows start from the initial state."""
    embedding, entities = model.encode(batch.observation), model.seen_entities(batch.observation)
    first = batch.first.at[0].set(1.0)
    rows = ObserveInputs(batch.action, embedding, first, model.noise(key, first.shape))
    outputs = observe_scan((model, rows))
    return Latent(outputs.h, outputs.z, entities), outputs.output


class ObserveInputs(NamedTuple):
    """Inputs of the steps of an observed sequence, (T, B, ...)."""

    action: Array
    embedding: Array
    first: Array
    noise: Array


class ObserveOutputs(NamedTuple):
    """Their states and the posterior's raw outputs, (T, B, ...)."""

    h: Array
    z: Array
    output: Array


@eqx.filter_custom_vjp
def observe_scan(given: tuple[DreamerWorldModel, ObserveInputs]) -> ObserveOutputs:
    """All steps in a scan. Gradients of model and rows are computed after the scan, for all steps at once.

    The backward pass of the scan then only propagates cotangents between steps. That saves the small products and the
    additions to buffers of the size of the weights in every step.
    """
    return _scan_steps(*given, None)


def _step(model: DreamerWorldModel, before: tuple[Array, Array], row: ObserveInputs) -> ObserveOutputs:
    state = Latent(*before, jnp.zeros(()))
    state, output = model.observe(state, row.action, (row.embedding, state.e), row.first, row.noise)
    return ObserveOutputs(state.h, state.z, output)


def _scan_steps(model: DreamerWorldModel, rows: ObserveInputs, taps: ObserveOutputs | None) -> ObserveOutputs:
    fixed = in_compute_dtype(jax.lax.stop_gradient(model))

    def step(
        before: tuple[Array, Array], given: tuple[ObserveInputs, ObserveOutputs | None]
    ) -> tuple[tuple[Array, Array], ObserveOutputs]:
        row, tap = given
        outputs = _step(fixed, before, row)
        outputs = outputs if tap is None else ObserveOutputs(*map(tap_gradient, outputs, tap))
        return (outputs.h, outputs.z), outputs

    rematerialised = jax.checkpoint(step, policy=SAVED, prevent_cse=False)
    start = model.initial(rows.first.shape[1:])
    return jax.lax.scan(rematerialised, (start.h, start.z), (rows, taps), unroll=scan_unroll(len(rows.first)))[1]


def _observe_forward(
    perturbed: Any, given: tuple[DreamerWorldModel, ObserveInputs]
) -> tuple[ObserveOutputs, tuple[ObserveOutputs, Any]]:
    del perturbed
    model, rows = given
    shapes = jax.eval_shape(lambda: _scan_steps(model, rows, None))
    taps = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    outputs, pull_back = jax.vjp(lambda taps: _scan_steps(model, jax.lax.stop_gradient(rows), taps), taps)
    return outputs, (outputs, pull_back)


def _observe_backward(
    residuals: tuple[ObserveOutputs, Any],
    gradient: ObserveOutputs,
    perturbed: Any,
    given: tuple[DreamerWorldModel, ObserveInputs],
) -> Any:
    del perturbed
    outputs, pull_back = residuals
    (cotangents,) = pull_back(gradient)
    h, z = (jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]]) for x in (outputs.h, outputs.z))
    _, pull_all = eqx.filter_vjp(lambda given: _step(given[0], (h, z), given[1]), given)
    return pull_all(cotangents)[0]


observe_scan.def_fwd(_observe_forward)
observe_scan.def_bwd(_observe_backward)


def costs_of(batch: Batch, count: int) -> Array:
    """The first `count` costs (C, T, B) of replayed steps: the total, then each constraint's."""
    each = batch.cost[None] if batch.costs is None else jnp.moveaxis(batch.costs, -1, 0)
    return jnp.concatenate([batch.cost[None], each])[:count]


def entity_loss(model: DreamerWorldModel, states: Latent, first: Array) -> Array:
    """Squared error of predicted entities, mean over entities, (T, B)."""
    if model.entities is None:
        return jnp.zeros_like(first)
    expected = model.moved(states.h[1:], states.e[:-1])
    error = entity_error(expected, states.e[1:], model.spec.entity_types)
    # A jump (something appears, vanishes or changes its slot) is not a motion to be learned.
    bounded = jnp.where(error < 1.0, error, 0.0).mean(-1) * (1 - first[1:])
    return jnp.concatenate([jnp.zeros_like(bounded[:1]), bounded])


def world_model_loss(
    model: DreamerWorldModel, batch: Batch, key: Array, scales: dict[str, Array]
) -> tuple[Array, WorldModelLoss]:
    """Reconstruction, entities, reward, cost, continue, margin and balanced KL; each term is a mean over (T, B)."""
    states, posterior_output = observe_sequence(model, batch, key)
    posterior = model.distribution(posterior_output)
    prior = model.distribution(model.prior(states.h))
    feature = model.feature(states)
    weights_of_slots = model.rest(model.spec.weights())
    decoded = model.decoder(jnp.concatenate([states.h, states.z], axis=-1))
    error = (decoded - symlog(model.rest(batch.observation))) ** 2
    stop = jax.lax.stop_gradient
    frozen_posterior, frozen_prior = jax.tree.map(stop, (posterior, prior))
    free = scales["free_nats"]
    losses = {
        "reconstruction": (error * weights_of_slots).sum(-1),
        "entities": entity_loss(model, states, batch.first),
        "reward": model.two_hot.loss(model.reward(feature), batch.reward) * (1 - batch.first),
        "cost": model.cost_loss(states, feature, costs_of(batch, model.costs)) * (1 - batch.first),
        "continue": bernoulli_nll(model.continue_head(feature)[..., 0], 1.0 - batch.terminated),
        "margin": jnp.abs(model.step_margin(states, feature) - batch.margin),
        "dynamics": jnp.maximum(free, frozen_posterior.kl(prior)),
        "representation": jnp.maximum(free, posterior.kl(frozen_prior)),
    }
    weights: dict[str, Any] = {
        "reconstruction": scales["reconstruction_scale"],
        "entities": scales["entity_scale"],
        "reward": 1.0,
        "cost": 1.0,
        "continue": 1.0,
        "margin": scales["margin_scale"],
        "dynamics": scales["dynamics_scale"],
        "representation": scales["representation_scale"],
    }
    assert weights.keys() == losses.keys()
    assert all(loss.shape == batch.reward.shape for loss in losses.values())
    means = {name: loss.mean() for name, loss in losses.items()}
    total = sum(weights[name] * mean for name, mean in means.items())
    metrics = {f"model/{name}": mean for name, mean in means.items()}
    metrics["model/kl"] = jax.tree.map(stop, posterior).kl(jax.tree.map(stop, prior)).mean()
    return jnp.asarray(total), WorldModelLoss(jax.tree.map(stop, states), metrics)

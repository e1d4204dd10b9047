"""The GPU's kernels of entities, interpreted on the CPU, compute what plain JAX computes; and a GPU can have them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from dreamproof.agents.dreamer import entities as plain
from dreamproof.agents.dreamer import entity_kernels
from dreamproof.agents.dreamer.entities import Entities
from dreamproof.nn.layers import Linear

STATE, UNITS, COUNT = 24, 16, 5
Evaluation = Callable[[Entities, jax.Array, jax.Array], jax.Array]
EVALUATIONS: dict[str, Evaluation] = {
    "move": lambda network, state, entities: network.move(state, entities),
    "pool": lambda network, state, entities: network.pool(entities),
    "cost_logits": lambda network, state, entities: network.cost_logits(state, entities),
    "margin": lambda network, state, entities: network.margin(entities),
}


def made(key: jax.Array, types: int, costs: int, units: int = UNITS) -> Entities:
    """Networks whose biases are not 0."""
    network = Entities(key, (2 + types, types), STATE, units, costs)
    return jax.tree.map(lambda part: part + 0.1 * jax.random.normal(key, part.shape), network)


def inputs(rows: tuple[int, ...], types: int) -> tuple[jax.Array, jax.Array]:
    """States and entities, some of them out of reach."""
    keys = jax.random.split(jax.random.key(1), 2)
    return jax.random.normal(keys[0], (*rows, STATE)), 2.0 * jax.random.normal(keys[1], (*rows, COUNT, 2 + types))


@pytest.mark.parametrize("name", EVALUATIONS)
@pytest.mark.parametrize(("types", "costs", "rows"), [(0, 1, (3,)), (2, 3, (2, 19))])
def test_kernels_compute_what_the_compiler_computes(
    name: str, types: int, costs: int, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two replicas with their own networks and entities.
    networks = eqx.filter_vmap(lambda key: made(key, types, costs))(jax.random.split(jax.random.key(0), 2))
    state, entities = inputs((2, *rows), types)

    def evaluate(*given: Any) -> jax.Array:
        return eqx.filter_jit(eqx.filter_vmap(lambda *each: EVALUATIONS[name](*each)))(*given)

    expected = evaluate(networks, state, entities)
    monkeypatch.setattr(plain, "can_run_kernels", lambda: True)
    called: list[str] = []
    for kernel in ("extreme", "moved"):
        original = getattr(entity_kernels, kernel)
        monkeypatch.setattr(
            entity_kernels, kernel, lambda *given, own=original: called.append(own.__name__) or own(*given)
        )
    np.testing.assert_allclose(evaluate(networks, state, entities), expected, atol=2e-5)
    assert called == ["moved" if name == "move" else "extreme"]


def test_gradients_are_those_of_the_plain_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    network, (state, entities) = made(jax.random.key(2), 0, 1), inputs((4,), 0)

    def total(network: Entities, state: jax.Array, entities: jax.Array) -> jax.Array:
        later = network.move(state, entities)
        return (network.pool(later) ** 2).sum() + (
            network.cost_logits(state, later) * network.margin(later)[:, None]
        ).sum()

    def gradients() -> Any:
        return jax.jit(jax.grad(total, argnums=(0, 1, 2)))(network, state, entities)

    expected = gradients()
    monkeypatch.setattr(plain, "can_run_kernels", lambda: True)
    monkeypatch.setattr(entity_kernels, "extreme", None)  # kernels have no gradient and must not be called
    monkeypatch.setattr(entity_kernels, "moved", None)
    jax.tree.map(np.testing.assert_array_equal, gradients(), expected)


def test_layers_of_other_sizes_have_no_kernel() -> None:
    def layers(*sizes: int) -> list[Linear]:
        return [Linear(jax.random.key(0), 3, size) for size in sizes]

    assert entity_kernels.fits(layers(32, 64))
    assert entity_kernels.fits(layers(32, 32, 1))
    assert not entity_kernels.fits(layers(32, 48))
    assert not entity_kernels.fits(layers(8, 64))


def test_kernels_can_be_lowered_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    network, (state, entities) = made(jax.random.key(3), 2, 3), inputs((40,), 2)
    monkeypatch.setattr(plain, "can_run_kernels", lambda: True)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def everything(network: Entities) -> list[jax.Array]:
        return [evaluate(network, state, entities) for evaluate in EVALUATIONS.values()]

    gpu = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=gpu)):
        lowered = jax.jit(everything).trace(network).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count('"entities_extreme"') == 3
    assert lowered.count('"entities_move"') == 1

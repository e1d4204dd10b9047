"""However a gradient is made, it is the same: deferred or not, recomputed or remembered, in pieces."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.agents.pwm import toy

from dreamproof.agents.pwm import world_model
from dreamproof.nn import normed
from dreamproof.nn.simplex import simnorm
from dreamproof.settings.traced import traced_values

pytestmark = pytest.mark.long(60)

KINDS: dict[str, dict[str, Any]] = {
    "mlp": {"kind": "mlp"},
    "flow": {"kind": "flow", "integrator": "heun", "substeps": 2},
    "ends": {"kind": "flow", "integrator": "heun", "substeps": 2, "predicts": "end"},
    "skip": {"kind": "flow", "integrator": "heun", "substeps": 2, "predicts": "end", "skip": True},
    "logits": {"kind": "flow", "integrator": "euler", "substeps": 1, "space": "logits", "source_noise": 0.1},
    "broken": {"kind": "flow", "integrator": "euler", "substeps": 1, "space": "broken"},
}
PLAIN: dict[str, Any] = {"deferred": False, "remat_policy": "everything"}
SMALL: dict[str, Any] = {"units": [8, 8], "latent": 8, "encoder_units": [8], "decoder": True}


def gradient(kind: str, way: dict[str, Any], replicas: int | None = None) -> dict[str, np.ndarray]:
    """The gradient on one batch, by the names of its arrays; of equal replicas, which then are the first axis."""
    agent = toy.make_agent(dynamics=KINDS[kind], world_model=SMALL | way)
    scales = jax.tree.map(jnp.asarray, traced_values(agent.settings))["world_model"]
    # The time of a flow's loss is drawn anew in every piece, so that loss stays out.
    scales["dynamics_scale"] = jnp.asarray(float(kind == "mlp"))
    windows = toy.windows(jax.random.key(1), steps=3, batch=8)
    scales |= world_model.observed_scales(windows)
    model = toy.lively(agent).model
    if replicas is None:
        found = eqx.filter_jit(agent._model_gradients)(model, windows, jax.random.key(2), scales)[0]
    else:
        models = jax.tree.map(lambda leaf: jnp.stack([leaf] * replicas) if eqx.is_array(leaf) else leaf, model)
        together = eqx.filter_vmap(agent._model_gradients, in_axes=(eqx.if_array(0), None, None, None))
        found = eqx.filter_jit(together)(models, windows, jax.random.key(2), scales)[0]
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(found, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


@cache
def plain_gradient(kind: str) -> dict[str, np.ndarray]:
    """The gradient by plain differentiation, which tests compare with."""
    return gradient(kind, PLAIN)


@pytest.mark.parametrize(("kind", "way"), [("mlp", {"remat_policy": "steps", "micro_batches": 4}), ("flow", {})])
def test_all_ways_to_the_gradient_lead_to_the_same(kind: str, way: dict[str, Any]) -> None:
    expected, found = plain_gradient(kind), gradient(kind, way)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(value).max() > 0, name
        np.testing.assert_allclose(found[name], value, atol=3e-5 * np.abs(value).max(), rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("kind", ["mlp", "flow", "skip"])
def test_kernels_of_a_gpu_lead_to_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted here."""
    expected = plain_gradient(kind)
    monkeypatch.setattr(normed, "can_run_kernels", lambda: True)
    for name, value in gradient(kind, {}, replicas=2).items():
        for one in value:
            np.testing.assert_allclose(one, expected[name], atol=3e-5 * np.abs(one).max(), rtol=1e-3, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "steps"), [("mlp", 1), ("mlp", 3), ("flow", 3), ("ends", 1), ("skip", 1), ("logits", 1), ("broken", 1)]
)
def test_deferred_gradients_reach_weights_start_and_what_is_given(
    kind: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one or several steps in a loop body."""
    monkeypatch.setattr(world_model, "unroll", lambda settings: steps)
    keys = jax.random.split(jax.random.key(0), 4)
    z = simnorm(jax.random.normal(keys[0], (5, 8)), 8)
    given, weight = jax.random.normal(keys[1], (3, 5, 1)), jax.random.normal(keys[2], (4, 5, 8))

    def gradients(way: dict[str, Any]) -> Any:
        agent = toy.make_agent(dynamics=KINDS[kind], world_model=SMALL | way)

        def end(parts: tuple[Any, jax.Array, jax.Array]) -> jax.Array:
            return (weight * parts[0].roll_out(*parts[1:], keys[3])).sum()

        found = eqx.filter_jit(eqx.filter_grad(end))((toy.lively(agent).model, z, given))
        return jax.tree.leaves((found[0].dynamics, *found[1:]))

    for found, expected in zip(gradients({}), gradients(PLAIN), strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-5 * np.abs(expected).max(), rtol=1e-3)

"""The GPU's kernels, interpreted on the CPU, compute what plain JAX computes; and they can be lowered for a GPU."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from dreamproof.nn import fused, rms
from dreamproof.nn.activations import mish
from dreamproof.nn.deferred import BufferIndex, LayerGradients
from dreamproof.nn.normed import EPSILON, norm_mish, normalised
from dreamproof.nn.rms import rms_norm

Parts = dict[str, jax.Array]


def layer(rows: tuple[int, ...], features: int, dtype: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Products, affine parameters and what arrives at the output."""
    keys = jax.random.split(jax.random.key(features), 5)
    y = (3.0 + jax.random.normal(keys[0], (*rows, features))).astype(dtype)
    bias, scale, shift = (0.3 * jax.random.normal(key, (features,)) for key in keys[1:4])
    return y, jnp.stack([bias, 1.0 + scale, shift]), jax.random.normal(keys[4], y.shape).astype(dtype)


def plain(y: jax.Array, affine: jax.Array, cotangent: jax.Array, order: fused.Order = "norm_then_mish") -> Parts:
    """What the compiler makes of the same."""

    def finished(y: jax.Array, affine: jax.Array) -> jax.Array:
        if order.startswith("rms"):
            return rms_norm(y, affine, order)
        if order != "mish_then_norm":
            return norm_mish(y, affine, order).astype(y.dtype)
        bias, scale, shift = affine
        level = mish((y + bias.astype(y.dtype)).astype(jnp.float32))
        return (normalised(level) * scale + shift).astype(y.dtype)

    made, pull = jax.vjp(finished, y, affine)
    at_product, sums = pull(cotangent)
    return {"output": made, "gradient": at_product, **named(sums, order)}


def named(sums: jax.Array, order: fused.Order) -> Parts:
    return dict(zip(fused.AFFINE[order], sums, strict=True))


def kernels(y: jax.Array, affine: jax.Array, cotangent: jax.Array, order: fused.Order) -> list[Parts]:
    """What each of the kernels makes."""
    epsilon = rms.EPSILON if order.startswith("rms") else EPSILON
    gradient, sums = fused.gradient_and_sums(y, affine, cotangent, epsilon, order)
    return [
        {"output": fused.output(y, affine, epsilon, order)},
        {"gradient": fused.gradient(y, affine, cotangent, epsilon, order)},
        {"gradient": gradient, **named(sums, order)},
    ]


@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 2e-5), (jnp.bfloat16, 2e-2)])
@pytest.mark.parametrize(("rows", "features", "tile"), [((3, 5), 24, 2), ((2, fused.PROGRAMS + 3), 16, 1)])
@pytest.mark.parametrize("order", fused.AFFINE)
def test_kernels_make_what_the_compiler_makes(
    rows: tuple[int, ...],
    features: int,
    tile: int,
    dtype: Any,
    tolerance: float,
    order: fused.Order,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "cut", lambda *given, **others: fused.Cut(tile, 4))
    y, affine, cotangent = layer(rows, features, dtype)
    given = (y, affine[: len(fused.AFFINE[order])], cotangent)
    expected = plain(*given, order)
    for parts in kernels(*given, order):
        for name, found in parts.items():
            assert found.dtype == expected[name].dtype, name
            wanted = np.asarray(expected[name], np.float32)
            np.testing.assert_allclose(np.asarray(found, np.float32), wanted, atol=tolerance * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("rows", "width", "has_records", "expected"),
    [
        (256, 512, False, (1, 4)),
        (256, 512, True, (1, 4)),
        (257, 1024, False, (2, 16)),
        (257, 1024, True, (2, 16)),
        (1024, 2048, True, (8, 16)),
        (16_384, 2048, True, (8, 16)),
        (3, 16, True, (1, 4)),
    ],
)
def test_few_values_are_spread_and_partial_sums_stay_small(
    rows: int, width: int, has_records: bool, expected: tuple[int, int]
) -> None:
    assert fused.cut(rows, width, has_records) == expected


def test_replicas_each_have_their_own_sums() -> None:
    pair = [layer((6,), 16, jnp.float32), layer((6,), 16, jnp.float32)]
    pair[1] = (pair[1][0] * 2.0, pair[1][1], pair[1][2] + 1.0)
    both = jax.tree.map(lambda *parts: jnp.stack(parts), *pair)
    found = jax.vmap(lambda *given: fused.gradient_and_sums(*given, EPSILON))(*both)
    for place, given in enumerate(pair):
        alone = fused.gradient_and_sums(*given, EPSILON)
        for one, expected in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(one[place], expected, rtol=1e-5, atol=1e-6)


def test_a_layer_that_does_not_learn_makes_no_sums() -> None:
    y, affine, cotangent = layer((4,), 16, jnp.float32)

    def at_product(y: jax.Array) -> jax.Array:
        return jax.vjp(lambda y: norm_mish(y, affine, "norm_then_mish"), y)[1](cotangent)[0]

    def at_all(y: jax.Array) -> Any:
        return jax.vjp(lambda y, affine: norm_mish(y, affine, "norm_then_mish"), y, affine)[1](cotangent)

    shapes = [str(jax.make_jaxpr(function)(y)) for function in (at_product, at_all)]
    assert "complex" not in shapes[0], "sums of scale and shift are one sum of complex numbers"
    assert "complex" in shapes[1]


@pytest.mark.parametrize("features", [16, 1792])
def test_kernels_can_be_lowered_for_a_gpu(features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    y, affine, cotangent = layer((fused.PROGRAMS * 2,), features, jnp.bfloat16)

    def everything(y: jax.Array, affine: jax.Array, cotangent: jax.Array) -> Any:
        place, activation_buffers = BufferIndex(jnp.asarray(2), 1), jnp.zeros((5, *y.shape), y.dtype)
        records = LayerGradients(activation_buffers + 3, jnp.zeros((fused.partial_sums(*y.shape), *affine.shape)))
        return (
            fused.output(y, affine, EPSILON),
            fused.gradient(y, affine, cotangent, EPSILON),
            fused.gradient_and_sums(y, affine, cotangent, EPSILON),
            fused.output(y, affine, EPSILON, "mish_then_norm"),
            fused.gradient(y, affine, cotangent, EPSILON, "mish_then_norm"),
            fused.gradient_and_sums(y, affine, cotangent, EPSILON, "mish_then_norm"),
            fused.recorded_output(y, affine, EPSILON, (activation_buffers, activation_buffers + 1), place),
            fused.recorded_gradient(activation_buffers + 2, affine, cotangent, EPSILON, records, place),
            fused.recorded_gradient(activation_buffers + 2, affine, 2.0 * cotangent, EPSILON, records, place, "norm"),
            fused.gradient(y, affine, cotangent, EPSILON, "norm"),
            fused.gradient(y, affine[:1], cotangent, EPSILON, "rms"),
            fused.gradient_and_sums(y, affine[:2], cotangent, EPSILON, "rms_then_silu"),
        )

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    gpu = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=gpu)):
        lowered = jax.jit(everything).trace(y, affine, cotangent).lower(lowering_platforms=("cuda",)).as_text()
    for wanted in (
        "output",
        "gradient",
        "gradient_sums",
        "output_product_output_record",
        "gradient_product_gradient_sums",
    ):
        assert f'"normed_{wanted}"' in lowered
    for wanted in ("norm_gradient_product_gradient_sums", "norm_gradient", "rms_gradient", "rms_normed_gradient_sums"):
        assert f'"{wanted}"' in lowered
    for wanted in ("output", "gradient", "gradient_sums"):
        assert f'"activated_{wanted}"' in lowered

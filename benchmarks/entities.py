"""The kernels of entities beside what the compiler makes: `python -m benchmarks.entities`. Needs a GPU.

Prints microseconds of both, and the largest difference of their values relative to the largest value.
"""

import time
from collections.abc import Callable
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.dreamer import entities as plain
from dreamproof.agents.dreamer.entities import Entities

REPLICAS, COUNT, STATE, UNITS = 20, 10, 256, 64
ROWS = {"an imagined step": 256, "a plan of 8 envs": 12 * 64 * 8, "a plan of 50 envs": 12 * 64 * 50}
REPEATS = 30
EVALUATIONS: dict[str, Callable[[Entities, Array, Array], Array]] = {
    "move": lambda network, state, entities: network.move(state, entities),
    "pool": lambda network, state, entities: network.pool(entities),
    "cost_logits": lambda network, state, entities: network.cost_logits(state, entities),
}


def measured(
    evaluate: Callable[..., Array], given: tuple[Entities, Array, Array], kernels: bool
) -> tuple[Array, float]:
    """The values, and microseconds of one call."""
    with mock.patch.object(plain, "can_run_kernels", lambda: kernels):
        compiled = eqx.filter_jit(eqx.filter_vmap(evaluate)).lower(*given).compile()
    values = jax.block_until_ready(compiled(*given))
    began = time.perf_counter()
    for _ in range(REPEATS):
        last = compiled(*given)
    jax.block_until_ready(last)
    return values, 1e6 * (time.perf_counter() - began) / REPEATS


def main() -> None:
    """Measures each network with every number of rows."""
    if jax.default_backend() != "gpu":
        raise SystemExit("there is no GPU here; the kernels' values are tested in tests/agents/dreamer")
    networks = eqx.filter_vmap(lambda key: Entities(key, (2, 0), STATE, UNITS, 1))(
        jax.random.split(jax.random.key(0), REPLICAS)
    )
    for place, rows in ROWS.items():
        keys = jax.random.split(jax.random.key(rows), 2)
        state = jax.random.normal(keys[0], (REPLICAS, rows, STATE))
        entities = jax.random.normal(keys[1], (REPLICAS, rows, COUNT, 2))
        for name, evaluate in EVALUATIONS.items():
            (expected, before), (found, after) = (
                measured(evaluate, (networks, state, entities), kernels) for kernels in (False, True)
            )
            off = float(jnp.abs(found - expected).max() / jnp.abs(expected).max())
            print(f"{place}, {name}: {before:.0f} µs, kernel {after:.0f} µs, off by {off:.1e}", flush=True)


if __name__ == "__main__":
    main()

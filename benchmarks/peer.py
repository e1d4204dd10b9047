"""MuJoCo Playground's own agents on this machine: `python -m benchmarks.peer --task CheetahRun --output FILE`.

Trains Brax's PPO or SAC with Playground's own settings for a task, one seed after the other, and writes one line for
each of its evaluations: control steps, mean return of its evaluation episodes, seconds since the start, how many of
them were spent on compiling, and how many programs went to or came from the persistent cache. Later seeds take
most programs from there, so only a seed with an empty cache shows what compiling costs. Prints when each seed first
reached a return and what it had at its end.

Needs `pip install playground brax`; nothing of dreamproof depends on them.
"""

import argparse
import functools
import inspect
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.testing.compile_clock import CompileClock, clocked_compiles

THRESHOLDS = (700, 800, 900)


class Clock:
    """Seconds since the start, and those in which JAX traced or compiled."""

    def __init__(self, compiles: CompileClock) -> None:
        self.start, self.compiles = time.monotonic(), compiles

    def restart(self) -> None:
        """Counts from now on."""
        self.start = time.monotonic()
        self.compiles.restart()

    @property
    def facts(self) -> dict[str, Any]:
        """What a row shows; a program from the persistent cache hides the time of its compile."""
        compiles = self.compiles
        times = {"seconds": time.monotonic() - self.start, "compiling": compiles.seconds}
        rounded = {name: round(value, 1) for name, value in times.items()}
        return rounded | {"programs_to_cache": compiles.to_cache, "programs_from_cache": compiles.from_cache}


def replicate(tree: Any, devices: list[Any]) -> Any:
    """What Brax 0.14 calls as jax.device_put_replicated, which JAX has no more."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(devices)), tree)


def train(
    task: str, agent: str, seed: int, physics: str, changes: dict[str, Any], clock: Clock
) -> list[dict[str, Any]]:
    """Rows of one seed's evaluations."""
    from brax.training.agents.ppo import networks as ppo_networks
    from brax.training.agents.ppo import train as ppo
    from brax.training.agents.sac import networks as sac_networks
    from brax.training.agents.sac import train as sac
    from mujoco_playground import registry, wrapper
    from mujoco_playground.config import dm_control_suite_params

    settings_of = {"ppo": dm_control_suite_params.brax_ppo_config, "sac": dm_control_suite_params.brax_sac_config}
    networks = {"ppo": ppo_networks.make_ppo_networks, "sac": sac_networks.make_sac_networks}
    settings = {**settings_of[agent](task), **changes}
    factory = settings.pop("network_factory", None)
    if factory is not None:
        settings["network_factory"] = functools.partial(networks[agent], **factory)
    rows: list[dict[str, Any]] = []

    def note(steps: int, metrics: dict[str, Any]) -> None:
        row = {"task": task, "agent": agent, "seed": seed, "physics": physics, "control_steps": int(steps)}
        row["return"] = round(float(metrics["eval/episode_reward"]), 2)
        rows.append(row | clock.facts)
        print(json.dumps(rows[-1]), flush=True)

    if not hasattr(jax, "device_put_replicated"):
        jax.device_put_replicated = replicate
    env = registry.load(task, config_overrides={"impl": physics})
    clock.restart()
    call = {"ppo": ppo.train, "sac": sac.train}[agent]
    unknown = settings.keys() - inspect.signature(call).parameters.keys()
    print(f"not a setting of this Brax: {', '.join(sorted(unknown)) or 'none'}", flush=True)
    settings = {name: value for name, value in settings.items() if name not in unknown}
    call(environment=env, wrap_env_fn=wrapper.wrap_for_brax_training, seed=seed, progress_fn=note, **settings)
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """When a seed first had a return, with and without compiling, and what it had at its end."""
    parts = []
    for wanted in THRESHOLDS:
        first = next((row for row in rows if row["return"] >= wanted), None)
        shown = (
            "never" if first is None else f"{first['seconds']:.0f} s ({first['seconds'] - first['compiling']:.0f} s)"
        )
        parts.append(f"{wanted}: {shown}")
    last, best = rows[-1], max(row["return"] for row in rows)
    end = f"end {last['return']:.0f} after {last['control_steps']:,} control steps and {last['seconds']:.0f} s"
    programs = f"{last['programs_to_cache']} long compiles, {last['programs_from_cache']} programs from the cache"
    return f"{last['task']} {last['agent']} seed {last['seed']}: {', '.join(parts)}; best {best:.0f}, {end}; {programs}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="CheetahRun")
    parser.add_argument("--agent", choices=("ppo", "sac"), default="ppo")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--physics", choices=("jax", "warp"), default="jax", help="MJX's back end")
    parser.add_argument("--settings", default="{}", help="JSON of settings that replace Playground's own")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    try:
        import brax  # noqa: F401
        import mujoco_playground  # noqa: F401
    except ImportError as error:
        parser.error(f"{error}; pip install playground brax")
    use_compilation_cache()
    lines = []
    with clocked_compiles() as compiles:
        clock = Clock(compiles)
        for seed in range(asked.seeds):
            rows = train(asked.task, asked.agent, seed, asked.physics, json.loads(asked.settings), clock)
            lines.append(summary(rows))
            print(lines[-1], flush=True)
            with asked.output.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    print("\nfirst evaluation at a return: seconds (without tracing and compiling)")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

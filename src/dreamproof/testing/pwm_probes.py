"""Which kinds of dynamics and policy solve the probes, seed by seed.

`python -m dreamproof.testing.pwm_probes --seeds 10`.

A small PWM agent trains for a fixed number of epochs on each of four probes with known answers, all seeds of all probes
in one pack. A probe counts as solved where at the end 80 % of the way from random actions to the best are reached, in
32 complete episodes with the policy's mean. Nothing stops early. The agent of `--hard` has no entropy bonus,
windows of 17 steps and a replay that forgets.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from dreamproof.agents.registry import make_agent
from dreamproof.envs.probes import CostLineProbe, CreditProbe, SurviveProbe, TargetProbe
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.settings.cell import PwmCell
from dreamproof.settings.traced import traced_values
from dreamproof.testing.many_probes import ManyProbes, way_from_random
from dreamproof.testing.small_agent import merged
from dreamproof.train.pack import Pack, PackState

# Recall is not among them: the agent knows only what it sees.
PROBES = tuple(kind(episode_agent_steps=10) for kind in (TargetProbe, CreditProbe, SurviveProbe, CostLineProbe))
AGENT: dict[str, Any] = {
    "world_model": {
        "units": [32],
        "encoder_units": [32],
        "latent": 32,
        "termination_units": 16,
        "learning_rate": 3e-3,
    },
    "behavior": {
        "actor_units": [24],
        "critic_units": [24],
        "horizon": 4,
        "replayed_starts": 16,
        "discount": 0.9,
        "rounds": 4,
        "critic_passes": 2,
        "critic_batches": 2,
        "warm_up_epochs": 10,
        "actor_learning_rate": 4e-3,
        "critic_learning_rate": 4e-3,
        # Actions at their limits, or always the best ones, teach the model nothing about others, and it forgets them.
        "entropy_coef": 0.01,
    },
    "precision": "float32",
}
TRAIN: dict[str, Any] = {
    "envs": 8,
    "epoch_env_steps": 16,
    "batch": 32,
    "batches": 8,
    "window": 5,
    "prefill_agent_steps": 320,
    "replay_agent_steps": None,
}
HARD_AGENT: dict[str, Any] = merged(
    AGENT,
    {"world_model": {"termination_units": 8}, "behavior": {"entropy_coef": 0.0}},
)
HARD_TRAIN: dict[str, Any] = merged(TRAIN, {"window": 17, "replay_agent_steps": 8000})
EPISODES, SOLVED = 32, 0.8
FLOW: dict[str, Any] = {"dynamics": {"kind": "flow", "integrator": "euler", "substeps": 2}}
END: dict[str, Any] = merged(FLOW, {"dynamics": {"predicts": "end"}})
SKIP: dict[str, Any] = merged(END, {"dynamics": {"skip": True}})
FLOW_POLICY: dict[str, Any] = {"behavior": {"policy": "flow", "flow_substeps": 1}}
FORK: dict[str, Any] = {"world_model": {"source_pull": 1.0, "endpoint_scale": 0.0}}
ROWS: dict[str, dict[str, Any]] = {
    "MLP, Gaussian": {},
    "MLP, flow policy": FLOW_POLICY,
    "flow, Gaussian": END,
    "flow, flow policy": merged(END, FLOW_POLICY),
    "flow with skip, Gaussian": SKIP,
    "flow with skip, flow policy": merged(SKIP, FLOW_POLICY),
    "flow of velocities, Gaussian": FLOW,
    "flow of velocities, flow policy": merged(FLOW, FLOW_POLICY),
    "flow of velocities, end point alone": merged(FLOW, {"world_model": {"dynamics_scale": 0.0}}),
    "flow of velocities, decoder": merged(FLOW, {"world_model": {"decoder": True}}),
    "flow between logits": merged(FLOW, {"dynamics": {"space": "logits"}}),
    "flow as in the fork": merged(FLOW, FORK),
}


class ProbePlan(NamedTuple):
    """What is run of a row."""

    seeds: range
    epochs: int
    looks: int
    train: dict[str, Any] = TRAIN


class ProbeResult(NamedTuple):
    """Mean returns (P, S) of every probe and seed after so many epochs."""

    epochs: int
    returns: np.ndarray

    @property
    def solved(self) -> np.ndarray:
        """Which are solved, (P, S)."""
        ways = [way_from_random(row, probe.known()) for row, probe in zip(self.returns, PROBES, strict=True)]
        return np.stack(ways) > SOLVED


def make_pack(env: ManyProbes, agent: dict[str, Any], plan: ProbePlan) -> Pack:
    """One replica for every probe and seed."""
    cell = PwmCell.model_validate({"agent": agent, "train": plan.train})
    replicas = len(env.probes) * len(plan.seeds)
    scalars = jax.tree.map(lambda value: jnp.full(replicas, value, jnp.float32), traced_values(cell.agent))
    agent_steps = plan.epochs * cell.train.epoch_env_steps * cell.train.envs
    made = make_agent("pwm", env.spec, cell.agent)
    return Pack(made, env, cell.train, list(plan.seeds) * len(env.probes), scalars, agent_steps)


def results(agent: dict[str, Any], plan: ProbePlan) -> Iterator[ProbeResult]:
    """Trains to the end, with looks at equal distances, the last one at the end."""
    env = ManyProbes(PROBES)
    pack = make_pack(env, agent, plan)
    state = pack.prepare(pack.init())
    for look in range(1, plan.looks + 1):
        epochs = plan.epochs // plan.looks
        assert pack.epoch_env_steps is not None
        state, _ = pack.chunk(state, epochs * pack.epoch_env_steps)
        yield ProbeResult(look * epochs, mean_returns(pack, state).reshape(len(PROBES), -1))
    assert bool(state.agent.finite.all())


def mean_returns(pack: Pack, state: PackState) -> np.ndarray:
    """Of every replica, in complete validation episodes without noise."""
    found = pack.evaluate(state.agent, pack.env.default_params(), "validation", EPISODES)
    returns: np.ndarray = np.asarray(found.returns).mean(1)
    return returns


def record(name: str, asked: argparse.Namespace, result: ProbeResult) -> dict[str, Any]:
    """One look as a line of JSON."""
    names = [type(probe).__name__ for probe in PROBES]
    rows = zip(names, result.returns.round(2).tolist(), result.solved.sum(1).tolist(), strict=True)
    probes = {probe: {"returns": returns, "solved": solved} for probe, returns, solved in rows}
    settings = {"hard": asked.hard, "agent": asked.agent, "train": asked.train}
    return {"row": name, **settings, "epochs": result.epochs, "probes": probes}


def line_of(name: str, results: list[ProbeResult]) -> str:
    """A line of the table: solved seeds of every probe at the end; of all probes at the end and in the middle."""
    last, middle = results[-1], results[(len(results) - 1) // 2]
    seeds = last.returns.shape[1]
    counts = " | ".join(str(count) for count in last.solved.sum(1))
    at_end, halfway = (int(result.solved.all(0).sum()) for result in (last, middle))
    return f"| {name} | {counts} | **{at_end} of {seeds}** | {halfway} of {seeds} |"


def asked_for(arguments: list[str] | None = None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m dreamproof.testing.pwm_probes", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=250, help="length of a run; learning rates fall over it")
    parser.add_argument("--looks", type=int, default=5, help="evaluations of a run, at equal distances")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--hard", action="store_true", help="the harder agent, for all rows")
    parser.add_argument("--agent", type=json.loads, default={}, help="agent settings for all rows, as JSON")
    parser.add_argument("--train", type=json.loads, default={}, help="training settings for all rows, as JSON")
    parser.add_argument("--output", type=Path, help="file to which every look is appended as JSON")
    asked = parser.parse_args(arguments)
    if asked.seeds < 1 or asked.looks < 1 or asked.epochs % asked.looks:
        parser.error("--seeds and --looks are at least 1, and --epochs is a multiple of --looks")
    return asked


def main() -> None:
    """Prints the table, row by row as rows are done."""
    asked, console = asked_for(), Console(soft_wrap=True, highlight=False)
    use_compilation_cache()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    base, train = (HARD_AGENT, HARD_TRAIN) if asked.hard else (AGENT, TRAIN)
    plan = ProbePlan(seeds, asked.epochs, asked.looks, merged(train, asked.train))
    names = " | ".join(type(probe).__name__.removesuffix("Probe") for probe in PROBES)
    middle = plan.epochs // plan.looks * ((plan.looks - 1) // 2 + 1)
    console.print(f"| dynamics, policy | {names} | all, {plan.epochs} epochs | all, {middle} epochs |")
    console.print("|---" * (len(PROBES) + 3) + "|")
    for name in asked.rows:
        agent = merged(merged(base, ROWS[name]), asked.agent)
        found = []
        for result in results(agent, plan):
            found.append(result)
            if asked.output is not None:
                with asked.output.open("a") as file:
                    file.write(json.dumps(record(name, asked, result)) + "\n")
        console.print(line_of(name, found))


if __name__ == "__main__":
    main()

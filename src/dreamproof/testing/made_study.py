"""Builds study folders with a real ledger and real run folders, as runs leave them behind."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dreamproof.base.files import text_hash
from dreamproof.base.lines import json_line
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.settings.study import Study
from dreamproof.study.ledger import events
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import Moment

START = 1_770_000_000.0
Draw = Callable[[np.random.Generator, str, int, str], dict[str, Any]]


def score_and_cost(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, Any]:
    """Episodes of a study in which `full` is better and safer, and shifts cost some score."""
    shift = {"id": 0.0, "hallu2": -1.0}.get(condition, -2.0)
    level = {"baseline": 10.0, "u_only": 10.3, "cert_only": 9.9, "full": 14.0}.get(arm, 10.0) + shift
    seed_effect = np.random.default_rng((seed, len(arm))).normal(0, 0.6)
    cost_level = {"baseline": 9.0, "u_only": 5.0, "cert_only": 4.0, "full": 1.5}.get(arm, 5.0)
    scores = generator.normal(level + seed_effect, 1.0, 10)
    return {"return": scores, "cost": generator.poisson(cost_level, 10).astype(float)}


@dataclass
class Plan:
    """What the made study declares and how far it came."""

    arms: tuple[str, ...] = ("baseline", "u_only", "cert_only", "full")
    seeds: int = 5
    name: str = "made"
    start: float = START
    """When the study began, in Unix seconds."""
    conditions: tuple[tuple[str, str], ...] = (("id", "in_distribution"), ("hallu2", "proxy"), ("mass_x2", "genuine"))
    draw: Draw = score_and_cost
    metric: dict[str, Any] = field(default_factory=lambda: {"name": "return", "smallest_difference": 1.0})
    constraint: dict[str, Any] | None = field(default_factory=lambda: {"name": "cost", "at_most": 5.0})
    agent_steps: int = 1000
    more: dict[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    missing_evals: tuple[tuple[str, str], ...] = ()
    curves: bool = True
    summaries: bool = True
    falls: dict[str, tuple[tuple[int, int | None], ...]] = field(default_factory=dict)
    """By cell: at which step validation fell, and to which step the networks were rolled back."""
    trails: bool = True
    signals: dict[str, float] = field(default_factory=dict)
    deaths: bool = True
    gradient_steps: int = 500
    floors: dict[str, dict[str, float]] = field(
        default_factory=lambda: {
            "random": {"return": -1.0, "cost": 64.0},
            "go_to_goal": {"return": 9.0, "cost": 39.0},
        }
    )


def declaration(plan: Plan) -> Study:
    """The declared study."""
    base: dict[str, Any] = {
        "name": plan.name,
        "question": "Does the full agent score more than the baseline without more cost?",
        "metric": plan.metric,
        "constraint": plan.constraint,
        "task": "point_goal",
        "trainer": "dreamer",
        "arms": {arm: ({} if n == 0 else {"risk": n}) for n, arm in enumerate(plan.arms)},
        "seeds": plan.seeds,
        "agent_steps": plan.agent_steps,
        "conditions": [{"name": name, "kind": kind} for name, kind in plan.conditions],
        "evaluation_episodes": 10,
        "money": {"price_per_gpu_hour": 3.5, "currency": "CNY", "budget": 200},
    }
    return Study.model_validate(base | plan.more)


def make_study(root: Path, plan: Plan | None = None) -> Path:
    """Writes the study folder and returns it."""
    plan = plan or Plan()
    study, folder = declaration(plan), StudyFolder(root)
    clock = iter(_ticks(plan.start))
    ledger = Ledger(folder.ledger, clock=lambda: Moment(next(clock)))
    dumped = study.model_dump(mode="json")
    ledger.append(events.StudyDeclared(study.hash(), dumped), durable=False)
    ledger.append(events.SupervisorStarted("boot", 1, 1, "box", "0.1.0", "abcdef123456", False), durable=False)
    generator = np.random.default_rng(7)
    for arm in plan.arms:
        for seed in study.seeds:
            cell = Cell(arm, seed)
            if str(cell) not in plan.missing:
                _train(folder, ledger, plan, cell)
                _evaluate(folder, ledger, plan, cell, generator)
    ledger.append(events.SupervisorEnded("nothing left to do"), durable=False)
    ledger.close()
    return root


def _ticks(moment: float) -> Iterator[float]:
    while True:
        yield moment
        moment += 120.0


def _train(folder: StudyFolder, ledger: Ledger, plan: Plan, cell: Cell) -> None:
    text, steps = str(cell), plan.agent_steps
    name = f"a{len(ledger.rows):06d}-{cell.arm}-{cell.seed}"
    start = 0
    if plan.deaths and cell.seed == 1:
        first = name + "x"
        ledger.append(events.AttemptStarted(first, "train", [text], [], ["train"], {text: 0}), durable=False)
        evidence = ["memory.events: oom_kill 0 → 1", "wait status: signal 9"]
        ended = events.AttemptEnded(first, "host_oom", evidence, 90.0, {text: steps // 2}, {text: steps // 4}, True)
        ledger.append(ended, durable=False)
        ledger.append(events.Remedy([text], "resume", "transient death: host_oom"), durable=False)
        start = steps // 4
    ledger.append(events.AttemptStarted(name, "train", [text], [], ["train"], {text: start}), durable=False)
    ledger.append(
        events.AttemptEnded(name, "completed", ["exit code 0"], 100.0, {text: steps}, {text: steps}), durable=False
    )
    digest = text_hash(text)
    checkpoint = folder.run(cell).checkpoint(steps)
    checkpoint.root.mkdir(parents=True)
    record = {
        "agent_steps": steps,
        "gradient_steps": plan.gradient_steps,
        "parameter_hash": digest,
        "finite": True,
        "files": {"state.npz": "0" * 64},
        "task": "point_goal",
        "settings_hash": text_hash(cell.arm),
        "code_commit": "abcdef123456",
        "versions": {"jax": "0.10.2"},
    }
    checkpoint.record.write_text(json.dumps(record))
    proven = events.TrainProven(text, steps, plan.gradient_steps, digest, checkpoint.root.name, name)
    ledger.append(proven, durable=False)
    if plan.curves:
        _log(folder, cell, plan)
    if plan.summaries:
        _summarise(folder, cell, plan)


def _summarise(folder: StudyFolder, cell: Cell, plan: Plan) -> None:
    """What ten validations of a run left behind: final 8 + seed, area 6 + seed, peak 12 + seed, and its falls."""
    steps, falls = plan.agent_steps, plan.falls.get(str(cell), ())
    summary = {
        "final_return": 8.0 + cell.seed,
        "final_agent_steps": steps,
        "peak_return": 12.0 + cell.seed,
        "peak_agent_steps": steps // 2,
        "area_return": 6.0 + cell.seed,
        "validations": 10,
        "collapses": len(falls),
        "rollbacks": sum(target is not None for _, target in falls),
    }
    folder.run(cell).summary.write_text(json.dumps(summary))
    fall = {"gradient_steps": 100, "validation_return": 1.5, "best_return": 12.0, "best_agent_steps": steps // 2}
    rows = [fall | {"agent_steps": at, "rolled_back_to": target, "reason": "fell"} for at, target in falls]
    if rows:
        folder.run(cell).collapses.write_text("".join(map(json_line, rows)))


def _log(folder: StudyFolder, cell: Cell, plan: Plan) -> None:
    generator = np.random.default_rng((cell.seed, len(cell.arm)))
    level = 14.0 if cell.arm == "full" else 10.0
    with folder.run(cell).metrics.open("w") as file:
        for step in np.linspace(0, plan.agent_steps, 60):
            share = step / plan.agent_steps
            row = {
                "agent_steps": int(step),
                "return": float(level * (1 - np.exp(-4 * share)) + generator.normal(0, 0.7)),
                "cost": float(8 * np.exp(-2 * share) + abs(generator.normal(0, 0.5))),
            }
            file.write(json_line(row))


def made_trail(cell: Cell) -> dict[str, Any]:
    """A spiral from the middle past four hazards, one of which it touches."""
    turns = np.linspace(0, 4 * np.pi, 80) + cell.seed
    reach = np.linspace(0, 1.4, 80)
    way = [(round(float(r * np.cos(t)), 3), round(float(r * np.sin(t)), 3)) for r, t in zip(reach, turns, strict=True)]
    hazards = [(0.8, 0.8), (-0.9, 0.7), (-0.8, -0.8), way[60]]
    cost = [float(np.hypot(x - way[60][0], y - way[60][1]) < 0.2) for x, y in way]
    return {
        "agent": way,
        "goal": [(1.2, -0.4)] * 40 + [(-1.1, 0.2)] * 40,
        "goal_radius": 0.3,
        "hazards": hazards,
        "hazard_radius": 0.2,
        "cost": cost,
    }


def _evaluate(folder: StudyFolder, ledger: Ledger, plan: Plan, cell: Cell, generator: np.random.Generator) -> None:
    run, digest = folder.run(cell), text_hash(str(cell))
    run.evaluations.mkdir(parents=True, exist_ok=True)
    done: list[events.Event] = []
    for condition, kind in plan.conditions:
        if (str(cell), condition) in plan.missing_evals:
            continue
        episodes = {name: list(values) for name, values in plan.draw(generator, cell.arm, cell.seed, condition).items()}
        final = {
            "agent_steps": plan.agent_steps,
            "gradient_steps": plan.gradient_steps,
            "parameter_hash": digest,
            "episodes": episodes,
            "scalars": plan.signals,
        }
        record = {
            "condition": condition,
            "kind": kind,
            "task": "point_goal",
            "checkpoints": {"final": final},
            "floors": plan.floors,
            "trail": made_trail(cell) if plan.trails else None,
        }
        run.evaluation(condition).write_text(json.dumps(record))
        count = min((len(values) for values in episodes.values()), default=0)
        done.append(events.EvalProven(str(cell), condition, count, digest))
    if done:
        name, text = f"e{cell.arm}-{cell.seed}", str(cell)
        names = [condition for condition, _ in plan.conditions]
        begun = events.AttemptStarted(name, "evaluate", [text], names, ["evaluate"], {})
        ended = events.AttemptEnded(name, "completed", ["exit code 0"], 30.0, {}, {})
        ledger.append_all([begun, ended, *done], durable=False)

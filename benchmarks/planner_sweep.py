"""Trained agents under other settings of evaluation: which margin, planner or filter is worth what.

--rows is a YAML list of {name, agent: {...}}; the keys of a row replace those that a run was trained with. Rows
that share a compile are played together. Every (row, condition, run) becomes one JSON line. Tune on validation layouts
(the default), then evaluate what was chosen once with --split test.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import yaml

from dreamproof.evaluate.episodes import Evaluator
from dreamproof.evaluate.loading import Loaded, load
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.jaxcore.keys import Split
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.records import EvaluationRecord


def groups_of(runs: list[Path], rows: list[dict[str, Any]], which: str) -> list[list[tuple[str, Loaded]]]:
    """All (row, agent) pairs, those that share a compile together."""
    groups: dict[int, list[tuple[str, Loaded]]] = {}
    for row in rows:
        changes = {name: value for name, value in row.items() if name not in ("name", "runs")}
        for run in runs:
            if not run.name.startswith(tuple(row.get("runs", [""]))):
                continue
            loaded = load(RunFolder(run), which, changes) or load(RunFolder(run), "final", changes)
            assert loaded is not None
            groups.setdefault(id(loaded.agent), []).append((row["name"], loaded))
    return list(groups.values())


def line_of(row: str, loaded: Loaded, record: EvaluationRecord, split: str) -> dict[str, Any]:
    """What is written of one agent under one condition."""
    made = record.checkpoints["final"]
    kept = {name: made.episodes[name] for name in ("return", "cost", "shadow/innovation") if name in made.episodes}
    return {
        "row": row,
        "arm": loaded.run.arm,
        "seed": loaded.run.seed,
        "agent_steps": made.agent_steps,
        "parameter_hash": made.parameter_hash,
        "condition": record.condition,
        "split": split,
        "code_commit": record.code_commit,
        "return": float(np.mean(made.episodes["return"])),
        "cost": float(np.mean(made.episodes["cost"])),
        "scalars": made.scalars,
        "episodes": kept,
    }


def main() -> None:
    """Plays all rows under all conditions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--conditions", default="id", help="names, separated by commas")
    parser.add_argument("--split", choices=get_args(Split), default="validation")
    parser.add_argument("--which", choices=("final", "selected"), default="final")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    use_compilation_cache()
    rows = yaml.safe_load(asked.rows.read_text())
    with asked.out.open("a") as file:
        for group in groups_of(asked.run_dirs, rows, asked.which):
            evaluator = Evaluator([{"final": agent} for _, agent in group], {}, asked.episodes, split=asked.split)
            for condition in asked.conditions.split(","):
                began = time.monotonic()
                for (row, loaded), record in zip(group, evaluator.evaluate(condition), strict=True):
                    line = line_of(row, loaded, record, asked.split)
                    file.write(json.dumps(line) + "\n")
                    cell = f"{loaded.run.arm}/{loaded.run.seed}"
                    print(f"{row} {cell} {condition}: return {line['return']:.2f} cost {line['cost']:.2f}")
                file.flush()
                print(f"  {len(group)} agents, {condition}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()

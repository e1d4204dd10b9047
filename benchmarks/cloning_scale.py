"""Which `behavior.cloning_scale` suits an arm of a study over several tasks.

Trains one agent for each scale, all from one seed and in one pack, and plays the validation layouts of the tasks. The
scale with the highest mean score over the tasks is the one to declare. Test layouts are not touched.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from dreamproof.base.commit import code_name
from dreamproof.base.files import write_json
from dreamproof.evaluate.episodes import Evaluator
from dreamproof.evaluate.loading import load
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.settings.several_tasks import merge
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import read_study
from dreamproof.study.plan.commands import run_settings
from dreamproof.train.loop import train

SEED = 100


def prepare(study: Study, asked: argparse.Namespace) -> list[RunFolder]:
    """One run folder for each scale."""
    given, found = run_settings(study, Cell(asked.arm, SEED)), []
    for scale in asked.scales:
        changes: dict[str, Any] = {
            "agent": {"behavior": {"warm_up_epochs": asked.model_updates, "cloning_scale": scale}},
            "data": {"policies": asked.tasks},
            "train": {"evaluate_every_agent_steps": asked.updates},
        }
        own = given.model_copy(
            update={
                "arm": f"{asked.arm}-{scale:g}",
                "agent_steps": asked.updates,
                "settings": merge(given.settings, changes),
            }
        )
        run = RunFolder(asked.output / own.arm)
        run.root.mkdir(parents=True)
        write_json(run.settings, own.model_dump(mode="json"))
        found.append(run)
    return found


def play(runs: list[RunFolder], tasks: list[str], episodes: int) -> dict[str, list[float]]:
    """Mean score of every scale, by task."""
    loaded = [load(run, "final") for run in runs]
    evaluator = Evaluator([{"final": each} for each in loaded if each is not None], {}, episodes, split="validation")
    found = {}
    for task, records in zip(tasks, evaluator.evaluate_all(tasks), strict=True):
        found[task] = [float(np.mean(each.checkpoints["final"].episodes["score"])) for each in records]
        random = records[0].floors["random"]["score"]
        print(f"{task}: " + " ".join(f"{score:.3f}" for score in found[task]) + f", random {random:.3f}", flush=True)
    return found


def main() -> None:
    """Trains, plays and prints the choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, metavar="STUDY")
    parser.add_argument("--arm", required=True)
    parser.add_argument("--scales", type=lambda text: list(map(float, text.split(","))), default=[0.1, 0.5, 2.5, 12.5])
    parser.add_argument("--tasks", type=lambda text: text.split(","), required=True)
    parser.add_argument("--model-updates", type=int, default=6_000)
    parser.add_argument("--updates", type=int, default=9_000, help="of the model and then of the behaviour, together")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    asked = parser.parse_args()
    use_compilation_cache()
    began = time.monotonic()
    runs = prepare(read_study(asked.study), asked)
    train(runs)
    print(f"trained in {time.monotonic() - began:.0f} s", flush=True)
    found = play(runs, asked.tasks, asked.episodes)
    means = np.mean(list(found.values()), axis=0)
    best = asked.scales[int(np.argmax(means))]
    result = {
        "arm": asked.arm,
        "scales": asked.scales,
        "model_updates": asked.model_updates,
        "updates": asked.updates,
        "scores": found,
        "means": means.tolist(),
        "chosen": best,
        "seconds": time.monotonic() - began,
        "commit": code_name(),
    }
    write_json(asked.output / "result.json", result)
    print("mean: " + " ".join(f"{mean:.3f}" for mean in means) + f"; chosen: {best:g}")


if __name__ == "__main__":
    main()

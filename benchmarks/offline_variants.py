"""Which settings of the behaviour suit an arm of a study over several tasks.

Trains the arm's world model once, then policies of every named variant in it, from several seeds, and plays validation
layouts of the tasks. Test layouts are not touched. A file of variants is YAML: a name, and what changes in the arm's
settings, such as `cloning_5: {agent: {behavior: {cloning_scale: 5}}}`.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from dreamproof.base.commit import code_name
from dreamproof.base.files import write_json
from dreamproof.base.lines import read_rows
from dreamproof.evaluate.episodes import Evaluator
from dreamproof.evaluate.loading import load
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.records import RunSettings
from dreamproof.settings.several_tasks import merge
from dreamproof.settings.strict import read_yaml
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import read_study
from dreamproof.study.plan.commands import run_settings
from dreamproof.train.loop import train

FIRST_SEED = 100
"""Seeds of a study start at 0: no policy here is one of a study."""
SHOWN = ("imagined/reward", "imagined/first_reward", "recorded/reward", "critics/value", "actor/cloning_distance")


def write_run(folder: Path, given: RunSettings, updates: int, changes: dict[str, Any]) -> RunFolder:
    """A run folder with changed settings."""
    own = given.model_copy(update={"agent_steps": updates, "settings": merge(given.settings, changes)})
    run = RunFolder(folder)
    run.root.mkdir(parents=True)
    write_json(run.settings, own.model_dump(mode="json"))
    return run


def schedule(asked: argparse.Namespace, updates: int, warm_up: int) -> dict[str, Any]:
    """Settings of a run with so many updates, the first `warm_up` of them of the model, for the asked tasks."""
    cadence = {"evaluate_every_agent_steps": updates}
    return {
        "agent": {"behavior": {"warm_up_epochs": warm_up}},
        "data": {"policies": asked.tasks} if asked.tasks else {},
        "train": cadence,
    }


def train_model(study: Study, asked: argparse.Namespace) -> RunFolder:
    """The world model in which all variants learn."""
    given = run_settings(study, Cell(asked.arm, FIRST_SEED))
    run = write_run(asked.output / "model", given, asked.model_updates, schedule(asked, *[asked.model_updates] * 2))
    train([run])
    return run


def train_variant(study: Study, asked: argparse.Namespace, name: str, changes: dict[str, Any]) -> list[RunFolder]:
    """Policies of one variant, of every seed in one pack."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds):
        given = run_settings(study, Cell(asked.arm, seed)).model_copy(update={"arm": name})
        own = merge(schedule(asked, asked.updates, 0), {"data": {"world_model": str(asked.output / "model")}})
        found.append(write_run(asked.output / f"{name}-seed{seed}", given, asked.updates, merge(changes, own)))
    train(found)
    return found


def play(runs: list[RunFolder], tasks: list[str], asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """For every task the mean score of every run, the reward per step, and the score of random actions."""
    loaded = [load(run, "final") for run in runs]
    evaluator = Evaluator(
        [{"final": each} for each in loaded if each is not None], {}, asked.episodes, split="validation"
    )
    found: dict[str, dict[str, Any]] = {}
    for task, records in zip(tasks, evaluator.evaluate_all(tasks), strict=True):
        episodes = [each.checkpoints["final"].episodes for each in records]
        found[task] = {
            "score": [float(np.mean(each["score"])) for each in episodes],
            "reward": [float(np.sum(each["return"]) / np.sum(each["length"])) for each in episodes],
            "random": records[0].floors["random"]["score"],
        }
        print(f"{task}: {np.round(found[task]['score'], 3)}, random {found[task]['random']:.3f}", flush=True)
    return found


def last_row(run: RunFolder) -> dict[str, float]:
    """The last logged metrics, with rewards in the unit of the environment."""
    return [row for row in read_rows(run.metrics) if "gradient_steps" in row][-1]


def summarise(names: list[str], rows: list[dict[str, float]], played: dict[str, Any], scale: float) -> dict[str, Any]:
    """Mean score, and imagined against true reward per step, of every variant; `names` and `rows` are those of runs."""
    scores, rewards = (np.mean([each[key] for each in played.values()], axis=0) for key in ("score", "reward"))
    found = {}
    for name in dict.fromkeys(names):
        own = [index for index, other in enumerate(names) if other == name]
        logged = {key: float(np.mean([rows[i][key] for i in own])) for key in SHOWN if key in rows[own[0]]}
        logged = {key: value * (1.0 if key.startswith("actor") else scale) for key, value in logged.items()}
        found[name] = {
            "score": float(scores[own].mean()),
            "seeds": scores[own].tolist(),
            "true reward": float(rewards[own].mean()),
            **logged,
        }
    return found


def main() -> None:
    """Trains, plays and prints one line per variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, metavar="STUDY")
    parser.add_argument("variants", type=Path, metavar="VARIANTS", help="a YAML file")
    parser.add_argument("--arm", required=True)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=[], help="all of the study if left out")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model-updates", type=int, required=True)
    parser.add_argument("--updates", type=int, required=True, help="of the behaviour")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    asked = parser.parse_args()
    asked.output = asked.output.absolute()
    use_compilation_cache()
    began, study, variants = time.monotonic(), read_study(asked.study), read_yaml(asked.variants)[0]
    model = train_model(study, asked)
    print(f"model trained after {time.monotonic() - began:.0f} s", flush=True)
    runs: dict[str, list[RunFolder]] = {}
    for name, changes in variants.items():
        runs[name] = train_variant(study, asked, name, changes)
        print(f"{name} trained after {time.monotonic() - began:.0f} s", flush=True)
    flat = [run for each in runs.values() for run in each]
    names = [name for name, each in runs.items() for _ in each]
    played = play(flat, asked.tasks or list(study.tasks), asked)
    found = summarise(names, [last_row(run) for run in flat], played, last_row(model)["model/reward_scale"])
    result = {"arm": asked.arm, "variants": found, "tasks": played, "code": code_name()}
    write_json(asked.output / "result.json", result | {"seconds": time.monotonic() - began})
    for name, values in found.items():
        print(f"{name}: " + ", ".join(f"{key} {np.round(value, 3)}" for key, value in values.items()))


if __name__ == "__main__":
    main()

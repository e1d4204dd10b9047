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


def play(runs: list[RunFolder], tasks: list[str], episodes: int) -> dict[str, dict[str, Any]]:
    """For every task the mean score of every run of a variant, the reward per step, and the score of random actions."""
    loaded = [{"final": each} for each in (load(run, "final") for run in runs) if each is not None]
    evaluator = Evaluator(loaded, {}, episodes, split="validation")
    found: dict[str, dict[str, Any]] = {}
    for task, records in zip(tasks, evaluator.evaluate_all(tasks), strict=True):
        made = [each.checkpoints["final"].episodes for each in records]
        found[task] = {
            "score": [float(np.mean(each["score"])) for each in made],
            "reward": [float(np.sum(each["return"]) / np.sum(each["length"])) for each in made],
            "random": records[0].floors["random"]["score"],
        }
    return found


def last_row(run: RunFolder) -> dict[str, float]:
    """The last logged metrics, with rewards in the model's unit."""
    return [row for row in read_rows(run.metrics) if "gradient_steps" in row][-1]


def summarise(rows: list[dict[str, float]], played: dict[str, dict[str, Any]], scale: float) -> dict[str, Any]:
    """Mean score, and imagined against true reward per step, of a variant; `rows` are the last ones of its runs."""
    scores, rewards = (np.mean([each[key] for each in played.values()], axis=0) for key in ("score", "reward"))
    logged = {key: float(np.mean([row[key] for row in rows])) for key in SHOWN if key in rows[0]}
    in_env_unit = {key: value * (1.0 if key.startswith("actor") else scale) for key, value in logged.items()}
    means = {"score": float(scores.mean()), "seeds": scores.tolist(), "true reward": float(rewards.mean())}
    return means | in_env_unit


def play_all(runs: dict[str, list[RunFolder]], tasks: list[str], episodes: int, scale: float) -> dict[str, Any]:
    """What is found of every variant; each is printed as soon as it is known."""
    found = {}
    for name, own in runs.items():
        played = play(own, tasks, episodes)
        found[name] = summarise([last_row(run) for run in own], played, scale) | {"tasks": played}
        values = {key: np.round(value, 3) for key, value in found[name].items() if key != "tasks"}
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in values.items()), flush=True)
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
    found = play_all(
        runs, asked.tasks or list(study.tasks or []), asked.episodes, last_row(model)["model/reward_scale"]
    )
    result = {"arm": asked.arm, "variants": found, "code": code_name(), "seconds": time.monotonic() - began}
    write_json(asked.output / "result.json", result)


if __name__ == "__main__":
    main()

"""python -m dreamproof.evaluate RUN_DIR... --conditions id,hallu2: complete episodes of trained checkpoints."""

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.progress import Progress, track

from dreamproof.agents.api import Calibrated
from dreamproof.base.errors import BadInput, DreamproofError
from dreamproof.base.files import write_json
from dreamproof.evaluate.episodes import PARTS, WHICH, Checkpoints, Evaluator
from dreamproof.evaluate.loading import Loaded, load
from dreamproof.evaluate.official import COMPARED, differences, evaluate_officially
from dreamproof.evaluate.policy import load_agent
from dreamproof.evaluate.policy_file import read_policy
from dreamproof.jaxcore.ahead import run_main
from dreamproof.jaxcore.compile_events import announce_compiles
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.pulse import Pulse
from dreamproof.runs.reader import read_evaluation, read_settings
from dreamproof.runs.records import EvaluationRecord, RunSettings
from dreamproof.runs.writer import RunWriter

OFFICIAL_EPISODES = 50


class LoadedRun(NamedTuple):
    """A run with its checkpoints."""

    run: RunFolder
    settings: RunSettings
    checkpoints: Checkpoints


def open_run(folder: Path) -> LoadedRun:
    """The final checkpoint of a run, and the selected one if it is different."""
    run = RunFolder(folder)
    settings = read_settings(run)
    if settings is None:
        raise BadInput(f"{run.settings}: missing or not readable", "dreamproof run STUDY")
    return LoadedRun(run, settings, {which: found for which in WHICH if (found := load(run, which)) is not None})


def group_key(opened: LoadedRun) -> tuple[int, int, str]:
    """Runs with equal keys are evaluated together: same agent and env, same conditions."""
    final = opened.checkpoints["final"]
    return id(final.agent), opened.settings.evaluation_episodes, json.dumps(opened.settings.conditions, sort_keys=True)


def evaluate_together(group: list[LoadedRun], conditions: list[str], episodes: int | None) -> None:
    """Evaluates runs with equal keys under every condition; each condition is written as soon as it is done."""
    first = group[0].settings
    declared = {condition["name"]: condition for condition in first.conditions}
    writers = [RunWriter(each.run) for each in group]
    with ExitStack() as stack:
        pulses = [stack.enter_context(Pulse([writer])) for writer in writers]
        for pulse in pulses:
            stack.enter_context(announce_compiles(pulse.set_compiling, pulse.count_compile))
        checkpoints = [each.checkpoints for each in group]
        evaluator = Evaluator(
            checkpoints, declared, episodes or first.evaluation_episodes, lambda: update_pulses(checkpoints, pulses)
        )
        update_pulses(checkpoints, pulses)
        found = zip(conditions, evaluator.evaluate_all(conditions), strict=True)
        cells = [f"{each.settings.arm}/{each.settings.seed}" for each in group]
        title, is_quiet = cells[0] if len(cells) == 1 else f"{len(cells)} cells", not sys.stdout.isatty()
        for name, records in track(found, description=title, total=len(conditions), disable=is_quiet):
            for cell, writer, made in zip(cells, writers, records, strict=True):
                writer.write_evaluation(made)
                print(f"{cell} {name}: {means_text(made)}")


def update_pulses(runs: list[Checkpoints], pulses: list[Pulse]) -> None:
    """Reports progress for every run."""
    for checkpoints, pulse in zip(runs, pulses, strict=True):
        record = checkpoints["final"].record
        pulse.set("evaluate", record.agent_steps, record.gradient_steps)


def evaluate_runs(folders: list[Path], conditions: list[str], episodes: int | None) -> int:
    """Evaluates all valid runs, also if others are refused. Returns the highest exit code."""
    groups: dict[tuple[int, int, str], list[LoadedRun]] = {}
    code = 0
    for folder in folders:
        try:
            opened = open_run(folder)
        except DreamproofError as error:
            code = max(code, print_error(error))
            continue
        groups.setdefault(group_key(opened), []).append(opened)
    for group in groups.values():
        evaluate_together(group, conditions, episodes)
    return code


def print_error(error: DreamproofError) -> int:
    """Prints an error and returns its exit code."""
    print(f"error: {error}", file=sys.stderr)
    return int(error.exit_code)


def evaluate_file(path: Path, conditions: list[str], episodes: int | None) -> None:
    """Prints what the policy of a file reaches; nothing is written."""
    loaded = read_policy(path)
    declared = {condition["name"]: condition for condition in loaded.run.conditions}
    evaluator = Evaluator([{"final": loaded}], declared, episodes or loaded.run.evaluation_episodes)
    for name, (made,) in zip(conditions, evaluator.evaluate_all(conditions), strict=True):
        print(f"{path.name} {name}: {means_text(made)}")


def means_text(made: EvaluationRecord) -> str:
    """return 24.10 cost 1.20, and the other costs of a task with several."""
    final = made.checkpoints["final"].episodes
    names = [name for name in final if name in ("return", "cost") or name.startswith("cost_")]
    return " ".join(f"{name} {sum(final[name]) / len(final[name]):.2f}" for name in names)


def play_officially(loaded: Loaded, name: str, episodes: int) -> EvaluationRecord:
    """Episodes on the official task, with a progress bar; nothing is calibrated there."""
    if isinstance(loaded.agent, Calibrated) and not loaded.is_calibrated:
        note = "no offset of an evaluation: arms with a certificate act with that of their last validation in training"
        print(f"note: {name}: {note}", file=sys.stderr)
    with Progress() as bar:
        task = bar.add_task(f"{name} on the official task, {episodes} episodes", total=PARTS)
        return evaluate_officially(loaded, episodes, lambda: bar.advance(task))


def evaluate_file_officially(path: Path, episodes: int) -> None:
    """Prints what the policy of a file reaches on the official task; nothing is written."""
    official = play_officially(read_policy(path), path.name, episodes).checkpoints["final"].episodes
    for name in COMPARED:
        values = np.asarray(official[name])
        print(f"{name}: official {values.mean():.2f}, standard error {values.std() / len(values) ** 0.5:.2f}")


def compare_with_official(run: RunFolder, episodes: int) -> None:
    """Evaluates the final checkpoint on the official task and compares it with the run's own evaluation."""
    final = load_agent(run)
    ours = read_evaluation(run, "id")
    if ours is None:
        raise BadInput(f"{run.evaluation('id')}: no evaluation to compare with", "dreamproof run STUDY")
    official = play_officially(final, run.root.name, episodes)
    write_json(run.official, official.model_dump(mode="json"))
    for name, (gap, low, high) in differences(official, ours).items():
        there, here = (each.checkpoints["final"].episodes[name] for each in (official, ours))
        means = f"official {sum(there) / len(there):.2f}, ours {sum(here) / len(here):.2f}"
        print(f"{name}: {means}, difference {gap:+.2f} [{low:+.2f}, {high:+.2f}]")
    print(f"written: {run.official}")


def main() -> int:
    """Parses arguments, evaluates, prints errors."""
    parser = argparse.ArgumentParser(prog="python -m dreamproof.evaluate", description=__doc__)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR", help="or a policy file")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--conditions", help="names, separated by commas")
    what.add_argument(
        "--official", action="store_true", help="evaluate on the official Safety-Gymnasium (make official)"
    )
    parser.add_argument("--episodes", type=int, help="instead of the number in settings.json")
    arguments = parser.parse_args()
    if arguments.episodes is not None and arguments.episodes < 1:
        parser.error(f"--episodes {arguments.episodes}: at least one is needed")
    use_compilation_cache()
    try:
        if not arguments.official:
            conditions, files = arguments.conditions.split(","), [path for path in arguments.run_dirs if path.is_file()]
            for path in files:
                evaluate_file(path, conditions, arguments.episodes)
            folders = [path for path in arguments.run_dirs if path not in files]
            return evaluate_runs(folders, conditions, arguments.episodes) if folders else 0
        episodes = arguments.episodes or OFFICIAL_EPISODES
        for path in arguments.run_dirs:
            if path.is_file():
                evaluate_file_officially(path, episodes)
            else:
                compare_with_official(RunFolder(path), episodes)
    except DreamproofError as error:
        return print_error(error)
    return 0


if __name__ == "__main__":
    run_main(main)

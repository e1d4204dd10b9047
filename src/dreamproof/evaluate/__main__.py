"""python -m dreamproof.evaluate RUN_DIR... --conditions id,hallu2: complete episodes of trained checkpoints."""

import argparse
import sys
from pathlib import Path

from rich.progress import track

from dreamproof.base.errors import BadInput, DreamproofError
from dreamproof.evaluate.episodes import Evaluator
from dreamproof.evaluate.loading import load
from dreamproof.evaluate.official import differences, evaluate_officially
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.pulse import Pulse
from dreamproof.runs.reader import read_evaluation, read_settings
from dreamproof.runs.writer import RunWriter

OFFICIAL_EPISODES = 50


def evaluate_run(run: RunFolder, conditions: list[str], episodes: int | None) -> None:
    """Evaluates the final and the selected checkpoint of one run under every condition."""
    settings = read_settings(run)
    if settings is None:
        raise BadInput(f"{run.settings}: missing or not readable", "dreamproof run STUDY")
    loaded = {which: found for which in ("final", "selected") if (found := load(run, which)) is not None}
    told = {condition["name"]: condition for condition in settings.conditions}
    evaluator = Evaluator(loaded, told, episodes or settings.evaluation_episodes)
    writer = RunWriter(run)
    record = loaded["final"].record
    with Pulse([writer]) as pulse:
        pulse.set("evaluate", record.agent_steps, record.gradient_steps)
        for name in track(conditions, description=f"{settings.arm}/{settings.seed}", disable=not sys.stdout.isatty()):
            made = evaluator.evaluate(name)
            writer.write_evaluation(made)
            final = made.checkpoints["final"].episodes
            means = {key: sum(values) / len(values) for key, values in final.items()}
            print(f"{settings.arm}/{settings.seed} {name}: return {means['return']:.2f} cost {means['cost']:.2f}")
            pulse.set("evaluate", record.agent_steps, record.gradient_steps)


def compare_with_official(run: RunFolder, episodes: int) -> None:
    """Evaluates the final checkpoint on the real task and holds it against the run's own evaluation."""
    final = load(run, "final")
    assert final is not None
    twin = read_evaluation(run, "id")
    if twin is None:
        raise BadInput(f"{run.evaluation('id')}: there is nothing to compare with", "dreamproof run STUDY")
    official = evaluate_officially(run, final, episodes)
    for name, (gap, low, high) in differences(official, twin).items():
        there, here = (each.checkpoints["final"].episodes[name] for each in (official, twin))
        means = f"official {sum(there) / len(there):.2f}, twin {sum(here) / len(here):.2f}"
        print(f"{name}: {means}, difference {gap:+.2f} [{low:+.2f}, {high:+.2f}]")
    print(f"written: {run.official}")


def main() -> int:
    """Parses, evaluates, and says what went wrong in words."""
    parser = argparse.ArgumentParser(prog="python -m dreamproof.evaluate", description=__doc__)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--conditions", help="names, separated by commas")
    what.add_argument("--official", action="store_true", help="on the real Safety-Gymnasium (make official)")
    parser.add_argument("--episodes", type=int, help="instead of the number in settings.json")
    asked = parser.parse_args()
    use_compilation_cache()
    try:
        for folder in asked.run_dirs:
            if asked.official:
                compare_with_official(RunFolder(folder), asked.episodes or OFFICIAL_EPISODES)
            else:
                evaluate_run(RunFolder(folder), asked.conditions.split(","), asked.episodes)
    except DreamproofError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())

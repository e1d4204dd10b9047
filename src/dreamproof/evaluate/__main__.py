"""python -m dreamproof.evaluate RUN_DIR... --conditions id,hallu2: complete episodes of trained checkpoints."""

import argparse
import sys
from pathlib import Path

from rich.progress import track

from dreamproof.base.errors import BadInput, DreamproofError
from dreamproof.evaluate.episodes import Evaluator
from dreamproof.evaluate.loading import load
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.pulse import Pulse
from dreamproof.runs.reader import read_settings
from dreamproof.runs.writer import RunWriter


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


def main() -> int:
    """Parses, evaluates, and says what went wrong in words."""
    parser = argparse.ArgumentParser(prog="python -m dreamproof.evaluate", description=__doc__)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--conditions", required=True, help="names, separated by commas")
    parser.add_argument("--episodes", type=int, help="instead of the number in settings.json")
    asked = parser.parse_args()
    use_compilation_cache()
    try:
        for folder in asked.run_dirs:
            evaluate_run(RunFolder(folder), asked.conditions.split(","), asked.episodes)
    except DreamproofError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""python -m dreamproof.record --tasks a,b --policy random --episodes 100 --output FILE.npz: episodes for offline cells.

Every policy records --episodes episodes per task: 'random' of all tasks, a run of the task it was trained on.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.progress import track

from dreamproof.base.errors import BadInput, DreamproofError
from dreamproof.data.recordings import Recording, check_new, check_output, write_recording
from dreamproof.jaxcore.ahead import run_main
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.record.episodes import record
from dreamproof.record.policies import RecordingPolicy, find_policies
from dreamproof.record.recipe import make_data
from dreamproof.settings.recipe import Recipe
from dreamproof.settings.strict import read_yaml, validate
from dreamproof.settings.task_sets import TASK_SETS


def main() -> int:
    """Parses arguments, records, and prints the data settings for a study."""
    parser = argparse.ArgumentParser(prog="python -m dreamproof.record", description=__doc__)
    parser.add_argument("--recipe", type=Path, metavar="FILE.yaml", help="a whole data set, see docs/multitask.md")
    parser.add_argument("--tasks", help="names, separated by commas, in the order of their numbers; or mt8, mt30")
    parser.add_argument("--policy", help="'random', RUN_DIRs or policy files, separated by commas")
    parser.add_argument("--episodes", type=int, help="per policy and task")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.npz", help="with --recipe also .pt")
    parser.add_argument("--seed", type=int, help="seed of layouts, noise and actions (0)")
    arguments = parser.parse_args()
    use_compilation_cache()
    try:
        if arguments.recipe is not None:
            given = [name for name in ("tasks", "policy", "episodes", "seed") if getattr(arguments, name) is not None]
            if given:
                raise BadInput(
                    f"--{given[0]} has no effect beside --recipe", "write it into the recipe, or leave it out"
                )
            return _make_data(arguments.recipe, arguments.output)
        if arguments.tasks is None or arguments.policy is None or arguments.episodes is None:
            raise BadInput("--tasks, --policy and --episodes are needed, or a --recipe", "add what is missing")
        named = TASK_SETS.get(arguments.tasks)
        tasks = arguments.tasks.split(",") if named is None else [task.name for task in named]
        _record(tasks, arguments.policy.split(","), arguments)
    except DreamproofError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


def _make_data(path: Path, output: Path) -> int:
    """Makes the data set of a recipe."""
    value, lines = read_yaml(path)
    recipe = validate(Recipe, value, str(path), lines, hint="the keys of a recipe: docs/multitask.md")
    written = make_data(recipe, path.parent, output, lambda line: print(line, flush=True))
    print("written: " + ", ".join(map(str, written)))
    return 0


def _record(tasks: list[str], policies: list[str], arguments: argparse.Namespace) -> None:
    if arguments.episodes < 1:
        raise BadInput(f"--episodes {arguments.episodes}: at least 1 is needed", "write e.g. --episodes 100")
    for names, option in ((tasks, "--tasks"), (policies, "--policy")):
        if len(set(names)) < len(names):
            raise BadInput(f"{option} {','.join(names)}: duplicate name", "remove one of them")
    check_output(arguments.output)
    check_new(arguments.output)
    found = find_policies(tasks, policies)
    print(f"recording {len(found) * arguments.episodes:,} episodes; every task compiles first", flush=True)

    def shown(batches: list[int]) -> Iterable[int]:
        return track(batches, description="batches", disable=not sys.stdout.isatty())

    made = record(found, tasks, arguments.episodes, arguments.seed or 0, shown)
    write_recording(arguments.output, made)
    for line in _summary(found, made, arguments.episodes, arguments.output):
        print(line)


def _summary(policies: list[RecordingPolicy], made: Recording, episodes: int, output: Path) -> Iterable[str]:
    returns = made.reward.sum(1)
    for index, policy in enumerate(policies):
        own = slice(index * episodes, (index + 1) * episodes)
        mean, steps = returns[own].mean(), (made.rows[own] - 1).mean()
        yield f"{policy.task} by {policy.name}: {episodes} episodes, mean return {mean:.2f}, mean length {steps:.0f}"
    assert made.task_info is not None
    names = ", ".join(made.task_info.names)
    sizes = f"observation_size: {made.observation.shape[2]}, action_size: {made.action.shape[2]}"
    yield f"written: {output}; in a study with 'trainer: pwm_offline':"
    yield f"  data: {{files: [{output}], tasks: [{names}], {sizes}}}"


if __name__ == "__main__":
    run_main(main)

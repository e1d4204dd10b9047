"""python -m dreamproof.record --tasks a,b --policy random --episodes 100 --output FILE.npz: episodes for offline cells.

Every policy plays so many episodes of every task that it can play: 'random' all of them, a run its own.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.progress import track

from dreamproof.base.errors import BadInput, DreamproofError
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.jaxcore.recordings import Recording, check_output, write_recording
from dreamproof.record.episodes import record
from dreamproof.record.players import Player, find_players


def main() -> int:
    """Parses, records, and says what a study needs to know of the file."""
    parser = argparse.ArgumentParser(prog="python -m dreamproof.record", description=__doc__)
    parser.add_argument("--tasks", required=True, help="names, separated by commas; their order gives their numbers")
    parser.add_argument("--policy", required=True, help="'random' or trained RUN_DIRs, separated by commas")
    parser.add_argument("--episodes", required=True, type=int, help="of every policy on every task that it can play")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE.npz")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other episodes")
    asked = parser.parse_args()
    use_compilation_cache()
    try:
        _record(asked.tasks.split(","), asked.policy.split(","), asked)
    except DreamproofError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


def _record(tasks: list[str], policies: list[str], asked: argparse.Namespace) -> None:
    if asked.episodes < 1:
        raise BadInput(f"--episodes {asked.episodes}: at least 1 is needed", "write e.g. --episodes 100")
    for words, option in ((tasks, "--tasks"), (policies, "--policy")):
        if len(set(words)) < len(words):
            raise BadInput(f"{option} {','.join(words)}: a name stands twice", "leave one of them out")
    check_output(asked.output)
    players = find_players(tasks, policies)

    def shown(batches: list[int]) -> Iterable[int]:
        return track(batches, description="batches", disable=not sys.stdout.isatty())

    made = record(players, tasks, asked.episodes, asked.seed, shown)
    write_recording(asked.output, made)
    for line in _summary(players, made, asked.episodes, asked.output):
        print(line)


def _summary(players: list[Player], made: Recording, episodes: int, output: Path) -> Iterable[str]:
    returns = made.reward.sum(1)
    for index, player in enumerate(players):
        share = slice(index * episodes, (index + 1) * episodes)
        mean, steps = returns[share].mean(), (made.rows[share] - 1).mean()
        yield f"{player.task} by {player.name}: {episodes} episodes, mean return {mean:.2f}, mean length {steps:.0f}"
    assert made.notes is not None
    names = ", ".join(made.notes.names)
    sizes = f"observation_size: {made.observation.shape[2]}, action_size: {made.action.shape[2]}"
    yield f"written: {output}; in a study with 'trainer: pwm_offline':"
    yield f"  data: {{files: [{output}], tasks: [{names}], {sizes}}}"


if __name__ == "__main__":
    sys.exit(main())

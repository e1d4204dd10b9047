"""Why agents with other dynamics do better or worse: `python -m benchmarks.dynamics RUN_DIR… --output FOLDER`.

Given a file dynamics.jsonl of an earlier call instead, it draws and prints what that holds.

Trained PWM agents of one task play episodes on validation layouts; every world model is then measured on these
episodes, none of which it learned from: its own agent's, and apart from them those of the others, whose states it may
never have seen.

- open loop: predicted against encoded latents over 1 to 16 steps, as observations (by a linear map) and as rewards.
  Rewards after 0 steps are those of the reward head on encoded observations: the dynamics are not part of them;
- gradient of the return of 2 to 16 imagined steps by the first action, against finite differences in the environment.
  That of a single step passes through the reward head alone and is left out;
- spread of the latents: how many directions they use;
- milliseconds of one imagined step with its gradient.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dreamproof.agents.pwm.agent import PwmAgent
from dreamproof.base.commit import code_name
from dreamproof.base.errors import BadInput
from dreamproof.base.lines import read_rows
from dreamproof.evaluate.loading import load
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.runs.layout import RunFolder
from dreamproof.testing.model_measures import (
    EPISODES_OF,
    PANELS,
    ModelMeasures,
    TrainedAgent,
    as_row,
    check_same_task,
    from_row,
    join,
    lists,
    measure,
    play,
    table,
    true_gradients,
)


def draw(found: list[ModelMeasures], path: Path) -> None:
    """One panel for each question, one line for each arm with the range of its seeds; dashed: others' episodes."""
    figure, axes = plt.subplots(1, len(PANELS), figsize=(4 * len(PANELS), 3.4), layout="constrained")
    for axis, (name, (title, label, at)) in zip(axes, PANELS.items(), strict=True):
        for number, arm in enumerate(dict.fromkeys(each.arm for each in found)):
            for episodes, style in (("own", "-"), ("others", "--")):
                rows = lists(found, arm, episodes, name)
                if not len(rows):
                    continue
                (line,) = axis.plot(
                    at, rows.mean(0), style, color=f"C{number}", label=f"{arm}, {EPISODES_OF[episodes]}"
                )
                axis.fill_between(at, rows.min(0), rows.max(0), alpha=0.15, color=line.get_color(), linewidth=0)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(label)
    if all(min(part.gain) > 0 for each in found for part in (each.own, each.others) if part is not None):
        axes[-1].set_yscale("log")
    axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def trained(path: Path) -> TrainedAgent:
    """The agent of a run folder at the end of its training."""
    found = load(RunFolder(path), "final")
    if found is None or not isinstance(found.agent, PwmAgent) or found.agent.task.number is not None:
        raise BadInput(f"{path}: holds no trained PWM agent of a single task", f"ls {path}; then leave it out")
    run = found.run
    return TrainedAgent(run.arm, run.seed, run.task, found.agent, found.env, found.state, found.scalars)


def measured(run_dirs: list[Path], episodes: int, places: int, output: Path) -> list[ModelMeasures]:
    """Plays with every agent and measures every model, which are kept in `output` one by one."""
    agents = [trained(path) for path in run_dirs]
    check_same_task(agents)
    played = [play(agent, episodes, places) for agent in agents]
    starts, player = join(played), np.repeat(np.arange(len(agents)), [part.counts.shape[0] for part in played])
    print(
        f"{len(agents)} agents, {starts.counts.shape[0]} places, {int(starts.counts.sum())} of them whole", flush=True
    )
    first = agents[0]
    true = np.asarray(true_gradients(first.env, starts, first.agent.settings.behavior.discount), np.float64)
    found = []
    with output.open("w") as file:
        for number, agent in enumerate(agents):
            found.append(measure(agent, starts, true, player == number))
            file.write(json.dumps(as_row(found[-1]) | {"commit": code_name()}) + "\n")
            file.flush()
            print(f"{found[-1].arm}/{found[-1].seed} measured", flush=True)
    return found


def main() -> None:
    """Measures or reads, draws and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--episodes", type=int, default=8, help="of each agent")
    parser.add_argument("--places", type=int, default=16, help="in each episode")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    use_compilation_cache()
    asked.output.mkdir(parents=True, exist_ok=True)
    if asked.run_dirs[0].suffix == ".jsonl":
        found = [from_row(row) for row in read_rows(asked.run_dirs[0])]
    else:
        found = measured(asked.run_dirs, asked.episodes, asked.places, asked.output / "dynamics.jsonl")
    draw(found, asked.output / "dynamics.png")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()

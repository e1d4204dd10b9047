"""`dreamproof data`: what files of recorded episodes hold."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dreamproof.base.errors import ExitCode
from dreamproof.cli.printing import JsonOption, print_json, print_text, table

BARS = " ▁▂▃▄▅▆▇█"
HEADER = [
    "number",
    "task",
    "episodes",
    "transitions",
    "observation",
    "action",
    "mean return",
    "median",
    "max",
    "histogram",
]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Files of recorded episodes.")
FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Chunks (.pt) or recordings (.npz).")]


@app.command("inspect")
def inspect(files: FilesArgument, json: JsonOption = False) -> None:
    """Show tasks, episodes, returns and faults of files of recorded episodes; nothing in them is executed.

    Exit 2 if there is a fault: training refuses such files.
    """
    from dreamproof.data.summary import summarise

    facts = summarise(files)
    faults = facts["problems"] or any(file["faults"] for file in facts["files"])
    if json:
        print_json(facts)
        raise typer.Exit(ExitCode.BAD_INPUT if faults else ExitCode.OK)
    for file in facts["files"]:
        print_text(_file_lines(file))
    edges = facts["histogram_edges"]
    print_text(table(HEADER, [_task_row(task) for task in facts["tasks"]]))
    print_text(f"histograms: returns from {edges[0]:,.4g} to {edges[-1]:,.4g}, each bar scaled to the task's highest")
    for problem in facts["problems"]:
        print_text(f"fault: {problem}")
    raise typer.Exit(ExitCode.BAD_INPUT if faults else ExitCode.OK)


def _file_lines(file: dict[str, Any]) -> str:
    size = f"{file['bytes'] / 1e9:.2f} GB" if file["bytes"] >= 1e8 else f"{file['bytes'] / 1e6:.2f} MB"
    sizes = f"observations of {file['observation_size']} numbers, actions of {file['action_size']}"
    lines = [f"{file['path']}: {file['episodes']:,} episodes of {file['rows']:,} rows, {size}, {sizes}"]
    if not file["named"]:
        lines.append("  note: it names no tasks, so padding cannot be separated from values")
    lines += [f"  fault: {number:,} episodes {fault}" for fault, number in file["faults"].items()]
    return "\n".join(lines)


def _task_row(task: dict[str, Any]) -> list[str]:
    found = task["return"]
    counts = [f"{task['episodes']:,}", f"{task['transitions']:,}"]
    sizes = [str(task[name]) if task[name] is not None else "–" for name in ("observation_size", "action_size")]
    shown = [f"{found[name]:,.4g}" if found is not None else "–" for name in ("mean", "median", "max")]
    return [str(task["number"]), task["name"] or "–", *counts, *sizes, *shown, _bars(task["histogram"])]


def _bars(counts: list[int]) -> str:
    highest = max(counts) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // highest)] for count in counts)

"""`dreamproof init`: a commented study file for a trainer of one's own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dreamproof.base.text import quoted
from dreamproof.cli.printing import print_text


@dataclass(frozen=True)
class TrainerForm:
    """How studies start a kind of trainer."""

    what: str
    command: str
    evaluate: str
    adapter: str
    note: str


OWN_EVALUATION = "[python, evaluate.py, '{run_dir}', '{condition}', '{episodes}', '{checkpoint}', '{checkpoint_hash}']"
FORMS = {
    "auto": TrainerForm(
        "any script; what it writes is recognised",
        "[python, train.py, --logdir, '{run_dir}', --seed, '{seed}', --steps, '{agent_steps}', '{flags}']",
        OWN_EVALUATION,
        "auto",
        "{flags} are the settings of the arm as --key value",
    ),
    "safedreamer": TrainerForm(
        "SafeDreamer, DreamerV3",
        "[python, train.py, --logdir, '{run_dir}', --seed, '{seed}', --run.steps, '{agent_steps}', '{flags}']",
        OWN_EVALUATION,
        "embodied",
        "its save_every counts seconds: let it save when it ends, or the preflight will warn",
    ),
    "sb3": TrainerForm(
        "stable-baselines3",
        "[python, train.py, --logdir, '{run_dir}', --seed, '{seed}', --timesteps, '{agent_steps}', '{flags}']",
        OWN_EVALUATION,
        "sb3",
        "log with configure(run_dir, ['csv']) and save the model at the end; rollouts round up: agent_steps_tolerance",
    ),
    "hydra": TrainerForm(
        "a script with Hydra",
        "[python, train.py, 'seed={seed}', 'steps={agent_steps}', 'logdir={run_dir}', '{overrides}']",
        OWN_EVALUATION,
        "auto",
        "{overrides} are the settings of the arm as key=value",
    ),
    "client": TrainerForm(
        "a loop of your own with dreamproof.client",
        "[python, train.py, '{run_dir}']",
        "[python, train.py, '{run_dir}', --evaluate, '{condition}']",
        "native",
        "five lines make a loop native: see docs/contract.md",
    ),
}
TEMPLATE = """\
# Written by `dreamproof init`. Every key is explained in docs/reference.md.
name: {name}
question: {question}

# What decides: the value per episode, and the smallest difference that would change what you do.
metric: {{name: {metric}, direction: higher, smallest_difference: {difference}, condition: id}}
# An arm must keep this to be acceptable:
# constraint: {{name: cost, at_most: 25}}
task: {task}

# {what}: {note}.
trainer:
  command: {command}
  evaluate: {evaluate}
  adapter: {adapter}

# Arms differ in these settings and in nothing else; the first is the reference.
arms:
{arms}
# `dreamproof plan` says whether so many seeds can decide.
seeds: {seeds}
agent_steps: {agent_steps}
# For trainers that end with whole rollouts:
# agent_steps_tolerance: 2048

# How a trained agent is evaluated.
conditions: [id]
evaluation_episodes: 50

# With a currency (CNY, USD …) amounts have its sign; a budget is a hard limit.
money: {{price_per_gpu_hour: {price}{currency}{budget}}}
# With true the preflight fails if the trainer's library sees no GPU.
require: {{gpu: {gpu}}}
# Perhaps with update: [slides.md], a Markdown file of yours whose numbers are kept up to date.
report: {{languages: [{language}]}}
# Switch the machine off when nothing is left to do:
# at_end: {{action: shutdown}}
"""


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study file to write, e.g. studies/mine.yaml.")],
    trainer: Annotated[
        str | None, typer.Option("--trainer", metavar="|".join(FORMS), help="What kind of trainer it starts.")
    ] = None,
    question: Annotated[str | None, typer.Option("--question", help="The question that the study answers.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="Name of the task.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="The value per episode that decides.")] = None,
    difference: Annotated[
        float | None, typer.Option("--smallest-difference", help="The smallest difference that matters.")
    ] = None,
    arms: Annotated[str | None, typer.Option("--arms", metavar="A,B", help="Names of the arms.")] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="Seeds per arm.", min=1)] = None,
    agent_steps: Annotated[int | None, typer.Option("--agent-steps", help="Length of a run.", min=1)] = None,
    price: Annotated[float, typer.Option("--price", help="Price of a GPU hour.", min=0)] = 0.0,
    currency: Annotated[str | None, typer.Option("--currency", help="Currency of the price, e.g. CNY.")] = None,
    budget: Annotated[float | None, typer.Option("--budget", help="Hard limit of the money.")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Require a GPU.")] = False,
    language: Annotated[str, typer.Option("--language", metavar="en|zh-Hans|zh-Hant", help="Of the reports.")] = "en",
) -> None:
    """Write a commented study file; asks for what is not given if it runs in a terminal."""
    from dreamproof.base.errors import BadInput
    from dreamproof.settings.checked import NAME

    if file.exists():
        raise BadInput(f"{file}: exists already", "dreamproof init OTHER_NAME.yaml")
    for kind, form in FORMS.items() if trainer is None else ():
        typer.echo(f"  {kind:<12}{form.what}", err=True)
    kind = _ask("trainer", trainer, "auto")
    if kind not in FORMS:
        raise BadInput(f"--trainer {kind}: is not one of {', '.join(FORMS)}", "dreamproof init --help")
    names = [name.strip() for name in _ask("arms", arms, "baseline,variant").split(",") if name.strip()]
    form = FORMS[kind]
    text = TEMPLATE.format(
        name=_quoted(file.stem if NAME.match(file.stem) else "study"),
        question=_quoted(_ask("question", question, f"Is {names[-1]} better than {names[0]}?")),
        metric=_quoted(_ask("metric", metric, "return")),
        difference=float(_ask("smallest difference that matters", difference, "1.0")),
        task=_quoted(_ask("task", task, "my_task")),
        **vars(form),
        arms="\n".join(f"  {_quoted(name)}: {_settings(place)}" for place, name in enumerate(names)),
        seeds=int(_ask("seeds per arm", seeds, "5")),
        agent_steps=int(_ask("agent steps of a run", agent_steps, "100000")),
        price=price,
        currency=f", currency: {currency}" if currency is not None else "",
        budget=f", budget: {budget:g}" if budget is not None else "",
        gpu=str(gpu).lower(),
        language=language,
    )
    _write(file, text)


def _ask(what: str, given: object, default: str) -> str:
    """What was given; else the answer in a terminal, or the default where nobody can answer."""
    import sys

    if given is not None:
        return str(given)
    return str(typer.prompt(what, default=default)) if sys.stdin.isatty() else default


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


def _settings(place: int) -> str:
    return "{}" if place == 0 else f"{{example_setting: {place}}}"


def _write(file: Path, text: str) -> None:
    """Writes the study if it is one; a wrong answer leaves no file."""
    from dreamproof.base.files import write_text
    from dreamproof.settings.study_file import read_study

    write_text(file, text)
    try:
        read_study(file)
    except Exception:
        file.unlink()
        raise
    print_text(f"wrote {file}: fit its command and arms to your trainer\nnext        dreamproof plan {quoted(file)}")

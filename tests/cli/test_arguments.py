"""`--detach` passes every argument on, and the earlier name of `money` still works."""

from pathlib import Path

import pytest
import typer
from tests.cli.conftest import Verb
from typer.main import get_command

from dreamproof.cli.main import app
from dreamproof.cli.run import rebuild_argv
from dreamproof.testing.small_study import declare

ARGUMENTS = ["study.yaml", "--arms", "a,b", "--seeds", "0-2", "--retry-stopped", "--no-check", "--until-decided"]


def context_of(arguments: list[str]) -> typer.Context:
    group = get_command(app)
    with group.make_context("dreamproof", ["run", *arguments]) as parent:
        command = group.get_command(parent, "run")  # type: ignore[attr-defined]
        return command.make_context("run", arguments, parent=parent)  # type: ignore[no-any-return]


def test_the_rebuilt_arguments_mean_the_same_call() -> None:
    first = context_of([*ARGUMENTS, "--detach"])
    argv = rebuild_argv(first, study=Path("/tmp/study.yaml"), detach=False, plain=True)
    assert argv[0] == "run" and "--detach" not in argv
    changed = {"study": "/tmp/study.yaml", "detach": False, "plain": True}
    again = context_of(argv[1:]).params
    # Typer 0.27 leaves a path as a string here.
    assert again | {"study": str(again["study"])} == first.params | changed


@pytest.mark.parametrize(
    "option", [one.opts[0] for one in context_of(["study.yaml"]).command.params if getattr(one, "is_flag", False)]
)
def test_every_flag_is_passed_on(option: str) -> None:
    assert option in rebuild_argv(context_of(["study.yaml", option]))


def test_the_earlier_name_of_money_still_works_and_is_not_listed(dreamproof: Verb, tmp_path: Path) -> None:
    file = declare(tmp_path)
    assert dreamproof("cost", file).output == dreamproof("money", file).output != ""
    verbs = [line.split()[0] for line in dreamproof("--help").output.splitlines() if line.startswith("  ")]
    assert "money" in verbs and "cost" not in verbs

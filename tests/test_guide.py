"""The guide names what is there: verbs, causes, states, exit codes, files."""

import re
from pathlib import Path

from dreamproof.base.errors import ExitCode
from dreamproof.cli.main import app
from dreamproof.settings.study import CommandTrainer
from dreamproof.study.adapters import ADAPTERS
from dreamproof.study.diagnosis.diagnose import Cause
from dreamproof.study.diagnosis.liveness import State

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs" / "guide.md").read_text()
CONTRACT = (ROOT / "docs" / "contract.md").read_text()


def test_every_verb_in_the_guide_is_one_of_the_command_line() -> None:
    verbs = {command.name for command in app.registered_commands if not command.hidden}
    named = set(re.findall(r"dreamproof ([a-z]+)", GUIDE))
    assert {"plan", "check", "run", "status", "why", "money", "import"} <= named <= verbs


def test_every_cause_and_every_state_is_explained() -> None:
    for word in [*Cause, *State]:
        assert re.search(rf"^\|[^|]*\b{word}\b", GUIDE, re.MULTILINE), word


def test_the_exit_codes_are_those_of_the_program() -> None:
    line = GUIDE.split("## Exit codes\n")[1]
    assert [int(code) for code in re.findall(r"(?:^|· ?\n?)(\d+) ", line)] == [code.value for code in ExitCode]


def test_every_adapter_is_on_the_contract_page() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", CONTRACT, re.MULTILINE))
    assert set(ADAPTERS) <= named
    assert set(CommandTrainer.model_fields["adapter"].annotation.__args__) == set(ADAPTERS)  # type: ignore[union-attr]


def test_links_between_the_pages_lead_somewhere() -> None:
    for text in (GUIDE, CONTRACT):
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (ROOT / "docs" / target).exists(), target

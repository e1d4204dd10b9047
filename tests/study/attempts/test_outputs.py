"""Cells whose trainer only prints its steps, over several attempts."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.study.test_supervisor import Stage

from dreamproof.base.files import write_json
from dreamproof.runs.layout import AttemptFolder, Cell
from dreamproof.runs.records import ExitRecord
from dreamproof.study.attempts.launch import ready_cell
from dreamproof.study.backends.api import Presence, Sighting

CELL = Cell("low", 0)
PATTERN = r"step (?P<step>\d+)(?: loss (?P<loss>\S+))?"
TRAINER = {"command": [sys.executable, "train.py", "{run_dir}"], "adapter": "auto", "line_pattern": PATTERN}
HOUR = 3600.0
BEGAN = 1_700_000_000.0


def lines(*steps: int, loss: str = "0.5") -> str:
    return "".join(f"step {step} loss {loss}\n" for step in steps)


class Printing:
    """A study of one cell; every attempt begins an hour after the one before it and prints for 100 seconds."""

    def __init__(self, folder: Path, *attempts: tuple[str, int, dict[str, float]], **changes: Any) -> None:
        """Of each attempt: its lines, its exit code or the signal that killed it, and seconds to each checkpoint."""
        (folder / "train.py").write_text("")
        more = {"trainer": TRAINER, "arms": {"low": {}}, "seeds": 1, "agent_steps": 1000, **changes}
        self.stage = Stage(folder, **more)
        self.stage.backend.on_start = self._start
        self.attempts = list(attempts)

    def run(self) -> None:
        self.stage.supervisor.run()

    def _start(self, folder: AttemptFolder) -> None:
        number = len(self.stage.backend.started) - 1
        text, code, saves = self.attempts[number] if number < len(self.attempts) else ("", 1, {})
        began, root = BEGAN + number * HOUR, self.stage.opened.folder.run(CELL).root
        folder.output.write_text(text)
        ended = ExitRecord(wall_seconds=100.0, **({"signal": -code} if code < 0 else {"exit_code": code}))
        write_json(folder.exit, ended.model_dump(exclude_none=True))
        for name, seconds in saves.items():
            (root / name).write_bytes(f"{name} {number}".encode())
            os.utime(root / name, (began + seconds, began + seconds))
        os.utime(folder.order, (began, began))
        os.utime(folder.output, (began + 100.0, began + 100.0))
        self.stage.backend.sightings[folder.root.name] = Sighting(Presence.ENDED, ended)

    def steps(self) -> list[tuple[int, int]]:
        """Of each attempt: the step that it began at, and the one that was kept at its end."""
        attempts = self.stage.opened.state.attempts.values()
        return [(one.first_agent_steps("low/0"), one.kept_agent_steps["low/0"]) for one in attempts]


def test_a_resumed_run_of_a_trainer_that_only_prints_begins_where_its_checkpoint_was(tmp_path: Path) -> None:
    first = (lines(100, 200, 300, 400), -9, {"model.pt": 100.0})
    silent = ("loading\n", -9, {})
    second = (lines(500, 600, 700, 800, 900, 1000), 0, {"model.pt": 100.0})
    printing = Printing(tmp_path, first, silent, second)
    printing.run()
    assert printing.steps() == [(0, 400), (400, 400), (400, 1000)]
    assert printing.stage.causes()[-1] == "completed"
    assert printing.stage.events("cell_restarted") == []


def test_a_printing_trainer_that_begins_again_is_noticed_by_its_first_lines(tmp_path: Path) -> None:
    first = (lines(100, 200, 300, 400), -9, {"model.pt": 100.0})
    second = (lines(*range(100, 1100, 100)), 0, {"model.pt": 100.0})
    printing = Printing(tmp_path, first, second)
    printing.run()
    assert printing.steps() == [(0, 400), (0, 1000)]
    [event] = printing.stage.events("cell_restarted")
    assert (event["agent_steps"], event["kept_agent_steps"]) == (0, 400)


DONE = ("resumed from the last checkpoint, done\n", 0, {})


@pytest.mark.parametrize("name", ["model_1000_steps.pt", "model_1000.pt"])
def test_a_run_killed_between_its_last_checkpoint_and_its_last_line_is_proven_when_it_resumed(
    name: str, tmp_path: Path
) -> None:
    killed = (lines(*range(100, 1000, 100)), -9, {"model_500_steps.pt": 50.0, name: 102.0})
    printing = Printing(tmp_path, killed, DONE)
    printing.run()
    assert printing.steps()[1][0] > 0
    assert printing.stage.causes() == ["killed", "completed"]
    [proof] = printing.stage.events("train_proven")
    assert (proof["checkpoint"], proof["agent_steps"], proof["attempt"]) == (name, 1000, "a000002")


@pytest.mark.parametrize(
    ("killed", "resumed", "reason"),
    [
        (
            (lines(800, 900), -9, {"model.pt": 102.0}),
            DONE,
            "it 900, and model.pt does not name step 1,000",
        ),
        ((lines(800, 900), -9, {"model_5000.pt": 102.0}), DONE, "model_5000.pt does not name step 1,000"),
        ((lines(800, 900, loss="nan"), -9, {"model_1000_steps.pt": 102.0}), DONE, "loss is nan at the end"),
        ((lines(800, 900), -9, {"model_1000_steps.pt": 102.0}), ("broken file\n", 1, {}), "exit code 1"),
        (
            (lines(900, 1000), -9, {}),
            ("zero\n", 0, {"model.pt": 50.0}),
            "it 1,000, and model.pt does not",
        ),
    ],
)
def test_what_no_line_and_no_checkpoint_shows_is_not_proven(
    killed: tuple[str, int, dict[str, float]], resumed: tuple[str, int, dict[str, float]], reason: str, tmp_path: Path
) -> None:
    printing = Printing(tmp_path, killed, resumed, resumed, resumed)
    printing.run()
    assert printing.stage.events("train_proven") == []
    [stopped] = printing.stage.events("cell_stopped")
    shown = stopped["reason"] + str(printing.stage.opened.state.cells[CELL].last_evidence)
    assert reason in shown


def test_a_checkpoint_that_was_replaced_after_the_end_is_not_proven_by_the_old_lines(tmp_path: Path) -> None:
    printing = Printing(tmp_path, (lines(900, 1000), 0, {"model.pt": 100.0}))
    printing.run()
    opened = printing.stage.opened
    (opened.folder.run(CELL).root / "model.pt").write_bytes(b"of another run")
    opened.state.cells[CELL].proof = None
    assert ready_cell(opened, CELL).events == []

"""The short fault campaign, and that its judge sees what it must see; `make faults` runs the long one."""

from pathlib import Path

import pytest

from dreamproof.study.ledger.events import AttemptStarted
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.testing.faults import campaign, check_steps, table
from dreamproof.testing.small_study import declare

pytestmark = pytest.mark.long(60)


def test_a_short_fault_campaign_loses_repeats_and_misnames_nothing(tmp_path: Path) -> None:
    result = campaign(tmp_path, 20, seed=5, show=lambda text: None)
    assert result.faults_found == [], table(result)
    assert len(result.faults) >= 20
    assert len({fault.kind for fault in result.faults}) >= 6


def trained(folder: Path, *parts: tuple[str, int, int], starts: tuple[int, ...]) -> OpenStudy:
    """A cell whose trainer logged these (process, first step, last step), with attempts from these steps."""
    opened = open_study(declare(folder))
    for number, first in enumerate(starts):
        event = AttemptStarted(f"a{number}", "train", ["low/0"], [], ["x"], {"low/0": first})
        opened.state.apply({"n": number, "t": 1.0, **event.row()})
    run = opened.folder.runs / "low-seed0"
    run.mkdir(parents=True)
    lines = [f"{process} {step}\n" for process, first, last in parts for step in range(first, last + 1)]
    (run / "steps.log").write_text("".join(lines))
    return opened


def test_continuing_from_the_last_checkpoint_is_right(tmp_path: Path) -> None:
    opened = trained(tmp_path, ("7", 1, 13), ("8", 11, 20), starts=(0, 10))
    assert check_steps(opened, "low/0", damaged=False) == (3, [])


@pytest.mark.parametrize(
    ("parts", "starts", "arguments"),
    [
        ([("7", 1, 13), ("8", 6, 20)], (0, 5), "8 steps were trained again, 5 may be"),
        ([("7", 1, 5), ("8", 6, 8), ("7", 6, 9)], (0, 5), "two processes trained it at the same time"),
        ([("7", 1, 13), ("8", 11, 20)], (0,), "continued from step 10, which no attempt of the ledger did"),
    ],
)
def test_training_twice_is_seen(
    tmp_path: Path, parts: list[tuple[str, int, int]], starts: tuple[int, ...], arguments: str
) -> None:
    _, faults = check_steps(trained(tmp_path, *parts, starts=starts), "low/0", damaged=False)
    assert any(arguments in fault for fault in faults)

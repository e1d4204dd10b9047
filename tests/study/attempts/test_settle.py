"""What an attempt that is over is called, and what it proves."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from dreamproof.base.files import write_json
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import ExitRecord
from dreamproof.runs.writer import RunWriter
from dreamproof.study import session
from dreamproof.study.attempts.settle import prove_evaluations, settle
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.events import AttemptEnded, AttemptStarted, TrainProven
from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.small_study import declare, write_weights


def test_a_proof_made_by_the_attempt_that_continues_it_is_not_its_own(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path, conditions=[]))
    ledger = Ledger(opened.folder.ledger)
    session.declare(opened, ledger)
    session.record(opened, ledger, AttemptStarted("a000001", "train", ["low/0"], [], ["x"], {"low/0": 0}))
    attempt = opened.folder.attempt("a000001")
    write_json(attempt.order, {})
    attempt.output.write_text("step 1\n")
    steps = opened.study.agent_steps
    facts = {"agent_steps": steps, "gradient_steps": steps, "parameter_hash": "0" * 64, "finite": True}
    RunWriter(opened.folder.run(Cell("low", 0))).save(write_weights("x"), {**facts, "task": opened.study.task})
    exit_record = ExitRecord(signal=15, wall_seconds=1.0, asked_to_stop="timeout: the time limit is near")
    over = Sighting(Presence.ENDED, exit_record)

    ended, *proofs = settle(opened, opened.state.attempts["a000001"], over)
    assert isinstance(ended, AttemptEnded) and ended.cause == "completed"
    assert [type(proof) for proof in proofs] == [TrainProven]

    ended, *proofs = settle(opened, opened.state.attempts["a000001"], replace(over, successor="a000001r1"))
    assert isinstance(ended, AttemptEnded) and ended.cause == "timeout"
    assert proofs == []


@pytest.mark.parametrize(
    ("episodes", "reason"),
    [
        ({"reward": [1.0] * 3}, "id: the evaluation holds reward, not the deciding metric return"),
        ({"return": [1.0, math.nan, 2.0]}, "id: return is not a number in 1 of 3 episodes"),
        ({"return": [1.0] * 3}, ""),
    ],
)
def test_an_evaluation_without_the_deciding_metric_is_no_proof(
    episodes: dict[str, list[float]], reason: str, tmp_path: Path
) -> None:
    opened = open_study(declare(tmp_path))
    ledger = Ledger(opened.folder.ledger)
    session.declare(opened, ledger)
    cell, steps = Cell("low", 0), opened.study.agent_steps
    session.record(opened, ledger, TrainProven(str(cell), steps, steps, "0" * 64, "x"))
    final = {"agent_steps": steps, "gradient_steps": steps, "parameter_hash": "0" * 64, "episodes": episodes}
    value = {"condition": "id", "kind": "in_distribution", "task": "t", "checkpoints": {"final": final}}
    path = opened.folder.run(cell).evaluation("id")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(value))
    proven, missing = prove_evaluations(opened, cell, ["id"], None)
    assert (len(proven), missing) == (0 if reason else 1, reason)

"""Evaluation: complete episodes, the same layouts for everyone, final and selected, and the files they end in."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import AGENT_STEPS

from dreamproof.base.errors import BadInput
from dreamproof.base.files import write_json
from dreamproof.envs.scripted import floors
from dreamproof.envs.shift import find_condition
from dreamproof.evaluate import __main__ as command
from dreamproof.evaluate import episodes as playing
from dreamproof.evaluate import official
from dreamproof.evaluate.episodes import PARTS, Evaluator, floor_means, run_episodes
from dreamproof.evaluate.loading import Loaded, load
from dreamproof.jaxcore import ahead
from dreamproof.jaxcore.ahead import Program
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import prove_evaluation, prove_training, read_evaluation, read_heartbeat
from dreamproof.runs.records import EvaluationRecord

pytestmark = [pytest.mark.xdist_group("trained"), pytest.mark.long(300)]

Trained = dict[str, RunFolder]
EPISODES = 6


def loaded(trained: Trained, name: str) -> Loaded:
    """The final agent of a cell, which is there."""
    found = load(trained[name], "final")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def evaluated(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The baseline after `python -m dreamproof.evaluate` on a machine of many cores, an older checkpoint selected."""
    root = tmp_path_factory.mktemp("evaluated") / "run"
    shutil.copytree(trained["baseline"].root, root)
    run = RunFolder(root)
    write_json(run.selected, {"agent_steps": run.checkpoint_folders()[0].agent_steps})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "use_compilation_cache", lambda: None)
        patch.setattr(ahead, "usable_cores", lambda: 8)
        patch.setattr(sys, "argv", ["evaluate", str(root), "--conditions", "id"])
        assert command.main() == 0
    return run


@pytest.fixture(scope="module")
def record(evaluated: RunFolder) -> EvaluationRecord:
    """What was written of the condition `id`."""
    found = read_evaluation(evaluated, "id")
    assert found is not None
    return found


def test_all_programs_of_an_evaluation_are_compiled_side_by_side(
    trained: Trained, evaluated: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that was not compiled ahead would be compiled by its call."""
    called: list[str] = []
    known = Program.has_begun

    def checked(program: Program, *args: Any) -> bool:
        assert known(program, *args), program.function
        called.append(program.function.__name__)
        return False

    monkeypatch.setattr(Program, "__call__", lambda program, *args: checked(program, *args) or program._jitted(*args))
    agents = [loaded(trained, "baseline")]
    run_episodes(agents, find_condition(agents[0].env, "id"), "test", EPISODES)
    floor_means(agents[0].env, find_condition(agents[0].env, "id"), EPISODES)
    assert called.count("_begin_rollout") == 1 and called.count("_continue_rollout") == PARTS
    assert len(called) == 1 + PARTS + len(floors(agents[0].env.spec))


def test_final_and_selected_are_both_evaluated(evaluated: RunFolder, record: EvaluationRecord) -> None:
    steps = {which: made.agent_steps for which, made in record.checkpoints.items()}
    assert steps == {"final": AGENT_STEPS, "selected": evaluated.checkpoint_folders()[0].agent_steps}
    hashes = {made.parameter_hash for made in record.checkpoints.values()}
    assert len(hashes) == 2


@pytest.mark.parametrize("which", ["final", "selected"])
def test_rows_hold_every_episode_whole(record: EvaluationRecord, which: str) -> None:
    made = record.checkpoints[which]
    assert {"return", "cost", "goals", "length", "shadow/uncertainty", "shadow/violation"} <= set(made.episodes)
    assert all(len(values) == EPISODES for values in made.episodes.values())
    assert made.episodes["length"] == [10.0] * EPISODES
    assert made.gradient_steps > 0
    assert all(np.isfinite(values).all() for values in made.episodes.values())


def test_floors_stand_beside_the_results(record: EvaluationRecord) -> None:
    assert set(record.floors) == {"random"}
    assert set(record.floors["random"]) == {"return", "cost", "goals"}


def test_the_record_says_whether_the_task_has_a_cost(record: EvaluationRecord, trained: Trained) -> None:
    assert record.has_cost is loaded(trained, "baseline").env.spec.has_cost


def test_coverage_and_its_claim_are_facts_of_a_checkpoint(trained: Trained) -> None:
    (made,) = Evaluator([{"final": loaded(trained, "baseline")}], {}, 10).evaluate("id")
    facts = made.checkpoints["final"].scalars
    assert facts["certificate/claimed"] == pytest.approx(0.9)
    assert np.isfinite(facts["certificate/offset"])
    assert 0.0 <= facts["certificate/coverage"] <= 1.0
    # The margin of this task is always 0 and so never below: nothing certified can be violated.
    certified = facts["certificate/certified"]
    assert 0.0 <= certified <= 1.0 and facts["certificate/certified_and_violated"] == 0.0
    assert facts.get("certificate/violated_given_certified") == (0.0 if certified else None)
    assert 0.0 <= facts["auroc/uncertainty"] <= 1.0


def test_the_offset_that_is_reported_is_the_one_that_acts(trained: Trained) -> None:
    evaluator = Evaluator([{"final": loaded(trained, "full")}], {}, 10)
    (made,) = evaluator.evaluate("id")
    (acting,) = evaluator.runs
    offset = made.checkpoints["final"].scalars["certificate/offset"]
    assert offset == float(acting["final"].state.offset) != float(loaded(trained, "full").state.offset)
    calibration, test = (
        run_episodes([loaded(trained, "full")], find_condition(acting["final"].env, "id"), split, 10)[0]
        for split in ("calibration", "test")
    )
    assert not np.array_equal(calibration.returns, test.returns)


def test_too_few_episodes_promise_nothing(record: EvaluationRecord) -> None:
    assert EPISODES < 9, "the conformal rank of nine scores is the first that exists for 0.9"
    assert not [name for name in record.checkpoints["final"].scalars if name.startswith("certificate/")]


def test_an_evaluation_proves_itself_against_the_trained_checkpoint(evaluated: RunFolder) -> None:
    trained_proof = prove_training(evaluated, AGENT_STEPS)
    assert not isinstance(trained_proof, str)
    proof = prove_evaluation(evaluated, "id", EPISODES, trained_proof.parameter_hash)
    assert not isinstance(proof, str), proof
    assert proof.episodes == EPISODES
    heartbeat = read_heartbeat(evaluated)
    assert heartbeat is not None and heartbeat.phase == "evaluate"
    assert heartbeat.beat > 2 * PARTS, "validation and test episodes of two checkpoints come in parts"


def test_all_arms_and_seeds_meet_the_same_layouts(trained: Trained) -> None:
    one, other = loaded(trained, "baseline"), loaded(trained, "full")
    assert one.run.seed != other.run.seed
    # The same parameters under the other cell's name and seed play the very same episodes.
    swapped = replace(other, state=one.state, scalars=one.scalars)
    condition = find_condition(one.env, "id")
    first, second = (run_episodes([agent], condition, "test", EPISODES)[0] for agent in (one, swapped))
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_array_equal(first.trace["barrier"], second.trace["barrier"])


def test_test_layouts_are_not_validation_layouts(trained: Trained) -> None:
    agent = loaded(trained, "baseline")
    condition = find_condition(agent.env, "id")
    test, validation = (run_episodes([agent], condition, split, EPISODES)[0] for split in ("test", "validation"))
    assert not np.array_equal(test.returns, validation.returns)


def test_evaluating_twice_gives_the_same_record(trained: Trained, record: EvaluationRecord) -> None:
    (made,) = Evaluator([{"final": loaded(trained, "baseline")}], {}, EPISODES).evaluate("id")
    final = made.checkpoints["final"]
    assert final.episodes == record.checkpoints["final"].episodes


def test_runs_that_are_evaluated_together_are_separated(trained: Trained) -> None:
    one, other = loaded(trained, "baseline"), loaded(trained, "full")
    condition = find_condition(one.env, "id")
    alone = [run_episodes([agent], condition, "test", EPISODES)[0] for agent in (one, other)]
    together = run_episodes([one, other], condition, "test", EPISODES)
    # What is thought of the first sight; later a last bit may tip the planner's choice, and an episode with it.
    own, found = ([each.trace["barrier"][0] for each in runs] for runs in (alone, together))
    assert not np.allclose(own[0], own[1], atol=1e-3)
    for expected, got in zip(own, found, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_run_with_no_selected_checkpoint_beside_one_that_has(trained: Trained, evaluated: RunFolder) -> None:
    final, selected = load(evaluated, "final"), load(evaluated, "selected")
    assert final is not None and selected is not None
    runs = [{"final": loaded(trained, "full")}, {"final": final, "selected": selected}]
    records = Evaluator(runs, {}, EPISODES).evaluate("id")
    assert [sorted(record.checkpoints) for record in records] == [["final"], ["final", "selected"]]
    hashes = [record.checkpoints["final"].parameter_hash for record in records]
    assert hashes == [loaded(trained, "full").record.parameter_hash, final.record.parameter_hash]


def test_an_unknown_condition_is_refused(trained: Trained) -> None:
    with pytest.raises(BadInput, match="has no condition 'hallu2'"):
        Evaluator([{"final": loaded(trained, "baseline")}], {}, EPISODES).evaluate("hallu2")


def test_the_command_says_why_it_refuses(
    trained: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(sys, "argv", ["evaluate", str(trained["wild"].root), "--conditions", "id"])
    assert command.main() != 0
    assert "non-finite" in capsys.readouterr().err


def test_the_command_compares_with_the_official_task(
    trained: Trained,
    evaluated: RunFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With our task in the place of the official one, on the same layouts, nothing differs."""
    root = tmp_path / "run"
    shutil.copytree(evaluated.root, root)
    ours = loaded(trained, "baseline").env
    monkeypatch.setattr(official, "make_env", lambda task, settings: ours)
    monkeypatch.setattr(command, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(sys, "argv", ["evaluate", str(root), "--official", "--episodes", str(EPISODES)])
    assert command.main() == 0
    printed = capsys.readouterr().out
    assert "100%" in printed
    assert re.search(r"return: official (\S+), ours \1, difference \+0\.00", printed)
    assert json.loads(RunFolder(root).official.read_text())["task"] == f"Official{loaded(trained, 'baseline').run.task}"


def test_a_refused_run_does_not_keep_the_others_from_being_evaluated(
    trained: Trained, evaluated: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    shutil.copytree(evaluated.root, root)
    RunFolder(root).evaluation("id").unlink()
    monkeypatch.setattr(command, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(sys, "argv", ["evaluate", str(trained["wild"].root), str(root), "--conditions", "id"])
    assert command.main() != 0
    assert RunFolder(root).evaluation("id").exists()


def test_nothing_is_written_for_a_refused_cell(trained: Trained) -> None:
    assert not Path(trained["wild"].evaluation("id")).exists()


SIZES = [(1, 0, 1, [1]), (1, 1, 1, [1, 1]), (20, 20, 20, [20, 20]), (25, 8, 20, [17, 17]), (25, 15, 20, [20, 20])]


@pytest.mark.parametrize(("finals", "selected", "most", "sizes"), SIZES)
def test_agents_are_cut_into_few_batches_of_one_size(finals: int, selected: int, most: int, sizes: list[int]) -> None:
    wanted = [(index, "final") for index in range(finals)] + [(index, "selected") for index in range(selected)]
    batches = playing._batches(wanted, most)
    assert [len(batch) for batch in batches] == sizes
    played = [each for batch in batches for each in batch]
    assert played[: len(wanted)] == wanted and set(played) == set(wanted)

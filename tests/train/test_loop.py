"""THE loop, from run folders to checkpoints: cadences, records, the frozen replica, and what is kept."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import pytest
from tests.tiny import AGENT_STEPS, TRAIN, merged, write_cells

from dreamproof.base.errors import BadInput
from dreamproof.base.files import read_json, write_json
from dreamproof.base.lines import read_rows
from dreamproof.data.arrays import read_arrays
from dreamproof.jaxcore import ahead
from dreamproof.jaxcore.checkpoints import all_finite
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import (
    checkpoint_fault,
    prove_training,
    read_checkpoint,
    read_frozen,
    read_heartbeat,
    read_settings,
)
from dreamproof.runs.writer import RunWriter
from dreamproof.train.loop import _is_due, _select, compile_ahead, even_chunk, read_job
from dreamproof.train.pack import Pack

pytestmark = [pytest.mark.xdist_group("trained"), pytest.mark.long(300)]

GOOD = ("baseline", "full")
Trained = dict[str, RunFolder]


def rows_of(run: RunFolder) -> list[dict[str, Any]]:
    """All rows of metrics."""
    return read_rows(run.metrics)


@pytest.mark.parametrize("name", GOOD)
def test_a_trained_cell_proves_itself(trained: Trained, name: str) -> None:
    proof = prove_training(trained[name], AGENT_STEPS)
    assert not isinstance(proof, str), proof
    assert proof.agent_steps == AGENT_STEPS
    # A quarter of an update for each agent step after the prefill.
    assert proof.gradient_steps == (AGENT_STEPS - TRAIN["prefill_agent_steps"]) // 4


@pytest.mark.parametrize("name", GOOD)
def test_the_record_of_a_checkpoint_says_what_it_is(trained: Trained, name: str) -> None:
    folder = trained[name].checkpoint_folders()[-1]
    record = read_checkpoint(folder)
    assert record is not None
    assert checkpoint_fault(folder) is None
    assert record.finite
    assert set(record.files) == {"agent.npz", "resume.npz"}
    assert record.pack == ["baseline/0", "full/1", "wild/2"]
    assert record.task == "ProbeCredit"
    assert record.settings_hash and record.code_version and record.versions["jax"] == jax.__version__


def test_the_replica_that_stopped_being_finite_is_frozen_and_recorded(trained: Trained) -> None:
    frozen = read_frozen(trained["wild"])
    assert frozen is not None
    assert frozen.gradient_steps == 1
    assert frozen.agent_steps == TRAIN["prefill_agent_steps"] + TRAIN["chunk_agent_steps"]
    assert "finite" in frozen.reason


def test_the_checkpoint_of_a_frozen_replica_is_no_proof(trained: Trained) -> None:
    record = read_checkpoint(trained["wild"].checkpoint_folders()[-1])
    assert record is not None
    assert not record.finite
    assert "not finite" in str(prove_training(trained["wild"], AGENT_STEPS))


@pytest.mark.parametrize("name", GOOD)
def test_the_others_of_its_pack_continue(trained: Trained, name: str) -> None:
    assert read_frozen(trained[name]) is None
    arrays = read_arrays(trained[name].checkpoint_folders()[-1].root / "agent.npz")
    assert all_finite(arrays)
    assert bool(arrays["finite"])


def test_training_and_validation_run_programs_that_were_compiled_side_by_side(
    trained: Trained, pack_of_three: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = read_job(list(trained.values()))
    monkeypatch.setattr(ahead, "usable_cores", lambda: 8)
    monkeypatch.setattr(job, "pack", pack_of_three)
    traced: list[Any] = []
    monkeypatch.setattr(ThreadPoolExecutor, "submit", lambda *args: traced.append(args))
    assert job.pack.prefilled_agent_steps == TRAIN["prefill_agent_steps"]
    compile_ahead(job, job.pack.prefilled_agent_steps)
    assert not traced, "other programs than those that training ran"
    compile_ahead(job, job.agent_steps)
    assert not traced, "a finished run compiles nothing"


@pytest.mark.parametrize("name", GOOD)
def test_metrics_are_logged_at_their_cadence_with_both_counters(trained: Trained, name: str) -> None:
    logged = [row for row in rows_of(trained[name]) if "model/reward" in row]
    first = TRAIN["prefill_agent_steps"] + TRAIN["log_every_agent_steps"]
    assert [row["agent_steps"] for row in logged] == list(range(first, AGENT_STEPS + 1, TRAIN["log_every_agent_steps"]))
    assert all(row["gradient_steps"] == (row["agent_steps"] - TRAIN["prefill_agent_steps"]) // 4 for row in logged)
    assert all(np.isfinite(row["episode/return"]) for row in logged)
    assert all(row["memory/host_gib"] > 0 for row in logged)


def test_penalty_and_shadow_risk_are_logged_in_every_arm(trained: Trained) -> None:
    baseline, full = (
        [row for row in rows_of(trained[name]) if "risk_penalty" in row][-1] for name in ("baseline", "full")
    )
    assert baseline["risk_penalty"] == 0.0
    assert baseline["shadow/uncertainty"] > 0
    assert full["risk_penalty"] > 0


@pytest.mark.parametrize("name", GOOD)
def test_every_evaluation_is_logged_and_saved(trained: Trained, name: str) -> None:
    validated = [row["agent_steps"] for row in rows_of(trained[name]) if "validation/return" in row]
    assert validated == [160, 240, 320, 400, 480, 560, 600]


@pytest.mark.parametrize("name", GOOD)
def test_the_newest_checkpoints_and_the_selected_one_are_kept(trained: Trained, name: str) -> None:
    selected = read_json(trained[name].selected)
    validated = {row["agent_steps"]: row for row in rows_of(trained[name]) if "validation/return" in row}
    # No cost in this task, so all are feasible and the return decides; the earlier of equals stays. What was validated
    # before risk counted in full, at 40 % of training, is no candidate.
    settled = [row for row in validated.values() if row["agent_steps"] >= 0.4 * AGENT_STEPS]
    assert len(settled) < len(validated)
    best = max(settled, key=lambda row: (row["validation/return"], -row["agent_steps"]))
    assert selected["agent_steps"] == best["agent_steps"]
    kept = {folder.agent_steps for folder in trained[name].checkpoint_folders()}
    assert kept == {560, 600, selected["agent_steps"]}


@pytest.mark.parametrize("name", GOOD)
def test_the_last_heartbeat_says_done(trained: Trained, name: str) -> None:
    beat = read_heartbeat(trained[name])
    assert beat is not None
    assert (beat.phase, beat.agent_steps) == ("done", AGENT_STEPS)
    assert beat.gradient_steps == (AGENT_STEPS - TRAIN["prefill_agent_steps"]) // 4
    assert beat.beat > 10 and beat.process_id > 0 and beat.unix_seconds > 1e9
    assert beat.agent_steps_per_second is not None and beat.agent_steps_per_second > 0


def changed(folder: RunFolder, settings: dict[str, Any]) -> None:
    """Lays `settings` over those of a run folder."""
    given = read_settings(folder)
    assert given is not None
    both = merged(given.settings, settings)
    write_json(folder.settings, given.model_copy(update={"settings": both}).model_dump(mode="json"))


def test_selection_waits_for_the_slowest_ramp_of_an_arm(tmp_path: Any) -> None:
    folders = write_cells(tmp_path, ("baseline", "full"))
    changed(folders["full"], {"agent": {"behavior": {"multiplier_to": 0.7}}})
    assert read_job(list(folders.values())).settled == [0.4, 0.7]


def test_an_arm_that_its_task_cannot_serve_is_refused_wherever_it_stands_in_the_pack(tmp_path: Any) -> None:
    folders = write_cells(tmp_path, ("baseline", "full"))
    changed(folders["full"], {"agent": {"planner": {"margin": 0.03}}})
    with pytest.raises(BadInput, match="has no margin"):
        read_job(list(folders.values()))


def test_a_task_without_physics_is_not_randomised(tmp_path: Any) -> None:
    folders = write_cells(tmp_path, ("baseline", "full"))
    changed(folders["full"], {"train": {"randomise": {"mass_spread": 2.0}}})
    with pytest.raises(BadInput, match="does not support randomisation"):
        read_job(list(folders.values()))


def test_cells_that_cannot_share_a_compile_are_refused(tmp_path: Any) -> None:
    folders = write_cells(tmp_path, ("baseline", "full"))
    given = read_settings(folders["full"])
    assert given is not None
    wider = merged(given.settings, {"agent": {"world_model": {"units": 64}}})
    write_json(folders["full"].settings, given.model_copy(update={"settings": wider}).model_dump(mode="json"))
    with pytest.raises(BadInput, match="full/1 cannot train in one pack with baseline/0") as caught:
        read_job(list(folders.values()))
    assert "pack_cells" in str(caught.value)


def test_a_folder_without_settings_is_refused(tmp_path: Any) -> None:
    with pytest.raises(BadInput, match=r"settings\.json: missing"):
        read_job([RunFolder(tmp_path / "empty")])


def test_an_unknown_trainer_is_refused(tmp_path: Any) -> None:
    folder = write_cells(tmp_path, ("baseline",))["baseline"]
    given = read_settings(folder)
    assert given is not None
    write_json(folder.settings, given.model_copy(update={"trainer": "nobody"}).model_dump(mode="json"))
    with pytest.raises(BadInput, match="no trainer 'nobody'"):
        read_job([folder])


@pytest.mark.parametrize(
    ("span", "every", "expected"),
    [
        ((0, 40), 100, False),
        ((80, 120), 100, True),
        ((100, 140), 100, False),
        ((96, 104), 100, True),
        ((0, 500), 100, True),
    ],
)
def test_a_cadence_falls_due_once_it_was_passed(span: tuple[int, int], every: int, expected: bool) -> None:
    assert _is_due(span, every) is expected


def test_a_feasible_checkpoint_is_selected_first_then_the_higher_return(tmp_path: Any) -> None:
    writer = RunWriter(RunFolder(tmp_path))
    chosen = []
    validated = [(9.0, 50.0), (8.0, 20.0), (1.0, 4.0), (2.0, 5.0), (30.0, 6.0), (2.0, 0.0)]
    for step, (value, cost) in enumerate(validated, start=1):
        _select(writer, step, {"validation/return": value, "validation/cost": cost}, feasible_cost=5.0)
        chosen.append(read_json(writer.run.selected)["agent_steps"])
    assert chosen == [1, 2, 3, 4, 4, 4]


@pytest.mark.parametrize(
    ("marks", "steps"),
    [
        ((1_600, 120_000, 10_000), 50),
        ((1_600, 60_000, 15_000), 25),  # 15,000 is no multiple of 400: a chunk of 200 would be compiled as well
        ((30_000, 60_000, 15_000), 25),
        ((0, 60_000, 60_000), 50),
        ((1_600, 60_000, 10_001), 50),  # nothing divides these: a shorter chunk before each evaluation
    ],
)
def test_chunks_lead_evenly_to_the_next_evaluation_so_that_one_length_is_compiled(
    marks: tuple[int, ...], steps: int
) -> None:
    assert even_chunk(400 // 8, 8, marks) == steps

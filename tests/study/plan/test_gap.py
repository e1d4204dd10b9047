"""The gap is declared minus proven; a selection narrows one call and nothing else."""

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import Cell
from dreamproof.settings.study import Study
from dreamproof.study.ledger.events import CellStopped, EvalProven, Remedy, TrainProven
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.gap import (
    EVERYTHING,
    PlannedAttempt,
    PlanQueries,
    Selection,
    changes_of_meaning,
    declaration_changes,
    find_gap,
    jobs,
)
from dreamproof.study.plan.packs import pack_groups
from dreamproof.testing.small_study import small_study

HASH = "a" * 64


def study(**changes: object) -> Study:
    return Study.model_validate(small_study(**changes))


def native(**changes: object) -> Study:
    arms = {"low": {"agent": {"world_model": {"units": 64}}}, "high": {}}
    return study(**{"trainer": "dreamer", "pack_cells": 4, "seeds": 6, "arms": arms, **changes})


def state_of(declared: Study, *events: object) -> StudyState:
    state = StudyState()
    state.redeclare(declared)
    for number, event in enumerate(events):
        state.apply({"n": number, "t": float(number), **event.row()})  # type: ignore[attr-defined]
    return state


def planned(
    state: StudyState, kept: dict[str, int] | None = None, selection: Selection = EVERYTHING
) -> list[PlannedAttempt]:
    steps = kept or {}
    gap = find_gap(state, selection)
    assert state.study is not None
    looks = PlanQueries(lambda cell: True, lambda known: steps.get(str(known.cell), 0), pack_groups(state.study))
    return list(jobs(state, gap, looks))


def trained(cell: str) -> TrainProven:
    return TrainProven(cell, 20, 10, HASH, "step-000000000020")


def test_everything_is_missing_at_first() -> None:
    gap = find_gap(state_of(study()))
    assert len(gap.train) == 4
    assert len(gap.evaluate) == 4


def test_a_selection_narrows_the_gap_but_not_the_matrix() -> None:
    declared = study(seeds=5)
    state = state_of(declared)
    gap = find_gap(state, Selection.parse(declared, "high", "3-4"))
    assert [str(cell.cell) for cell in gap.train] == ["high/3", "high/4"]
    assert len(state.cells) == 10


@pytest.mark.parametrize(
    ("arms", "seeds", "message"),
    [
        ("hihg", None, "did you mean 'high'"),
        (None, "7", "no seed 7"),
        (None, "x", "is not a seed"),
        ("", None, "--arms: names none"),
        (" , ", None, "--arms: names none"),
        (None, "", "--seeds: names none"),
    ],
)
def test_a_selection_of_what_is_not_declared_is_refused(arms: str | None, seeds: str | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Selection.parse(study(), arms, seeds)


def test_evaluations_come_first_and_take_all_missing_conditions_of_a_cell() -> None:
    state = state_of(study(conditions=["id", "far"]), trained("high/0"), EvalProven("high/0", "far", 3, HASH))
    first = planned(state)[0]
    assert (first.work, first.cells, first.conditions) == ("evaluate", [Cell("high", 0)], ["id"])


def test_training_goes_seed_by_seed_over_the_arms_and_resumes_first() -> None:
    state = state_of(study())
    assert [str(job.cells[0]) for job in planned(state)] == ["low/0", "high/0", "low/1", "high/1"]
    state.cells[Cell("high", 1)].kept_agent_steps = 5
    assert str(planned(state)[0].cells[0]) == "high/1"


def test_proven_running_and_stopped_cells_are_not_planned() -> None:
    state = state_of(study(conditions=[]), trained("low/0"), CellStopped("low/1", "bug twice", "bug"))
    state.cells[Cell("high", 0)].running = "a1"
    assert [str(cell) for job in planned(state) for cell in job.cells] == ["high/1"]


def test_a_pack_holds_cells_of_one_arm_that_share_a_step() -> None:
    state = state_of(native(conditions=[]))
    kept = {"low/1": 10, "low/4": 10}
    packs = [[str(cell) for cell in job.cells] for job in planned(state, kept) if job.cells[0].arm == "low"]
    assert packs == [["low/0", "low/2", "low/3", "low/5"], ["low/1", "low/4"]]


def test_arms_that_differ_in_traced_settings_only_share_packs() -> None:
    arms = {"low": {"agent": {"world_model": {"free_nats": 0.5}}}, "high": {}}
    [first, *_] = planned(state_of(native(conditions=[], arms=arms)))
    assert [str(cell) for cell in first.cells] == ["low/0", "high/0", "low/1", "high/1"]


def test_a_setting_that_our_trainer_does_not_know_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="world_model"):
        pack_groups(native(arms={"low": {"agent": {"world_modle": {}}}}))


def test_a_command_trains_one_cell_at_a_time() -> None:
    assert all(len(job.cells) == 1 for job in planned(state_of(study())))


def test_a_halved_pack_stays_halved() -> None:
    cells = [f"low/{seed}" for seed in range(6)]
    state = state_of(native(conditions=[]), Remedy(cells, "halve_pack", "device memory", pack_cells=2))
    sizes = [len(job.cells) for job in planned(state) if job.cells[0].arm == "low"]
    assert sizes == [2, 2, 2]


def test_packs_are_evaluated_together() -> None:
    state = state_of(native(), *(trained(f"low/{seed}") for seed in range(3)))
    evaluations = [job for job in planned(state) if job.work == "evaluate"]
    assert [len(job.cells) for job in evaluations] == [3]


def test_changes_are_named_by_key() -> None:
    changes = declaration_changes(study(), study(agent_steps=40, seeds=3))
    assert changes == ["seeds: [0, 1] → [0, 1, 2]", "agent_steps: 20 → 40"]
    assert declaration_changes(study(), study(maximum_seeds=4)) == ["maximum_seeds: not set → 4"]


def test_more_arms_and_seeds_do_not_change_the_meaning_but_other_settings_do() -> None:
    more = study(seeds=3, arms={"low": {"level": 1}, "high": {"level": 2}, "top": {"level": 3}})
    assert changes_of_meaning(study(), more) == []
    assert changes_of_meaning(study(), study(backend={"slots": 9})) == []
    other = study(arms={"low": {"level": 1}, "high": {"level": 5}})
    assert changes_of_meaning(study(), other) == ["arms.high.level: 2 → 5"]

"""`dreamproof plan`: the matrix, the gap, and what closing it will take."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dreamproof.base.text import quoted
from dreamproof.cli.printing import (
    ArmsOption,
    JsonOption,
    SeedsOption,
    StudyArgument,
    next_of_budget,
    next_of_complete,
    print_deprecations,
    print_json,
    print_text,
)

if TYPE_CHECKING:
    from dreamproof.study.plan.gap import Gap
    from dreamproof.study.plan.open_study import OpenStudy


def plan(
    study: StudyArgument,
    arms: ArmsOption = None,
    seeds: SeedsOption = None,
    json: JsonOption = False,
    show_script: Annotated[
        bool, typer.Option("--show-script", help="Print the script for sbatch and nothing else.")
    ] = False,
) -> None:
    """Show the matrix, the gap, and the hours, memory, disk and money that closing it takes."""
    from dreamproof.study.plan.commands import check_training, example_commands
    from dreamproof.study.plan.gap import Selection, find_gap
    from dreamproof.study.plan.on_disk import open_with_disk

    opened = open_with_disk(study, numbers_only=True)
    print_deprecations(opened.folder.declaration if study.is_dir() else study)
    gap = find_gap(opened.state, Selection.parse(opened.study, arms, seeds))
    if gap.train and not opened.folder.is_export:
        check_training(opened.study, opened.base_folder)
        example_commands(opened.study)
    if show_script:
        typer.echo(_script(opened, gap, str(study)), nl=False)
        return
    facts = plan_facts(opened, gap)
    if json:
        print_json(facts)
    else:
        print_text(plan_text(opened, facts, str(study)))


def _script(opened: "OpenStudy", gap: "Gap", study: str) -> str:
    """The sbatch script of a study on a cluster."""
    from dreamproof.base.errors import BadInput
    from dreamproof.study.views.slurm_jobs import script_of

    if not opened.study.backend.has_queue:
        raise BadInput(f"{study}: --show-script needs 'backend: {{kind: slurm}}'", f"dreamproof plan {quoted(study)}")
    return script_of(opened, gap)


def plan_facts(opened: "OpenStudy", gap: "Gap") -> dict[str, Any]:
    """The plan as data; what nothing has measured yet is None."""
    from dreamproof.report.prospects import find_prospects
    from dreamproof.study.ledger.clock import read_moment
    from dreamproof.study.ledger.lease import living_holder
    from dreamproof.study.ledger.status import NOT_SAVED, train_status
    from dreamproof.study.money.spending import spent_and_forecast
    from dreamproof.study.plan.provenance import find_refusal
    from dreamproof.study.preflight.measured import read_measured
    from dreamproof.study.views.overview import seeds_by_arm

    study, state = opened.study, opened.state
    alive = living_holder(opened.folder.lease) is not None
    measured = read_measured(opened.folder.preflight)
    needs = measured.needs
    spent, forecast = spent_and_forecast(state, read_moment(), alive, measured.rates)
    refusal = None if alive else find_refusal(opened)
    prospects = find_prospects(opened, forecast, spent, measured.rates)
    cells = [*(one.cell for one in gap.train), *(one.cell for one in gap.evaluate)]
    stopped = dict.fromkeys(cell for cell in cells if state.cells[cell].stopped or state.cells[cell].eval_stopped)
    return {
        "study": study.name,
        "question": study.question,
        "arms": list(study.arms),
        "seeds": study.seeds,
        "conditions": [condition.name for condition in study.conditions],
        "train_cells": len(state.cells),
        "eval_cells": len(state.eval_cells),
        "gap_train": seeds_by_arm(cell.cell for cell in gap.train),
        "gap_train_cells": len(gap.train),
        "not_saved_cells": sum(train_status(state, cell) == NOT_SAVED for cell in gap.train),
        "quarantined_cells": [str(cell.cell) for cell in gap.train if state.quarantine(cell) is not None],
        "stopped_cells": list(map(str, stopped)),
        "gap_eval_cells": len(gap.evaluate),
        "runnable_cells": sum(state.quarantine(state.cells[cell]) is None and cell not in stopped for cell in cells),
        "slots": study.backend.slots,
        "pack_cells": study.pack_cells,
        "wall_seconds": forecast.wall_seconds,
        "gpu_hours": _gpu_hours(forecast.billed_seconds, study.money.gpus_per_attempt),
        "money": forecast.money,
        "without_evaluations": forecast.without_evaluations,
        "spent": spent,
        "budget": study.money.budget,
        "currency": study.money.currency,
        "device_bytes": needs.get("device_bytes"),
        "host_bytes": needs.get("host_bytes"),
        "disk_bytes": needs.get("disk_bytes"),
        **prospects.as_json(),
        "prospects": prospects.lines(study.money.currency),
        "refusal": refusal.seen if refusal is not None else None,
        "refusal_hint": refusal.hint if refusal is not None else None,
    }


def _gpu_hours(slot_seconds: float | None, gpus: float) -> float | None:
    return None if slot_seconds is None else slot_seconds * gpus / 3600


def plan_text(opened: "OpenStudy", facts: dict[str, Any], study: str) -> str:
    """The plan as a person reads it."""
    from dreamproof.base.text import bytes_text, count_text, duration_text, money_text
    from dreamproof.study.money.spending import WITHOUT_EVALUATIONS
    from dreamproof.study.views.overview import seeds_text

    currency = facts["currency"]
    evaluations = count_text(facts["gap_eval_cells"], "eval cell")
    conditions = ", ".join(facts["conditions"]) or "none"
    lines = [
        f"{facts['study']}: {facts['question']}",
        f"arms        {', '.join(facts['arms'])}",
        f"seeds       {seeds_text(facts['seeds'])}",
        f"conditions  {conditions}",
        f"matrix      {count_text(facts['train_cells'], 'train cell')}, {count_text(facts['eval_cells'], 'eval cell')}",
        f"gap         {count_text(facts['gap_train_cells'], 'train cell')}, {evaluations}",
    ]
    lines += [f"  train     {arm}: seeds {seeds_text(seeds)}" for arm, seeds in list(facts["gap_train"].items())[:20]]
    if facts["not_saved_cells"]:
        count = count_text(facts["not_saved_cells"], "cell")
        lines.append(
            f"not saved   {count} of it: trained once and not saved; run leaves them out unless --retry-stopped"
        )
    if facts["quarantined_cells"]:
        named = ", ".join(facts["quarantined_cells"][:5]) + (" …" if len(facts["quarantined_cells"]) > 5 else "")
        lines.append(f"quarantined {named}: run leaves them out")
    hours = "–" if facts["gpu_hours"] is None else f"{facts['gpu_hours']:.2f}"
    price = f"{hours} GPU hours, {money_text(facts['money'], currency)}"
    lines += [
        f"takes       {duration_text(facts['wall_seconds'])} with {count_text(facts['slots'], 'slot')}, {price}",
        f"memory      device {bytes_text(facts['device_bytes'])}, host {bytes_text(facts['host_bytes'])} for all slots",
        f"disk        {bytes_text(facts['disk_bytes'])} for checkpoints",
        f"money       {money_text(facts['spent'], currency)} spent, budget {money_text(facts['budget'], currency)}",
    ]
    if facts["wall_seconds"] is None:
        lines.append(
            "note        the duration is unknown before a speed is measured (dreamproof check, or a first cell)"
        )
    elif facts["without_evaluations"]:
        lines.append(f"note        time and price are {WITHOUT_EVALUATIONS}")
    lines += facts["prospects"]
    if facts["refusal"] is not None:
        return "\n".join([*lines, f"refused     {facts['refusal']}", f"next        {facts['refusal_hint']}"])
    nothing = not facts["gap_train_cells"] and not facts["gap_eval_cells"]
    verb = "verify" if opened.folder.is_export else "run"
    left_out = [*facts["quarantined_cells"], *facts["stopped_cells"]]
    if verb == "run" and not facts["runnable_cells"] and left_out:
        lines.append(f"next        dreamproof why {quoted(study)} {left_out[0]}")
    elif nothing:
        lines.append(f"next        {next_of_complete(opened, study)}")
    elif verb == "run" and any(one["code"] == "budget_reached" for one in facts["obstacles"]):
        lines.append(f"next        {next_of_budget(study)}")
    else:
        lines.append(f"next        dreamproof {verb} {quoted(study)}")
    return "\n".join(lines)

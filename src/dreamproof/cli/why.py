"""`dreamproof why`: what happened to one cell, with evidence."""

from typing import Any

from dreamproof.base.text import quoted
from dreamproof.cli.printing import CellArgument, JsonOption, StudyArgument, print_json, print_text


def why(
    study: StudyArgument,
    cell: CellArgument,
    json: JsonOption = False,
) -> None:
    """Show what happened to a cell: every attempt, why it ended, and the evidence."""
    from dreamproof.study.ledger.lease import living_holder
    from dreamproof.study.plan.on_disk import open_with_disk
    from dreamproof.study.plan.open_study import declared_cell
    from dreamproof.study.views.values import cell_values

    opened = open_with_disk(study)
    facts = cell_values(opened, declared_cell(opened, cell))
    if json:
        print_json(facts)
    else:
        supervised = living_holder(opened.folder.lease) is not None
        print_text(cell_text(facts, str(study), opened.folder.is_export, supervised))


def _job_text(attempt: dict[str, Any]) -> str:
    """The scheduler's report of an attempt's job, in one line."""
    from dreamproof.base.text import duration_text

    place = attempt["placement"]
    parts = [f"Slurm job {attempt['job']}"]
    parts += [f"on {place['nodes']}"] if place.get("nodes") else []
    parts += [f"{place.get('state', '')} {place.get('reason', '')}".strip()] if place.get("state") else []
    parts.append(f"queued {duration_text(attempt['queue_seconds'])}")
    if place.get("allocated_seconds"):
        parts.append(f"allocated {duration_text(place['allocated_seconds'])}")
    parts += [f"restarts {place['restarts']}"] if place.get("restarts") else []
    return ", ".join(parts)


def kept_text(steps: dict[str, Any] | None) -> str:
    """The agent steps that an attempt trained, and whether the next ones continued from them."""
    if steps is None:
        return ""
    first, last, kept, other = (steps[key] for key in ("first", "last", "kept", "not_continued_by"))
    if other is None:
        return f", {first:,} → {last:,} agent steps kept"
    if kept <= first:
        return f", {first:,} → {last:,} agent steps, not kept: {other} began at {kept:,}"
    return f", {first:,} → {kept:,} agent steps kept; {other} did not continue from {last:,}"


def _reached(facts: dict[str, Any]) -> int:
    """The agent steps of a cell: of an open attempt what its run folder shows, for the ledger holds its start."""
    now = facts["running"]
    reached: int = now["agent_steps"] if now is not None and now["work"] == "train" else 0
    return max(int(facts["agent_steps"]), reached)


def _evaluation_lines(evaluations: dict[str, str]) -> list[str]:
    """The status of every condition, or of how many where many have the same."""
    from dreamproof.base.text import shown_conditions
    from dreamproof.study.ledger.status import status_text

    alike: dict[str, list[str]] = {}
    for condition, status in evaluations.items():
        alike.setdefault(status_text(status), []).append(condition)
    shown = {status: shown_conditions(conditions) for status, conditions in alike.items()}
    return [f"evaluation  {condition}: {status}" for status, named in shown.items() for condition in named]


def cell_text(facts: dict[str, Any], study: str, is_export: bool = False, supervised: bool = False) -> str:
    """The story of a cell as a person reads it; nothing is started in an exported copy or beside a supervisor."""
    import time

    from dreamproof.base.text import duration_text, money_text
    from dreamproof.cli.running import running_text
    from dreamproof.study.ledger.status import NOT_SAVED, SAVE_REMEDY, outside_text, status_text
    from dreamproof.study.views.running import RunningCell

    cell = facts["cell"]
    status = status_text(facts["status"])
    lines = [f"{cell}: {status}, {_reached(facts):,} of {facts['declared_agent_steps']:,} agent steps"]
    lines.append(f"run folder  {facts['run_folder']}")
    if facts["proof"]:
        proof = facts["proof"]
        bound = "at least " if proof["gradient_steps_at_least"] else ""
        lines.append(
            f"proof       {proof['checkpoint']}: {proof['agent_steps']:,} agent steps, "
            f"{bound}{proof['gradient_steps']:,} updates, parameters {proof['parameter_hash'][:12]}"
        )
    for key in ("not_ours", "quarantined", "unreadable", "stopped", "unproven", "frozen"):
        if facts[key] and (key, facts["status"]) != ("unproven", NOT_SAVED):
            lines.append(f"{key.replace('_', ' '):<12}{facts[key]}")
    if facts["running"] is not None:
        lines.append(f"now         {running_text(RunningCell(**facts['running']), facts['metric'])}")
    lines += _evaluation_lines(facts["evaluations"])
    for run in facts["outside"]:
        lines += [f"outside     {run['source']}", f"    {outside_text(run)}"]
        lines += [f"    | {quote}" for quote in run["evidence"] or []]
    for attempt in facts["attempts"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt["started"]))
        planned = attempt["from_agent_steps"].get(cell, 0)
        cause = attempt["cell_causes"].get(cell, attempt["cause"]) or f"open ({attempt['liveness'] or 'running'})"
        lines.append(f"\n{attempt['attempt']}  {when}  {attempt['work']}: {cause}")
        lines.append(f"    {duration_text(attempt['wall_seconds'])}{kept_text(attempt['steps'])}")
        if cell in attempt["restarted_at"]:
            first = attempt["restarted_at"][cell]
            lines.append(f"    restarted at {first:,}: the trainer did not continue from its checkpoint of {planned:,}")
        if attempt["liveness_reason"]:
            lines.append(f"    {attempt['liveness']}: {attempt['liveness_reason']}")
        if attempt["stacks"]:
            lines.append(f"    stacks: {attempt['stacks']}")
        if attempt["job"]:
            lines.append(f"    {_job_text(attempt)}")
        lines += [f"    | {quote}" for quote in attempt["evidence"]]
        lines.append(f"    output: {attempt['output']}")
    if not facts["attempts"]:
        lines.append("no attempts of this study yet")
    lines += [f"remedy      {row['action']}: {row['reason']}" for row in facts["remedies"]]
    if facts["status"] == NOT_SAVED:
        spent = f"{duration_text(facts['wall_seconds'])}, money {money_text(facts['money'], facts['currency'])}"
        lines.append(f"not saved   {facts['reached_agent_steps']:,} agent steps were trained: {spent}")
        lines.append(f"remedy      {SAVE_REMEDY}")
    hint = f"dreamproof verify {quoted(study)}" if is_export else _hint(facts, study, supervised)
    return "\n".join([*lines, f"next        {hint}"])


def _hint(facts: dict[str, Any], study: str, supervised: bool) -> str:
    """What a person does about a cell of a study; a supervisor that works takes care of what needs no person."""
    from dreamproof.study.ledger.status import NOT_OURS

    if supervised:
        later = f"; when it has ended: {_hint(facts, study, False)}" if facts["stopped"] or facts["unreadable"] else ""
        return f"dreamproof watch {quoted(study)}{later}"
    again = " --retry-stopped" if facts["stopped"] else ""
    if facts["unreadable"]:
        gone = facts["proof"] and facts["unreadable"].endswith((": is gone", "is missing", "were proven"))
        repair = "put it back and run, or" if gone else "repair the file, then"
        retrain = " --retrain-lost" if gone else ""
        return f"{repair} dreamproof run {quoted(study)}{again}{retrain}"
    verbs = {"proven": "status", "running": "watch", NOT_OURS: "run"}
    missing = facts["stopped"] or any(status != "proven" for status in facts["evaluations"].values())
    verb = "run" if missing and facts["status"] == "proven" else verbs.get(facts["status"], "run")
    return f"dreamproof {verb} {quoted(study)}{again}"

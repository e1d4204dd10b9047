"""Which settings and which code a study works with now, compared with its ledger.

Cells made with other settings or by other code are not comparable: continuing is refused, or accepted and
recorded.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dreamproof.base.code import SOURCE_SUFFIXES, SourceCode, named_code, own_code, script_code
from dreamproof.base.code_changes import Difference, compare
from dreamproof.base.errors import BadInput
from dreamproof.base.files import read_json, real_path, text_hash, write_json
from dreamproof.base.text import count_text, quoted
from dreamproof.runs.resolved import NOT_STORED
from dreamproof.settings.resolved import Resolved, resolve, resolved_changes
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.ledger.cells import CellState
from dreamproof.study.ledger.events import ChangesAccepted, CodeRecorded, Event, SettingsResolved
from dreamproof.study.plan.commands import working_folder
from dreamproof.study.plan.gap import changes_of_meaning, find_gap
from dreamproof.study.plan.open_study import OpenStudy, check_place, read_state
from dreamproof.study.plan.trainer_identity import TrainerIdentity

ACCEPT_SETTINGS = "--accept-changes"
ACCEPT_CODE = "--accept-changed-code"
MAX_SHOWN = 8


@dataclass(frozen=True)
class Accepted:
    """What a user accepted although it changed."""

    settings: bool = False
    code: bool = False


NOTHING_ACCEPTED = Accepted()


def identify(opened: OpenStudy) -> TrainerIdentity:
    """What would work on the study now."""
    resolved = {arm: resolved_arm(opened.study, arm) for arm in opened.study.arms}
    return TrainerIdentity(resolved, trainer_code(opened))


def resolved_arm(study: Study, arm: str) -> Resolved:
    """Every setting of an arm after defaults; of a foreign trainer, what it is given and how it is started."""
    settings = study.merged_settings(arm)
    if isinstance(study.trainer, str):
        return resolve(study.trainer, study.task_of(arm), study.agent_steps, settings, f"{study.name}, arm {arm}")
    trainer = study.trainer
    return {
        "task": study.task,
        "trainer": "command",
        "agent_steps": study.agent_steps,
        "settings": settings,
        "command": trainer.command,
        "evaluate": trainer.evaluate,
        # A value may be a secret; its hash shows whether it changed.
        "environment": {name: text_hash(value) for name, value in trainer.environment.items()},
    }


def trainer_code(opened: OpenStudy) -> SourceCode:
    """The code of the trainer: our own packages, what `trainer.code` names, or the repository of the script."""
    trainer, folder = opened.study.trainer, working_folder(opened.study, opened.base_folder)
    if isinstance(trainer, str):
        return own_code(opened.study.task, folder)
    excluded = [opened.folder.root, opened.file]
    if trainer.code is None:
        return script_code(find_script(trainer, folder), folder, excluded)
    code, empty = named_code(folder, trainer.code, excluded)
    if empty:
        raise BadInput(
            f"{opened.file}: trainer.code names '{empty[0]}', which matches no file (relative to {folder})",
            f"ls {quoted(folder)}; then correct trainer.code",
        )
    return code


def find_script(trainer: CommandTrainer, folder: Path) -> Path | None:
    """The first file of source code that the training command names; None for a module or a program of the system."""
    for word in trainer.command:
        for part in word.split():
            place = folder / part.strip("'\";")
            relative = "/" in part and not Path(part).is_absolute()
            if (place.suffix in SOURCE_SUFFIXES or relative) and place.is_file():
                return real_path(place)
    return None


def refuse_new_meaning(opened: OpenStudy, accepted: bool) -> None:
    """Refuses a study file whose new cells could not be compared with the old ones; the state is the ledger's own."""
    old = opened.state.study
    worked_on = bool(opened.state.attempts) or any(cell.proof is not None for cell in opened.state.cells.values())
    if old is None or accepted or not worked_on:
        return
    changes = changes_of_meaning(old, opened.study)
    if changes:
        listed = "\n    ".join(changes)
        raise BadInput(
            f"{opened.declared_in or opened.file}: the declaration changed after cells were trained, so old and new "
            f"cells are not comparable:\n    {listed}",
            f"undo the change, rename the study, or dreamproof run {quoted(opened.named)} {ACCEPT_SETTINGS}",
        )


def find_refusal(opened: OpenStudy) -> BadInput | None:
    """What `run` without options refuses of changed settings and code; None if nothing. Nothing is written."""
    if opened.folder.is_export or opened.state.understood_hash is None:
        return None
    try:
        if opened.state.understood_hash != opened.study.hash():
            refuse_new_meaning(replace(opened, state=read_state(opened.folder)), accepted=False)
        if _all_kept(opened) and find_gap(opened.state):
            check_place(opened)
            now = identify(opened)
            _settle_settings(opened, now, accepted=False)
            _require_same_code(opened, now.code)
    except BadInput as refusal:
        return refusal
    return None


def settle(opened: OpenStudy, accepted: Accepted) -> tuple[list[Event], list[str]]:
    """Events that record what works on the study from here on, and messages about it; refuses what is not accepted.

    Where nothing is missing nothing is recorded: reading or reporting a finished study changes nothing.
    """
    return settle_identity(opened, accepted) if find_gap(opened.state) else ([], [])


def settle_identity(opened: OpenStudy, accepted: Accepted) -> tuple[list[Event], list[str]]:
    """The same, also where nothing is missing yet."""
    now = identify(opened)
    settings, messages = _settle_settings(opened, now, accepted.settings)
    code, more = settle_code(opened, now.code, accepted.code)
    opened.identity = now
    return settings + code, messages + more


def _settle_settings(opened: OpenStudy, now: TrainerIdentity, accepted: bool) -> tuple[list[Event], list[str]]:
    state = opened.state
    events: list[Event] = []
    changes: list[str] = []
    for arm, resolved in now.resolved.items():
        known = state.resolved.get(arm)
        if known is None or known["resolved_hash"] != now.hash(arm):
            events.append(SettingsResolved(arm, now.hash(arm), resolved))
        if known is not None and known["resolved_hash"] != now.hash(arm) and _kept(opened, arm):
            changes += [f"arm {arm}: {change}" for change in resolved_changes(known["resolved"], resolved)]
    if changes and not accepted:
        raise BadInput(
            f"{opened.file}: settings differ from those of trained cells although the study file did not "
            f"change: a default changed:\n    {_listed(changes)}",
            f"write the old values into the study file, or dreamproof run {quoted(opened.named)} {ACCEPT_SETTINGS}",
        )
    if changes:
        events.append(ChangesAccepted("settings", changes, ACCEPT_SETTINGS))
    old = [cell for cell in _all_kept(opened) if cell.resolved_hash is None and cell.attempts]
    return events, [f"{count_text(len(old), 'cell')} {NOT_STORED}"] if old and not state.resolved else []


def settle_code(opened: OpenStudy, code: SourceCode, accepted: bool) -> tuple[list[Event], list[str]]:
    """The same for the code alone; also called while a study runs."""
    known = opened.state.code
    if known == code.hash:
        return [], []
    if not accepted:
        _require_same_code(opened, code)
    found = _difference(opened, known, code) if known is not None else None
    equal = found is not None and not found.matters
    lines, changed = _lines(found), _cells_of_other_code(opened, code, found) > 0
    write_json(opened.folder.code_manifest(code.hash), code.manifest())
    recorded = CodeRecorded(code.hash, code.facts(), known if equal else None)
    messages = [f"code: only comments or layout changed in {_names(found)}"] if equal and found and found.layout else []
    return [recorded, *([ChangesAccepted("code", lines, ACCEPT_CODE)] if changed else [])], messages


def _require_same_code(opened: OpenStudy, code: SourceCode) -> None:
    """Refuses code that is not comparable with that of trained cells."""
    known = opened.state.code
    if known is None or known == code.hash:
        return
    found = _difference(opened, known, code)
    cells = _cells_of_other_code(opened, code, found)
    if cells:
        raise BadInput(_code_refusal(opened, code, cells, _lines(found)), _code_hint(opened))


def _cells_of_other_code(opened: OpenStudy, code: SourceCode, found: Difference | None) -> int:
    """How many cells keep something that code trained from which this code differs."""
    known = opened.state.code
    if known in (None, code.hash) or (found is not None and not found.matters):
        return 0
    return sum(cell.code_hash is not None for cell in _all_kept(opened))


def _lines(found: Difference | None) -> list[str]:
    return found.lines(MAX_SHOWN) if found is not None else ["the changed files are unknown: there is no manifest"]


def _names(found: Difference) -> str:
    return ", ".join(found.layout[:MAX_SHOWN])


def _difference(opened: OpenStudy, known: str, code: SourceCode) -> Difference | None:
    old = read_json(opened.folder.code_manifest(known))
    return compare(old, code) if isinstance(old, dict) else None


def _code_refusal(opened: OpenStudy, code: SourceCode, cells: int, lines: list[str]) -> str:
    old = opened.state.codes[opened.state.code or ""]["facts"]
    listed = "\n    ".join(lines)
    return (
        f"{opened.file}: {count_text(cells, 'cell')} of this study were trained by other code ({_name(old)}) than "
        f"the present one ({_name(code.facts())}):\n    {listed}"
    )


def _name(facts: dict[str, Any]) -> str:
    """`1f2e3d4c5b6a, commit 0a1b2c3d4e5f and edits`."""
    text = str(facts["hash"])[:12]
    if facts.get("commit"):
        text += f", commit {facts['commit'][:12]}"
        text += " and edits" if facts.get("diff_hash") or facts.get("untracked_hash") else ""
    return text


def _code_hint(opened: OpenStudy) -> str:
    again = f"dreamproof run {quoted(opened.named)} {ACCEPT_CODE}"
    if isinstance(opened.study.trainer, str):
        return f"install the version that trained them, or {again}"
    return f"undo the change, list the files that the trainer uses under trainer.code, or {again}"


def _kept(opened: OpenStudy, arm: str) -> bool:
    """Whether a cell of the arm has anything that was trained under recorded settings."""
    return any(cell.cell.arm == arm and cell.resolved_hash is not None for cell in _all_kept(opened))


def _all_kept(opened: OpenStudy) -> list[CellState]:
    """Cells of which something is kept; a trainer that failed at once may be repaired freely."""
    return [cell for cell in opened.state.cells.values() if cell.proof is not None or cell.kept_agent_steps > 0]


def _listed(changes: list[str]) -> str:
    more = [f"and {len(changes) - MAX_SHOWN} more"] if len(changes) > MAX_SHOWN else []
    return "\n    ".join([*changes[:MAX_SHOWN], *more])

"""Starts every arm once in its real environment before anything is spent, and reports which cannot work and why."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dreamproof.base.errors import Busy, PreflightError, Stopped
from dreamproof.base.files import canonical_json, file_hash, read_json, read_tail, text_hash, write_json, write_text
from dreamproof.base.text import bytes_text, count_text, duration_text, nearest_word, quoted
from dreamproof.runs.layout import AttemptFolder, Cell, RunFolder
from dreamproof.runs.reader import read_exit
from dreamproof.runs.records import ExitRecord
from dreamproof.settings.backend import Slurm
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.adapters import DEFAULT, find_adapter, make_adapters, study_adapter, study_format
from dreamproof.study.adapters.api import TrainerFormat
from dreamproof.study.adapters.automatic import AutoAdapter
from dreamproof.study.attempts.launch import new_token
from dreamproof.study.attempts.observer import Observer
from dreamproof.study.attempts.progress import AttemptProgress, CellProgress
from dreamproof.study.backends.api import Order, Presence, write_order
from dreamproof.study.backends.local import LocalBackend
from dreamproof.study.backends.slurm.commands import SlurmCommands
from dreamproof.study.diagnosis.diagnose import AttemptEvidence, diagnose
from dreamproof.study.diagnosis.liveness import Watch
from dreamproof.study.plan.commands import Target, environment, run_settings, train_commands, working_folder
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.preflight.gpu import gpu_faults
from dreamproof.study.preflight.needs import judge_needs
from dreamproof.study.preflight.reading import (
    NEVER_PROVEN,
    UNREADABLE,
    ProbeTrace,
    end_warning,
    save_warnings,
    unreadable,
)
from dreamproof.study.preflight.slurm import ClusterPreflight, ClusterProbe, ask_and_run
from dreamproof.study.process import machine
from dreamproof.study.process.processes import ATTEMPT_VARIABLE

PROBE_AGENT_STEPS = 1000
PROBE_EPISODES = 2
LOOK_SECONDS = 0.2
# So long a trainer that knows no probe is watched after its first progress: for its speed and its checkpoints.
MEASURE_SECONDS = 5.0
STOP_SECONDS = 10.0
KILL_SECONDS = 5.0

Show = Callable[[str], None]


@dataclass(frozen=True)
class ArmCheck:
    """What one arm showed when it was started."""

    arm: str
    passed: bool
    cause: str | None = None
    reason: str = ""
    evidence: list[str] = field(default_factory=list)
    wall_seconds: float = 0.0
    probe: dict[str, Any] = field(default_factory=dict)
    """probe.json of the trainer, if it writes one: phases, memory now and at full settings, rate, versions."""
    host_bytes: int | None = None
    """Peak resident memory as seen from outside."""
    warnings: list[str] = field(default_factory=list)
    adapter: str = ""
    """What read the progress of a foreign trainer."""

    @property
    def hint(self) -> str:
        """What a trainer of ours advises where it refuses its settings."""
        found = (quote.strip() for quote in self.evidence)
        return next((f"; {line}" for line in found if line.startswith("hint: ")), "")


@dataclass(frozen=True)
class Preflight:
    """The result of a preflight."""

    fingerprint: str
    arms: list[ArmCheck]
    machine: dict[str, Any]
    needs: dict[str, Any]
    faults: list[str]
    """What stops the launch, each with its arm."""
    warnings: list[str]

    @property
    def passed(self) -> bool:
        return not self.faults

    @property
    def rates(self) -> dict[str, float]:
        """Agent steps per second by arm, where a probe measured them."""
        found = {check.arm: check.probe.get("agent_steps_per_second") for check in self.arms}
        return {arm: float(rate) for arm, rate in found.items() if isinstance(rate, int | float) and rate > 0}

    def as_json(self) -> dict[str, Any]:
        """The result as manifests/preflight.json holds it."""
        return {"passed": self.passed, **asdict(self), "rates": self.rates}

    def error(self, study_file: Path) -> PreflightError:
        """The refusal to launch, naming every arm that failed."""
        return PreflightError("\n".join(self.faults), f"fix the error, then run dreamproof check {quoted(study_file)}")


def fingerprint(opened: OpenStudy, arms: Sequence[str] | None = None, facts: dict[str, Any] | None = None) -> str:
    """Names what a preflight of these arms depends on: the same name means that it need not be repeated."""
    study = opened.study
    kept = {"task", "trainer", "settings", "arms", "conditions", "pack_cells"}
    parts = study.model_dump(mode="json", include=kept | ({"require"} if study.require.gpu else set()))
    facts = facts if facts is not None else _machine(opened)
    stable = {key: value for key, value in facts.items() if key != "gpu"}
    gpu = facts["gpu"]
    stable["gpu"] = [gpu.get("driver"), [device["name"] for device in gpu["devices"]]]
    checked = sorted(arms if arms is not None else study.arms)
    if study.backend.slurm is not None:
        stable["slurm"] = study.backend.slurm.model_dump(mode="json", exclude={"array_throttle", "poll_seconds"})
    limited = [[limit.name for limit in study.limits]] if study.limits else []
    return text_hash(canonical_json([parts, study.agent_steps, study.backend.slots, stable, checked, *limited]))


def _machine(opened: OpenStudy) -> dict[str, Any]:
    trainer = opened.study.trainer
    folder = working_folder(opened.study, opened.base_folder)
    own = trainer.environment if isinstance(trainer, CommandTrainer) else {}
    facts = machine.describe_machine(folder, own)
    if isinstance(trainer, CommandTrainer):
        scripts = [folder / word for word in (*trainer.command, *(trainer.evaluate or []))]
        facts["scripts"] = {str(path): file_hash(path) for path in scripts if path.is_file()}
    return facts


def check_arms(
    opened: OpenStudy,
    arms: Sequence[str] | None = None,
    show: Show | None = None,
    stop_asked_by: Callable[[], str | None] | None = None,
) -> Preflight:
    """Probes every arm (or those named), judges memory and disk, and writes both manifests."""
    facts = _machine(opened)
    chosen = list(arms if arms is not None else opened.study.arms)
    checks: list[ArmCheck] = []
    refused: list[str] = []
    if opened.study.backend.slurm is not None:
        checks, refused = _probe_on_cluster(opened, opened.study.backend.slurm, chosen, show or _silent)
    else:
        (show or _silent)(f"preflight: {count_text(len(chosen), 'arm')}, each is started for a moment")
    for arm in chosen if opened.study.backend.slurm is None else ():
        check = _probe(opened, arm, stop_asked_by or _nobody)
        checks.append(check)
        for line in (_arm_line(check), *(f"warning: arm {arm}: {warning}" for warning in check.warnings)):
            (show or _silent)(line)
    needs, faults, warnings = judge_needs(opened, [check.probe for check in checks], facts)
    gpu, unclear = gpu_faults(opened, facts)
    faults, warnings = refused + gpu + faults, warnings + unclear
    warnings += [f"arm {check.arm}: {warning}" for check in checks for warning in check.warnings]
    faults += unmeasured_limits(opened.study, checks)
    result = Preflight(fingerprint(opened, chosen, facts), checks, facts, needs, failures(checks) + faults, warnings)
    write_json(opened.folder.preflight, result.as_json())
    write_text(opened.folder.preflight_text, "\n".join(preflight_lines(result, study_format(opened.study))) + "\n")
    return result


def failures(checks: Sequence[ArmCheck]) -> list[str]:
    """Why arms failed; those that failed for one reason together."""
    arms: dict[str, list[str]] = {}
    for check in checks:
        if not check.passed:
            arms.setdefault(f"{check.cause}: {check.reason}{check.hint}", []).append(check.arm)
    return [f"arm{'s' if len(found) > 1 else ''} {', '.join(found)}: {reason}" for reason, found in arms.items()]


def unmeasured_limits(study: Study, checks: Sequence[ArmCheck]) -> list[str]:
    """Declared limits of metrics that the task of an arm does not measure."""
    found = []
    for check in checks:
        known: list[str] = check.probe.get("metrics") or []
        costs = ", ".join(metric for metric in known if metric.startswith("cost"))
        for name in [limit.name for limit in study.limits if known and limit.name not in known]:
            near = nearest_word(name, known)
            meant = f"did you mean '{near}'? " if near else ""
            found.append(
                f"arm {check.arm}: nothing measures '{name}', for which a limit is declared; {meant}"
                f"costs of its task: {costs}"
            )
    return found


def _silent(text: str) -> None:
    """Prints nothing."""


def _nobody() -> str | None:
    """Nobody asks for a stop."""
    return None


def _probe_on_cluster(
    opened: OpenStudy, slurm: Slurm, arms: Sequence[str], show: Show
) -> tuple[list[ArmCheck], list[str]]:
    """One probe job per arm, after the scheduler accepted the script; what it refuses stops the launch."""
    study = opened.study
    trainer = study.trainer
    adapter = study_adapter(study)
    folder = str(working_folder(study, opened.base_folder))
    probes = []
    for arm in arms:
        target, command = _prepare_probe(opened, arm)
        foreign = isinstance(trainer, CommandTrainer)
        probes.append(ClusterProbe(arm, target.run, command, environment(study, [target]), folder, foreign, adapter))
    cluster = ClusterPreflight(slurm, opened.folder, study.name, SlurmCommands())
    refused, _ = ask_and_run(cluster, probes, study.liveness.kill_silent_after_seconds.of("compile"), show)
    if refused:
        return [], refused
    checks = [
        ArmCheck(
            one.arm, one.passed, one.cause, one.reason, one.evidence, one.wall_seconds, one.measured, one.host_bytes
        )
        for one in probes
    ]
    for check in checks:
        show(_arm_line(check))
    return checks, []


def _probe(opened: OpenStudy, arm: str, stop_asked_by: Callable[[], str | None]) -> ArmCheck:
    with closing(LocalBackend()) as backend:
        return LocalProbe(opened, arm, backend).watch(stop_asked_by)


def _prepare_probe(opened: OpenStudy, arm: str) -> tuple[Target, list[str]]:
    """A scratch run folder for an arm's probe, and the command that starts it."""
    study = opened.study
    cell = Cell(arm, study.seeds[0])
    run = RunFolder(opened.folder.probes / arm)
    shutil.rmtree(run.root, ignore_errors=True)
    given = run_settings(study, cell)
    foreign = isinstance(study.trainer, CommandTrainer)
    if foreign:
        steps = min(PROBE_AGENT_STEPS, study.agent_steps)
        given = given.model_copy(update={"agent_steps": steps, "evaluation_episodes": PROBE_EPISODES})
    write_json(run.settings, given.model_dump(mode="json"), durable=False)
    target = Target(cell, run, given.agent_steps)
    return target, train_commands(study, [target])[0] if foreign else _native_probe(run)


def _native_probe(run: RunFolder) -> list[str]:
    return [sys.executable, "-m", "dreamproof.train", "--probe", str(run.root)]


class LocalProbe:
    """One probe under a shim, like any attempt; it ends by itself if the supervisor is killed meanwhile."""

    def __init__(self, opened: OpenStudy, arm: str, backend: LocalBackend) -> None:
        self.opened = opened
        self.arm = arm
        self.backend = backend
        self.run = RunFolder(opened.folder.probes / arm)
        self.folder = AttemptFolder(self.run.root / "attempt")
        self._end_earlier()
        target, command = _prepare_probe(opened, arm)
        write_order(self.folder, self._order(target, command))
        trainer = opened.study.trainer
        self.is_foreign = isinstance(trainer, CommandTrainer)
        self.adapter = study_adapter(opened.study)
        self.trace = ProbeTrace()
        self.began = time.monotonic()
        backend.start(self.folder)

    def _order(self, target: Target, command: list[str]) -> Order:
        study = self.opened.study
        name = f"probe-{self.arm}"
        variables = environment(study, [target]) | {"DREAMPROOF_PROBE": "1", ATTEMPT_VARIABLE: new_token(name)}
        return Order(
            name,
            [command],
            variables,
            str(working_folder(study, self.opened.base_folder)),
            {},
            study.backend.memory_limit_bytes,
            STOP_SECONDS,
            locks=[str(target.run.lock)],
        )

    def _end_earlier(self) -> None:
        """Ends the probe that a killed supervisor left running, before its folder is created again."""
        if not self.folder.order.exists():
            return
        self._stop("stop: another preflight begins")
        if self.backend.look(self.folder).presence is Presence.RUNNING:
            raise Busy(
                f"{self.folder.root}: an earlier probe of arm {self.arm} still runs and does not end",
                f"cat {self.folder.shim}; stop that process, then run dreamproof check {quoted(self.opened.file)}",
            )

    def watch(self, stop_asked_by: Callable[[], str | None]) -> ArmCheck:
        """Waits for the end, for some seconds of progress of a trainer that knows no probe, or for a hang; judges."""
        cell = Cell(self.arm, self.opened.study.seeds[0])
        progress = AttemptProgress({cell: CellProgress(self.run, self.adapter, "train", self.folder.output)})
        watch = Watch(self.opened.study.liveness)
        observer = Observer(progress, watch, lambda: self.backend.activity(self.folder))
        asked: str | None = None
        try:
            while (sighting := self.backend.look(self.folder)).presence in (Presence.RUNNING, Presence.WAITING):
                judgement = observer.observe(time.monotonic(), sighting)
                self._note(progress.cells[cell].reading.agent_steps)
                if self.is_foreign and self.trace.seconds >= MEASURE_SECONDS and not self.run.probe.exists():
                    break
                if judgement.kill is not None:
                    asked = f"timeout: no first step: {judgement.reason}"
                    break
                if (by := stop_asked_by()) is not None:
                    raise Stopped(by, str(self.opened.file))
                self.backend.wait(LOOK_SECONDS)
        finally:
            self._stop(asked or "stop: the probe has shown enough")
        progress.refresh()
        self._note(progress.cells[cell].reading.agent_steps)
        return self._judge(read_exit(self.folder.exit), asked)

    def _judge(self, record: ExitRecord | None, asked: str | None) -> ArmCheck:
        """A probe passes if it ended well and can be read and proven, or if it was stopped here while it progressed."""
        ended_well = record is not None and record.exit_code == 0 and record.asked_to_stop is None
        if ended_well and self._shows_nothing():
            return self._check(record, False, UNREADABLE, *self._unreadable())
        never = self._never_proven() if ended_well else None
        if never is not None:
            return self._check(record, False, NEVER_PROVEN, never, [never])
        progressed = self.is_foreign and self.trace.first is not None and asked is None
        if ended_well or (progressed and (record is None or record.asked_to_stop is not None)):
            return replace(
                self._check(record, True), warnings=self._warnings(ended_well), adapter=self._chosen_adapter()
            )
        return self._failure(record, asked)

    def _chosen_adapter(self) -> str:
        """What read the progress of a foreign trainer; empty for our own."""
        if isinstance(self.adapter, AutoAdapter):
            return self.adapter.chosen(self.run, self.folder.output).name
        return self.adapter.name if self.is_foreign else ""

    def _note(self, agent_steps: int) -> None:
        self.trace.note(time.monotonic(), agent_steps, self.adapter.kept_unix_seconds(self.run))

    def _shows_nothing(self) -> bool:
        return self.is_foreign and self.trace.first is None and not self.run.probe.exists()

    def _unreadable(self) -> tuple[str, list[str]]:
        others = list(make_adapters(study_format(self.opened.study)).values())
        quotes = unreadable(self.adapter, others, self.run, self.folder.output)
        return "; ".join(quotes), quotes

    def _never_proven(self) -> str | None:
        """Why the end of a probe that was a whole run is not proven; None if it is, or if the probe was shorter."""
        study = self.opened.study
        if not self.is_foreign or self.adapter.name == DEFAULT or study.agent_steps > PROBE_AGENT_STEPS:
            return None
        reason = end_warning(self.adapter, self.run, study.needed_agent_steps, self.folder.output)
        return f"a whole run ended with exit code 0 and is not proven: {reason}" if reason is not None else None

    def _warnings(self, ended_well: bool) -> list[str]:
        """What would keep the end of a whole run from being proven, as far as a short one shows it."""
        study = self.opened.study
        if not self.is_foreign or self.run.probe.exists():
            return []
        found = save_warnings(self.adapter, self.run, study.agent_steps, self.trace)
        if found or not ended_well:
            return found
        steps = max(1, min(PROBE_AGENT_STEPS, study.agent_steps) - study.agent_steps_tolerance)
        reason = end_warning(self.adapter, self.run, steps, self.folder.output)
        return [f"the end of its probe of {steps:,} agent steps is not proven: {reason}"] if reason is not None else []

    def _stop(self, reason: str) -> None:
        """Ends what still runs and waits for it."""
        until = time.monotonic() + STOP_SECONDS + KILL_SECONDS
        while self.backend.look(self.folder).presence in (Presence.RUNNING, Presence.WAITING):
            self.backend.stop(self.folder, reason, STOP_SECONDS)
            if time.monotonic() >= until:
                return
            self.backend.wait(LOOK_SECONDS)

    def _failure(self, record: ExitRecord | None, asked: str | None) -> ArmCheck:
        found = diagnose(AttemptEvidence(exit=record, output_tail=read_tail(self.folder.output), asked_to_stop=asked))
        reason = found.key_quote.removeprefix("asked to stop: timeout: ")
        return self._check(record, False, found.cause.value, reason, found.quotes)

    def _check(
        self,
        record: ExitRecord | None,
        passed: bool,
        cause: str | None = None,
        reason: str = "",
        evidence: Sequence[str] = (),
    ) -> ArmCheck:
        value = read_json(self.run.probe)
        probe = value if isinstance(value, dict) else {}
        rate = self.trace.agent_steps_per_second if self.is_foreign else None
        probe |= {"agent_steps_per_second": rate} if rate and "agent_steps_per_second" not in probe else {}
        peak = record.peak_bytes if record is not None else None
        seconds = round(time.monotonic() - self.began, 3)
        return ArmCheck(self.arm, passed, cause, reason, list(evidence), seconds, probe, peak or None)


def _arm_line(check: ArmCheck) -> str:
    took = duration_text(check.wall_seconds)
    if not check.passed:
        return f"arm {check.arm}: FAILED after {took}: {check.cause}"
    read = f", read by adapter {check.adapter}" if check.adapter else ""
    phases = ", ".join(check.probe.get("phases", {})) or f"started and made its first steps{read}"
    return f"arm {check.arm}: passed in {took} ({phases})"


def preflight_lines(result: Preflight, trainer_format: TrainerFormat | None = None) -> list[str]:
    """The result as manifests/preflight.txt holds it."""
    arms = [line for check in result.arms for line in (_arm_line(check), *(f"    | {line}" for line in check.evidence))]
    first, *rest = summary_lines(result, trainer_format)
    return [first, *arms, *rest]


def summary_lines(result: Preflight, trainer_format: TrainerFormat | None = None) -> list[str]:
    """The result without its arms: what the machine has, what is needed, what stops the launch."""
    facts, needs = result.machine, result.needs
    gpu = facts["gpu"]
    devices = ", ".join(f"{one['name']} ({bytes_text(one['total_bytes'])})" for one in gpu["devices"])
    code = facts["code"]
    edited = f", edited (diff {code['diff_hash'][:12]})" if code.get("dirty") else ""
    lines = [
        f"preflight {'passed' if result.passed else 'FAILED'}: {count_text(len(result.arms), 'arm')}",
        f"devices: {devices or 'no GPU (' + gpu.get('reason', 'none found') + ')'}",
        f"driver: {gpu.get('driver', '–')}",
        f"versions: {', '.join(f'{name} {version}' for name, version in facts['versions'].items())}",
        f"environment: {', '.join(f'{name}={value}' for name, value in facts['environment'].items()) or 'none set'}",
        f"code: {code.get('commit', code.get('reason'))}{edited}",
        f"host memory: needs {bytes_text(needs['host_bytes'])} of {bytes_text(needs['host_total_bytes'])}",
        f"device memory: needs {bytes_text(needs['device_bytes'])} of {bytes_text(needs['device_total_bytes'])}",
        f"disk: needs {bytes_text(needs['disk_bytes'])} of {bytes_text(needs['disk_free_bytes'])} free",
    ]
    for name in dict.fromkeys(check.adapter for check in result.arms if check.adapter):
        lines.append(f"adapter {name} proves {find_adapter(name, trainer_format).proves}")
    lines += [f"stops the launch: {fault}" for fault in result.faults]
    return lines + [f"warning: {warning}" for warning in result.warnings]

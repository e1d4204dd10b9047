"""The preflight on a cluster: the scheduler's answer to the script, then one short probe job per arm on a real node."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dreamproof.base.errors import DreamproofError
from dreamproof.base.files import read_json, read_tail, write_text
from dreamproof.base.text import duration_text
from dreamproof.runs.layout import AttemptFolder, RunFolder, StudyFolder
from dreamproof.settings.backend import Slurm, memory_bytes
from dreamproof.study.adapters import ADAPTERS
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.backends.api import Order, Presence, Sighting, write_order
from dreamproof.study.backends.slurm.backend import SlurmBackend
from dreamproof.study.backends.slurm.commands import SlurmCommands, SlurmError
from dreamproof.study.backends.slurm.limits import Partition, find_stuck, longest_time, probe_time_limit
from dreamproof.study.backends.slurm.limits import limit_seconds as seconds_of
from dreamproof.study.backends.slurm.script import Submission, script_text
from dreamproof.study.diagnosis.diagnose import AttemptEvidence, Cause, diagnose
from dreamproof.study.preflight.reading import UNREADABLE, unreadable

PROBE_GRACE_SECONDS = 10.0
STUCK_SECONDS = 600.0
"""So long a probe waits for a reason that does not clear by itself."""

Show = Callable[[str], None]


@dataclass
class ClusterProbe:
    """One arm's probe: its command, its folder and its result."""

    arm: str
    run: RunFolder
    command: list[str]
    environment: dict[str, str]
    working_folder: str
    passes_on_progress: bool
    adapter: Adapter
    passed: bool = False
    cause: str | None = None
    reason: str = ""
    evidence: list[str] = field(default_factory=list)
    wall_seconds: float = 0.0
    host_bytes: int | None = None
    began: float | None = None
    last_shown: str = ""
    stopped: bool = False
    stuck_since: float | None = None
    stuck: str = ""
    """Why it was not worth waiting for any longer."""

    @property
    def measured(self) -> dict[str, Any]:
        """probe.json, where the trainer wrote one."""
        value = read_json(self.run.probe)
        return value if isinstance(value, dict) else {}


class ClusterPreflight:
    """Asks the scheduler, then runs the probes as jobs under the same script and the same shim as everything else."""

    def __init__(self, slurm: Slurm, folder: StudyFolder, study_name: str, commands: SlurmCommands) -> None:
        self.slurm, self.folder, self.commands = slurm, folder, commands
        self.study_name = study_name
        self.place = StudyFolder(folder.probes)
        self.monotonic: Callable[[], float] = time.monotonic
        self.attempts = folder.probes / "attempts"
        self._partitions: list[Partition] | None = None

    def ask(self) -> str:
        """What the scheduler would do with the script, and with the probes'; raises SlurmError if it refuses one."""
        partitions = self.commands.partitions()
        names = [one["name"].rstrip("*") for one in partitions]
        wanted = self.slurm.partition
        if wanted is not None and not set(wanted.split(",")) <= set(names):
            raise SlurmError(f"no partition '{wanted}' (partitions: {', '.join(names)})", "sinfo")
        self._check_time()
        answer = self._test(self.slurm, "test")
        self._test(self.probe_settings(), "test-probe")
        return answer

    def _test(self, settings: Slurm, name: str) -> str:
        """The scheduler's answer to one script."""
        folder = self.place.submissions / name
        request = (memory_bytes(settings.memory), settings.time_limit)
        submission = Submission(name, f"{self.study_name[:40]}-test", folder, self.attempts, ["a000001"], *request)
        write_text(folder / "script.sh", script_text(settings, submission), durable=False)
        return self.commands.test_submission(folder / "script.sh")

    def _check_time(self) -> None:
        """Refuses a time limit beyond the partition's: sbatch takes it, and the job waits forever."""
        longest = longest_time(self.slurm, self._limits())
        if self.slurm.qos is None and seconds_of(self.slurm.time_limit) > seconds_of(longest):
            where = self.slurm.partition or "(default)"
            raise SlurmError(
                f"backend.slurm.time_limit is {self.slurm.time_limit}, but partition {where} "
                f"allows {longest}: jobs would wait forever (PartitionTimeLimit)",
                f"set time_limit to at most {longest}, choose another partition (sinfo -o '%P %l'), or name the qos "
                "that lifts this limit",
            )

    def _limits(self) -> list[Partition]:
        if self._partitions is None:
            self._partitions = self.commands.partition_limits()
        return self._partitions

    def probe_settings(self, probes: int = 1) -> Slurm:
        """What a probe job asks for: as an attempt, but for a short time that study and partition allow."""
        return self.slurm.model_copy(
            update={
                "time_limit": probe_time_limit(self.slurm, self._limits()),
                "requeue": False,
                "signal_seconds_before_limit": 0,
                "array_throttle": max(1, probes),
                "poll_seconds": min(5.0, self.slurm.poll_seconds),
            }
        )

    def run(self, probes: Sequence[ClusterProbe], limit_seconds: float, show: Show) -> None:
        """Runs one probe job per arm, all in one array, and judges each."""
        shutil.rmtree(self.attempts, ignore_errors=True)
        settings = self.probe_settings(len(probes))
        if settings.time_limit != self.slurm.probe_time_limit:
            show(f"probe jobs request {settings.time_limit}, the most that study and partition allow")
        backend = SlurmBackend(settings, self.place, f"{self.study_name[:30]}-probe", self.commands)
        open_probes = {probe.arm: (probe, self._order(probe, settings)) for probe in probes}
        try:
            for _, folder in open_probes.values():
                backend.start(folder)
            while open_probes:
                backend.wait(1.0)
                for probe, folder in [*open_probes.values()]:
                    sighting = backend.look(folder)
                    if sighting.presence in (Presence.ENDED, Presence.LOST):
                        self._judge(probe, folder, sighting)
                        del open_probes[probe.arm]
                    else:
                        self._watch(backend, probe, folder, sighting, limit_seconds)
                        self._report(probe, sighting, show)
        finally:
            for _, folder in open_probes.values():
                backend.stop(folder, "stop: the preflight ended", 0.0)
                backend.look(folder)
            backend.close()

    def _order(self, probe: ClusterProbe, settings: Slurm) -> AttemptFolder:
        folder = AttemptFolder(self.attempts / probe.arm)
        variables = {**probe.environment, "DREAMPROOF_PROBE": "1"}
        order = Order(
            probe.arm,
            [probe.command],
            variables,
            probe.working_folder,
            {},
            stop_grace_seconds=PROBE_GRACE_SECONDS,
            lease_seconds=settings.lease_seconds,
        )
        write_order(folder, order)
        return folder

    def _watch(
        self,
        backend: SlurmBackend,
        probe: ClusterProbe,
        folder: AttemptFolder,
        sighting: Sighting,
        limit_seconds: float,
    ) -> None:
        """Ends a probe that has shown enough, that shows nothing for too long once it runs, or that does not begin."""
        if sighting.presence is Presence.WAITING and not probe.stopped:
            self._watch_queue(backend, probe, folder, sighting)
        if sighting.presence is not Presence.RUNNING or probe.stopped:
            return
        probe.began = probe.began if probe.began is not None else time.monotonic()
        progressed = probe.adapter.read(probe.run, folder.output).agent_steps > 0
        if probe.passes_on_progress and progressed and not probe.run.probe.exists():
            probe.passed = probe.stopped = True
            backend.stop(folder, "stop: the probe has shown its first steps", PROBE_GRACE_SECONDS)
        elif time.monotonic() - probe.began > limit_seconds:
            probe.stopped = True
            backend.stop(folder, f"timeout: no first step within {duration_text(limit_seconds)}", PROBE_GRACE_SECONDS)

    def _watch_queue(
        self, backend: SlurmBackend, probe: ClusterProbe, folder: AttemptFolder, sighting: Sighting
    ) -> None:
        """Gives up on a reason that only a person or a returning node clears, after a while."""
        reason = sighting.placement.reason if sighting.placement is not None else ""
        stuck = find_stuck(reason)
        if stuck is None:
            probe.stuck_since = None
            return
        probe.stuck_since = probe.stuck_since if probe.stuck_since is not None else self.monotonic()
        waited = self.monotonic() - probe.stuck_since
        if waited >= STUCK_SECONDS:
            probe.stopped, probe.stuck = True, f"{reason} for {duration_text(waited)}: {stuck.remedy}"
            backend.stop(folder, f"stop: the probe waited for {reason}", 0.0)

    def _report(self, probe: ClusterProbe, sighting: Sighting, show: Show) -> None:
        place = sighting.placement
        if place is None:
            return
        stuck = find_stuck(place.reason)
        hint = f" ({stuck.remedy})" if stuck is not None else ""
        where = f"runs on {place.nodes}" if place.nodes else f"waits: {place.reason or place.state}{hint}"
        if where != probe.last_shown:
            probe.last_shown = where
            show(f"arm {probe.arm}: probe job {place.job} {where}")

    def _judge(self, probe: ClusterProbe, folder: AttemptFolder, sighting: Sighting) -> None:
        record = sighting.exit
        probe.host_bytes = record.peak_bytes if record is not None else None
        probe.wall_seconds = round(record.wall_seconds, 3) if record is not None else 0.0
        progressed = probe.passes_on_progress and probe.adapter.read(probe.run, folder.output).agent_steps > 0
        asked = read_json(folder.stop)
        timed_out = isinstance(asked, dict) and str(asked.get("reason")).startswith("timeout")
        fine = record is not None and record.exit_code == 0 and record.asked_to_stop is None and not record.oom_kills
        if fine and probe.passes_on_progress and not progressed and not probe.run.probe.exists():
            probe.evidence = unreadable(probe.adapter, list(ADAPTERS.values()), probe.run, folder.output)
            probe.cause, probe.reason = UNREADABLE, "; ".join(probe.evidence)
            return
        if fine or probe.passed or (progressed and not timed_out and record is not None and record.exit_code == 0):
            probe.passed = True
            return
        if probe.stuck:
            probe.cause, probe.reason, probe.evidence = Cause.BAD_CONFIG.value, probe.stuck, [probe.stuck]
            return
        text = f"{read_tail(folder.output)}\n{sighting.facts.get('scheduler_output', '')}"
        found = diagnose(
            AttemptEvidence(
                exit=record,
                output_tail=text,
                asked_to_stop=str(asked["reason"]) if isinstance(asked, dict) else None,
                memory_limit_bytes=memory_bytes(self.slurm.memory),
                slurm=sighting.facts.get("slurm"),
            )
        )
        probe.cause, probe.reason, probe.evidence = found.cause.value, found.key_quote, found.quotes


def ask_and_run(
    preflight: ClusterPreflight, probes: Sequence[ClusterProbe], limit_seconds: float, show: Show
) -> tuple[list[str], str]:
    """Faults that stop the launch before any probe, and the scheduler's answer; probes run only without faults."""
    try:
        answer = preflight.ask()
    except DreamproofError as error:
        return [f"cluster: {error.seen}; hint: {error.hint}"], ""
    show(f"scheduler: {answer}")
    preflight.run(probes, limit_seconds, show)
    return [], answer

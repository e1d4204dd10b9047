"""Every cause of death is named from evidence and quoted; where evidence is missing, that is reported."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamproof.base.files import read_tail
from dreamproof.runs.records import ExitRecord, FrozenRecord, Heartbeat
from dreamproof.study.diagnosis.diagnose import AttemptEvidence, Cause, Diagnosis, SlurmEvidence, diagnose

TAILS = Path(__file__).parent / "log_tails"
CODE = {"exit_code": 1}
FROZEN = FrozenRecord(agent_steps=700, gradient_steps=350, reason="loss_actor is nan")


def ended(**fields: Any) -> ExitRecord:
    return ExitRecord(wall_seconds=12.0, **fields)


def judge(tail: str = "", exit_fields: dict[str, Any] | None = None, **more: Any) -> Diagnosis:
    record = None if exit_fields is None else ended(**exit_fields)
    return diagnose(AttemptEvidence(exit=record, output_tail=tail, **more))


# file, how the process ended, further evidence, a part of what must be quoted
TABLE: list[tuple[str, dict[str, Any] | None, dict[str, Any], str]] = [
    ("import_error-module", CODE, {}, "ModuleNotFoundError: No module named 'envs'"),
    ("import_error-python-m", CODE, {}, "No module named safe_trainer"),
    ("import_error-rich", CODE, {}, "cannot import name 'FlowAgent'"),
    ("import_error-not-utf8", CODE, {}, "No module named 'jaxx'"),
    ("bad_config-missing-key", CODE, {}, "KeyError: 'action_dims'"),
    ("bad_config-omegaconf", CODE, {}, "Key 'action_dims' is not in struct"),
    ("bad_config-arguments", {"exit_code": 2}, {}, "unrecognized arguments: --setps"),
    ("bad_config-chained-keyword", CODE, {}, "unexpected keyword argument 'horizont'"),
    ("bad_config-no-script", {"exit_code": 2}, {}, "can't open file"),
    ("bug-traceback", CODE, {}, "TypeError: sub got incompatible shapes"),
    ("bug-plain-key", CODE, {}, "KeyError: 4096"),
    ("bug-segfault", {"signal": 11}, {}, "SIGSEGV"),
    ("bug-segfault", {"exit_code": 139}, {}, "SIGSEGV"),
    ("bug-syntax", CODE, {}, "SyntaxError: '(' was never closed"),
    ("bug-attribute", CODE, {}, "module 'numpy' has no attribute 'bool'"),
    ("bug-group", CODE, {}, "ValueError: environment 3 gave a reward of the wrong shape"),
    ("bug-stamped", CODE, {}, "ZeroDivisionError: division by zero"),
    ("bad_config-namespace", CODE, {}, "'Namespace' object has no attribute 'action_dims'"),
    ("bad_config-file", CODE, {}, "cfg/alg/pwm_48M_flow.yaml"),
    ("device_oom-child", CODE, {}, "torch.OutOfMemoryError"),
    ("import_error-ray", CODE, {}, "No module named 'dm_control'"),
    ("nan-convert", CODE, {}, "cannot convert float NaN to integer"),
    ("nan-floating-point", CODE, {}, "FloatingPointError"),
    ("nan-torch-distribution", CODE, {}, "nan, nan"),
    ("nan-message", {"exit_code": 3}, {}, "the loss is not finite at step 8990"),
    ("nan-frozen", {"exit_code": 0}, {"frozen": FROZEN}, "frozen at 700 agent steps, 350 updates: loss_actor is nan"),
    ("host_oom-slurmstepd", {"signal": 9}, {}, "Detected 1 oom_kill event"),
    ("host_oom-slurm-new-words", CODE, {}, "Out Of Memory"),
    ("host_oom-over-memory-kill", {"signal": 9}, {}, "exceeded memory limit (265826304 > 104857600)"),
    ("host_oom-memory-error", CODE, {}, "Unable to allocate 31.2 GiB"),
    ("host_oom-worker", {"exit_code": 0, "oom_kills": 1}, {}, "oom_kill counter rose by 1"),
    ("host_oom-broken-pool", {"exit_code": 1, "oom_kills": 1}, {}, "oom_kill counter rose by 1"),
    ("device_oom-jax", CODE, {}, "RESOURCE_EXHAUSTED: Out of memory"),
    ("device_oom-torch", CODE, {}, "torch.OutOfMemoryError: CUDA out of memory"),
    ("device_oom-cuda-abort", {"signal": 6}, {}, "CUDA error: out of memory"),
    ("device_oom-cleanup-failed", CODE, {}, "torch.cuda.OutOfMemoryError"),
    ("disk_full-python", CODE, {}, "No space left on device"),
    ("disk_full-quota", CODE, {}, "Disk quota exceeded"),
    ("killed-bare", {"signal": 9}, {}, "sender unknown"),
    ("killed-bare", {"exit_code": 137, "oom_kills": 0}, {}, "sender unknown (oom_kill counter did not rise"),
    ("killed-sigterm-exit-zero", {"exit_code": 0}, {}, "stopped by SIGTERM at 412"),
    ("killed-interrupt", CODE, {}, "KeyboardInterrupt"),
    ("hangup-ssh", {"signal": 1}, {}, "SIGHUP"),
    ("hangup-ssh", {"exit_code": 129}, {}, "SIGHUP"),
    ("timeout-slurm", {"signal": 15}, {}, "DUE TO TIME LIMIT"),
    ("preempted-slurm", {"signal": 15}, {}, "DUE TO PREEMPTION"),
    ("bad_config-unseen-path", CODE, {}, "/scratch/lab/paper/attempts cannot be seen from node n12"),
    ("node_lost-slurm", {"signal": 15}, {}, "DUE TO NODE FAILURE"),
    ("node_lost-device", CODE, {}, "uncorrectable ECC"),
    ("stalled-silent", {"signal": 9, "asked_to_stop": "stalled: no progress for 300 s"}, {}, "no progress for 300 s"),
    ("stopped_by_user-saved", {"exit_code": 0, "asked_to_stop": "user"}, {}, "asked to stop: user"),
    ("stopped_by_user-saved", {"exit_code": 1, "asked_to_stop": "budget"}, {}, "asked to stop: budget"),
    ("vanished-silent", None, {}, "its exit was not recorded"),
    (
        "locked-never-began",
        {
            "exit_code": 127,
            "asked_to_stop": "locked: runs/a-seed0/.dreamproof.lock is locked: another process works on it",
        },
        {},
        "another process works on it",
    ),
    ("completed-plain", {"exit_code": 0}, {"proven": True}, "every cell is proven"),
    (
        "unknown-early-end",
        {"exit_code": 0},
        {"unproven_reason": "no checkpoint"},
        "the proof is missing: no checkpoint",
    ),
    ("unknown-exit-three", {"exit_code": 3}, {}, "last line: something went wrong"),
    ("unknown-survived-traceback", {"exit_code": 3}, {}, "no traceback and no fatal line"),
    ("unknown-best-inf", {"exit_code": 1}, {}, "last line: evaluation done, best inf"),
    ("unknown-survived-device-warning", {"exit_code": 1}, {}, "last line: step 300 loss 2.8"),
    ("unknown-device-warning-is-last", {"exit_code": 1}, {}, "falling back to rematerialisation"),
    ("unknown-allocator-retry", {"exit_code": 4}, {}, "last line: [600/20000] R:10.4"),
    ("unknown-no-apex", {"exit_code": 1}, {}, "last line: building networks"),
    ("unknown-optional-import-traceback", {"exit_code": 3}, {}, "last line: attention: plain"),
    ("unknown-fallback-after-traceback", {"exit_code": 9}, {}, "falling back to 2 micro-batches"),
    ("bug-echoed-oom-killer", {"exit_code": 1}, {}, "IndexError: index 64"),
    ("unknown-echoed-states", {"exit_code": 0}, {"unproven_reason": "no checkpoint"}, "last line: done"),
    ("unknown-echoed-arguments", {"exit_code": 1}, {}, "last line: starting"),
    ("unknown-nan-in-metrics", {"exit_code": 5}, {}, "last line: saved"),
    ("unknown-mujoco-warning", {"exit_code": 1}, {}, "last line: [1000/20000] R:31.0"),
    ("unknown-network-retry", {"exit_code": 1}, {}, "entering retry loop"),
    ("unknown-survived-video-error", {"exit_code": 1}, {}, "no traceback and no fatal line"),
    ("unknown-ignored-exception", {"exit_code": 4}, {}, "TypeError: 'NoneType' object is not callable"),
    ("unknown-logging-error", {"exit_code": 4}, {}, "last line: step 1000 return 3.1"),
    ("unknown-thread-panic-survived", {"exit_code": 3}, {}, "last line: step 200 loss 0.8"),
    ("unknown-box-bounds", {"exit_code": 1}, {}, "last line: exiting"),
    ("bug-box-bounds", {"exit_code": 1}, {}, "AssertionError: action of shape"),
    ("bug-wandb-summary-after-traceback", {"exit_code": 1}, {}, "ValueError: operands could not be broadcast"),
    ("bug-handler-after-optional-import", {"exit_code": 1}, {}, "NameError: name 'count' is not defined"),
    ("import_error-raised-again", {"exit_code": 1}, {}, "No module named 'apex'"),
    ("bug-memory-in-a-message", {"exit_code": 1}, {}, "LookupError: no entry 12"),
    ("bug-grpc-exhausted", {"exit_code": 1}, {}, "_InactiveRpcError"),
    ("bug-progress-bar-after-traceback", {"exit_code": 1}, {}, "RuntimeError: shape '[16, 64]' is invalid"),
    ("unknown-bar-goes-on", {"exit_code": 3}, {}, "last line:"),
    ("device_oom-coloured", {"exit_code": 1}, {}, "CUDA out of memory"),
    ("import_error-utf16", {"exit_code": 1}, {}, "No module named 'gymnasium'"),
    ("bug-very-long-line", {"exit_code": 1}, {}, "[0.12, 0.33]"),
    ("bug-rust-panic", {"exit_code": 101}, {}, "panicked at src/replay.rs:118:22"),
    ("bug-rust-backtrace", {"exit_code": 101}, {}, "panicked at 'called `Option::unwrap()`"),
    ("bug-rust-in-python", {"exit_code": 1}, {}, "pyo3_runtime.PanicException"),
    ("host_oom-rust", {"signal": 6}, {}, "memory allocation of 34359738368 bytes failed"),
    ("disk_full-rust", {"exit_code": 101}, {}, "StorageFull"),
    ("bad_config-clap", {"exit_code": 2}, {}, "unexpected argument '--lerning-rate' found"),
    ("host_oom-bad-alloc", {"exit_code": 134}, {}, "std::bad_alloc"),
    ("bug-terminate", {"signal": 6}, {}, "std::out_of_range"),
    ("bug-double-free", {"signal": 6}, {}, "double free or corruption"),
    ("bug-assertion", {"signal": 6}, {}, "Assertion `value <= total' failed"),
    ("bug-faulthandler-threads", {"signal": 11}, {}, "Fatal Python error: Segmentation fault"),
    ("bug-shell-segfault", {"exit_code": 1}, {}, "Segmentation fault"),
    ("killed-by-shell", {"exit_code": 1}, {}, "4242 Killed"),
    ("bug-go-panic", {"exit_code": 2}, {}, "panic: runtime error"),
    ("bug-illegal-memory-access", {"signal": 6}, {}, "an illegal memory access was encountered"),
    ("bug-device-assert", {"exit_code": 1}, {}, "device-side assert triggered"),
    ("bug-nccl-watchdog", {"signal": 6}, {}, "Watchdog caught collective operation timeout"),
    ("node_lost-xid", {"exit_code": 1}, {}, "fallen off the bus"),
    ("bad_config-driver", {"exit_code": 1}, {}, "driver version is insufficient"),
    ("device_oom-cupy", {"exit_code": 1}, {}, "cupy.cuda.memory.OutOfMemoryError"),
    ("device_oom-tensorflow", {"exit_code": 1}, {}, "OOM when allocating tensor"),
    ("device_oom-cublas", {"exit_code": 1}, {}, "CUBLAS_STATUS_ALLOC_FAILED"),
    ("device_oom-xla-abort", {"signal": 6}, {}, "CUDA_ERROR_OUT_OF_MEMORY"),
    ("device_oom-hydra-wrapped", {"exit_code": 1}, {}, "CUDA out of memory"),
    ("device_oom-other-rank-works-on", {"exit_code": 1}, {}, "torch.OutOfMemoryError"),
    ("killed-torchrun-worker", {"exit_code": 1}, {}, "Signal 9 (SIGKILL) received by PID 4243"),
    ("killed-dataloader-worker", {"exit_code": 1}, {}, "is killed by signal: Killed"),
    ("bug-srun-labels", {"exit_code": 1}, {}, "KeyError: 'rewards'"),
    ("bad_config-hydra-override", {"exit_code": 1}, {}, "Key 'horizont' is not in struct"),
    ("bad_config-hydra-group", {"exit_code": 1}, {}, "Could not find 'alg/pwm_48M_flow'"),
    ("bad_config-pydantic", {"exit_code": 1}, {}, "1 validation error for Settings"),
    ("bad_config-choice", {"exit_code": 2}, {}, "invalid choice: 'chetah'"),
    ("bad_config-click", {"exit_code": 2}, {}, "No such option: --sead"),
    ("bad_config-permission", {"exit_code": 1}, {}, "PermissionError: [Errno 13]"),
    ("bad_config-wandb-key", {"exit_code": 1}, {}, "api_key not configured"),
    ("bad_config-gated-model", {"exit_code": 1}, {}, "GatedRepoError"),
    ("network-requests", {"exit_code": 1}, {}, "requests.exceptions.ConnectionError"),
    ("network-wandb", {"exit_code": 1}, {}, "CommError"),
    ("import_error-shared-library", {"exit_code": 1}, {}, "libOSMesa.so.8"),
    ("import_error-symbol", {"exit_code": 1}, {}, "undefined symbol"),
    ("bad_config-no-display", {"exit_code": 1}, {}, "OpenGL platform library"),
    ("nan-physics", {"exit_code": 1}, {}, "mjWARN_BADQACC"),
    ("nan-stopping", {"exit_code": 1}, {}, "Loss is nan, stopping training"),
    ("nan-anomaly", {"exit_code": 1}, {}, "returned nan values"),
    ("host_oom-shared-memory", {"exit_code": 1}, {}, "insufficient shared memory"),
    ("host_oom-kernel-line", {"signal": 9}, {}, "Killed process 4242"),
    ("disk_full-while-handling", {"exit_code": 1}, {}, "No space left on device"),
    ("node_lost-stale-disk", {"exit_code": 1}, {}, "Stale file handle"),
    ("killed-interrupt-pool", {"exit_code": 130}, {}, "KeyboardInterrupt"),
    ("bug-hidden-token", {"exit_code": 1}, {}, "ValueError: bad answer for token=[secret]"),
    (
        "not_saved-safedreamer",
        {"exit_code": 0},
        {"not_saved": True, "unproven_reason": "a/0: checkpoint.ckpt was written at 1% of the run"},
        "trained to its end and not saved: a/0: checkpoint.ckpt was written at 1% of the run",
    ),
]


@pytest.mark.parametrize(("name", "exit_fields", "more", "quoted"), TABLE, ids=[f"{row[0]}-{row[1]}" for row in TABLE])
def test_a_log_tail_gives_the_cause_in_its_name(
    name: str, exit_fields: dict[str, Any] | None, more: dict[str, Any], quoted: str
) -> None:
    judged = judge(read_tail(TAILS / f"{name}.txt"), exit_fields, **more)
    assert judged.cause == name.split("-")[0], judged.quotes
    assert any(quoted in line for line in judged.quotes), judged.quotes
    if not more.get("proven"):
        last = ("last line: ", "its output is empty")
        assert any(line.startswith(last) for line in judged.quotes), judged.quotes


@pytest.mark.parametrize(
    ("free", "cause"), [(4096, Cause.DISK_FULL), (1 << 40, Cause.NOT_SAVED), (None, Cause.NOT_SAVED)]
)
def test_what_a_full_disk_did_not_save_is_not_the_trainers_fault(free: int | None, cause: Cause) -> None:
    judged = judge("done", {"exit_code": 0}, not_saved=True, unproven_reason="a/0: m.pt is empty", disk_free_bytes=free)
    assert judged.cause is cause
    assert "trained to its end and not saved: a/0: m.pt is empty" in judged.quotes


def test_every_cause_has_a_log_tail_and_every_log_tail_is_judged() -> None:
    files = {path.stem for path in TAILS.glob("*.txt")}
    assert {name.split("-")[0] for name in files} == set(Cause)
    assert files == {row[0] for row in TABLE}
    assert len(files) >= 60


def test_a_token_in_the_output_is_not_quoted() -> None:
    judged = judge(read_tail(TAILS / "bug-hidden-token.txt"), CODE)
    assert not any("hf_A" in line or "0123456789abcdef" in line for line in judged.quotes), judged.quotes


def test_quotes_hold_nothing_that_a_terminal_obeys() -> None:
    tail = "step 1\n\x1b]0;owned\x07\x1b[2Jgone\x9b31m\u202eabc\x08\x7f\n"
    judged = judge(tail, CODE)
    assert all(character.isprintable() for line in judged.quotes for character in line), judged.quotes


def test_one_signal_has_three_causes_and_only_evidence_separates_them() -> None:
    sent = ended(signal=9, oom_kills=0)
    assert diagnose(AttemptEvidence(exit=sent)).cause is Cause.KILLED
    counted = diagnose(AttemptEvidence(exit=sent.model_copy(update={"oom_kills": 1})))
    assert counted.cause is Cause.HOST_OOM
    line = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=25706,uid=0"
    diagnosis = diagnose(AttemptEvidence(exit=sent.model_copy(update={"kernel_lines": [line], "oom_kills": None})))
    assert (diagnosis.cause, line in diagnosis.quotes) == (Cause.HOST_OOM, True)
    unreadable = diagnose(AttemptEvidence(exit=sent.model_copy(update={"oom_kills": None})))
    assert unreadable.cause is Cause.KILLED
    assert "sender unknown (oom_kill counter not readable, no kernel line)" in unreadable.quotes


def test_a_kill_that_belongs_to_another_attempt_is_not_taken_for_this_one() -> None:
    shared = AttemptEvidence(exit=ended(signal=9, oom_kills=1), others_killed_for_memory=1)
    assert diagnose(shared).cause is Cause.KILLED
    assert diagnose(replace(shared, others_killed_for_memory=0)).cause is Cause.HOST_OOM


def test_memory_near_its_limit_is_a_hint_and_no_proof() -> None:
    judged = judge("", {"signal": 9, "peak_bytes": 990}, memory_limit_bytes=1000)
    assert judged.cause is Cause.KILLED
    assert "hint, no proof: peak memory 990 B of 1000 B allowed" in judged.quotes


def test_exit_zero_without_proof_is_not_completed() -> None:
    judged = judge("", {"exit_code": 0}, unproven_reason="checkpoint at 50 of 100 agent steps")
    assert judged.cause is Cause.UNKNOWN
    assert "but the proof is missing: checkpoint at 50 of 100 agent steps" in judged.quotes


def test_a_proof_stands_however_the_process_ended() -> None:
    assert judge("", None, proven=True).cause is Cause.COMPLETED
    killed = judge("", {"signal": 9}, proven=True)
    assert killed.cause is Cause.COMPLETED and "its process then ended otherwise: signal 9" in killed.quotes[-1]
    assert judge("", {"exit_code": 0}, proven=True).quotes == ["every cell is proven"]
    judged = judge("", {"exit_code": 0, "oom_kills": 2}, proven=True)
    assert judged.cause is Cause.COMPLETED
    assert "killed 2 processes" in judged.quotes[-1]


def test_a_restarted_machine_is_a_lost_node() -> None:
    assert judge("", None, machine_restarted=True).cause is Cause.NODE_LOST


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("[Errno 2] No such file or directory: 'pyhton'", Cause.BAD_CONFIG),
        ("[Errno 13] Permission denied: './train.sh'", Cause.BAD_CONFIG),
        ("[Errno 12] Cannot allocate memory", Cause.HOST_OOM),
        ("[Errno 28] No space left on device", Cause.DISK_FULL),
    ],
)
def test_a_command_that_could_not_be_started_says_why(error: str, cause: Cause) -> None:
    judged = judge("", {"exit_code": 127, "spawn_error": error})
    assert judged.cause is cause
    assert error in judged.quotes[0]


def test_a_missing_command_of_a_shell_is_a_bad_config() -> None:
    assert judge("sh: 1: pyhton: not found", {"exit_code": 127}).cause is Cause.BAD_CONFIG


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (1, Cause.HANGUP),
        (2, Cause.KILLED),
        (6, Cause.BUG),
        (8, Cause.BUG),
        (11, Cause.BUG),
        (15, Cause.KILLED),
        (24, Cause.TIMEOUT),
        (25, Cause.DISK_FULL),
        (64, Cause.KILLED),
    ],
)
def test_signals_by_themselves(number: int, cause: Cause) -> None:
    assert judge("", {"signal": number}).cause is cause


def test_a_bus_error_on_a_full_disk_is_a_full_disk() -> None:
    assert judge("", {"signal": 7}, disk_free_bytes=4096).cause is Cause.DISK_FULL
    assert judge("", {"signal": 7}, disk_free_bytes=1 << 40).cause is Cause.BUG


@pytest.mark.parametrize(
    ("asked", "cause"),
    [
        ("user", Cause.STOPPED_BY_USER),
        ("budget", Cause.STOPPED_BY_USER),
        ("stalled: state T", Cause.STALLED),
        ("timeout after 3 h", Cause.TIMEOUT),
        ("preempted", Cause.PREEMPTED),
        ("memory guard", Cause.HOST_OOM),
    ],
)
@pytest.mark.parametrize("exit_fields", [{"signal": 15}, {"signal": 9}, {"exit_code": 0}, {"exit_code": 143}])
def test_who_asked_decides_when_the_stop_was_ours(asked: str, cause: Cause, exit_fields: dict[str, Any]) -> None:
    assert judge("", {**exit_fields, "asked_to_stop": asked}).cause is cause


def test_a_command_that_ignored_the_stop_is_said_to_have_been_killed() -> None:
    found = judge("", {"signal": 9, "asked_to_stop": "user", "killed_after_seconds": 60.0})
    assert found.cause is Cause.STOPPED_BY_USER
    assert "did not end within 60 s after SIGTERM, so it was killed" in found.quotes


def test_a_failure_during_the_stop_is_still_named() -> None:
    tail = read_tail(TAILS / "disk_full-python.txt")
    assert judge(tail, {"exit_code": 1, "asked_to_stop": "user"}).cause is Cause.DISK_FULL


# The truth table of a cluster: state, exit, derived exit, reason, steps, what the log says, cause.
SLURM: list[tuple[SlurmEvidence, str, Cause]] = [
    (SlurmEvidence("COMPLETED"), "", Cause.UNKNOWN),
    (SlurmEvidence("FAILED", "1:0", reason="NonZeroExitCode"), "import_error-module", Cause.IMPORT_ERROR),
    (SlurmEvidence("FAILED", "3:0", reason="NonZeroExitCode"), "", Cause.UNKNOWN),
    (SlurmEvidence("FAILED", "139:0"), "bug-segfault", Cause.BUG),
    (SlurmEvidence("FAILED", "0:9", reason="JobLaunchFailure"), "", Cause.KILLED),
    (SlurmEvidence("FAILED", "0:9", reason="JobLaunchFailure"), "host_oom-over-memory-kill", Cause.HOST_OOM),
    (SlurmEvidence("OUT_OF_MEMORY", "0:125", reason="OutOfMemory"), "", Cause.HOST_OOM),
    (SlurmEvidence("OUT_OF_MEMORY", "0:0", reason="OutOfMemory"), "", Cause.HOST_OOM),
    (SlurmEvidence("FAILED", "1:0", "0:125", step_states={"71.0": "OUT_OF_MEMORY"}), "", Cause.HOST_OOM),
    (SlurmEvidence("FAILED", "1:0", "0:125"), "", Cause.HOST_OOM),
    (SlurmEvidence("FAILED", "137:0", step_states={"71.0": "CANCELLED"}), "", Cause.KILLED),
    (SlurmEvidence("TIMEOUT", "0:15", reason="TimeLimit"), "", Cause.TIMEOUT),
    (SlurmEvidence("PREEMPTED", "0:15"), "", Cause.PREEMPTED),
    (SlurmEvidence("CANCELLED by 0", "0:15"), "", Cause.STOPPED_BY_USER),
    (SlurmEvidence("NODE_FAIL", "0:0"), "", Cause.NODE_LOST),
]


@pytest.mark.parametrize(("slurm", "tail", "cause"), SLURM, ids=[f"{row[0].job_state}-{row[2]}" for row in SLURM])
def test_what_a_cluster_says_is_evidence_too(slurm: SlurmEvidence, tail: str, cause: Cause) -> None:
    text = read_tail(TAILS / f"{tail}.txt") if tail else ""
    assert diagnose(AttemptEvidence(output_tail=text, slurm=slurm)).cause is cause


@pytest.mark.parametrize(
    ("exit_fields", "cause"),
    [
        ({"signal": 15}, Cause.PREEMPTED),
        ({"signal": 9}, Cause.PREEMPTED),
        ({"exit_code": 0}, Cause.PREEMPTED),
        ({"exit_code": 1}, Cause.PREEMPTED),
        ({"signal": 11}, Cause.BUG),
        ({"exit_code": 0, "asked_to_stop": "timeout: the time limit is near"}, Cause.TIMEOUT),
        ({"exit_code": 1, "asked_to_stop": "timeout: the time limit is near"}, Cause.TIMEOUT),
    ],
)
def test_a_job_that_was_put_back_is_preempted_unless_more_is_known(exit_fields: dict[str, Any], cause: Cause) -> None:
    slurm = SlurmEvidence("REQUEUED", reason="Restarts=1")
    assert judge("", exit_fields, slurm=slurm).cause is cause


def test_our_own_stop_of_a_cluster_job_keeps_its_reason() -> None:
    slurm = SlurmEvidence("CANCELLED by 0", "0:15")
    assert diagnose(AttemptEvidence(slurm=slurm, asked_to_stop="stalled")).cause is Cause.STALLED


def test_trying_again_may_help_only_where_the_cause_lay_outside_the_program() -> None:
    assert judge("", {"signal": 9}).transient
    assert not judge(read_tail(TAILS / "import_error-module.txt"), CODE).transient
    assert not judge(read_tail(TAILS / "device_oom-jax.txt"), CODE).transient
    assert not judge("", {"signal": 9, "oom_kills": 1}).transient


def test_the_last_heartbeat_is_part_of_the_evidence() -> None:
    judged = judge("", {"signal": 9}, heartbeat=Heartbeat(agent_steps=3005, gradient_steps=1500))
    assert judged.quotes[-1] == "last heartbeat: 3,005 agent steps, 1,500 updates, phase train"


def test_a_huge_output_without_lines_is_judged_quickly(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(b"x" * 70000 + b"\xff\xfe no newline at all")
    judged = judge(read_tail(path), {"exit_code": 5})
    assert judged.cause is Cause.UNKNOWN
    assert all(len(line) <= 400 for line in judged.quotes)


@settings(max_examples=150, deadline=None)
@given(
    tail=st.text(max_size=3000),
    code=st.one_of(st.none(), st.integers(-5, 260)),
    number=st.one_of(st.none(), st.integers(1, 64)),
    kills=st.one_of(st.none(), st.integers(0, 3)),
    proven=st.booleans(),
)
def test_any_evidence_at_all_gets_a_cause_with_a_quote(
    tail: str, code: int | None, number: int | None, kills: int | None, proven: bool
) -> None:
    record = None if code is None and number is None else ended(exit_code=code, signal=number, oom_kills=kills)
    judged = diagnose(AttemptEvidence(exit=record, output_tail=tail, proven=proven))
    assert judged.cause in set(Cause)
    assert judged.quotes and all(judged.quotes)
    assert (judged.cause is Cause.COMPLETED) == proven

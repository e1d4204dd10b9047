"""A trainer in plain Python: counts, saves, and fails where a test injects a fault.

It logs every step with its process id into RUN_DIR/steps.log: a step that is trained twice shows there.
RUN_DIR/fault.json {"at": step, "kind": ..., "times": n} injects a fault; RUN_DIR/faults_injected counts them.
With `--hold-at N` it waits after N steps for the file `continue` in the study folder.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

stop = False


def ask_to_stop(number: int, frame: object) -> None:
    global stop
    stop = True


def write(path: Path, value: object) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value))
    os.replace(draft, path)


def checkpoints(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("step-" + "[0-9]" * 12))


def resume(run: Path) -> tuple[int, str]:
    found = checkpoints(run)
    if not found:
        return 0, hashlib.sha256(run.name.encode()).hexdigest()
    state = json.loads((found[-1] / "weights.json").read_text())
    return state["agent_steps"], state["weights"]


def save(run: Path, step: int, weights: str, task: str) -> None:
    folder = run / "checkpoints" / f"step-{step:012d}"
    partial = run / "checkpoints" / f".partial-{step}-{os.getpid()}"
    partial.mkdir(parents=True)
    content = json.dumps({"agent_steps": step, "weights": weights, "padding": "x" * 2000})
    (partial / "weights.json").write_text(content)
    record = {
        "agent_steps": step,
        "gradient_steps": step,
        "parameter_hash": hashlib.sha256(weights.encode()).hexdigest(),
        "finite": True,
        "files": {"weights.json": hashlib.sha256(content.encode()).hexdigest()},
        "task": task,
    }
    write(partial / "record.json", record)
    if folder.exists():
        return
    os.rename(partial, folder)
    for old in checkpoints(run)[:-3]:
        for path in old.iterdir():
            path.unlink()
        old.rmdir()


def injected_fault(run: Path, step: int) -> str | None:
    """The kind of fault to inject at this step, if any; counts it."""
    path = run / "fault.json"
    if not path.exists():
        return None
    declared = json.loads(path.read_text())
    injected = run / "faults_injected"
    count = len(injected.read_text()) if injected.exists() else 0
    if step < declared["at"] or count >= declared.get("times", 1):
        return None
    with injected.open("a") as file:
        file.write("x")
    return str(declared["kind"])


def use_some_cpu() -> None:
    """About an eighth of a core: enough not to be idle, and other tests can work."""
    until = time.process_time() + 0.005
    while time.process_time() < until:
        pass
    time.sleep(0.035)


def fail(kind: str, run: Path, step: int) -> None:
    if kind == "exception":
        raise RuntimeError(f"scripted failure at step {step}")
    if kind == "nan":
        record = {"agent_steps": step, "gradient_steps": step, "reason": "loss is nan"}
        write(run / "frozen.json", record)
        sys.exit(3)
    if kind == "spin":
        while not stop:
            use_some_cpu()
        sys.exit(0)
    if kind == "spin_without_signals":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            use_some_cpu()
    if kind == "hog":
        hoard = []
        while True:
            hoard.append(bytearray(8_000_000))
    if kind == "disk":
        with (run / "fill").open("wb") as file:
            while True:
                file.write(b"x" * 65536)
    if kind == "import":
        import a_module_that_is_not_there  # noqa: F401
    if kind == "quiet_exit":
        sys.exit(0)
    if kind == "device":
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes on GPU_0")
    if kind == "pause":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "survived":
        print("WARNING: RESOURCE_EXHAUSTED: out of memory while trying to allocate 1 GiB; falling back", flush=True)
        raise RuntimeError(f"scripted failure at step {step}, long after a warning")
    if kind == "rust":
        print(
            "thread 'main' panicked at src/main.rs:12:5:\nindex out of bounds: the len is 3 but the index is 7",
            flush=True,
        )
        print("note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace", flush=True)
        sys.exit(101)
    if kind == "abort":
        print("terminate called after throwing an instance of 'std::runtime_error'\n  what():  broken", flush=True)
        os.abort()
    if kind == "deadlock":
        lock = threading.Lock()
        with lock:
            lock.acquire()
    if kind == "fifo":
        os.mkfifo(run / "fifo")
        (run / "fifo").read_text()
    if kind == "child":
        subprocess.run(["sleep", "100000"], check=False)


def hold(run: Path) -> None:
    """Waits for the file `continue` in the study folder, or for a request to stop."""
    while not stop and not (run.parents[1] / "continue").exists():
        time.sleep(0.02)


def train(run: Path, options: argparse.Namespace) -> None:
    declared = json.loads((run / "settings.json").read_text())
    step, weights = resume(run)
    total = 2 if os.environ.get("DREAMPROOF_PROBE") == "1" else declared["agent_steps"]
    with (run / "steps.log").open("a") as log:
        while step < total and not stop:
            fault = injected_fault(run, step)
            if fault is not None:
                fail(fault, run, step)
            if step == options.hold_at:
                hold(run)
            time.sleep(options.step_seconds)
            step += 1
            weights = hashlib.sha256(f"{weights}{step}".encode()).hexdigest()
            log.write(f"{os.getpid()} {step}\n")
            log.flush()
            beat = {"agent_steps": step, "gradient_steps": step, "phase": "train", "beat": step}
            write(run / "heartbeat.json", beat)
            if step % options.save_every == 0 or step == total:
                save(run, step, weights, declared["task"])
    if step < total:
        save(run, step, weights, declared["task"])


def evaluate(run: Path, options: argparse.Namespace) -> None:
    declared = json.loads((run / "settings.json").read_text())
    time.sleep(options.step_seconds)
    record = json.loads((checkpoints(run)[-1] / "record.json").read_text())
    (run / "evaluations").mkdir(exist_ok=True)
    returns = [float(declared["settings"].get("level", 1)) + declared["seed"]] * declared["evaluation_episodes"]
    evaluated = {key: record[key] for key in ("agent_steps", "gradient_steps", "parameter_hash")}
    value = {
        "condition": options.evaluate,
        "kind": "in_distribution",
        "task": declared["task"],
        "checkpoints": {"final": {**evaluated, "episodes": {"return": returns}}},
    }
    write(run / "evaluations" / f"{options.evaluate}.json", value)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--step-seconds", type=float, default=0.01)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--hold-at", type=int)
    parser.add_argument("--evaluate")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, ask_to_stop)
    (evaluate if options.evaluate else train)(options.run, options)


main()

"""A trainer that dies in the way its arm names; everything else about it is a real small trainer."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def save(run: Path, step: int, task: str) -> None:
    folder = run / "checkpoints" / f"step-{step:012d}"
    if folder.exists():
        return
    partial = run / "checkpoints" / f".partial-{os.getpid()}"
    partial.mkdir(parents=True)
    content = json.dumps({"step": step})
    (partial / "weights.json").write_text(content)
    digest = hashlib.sha256(content.encode()).hexdigest()
    record = {"agent_steps": step, "gradient_steps": step, "parameter_hash": digest, "finite": True}
    record |= {"files": {"weights.json": digest}, "task": task}
    (partial / "record.json").write_text(json.dumps(record))
    os.rename(partial, folder)


def hog(bytes_at_a_time: int = 4_000_000, gap_seconds: float = 0.01) -> None:
    hoard = []
    while True:
        hoard.append(bytearray(b"x") * bytes_at_a_time)
        time.sleep(gap_seconds)


def train(run: Path, step_seconds: float) -> None:
    """Counts to the declared steps; saves every fifth, and when it is asked to stop.

    An arm with `hold_at` waits after so many steps for the file `continue` in the study folder.
    """
    given = json.loads((run / "settings.json").read_text())
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    kept = sorted((run / "checkpoints").glob("step-*"))
    step = int(kept[-1].name.removeprefix("step-")) if kept else 0
    with (run / "steps.log").open("a") as log:
        while step < given["agent_steps"] and not asked:
            if step == given["settings"].get("hold_at") and not (run.parents[1] / "continue").exists():
                time.sleep(0.02)
                continue
            time.sleep(step_seconds)
            step += 1
            log.write(f"{os.getpid()} {step}\n")
            log.flush()
            if step % 5 == 0:
                save(run, step, given["task"])
    save(run, step, given["task"])


def die(kind: str, run: Path) -> None:
    python = [sys.executable, __file__, str(run)]
    if kind == "exit_3":
        sys.exit(3)
    if kind == "import_error":
        import a_module_that_is_not_there  # noqa: F401
    if kind == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "memory":
        hog()
    if kind == "leaks":
        hog(850_000, 0.7)  # a trend needs a minute; 120 MB take 100 seconds
    if kind == "memory_of_a_child":
        subprocess.run([*python, "memory"], check=False)
        sys.exit(0)
    if kind == "memory_in_a_step":
        sys.exit(subprocess.run(["srun", *python, "memory"], check=False).returncode)
    if kind == "killed_in_a_step":
        script = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        sys.exit(subprocess.run(["srun", sys.executable, "-c", script], check=False).returncode)
    if kind == "requeued" and (run / "started").exists():
        sys.exit(3)
    (run / "started").touch()
    time.sleep(1200)


if __name__ == "__main__":
    place, what = Path(sys.argv[1]), sys.argv[2]
    if what.startswith("needs_"):
        hoard = [bytearray(b"x") * 1_000_000 for _ in range(int(what.removeprefix("needs_")))]
        time.sleep(3.0)  # whoever watches the memory looks once a second
    if what.startswith(("works", "needs_")):
        train(place, float(sys.argv[3]))
    else:
        die(what, place)

"""How much memory it takes to look through a large chunk: `python -m benchmarks.chunks --gigabytes 10`."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dreamproof.data.chunk_writer import write_members

ROWS, OBSERVED, TAKEN = 501, 24, 6
EPISODE_BYTES = ROWS * (OBSERVED + TAKEN + 2) * 4


def write_large(path: Path, gigabytes: float) -> int:
    """Writes a chunk of this size from one episode that is repeated; returns the number of episodes."""
    count = int(gigabytes * 1e9 / EPISODE_BYTES)
    chance = np.random.default_rng(0)
    one = {
        "obs": chance.normal(size=(1, ROWS, OBSERVED)).astype(np.float32),
        "action": chance.uniform(-1, 1, (1, ROWS, TAKEN)).astype(np.float32),
        "reward": chance.uniform(0, 2, (1, ROWS)).astype(np.float32),
        "task": np.zeros((1, ROWS), np.int32),
    }
    with path.open("wb") as file:
        write_members(file, {name: np.broadcast_to(value, (count, *value.shape[1:])) for name, value in one.items()})
    return count


def main() -> None:
    """Writes the file, inspects it in a process of its own, prints size, time and peak memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / f"chunk-{os.getpid()}.pt"
    try:
        count = write_large(path, arguments.gigabytes)
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "dreamproof.cli.main", "data", "inspect", str(path)])
        _, status, used = os.wait4(process.pid, 0)
        size = path.stat().st_size
    finally:
        path.unlink(missing_ok=True)
    seconds = time.monotonic() - began
    print(
        f"{count:,} episodes, {size / 1e9:.2f} GB: {seconds:.0f} s, peak {used.ru_maxrss / 1e6:.2f} GB, exit {status}"
    )


if __name__ == "__main__":
    main()

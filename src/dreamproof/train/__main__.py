"""python -m dreamproof.train RUN_DIR...: trains the cells of these run folders as one pack, or resumes them."""

import argparse
import sys
from pathlib import Path

from dreamproof.base.errors import DreamproofError
from dreamproof.jaxcore.ahead import run_main
from dreamproof.jaxcore.devices import unused_gpu, use_compilation_cache
from dreamproof.jaxcore.kernels import missing_kernels
from dreamproof.runs.layout import RunFolder
from dreamproof.train.guard import STOPPED
from dreamproof.train.loop import train
from dreamproof.train.probe import probe


def main() -> int:
    """Parses arguments, trains, prints errors."""
    parser = argparse.ArgumentParser(prog="python -m dreamproof.train", description=__doc__)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--probe", action="store_true", help="run every phase once and write probe.json")
    parser.add_argument("--micro-batches", type=int, default=1, help="micro-batches per batch (gradient accumulation)")
    arguments = parser.parse_args()
    use_compilation_cache()
    for warning in filter(None, (unused_gpu(), missing_kernels())):
        print(f"warning: {warning}", file=sys.stderr, flush=True)
    folders = [RunFolder(path) for path in arguments.run_dirs]
    try:
        if arguments.probe:
            found = probe(folders[0], arguments.micro_batches)
            print("probe: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found["phases"].items()))
        else:
            finished = train(folders, arguments.micro_batches)
            print("finished" if finished else STOPPED)
    except DreamproofError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    run_main(main)

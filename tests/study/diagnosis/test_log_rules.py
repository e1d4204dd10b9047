# ruff: noqa: E501
"""What the last lines show: many short outputs, each with the cause that a careful reader would name."""

from typing import Any

import pytest

from dreamproof.runs.records import ExitRecord
from dreamproof.study.diagnosis.diagnose import AttemptEvidence, diagnose

CASES: list[tuple[str, str, dict[str, Any]]] = []


def case(cause: str, tail: str, **ended: Any) -> None:
    CASES.append((cause, tail, ended or {"exit_code": 1}))


TRACE = 'Traceback (most recent call last):\n  File "/srv/p/train.py", line 9, in <module>\n    main()\n'
case("unknown", "epoch 3 loss 0.1 best inf\n")
case(
    "unknown",
    "OSError: [Errno 28] No space left on device while writing video, skipping\nstep 10 loss 1\nstep 20 loss 2\n",
)
case("unknown", "[WARNING] CUDA out of memory, reducing batch size and retrying\nstep 10 loss 1\n")
case("unknown", "INFO:root:KeyboardInterrupt handler installed\nINFO:root:ready\n")
case("unknown", "ERROR: could not load checkpoint, starting from scratch\nstep 1 loss 2\nstep 2 loss 3\n")
case("unknown", "cfg: {oom: 'CUDA out of memory', nan_policy: 'raise'}\nrunning\n")
case("unknown", "Killed\nstep 1 loss 2\n")
case(
    "bad_config",
    "error: data.npz: 318 of 1,046 episodes hold values that are not finite outside of the first row\n  hint: dreamproof data inspect data.npz\n",
    exit_code=2,
)
case("unknown", "error: batch 7 was skipped\n  hint: lower the rate\nstep 10 loss 1\n")
case(
    "bug",
    "thread 'main' panicked at 'index out of bounds', src/main.rs:3:5\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\nAborted (core dumped)\n",
    exit_code=134,
)
case("bug", "free(): invalid pointer\n", signal=6)
case("bug", "Segmentation fault (core dumped)\n", exit_code=139)
case(
    "bug",
    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nRecursionError: maximum recursion depth exceeded\n',
)
case(
    "device_oom",
    TRACE + "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity)\n",
)
case(
    "device_oom",
    TRACE
    + "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0\n",
)
case(
    "device_oom",
    TRACE + "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported\n",
)
case(
    "device_oom",
    TRACE
    + "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 120 bytes.\n--------------------\nFor simplicity, JAX has removed its internal frames from the traceback of the following exception. Set JAX_TRACEBACK_FILTERING=off to include these.\n",
)
case(
    "device_oom",
    TRACE + "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY\n",
)
case(
    "device_oom",
    "2026-11-02 11:02:03.1: E external/xla/xla/pjrt/pjrt_stream_executor_client.cc:2985] Execution of replica 0 failed: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 137438953472 bytes.\n"
    + TRACE
    + "ValueError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 137438953472 bytes.\n",
)
case("host_oom", TRACE + "MemoryError\n")
case(
    "host_oom",
    TRACE
    + "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 40000000000 bytes. Error code 12 (Cannot allocate memory)\n",
)
case("host_oom", TRACE + "OSError: [Errno 12] Cannot allocate memory\n")
case(
    "host_oom",
    'OpenBLAS warning\nTraceback (most recent call last):\n  File "x.py", line 2, in <module>\n    os.fork()\nBlockingIOError: [Errno 12] Cannot allocate memory\n',
)
case("nan", TRACE + "AssertionError: loss is nan at step 300\n")
case("nan", TRACE + "ValueError: NaN detected in gradients\n")
case("nan", TRACE + "RuntimeError: Loss became non-finite (nan)\n")
case("nan", TRACE + "ValueError: Input contains NaN, infinity or a value too large for dtype('float64').\n")
case("nan", "ERROR: loss is NaN, aborting\n")
case("nan", "[2026-11-02 11:02:03,123][train][ERROR] - NaN loss detected at iteration 300, exiting\n")
case("bug", TRACE + "KeyError: 'nan'\n")
case("bug", TRACE + "TypeError: unsupported operand type(s) for +: 'int' and 'NoneType'\nstep 12 of 300 was the last\n")
case("import_error", TRACE + "ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n")
case("bad_config", "train.py: error: the following arguments are required: --task\n", exit_code=2)
case(
    "bad_config",
    "usage: train.py [-h]\ntrain.py: error: ambiguous option: --s could match --seed, --steps\n",
    exit_code=2,
)
case("bad_config", "usage: train.py [-h]\ntrain.py: error: --seed must be positive\n", exit_code=2)
HYDRA = "See the override grammar for details\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
case("bad_config", "Error parsing override 'seed'\nmissing EQUAL at '<EOF>'\n" + HYDRA)
case("bad_config", "LexerNoViableAltException: lr=[1,\n                               ^\n" + HYDRA)
case("bad_config", TRACE + "hydra.errors.MissingConfigException: Cannot find primary config 'x'\n")
case(
    "bad_config",
    TRACE + 'yaml.scanner.ScannerError: mapping values are not allowed here\n  in "cfg.yaml", line 3, column 9\n',
)
case("bad_config", "/bin/bash: ./train.sh: Permission denied\n", exit_code=126)
case("bad_config", "bash: pyhton: command not found\n", exit_code=127)
case("disk_full", TRACE + "OSError: [Errno 122] Disk quota exceeded\n")
case(
    "disk_full",
    TRACE
    + "RuntimeError: [enforce fail at inline_container.cc:626] . unexpected pos 64 vs 0\n\nDuring handling of the above exception, another exception occurred:\n\n"
    + TRACE
    + "OSError: [Errno 28] No space left on device\n",
)
case("disk_full", "tar: write error: No space left on device\n", exit_code=2)
case("network", TRACE + "ConnectionResetError: [Errno 104] Connection reset by peer\n")
case("network", TRACE + "ConnectionError: refused by the tracking server\n")
case("network", TRACE + "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>\n")
case("network", TRACE + "huggingface_hub.errors.HfHubHTTPError: 503 Server Error: Service Unavailable for url\n")
case("network", TRACE + "requests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: https://api.wandb.ai\n")
case(
    "bad_config",
    TRACE + "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co\n",
)
case("bug", TRACE + "urllib.error.HTTPError: HTTP Error 404: Not Found\n")
case(
    "killed",
    '^CTraceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nKeyboardInterrupt\n',
    signal=2,
)
case(
    "killed",
    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nKeyboardInterrupt\n\nDuring handling of the above exception, another exception occurred:\n\n'
    + TRACE
    + "RuntimeError: writer is closed\n",
)
case("killed", "Terminated\n", exit_code=143)
case(
    "bug",
    TRACE
    + "ValueError: boom\n2026-11-02 11:02:05 INFO closing environments\n2026-11-02 11:02:06 INFO flushed 300 steps\n",
)
case(
    "bug",
    TRACE
    + 'ValueError: boom\nException ignored in: <function Env.__del__ at 0x7f>\nTraceback (most recent call last):\n  File "e.py", line 3, in __del__\n    self.close()\nImportError: sys.meta_path is None, Python is likely shutting down\n',
)
case(
    "bug",
    TRACE
    + "ValueError: boom\n/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be %d '\n",
)
case("bug", "Exception in thread Thread-1 (loop):\n" + TRACE + "ValueError: boom\n", exit_code=1)
case(
    "bug",
    "python: ../nptl/pthread_mutex_lock.c:94: __pthread_mutex_lock: Assertion `mutex->__data.__owner == 0' failed.\n",
    signal=6,
)
case("bug", 'CUDA error at kernel.cu:42 code=700(cudaErrorIllegalAddress) "cudaDeviceSynchronize()"\n', exit_code=1)
case(
    "bug",
    "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access was encountered\nException raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:44 (most recent call first):\nframe #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f in /usr/lib/libc10.so)\nframe #1: c10::detail::torchCheckFail + 0x64\n",
    signal=6,
)
case(
    "device_oom",
    "terminate called after throwing an instance of 'c10::OutOfMemoryError'\n  what():  CUDA out of memory. Tried to allocate 2.00 GiB.\nframe #0: x + 0x57 (0x7f in /usr/lib/libc10.so)\n",
    signal=6,
)
case("node_lost", TRACE + "RuntimeError: CUDA error: GPU is lost\n")
case("node_lost", TRACE + "OSError: [Errno 5] Input/output error: '/data/x'\n")
case("bug", TRACE + "mujoco.FatalError: mj_stackAlloc: out of memory, stack overflow\n")
case("bug", "ERROR: LoadError: UndefVarError: x not defined\nStacktrace:\n [1] top-level scope\n", exit_code=1)
case("unknown", "", exit_code=1)
case("unknown", "the model was oom-killed yesterday, see notes\nslurm NODE_FAIL earlier\n", exit_code=7)
case(
    "host_oom",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.\nsrun: error: n1: task 0: Out Of Memory\n",
    exit_code=1,
)
case(
    "bug",
    "Error in sys.excepthook:\n"
    + TRACE
    + "ValueError: inner\n\nOriginal exception was:\n"
    + TRACE
    + "IndexError: outer\n",
)
case(
    "import_error",
    'Process SpawnProcess-1:\nTraceback (most recent call last):\n  File "w.py", line 1, in <module>\n    import brax\nModuleNotFoundError: No module named \'brax\'\nTraceback (most recent call last):\n  File "/usr/lib/python3.11/multiprocessing/connection.py", line 399, in _recv\n    raise EOFError\nEOFError\n',
)
case(
    "bug",
    "2026-11-02 11:02:03 | ERROR    | __main__:<module>:3 - An error has been caught in function '<module>', process 'MainProcess' (1), thread 'MainThread' (2):\nTraceback (most recent call last):\n\n> File \"/srv/a.py\", line 4, in <module>\n    f()\n    └ <function f at 0x7f>\n\nZeroDivisionError: division by zero\n",
)


@pytest.mark.parametrize(("cause", "tail", "ended"), CASES, ids=[f"{row[0]}-{n}" for n, row in enumerate(CASES)])
def test_short_outputs(cause: str, tail: str, ended: dict[str, Any]) -> None:
    judged = diagnose(AttemptEvidence(exit=ExitRecord(wall_seconds=12.0, **ended), output_tail=tail))
    assert judged.cause == cause, judged.quotes
    last = tail.split("\n")[-2] if tail else ""
    assert any(line.startswith("last line: ") for line in judged.quotes) or not last, judged.quotes


@pytest.mark.parametrize("tail", ["a: " * 20000, ("x" * 300 + " : ") * 300, ("error: " * 400 + "\n") * 50, "(" * 60000])
def test_lines_made_to_be_slow_end(tail: str) -> None:
    assert (
        diagnose(AttemptEvidence(exit=ExitRecord(wall_seconds=1.0, exit_code=1), output_tail=tail)).cause == "unknown"
    )

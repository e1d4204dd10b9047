"""Where kernels of our own, written in Pallas and lowered to Triton, can run."""

from importlib.util import find_spec

from dreamproof.jaxcore.devices import is_recent_gpu

# JAX plans to remove its Triton backend; without it the compiler generates its own kernels, as on a CPU.
HAS_TRITON = find_spec("jax.experimental.pallas.triton") is not None


def can_run_kernels() -> bool:
    """Whether JAX has the backend, and the first device is a GPU that it supports."""
    return HAS_TRITON and is_recent_gpu()


def missing_kernels() -> str | None:
    """A warning if the first device could run the kernels, and JAX has no backend for them."""
    if HAS_TRITON or not is_recent_gpu():
        return None
    return "this version of JAX has no Triton backend: training runs without our own GPU kernels, so it is slower"

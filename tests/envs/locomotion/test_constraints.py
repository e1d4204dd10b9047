"""The solver of contacts and joint limits finds what MuJoCo in C finds, on a CPU and as a GPU kernel."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

from dreamproof.envs.locomotion import constraint_kernel, constraints
from dreamproof.envs.locomotion.constraints import Problem, Solution
from dreamproof.envs.locomotion.physics import load_body

COUNT = 24
BODIES = ["walker", "suite_hopper", "cup"]


def in_c(name: str) -> tuple[Problem, Solution]:
    """Problems of a body that falls, touches the ground and moves its joints, and what MuJoCo in C makes of them.

    Arrays (COUNT, ...), without the constraints that MuJoCo leaves out because they are not met.
    """
    model = copy.copy(load_body(name).host)
    model.opt.iterations, model.opt.ls_iterations, model.opt.tolerance = 200, 50, 0.0
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    rows, problems, solutions = load_body(name).blank._impl.efc_J.shape[0], [], []
    while len(problems) < COUNT:
        data.ctrl[:] = rng.uniform(-1.0, 1.0, model.nu)
        guess = data.qacc_warmstart.copy()
        mujoco.mj_forward(model, data)
        met = data.nefc
        if met > 0:
            mass, jacobian = np.zeros((model.nv, model.nv)), np.zeros((rows, model.nv))
            for column, unit in zip(mass, np.eye(model.nv), strict=True):
                mujoco.mj_mulM(model, data, column, unit)
            jacobian[:met] = data.efc_J.reshape(met, model.nv)
            stiffness, target, forces = np.zeros((3, rows))
            stiffness[:met], target[:met], forces[:met] = data.efc_D, data.efc_aref, data.efc_force
            damping = model.opt.timestep * model.dof_damping
            problems.append(Problem(jacobian.T, stiffness, target, mass, data.qfrc_smooth.copy(), damping, guess))
            damped = np.linalg.solve(mass + np.diag(damping), data.qfrc_smooth + data.qfrc_constraint)
            solutions.append(Solution(data.qacc.copy(), damped, forces))
        mujoco.mj_step(model, data, int(rng.integers(1, 12)))
    return (
        jax.tree.map(lambda *parts: jnp.asarray(np.stack(parts), jnp.float32), *problems),
        jax.tree.map(lambda *parts: np.stack(parts), *solutions),
    )


@pytest.fixture(scope="module", params=BODIES)
def steps(request: pytest.FixtureRequest) -> tuple[Problem, Solution]:
    """Problems of one body with their solutions."""
    return in_c(request.param)


def assert_same(found: Solution, wanted: Solution, tolerance: float) -> None:
    """Errors are relative to the largest number of a body."""
    for name, own, other in zip(Solution._fields, found, wanted, strict=True):
        scale = np.abs(np.asarray(other)).max(1, keepdims=True) + 1.0
        np.testing.assert_array_less(np.abs(np.asarray(own) - np.asarray(other)) / scale, tolerance, err_msg=name)


def test_the_solver_finds_what_mujoco_finds(steps: tuple[Problem, Solution]) -> None:
    problem, wanted = steps
    found = jax.vmap(lambda each: constraints.solve(each, 10))(problem)
    assert_same(found, wanted, 1e-3)


def test_the_kernel_finds_the_same(steps: tuple[Problem, Solution]) -> None:
    problem, wanted = steps
    found = jax.vmap(lambda each: constraint_kernel.solve(each, 10))(problem)
    assert_same(found, wanted, 1e-3)


def test_more_iterations_do_not_leave_the_minimum(steps: tuple[Problem, Solution]) -> None:
    problem, wanted = steps
    for iterations in (20, 21, 22, 23):
        found = jax.vmap(lambda each, iterations=iterations: constraints.solve(each, iterations))(problem)
        assert_same(found, wanted, 1e-3)


def test_a_step_is_exact_where_forces_are_large_and_the_step_is_tiny() -> None:
    stiffness, excess, along = jnp.array([1e4, 1e4]), jnp.array([-100.0, 5.0]), jnp.array([1e-7, 3e-7])
    slope = -(1e-9 + 1e4 * 1e-14)  # of a quadratic cost with its minimum one step away
    length = constraints.line_search(stiffness, excess, along, jnp.float32(slope), jnp.float32(1e-9))
    assert float(length) == pytest.approx(1.0, rel=1e-3)


def test_a_step_ends_where_a_constraint_begins_to_push() -> None:
    stiffness, excess, along = jnp.array([1e8]), jnp.array([0.5]), jnp.array([-1.0])
    length = constraints.line_search(stiffness, excess, along, jnp.float32(-1.0), jnp.float32(1.0))
    assert float(length) == pytest.approx(0.5, abs=1e-6)


def test_a_guess_that_is_far_off_does_not_matter(steps: tuple[Problem, Solution]) -> None:
    problem, wanted = steps
    found = jax.vmap(lambda each: constraints.solve(each, 20))(problem._replace(guess=problem.guess + 1e4))
    assert_same(found, wanted, 1e-3)


def test_only_bodies_with_one_sided_constraints_and_euler_steps_use_it() -> None:
    names = ("walker", "cheetah", "hopper", "suite_hopper", "cup", "reacher", "finger", "cartpole", "pendulum")
    using = [name for name in names if load_body(name).has_one_sided_constraints]
    assert using == ["walker", "cheetah", "hopper", "suite_hopper", "cup", "reacher"], (
        "others have elliptic cones or RK4"
    )


def test_the_kernel_can_be_lowered_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [(9, 62), (62,), (62,), (9, 9), (9,), (9,), (9,)]
    problem = Problem(*(jnp.zeros((2, 5, *shape)) for shape in shapes))

    def seeds_and_envs(problem: Problem) -> Any:
        return jax.vmap(jax.vmap(lambda each: constraint_kernel.solve(each, 8)))(problem)

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    gpu = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=gpu)):
        lowered = jax.jit(seeds_and_envs).trace(problem).lower(lowering_platforms=("cuda",)).as_text()
    assert '"constraints"' in lowered

"""`python -m dreamproof.record`: what lands in the file, by whom it is played, and what is refused."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.train.offline_cells import TASKS, record_both

from dreamproof.data.recordings import open_episodes, read_good_part
from dreamproof.envs.probes import CostLineProbe
from dreamproof.envs.wrappers import Padded
from dreamproof.jaxcore.types import TimeStep
from dreamproof.record import __main__ as command
from dreamproof.record.episodes import record
from dreamproof.record.policies import RecordingPolicy


def run(*arguments: str) -> int:
    """The command with these arguments, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "use_compilation_cache", lambda: None)
        patch.setattr(sys, "argv", ["record", *arguments])
        return command.main()


def test_episodes_of_tasks_of_different_sizes_are_filled_up(tmp_path: Path) -> None:
    made = read_good_part(open_episodes(record_both(tmp_path / "both.npz", episodes=3)))
    assert made.task_info is not None
    assert (made.task_info.names, made.task_info.observation_sizes, made.task_info.action_sizes) == (
        TASKS,
        (2, 1),
        (2, 1),
    )
    assert made.observation.shape == (6, 21, 2)
    assert made.rows.tolist() == [11, 11, 11, 21, 21, 21]
    hands, line = slice(0, 3), slice(3, 6)
    assert not made.observation[line, :, 1].any() and not made.action[line, :, 1].any()
    assert made.action[hands, 1:11].all() and not made.action[hands, 11:].any()
    # The reward of a step on the line is the place that it reaches, which is what is seen next.
    np.testing.assert_array_equal(made.reward[line, 1:], made.observation[line, 1:, 0])
    paid = 1 - ((made.action[hands, 1:11] - made.observation[hands, :10]) ** 2).mean(2)
    np.testing.assert_allclose(made.reward[hands, 1:11], paid, rtol=1e-5)


def test_the_command_says_what_a_study_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "survive.npz"
    arguments = ("--tasks", "ProbeSurvive", "--policy", "random", "--episodes", "130", "--output", str(output))
    assert run(*arguments) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("recording 130 episodes; every task compiles first\nProbeSurvive by random: 130 episodes")
    assert f"data: {{files: [{output}], tasks: [ProbeSurvive], observation_size: 1, action_size: 1}}" in printed
    made = read_good_part(open_episodes(output))
    steps = made.rows - 1
    # An action below 0 ends an episode, by termination unless the time is over.
    assert steps.min() == 1 and 1.5 < steps.mean() < 2.5
    last = made.action[np.arange(130), steps, 0]
    np.testing.assert_array_equal(made.terminated, last < 0)
    assert len(np.unique(made.action[:, 1])) == 130
    assert run(*arguments, "--seed", "1") == 2
    refusal = capsys.readouterr().err
    assert f"{output}: exists already" in refusal and f"rm {output}" in refusal
    np.testing.assert_array_equal(read_good_part(open_episodes(output)).action, made.action)
    another = tmp_path / "another.npz"
    assert run(*arguments[:-1], str(another), "--seed", "1") == 0
    assert (read_good_part(open_episodes(another)).action != made.action).any()


def test_a_padded_policy_is_recorded_without_padding() -> None:
    env = Padded(CostLineProbe(), 3, 2, 1)

    def act(state: None, memory: jax.Array, seen: TimeStep, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.stack([jnp.ones(memory.shape), jnp.zeros(memory.shape)], -1), memory + 1

    policy = RecordingPolicy("right", "ProbeCostLine", env, act, None, jnp.zeros)
    made = record([policy], ["ProbeCostLine"], 2, 0, lambda batches: batches)
    assert made.observation.shape == (2, 21, 1) and made.action.shape == (2, 21, 1)
    np.testing.assert_allclose(made.reward.sum(1), policy.env.env.known().best_return)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--tasks", "ProbeSurvive", "--policy", "random", "--episodes", "0"), "at least 1"),
        (("--tasks", "ProbeSurvive,ProbeSurvive", "--policy", "random", "--episodes", "1"), "duplicate name"),
        (("--tasks", "ProbeSurvived", "--policy", "random", "--episodes", "1"), "did you mean 'ProbeSurvive'?"),
        (("--tasks", "ProbeSurvive", "--policy", "nowhere", "--episodes", "1"), "missing or not readable"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    assert run(*arguments, "--output", str(tmp_path / "x.npz")) == 2
    assert expected in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

"""A policy as one file: small, checked, and acting as the run that it comes from."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import dreamproof
from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.envs.shift import find_condition
from dreamproof.evaluate import __main__ as evaluate_command
from dreamproof.evaluate import official
from dreamproof.evaluate.calibration import as_evaluated
from dreamproof.evaluate.episodes import Evaluator, run_episodes
from dreamproof.evaluate.loading import load, load_at
from dreamproof.evaluate.policy import load_agent, load_policy
from dreamproof.evaluate.policy_file import acting_arrays, read_policy, write_policy
from dreamproof.jaxcore.checkpoints import named_arrays
from dreamproof.record.policies import find_policies
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.records import EvaluatedCheckpoint
from dreamproof.runs.writer import RunWriter

pytestmark = pytest.mark.xdist_group("trained")
Trained = dict[str, RunFolder]


@pytest.fixture(scope="module")
def file(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policy") / "baseline.npz"
    size = write_policy(load_agent(trained["baseline"]), path)
    assert size == path.stat().st_size
    return path


def test_it_holds_what_acting_needs_and_nothing_else(trained: Trained, file: Path) -> None:
    loaded = load_agent(trained["baseline"])
    kept, whole = set(acting_arrays(loaded)), set(named_arrays(loaded.state))
    assert kept < whole
    assert not any(name.startswith(("optimisers", "slow_critics", "model/decoder")) for name in kept)
    assert any(name.startswith("actor") for name in kept)
    assert file.stat().st_size < 0.5 * (trained["baseline"].checkpoint_folders()[-1].root / "agent.npz").stat().st_size


def test_it_acts_exactly_as_the_run(trained: Trained, file: Path) -> None:
    run, alone = load_policy(trained["baseline"]), dreamproof.open_policy(file)
    seen = np.random.default_rng(0).normal(size=(4, 3, run.spec.observation_size)).astype(np.float32)
    for observation in seen:
        np.testing.assert_array_equal(run.act(observation), alone.act(observation))


def test_half_of_the_digits_act_nearly_as_the_run(trained: Trained, file: Path, tmp_path: Path) -> None:
    loaded = load_agent(trained["baseline"])
    assert write_policy(loaded, tmp_path / "half.npz", half=True) < file.stat().st_size
    whole, half = (acting_arrays(read_policy(path)) for path in (file, tmp_path / "half.npz"))
    for name, array in whole.items():
        assert half[name].dtype == array.dtype
        np.testing.assert_allclose(half[name], array, rtol=1e-3, atol=1e-6, err_msg=name)


def test_it_reproduces_the_evaluation(trained: Trained, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = load(trained["baseline"], "final")
    assert whole is not None
    (expected,) = Evaluator([{"final": whole}], {}, 2).evaluate("id")
    (found,) = Evaluator([{"final": read_policy(file)}], {}, 2).evaluate("id")
    assert found.checkpoints["final"].episodes == expected.checkpoints["final"].episodes
    evaluate_command.evaluate_file(file, ["id"], 2)
    mean = np.mean(expected.checkpoints["final"].episodes["return"])
    assert f"baseline.npz id: return {mean:.2f}" in capsys.readouterr().out


EPISODES = 10  # of which a conformal offset at 90 % can be made


@pytest.fixture(scope="module")
def certified(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, EvaluatedCheckpoint]:
    """A run whose planner acts on its certificate, and what its evaluation found."""
    run = RunFolder(tmp_path_factory.mktemp("certified") / "run")
    shutil.copytree(trained["full"].root, run.root)
    whole = load(run, "final")
    assert whole is not None
    (found,) = Evaluator([{"final": whole}], {}, EPISODES).evaluate("id")
    RunWriter(run).write_evaluation(found)
    return run, found.checkpoints["final"]


def test_a_certified_policy_acts_with_the_offset_of_its_evaluation(
    certified: tuple[RunFolder, EvaluatedCheckpoint], tmp_path: Path
) -> None:
    run, expected = certified
    trained_only, offset = load(run, "final"), expected.scalars["certificate/offset"]
    assert trained_only is not None
    assert float(trained_only.state.offset) != offset
    write_policy(load_agent(run), tmp_path / "full.npz")
    write_policy(load_agent(run), tmp_path / "half.npz", half=True)
    opened = read_policy(tmp_path / "full.npz")
    assert [float(each.state.offset) for each in (load_agent(run), opened, read_policy(tmp_path / "half.npz"))] == [
        offset
    ] * 3
    # What `evaluate FILE --official`, `act` and records of episodes do: nothing is calibrated before.
    (played,) = run_episodes([opened], find_condition(opened.env, "id"), "test", EPISODES)
    assert played.returns.tolist() == expected.episodes["return"]
    (again,) = Evaluator([{"final": opened}], {}, EPISODES).evaluate("id")
    assert again.checkpoints["final"].episodes == expected.episodes
    assert again.checkpoints["final"].scalars["certificate/offset"] == offset


def test_a_file_without_the_offset_of_an_evaluation_is_calibrated_by_its_own(
    certified: tuple[RunFolder, EvaluatedCheckpoint], tmp_path: Path
) -> None:
    run, expected = certified
    whole = load(run, "final")
    assert whole is not None
    write_policy(whole, tmp_path / "old.npz")
    old = read_policy(tmp_path / "old.npz")
    assert not old.is_calibrated and float(old.state.offset) == float(whole.state.offset)
    (found,) = Evaluator([{"final": old}], {}, EPISODES).evaluate("id")
    assert found.checkpoints["final"].episodes == expected.episodes


def test_an_offset_of_another_checkpoint_is_not_used(certified: tuple[RunFolder, EvaluatedCheckpoint]) -> None:
    run, _ = certified
    earlier = load_at(run, run.checkpoint_folders()[0].agent_steps)
    assert not as_evaluated(earlier, run).is_calibrated
    assert as_evaluated(load_at(run, run.checkpoint_folders()[-1].agent_steps), run).is_calibrated


def test_it_can_be_played_on_the_official_task(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With our own task in the place of the official one."""
    loaded = read_policy(file)
    (expected,) = run_episodes([loaded], find_condition(loaded.env, "id"), "test", 2)
    monkeypatch.setattr(official, "make_env", lambda task, settings: loaded.env)
    monkeypatch.setattr(evaluate_command, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(sys, "argv", ["evaluate", str(file), "--official", "--episodes", "2"])
    assert evaluate_command.main() == 0
    printed = capsys.readouterr()
    assert f"return: official {float(np.mean(expected.returns)):.2f}, standard error" in printed.out
    assert "note: baseline.npz: no offset of an evaluation" in printed.err


def test_episodes_can_be_recorded_with_it(file: Path) -> None:
    task = read_policy(file).run.task
    (policy,) = find_policies([task], [str(file)])
    assert (policy.name, policy.task) == (str(file), task)


def test_a_file_that_is_damaged_or_something_else_is_refused(file: Path, tmp_path: Path) -> None:
    with np.load(file) as content:
        arrays = {name: content[name] for name in content.files}
    name = next(name for name in arrays if name.startswith("actor"))
    np.savez(tmp_path / "changed.npz", **arrays | {name: arrays[name] + 1})
    with pytest.raises(BrokenEvidence, match="do not match their hash"):
        dreamproof.open_policy(tmp_path / "changed.npz")
    np.savez(tmp_path / "other.npz", values=np.zeros(3))
    (tmp_path / "text.npz").write_text("not a file of arrays")
    (tmp_path / "cut.npz").write_bytes(file.read_bytes()[:5000])
    for other in ("other.npz", "text.npz", "cut.npz", "absent.npz"):
        with pytest.raises(BadInput, match="is no policy file"):
            dreamproof.open_policy(tmp_path / other)

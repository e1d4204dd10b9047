"""What cells of one study started with must be the same where it has the same name, and within an arm."""

from pathlib import Path

from dreamproof.base.files import write_json
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.sources import different_sources, read_sources, sources_beside

MLP, OTHER_MLP, FLOW = Cell("mlp", 0), Cell("mlp", 1), Cell("flow", 0)


def test_cells_that_started_with_the_same_sources_agree() -> None:
    same = {"data.npz": "d", "runs/before": "m"}
    assert not different_sources({MLP: same, OTHER_MLP: same, FLOW: same})
    assert not different_sources({MLP: {}, OTHER_MLP: {}})


def test_one_name_with_two_hashes_is_found_across_arms() -> None:
    (found,) = different_sources({MLP: {"data.npz": "old"}, FLOW: {"data.npz": "new"}})
    assert found == ("data.npz", MLP, FLOW)
    assert str(found) == "data.npz was not the same when mlp/0 and flow/0 started with it (its hash differs)"


def test_arms_may_start_with_world_models_of_their_own() -> None:
    assert not different_sources({MLP: {"runs/mlp": "one"}, FLOW: {"runs/flow": "two"}})


def test_within_an_arm_another_name_hides_no_other_world_model() -> None:
    started = {MLP: {"runs/before": "one"}, OTHER_MLP: {"runs/before/checkpoints/step-000000000512": "two"}}
    (found,) = different_sources(started)
    assert found.name == "runs/before/checkpoints/step-000000000512" and found.first == MLP
    assert not different_sources({MLP: {"runs/before": "one"}, OTHER_MLP: {"/whole/path/runs/before": "one"}})


def test_each_cell_is_named_once() -> None:
    started = {Cell("mlp", seed): {"a": str(seed), "b": str(seed)} for seed in range(3)}
    assert [other.second.seed for other in different_sources(started)] == [1, 2]


def write_run(place: Path, study: str, seed: int, source: str) -> RunFolder:
    """A run with one checkpoint that started with a source."""
    run = RunFolder(place)
    settings = {"study": study, "arm": "mlp", "seed": seed, "task": "t", "agent_steps": 4}
    record = {
        "agent_steps": 4, "gradient_steps": 1, "parameter_hash": "p", "finite": True, "files": {}, "task": "t",
        "sources": {"runs/before": source},
    }  # fmt: skip
    run.checkpoint(4).root.mkdir(parents=True)
    write_json(run.settings, settings)
    write_json(run.checkpoint(4).record, record)
    return run


def test_cells_of_the_same_study_are_found_beside_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "mlp-seed0", "tiny", 0, "one")
    write_run(tmp_path / "mlp-seed1", "tiny", 1, "two")
    write_run(tmp_path / "copy", "another study", 2, "three")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    assert sources_beside(run) == {Cell("mlp", 1): {"runs/before": "two"}}
    assert read_sources(run) == {"runs/before": "one"} and read_sources(RunFolder(tmp_path / "empty")) == {}


def test_a_run_without_settings_has_no_study(tmp_path: Path) -> None:
    write_run(tmp_path / "mlp-seed1", "tiny", 1, "two")
    assert sources_beside(RunFolder(tmp_path / "bare")) == {}

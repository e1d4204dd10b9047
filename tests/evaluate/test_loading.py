"""What may be evaluated: a trained, whole, finite checkpoint of this task; everything else is refused with a reason."""

import json
import shutil
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from tests.tiny import AGENT_STEPS

from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import file_hash, read_json, write_json
from dreamproof.data.arrays import read_arrays, write_arrays
from dreamproof.evaluate.loading import check_record, load
from dreamproof.runs.layout import CheckpointFolder, RunFolder
from dreamproof.runs.reader import newest_good_checkpoint, read_settings

pytestmark = [pytest.mark.xdist_group("trained"), pytest.mark.long(300)]

Trained = dict[str, RunFolder]


@pytest.fixture
def copied(trained: Trained, tmp_path: Path) -> RunFolder:
    """The baseline's run folder, to be spoilt."""
    shutil.copytree(trained["baseline"].root, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def change_record(folder: CheckpointFolder, **changes: Any) -> None:
    """Rewrites some fields of a record."""
    write_json(folder.record, read_json(folder.record) | changes)


def settings_of(run: RunFolder) -> Any:
    """The settings, which are there."""
    found = read_settings(run)
    assert found is not None
    return found


def test_a_trained_checkpoint_is_loaded_bit_for_bit(trained: Trained) -> None:
    loaded = load(trained["baseline"], "final")
    assert loaded is not None
    assert loaded.record.agent_steps == AGENT_STEPS
    saved = read_arrays(trained["baseline"].checkpoint_folders()[-1].root / "agent.npz")
    leaves = jax.tree.leaves(eqx.filter(loaded.state, eqx.is_array))
    assert len(leaves) == len(saved)
    total = sum(float(np.asarray(leaf, np.float64).sum()) for leaf in leaves)
    assert total == pytest.approx(sum(float(array.astype(np.float64).sum()) for array in saved.values()))
    assert int(loaded.state.gradient_steps) == loaded.record.gradient_steps


def test_a_checkpoint_with_zero_updates_is_refused(copied: RunFolder) -> None:
    newest = copied.checkpoint_folders()[-1]
    change_record(newest, gradient_steps=0)
    with pytest.raises(BadInput, match="never trained"):
        load(copied, "final")


def test_a_checkpoint_of_another_task_is_refused(copied: RunFolder) -> None:
    change_record(copied.checkpoint_folders()[-1], task="SafetyPointGoal1")
    with pytest.raises(BadInput, match="trained on 'SafetyPointGoal1', not on 'ProbeCredit'"):
        load(copied, "final")


def test_a_frozen_cell_is_refused(trained: Trained) -> None:
    with pytest.raises(BadInput, match="non-finite values, or its replica was frozen"):
        load(trained["wild"], "final")


def test_a_changed_file_is_no_checkpoint(copied: RunFolder) -> None:
    folders = copied.checkpoint_folders()
    spoilt = folders[-1]
    with (spoilt.root / "agent.npz").open("ab") as file:
        file.write(b"x")
    with pytest.raises(BrokenEvidence, match="hash differs"):
        check_record(settings_of(copied), spoilt)
    for folder in folders[:-1]:
        shutil.rmtree(folder.root)
    with pytest.raises(
        BadInput, match=f"no complete checkpoint .*{spoilt.root.name}: file agent.npz is not what was saved"
    ):
        load(copied, "final")


def test_an_agent_that_was_carried_elsewhere_needs_nothing_to_resume_from(copied: RunFolder) -> None:
    for folder in copied.checkpoint_folders():
        (folder.root / "resume.npz").unlink()
    loaded = load(copied, "final")
    assert loaded is not None
    assert loaded.record.agent_steps == AGENT_STEPS
    assert newest_good_checkpoint(copied) is None, "training cannot continue from it"
    for folder in copied.checkpoint_folders():
        (folder.root / "agent.npz").unlink()
    with pytest.raises(BadInput, match=r"file agent\.npz is missing"):
        load(copied, "final")


def test_changed_parameters_are_refused_even_where_the_file_hash_was_changed_with_them(copied: RunFolder) -> None:
    newest = copied.checkpoint_folders()[-1]
    path = newest.root / "agent.npz"
    arrays = read_arrays(path)
    name = next(name for name, array in arrays.items() if array.dtype == np.float32 and array.size > 10)
    arrays[name] = arrays[name] + 1.0
    write_arrays(path, arrays)
    files = read_json(newest.record)["files"] | {"agent.npz": file_hash(path)}
    change_record(newest, files=files)
    with pytest.raises(BrokenEvidence, match="parameters do not match its record"):
        load(copied, "final")


def test_a_checkpoint_of_other_settings_is_refused_by_the_array_that_does_not_fit(copied: RunFolder) -> None:
    declared = json.loads(copied.settings.read_text())
    declared["settings"]["agent"]["world_model"]["deterministic"] = 24
    write_json(copied.settings, declared)
    with pytest.raises(BrokenEvidence, match="of other settings or of another version"):
        load(copied, "final")


def test_the_selected_checkpoint_is_loaded_only_where_it_is_another(copied: RunFolder) -> None:
    steps = [folder.agent_steps for folder in copied.checkpoint_folders()]
    write_json(copied.selected, {"agent_steps": AGENT_STEPS})
    assert load(copied, "selected") is None
    write_json(copied.selected, {"agent_steps": steps[0]})
    selected = load(copied, "selected")
    assert selected is not None
    assert selected.record.agent_steps == steps[0] < AGENT_STEPS


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"settings\.json: missing"):
        load(RunFolder(tmp_path), "final")


def test_cells_that_can_share_a_compile_share_agent_and_env(trained: Trained) -> None:
    one, other = (load(trained[name], "final") for name in ("baseline", "full"))
    assert one is not None and other is not None
    assert one.agent is other.agent and one.env is other.env
    assert float(one.scalars["risk"]["uncertainty_weight"]) == 0.0
    assert float(other.scalars["risk"]["uncertainty_weight"]) == 1.0


def test_an_agent_may_act_under_other_settings_than_it_was_trained_with(trained: dict[str, RunFolder]) -> None:
    plain = load(trained["baseline"], "final")
    swept = load(trained["baseline"], "final", {"agent": {"filter": {"max_delay": 1.0}}})
    wider = load(trained["baseline"], "final", {"agent": {"planner": {"evaluation_samples": 32}}})
    assert plain is not None and swept is not None and wider is not None
    assert float(swept.scalars["filter"]["max_delay"]) == 1.0
    # A traced setting shares the compile, one that shapes it does not; the networks are the same.
    assert swept.agent is plain.agent and wider.agent is not plain.agent
    np.testing.assert_array_equal(wider.state.actor.network.output.weight, plain.state.actor.network.output.weight)


def test_networks_of_other_shapes_are_refused(trained: dict[str, RunFolder]) -> None:
    with pytest.raises(BrokenEvidence, match="other settings"):
        load(trained["baseline"], "final", {"agent": {"world_model": {"units": 64}}})

"""The tables and policies of `dreamproof.load`."""

import builtins
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dreamproof
from dreamproof.base.errors import BadInput
from dreamproof.testing.made_study import Plan, make_study

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> "dreamproof.api.StudyResults":
    return dreamproof.load(make_study(tmp_path_factory.mktemp("study"), Plan(missing=("full/4",))))


def test_cells_have_one_row_per_arm_and_seed(results: Any) -> None:
    cells = results.cells
    assert len(cells) == 20 and not cells.duplicated(["arm", "seed"]).any()
    states = cells.set_index(["arm", "seed"]).state
    assert states["full", 4] != "proven" and states["baseline", 0] == "proven"


def test_scores_are_the_means_of_the_episodes(results: Any) -> None:
    keys = ["arm", "seed", "condition", "checkpoint"]
    means = results.episodes.groupby(keys)["return"].mean()
    scores = results.scores.set_index(keys)["return"]
    assert len(scores) > 0 and scores.index.isin(means.index).all()
    np.testing.assert_allclose(scores.sort_index(), means.loc[scores.index].sort_index())


def test_curves_are_in_long_form_and_in_order(results: Any) -> None:
    curves = results.curves
    assert list(curves.columns) == ["arm", "seed", "agent_steps", "metric", "value"] and len(curves) > 0
    one = curves[(curves.arm == "baseline") & (curves.seed == 0)]
    assert all(steps.is_monotonic_increasing for _, steps in one.groupby("metric").agent_steps)


def test_verdicts_compare_every_other_arm_with_the_reference(results: Any) -> None:
    verdicts = results.verdicts.set_index("arm")
    assert set(verdicts.index) == {"u_only", "cert_only", "full"} and set(verdicts.reference) == {"baseline"}
    assert verdicts.verdict["full"] in ("better", "cannot_decide")
    assert verdicts.low["u_only"] < verdicts.difference["u_only"] < verdicts.high["u_only"]


def test_tables_are_the_callers_own(results: Any) -> None:
    changed = results.cells
    changed["arm"] = "x"
    assert set(results.cells.arm) != {"x"}


def test_an_unknown_cell_and_an_unknown_place_are_refused(results: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no cell other/7; it has baseline/0"):
        results.policy("other", 7)
    with pytest.raises(BadInput, match="no such study"):
        dreamproof.load(tmp_path / "none")


def test_without_pandas_the_error_names_the_extra(results: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without_pandas(name: str, *more: Any, **others: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return imported(name, *more, **others)

    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(BadInput, match="pandas"):
        results.cells  # noqa: B018


def test_score_matrices_have_the_form_that_rliable_takes(results: Any) -> None:
    matrices = results.score_matrices()
    assert set(matrices) == {"baseline", "u_only", "cert_only", "full"}
    assert matrices["baseline"].shape == (5, 3) and np.isnan(matrices["full"][4]).all()
    scores = results.scores.set_index(["arm", "seed", "condition"])["return"]
    assert matrices["u_only"][2, 0] == pytest.approx(scores["u_only", 2, "id"])
    assert results.score_matrices("cost")["baseline"].shape == (5, 3)
    with pytest.raises(BadInput, match="no values of speed"):
        results.score_matrices("speed")


def test_tables_are_written_as_parquet(results: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    written = results.write_parquet(tmp_path / "out")
    assert [path.stem for path in written] == ["cells", "scores", "episodes", "curves", "verdicts"]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / "scores.parquet"), results.scores)


def test_without_pyarrow_the_extra_is_named(results: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"need pyarrow") as refused:
        results.write_parquet(tmp_path / "out")
    assert "dreamproof[parquet]" in str(refused.value.hint)

"""No table of results breaks a report or yields a verdict that it does not support."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dreamproof.report import make_context, write_all
from dreamproof.stats.verdict import Kind

HEADER = "arm,seed,condition,checkpoint,metric,value\n"
row = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["0", "1", "2", "3", "4", "0+1", "7"]),
    st.sampled_from(["id", "shifted", "elsewhere"]),
    st.sampled_from(["final", "peak", "best", "selected"]),
    st.sampled_from(["score", "cost", "else"]),
    st.one_of(st.floats(width=64), st.sampled_from([0.0, 1.0, 1e308, -1e308, 1e-308, float("nan")])),
)
seed_rows = st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5)


def results(rows: list[tuple[str, str, str, str, str, float]]) -> str:
    return "".join(f"{a},{s},{c},{k},{m},{v!r}\n" for a, s, c, k, m, v in rows)


def check(root: Path) -> None:
    """Writes all documents, and holds every verdict against the values behind it."""
    write_all(root, figures=False)
    analysis = make_context(root, "en").analysis
    reference = analysis.evidence.values.get(analysis.primary("a"), {})
    for arm, verdict in analysis.verdicts.items():
        if verdict.kind is Kind.CANNOT_DECIDE:
            continue
        values = analysis.evidence.values[analysis.primary(arm)]
        both = np.array([[values[seed], reference[seed]] for seed in analysis.evidence.study.seeds])
        assert np.isfinite(both).all() and not verdict.blocked_by
        difference = float(both[:, 0].mean() - both[:, 1].mean())
        if verdict.kind is Kind.EQUIVALENT:
            assert abs(difference) < 1.0
        else:
            assert (verdict.kind is Kind.BETTER) == (difference > 0)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(row, max_size=30))
def test_any_rows_give_a_report(imported_study: Callable[..., Path], rows: list) -> None:
    check(imported_study(results(rows), constraint="{name: cost, at_most: 5}"))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed_rows, seed_rows, seed_rows)
def test_any_complete_table_gives_a_supported_verdict(
    imported_study: Callable[..., Path], a: list[float], b: list[float], c: list[float]
) -> None:
    rows = [
        (arm, str(seed), condition, "final", "score", value)
        for arm, values in zip("abc", (a, b, c), strict=True)
        for condition in ("id", "shifted")
        for seed, value in enumerate(values)
    ]
    check(imported_study(results(rows)))


NASTY = {
    "nothing": "",
    "one value": "a,0,id,final,score,1\n",
    "a missing arm": "".join(f"{arm},{s},id,final,score,{s}\n" for arm in "ab" for s in range(5)),
    "no spread": "".join(f"{arm},{s},id,final,score,3\n" for arm in "abc" for s in range(5)),
    "nan only": "".join(f"{arm},{s},id,final,score,nan\n" for arm in "abc" for s in range(5)),
    "huge": "".join(
        f"{arm},{s},id,final,score,{v}\n"
        for arm, v in zip("abc", (1e308, -1e308, 1e307), strict=True)
        for s in range(5)
    ),
    "tiny and huge": "".join(
        f"{arm},{s},id,final,score,{(s + 1) * v}\n"
        for arm, v in zip("abc", (1e-300, 1e300, 1.0), strict=True)
        for s in range(5)
    ),
    "peaks only": "".join(f"{arm},{s},id,peak,score,{s}\n" for arm in "abc" for s in range(5)),
    "means only": "".join(f"{arm},0+1,id,final,score,{s}\n" for s, arm in enumerate("abc")),
    "cost only": "".join(f"{arm},{s},id,final,cost,{s}\n" for arm in "abc" for s in range(5)),
}


@pytest.mark.parametrize("name", NASTY)
def test_nasty_tables_give_figures_and_slides_too(imported_study: Callable[..., Path], name: str) -> None:
    root = imported_study(NASTY[name], constraint="{name: cost, at_most: 5}")
    write_all(root, "zh-Hant")
    check(root)
    shutil.rmtree(root)


@pytest.mark.parametrize("seeds", ["1", "2", "3"])
def test_few_seeds_give_a_report_and_no_false_verdict(imported_study: Callable[..., Path], seeds: str) -> None:
    rows = "".join(
        f"{arm},{s},id,final,score,{100 * n + s}\n" for n, arm in enumerate("abc") for s in range(int(seeds))
    )
    root = imported_study(rows, seeds=seeds)
    write_all(root, figures=False)
    verdicts = make_context(root, "en").analysis.verdicts.values()
    assert {verdict.kind for verdict in verdicts} == {Kind.CANNOT_DECIDE}

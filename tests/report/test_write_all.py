"""Reports of studies with a ledger: all files, the same bytes, verdicts that the evidence supports."""

import os
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import read_json, write_json
from dreamproof.report import make_context, next_seeds, write_all
from dreamproof.report.data import Group
from dreamproof.report.loading import load
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.stats.verdict import Kind
from dreamproof.testing.made_study import Plan, make_study

pytestmark = pytest.mark.long(40)

TABLES = (
    "main_results.csv ablation_results.csv main_results.md main_results.tex "
    "numbers.csv validation.csv provenance.csv episodes.csv scores.csv verdicts.json"
)
REPORTS = "decision.md appendix.md decision.html money.md status.md record.md defense.md slides.pptx"
FIGURES = (
    "curves_primary curves_cost conditions conditions_cost score_cost profile power trails coverage timeline money"
)


def read(root: Path, name: str) -> str:
    return (root / "reports" / f"{name}.md").read_text(encoding="utf-8")


def content(paths: list[Path]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


def test_no_file_of_a_study_is_opened_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, opened = make_study(tmp_path / "study", Plan(seeds=2)), Counter[str]()
    real = os.open

    def counted(path: Any, *arguments: Any, **options: Any) -> int:
        opened[str(path)] += 1
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", counted)
    load(root)
    read = {path: count for path, count in opened.items() if "/runs/" in path}
    assert len(read) > 40
    # This ledger names no sizes, so the ends of records and evaluations are looked at before they are read; a record is
    # also compared with the proven one.
    assert {count for path, count in read.items() if not path.endswith("/record.json")} == {1, 2}
    assert set(read.values()) == {1, 2, 3}


def test_every_document_is_written_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(missing=("full/2",)))
    first = content(write_all(root, "zh-Hans"))
    expected = [
        *TABLES.split(),
        *REPORTS.split(),
        *(f"{name}.{end}" for name in FIGURES.split() for end in ("png", "pdf")),
    ]
    assert sorted(first) == sorted(expected)
    second = content(write_all(root, "zh-Hans"))
    assert [name for name in first if first[name] != second[name]] == []


def test_a_moved_study_gives_the_same_bytes(tmp_path: Path) -> None:
    one = make_study(tmp_path / "one")
    first = content(write_all(one, figures=False))
    moved = one.rename(tmp_path / "elsewhere")
    assert content(write_all(moved, figures=False)) == first


def test_verdicts_of_all_kinds_stand_beside_the_limit(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    verdicts = make_context(root, "en").analysis.verdicts
    assert {arm: verdict.kind for arm, verdict in verdicts.items()} == {
        "u_only": Kind.CANNOT_DECIDE,
        "cert_only": Kind.EQUIVALENT,
        "full": Kind.BETTER,
    }
    write_all(root, figures=False)
    page, text = (read(root, name) for name in ("decision", "appendix"))
    assert "`full` is **better** than `baseline`, but **not shown to keep the limit**; `cert_only` is **equiv" in page
    assert "Cannot tell whether `full` keeps the limit of 5: cost 1.44 under id, 95 % bounds 0.77 and 5.29" in text
    assert "not shown to keep the limit. Not to be used yet" in page and "Use `full`." not in page


def reckless(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
    better = 5.0 if arm == "full" else 0.0
    return {"return": generator.normal(better, 0.5, 10), "cost": np.full(10, 30.0 if arm == "full" else 1.0)}


def test_an_arm_that_is_better_but_breaks_the_limit_is_reported(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), draw=reckless))
    write_all(root, figures=False)
    page, text = (read(root, name) for name in ("decision", "appendix"))
    assert "`full` is **better** than `baseline`, but shown to **break the limit**." in page
    assert (
        "But `full` breaks the limit: cost 30.00 under id, 95 % lower bound 16.48 > 5 (5 seeds); a better score" in text
    )
    assert "Do not use `full` unchanged" in page


def careful(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
    worse = -5.0 if arm == "full" else 0.0
    return {"return": generator.normal(worse, 0.5, 10), "cost": np.full(10, 0.0 if arm == "full" else 30.0)}


def test_a_reference_that_breaks_the_limit_is_reported_in_the_answer(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), draw=careful))
    write_all(root, figures=False)
    page, text = (read(root, name) for name in ("decision", "appendix"))
    answer = text[text.index("> ➤") : text.index("\n\n", text.index("> ➤"))]
    assert "`full` is **worse** than `baseline` and shown to keep the limit; `baseline` itself breaks" in page
    assert "`full` is **worse**" in answer and "`baseline` breaks the limit: cost 30.00 under id, 95 % lower" in answer
    assert "worse in the deciding metric, but shown to keep the limit, which `baseline` breaks" in page


def safer_when_shifted(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
    cost = 19.0 if (arm, condition) == ("baseline", "hallu2") else 0.0
    return {"return": generator.normal(-5.0 if arm == "full" else 0.0, 0.5, 10), "cost": np.full(10, cost)}


def test_an_arm_that_is_safe_where_the_reference_is_not_is_not_simply_dropped(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), draw=safer_when_shifted))
    write_all(root, figures=False)
    page, text = (read(root, name) for name in ("decision", "appendix"))
    answer = text[text.index("> ➤") : text.index("\n\n", text.index("> ➤"))]
    assert "It also keeps it under hallu2 (0.00), where `baseline` breaks it (19.00); these conditions" in answer
    assert "- `baseline` breaks the limit: cost 19.00 under hallu2, 95 % lower bound 10.44 > 5 (5 seeds)." in text
    assert "but under hallu2 shown to keep the limit, which `baseline` breaks there" in page
    assert "Drop `full`" not in page


def test_a_final_checkpoint_that_was_selected_counts_as_selected(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full")))
    selected = Group("full", "id", "return", "selected")
    assert selected not in make_context(root, "en").analysis.evidence.values
    for seed in range(5):
        run = StudyFolder(root).run(Cell("full", seed))
        write_json(run.selected, {"agent_steps": 500 if seed == 0 else 1000})
        record = read_json(run.evaluation("id"))
        if seed == 0:
            earlier = record["checkpoints"]["final"] | {"agent_steps": 500, "episodes": {"return": [7.0]}}
            write_json(run.evaluation("id"), record | {"checkpoints": record["checkpoints"] | {"selected": earlier}})
    values = make_context(root, "en").analysis.evidence.values
    assert values[selected] == values[Group("full", "id", "return")] | {0: 7.0}


def test_a_missing_deciding_evaluation_blocks_the_verdict(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(missing_evals=(("full/3", "id"),)))
    context = make_context(root, "en")
    assert context.analysis.verdicts["full"].kind is Kind.CANNOT_DECIDE
    write_all(root, figures=False)
    assert "> ⛔ **Partial study.**" in (root / "reports" / "decision.md").read_text()


def test_a_missing_evaluation_elsewhere_only_warns(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(missing_evals=(("full/3", "hallu2"),)))
    assert make_context(root, "en").analysis.verdicts["full"].kind is Kind.BETTER


def test_untrained_checkpoints_decide_nothing(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(gradient_steps=0))
    context = make_context(root, "en")
    assert {verdict.kind for verdict in context.analysis.verdicts.values()} == {Kind.CANNOT_DECIDE}
    assert "never_updated" in [lint.code for lint in context.analysis.lints]


def test_seeds_are_added_in_planned_batches_only(tmp_path: Path) -> None:
    plan = Plan(arms=("baseline", "u_only"), more={"maximum_seeds": 12})
    answer = next_seeds(make_study(tmp_path / "open", plan))
    assert (answer.add_seeds, answer.seeds_per_arm, answer.seeds([0, 1, 2, 3, 4])[-1]) == (True, 10, 9)
    assert answer.price is not None and answer.price > 0
    decided = Plan(arms=("baseline", "full"), more={"maximum_seeds": 12})
    assert next_seeds(make_study(tmp_path / "decided", decided)).reason == "decided"
    gap = Plan(arms=("baseline", "u_only"), more={"maximum_seeds": 12}, missing=("u_only/4",))
    assert next_seeds(make_study(tmp_path / "gap", gap)).reason == "gap"
    poor = Plan(
        arms=("baseline", "u_only"), more={"maximum_seeds": 12, "money": {"price_per_gpu_hour": 99, "budget": 1}}
    )
    assert next_seeds(make_study(tmp_path / "poor", poor)).reason == "budget"


def test_wasted_time_has_its_cause(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    write_all(root, figures=False)
    money = (root / "reports" / "money.md").read_text()
    assert "| out of host memory |" in money
    record = (root / "reports" / "record.md").read_text()
    assert "attempt ended: out of host memory" in record and "oom_kill 0 → 1" in record


def test_the_appendix_leads_to_run_folder_hash_and_ledger_line(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    context = make_context(root, "en")
    facts = next(iter(context.analysis.evidence.cells.values()))
    write_all(root, figures=False)
    row = next(line for line in read(root, "appendix").splitlines() if line.startswith("| baseline/0 |"))
    assert "`runs/baseline-seed0`" in row and facts.parameter_hash[:16] in row
    assert f"| {facts.ledger_lines[0]} |" in row


class Links(HTMLParser):
    """Collects ids and the targets of inner links."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.ids.add(str(found["id"]))
        target = found.get("href") or found.get("src") or ""
        if target.startswith("#"):
            self.targets.add(target[1:])
        elif target and not target.startswith("data:"):
            self.outside.append(target)


def test_the_page_is_whole_in_itself_and_every_number_leads_somewhere(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    write_all(root)
    page = Links()
    page.feed((root / "reports" / "decision.html").read_text())
    assert page.targets and page.targets <= page.ids
    assert page.outside == []


def test_every_evidence_mark_of_the_markdown_has_its_row(users_case: Path) -> None:
    write_all(users_case, figures=False)
    text = read(users_case, "appendix")
    assert set(re.findall(r"\]\(#(e\d+)\)", text)) == set(re.findall(r'<a id="(e\d+)">', text))


def test_a_question_with_markup_stays_text(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(more={"question": "<script>alert(1)</script> & {braces} | pipe?"}))
    write_all(root, figures=False)
    page = (root / "reports" / "decision.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_an_edited_ledger_is_refused(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    ledger = root / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"agent_steps":1000', '"agent_steps":9999', 1))
    with pytest.raises(BrokenEvidence):
        write_all(root, figures=False)


def test_a_folder_that_is_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="neither a ledger nor a declaration"):
        write_all(tmp_path)


def test_an_unknown_language_is_refused(users_case: Path) -> None:
    with pytest.raises(BadInput, match="'zh' is not a language of reports"):
        write_all(users_case, "zh")

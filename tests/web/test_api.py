"""The JSON API: what the verbs print, tables as CSV, kept answers, and changes that arrive."""

import csv
import itertools
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dreamproof.cli.main import app
from dreamproof.report.figures import NAMES
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.study.ledger import events
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import Moment
from dreamproof.testing.gallery import unpack
from dreamproof.testing.made_study import START, Plan, declaration, make_study
from dreamproof.testing.served import Dashboard, dashboard
from dreamproof.testing.waiting import wait_for
from dreamproof.web.api import ENDPOINTS
from dreamproof.web.followed import FollowedStudy


def printed(*arguments: str | Path) -> object:
    return json.loads(CliRunner().invoke(app, [*map(str, arguments), "--json"]).stdout)


def test_status_money_and_why_are_what_the_verbs_print(served: Dashboard, made: Path) -> None:
    for name in ("whole", "part"):
        assert served.data(f"/studies/{name}/status") == printed("status", made / name)
        assert served.data(f"/studies/{name}/cells/full/1") == printed("why", made / name, "full/1")
        money = printed("money", made / name)
        assert served.data(f"/studies/{name}/money") == money


def test_all_studies_of_a_folder_are_listed_with_state_progress_and_money(served: Dashboard) -> None:
    whole, part = sorted(served.data("/studies")["studies"], key=lambda one: -one["train"]["proven"])
    assert (whole["study"], whole["state"], whole["complete"]) == ("whole", "complete", True)
    assert part["state"] == "waiting" and part["train"]["proven"] == 18 and part["train"]["missing"] == 2
    assert part["money"]["spent"] > 0 and part["money"]["budget"] == 200 and part["seconds_left"] > 0


def test_the_matrix_is_one_letter_per_cell(served: Dashboard) -> None:
    matrix = served.data("/studies/part/matrix")
    codes = matrix["codes"]
    assert [arm["name"] for arm in matrix["arms"]] == ["baseline", "u_only", "cert_only", "full"]
    assert [codes[letter] for letter in matrix["train"][3]] == ["proven"] * 3 + ["missing"] * 2
    assert [codes[letter] for letter in matrix["evaluate"]["id"][3]] == ["proven"] * 2 + ["missing"] * 3
    assert len(set(codes)) == len(codes) == 11


def test_curves_have_seeds_means_and_the_interval_of_the_reports(served: Dashboard) -> None:
    curves = served.data("/studies/whole/curves?metric=cost")
    full = curves["arms"][3]
    assert curves["limit"] == 5.0 and len(full["seeds"]) == 5 and len(full["mean"]) == len(curves["agent_steps"])
    assert full["low"][10] < full["mean"][10] < full["high"][10] and min(full["low"]) >= 0
    smooth = served.data("/studies/whole/curves?metric=cost&smooth=10")
    assert smooth["smoothed"] == 10

    def roughness(values: list[float]) -> float:
        return sum(abs(b - a) for a, b in itertools.pairwise(values))

    assert roughness(smooth["arms"][3]["seeds"]["0"]) < 0.5 * roughness(full["seeds"]["0"])


def test_conditions_have_scores_costs_and_the_verdict_on_the_limit(served: Dashboard) -> None:
    found = served.data("/studies/whole/conditions")
    first = found["conditions"][0]
    assert first["decides"] and {arm["limits"]["cost"] for arm in first["arms"].values()} <= {
        "keeps",
        "breaks",
        "cannot_tell",
    }
    assert len(first["arms"]["full"]["score"]["seeds"]) == 5 and found["constraints"] == [
        {"name": "cost", "at_most": 5.0}
    ]


@pytest.mark.parametrize("language", ["en", "zh-Hans", "zh-Hant"])
def test_the_decision_is_the_report_in_every_language(served: Dashboard, language: str) -> None:
    found = served.data(f"/studies/part/decision?language={language}")
    kinds = [block["kind"] for block in found["blocks"]]
    assert kinds[0] == "stamp" and {"table", "picture", "bullets"} <= set(kinds)
    numbers = [
        span for block in found["blocks"] if block["kind"] == "table" for row in block["rows"] for span in row[1]
    ]
    assert any(isinstance(span, dict) and span["cells"] for span in numbers)


def shown_pictures(served: Dashboard, study: str) -> list[str]:
    """Names of the pictures on a study's decision page, all of which can be drawn."""
    blocks = served.data(f"/studies/{study}/decision")["blocks"]
    names = [block["name"] for block in blocks if block["kind"] == "picture"]
    for name in names:
        assert served.get(f"/api/v1/studies/{study}/figures/{name}.png").status == 200, name
    return names


def test_the_decision_page_has_the_pictures_of_the_report(tmp_path: Path) -> None:
    make_study(tmp_path / "one")
    unpack(Path(__file__).parents[2] / "gallery" / "mt30", tmp_path / "mt30")
    with dashboard(tmp_path / "one", tmp_path / "mt30") as served:
        assert shown_pictures(served, "one") == ["conditions", "conditions_cost"]
        assert shown_pictures(served, "mt30") == ["task_scores", "task_profile"]


def test_every_figure_of_the_reports_has_a_name_here() -> None:
    from dreamproof.report.figures.draw import FIGURES, LIMITED

    assert {*FIGURES, *LIMITED} == {*NAMES}


def test_figures_are_drawn_and_unknown_ones_are_not_found(served: Dashboard) -> None:
    reply = served.get("/api/v1/studies/whole/figures/timeline.png")
    assert reply.status == 200 and reply.body.startswith(b"\x89PNG")
    assert served.get("/api/v1/studies/whole/figures/power2.png").status == 404


def test_the_ledger_is_filtered_and_paged(served: Dashboard) -> None:
    first = served.data("/studies/whole/ledger?limit=3")
    assert [row["n"] for row in first["events"]] == [first["total"], first["total"] - 1, first["total"] - 2]
    older = served.data(f"/studies/whole/ledger?limit=2&before={first['events'][-1]['n']}")
    assert older["events"][0]["n"] == first["events"][-1]["n"] - 1
    killed = served.data("/studies/whole/ledger?event=attempt_ended&cell=&text=host_oom")["events"]
    assert len(killed) == 4 and {row["cause"] for row in killed} == {"host_oom"}
    assert served.data("/studies/whole/ledger?cell=full/1&event=train_proven")["events"][0]["cell"] == "full/1"


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if one.rows is not None], ids=lambda one: one.path)
def test_tables_are_also_csv(served: Dashboard, endpoint: object) -> None:
    path = endpoint.path.format(arm="full", seed=1)  # type: ignore[attr-defined]
    reply = served.get(f"/api/v1/studies/whole{path}?format=csv")
    assert reply.status == 200 and reply.headers["content-type"].startswith("text/csv")
    assert reply.body.count(b"\n") > 5


def test_the_index_lists_every_address(served: Dashboard) -> None:
    listed = served.data("")["addresses"]
    assert [one["address"].removeprefix("/api/v1") for one in listed] == [
        "/studies",
        "/events",
        "/studies/STUDY/figures/NAME.png",
        *(f"/studies/STUDY{one.path}" for one in ENDPOINTS),
    ]
    assert all(one["meaning"] for one in listed)


def test_an_unchanged_answer_is_not_sent_twice(served: Dashboard) -> None:
    first = served.get("/api/v1/studies/whole/matrix")
    again = served.get("/api/v1/studies/whole/matrix", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_what_is_not_there_is_an_error_with_a_hint(served: Dashboard) -> None:
    for path in (
        "/studies/nothing/status",
        "/studies/whole/cells/full/99",
        "/studies/whole/cells/full/1/log?attempt=x",
    ):
        reply = served.get(f"/api/v1{path}")
        assert reply.status == 404 and reply.json["error"]["hint"]
    assert served.get("/api/v1/studies/whole/ledger?limit=many").status == 400
    assert served.get("/api/v1/studies/whole/decision?language=fr").status == 400


class Growing:
    """A study whose ledger and logs grow while it is served."""

    def __init__(self, root: Path) -> None:
        make_study(root, Plan(arms=("baseline", "full"), seeds=2, missing=("full/1",)))
        self.folder = StudyFolder(root)
        self._seconds = START + 90_000

    def append(self, *what: events.Event) -> None:
        self._seconds += 1
        ledger = Ledger(self.folder.ledger, clock=lambda: Moment(self._seconds))
        ledger.append_all(list(what), durable=False)
        ledger.close()

    def log(self, cell: str, step: int) -> None:
        run = self.folder.run(Cell.parse(cell))
        run.root.mkdir(parents=True, exist_ok=True)
        with run.metrics.open("a") as file:
            file.write(json.dumps({"agent_steps": step, "return": float(step)}) + "\n")


def test_new_events_are_taken_in_without_reading_the_ledger_again(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "study")
    followed = FollowedStudy(tmp_path / "study", "study")
    before, state = followed.version, followed.opened.state
    assert not followed.refresh()
    growing.append(events.AttemptStarted("a1", "train", ["full/1"], [], ["train"], {"full/1": 0}))
    assert followed.refresh() and followed.version > before
    assert followed.opened.state is state and "a1" in state.open_attempts
    assert next(followed.newest_events())["attempt"] == "a1"


def test_a_ledger_that_is_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    Growing(tmp_path / "study")
    followed = FollowedStudy(tmp_path / "study", "study")
    (tmp_path / "study" / "ledger.jsonl").unlink()
    make_study(tmp_path / "other", Plan(arms=("baseline", "full"), seeds=1))
    (tmp_path / "other" / "ledger.jsonl").rename(tmp_path / "study" / "ledger.jsonl")
    assert followed.refresh()
    assert len(followed.opened.state.cells) == 2


def test_an_edited_ledger_is_reported_and_its_repair_too(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "study")
    good = growing.folder.ledger.read_bytes()
    with dashboard(tmp_path) as running:
        growing.folder.ledger.write_bytes(good.replace(b"host_oom", b"harmless"))
        wait_for(lambda: running.data("/studies")["studies"][0]["state"] == "unreadable")
        assert "edited" in running.data("/studies")["studies"][0]["error"]["message"]
        assert running.get("/api/v1/studies/study/status").status == 503
        growing.folder.ledger.write_bytes(good)
        wait_for(lambda: running.data("/studies")["studies"][0]["state"] == "waiting")


def test_a_change_is_an_event_of_the_stream_and_a_new_answer(tmp_path: Path) -> None:
    import http.client

    growing = Growing(tmp_path / "study")
    with dashboard(tmp_path) as running:
        assert len(running.data("/studies/study/cells/full/0/curve")["values"]) == 60
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
        connection.request("GET", "/api/v1/events")
        stream = connection.getresponse()

        def next_event() -> tuple[str, dict[str, dict[str, int]]]:
            lines: list[str] = []
            while not (lines and lines[-1].startswith("data:")):
                lines.append(stream.readline().decode().strip())
            kind = next(line for line in lines if line.startswith("event:"))
            return kind.removeprefix("event: "), json.loads(lines[-1].removeprefix("data: "))

        kind, versions = next_event()
        assert kind == "hello" and set(versions) == {"study"}
        growing.append(events.AttemptStarted("a1", "train", ["full/1"], [], ["train"], {"full/1": 0}))
        kind, changed = next_event()
        assert kind == "change" and changed["study"]["ledger"] > versions["study"]["ledger"]
        assert "a1" in [one["attempt"] for one in running.data("/studies/study/timeline")["attempts"]]
        growing.log("full/1", 5)
        growing.log("full/1", 6)
        while changed["study"]["progress"] <= versions["study"]["progress"] + 1:
            kind, changed = next_event()
        wait_for(lambda: running.data("/studies/study/cells/full/1/curve")["values"] == [5.0, 6.0])
        connection.close()


def test_a_study_that_appears_in_a_served_folder_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamproof.web.watching.FOLDERS_SECONDS", 0.1)
    Growing(tmp_path / "first")
    with dashboard(tmp_path) as running:
        make_study(tmp_path / "inner" / "second", Plan(arms=("baseline", "full"), seeds=1))
        wait_for(lambda: len(running.data("/studies")["studies"]) == 2)


def big_study(root: Path) -> None:
    """A declared study of ten thousand cells."""
    study = declaration(Plan(arms=tuple(f"arm{n}" for n in range(100)), seeds=100, conditions=()))
    ledger = Ledger(StudyFolder(root).ledger, clock=lambda: Moment(time.time()))
    ledger.append(events.StudyDeclared(study.hash(), study.model_dump(mode="json")), durable=False)
    ledger.close()


def test_ten_thousand_cells_are_a_small_answer(tmp_path: Path) -> None:
    big_study(tmp_path / "big")
    with dashboard(tmp_path / "big") as running:
        matrix = running.get("/api/v1/studies/big/matrix")
        assert len(matrix.body) < 40_000 and sum(map(len, matrix.json["train"])) == 10_000


def csv_rows(served: Dashboard, path: str) -> list[dict[str, str]]:
    reply = served.get(f"/api/v1/studies/whole{path}")
    assert reply.status == 200, reply.body
    return list(csv.DictReader(reply.body.decode().splitlines()))


def test_the_table_of_money_has_money_and_adds_up(served: Dashboard) -> None:
    rows, money = csv_rows(served, "/money?format=csv"), served.data("/studies/whole/money")
    total = next(float(row["money"]) for row in rows if row["part"] == "total")
    assert total == pytest.approx(money["total_money"], abs=1e-5) and total > 0
    assert sum(float(row["money"]) for row in rows if row["part"] in ("cell", "idle")) == pytest.approx(total, abs=1e-3)
    assert {row["name"] for row in rows if row["part"] == "cause"} == set(money["wasted_by_cause"])
    assert {row["currency"] for row in rows} == {money["currency"]}


def test_the_table_of_conditions_has_means_intervals_and_verdicts(served: Dashboard) -> None:
    rows = csv_rows(served, "/conditions?format=csv")
    first = served.data("/studies/whole/conditions")["conditions"][0]
    row = next(one for one in rows if (one["condition"], one["arm"], one["seed"]) == (first["name"], "full", "mean"))
    full = first["arms"]["full"]
    assert float(row["score"]) == full["score"]["mean"] and float(row["score_low"]) == full["score"]["low"]
    assert float(row["cost_high"]) == full["costs"]["cost"]["high"] and row["cost_limit"] == full["limits"]["cost"]
    assert sum(one["seed"] != "mean" for one in rows) == 5 * sum(one["seed"] == "mean" for one in rows)


def test_the_table_of_curves_says_how_it_is_smoothed(served: Dashboard) -> None:
    assert {row["mean_of_last"] for row in csv_rows(served, "/curves?format=csv")} == {"1"}
    assert {row["mean_of_last"] for row in csv_rows(served, "/curves?format=csv&smooth=10")} == {"10"}


def test_a_mean_ends_where_one_of_its_seeds_ends(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "study")
    with dashboard(tmp_path) as running:
        steps = running.data("/studies/study/cells/full/0/curve")["agent_steps"]
        for step in steps[:20]:
            growing.log("full/1", int(step))
        wait_for(lambda: len(running.data("/studies/study/cells/full/1/curve")["values"]) == 20)
        curves = running.data("/studies/study/curves?metric=return")
    full = next(arm for arm in curves["arms"] if arm["name"] == "full")
    assert len(full["seeds"]) == 2 and None not in full["seeds"]["0"]
    assert None not in full["mean"][:20] and set(full["mean"][20:]) == {None}


def test_a_supervisor_without_an_end_is_lost(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "study")
    growing.append(events.SupervisorStarted("boot", 1, 1, "host", "1"), events.SupervisorEnded("its work is done"))
    growing.append(events.SupervisorStarted("boot", 2, 1, "host", "1"))
    with dashboard(tmp_path) as running:
        spans = running.data("/studies/study/timeline")["supervisors"]
    assert [(one["lost"], one["alive"]) for one in spans[-2:]] == [(False, False), (True, False)]


def test_the_log_that_is_shown_first_is_the_newest_that_holds_something(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "study")
    with dashboard(tmp_path) as running:
        known = running.data("/studies/study/cells/full/0")["attempts"]
        first, last = known[0]["attempt"], known[-1]["attempt"]
        for name, text in ((first, "a line\n"), (last, "")):
            output = growing.folder.attempt(name).output
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text)
        assert first != last and running.data("/studies/study/cells/full/0/log")["attempt"] == first
        assert running.data(f"/studies/study/cells/full/0/log?attempt={last}")["text"] == ""


def test_a_mistyped_address_is_a_page_for_people_and_an_error_for_programs(served: Dashboard) -> None:
    page, answer = served.get("/studies/whole/nope"), served.get("/api/v1/nope")
    assert page.status == 404 and page.headers["content-type"].startswith("text/html") and b"app.js" in page.body
    assert answer.status == 404 and answer.json["error"]["hint"]

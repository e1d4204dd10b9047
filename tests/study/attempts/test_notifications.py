"""Notifications: what is sent, to whom, how often, and that secrets stay where they are."""

import http.server
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dreamproof.base.errors import BadInput
from dreamproof.cli.main import app
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import read_study
from dreamproof.study.attempts.notifications import Message, Notifier, RateLimit, message_of, send
from dreamproof.study.ledger.chain import read_ledger
from dreamproof.study.money.budget import Budget
from dreamproof.study.plan.commands import check_commands
from dreamproof.testing.small_study import declare, small_study
from dreamproof.testing.waiting import wait_for

SAVE = "import os, sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n' + os.environ.get('SECRET', '-') + '\\n')"
DEATH = {"event": "attempt_ended", "n": 7, "attempt": "a1", "cause": "host_oom", "cells": ["x/0"],
         "evidence": ["oom_kill 0 → 1, token=abcdefghijklmnop"]}  # fmt: skip


def study(**notification: Any) -> Study:
    return Study.model_validate(small_study(notify=[{"on": ["death"], **notification}]))


def saving(file: Path) -> list[str]:
    return [sys.executable, "-c", SAVE, str(file)]


def test_deaths_stalls_budget_and_decision_are_worth_a_message() -> None:
    death = message_of(DEATH, "night")
    assert death is not None and death.on == "death" and death.text.startswith("night: a1 ended: host_oom — oom_kill")
    assert "abcdefghijklmnop" not in death.text
    stall = {"event": "liveness_changed", "n": 1, "attempt": "a1", "state": "stalled", "reason": "no progress"}
    budget = {"event": "budget_warned", "n": 1, "spent": 81.0, "budget": 100.0}
    decided = {"event": "report_written", "n": 1, "files": [], "answer": "full is better"}
    messages = [message_of(row, "night") for row in (stall, budget, decided)]
    assert [one.on for one in messages if one] == ["stall", "budget", "decision"]
    for quiet in (
        {**DEATH, "cause": "completed"},
        {**DEATH, "cause": "stopped_by_user"},
        {**stall, "state": "running"},
    ):
        assert message_of(quiet, "night") is None


def test_a_command_gets_the_message_and_only_the_variables_it_names(tmp_path: Path) -> None:
    file = tmp_path / "sent"
    environment = {"SECRET": "s3cret", "OTHER": "x", "PATH": "/usr/bin"}
    notifier = Notifier(study(command=saving(file), from_env=["SECRET"]), environment)
    notifier.take(DEATH)
    assert [(one.on, one.sent) for one in notifier.finish()] == [("death", True)]
    body, secret = file.read_text().splitlines()
    assert secret == "s3cret" and json.loads(body)["study"] == "small" and json.loads(body)["cause"] == "host_oom"
    Notifier(study(command=saving(file)), environment).take(DEATH)
    wait_for(lambda: len(file.read_text().splitlines()) == 4)
    assert file.read_text().splitlines()[3] == "-"


def test_a_command_that_fails_or_hangs_is_recorded_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    message = Message("death", "text")
    notify = study(command=[sys.executable, "-c", "raise SystemExit(3)"]).notify[0]
    assert send(notify, message, {}) == "exit code 3"
    slow = study(command=[sys.executable, "-c", "import time; time.sleep(600)"], timeout_seconds=0.2).notify[0]
    assert send(slow, message, {}) == "took longer than 0.2 s"
    assert send(study(command=["no-such-program"]).notify[0], message, {}) == "No such file or directory"


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """A local server that keeps what is posted to it."""
    received: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            return

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", received
    finally:
        server.shutdown()
        server.server_close()


def test_a_webhook_gets_json_and_its_address_stays_out_of_the_record() -> None:
    with receiver() as (address, received):
        notifier = Notifier(study(webhook_from_env="HOOK"), {"HOOK": address})
        notifier.take(DEATH)
        [outcome] = notifier.finish()
        assert outcome.sent and received[0]["text"].startswith("small: a1 ended") and received[0]["event"] == 7
        assert address not in str(outcome)
    failed = send(study(webhook_from_env="HOOK").notify[0], Message("death", "x"), {"HOOK": address})
    assert failed == "Connection refused"
    with receiver(500) as (address, _):
        assert send(study(webhook=address).notify[0], Message("death", "x"), {}) == "HTTP status 500"
    with receiver(302) as (address, received):
        assert send(study(webhook=address).notify[0], Message("death", "x"), {}) == "HTTP status 302"
        assert len(received) == 1
    assert "holds no http" in str(
        send(study(webhook_from_env="HOOK").notify[0], Message("death", "x"), {"HOOK": "file:///x"})
    )


def test_so_many_per_hour_and_the_rest_is_counted(tmp_path: Path) -> None:
    now = [0.0]
    limit = RateLimit(2, lambda: now[0])
    assert [limit.allows() for _ in range(5)] == [True, True, False, False, False]
    now[0] = 3601.0
    assert limit.allows() and limit.take_held_back() == 3
    file, now[0] = tmp_path / "sent", 0.0
    notifier = Notifier(study(command=saving(file), at_most_per_hour=1), {}, lambda: now[0])
    for _ in range(4):
        notifier.take(DEATH)
    now[0] = 4000.0
    notifier.take(DEATH)
    assert len(notifier.finish()) == 2
    assert "and 3 more messages" in file.read_text().splitlines()[2]


@pytest.mark.parametrize(
    ("notification", "message"),
    [
        ({}, "exactly one of"),
        ({"command": ["x"], "webhook": "https://example.org/a"}, "exactly one of"),
        ({"webhook": "ftp://example.org"}, "not an http"),
        ({"webhook": "https://hooks.example.org/services/T0AB1CD2E/x9yZ8wV7uT6sR5qP4oN3"}, "webhook_from_env"),
        ({"webhook": "https://me:word@example.org/"}, "webhook_from_env"),
        ({"command": ["x"], "on": ["sunrise"]}, "on"),
    ],
)
def test_a_bad_notification_is_refused(tmp_path: Path, notification: dict[str, Any], message: str) -> None:
    file = declare(tmp_path, notify=[{"on": ["death"], **notification}])
    with pytest.raises(BadInput, match=message):
        read_study(file)


def test_a_variable_that_is_not_set_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    declared = study(webhook_from_env="NO_SUCH_HOOK")
    with pytest.raises(BadInput, match="NO_SUCH_HOOK"):
        check_commands(declared, tmp_path)


def test_a_study_without_notifications_keeps_its_hash() -> None:
    plain = Study.model_validate(small_study())
    assert plain.notify == [] and plain.hash() == Study.model_validate(small_study(notify=[])).hash()
    assert plain.hash() != study(command=["x"]).hash()


def test_eighty_percent_of_the_budget_is_mostly_spent() -> None:
    money = {"price_per_gpu_hour": 3600.0, "budget": 100.0}
    declared = Study.model_validate(small_study(money=money, backend={"slots": 1}))
    budget = Budget(declared)
    assert not budget.is_mostly_spent(79.0) and budget.is_mostly_spent(81.0)


def sent_by(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]


def test_a_run_notifies_of_a_death_and_of_its_decision(tmp_path: Path) -> None:
    file = tmp_path / "sent"
    study_file = declare(tmp_path, notify=[{"on": ["death", "decision"], "command": saving(file)}])
    run = tmp_path / "results" / "small" / "runs" / "low-seed0"
    run.mkdir(parents=True)
    (run / "fault.json").write_text(json.dumps({"at": 8, "kind": "exception", "times": 1}))
    result = CliRunner().invoke(app, ["run", str(study_file), "--plain", "--no-check"])
    assert result.exit_code == 0, result.output
    sent = sent_by(file)
    assert [one["on"] for one in sent] == ["death", "decision"]
    assert "scripted failure" in sent[0]["text"] and "Cannot decide" in sent[1]["text"]
    rows = read_ledger(tmp_path / "results" / "small" / "ledger.jsonl")
    notified = [(row["on"], row["sent"]) for row in rows if row["event"] == "notified"]
    assert notified == [("death", True), ("decision", True)]


def test_a_run_notifies_of_its_budget(tmp_path: Path) -> None:
    file = tmp_path / "sent"
    money = {"price_per_gpu_hour": 3600.0, "budget": 2.0}
    study_file = declare(tmp_path, money=money, notify=[{"on": ["budget"], "command": saving(file)}])
    CliRunner().invoke(app, ["run", str(study_file), "--plain", "--no-check"])
    assert {one["on"] for one in sent_by(file)} == {"budget"}
    assert sent_by(file)[-1]["budget"] == 2.0

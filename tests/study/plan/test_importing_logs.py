"""Flat folders of Slurm logs, tables of results and evaluation folders, in the forms in which users keep them."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from tests.users_world import NO_MODULE, PPT, PWM_ARMS, evaluation_folder, slurm_logs, sprint_box
from typer.testing import CliRunner

from dreamproof.cli.main import app
from dreamproof.runs.layout import Cell
from dreamproof.study.plan.importing.eval_logs import read_eval_log
from dreamproof.study.plan.open_study import open_study
from dreamproof.testing.small_study import declare

PRINTED = {"command": ["{python}", "train.py", "{run_dir}"], "adapter": "bracket_lines"}


def pwm_study(folder: Path, **changes: Any) -> str:
    arms = {arm: {"number": index} for index, arm in enumerate(PWM_ARMS)}
    metric = {"name": "R", "smallest_difference": 50.0}
    given = {"trainer": PRINTED, "conditions": [], "arms": arms, "seeds": 1, "agent_steps": 20000, "metric": metric}
    return str(
        declare(folder, **{**given, "name": "pwm", "money": {"price_per_gpu_hour": 2.0, "currency": "CNY"}, **changes})
    )


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code != 0, result.output
    return str(result.exception)


def line_of(text: str, start: str) -> str:
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return line


# Slurm logs


def test_a_folder_of_logs_is_no_run_whatever_its_path_names(tmp_path: Path) -> None:
    file, logs = pwm_study(tmp_path, arms={"a": {}, "b": {"x": 1}}, seeds=2), tmp_path / "night_s1" / "a-logs"
    logs.mkdir(parents=True)
    for name in ("a_s0", "b_s0"):
        (logs / f"{name}_2318001.out").write_text("[5/10] R:1.0\n")
    shown = call("import", file, str(logs), "--dry-run")
    assert "a/0: unproven: job" in shown and "b/0: unproven: job" in shown and "a/1: missing" in shown


def test_a_log_whose_lines_cannot_be_read_is_not_called_one_of_no_steps(tmp_path: Path) -> None:
    file = pwm_study(tmp_path, arms={"a": {}})
    lines = "".join(f"Epoch {count} of 1000: reward {count / 10}\n" for count in range(1, 1001))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train_a_2318001.out").write_text(lines)
    shown = call("import", file, str(tmp_path / "logs"))
    assert "a/0: unproven: job 2318001: no progress could be read in 1,000 lines with numbers; declare" in shown
    assert "0 agent steps" not in shown and "vanished" not in shown
    (tmp_path / "logs" / "train_a_2318001.err").write_text(NO_MODULE)
    assert "0 agent steps" in call("import", file, str(tmp_path / "logs"), "--dry-run")


def test_twenty_two_slurm_logs_are_imported_in_one_command(tmp_path: Path) -> None:
    file = pwm_study(tmp_path)
    slurm_logs(tmp_path / "logs")
    assert len(list((tmp_path / "logs").iterdir())) == 22
    shown = call("import", file, str(tmp_path / "logs"))
    assert "0 of 12 cells proven, 12 unproven, 0 missing" in shown
    assert "ended early: import_error 4, host_oom 3, vanished 3" in shown
    assert "aborted duplicates, counted as waste: 3" in shown
    assert shown.count("R final") == 8 + 3, "eight runs, and the three that were killed"
    ended = "job 2314140: 15,000 of 15,000 agent steps; R final 29.90, peak 1,222.15; the study declares 20,000"
    assert line_of(shown, "5M_baseline/0") == f"5M_baseline/0: unproven: {ended}"
    assert "20,000 of 20,000 agent steps; R final 1,131.70, peak 1,132.89; a log alone proves no checkpoint" in shown
    assert "job 2322458: 12,720 of 20,000 agent steps; R final 17.40, peak 1,119.57; vanished" in shown
    assert "job 2318002: 5,420 of 20,000 agent steps" in shown and "host_oom: slurmstepd: error: Detected 1" in shown
    assert "import_error: ModuleNotFoundError: No module named 'envs'" in line_of(shown, "48M_mt_flow_v3/0")
    before = (tmp_path / "results/pwm/ledger.jsonl").read_text()
    call("import", file, str(tmp_path / "logs"))
    assert (tmp_path / "results/pwm/ledger.jsonl").read_text() == before, "importing again changes nothing"


def test_what_an_import_of_logs_saw_is_the_same_in_every_verb_and_document(tmp_path: Path) -> None:
    file = pwm_study(tmp_path)
    slurm_logs(tmp_path / "logs")
    call("import", file, str(tmp_path / "logs"))
    assert "0/12 proven, 12 unproven" in call("status", file)
    why = call("why", file, "48M_flow_v2/0")
    assert "job 2322458; 12,720 of 20,000 agent steps; R final 17.40, peak 1,119.57; vanished" in why
    assert "job 2318002; 5,420 of 20,000 agent steps; R final 1,100.00" in why and "aborted, counted as waste" in why
    assert "Detected 1 oom_kill event in StepId=2318002.batch" in why
    cells = {row["arm"]: row for row in json.loads(call("status", file, "--json"))["cells"]}
    assert cells["48M_flow_v2"]["reached_agent_steps"] == 12720 and cells["48M_flow_v2"]["aborted_runs"] == 1
    assert cells["48M_mt_flow_v1"]["last_cause"] == "import_error"
    table = (tmp_path / "results/pwm/manifests/train_status.tsv").read_text()
    assert table.count("\timport_error\t") == 4
    call("report", file)
    record = (tmp_path / "results/pwm/reports/record.md").read_text()
    assert "| out of host memory | 3 |" in record
    assert "R final 17.40, peak 1,119.57" in record and "import error" in record


def test_seeds_come_from_the_name_from_a_pattern_or_from_a_table_and_never_from_a_job(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("train_flow_seed1_2318001", "flow-s2-2318002", "run.flow.2318003"):
        (logs / f"{name}.out").write_text("[10/10] R:1.0\n")
    file = pwm_study(tmp_path, arms={"flow": {}}, seeds=3, agent_steps=10)
    found = json.loads(call("import", file, str(logs), "--dry-run", "--json"))
    assert sorted(found["unproven"]) == ["flow/1", "flow/2"]
    [unmatched] = found["unmatched"]
    assert "run.flow.2318003: names no declared seed: use --pattern with {seed}, or --jobs TABLE" in unmatched
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,seed\n2318003,0\n2318001,2\n")
    found = json.loads(call("import", file, str(logs), "--dry-run", "--json", "--jobs", str(jobs)))
    assert sorted(found["unproven"]) == ["flow/0", "flow/2"], "the table decides where it names a job"
    found = json.loads(call("import", file, str(logs), "--dry-run", "--json", "--pattern", "{arm}-s{seed}-{job}"))
    assert sorted(found["unproven"]) == ["flow/2"]
    jobs.write_text("job_id,config\n2318003,flown\n")
    assert "'flown' is not one of the arms flow" in refused("import", file, str(logs), "--jobs", str(jobs))


def test_names_with_spaces_progress_bars_and_values_that_are_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "flow seed 0 (copy) .out").write_bytes(
        b"\x00\xff[10/100] R:nan\r[50/100] R:5.0\r[100/100] R:nan\r\n"
    )
    file = pwm_study(tmp_path, arms={"flow": {}}, seeds=3, agent_steps=100)
    shown = line_of(call("import", file, str(tmp_path / "logs")), "flow/0")
    assert "100 of 100 agent steps; R final nan, peak 5.00" in shown
    call("report", file)


def test_a_log_counts_in_the_studys_steps_and_by_its_own_expression(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a_2318001.out").write_text("epoch 5 of 10 return=3.5\nepoch 7 of 10 return=2.5\n")
    pattern = r"epoch (?P<step>\d+) of (?P<total>\d+) return=(?P<ret>[\d.]+)"
    trainer = {**PRINTED, "adapter": "line_pattern", "line_pattern": pattern, "steps_per_count": 2048}
    file = pwm_study(tmp_path, arms={"a": {}}, trainer=trainer, agent_steps=20480)
    shown = call("import", file, str(tmp_path / "logs"))
    assert "a/0: unproven: job 2318001: 14,336 of 20,480 agent steps; ret final 2.50, peak 3.50; vanished" in shown


# Aborted duplicates


SPRINT = {"command": ["{python}", "train.py", "{run_dir}"], "evaluate": ["{python}", "e.py"], "adapter": "embodied"}


def sprint_study(folder: Path, **changes: Any) -> str:
    arms = {arm: {"method": arm} for arm in ("v2_baseline", "v2_u_only", "v2_cert_only", "v2_full")}
    given = {
        "trainer": SPRINT,
        "arms": arms,
        "seeds": 5,
        "agent_steps": 4096,
        "money": {"price_per_gpu_hour": 3.5, "currency": "CNY"},
    }
    conditions = ["id", {"name": "ood", "kind": "proxy", "settings": {"hallu.level": 2}}]
    metric = {"name": "score", "smallest_difference": 1.0}
    shared = {
        "name": "sprint",
        "conditions": conditions,
        "metric": metric,
        "constraint": {"name": "cost", "at_most": 25},
    }
    return str(declare(folder, **{**given, **shared, **changes}))


def test_aborted_duplicates_are_counted_as_waste_everywhere(tmp_path: Path) -> None:
    file = sprint_study(tmp_path)
    sprint_box(tmp_path, "late")
    shown = call("import", file, str(tmp_path / "runs"))
    assert "17 of 20 cells proven, 0 unproven, 3 missing" in shown and "counted as waste: 3" in shown
    known = open_study(Path(file)).state.cells[Cell("v2_baseline", 3)]
    assert known.aborted_seconds == 3 * 59 and known.wall_seconds == pytest.approx(6030)
    assert call("why", file, "v2_baseline/3").count("aborted, counted as waste") == 3
    money = call("money", file)
    assert "runs made outside the study: 1 d 4 h, ¥99.8" in money and "wasted of it: aborted 2 min 5" in money
    together = line_of(money, "together with them: ").removeprefix("together with them: ")
    call("report", file)
    report = (tmp_path / "results/sprint/reports/money.md").read_text()
    assert together in report, "the verb and the document name the same sum"


def test_rows_of_a_log_are_not_counted_as_updates(tmp_path: Path) -> None:
    file = sprint_study(tmp_path)
    sprint_box(tmp_path, "late")
    call("import", file, str(tmp_path / "runs"))
    assert "4,096 agent steps, at least 2 updates, parameters" in call("why", file, "v2_full/0")
    cells = json.loads(call("status", file, "--json"))["cells"]
    assert {row["gradient_steps"] for row in cells} == {None}, "two rows of a log are no number of updates"
    call("report", file)
    table = list(csv.DictReader((tmp_path / "results/sprint/tables/provenance.csv").open()))
    assert {row["gradient_steps"] for row in table} == {""}


def test_no_file_is_named_that_does_not_exist(tmp_path: Path) -> None:
    file = sprint_study(tmp_path)
    sprint_box(tmp_path, "late")
    call("import", file, str(tmp_path / "runs"))
    rows = json.loads(call("status", file, "--json"))["eval_cells"]
    assert {row["file"] for row in rows} == {None}


# Tables of results and evaluation folders


def test_a_table_of_means_needs_its_seeds_and_is_then_reported(tmp_path: Path) -> None:
    file = sprint_study(tmp_path)
    sprint_box(tmp_path, "late")
    table = str(tmp_path / "tables/paper_main_results.csv")
    message = refused("import", file, table)
    assert "means over seeds that it does not name" in message and "--seeds 0-4" in message
    shown = call("import", file, table, "--seeds", "0-1")
    assert "reported: v2_full, 0+1, ood, best, cost, 14.5" in shown
    assert "column risk_penalty_mean: names no declared condition and metric" in shown
    assert "12 values of" in shown and "reported, not proven" in shown
    written = (tmp_path / "results/sprint/imported/results.csv").read_text()
    assert "v2_baseline,0+1,id,,score,1.684±0.741\n" in written
    status = call("status", file)
    assert "0/40 proven, 16 reported, 24 missing" in status and "12 values of" in status
    (tmp_path / "slides.md").write_text(PPT)
    call("import", file, str(tmp_path / "slides.md"), "--seeds", "0-1")
    assert (tmp_path / "results/sprint/imported/results.csv").read_text() == written, "the same numbers, once"
    call("report", file)
    rows = csv.DictReader((tmp_path / "results/sprint/tables/main_results.csv").open())
    spreads = {(row["arm"], row["condition"]): row["sd"] for row in rows if row["metric"] == "score"}
    assert spreads[("v2_full", "ood")] == "0.223", "the spread of the table is in the report"


@pytest.mark.parametrize("field", ["1.684±0.741", "1.684 +/- 0.741", "1.684 (0.741)"])
def test_a_mean_and_its_spread_may_share_a_field(field: str, tmp_path: Path) -> None:
    file = sprint_study(tmp_path)
    (tmp_path / "t.csv").write_text(f"arm,seed,ID score\nv2_full,3,{field}\n")
    assert "reported: v2_full, 3, id, , score, 1.684\nreported: v2_full, 3, id, , score_std, 0.741" in call(
        "import", file, str(tmp_path / "t.csv"), "--dry-run"
    )
    assert not (tmp_path / "results/sprint/imported").exists(), "a dry run writes nothing"


def test_an_evaluation_folder_without_a_checkpoint_is_reported_with_its_means(tmp_path: Path) -> None:
    file = sprint_study(tmp_path)
    sprint_box(tmp_path, "late")
    call("import", file, str(tmp_path / "runs"))
    evaluation_folder(tmp_path / "eval_runs" / "v2_full_id_0", [1.0, 2.0, 6.0])
    table = tmp_path / "manifests" / "paper_eval_status_latest.tsv"
    table.write_text(
        "config\tseed\tmode\tstatus\trun_dir\n"
        f"v2_full\t0\tid\tsuccess\t{tmp_path}/eval_runs/v2_full_id_0\n"
        f"v2_full\t1\tid\tsuccess\t{tmp_path}/eval_runs/v2_full_id_1\n"
    )
    shown = call("import", file, str(table))
    assert "it reports score 3.000" in line_of(shown, "v2_full/0 id") and "names no checkpoint" in shown
    assert "v2_full,0,id,,score,3\n" in (tmp_path / "results/sprint/imported/results.csv").read_text()
    assert "1 reported, 1 unproven" in call("status", file)


# Text logs of evaluations


def logged(text: str, tmp_path: Path, constraint: str | None = "cost") -> list[tuple[str, float, int | None]]:
    limit = {"constraint": {"name": constraint, "at_most": 25}} if constraint else {"constraint": None}
    opened = open_study(Path(sprint_study(tmp_path, **limit)))
    (tmp_path / "eval.log").write_text(text)
    found = read_eval_log(opened.study, tmp_path / "eval.log")
    return [(one.metric, round(one.value, 6), one.episodes) for one in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Episode has 201 steps and return 1.5.\nEpisode has 201 steps and return 2.5.\n", [("score", 2.0, 2)]),
        ("Episode 1: return=1.0 cost=4\r\nEpisode 2: return=3.0 cost=2\r\n", [("score", 2.0, 2), ("cost", 3.0, 2)]),
        ("episode 1 reward 9\nmean_reward: 12.5 +/- 3.25\n", [("score", 12.5, None)]),
        ("mean return over 20 episodes: 12.5\nmax return: 90\n", [("score", 12.5, None)]),
        ("Eval num_timesteps=5000, episode_reward=210.00 +/- 30.5\n", [("score", 210.0, 1)]),
        ("eval_episode=0, episodic_return=[213.]\neval_episode=1, episodic_return=[215.]\n", [("score", 214.0, 2)]),
        ("[1/3] R: 4.0 cost: 1\n[2/3] R: 6.0 cost: 3\n", [("score", 5.0, 2), ("cost", 2.0, 2)]),
        ("episode/score 1.5 / episode/cost 8\n", [("score", 1.5, 1), ("cost", 8.0, 1)]),
        ("Return (mean): -1.5e1\nreward_loss: 0.5, return std 3, best score 99\n", [("score", -15.0, None)]),
        ("CMD: python eval.py --seed 0 --task PointGoal1\n", []),
        ("score: nan\n", []),
        ("mean reward 3,200.5\n", [("score", 3200.5, None)]),
        ("return 1,5\n", []),
        ("", []),
    ],
)
def test_the_means_of_an_evaluation_are_read_from_its_text(
    text: str, found: list[tuple[str, float, int | None]], tmp_path: Path
) -> None:
    assert logged(text, tmp_path) == found


def test_text_logs_of_evaluations_are_reported_by_arm_seed_and_condition(tmp_path: Path) -> None:
    file = sprint_study(tmp_path)
    logs = tmp_path / "manifests"
    logs.mkdir()
    for seed, score in ((0, 1.0), (1, 3.0)):
        text = f"CMD: eval.py\nmean score {score}\nmean cost 83.0\n"
        (logs / f"paper_eval_v2_full_ood_seed{seed}_20260222-023037.log").write_text(text)
        (logs / f"paper_eval_v2_full_ood_seed{seed}_20260222-023037.err.log").write_text("")
    (logs / "paper_eval_v2_full_seed2.log").write_text("mean score 1\n")
    (logs / "paper_eval_v2_u_only_id_seed0.log").write_text("CMD: eval.py\n")
    (logs / "paper_eval_v2_u_only_id_seed0.err.log").write_text(NO_MODULE)
    (logs / "paper_train_v2_baseline_seed2_20260222-023037.log").write_text("CMD: train.py\n")
    (logs / "paper_gpu_precheck_latest.log").write_text("[GpuDevice(id=0)]\n")
    shown = call("import", file, str(logs))
    assert "its log reports score 1.000, cost 83.000, and names no checkpoint" in line_of(shown, "v2_full/0 ood")
    assert "its log shows no score; import_error: ModuleNotFoundError" in line_of(shown, "v2_u_only/0 id")
    assert line_of(shown, "v2_baseline/2").startswith("v2_baseline/2: unproven: 0 agent steps"), "a stamp is no job"
    assert "paper_eval_v2_full_seed2: the log of an evaluation that names no declared condition" in shown
    written = (tmp_path / "results/sprint/imported/results.csv").read_text()
    assert "v2_full,1,ood,,score,3\nv2_full,1,ood,,cost,83\n" in written
    assert "2 reported, 1 unproven" in call("status", file)
    again = (tmp_path / "results/sprint/ledger.jsonl").read_text()
    call("import", file, str(logs))
    assert (tmp_path / "results/sprint/ledger.jsonl").read_text() == again, "importing again changes nothing"


def test_one_log_a_pattern_or_a_table_may_name_an_evaluation(tmp_path: Path) -> None:
    file = sprint_study(tmp_path)
    (tmp_path / "x-ood-v2_full.4.log").write_text("mean score 2.5\n")
    pattern = "x-{condition}-{arm}.{seed}"
    shown = call("import", file, str(tmp_path / "x-ood-v2_full.4.log"), "--pattern", pattern, "--dry-run")
    assert "its log reports score 2.500" in line_of(shown, "v2_full/4 ood")
    table = tmp_path / "eval_status.tsv"
    table.write_text("config\tseed\tmode\tstatus\tlog_file\nv2_full\t3\tid\tsuccess\tx-ood-v2_full.4.log\n")
    assert "its log reports score 2.500" in line_of(call("import", file, str(table), "--dry-run"), "v2_full/3 id")


def test_tables_with_semicolons_decimal_commas_and_other_cases_are_read(tmp_path: Path) -> None:
    trainer = {**PRINTED, "evaluate": ["{python}", "evaluate.py", "{condition}"]}
    file = pwm_study(tmp_path, arms={"ppo": {}, "a2c": {"x": 1}}, seeds=2, trainer=trainer, conditions=["id"])
    table = tmp_path / "results.csv"
    table.write_text("Algo;Seed;id R\nPPO;0;1,684±0,741\nv2_a2c;1;2,5\nrecurrent_ppo;0;9,9\n")
    shown = call("import", file, str(table), "--dry-run")
    assert "ppo, 0, id, , R, 1.684" in shown and "a2c, 1, id, , R, 2.5" in shown
    assert "unmatched, ignored: line 4: recurrent_ppo" in shown, "another method is no arm"

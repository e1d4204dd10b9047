"""Imitations of the folders that users have: a paper sprint with SafeDreamer, and a flat folder of Slurm logs."""

import datetime
import json
import os
import random
from pathlib import Path

PWM_RUNS = (
    ("5M_baseline", 2314140, 15000, 15000, 1222.15, 29.9),
    ("48M_baseline", 2314141, 15000, 15000, 1253.89, 23.4),
    ("5M_flow_v1", 2309575, 20000, 20000, 1132.89, 1131.7),
    ("5M_flow_v2", 2309576, 20000, 20000, 1197.4, 561.6),
    ("5M_flow_v3", 2309577, 20000, 20000, 1137.5, 22.9),
    ("48M_flow_v1", 2322456, 19990, 20000, 1229.44, 25.3),
    ("48M_flow_v2", 2322458, 12720, 20000, 1119.57, 17.4),
    ("48M_flow_v3", 2322459, 9070, 20000, 1255.97, 17.5),
)
PWM_KILLED = (("48M_flow_v1", 2318001, 9070), ("48M_flow_v2", 2318002, 5420), ("48M_flow_v3", 2318003, 5420))
PWM_BROKEN = (("mt_baseline", 2322520), ("mt_flow_v1", 2322521), ("mt_flow_v2", 2322522), ("mt_flow_v3", 2322523))
PWM_ARMS = [*(run[0] for run in PWM_RUNS), *(f"48M_{arm}" for arm, _ in PWM_BROKEN)]
OOM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId={job}.batch. Some of the step tasks have been OOM Killed.\n"
)
NO_MODULE = """Traceback (most recent call last):
  File "PWM/scripts/train_multitask.py", line 18, in <module>
    from envs import make_env
ModuleNotFoundError: No module named 'envs'
"""


def slurm_logs(folder: Path, line_every: int = 100) -> None:
    """Twenty-two files of fifteen jobs: eight runs, three killed for memory, four that lack a module."""
    folder.mkdir(parents=True, exist_ok=True)
    for arm, job, done, total, peak, final in PWM_RUNS:
        lines = ["Job started on node-1"]
        for count in range(0, done + 1, line_every):
            value = peak if count == done // 2 // line_every * line_every else min(peak, peak * count / done)
            lines.append(f"[{count}/{total}]  R:{value:.2f}  T:612.0  H:16.0  FPS:1234  pi_loss:-0.32  wm_loss:0.12")
        lines.append(f"[{done}/{total}]  R:{final:.2f}  T:612.0  H:16.0  FPS:1234  pi_loss:-0.32  wm_loss:0.12")
        (folder / f"train_{arm}_l40s_{job}.out").write_text("\n".join(lines) + "\n")
    for arm, job, done in PWM_KILLED:
        lines = [f"[{count}/20000]  R:{1100 * count / done:.2f}  T:612.0" for count in range(0, done + 1, 10)]
        (folder / f"train_{arm}_l40s_{job}.out").write_text("\n".join(lines) + "\n")
        (folder / f"train_{arm}_l40s_{job}.err").write_text(OOM.format(job=job))
    for arm, job in PWM_BROKEN:
        (folder / f"train_48M_{arm}_l40s_{job}.out").write_text("Job started\n")
        (folder / f"train_48M_{arm}_l40s_{job}.err").write_text(NO_MODULE)


SPRINT_ARMS = ("v2_baseline", "v2_u_only", "v2_cert_only", "v2_full")
SPRINT_MISSING = {("v2_u_only", 2), ("v2_cert_only", 2), ("v2_full", 2)}
SPRINT_CONFIG = """seed: {seed}
method: {arm}
task: safetygymcoor_SafetyPointGoal1-v0
run: {{script: train_eval, steps: {steps}, log_every: 1000, save_every: 10000, eval_every: 5000}}
env:
  safetygymcoor: {{repeat: 5}}
"""
RESULT_COLUMNS = "id_score_mean,id_score_std,ood_score_mean,ood_score_std,ood_cost_at_best_mean,risk_penalty_mean"
SPRINT_RESULTS = f"""config,{RESULT_COLUMNS}
v2_baseline,1.684,0.741,2.203,0.151,83.0,0.000
v2_u_only,1.684,0.741,2.427,1.025,16.5,2.799
v2_cert_only,1.684,0.741,1.674,0.943,59.0,0.026
v2_full,1.918,0.410,0.999,0.223,14.5,2.887
"""
PPT = """# SafeDreamer v2 答辩

## 第 5 页：主要结果

| config | ID score(mean±std) | OOD score(mean±std) | OOD cost@best(mean) | risk_penalty |
|---|---:|---:|---:|---:|
| v2_baseline | 1.684±0.741 | 2.203±0.151 | 83.0 | 0.000 |
| v2_u_only | 1.684±0.741 | 2.427±1.025 | 16.5 | 2.799 |
| v2_cert_only | 1.684±0.741 | 1.674±0.943 | 59.0 | 0.026 |
| v2_full | 1.918±0.410 | 0.999±0.223 | 14.5 | 2.887 |

- 我们的方法 v2_full 把 OOD cost 从 83.0 降到 14.5。
"""


def _put(path: Path, content: str, written: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (written, written))


def _sprint_run(root: Path, arm: str, seed: int, began: datetime.datetime, saved_early: bool, whole: bool) -> Path:
    seconds, steps = (6030, 4096) if whole else (60, 1024)
    folder = root / "runs" / f"{began:%Y%m%d-%H%M%S}_{arm}_safetygymcoor_SafetyPointGoal1-v0_{seed}"
    start = began.timestamp()
    _put(folder / "config.yaml", SPRINT_CONFIG.format(seed=seed, arm=arm, steps=4096), start)
    for index in range(steps // 1024):
        moment = began + datetime.timedelta(seconds=seconds * (index + 1) / (steps // 1024))
        _put(folder / "replay" / f"{moment:%Y%m%dT%H%M%S}F{index:06d}-aa-bb-1024.npz", "x", moment.timestamp())
    logged = [(601, 58), (steps, seconds)] if whole else [(601, 58)]
    rows = [
        {"step": 5 * step, "episode/score": seed + step / 1000, "train/model_loss": 1.0, "timer/duration": at}
        for step, at in logged
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    _put(folder / "metrics.jsonl", text, start + logged[-1][1])
    _put(folder / "checkpoint.ckpt", f"weights {arm} {seed}", start + (52 if saved_early else seconds - 1))
    return folder


def sprint_box(root: Path, when: str) -> None:
    """Seventeen of twenty runs, saved `early` (at the start only) or `late`, three aborted ones, tables, ppt.md."""
    began = datetime.datetime(2026, 2, 20, 1, 0, 0)
    rows = []
    for seed in range(5):
        for arm in SPRINT_ARMS:
            if (arm, seed) in SPRINT_MISSING:
                continue
            folder = _sprint_run(root, arm, seed, began, when == "early", whole=True)
            rows.append(f"{began:%Y%m%d-%H%M%S}\t{arm}\t{seed}\tsuccess\t0\t6030\t{folder.resolve()}")
            began += datetime.timedelta(seconds=6090)
    for hour in (5, 14, 17):
        _sprint_run(root, "v2_baseline", 3, datetime.datetime(2026, 2, 23, hour, 39, 53), when == "early", whole=False)
    header = "timestamp\tconfig\tseed\tstatus\texit_code\telapsed_sec\trun_dir"
    _put(root / "manifests" / "paper_train_status_latest.tsv", "\n".join([header, *rows]) + "\n", began.timestamp())
    _put(root / "tables" / "paper_main_results.csv", SPRINT_RESULTS, began.timestamp())
    _put(root / "ppt.md", PPT, began.timestamp())


def evaluation_folder(root: Path, scores: list[float], seed: int = 0) -> None:
    """What an evaluation script of SafeDreamer leaves: one row per episode, and no word about the checkpoint."""
    rng = random.Random(seed)
    rows = [{"step": index, "episode/score": score, "episode/cost": rng.random()} for index, score in enumerate(scores)]
    _put(root / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows), 1_771_600_000.0)
    _put(root / "checkpoint.ckpt", "copied weights", 1_771_600_000.0)

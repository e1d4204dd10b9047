"""Every arm is started before anything is spent; one that cannot work stops the launch and says why."""

import json
import math
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from dreamproof.base.errors import ExitCode
from dreamproof.study.adapters.printed import read_pattern
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.preflight import local, reading
from dreamproof.study.preflight.measured import read_measured
from dreamproof.study.process import machine

EXAMPLE = Path(__file__).parents[3] / "examples" / "line_trainer.py"

STUDY = """\
name: tiny
question: Is b better than a?
metric: {{name: return, smallest_difference: 1.0}}
task: line
trainer:
  command: [{python}, {script}, "{{run_dir}}"]
  evaluate: [{python}, {script}, "{{run_dir}}", --evaluate, "{{condition}}"]
  adapter: {adapter}
arms:
  a: {{}}
  b: {{{setting}}}
seeds: 3
agent_steps: 100000
conditions: [id]
liveness: {{compile_stalled_after_seconds: {patience}, kill_silent_after_seconds: {patience}}}
money: {{price_per_gpu_hour: 2.0}}
"""


def study(folder: Path, script: Path | str = EXAMPLE, setting: str = "price: 5.0", **more: object) -> OpenStudy:
    values = {"python": sys.executable, "script": script, "setting": setting, "adapter": "native", "patience": 600}
    file = folder / "tiny.yaml"
    file.write_text(STUDY.format(**{**values, **more}))
    return open_study(file)


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text)
    return path


def test_the_example_passes_and_what_it_showed_is_kept(tmp_path: Path) -> None:
    opened = study(tmp_path)
    shown: list[str] = []
    result = local.check_arms(opened, show=shown.append)
    assert result.passed and [check.arm for check in result.arms] == ["a", "b"]
    assert all(line.endswith("(build, train, save, restore, evaluate)") for line in shown[1:])
    kept = json.loads(opened.folder.preflight.read_text())
    assert kept["passed"] and kept["needs"]["host_bytes"] > 1 << 20
    assert kept["machine"]["versions"]["numpy"]
    assert set(read_measured(opened.folder.preflight).rates) == {"a", "b"}
    assert opened.folder.preflight_text.read_text().startswith("preflight passed: 2 arms\n")


def test_one_arm_with_a_wrong_setting_stops_the_launch_by_name(tmp_path: Path) -> None:
    opened = study(tmp_path, setting="prize: 5.0")
    result = local.check_arms(opened)
    assert [check.passed for check in result.arms] == [True, False]
    error = result.error(opened.file)
    assert error.exit_code is ExitCode.PREFLIGHT_FAILED
    assert "arm b: bad_config: " in str(error) and "unknown key 'prize'" in str(error)
    assert "stops the launch: arm b" in opened.folder.preflight_text.read_text()


def test_a_missing_module_is_found_before_any_money(tmp_path: Path) -> None:
    text = "import sys\nif 'b' in sys.argv[1][-1]:\n    from envs import make\nprint('[1/1]')\n"
    opened = study(tmp_path, script(tmp_path, text), adapter="bracket_lines")
    result = local.check_arms(opened)
    assert result.faults == ["arm b: import_error: ModuleNotFoundError: No module named 'envs'"]


def test_a_trainer_that_knows_no_probe_passes_with_its_first_progress_and_is_ended(tmp_path: Path) -> None:
    text = "import time\nfor n in range(1, 9999):\n    print(f'[{n}/9999] R:1.0', flush=True)\n    time.sleep(0.1)\n"
    opened = study(tmp_path, script(tmp_path, text), adapter="bracket_lines")
    result = local.check_arms(opened, ["a"])
    assert result.passed
    assert result.warnings == ["memory is not forecast: the trainer writes no probe.json"]


def test_a_trainer_that_never_makes_a_step_fails_by_time(tmp_path: Path) -> None:
    opened = study(tmp_path, script(tmp_path, "import time\ntime.sleep(1200)\n"), patience=0.5)
    result = local.check_arms(opened, ["a"])
    assert result.faults[0].startswith("arm a: timeout: no first step: no counter grew for")


WRITES = {
    "sb3": "(run / 'progress.csv').write_text('time/total_timesteps,train/loss\\n1000,0.5\\n')",
    "csv": "(run / 'log.csv').write_text('step,loss\\n1000,0.5\\n')",
    "bracket_lines": "print('[10/10] R:1.0')",
}


@pytest.mark.parametrize("name", WRITES)
def test_a_trainer_that_ends_well_and_shows_nothing_fails_with_the_adapter_that_would_fit(
    name: str, tmp_path: Path
) -> None:
    text = f"import pathlib, sys\nrun = pathlib.Path(sys.argv[1])\n{WRITES[name]}\n"
    opened = study(tmp_path, script(tmp_path, text))
    [check] = local.check_arms(opened, ["a"]).arms
    assert (check.passed, check.cause) == (False, "unreadable_progress")
    assert "adapter native looks for heartbeat.json" in check.reason
    assert f"write 'adapter: {name}' under trainer" in check.reason
    assert check.evidence[1].startswith("found: ")
    adapted = study(tmp_path, tmp_path / "train.py", adapter="auto")
    result = local.check_arms(adapted, ["a"])
    assert result.passed and result.arms[0].adapter == name
    shown = adapted.folder.preflight_text.read_text()
    assert f"read by adapter {name}" in shown and f"adapter {name} proves steps by" in shown


def test_a_command_without_the_run_folder_is_to_name_the_folder(tmp_path: Path) -> None:
    opened = study(tmp_path, script(tmp_path, "print('done')\n"), adapter="auto")
    opened.file.write_text(opened.file.read_text().replace('train.py, "{run_dir}"]', "train.py]"))
    result = local.check_arms(open_study(opened.file), ["a"])
    assert "nothing was written into its run folder: name the folder in its command" in result.faults[0]


def test_arms_that_fail_for_one_reason_are_named_together_and_the_reason_once(tmp_path: Path) -> None:
    opened = study(tmp_path, script(tmp_path, "import envs\n"))
    shown: list[str] = []
    result = local.check_arms(opened, show=shown.append)
    assert result.faults == ["arms a, b: import_error: ModuleNotFoundError: No module named 'envs'"]
    assert [line.split(": ", 1)[1].split(" after ")[0] for line in shown[1:]] == ["FAILED", "FAILED"]
    assert not any("ModuleNotFoundError" in line for line in shown)


LOSS = "\\bloss\\W+?(?P<loss>[-+.,\\w]+)"


@pytest.mark.parametrize(
    ("printed", "advice"),
    [
        ("step 12 loss 0.5", f"can be read with line_pattern: 'step\\W+(?P<step>[0-9,]+)(?:.*?{LOSS})?'"),
        ("step 12 loss nan", "(finite values: loss)"),
        ("step 12", "line_pattern: 'step\\W+(?P<step>[0-9,]+)' and adapter: auto under trainer (finite values: not"),
        ("Update 10 | frames 1,000 | loss 0.5", f"frames\\W+(?P<step>[0-9,]+)(?:.*?{LOSS})?'"),
        ("|    total_timesteps | 1024 |", "line_pattern: 'total_timesteps\\W+(?P<step>[0-9,]+)'"),
        ("100%|### | 500/500 [00:01<00:00]", "line_pattern: '(?P<step>[0-9]+)/(?P<total>[0-9]+)'"),
        ("step 12 loss 0.5", "; nothing was written into its run folder, which its command names: let the script"),
        ("done", "nothing was written into its run folder, which its command names: let the script write"),
    ],
)
def test_a_trainer_that_no_adapter_knows_gets_advice_what_would_do(printed: str, advice: str, tmp_path: Path) -> None:
    opened = study(tmp_path, script(tmp_path, f"print('{printed}')\n"), adapter="auto")
    result = local.check_arms(opened, ["a"])
    assert not result.passed
    assert advice in result.faults[0] and "found: no file; 1 line of output" in result.arms[0].evidence


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("step 12 loss 0.5", {"loss": 0.5}),
        ("step 12 loss: nan, return -3", {"loss": None, "return": -3.0}),
        ("loss = 1e-3, train/return = -inf | step: 1,000", {"loss": 0.001, "train_return": None}),
        ("step 12 critic_loss 2 loss 0.5 at 12:30", {"critic_loss": 2.0, "loss": 0.5}),
        ("step 12", {}),
    ],
)
def test_the_proposed_expression_names_the_values_of_the_line(line: str, values: dict[str, float | None]) -> None:
    advice = reading._line_advice([line], 0)
    assert advice is not None
    pattern = re.compile(advice.split("line_pattern: '")[1].split("'")[0])
    [found] = read_pattern(line, pattern)
    finite = {name: value if math.isfinite(value) else None for name, value in found.values.items()}
    assert (found.done, finite) == (1000 if "1,000" in line else 12, values)
    assert [one.done for one in read_pattern("step 7 begins", pattern)] == [7]


@pytest.mark.parametrize(
    ("writes", "advice"),
    [
        ("(run / 'a.jsonl').write_text('{\"n\": 10, \"seen\": 1000}\\n')", "'step_key: seen' under trainer"),
        ("(run / 'a.csv').write_text('n;seen\\n10;1024\\n')", "'step_key: seen' under trainer"),
        ("(run / 'a.dat').write_text('x')", "found: a.dat; 0 lines of output; no adapter knows these files"),
        ("pathlib.Path('out').mkdir(); pathlib.Path('out/a.csv').write_text('step\\n1\\n')", "(it wrote out/a.csv in "),
    ],
)
def test_files_that_no_adapter_knows_get_advice_what_would_do(writes: str, advice: str, tmp_path: Path) -> None:
    text = f"import pathlib, sys\nrun = pathlib.Path(sys.argv[1])\n{writes}\n"
    assert advice in local.check_arms(study(tmp_path, script(tmp_path, text), adapter="auto"), ["a"]).faults[0]


@pytest.mark.parametrize(
    ("header", "cure"),
    [("iteration,seen,loss", "step_key: seen"), ("iteration,x,loss", "steps_per_count: 100")],
)
def test_a_count_of_something_else_than_steps_is_warned_of_with_its_cure(
    header: str, cure: str, tmp_path: Path
) -> None:
    seen = 1000 if "seen" in header else 3
    text = f"import pathlib, sys\n(pathlib.Path(sys.argv[1]) / 'a.csv').write_text('{header}\\n10,{seen},0.5\\n')\n"
    result = local.check_arms(study(tmp_path, script(tmp_path, text), adapter="auto"), ["a"])
    assert f"a.csv ends at 10 of 1,000 agent steps; write '{cure}' under trainer" in " ".join(result.warnings)


def test_a_probe_that_ends_without_a_checkpoint_is_a_warning(tmp_path: Path) -> None:
    opened = study(tmp_path, script(tmp_path, "print('[1000/1000] R:1.0')\n"), adapter="bracket_lines")
    result = local.check_arms(opened, ["a"])
    assert result.passed
    assert "arm a: the end of its probe of 1,000 agent steps is not proven: no checkpoint file" in result.warnings


def test_a_probe_that_saves_elsewhere_is_warned_of_with_the_place(tmp_path: Path) -> None:
    text = "import pathlib\npathlib.Path('ppo.zip').write_bytes(b'x')\nprint('[1000/1000] R:1.0')\n"
    result = local.check_arms(study(tmp_path, script(tmp_path, text), adapter="bracket_lines"), ["a"])
    assert f"no checkpoint file; it wrote ppo.zip in {tmp_path}: save into {{run_dir}}" in " ".join(result.warnings)


def test_a_whole_run_whose_end_is_not_proven_stops_the_launch(tmp_path: Path) -> None:
    opened = study(tmp_path, script(tmp_path, "print('[900/900] R:1.0')\n"), adapter="bracket_lines")
    opened.file.write_text(opened.file.read_text().replace("agent_steps: 100000", "agent_steps: 900"))
    result = local.check_arms(open_study(opened.file), ["a"])
    assert result.faults == [
        "arm a: never_proven: a whole run ended with exit code 0 and is not proven: no checkpoint file"
    ]


CLOCK_SAVER = """
import json, pathlib, sys, time
run = pathlib.Path(sys.argv[1]) / "20260101-000000_a_0"
(run / "replay").mkdir(parents=True)
(run / "config.yaml").write_text("run: {save_every: 10000}")
(run / "checkpoint.ckpt").write_text("first weights")
for n in range(1000):
    (run / "replay" / f"20260101T000000F000000-{n}-b-100.npz").write_text("x")
    time.sleep(0.1)
"""


def test_checkpoints_by_a_clock_that_does_not_fit_the_run_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "MEASURE_SECONDS", 1.5)
    opened = study(tmp_path, script(tmp_path, CLOCK_SAVER), adapter="embodied")
    shown: list[str] = []
    result = local.check_arms(opened, ["a"], shown.append)
    assert result.passed
    [warning] = [line for line in result.warnings if "save_every" in line]
    assert shown[2] == f"warning: {warning}"
    assert "checkpoints are written every 2 h 46 min (save_every counts seconds), a run takes" in warning
    assert "only the first one would be saved; save at the end, or every " in warning
    assert 0 < result.rates["a"] < 1100


def test_a_command_that_is_not_there_fails_with_its_name(tmp_path: Path) -> None:
    opened = study(tmp_path, python="./no-such-python")
    assert "No such file or directory: './no-such-python'" in local.check_arms(opened, ["a"]).faults[0]


def test_needs_beyond_the_machine_stop_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = study(tmp_path)
    monkeypatch.setattr(machine, "host_memory_bytes", lambda: (1000, 900))
    monkeypatch.setattr(machine, "disk_free_bytes", lambda folder: 5)
    faults = local.check_arms(opened, ["a"]).faults
    assert [fault.split(" needs ")[0] for fault in faults] == ["host memory", "disk"]
    assert faults[0].endswith("this machine has 1000 B")


def test_an_unchanged_preflight_need_not_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = study(tmp_path, script(tmp_path, "print('x')\n"))
    first = local.fingerprint(opened)
    assert local.fingerprint(study(tmp_path, tmp_path / "train.py")) == first
    assert local.fingerprint(opened, ["a"]) != first
    assert local.fingerprint(study(tmp_path, tmp_path / "train.py", "price: 6.0")) != first
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert local.fingerprint(opened) != first
    monkeypatch.delenv("MUJOCO_GL")
    script(tmp_path, "print('y')\n")
    assert local.fingerprint(opened) != first


class FakeNvml(types.ModuleType):
    """NVIDIA's library with one device, or without a driver."""

    class NVMLError(Exception):
        pass

    def __init__(self, driver: str | None) -> None:
        super().__init__("pynvml")
        self.driver = driver

    def nvmlInit(self) -> None:
        if self.driver is None:
            raise self.NVMLError("Driver Not Loaded")

    def __getattr__(self, name: str) -> object:
        memory = types.SimpleNamespace(total=1000, free=400)
        answers = {"Count": 1, "HandleByIndex": 0, "MemoryInfo": memory, "Name": b"H200", "DriverVersion": self.driver}
        return lambda *_: next((value for key, value in answers.items() if name.endswith(key)), None)


def test_devices_and_driver_are_recorded_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("570.1"))
    device = {"name": "H200", "total_bytes": 1000, "free_bytes": 400}
    assert machine.describe_gpus() == {"driver": "570.1", "devices": [device]}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(None))
    assert machine.describe_gpus() == {"devices": [], "reason": "Driver Not Loaded"}


def test_code_is_known_by_commit_and_by_what_was_edited(tmp_path: Path) -> None:
    assert machine.describe_code(tmp_path)["reason"] == "not a git repository"
    run = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run[:3], "init", "-q"], check=True)
    (tmp_path / "code.py").write_text("1\n")
    subprocess.run([*run, "add", "."], check=True)
    subprocess.run([*run, "commit", "-qm", "x"], check=True)
    clean = machine.describe_code(tmp_path)
    assert clean["dirty"] is False and len(clean["commit"]) == 40
    (tmp_path / "code.py").write_text("2\n")
    assert machine.describe_code(tmp_path)["diff_hash"]

"""The client makes a plain loop native, works when copied alone, and needs nothing but Python."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from dreamproof.client import Run, sb3_callback
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import EvalProof, TrainProof, prove_evaluation, prove_training, read_heartbeat
from dreamproof.settings.study_file import read_study
from dreamproof.study.adapters import find_adapter
from dreamproof.study.plan.commands import check_commands
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "src" / "dreamproof" / "client.py"
LOOP = ROOT / "examples" / "client_loop.py"
SETTINGS = {
    "study": "s",
    "arm": "a",
    "seed": 3,
    "task": "counting",
    "agent_steps": 5_000,
    "settings": {"rate": 0.02},
    "conditions": [{"name": "id", "kind": "in_distribution"}, {"name": "far", "kind": "proxy"}],
    "evaluation_episodes": 4,
}


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    monkeypatch.setenv("DREAMPROOF_RUN_DIR", str(folder))
    monkeypatch.delenv("DREAMPROOF_CHECKPOINT", raising=False)
    monkeypatch.delenv("DREAMPROOF_CHECKPOINT_HASH", raising=False)
    return RunFolder(folder)


@pytest.fixture(autouse=True)
def own_signals() -> Any:
    """A client takes SIGTERM over; a test gives it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def write(text: str) -> Any:
    return lambda folder: (folder / "w.txt").write_text(text)


def test_it_is_one_file_for_python_3_8_with_the_standard_library_alone() -> None:
    tree = ast.parse(CLIENT.read_text(), feature_version=(3, 8))
    nodes = list(ast.walk(tree))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"stable_baselines3"}


def test_a_checkpoint_of_the_client_is_a_native_proof(run_folder: RunFolder) -> None:
    run = Run()
    assert (run.agent_steps, run.seed, run.arm, run.settings) == (5_000, 3, "a", {"rate": 0.02})
    assert run.restore(lambda folder: None) == 0
    run.log(2_000, updates=20, loss=0.5)
    run.save(2_000, 20, write("half"))
    assert "2,000 of 5,000" in str(prove_training(run_folder, 5_000, task="counting"))
    run.finish(5_000, 50, write("whole"))
    proof = prove_training(run_folder, 5_000, task="counting")
    assert isinstance(proof, TrainProof) and proof.gradient_steps == 50
    beat = read_heartbeat(run_folder)
    assert beat is not None and (beat.agent_steps, beat.phase) == (5_000, "done")
    assert find_adapter("auto").read(run_folder).agent_steps == 5_000
    assert find_adapter("native").results(run_folder) == {"loss": [(2_000, 0.5)]}


def test_values_that_are_not_numbers_are_saved_as_such(run_folder: RunFolder) -> None:
    run = Run()
    run.log(5_000, updates=5, loss=float("nan"))
    run.save(5_000, 5, write("w"))
    assert "not finite" in str(prove_training(run_folder, 5_000))
    run.save(5_000, 5, write("w"), finite=True)
    assert isinstance(prove_training(run_folder, 5_000), TrainProof)


def test_it_resumes_from_the_newest_checkpoint_that_is_whole(run_folder: RunFolder) -> None:
    run = Run()
    for step in (1_000, 2_000, 3_000, 4_000):
        run.save(step, step // 10, write(str(step)))
    assert len(run_folder.checkpoint_folders()) == 3
    (run_folder.checkpoint(4_000).root / "w.txt").write_text("torn")
    read: list[str] = []
    again = Run()
    assert again.restore(lambda folder: read.append((folder / "w.txt").read_text())) == 3_000
    assert (read, again.updates) == (["3000"], 300)
    assert not again.save_is_due(3_999, every=1_000) and again.save_is_due(4_000, every=1_000)


def test_beats_are_written_twice_a_second_at_most(run_folder: RunFolder) -> None:
    run = Run()
    for step in range(1, 200):
        run.beat(step, step)
    beat = read_heartbeat(run_folder)
    assert beat is not None and beat.beat < 50
    run.beat(5_000, 200)
    assert (last := read_heartbeat(run_folder)) is not None and last.agent_steps == 5_000


def test_an_evaluation_names_the_proven_checkpoint(run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    run.finish(5_000, 50, write("w"))
    proof = prove_training(run_folder, 5_000)
    assert isinstance(proof, TrainProof)
    run.write_evaluation("far", {"return": [1.0, 2.0, 3.0, 4.0]})
    assert prove_evaluation(run_folder, "far", 4, proof.parameter_hash) == EvalProof(4, proof.parameter_hash)
    assert json.loads(run_folder.evaluation("far").read_text())["kind"] == "proxy"
    monkeypatch.setenv("DREAMPROOF_CHECKPOINT", str(run_folder.root / "model.zip"))
    monkeypatch.setenv("DREAMPROOF_CHECKPOINT_HASH", "abc")
    run.write_evaluation("id", {"return": [1.0] * 4})
    assert prove_evaluation(run_folder, "id", 4, "abc") == EvalProof(4, "abc")


def test_a_script_that_was_not_started_by_dreamproof_gets_advice_how_to_try_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DREAMPROOF_RUN_DIR", raising=False)
    with pytest.raises(RuntimeError, match="start this script with dreamproof"):
        Run()
    with pytest.raises(FileNotFoundError, match="To try the script alone, write"):
        Run(tmp_path)


def test_a_checkpoint_without_files_is_refused(run_folder: RunFolder) -> None:
    with pytest.raises(RuntimeError, match="wrote no file"):
        Run().save(10, 1, lambda folder: None)


def start_loop(script: Path, folder: Path, *words: str, path: str) -> "subprocess.Popen[str]":
    variables = {**os.environ, "DREAMPROOF_RUN_DIR": str(folder), "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, str(script), *words], env=variables, stdout=subprocess.PIPE, text=True)


def test_the_copied_file_alone_trains_stops_resumes_and_evaluates(run_folder: RunFolder, tmp_path: Path) -> None:
    place = tmp_path / "copied"
    place.mkdir()
    shutil.copy(CLIENT, place / "dreamproof_client.py")
    text = LOOP.read_text().replace("from dreamproof.client import Run", "from dreamproof_client import Run")
    text = text.replace("        step += 1\n", "        step += 1\n        time.sleep(0.0002)\n").replace(
        "import sys\n", "import sys\nimport time\n"
    )
    (place / "train.py").write_text(text)
    first = start_loop(place / "train.py", run_folder.root, "train", path="")
    wait_for(lambda: first.poll() is not None or ((beat := read_heartbeat(run_folder)) and beat.agent_steps > 100))
    first.send_signal(signal.SIGTERM)
    output, _ = first.communicate(timeout=HANG_SECONDS)
    assert first.returncode == 0 and "stopped by SIGTERM at" in output
    kept = run_folder.checkpoint_folders()[-1].agent_steps
    assert 0 < kept < 5_000
    assert start_loop(place / "train.py", run_folder.root, "train", path="").wait(HANG_SECONDS) == 0
    proof = prove_training(run_folder, 5_000)
    assert isinstance(proof, TrainProof)
    assert start_loop(place / "train.py", run_folder.root, "evaluate", "id", path="").wait(HANG_SECONDS) == 0
    assert prove_evaluation(run_folder, "id", 4, proof.parameter_hash) == EvalProof(4, proof.parameter_hash)


def test_the_lines_of_the_contract_page_train_to_a_proof(run_folder: RunFolder) -> None:
    page = (ROOT / "docs" / "contract.md").read_text().split("## Five lines in a loop of your own")[1]
    lines = page.split("```python\n")[1].split("```")[0]

    def train_a_little(step: int, settings: dict[str, Any], seed: int) -> tuple[int, int, float]:
        return step + 100, step // 100 + 1, settings["rate"]

    exec(lines, {"read": lambda folder: None, "write": write("w"), "train_a_little": train_a_little})
    assert isinstance(prove_training(run_folder, 5_000), TrainProof)


class FakeModel:
    """Trains as a model of stable-baselines3 does: a callback is asked after every step."""

    _n_updates = 0

    def save(self, path: str) -> None:
        Path(path).write_bytes(b"weights %d" % self._n_updates)

    def learn(self, steps: int, callback: Any) -> None:
        callback.model = self
        for step in range(1, steps + 1):
            callback.num_timesteps = step
            self._n_updates = step // 100
            if not callback._on_step():
                break
        callback._on_training_end()


def test_the_callback_for_stable_baselines3_reports_saves_and_stops(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks = types.ModuleType("stable_baselines3.common.callbacks")
    callbacks.BaseCallback = type("BaseCallback", (), {"num_timesteps": 0})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stable_baselines3", types.ModuleType("stable_baselines3"))
    monkeypatch.setitem(sys.modules, "stable_baselines3.common", types.ModuleType("stable_baselines3.common"))
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.callbacks", callbacks)
    run = Run()
    FakeModel().learn(5_000, sb3_callback(run, save_every=2_000))
    assert [folder.agent_steps for folder in run_folder.checkpoint_folders()] == [2_000, 4_000, 5_000]
    proof = prove_training(run_folder, 5_000)
    assert isinstance(proof, TrainProof) and proof.gradient_steps == 50
    run.stopping = True
    shutil.rmtree(run_folder.checkpoints)
    run._saved = 0
    FakeModel().learn(5_000, sb3_callback(run))
    assert [folder.agent_steps for folder in run_folder.checkpoint_folders()] == [1]


@pytest.mark.parametrize("name", ["client_loop", "sb3_trainer", "torch_trainer", "hydra_trainer"])
def test_every_example_is_python_and_uses_the_client(name: str) -> None:
    text = (ROOT / "examples" / f"{name}.py").read_text()
    ast.parse(text)
    assert "from dreamproof.client import Run" in text


def test_the_study_of_the_unchanged_script_is_valid() -> None:
    study = read_study(ROOT / "examples" / "sb3_unchanged" / "study.yaml")
    check_commands(study, ROOT / "examples" / "sb3_unchanged")
    assert "dreamproof" not in (ROOT / "examples" / "sb3_unchanged" / "train.py").read_text().split('"""')[2]


def test_the_hydra_example_takes_the_overrides_of_an_arm(run_folder: RunFolder) -> None:
    script = ROOT / "examples" / "hydra_trainer.py"
    words = ("optim.rate=0.5", "model.layers=[64,64]", "seed=3", f"hydra.run.dir={run_folder.root}/hydra")
    assert start_loop(script, run_folder.root, *words, path=str(ROOT / "src")).wait(HANG_SECONDS) == 0
    assert isinstance(prove_training(run_folder, 5_000), TrainProof)

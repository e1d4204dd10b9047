"""A declaration says exactly what is wrong with it, and where."""

from pathlib import Path

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.settings.checked import parse_seeds
from dreamproof.settings.study_file import read_study

GOOD = """\
name: tiny
question: Is b better than a?
metric: {name: return, smallest_difference: 1.0}
task: line
trainer:
  command: [python, train.py, "{run_dir}"]
  evaluate: [python, evaluate.py, "{run_dir}", "{condition}"]
arms:
  a: {}
  b: {rate: 0.1}
seeds: 3
agent_steps: 100
conditions: [id]
"""


def study_file(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(BadInput) as caught:
        read_study(study_file(folder, text))
    return str(caught.value)


def test_a_good_declaration_is_read(tmp_path: Path) -> None:
    study = read_study(study_file(tmp_path, GOOD))
    assert study.seeds == [0, 1, 2]
    assert study.reference == "a"


def test_the_hash_depends_on_the_meaning_not_on_the_writing(tmp_path: Path) -> None:
    first = read_study(study_file(tmp_path, GOOD)).hash()
    assert read_study(study_file(tmp_path, GOOD.replace("seeds: 3", "seeds: [0, 1, 2]  # same"))).hash() == first
    assert read_study(study_file(tmp_path, GOOD.replace("seeds: 3", "seeds: 4"))).hash() != first


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seeds: 3", "sedes: 3", "study.yaml:11: unknown key 'sedes'; did you mean 'seeds'?"),
        ("smallest_difference: 1.0", "smallest_diference: 1.0", "did you mean 'smallest_difference'?"),
        ("seeds: 3", "seeds: [1, 1]", "study.yaml:11: seeds: seed 1 is listed twice"),
        ("seeds: 3", "seeds: [-1]", "seed -1 is negative"),
        ("seeds: 3", "seeds: 1-x", "is not a seed or a range"),
        ("b: {rate: 0.1}", "b: {}", "arm 'b' equals arm 'a'"),
        ("agent_steps: 100", "agent_steps: many", "study.yaml:12: agent_steps: "),
        ("agent_steps: 100", "agent_steps: 0", "study.yaml:12: agent_steps: "),
        ("agent_steps: 100\n", "", "the key 'agent_steps' is missing"),
        ("name: tiny", "name: ../tiny", "is not a plain name"),
        ("name: tiny", "name: tiny\nname: twice", "study.yaml:2: the key 'name' is given twice"),
        ("conditions: [id]", "conditions: [id, id]", "condition 'id' is listed twice"),
        ("conditions: [id]", "conditions: [ood]", "metric.condition 'id' is not one of the conditions ood"),
        ("conditions: [id]", "conditions: [id", "not valid YAML"),
        ("seeds: 3", "seeds: 3\nreference_arm: c", "reference_arm 'c' is not one of the arms a, b"),
        ("seeds: 3", "seeds: 3\npack_cells: 2", "pack_cells above 1"),
        ("  command: [python, train.py", "  comand: [python, train.py", "comand"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert expected in complaint(tmp_path, GOOD.replace(old, new, 1))


def test_an_empty_file_and_a_list_are_refused(tmp_path: Path) -> None:
    assert "the file is empty" in complaint(tmp_path, "")
    assert "a list" in complaint(tmp_path, "- 1\n")


def test_every_error_ends_with_the_next_command(tmp_path: Path) -> None:
    assert "\n  hint: " in complaint(tmp_path, GOOD.replace("seeds: 3", "sedes: 3"))


def test_seed_ranges_are_read() -> None:
    assert parse_seeds("0-2, 7") == [0, 1, 2, 7]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("seeds: 3", f"seeds: [{1 << 63}]", "seeds.0"),
        ("seeds: 3", "seeds: [true]", "seeds.0"),
        ("agent_steps: 100", "agent_steps: 1" + "0" * 400, "agent_steps"),
        ("agent_steps: 100", "agent_steps: true", "agent_steps"),
        ("agent_steps: 100", "agent_steps: 100\nmoney: {price_per_gpu_hour: 1e300}", "money.price_per_gpu_hour"),
        ("agent_steps: 100", "agent_steps: 100\nmoney: {budget: 1e300}", "money.budget"),
        ("agent_steps: 100", "agent_steps: 100\nmoney: {gpus_per_attempt: 1e300}", "money.gpus_per_attempt"),
    ],
)
def test_numbers_that_nothing_can_hold_are_refused(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert named in complaint(tmp_path, GOOD.replace(old, new))


@pytest.mark.parametrize("variable", ['"A=B": x', '"": x', 'A: "x\\0y"'])
def test_variables_that_no_process_can_have_are_refused(tmp_path: Path, variable: str) -> None:
    text = GOOD.replace("trainer:\n", f"trainer:\n  environment: {{{variable}}}\n")
    assert "environment" in complaint(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "  command: [python, train.py",
            "  command: [python, 3, train.py",
            "must be text, not 3; put it in quotation marks",
        ),
        ("agent_steps: 100", "agent_steps: ten", "study.yaml:12: agent_steps: must be a whole number, not 'ten'"),
        ("agent_steps: 100", "agent_steps: -5", "agent_steps: must be greater than or equal to 1, not -5"),
        ("smallest_difference: 1.0", "smallest_difference: no", "must be a number, not 'no'"),
        ("smallest_difference: 1.0", "smallest_difference: [1]", "must be a number, not a list"),
        ("smallest_difference: 1.0", "smallest_difference: null", "must be a number, not empty"),
        ("name: return", "direction: up", "study.yaml:3: metric.direction: must be 'higher' or 'lower', not 'up'"),
    ],
)
def test_a_wrong_value_is_named_beside_what_was_expected(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert expected in complaint(tmp_path, GOOD.replace(old, new))


def test_only_the_form_of_trainer_that_the_file_chose_complains(tmp_path: Path) -> None:
    assert complaint(tmp_path, GOOD.replace("  command:", "  comand:")).splitlines()[:-1] == [
        f"{tmp_path}/study.yaml:5: the key 'trainer.command' is missing",
        f"{tmp_path}/study.yaml:6: unknown key 'trainer.comand'; did you mean 'command'?",
    ]
    lines = [line for line in GOOD.splitlines() if not line.startswith("  ") or "{}" in line or "rate" in line]
    text = "\n".join("trainer: pmw" if line == "trainer:" else line for line in lines)
    assert complaint(tmp_path, text).splitlines()[:-1] == [
        f"{tmp_path}/study.yaml:5: trainer: must be 'dreamer', 'pwm' or 'pwm_offline', not 'pmw'"
    ]


def test_keys_in_capital_letters_are_shown(tmp_path: Path) -> None:
    text = GOOD.replace("trainer:\n", "trainer:\n  environment: {MUJOCO_GL: [egl]}\n")
    assert "trainer.environment.MUJOCO_GL: must be text, not a list" in complaint(tmp_path, text)


def test_a_command_in_one_line_is_the_same_as_its_arguments(tmp_path: Path) -> None:
    listed = read_study(study_file(tmp_path, GOOD))
    text = GOOD.replace('[python, train.py, "{run_dir}"]', "python train.py {run_dir}")
    assert read_study(study_file(tmp_path, text)).hash() == listed.hash()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd x && python train.py", "no shell reads '&&'; write [bash, -c, '…']"),
        ("python train.py > log", "no shell reads '>'"),
        ("python train.py 2>&1", "no shell reads '2>&1'"),
        ("python train.py $HOME", "no shell reads '$HOME'"),
        ("MUJOCO_GL=egl python train.py", "'MUJOCO_GL=egl' is no program; set variables under trainer.environment"),
        ("python 'train.py", "cannot be split into arguments: no closing quotation"),
    ],
)
def test_what_only_a_shell_understands_is_refused(tmp_path: Path, command: str, expected: str) -> None:
    text = GOOD.replace('[python, train.py, "{run_dir}"]', f'"{command}"')
    assert expected in complaint(tmp_path, text)

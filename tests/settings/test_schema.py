"""The JSON Schema takes what the program takes, so that an editor marks no good study as wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from dreamproof.settings.study import Study
from dreamproof.settings.yaml_guard import Loader

ROOT = Path(__file__).parents[2]
STUDIES = sorted([*ROOT.glob("studies/*.yaml"), *ROOT.glob("gallery/*/study.yaml")])

SHORT = """\
name: tiny
question: Is b better than a?
metric: {smallest_difference: 1.0}
task: line
trainer:
  command: python train.py {run_dir}
  evaluate: python evaluate.py {checkpoint} {condition}
arms: {a: , b: {rate: 0.1}}
seeds: 0-4,7
agent_steps: 100
conditions: [id, {name: wind, settings: {force: 2}}]
liveness: {kill_silent_after_seconds: 600}
report: {update: [slides.md]}
at_end: {command: shutdown -h now}
notify: [{on: [death], command: notify-send dreamproof}]
"""


def yaml_value(text: str) -> Any:
    return yaml.load(text, Loader=Loader)  # a SafeLoader, in which `on` is a word


def complaints(value: Any) -> list[str]:
    schema = Study.model_json_schema()
    Draft202012Validator.check_schema(schema)
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(value)]


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_the_schema_takes_every_study_of_ours(file: Path) -> None:
    assert complaints(yaml_value(file.read_text())) == []


def test_the_schema_takes_every_short_form() -> None:
    value = yaml_value(SHORT)
    assert complaints(value) == []
    study = Study.model_validate(value)
    assert study.arms["a"] == {} and study.at_end.commands == [["shutdown", "-h", "now"]]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("task: line\n", "", "$: "),
        ("seeds: 0-4,7", "sedes: 3", "'sedes' was unexpected"),
        ("agent_steps: 100", "agent_steps: ten", "$.agent_steps: "),
        ("command: python train.py {run_dir}", "comand: x", "$.trainer: "),
    ],
)
def test_the_schema_refuses_what_the_program_refuses(old: str, new: str, place: str) -> None:
    assert any(place in found for found in complaints(yaml_value(SHORT.replace(old, new))))

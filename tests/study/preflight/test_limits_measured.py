"""A limit of a metric that the task does not measure is refused before anything is trained."""

from dreamproof.settings.strict import validate
from dreamproof.settings.study import Study
from dreamproof.study.preflight.local import ArmCheck, unmeasured_limits

DECLARED = {
    "name": "limits",
    "question": "Is it safe?",
    "metric": {"name": "return", "smallest_difference": 1.0},
    "constraints": [{"name": "cost_hazardz", "at_most": 5}, {"name": "cost_vases", "at_most": 3}],
    "task": "SafetyPointGoal2",
    "trainer": "dreamer",
    "arms": {"plain": {}},
    "seeds": 5,
    "agent_steps": 4000,
    "conditions": ["id"],
}


def test_a_limit_that_nothing_measures_is_named_with_what_is_measured() -> None:
    study = validate(Study, DECLARED, "limits.yaml")
    known = ["return", "cost", "goals", "length", "cost_hazards", "cost_vases"]
    (fault,) = unmeasured_limits(study, [ArmCheck("plain", True, probe={"metrics": known})])
    assert fault == (
        "arm plain: nothing measures 'cost_hazardz', for which a limit is declared; did you mean 'cost_hazards'? "
        "costs of its task: cost, cost_hazards, cost_vases"
    )


def test_nothing_is_said_of_a_trainer_whose_metrics_are_unknown() -> None:
    study = validate(Study, DECLARED, "limits.yaml")
    assert unmeasured_limits(study, [ArmCheck("plain", True), ArmCheck("plain", True, probe={"metrics": None})]) == []

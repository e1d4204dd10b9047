"""Settings of PWM that contradict each other are refused, and the meaning of a model names what it was trained with."""

from typing import Any

import pytest
from pydantic import ValidationError

from dreamproof.settings.pwm import PwmSettings

FLOW: dict[str, Any] = {"kind": "flow", "integrator": "heun", "substeps": 2}
PULL: dict[str, Any] = {"source_pull": 0.5}


def test_a_pull_on_a_source_that_no_error_contains_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"source_pull: 0\.5 has no effect with dynamics\.predicts: end"):
        PwmSettings.model_validate({"world_model": PULL, "dynamics": FLOW | {"predicts": "end"}})


@pytest.mark.parametrize("dynamics", [FLOW, {"kind": "mlp", "predicts": "end"}], ids=["velocities", "mlp"])
def test_a_pull_is_allowed_beside_other_dynamics(dynamics: dict[str, Any]) -> None:
    """An arm with an MLP may share the losses of the arms with flows of velocities."""
    assert PwmSettings.model_validate({"world_model": PULL, "dynamics": dynamics}).world_model.source_pull == 0.5


def test_the_meaning_of_a_flow_contains_how_it_is_integrated_and_that_of_an_mlp_does_not() -> None:
    flow, mlp = (
        PwmSettings.model_validate({"dynamics": FLOW | {"kind": kind}}).model_meaning for kind in ("flow", "mlp")
    )
    assert flow["dynamics.integrator"] == "heun" and flow["dynamics.substeps"] == 2
    assert {name for name in mlp if name.startswith("dynamics.")} == {"dynamics.kind"}

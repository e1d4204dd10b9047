"""Every knob, one module per owner; unknown keys are refused."""

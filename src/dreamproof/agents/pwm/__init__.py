"""Policy learning through a world model (PWM, 2024), with MLP or flow-matching dynamics."""

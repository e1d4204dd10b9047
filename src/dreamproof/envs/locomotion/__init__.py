"""Locomotion on MJX: an ant and a hopper as PWM has them, and four tasks of the DM-Control suite."""

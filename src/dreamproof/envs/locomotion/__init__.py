"""Locomotion on MJX: the ant and hopper of PWM, and four tasks of the DM-Control suite."""

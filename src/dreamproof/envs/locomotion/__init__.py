"""Tasks on MJX: the ant and hopper of PWM, and the thirty tasks of MT30 on bodies of the DM-Control suite."""

"""Short trials of every arm before anything is spent."""

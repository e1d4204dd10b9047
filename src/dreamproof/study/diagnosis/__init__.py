"""Why an attempt ended, and whether it still lives."""

"""Calibrates intervals, verdicts and planning by simulation; `python -m benchmarks.calibration` prints the page."""

"""Statements about training seeds: intervals, comparisons, verdicts, seeds still needed. numpy and scipy only."""

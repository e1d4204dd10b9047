"""Colours of reports, figures and the dashboard: one per arm, state and cause. Needs no drawing library."""

# Okabe and Ito's colours, ordered so that neighbours also differ in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C00", "#4D4D4D")
DARK_COLOURS = ("#3B9BD6", "#F0803C", "#2DBE93", "#DD9CC0", "#F0B43C", "#7CC8F2", "#B8963C", "#A6A6A6")
"""The same hues on a dark page, light enough to be read there."""
STATE_COLOURS = {
    "proven": "#2e7d5b",
    "reported": "#8fc3ab",
    "running": "#8fbfe0",
    "unfinished": "#e3c26b",
    "stopped": "#b5475a",
    "not_saved": "#d98b5f",
    "missing": "#ffffff",
}
GOOD, HARMLESS, BAD, IDLE = "#2e7d5b", "#8fa9c4", "#b5475a", "#c9ced6"
HARMLESS_CAUSES = ("stopped_by_user", "preempted", "timeout", "hangup", "restarted")
"""Ends that nobody has to repair: asked for, or part of the plan of a cluster."""


def cause_colour(cause: str) -> str:
    """By how bad an end is."""
    if cause == "completed":
        return GOOD
    return HARMLESS if cause in HARMLESS_CAUSES else BAD

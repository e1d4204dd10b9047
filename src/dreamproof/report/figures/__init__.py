"""Figures of a study: PNG and PDF, readable in grey, one colour per arm everywhere, the same bytes each time."""

NAMES = (
    "curves_primary", "curves_cost", "conditions", "conditions_cost", "task_scores", "task_profile", "score_cost",
    "profile", "power", "trails", "coverage", "timeline", "money",
)  # fmt: skip


def limited_name(name: str, number: int) -> str:
    """The name of a figure of the first, second … limited metric."""
    return name if number == 1 else f"{name}-{number}"

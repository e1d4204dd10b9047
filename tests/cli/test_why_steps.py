"""`why` says of every attempt whether its agent steps were kept."""

from typing import Any

import pytest

from dreamproof.cli.why import kept_text


def attempt(name: str, first: int, kept: int | None, **more: Any) -> dict[str, Any]:
    found = {"attempt": name, "work": "train", "restarted_at": {}, "from_agent_steps": {"a/0": first}}
    return {**found, "kept_agent_steps": {} if kept is None else {"a/0": kept}, **more}


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ([], ", 500 → 2,000 agent steps kept"),
        ([attempt("a2", 2000, 3000)], ", 500 → 2,000 agent steps kept"),
        ([attempt("a2", 0, None, work="evaluate")], ", 500 → 2,000 agent steps kept"),
        (
            [attempt("a2", 2000, 3000, restarted_at={"a/0": 0})],
            ", 500 → 2,000 agent steps, not kept: a2 began at 0",
        ),
        ([attempt("a2", 1000, 3000)], ", 500 → 1,000 agent steps kept; a2 did not continue from 2,000"),
    ],
)
def test_steps_count_as_kept_only_if_the_next_attempt_continued(later: list[dict[str, Any]], text: str) -> None:
    assert kept_text(attempt("a1", 500, 2000), later, "a/0") == text

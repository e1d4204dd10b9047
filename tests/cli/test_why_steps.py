"""`why` says of every attempt whether its agent steps were kept."""

from typing import Any

import pytest

from dreamproof.cli.why import kept_text
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.views.values import kept_steps


def attempt(name: str, first: int, kept: int | None, work: Any = "train", **more: Any) -> AttemptState:
    saved = {} if kept is None else {"a/0": kept}
    return AttemptState(name, work, ["a/0"], [], [], 0.0, {"a/0": first}, kept_agent_steps=saved, **more)


@pytest.mark.parametrize(
    ("later", "text"),
    [
        ([], ", 500 → 2,000 agent steps kept"),
        ([attempt("a2", 2000, 3000)], ", 500 → 2,000 agent steps kept"),
        ([attempt("a2", 0, None, work="evaluate")], ", 500 → 2,000 agent steps kept"),
        (
            [attempt("a2", 2000, 3000, restarted={"a/0": 0})],
            ", 500 → 2,000 agent steps, not kept: a2 began at 0",
        ),
        ([attempt("a2", 1000, 3000)], ", 500 → 1,000 agent steps kept; a2 did not continue from 2,000"),
    ],
)
def test_steps_count_as_kept_only_if_the_next_attempt_continued(later: list[AttemptState], text: str) -> None:
    assert kept_text(kept_steps([attempt("a1", 500, 2000), *later], "a/0")["a1"]) == text


def test_an_attempt_without_a_checkpoint_has_no_steps() -> None:
    assert kept_text(kept_steps([attempt("a1", 500, None)], "a/0")["a1"]) == ""

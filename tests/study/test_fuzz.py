"""Whatever one file of a study folder holds, and whichever call of the system fails: no traceback, no hang."""

import errno
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from dreamproof.testing.fuzz import DAMAGES, FAILURES, VERBS, Damage, record_study, survive, survive_failure

pytestmark = pytest.mark.long(60)

REPEATABLE = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_study(tmp_path_factory.mktemp("recorded") / "place")


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_survives_a_damaged_file(recorded: Path, verb: str) -> None:
    @REPEATABLE
    @given(DAMAGES)
    def survives(damage: Damage) -> None:
        survive(recorded, damage, verb)

    survives()


@REPEATABLE
@example(("stat", 2, errno.ELOOP, True), "cost")
@example(("open", 10, errno.EACCES, True), "export")
@example(("fstat", 11, errno.ENOENT, False), "stop")
@given(FAILURES, st.sampled_from(sorted(set(VERBS) - {"report"})))
def test_a_verb_survives_a_call_of_the_system_that_fails(
    recorded: Path, failure: tuple[str, int, int, bool], verb: str
) -> None:
    survive_failure(recorded, failure, verb)

"""Running totals equal what a walk over everything would give."""

from hypothesis import given
from hypothesis import strategies as st

from dreamproof.study.ledger.totals import Totals

BOOT = ("boot", 1)
SPANS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(0, 30), st.integers(0, 30)), max_size=12
)


def test_spans_that_overlap_or_touch_become_one() -> None:
    tally = Totals()
    for span in [(5, 6), (1, 2), (2, 3), (10, 12), (2.5, 5.5), (11, 11.5)]:
        tally.add_span(BOOT, *span)
    assert tally.spans == {"boot": {1: [(1, 6), (10, 12)]}}


def test_spans_that_end_before_they_start_cover_nothing() -> None:
    tally = Totals()
    tally.add_span(BOOT, 5, 4)
    assert tally.slot_ms() == 0


@given(SPANS, st.integers(0, 12))
def test_every_second_counts_once_with_the_most_slots_that_were_rented_then(
    spans: list[tuple[str, int, int, int]], kept: int
) -> None:
    seconds: dict[tuple[str, int], int] = {}
    for boot, slots, start, end in spans:
        for second in range(start, end):
            seconds[boot, second] = max(slots, seconds.get((boot, second), 0))
    tally = Totals()
    placed = [((boot, slots), float(start), float(end)) for boot, slots, start, end in spans]
    for span in placed[:kept]:
        tally.add_span(*span)
    assert tally.slot_ms(placed[kept:]) == 1000 * sum(seconds.values())


def test_steps_and_seconds_add_up_by_arm_where_something_was_gained() -> None:
    tally = Totals()
    tally.add_training("low", 100, 10.0)
    tally.add_training("low", 0, 5.0)
    tally.add_training("low", 50, 10.0)
    assert (tally.agent_steps, tally.training_seconds) == ({"low": 150}, {"low": 20.0})
    assert tally.seconds_per_evaluation() is None

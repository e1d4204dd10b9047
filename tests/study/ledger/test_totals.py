"""Running totals equal what a walk over everything would give."""

import random

from dreamproof.study.ledger.totals import Totals
from dreamproof.study.money.spending import union_seconds


def test_spans_that_overlap_or_touch_become_one() -> None:
    tally = Totals()
    for span in [(5, 6), (1, 2), (2, 3), (10, 12), (2.5, 5.5), (11, 11.5)]:
        tally.add_span("boot", *span)
    assert tally.spans == {"boot": [(1, 6), (10, 12)]}


def test_spans_that_end_before_they_start_cover_nothing() -> None:
    tally = Totals()
    tally.add_span("boot", 5, 4)
    assert tally.spans == {}


def test_any_order_of_spans_covers_what_a_walk_over_all_of_them_does() -> None:
    chance = random.Random(3)
    for _ in range(200):
        spans = [(start := chance.uniform(0, 50), start + chance.uniform(-1, 6)) for _ in range(chance.randrange(20))]
        tally = Totals()
        for span in spans[:10]:
            tally.add_span("boot", *span)
        more = [("boot", *span) for span in spans[10:]]
        assert abs(tally.covered_ms(more) - 1000 * union_seconds(spans)) <= 0.5


def test_steps_and_seconds_add_up_by_arm_where_something_was_gained() -> None:
    tally = Totals()
    tally.add_training("low", 100, 10.0)
    tally.add_training("low", 0, 5.0)
    tally.add_training("low", 50, 10.0)
    assert (tally.agent_steps, tally.training_seconds) == ({"low": 150}, {"low": 20.0})
    assert tally.seconds_per_evaluation() is None

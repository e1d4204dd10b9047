"""Only what was not reached before is progress."""

from dreamproof.study.counters import Counter


def grown(*values: float) -> list[bool]:
    counter = Counter(values[0])
    return [counter.grows_to(value) for value in values[1:]]


def test_growth_is_progress_and_standing_still_is_none() -> None:
    assert grown(1, 2, 2, 3) == [True, False, True]


def test_falling_steps_are_no_progress() -> None:
    assert grown(10, 9, 8, 7, 0) == [False] * 4


def test_a_run_that_starts_again_from_its_checkpoint_makes_progress_once() -> None:
    assert grown(10, 5, 6, 7, 8) == [False, True, True, True]
    assert grown(10, 5, 10, 11) == [False, True, True]


def test_a_counter_that_swings_shows_no_progress_for_ever() -> None:
    assert sum(grown(10, *[9, 10] * 50)) == 1

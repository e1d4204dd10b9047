"""Means of metrics between two rows."""

import numpy as np
import pytest

from dreamproof.train.log import MetricSums


def test_rows_are_means_over_all_steps_since_the_last_row() -> None:
    sums = MetricSums(2)
    for values in ([[1.0, 10.0], [2.0, 20.0]], [[6.0, 60.0]]):
        sums.add({"model/x": np.array(values), "episode/done": np.zeros((len(values), 2))})
    assert sums.take() == [{"model/x": pytest.approx(3.0)}, {"model/x": pytest.approx(30.0)}]
    assert sums.take() == [{}, {}]


def test_an_episode_metric_weighs_as_much_as_episodes_ended() -> None:
    sums = MetricSums(2)
    done = np.array([[1, 0], [3, 0], [0, 2]])
    returns = np.array([[4.0, 0.0], [8.0, 0.0], [0.0, 5.0]])
    sums.add({"episode/return": returns, "episode/done": done})
    assert sums.take() == [{"episode/return": 7.0}, {"episode/return": 5.0}]


def test_where_no_episode_ended_no_episode_metrics_are_logged() -> None:
    sums = MetricSums(2)
    sums.add({"episode/return": np.array([[0.0, 3.0]]), "episode/done": np.array([[0, 1]]), "a/b": np.ones((1, 2))})
    assert sums.take() == [{"a/b": 1.0}, {"episode/return": 3.0, "a/b": 1.0}]

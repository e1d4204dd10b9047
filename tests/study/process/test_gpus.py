"""Which GPUs an attempt gets."""

from typing import Any

import pytest

from dreamproof.settings.study import Study
from dreamproof.study.preflight.needs import money_warnings
from dreamproof.study.process import gpus
from dreamproof.study.process.gpus import assign_gpus, attempts_per_gpu, gpus_here
from dreamproof.testing.small_study import small_study


def study(slots: int, **money: Any) -> Study:
    return Study.model_validate(small_study(backend={"slots": slots}, money=money))


def test_gpus_are_those_of_the_variable_or_else_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "describe_gpus", lambda: {"devices": [{}, {}, {}]})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpus_here() == ["0", "1", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, GPU-4a")
    assert gpus_here() == ["1", "GPU-4a"]
    for nothing in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", nothing)
        assert gpus_here() == []


@pytest.mark.parametrize(("slots", "each", "gpus", "sharing"), [(4, 1, 1, 4), (4, 1, 4, 1), (4, 1, 3, 2), (2, 2, 4, 1)])
def test_slots_are_spread_over_the_gpus(slots: int, each: float, gpus: int, sharing: int) -> None:
    assert attempts_per_gpu(study(slots, gpus_per_attempt=each), gpus) == sharing


def test_without_a_known_gpu_all_attempts_share_one() -> None:
    assert attempts_per_gpu(study(4), 0) == 4


def test_the_least_taken_gpus_come_first() -> None:
    assert assign_gpus(study(4), ["0", "1", "2"], ["0", "2"]) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert assign_gpus(study(4), ["0", "1"], ["0", "1", "0"]) == {"CUDA_VISIBLE_DEVICES": "1"}
    assert assign_gpus(study(2, gpus_per_attempt=2), ["0", "1", "2", "3"], ["0,1"]) == {"CUDA_VISIBLE_DEVICES": "2,3"}


def test_one_gpu_is_nobodys_choice() -> None:
    assert assign_gpus(study(4), ["0"], []) == {}
    assert assign_gpus(study(4), [], []) == {}


def test_paying_for_more_gpus_than_there_are_is_noticed() -> None:
    (warning,) = money_warnings(study(4, price_per_gpu_hour=7.0), 1)
    assert warning.startswith("money counts 4 GPUs, this machine has 1") and "gpus_per_attempt: 0.25" in warning
    assert money_warnings(study(4, price_per_gpu_hour=7.0, gpus_per_attempt=0.25), 1) == []
    assert money_warnings(study(4, price_per_gpu_hour=7.0), 4) == []
    assert money_warnings(study(4), 1) == []

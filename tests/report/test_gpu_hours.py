"""Hours are those of GPUs: an attempt may use a share of one."""

from pathlib import Path

import pytest

from dreamproof.report import make_context
from dreamproof.testing.gallery import unpack

GALLERY = Path(__file__).parents[2] / "gallery"


def test_gpu_hours_times_their_price_are_the_money(tmp_path: Path) -> None:
    context = make_context(unpack(GALLERY / "pwm_samples_100k", tmp_path / "study"), "en")
    spending, declared = context.analysis.spending, context.analysis.evidence.study.money
    assert declared.gpus_per_attempt == 0.5
    hours = float(context.gpu_hours(spending.recorded_seconds))
    assert hours * declared.price_per_gpu_hour == pytest.approx(spending.spent, abs=0.005 * declared.price_per_gpu_hour)

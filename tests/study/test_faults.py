"""The short fault campaign; `make faults` runs the long one."""

from pathlib import Path

from benchmarks.faults import campaign, table


def test_a_short_fault_campaign_loses_repeats_and_misnames_nothing(tmp_path: Path) -> None:
    result = campaign(tmp_path, 20, seed=5, say=lambda text: None)
    assert result.faults_found == [], table(result)
    assert len(result.faults) >= 20
    assert len({fault.kind for fault in result.faults}) >= 6
    assert not any("not proven" in line for line in table(result).splitlines())

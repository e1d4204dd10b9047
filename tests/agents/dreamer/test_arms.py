"""The four arms of the users' study: one compile, separated by scalars alone."""

from typing import Any

import pytest
from tests.tiny import tiny_cell

from dreamproof.settings.dreamer import DreamerSettings
from dreamproof.settings.traced import static_key, traced_values

ARMS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "u_only": {"uncertainty_weight": 1.0},
    "cert_only": {"certificate_weight": 1.0},
    "full": {"uncertainty_weight": 1.0, "certificate_weight": 1.0},
}


def test_the_arms_share_one_compile() -> None:
    assert len({static_key(tiny_cell({"risk": risk})) for risk in ARMS.values()}) == 1


def test_the_arms_differ_in_two_scalars_only() -> None:
    plain = traced_values(tiny_cell().agent)
    full = traced_values(tiny_cell({"risk": ARMS["full"]}).agent)
    changed = {(room, name) for room, group in plain.items() if isinstance(group, dict) for name in group}
    changed = {(room, name) for room, name in changed if plain[room][name] != full[room][name]}
    assert changed == {("risk", "uncertainty_weight"), ("risk", "certificate_weight")}


@pytest.mark.parametrize(
    "change",
    [
        {"world_model": {"units": 64}},
        {"behavior": {"horizon": 6}},
        {"planner": {"mode": "off"}},
        {"risk": {"members": 3}},
        {"precision": "bfloat16"},
    ],
)
def test_what_shapes_a_compile_parts_the_packs(change: dict[str, Any]) -> None:
    assert static_key(tiny_cell(change)) != static_key(tiny_cell())


def test_every_traced_setting_is_a_number() -> None:
    def flat(values: dict[str, Any]) -> list[Any]:
        return [leaf for value in values.values() for leaf in (flat(value) if isinstance(value, dict) else [value])]

    found = flat(traced_values(DreamerSettings()))
    assert len(found) > 20
    assert all(isinstance(value, float) for value in found)

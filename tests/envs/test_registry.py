"""Tasks by name, and a user's own task in one file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.envs import registry
from dreamproof.envs.point.env import PointGoal
from dreamproof.jaxcore.keys import layout_keys, noise_keys
from dreamproof.settings.cell import DreamerCell

EXAMPLE = Path(__file__).parents[2] / "docs" / "environments.md"


def documented_file() -> str:
    """The user's file exactly as the guide shows it."""
    text = EXAMPLE.read_text(encoding="utf-8")
    return text.split("<!-- corridor.py -->\n```python\n")[1].split("```")[0]


def test_a_user_registers_a_task_in_one_file_as_the_guide_shows(tmp_path: Path) -> None:
    path = tmp_path / "corridor.py"
    path.write_text(documented_file(), encoding="utf-8")
    env = registry.make(f"{path}:Corridor", {"options": {"length": 2.0}})
    assert env.spec.name.endswith("corridor.py:Corridor")
    params = env.default_params()
    state, shown = env.reset(layout_keys(0, "train", 4, 0), params)
    state, shown = jax.jit(env.step)(noise_keys(0, "train", 4, 0), state, jnp.ones((4, 1)), params)
    assert shown.observation.shape == (4, env.spec.observation_size)
    assert (shown.reward > 0).all()
    windy = env.conditions()["headwind"]
    assert windy.kind == "genuine"
    _, slowed = jax.jit(env.step)(noise_keys(0, "train", 4, 0), state, jnp.ones((4, 1)), windy.change(params))
    assert (slowed.reward < shown.reward).all()


ONE_COST = "cost, zero, zero, no | first, no, truncated)"
COSTS = {
    "none shown": (
        'costs=("slip", "speed")',
        ONE_COST,
        r"has the shape None, not \(2, 2\): spec.costs names slip, speed",
    ),
    "one too many": (
        'costs=("slip", "speed")',
        ONE_COST[:-1] + ", costs=jnp.stack([cost, zero, zero]))",
        r"has the shape \(2, 3\), not \(2, 2\)",
    ),
    "not named": (
        "costs=()",
        ONE_COST[:-1] + ", costs=cost[None])",
        r"shape \(2, 1\), not None: spec.costs names none",
    ),
    "named twice": ('costs=("slip", "slip")', ONE_COST, "names a cost twice: slip, slip"),
    "without a cost": ('costs=("slip", "speed"), has_cost=False', ONE_COST, "but spec.has_cost is False"),
}


def two_costs(folder: Path, spec: str, shown: str) -> str:
    """The documented environment with other costs."""
    text = documented_file().replace("has_cost=True)", f"{spec})").replace(ONE_COST, shown)
    path = folder / f"costs_{abs(hash(text))}.py"
    path.write_text(text, encoding="utf-8")
    return f"{path}:Corridor"


@pytest.mark.parametrize("case", list(COSTS))
def test_named_costs_that_do_not_match_the_steps_are_refused(tmp_path: Path, case: str) -> None:
    spec, shown, seen = COSTS[case]
    with pytest.raises(BadInput, match=seen):
        registry.make(two_costs(tmp_path, spec, shown))


def test_named_costs_are_shown_as_the_guide_says(tmp_path: Path) -> None:
    shown = ONE_COST[:-1] + ", costs=jnp.stack([cost, zero]))"
    assert registry.make(two_costs(tmp_path, 'costs=("slip", "speed")', shown)).spec.costs == ("slip", "speed")


def test_a_cell_of_a_task_without_a_margin_gets_the_sign_of_the_cost(tmp_path: Path) -> None:
    path = tmp_path / "corridor.py"
    path.write_text(documented_file(), encoding="utf-8")
    env = registry.make_for(f"{path}:Corridor", DreamerCell())
    assert (env.spec.has_cost, env.spec.has_margin) == (True, False)
    params = env.default_params()
    state, shown = env.reset(layout_keys(0, "train", 2, 0), params)
    margins = [shown.margin]
    for step in range(10):
        state, shown = env.step(noise_keys(0, "train", 2, step), state, jnp.array([[0.0], [0.95]]), params)
        margins.append(shown.margin)
    # The second is at 0.95 m after ten steps; the last tenth of a corridor of 1 m costs.
    np.testing.assert_allclose(np.stack(margins), [[0.1, 0.1]] * 10 + [[0.1, -0.1]])
    margin = registry.make_for("SafetyPointGoal1", DreamerCell())
    assert isinstance(margin, PointGoal)


def test_a_loaded_file_is_not_run_twice(tmp_path: Path) -> None:
    path = tmp_path / "counted.py"
    path.write_text("import pathlib\nlog = pathlib.Path(__file__).with_suffix('.log')\nlog.open('a').write('x')\n")
    for _ in range(2):
        with pytest.raises(BadInput, match="there is no task 'Nothing' after loading"):
            registry.make(f"{path}:Nothing")
    assert path.with_suffix(".log").read_text() == "x"


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'SafetyPointGoal"):
        registry.make("SafetyPointGoal")


def test_a_missing_file_or_module_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        registry.make(f"{tmp_path}/none.py:Corridor")
    with pytest.raises(BadInput, match="was not found"):
        registry.make("no_such_package.envs:Corridor")


def test_a_name_with_a_colon_cannot_be_registered() -> None:
    with pytest.raises(BadInput, match="must not contain a colon"):
        registry.register("a:b", registry.make)  # type: ignore[arg-type]


def test_an_unknown_setting_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'ghost_slots'"):
        registry.make("SafetyPointGoal1", {"ghost_slot": 1})

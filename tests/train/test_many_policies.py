"""One cell with a policy for each of two tasks, in one world model: each equals what a cell of one task learns."""

import threading
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.train.offline_cells import TASKS, UPDATES, TwoHands, offline_settings, record_both, write_cell

from dreamproof.agents.api import RecordedSteps, SeveralPolicies, Windows
from dreamproof.agents.pwm.agent import PwmAgent, PwmState
from dreamproof.agents.pwm.many import ManyPolicies, policy_parts
from dreamproof.base.errors import BadInput
from dreamproof.envs.probes import PROBES
from dreamproof.envs.registry import make_for, spec_for
from dreamproof.evaluate import __main__ as evaluate_command
from dreamproof.evaluate.episodes import Evaluator
from dreamproof.evaluate.policy import load_policy
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import prove_evaluation, prove_training, read_checkpoint, read_evaluation
from dreamproof.runs.records import EvaluationRecord
from dreamproof.settings.cell import PwmOfflineCell
from dreamproof.settings.traced import traced_values
from dreamproof.train import loop

pytestmark = pytest.mark.long(60)
KNOWN = {"TestTwoHands": TwoHands().known(), "ProbeCostLine": PROBES["ProbeCostLine"]().known()}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random episodes of both tasks."""
    return record_both(tmp_path_factory.mktemp("recorded") / "both.npz")


def many_settings(file: Path, **changes: dict) -> dict:
    """A tiny cell with a policy for each task."""
    return offline_settings(file, {"data": {"policies": list(TASKS)}, **changes})


@pytest.fixture(scope="module")
def trained(file: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Such a cell, trained to its end."""
    run = write_cell(tmp_path_factory.mktemp("many") / "run", many_settings(file), task="both")
    assert loop.train([run])
    return run


@pytest.fixture(scope="module")
def records(trained: RunFolder) -> dict[str, EvaluationRecord]:
    """Its evaluations, one for each task."""
    assert evaluate_command.evaluate_runs([trained.root], list(TASKS), 6) == 0
    found = {task: read_evaluation(trained, task) for task in TASKS}
    assert all(found.values())
    return {task: record for task, record in found.items() if record is not None}


def agent_of(settings: dict) -> tuple[ManyPolicies, dict]:
    """The agent of a cell and its traced settings."""
    cell = PwmOfflineCell.model_validate(settings)
    scalars = jax.tree.map(jnp.asarray, traced_values(cell.agent))
    return ManyPolicies(spec_for("both", cell), cell.agent), scalars


def test_the_spec_names_every_policy_with_its_own_actions(file: Path) -> None:
    cell = PwmOfflineCell.model_validate(many_settings(file))
    spec = spec_for("both", cell)
    assert (spec.name, spec.policies, spec.observation_size, spec.action_size) == ("both", ((0, 2), (1, 1)), 2, 2)
    assert isinstance(ManyPolicies(spec, cell.agent), SeveralPolicies)
    assert not isinstance(PwmAgent(make_for(TASKS[0], cell).spec, cell.agent), SeveralPolicies)


@pytest.mark.parametrize("behavior", [{}, {"recorded_value_scale": 2.0, "critic_warm_up": 0.5, "cloning_scale": 1.0}])
def test_one_update_of_all_policies_equals_the_update_of_each_alone(file: Path, behavior: dict) -> None:
    settings = many_settings(file, agent={"behavior": behavior})
    agent, scalars = agent_of(settings)
    state = agent.init_state(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 2)
    steps = RecordedSteps(jax.random.normal(keys[0], (2, 8, 2)), jax.random.uniform(keys[1], (2, 8, 2)))
    if behavior:
        shape, again = (2, 5, 8), jax.random.split(keys[0], 3)
        observation, action = (jax.random.uniform(key, (*shape, 2), minval=-1.0) for key in again[:2])
        zero = jnp.zeros(shape)
        rewards = jax.random.uniform(again[2], shape)
        windows = Windows(observation, action, rewards, zero, zero.at[:, 2, :3].set(1.0), jnp.ones(2))
        steps = steps._replace(windows=windows)
    together, metrics = eqx.filter_jit(agent.update_behavior)(state, steps, jax.random.key(2), scalars, jnp.zeros(()))
    assert metrics["actor/loss"].shape == ()
    for index, (task, key) in enumerate(zip(TASKS, jax.random.split(jax.random.key(2), 2), strict=True)):
        cell = PwmOfflineCell.model_validate(settings)
        single = PwmAgent(make_for(task, cell).spec, cell.agent)
        own_steps = jax.tree.map(lambda part, index=index: part[index], steps)
        alone, _ = eqx.filter_jit(single.update_behavior)(
            agent.policy_of(state, index), own_steps, key, scalars, jnp.zeros(())
        )
        close(alone, agent.policy_of(together, index))


def close(one: PwmState, other: PwmState) -> None:
    """Both behaviours are equal up to the order of sums."""
    leaves = [jax.tree.leaves(eqx.filter(policy_parts(state), eqx.is_array)) for state in (one, other)]
    for left, right in zip(*leaves, strict=True):
        np.testing.assert_allclose(left, right, rtol=2e-3, atol=2e-5)


def test_the_cell_is_proven_and_says_what_its_data_returned(trained: RunFolder) -> None:
    proof = prove_training(trained, UPDATES)
    assert not isinstance(proof, str), proof
    record = read_checkpoint(trained.checkpoint(UPDATES))
    assert record is not None and record.task == "both" and set(record.data_returns) == set(TASKS)
    mean, best = record.data_returns["TestTwoHands"]
    assert abs(mean - KNOWN["TestTwoHands"].random_return) < 1 and mean < best < KNOWN["TestTwoHands"].best_return
    assert not trained.selected.exists()


def test_every_policy_is_far_better_than_random(records: dict[str, EvaluationRecord]) -> None:
    for task, known in KNOWN.items():
        made = records[task].checkpoints["final"]
        reached = np.mean(made.episodes["return"])
        assert reached > known.random_return + 0.7 * (known.best_return - known.random_return), task


def test_an_evaluation_belongs_to_one_task_and_has_a_relative_score(
    trained: RunFolder, records: dict[str, EvaluationRecord]
) -> None:
    for task, record in records.items():
        made = record.checkpoints["final"]
        assert not isinstance(prove_evaluation(trained, task, 6, made.parameter_hash), str)
        assert (record.condition, record.kind) == (task, "in_distribution")
        floor, best = record.floors["random"]["return"], made.scalars["data/best_return"]
        expected = (np.asarray(made.episodes["return"]) - floor) / (best - floor)
        np.testing.assert_allclose(made.episodes["relative_score"], expected)
        assert "score" not in made.episodes  # the probes have no largest return in their spec


def test_floors_and_episodes_are_those_of_an_agent_of_one_task(
    trained: RunFolder, records: dict[str, EvaluationRecord]
) -> None:
    for task, record in records.items():
        alone = Evaluator(
            [{"final": evaluate_command.open_run(trained.root).checkpoints["final"].of_task(task)}], {}, 6
        )
        (single,) = alone.evaluate("id")
        for name, floor in single.floors.items():
            assert record.floors[name]["return"] == pytest.approx(floor["return"], rel=1e-4), name
        one, other = (each.checkpoints["final"].episodes for each in (record, single))
        np.testing.assert_allclose(one["return"], other["return"], rtol=1e-3, atol=1e-3)
        assert one["length"] == other["length"]


def test_tasks_are_evaluated_at_the_same_time_and_come_in_order(
    trained: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_began = threading.Barrier(len(TASKS), timeout=60)

    def evaluate_task(_: Evaluator, name: str) -> list[str]:
        both_began.wait()
        return [name]

    monkeypatch.setattr(Evaluator, "_evaluate_task", evaluate_task)
    evaluator = Evaluator([evaluate_command.open_run(trained.root).checkpoints], {}, 1)
    assert list(evaluator.evaluate_all([*reversed(TASKS)])) == [[name] for name in reversed(TASKS)]


def test_a_policy_is_loaded_by_its_task(trained: RunFolder) -> None:
    policy = load_policy(trained, task="TestTwoHands")
    assert policy.act(np.array([0.5, -0.5])).shape == (2,)
    narrow = load_policy(trained, task="ProbeCostLine")
    own = narrow.spec
    assert (own.observation_size, own.action_size) < (policy.spec.observation_size, policy.spec.action_size)
    assert narrow.act(np.zeros(own.observation_size)).shape == (own.action_size,)
    state, seen = narrow.env.reset(keys := jax.random.split(jax.random.key(0), 3), narrow.env.default_params())
    narrow.reset()
    narrow.env.step(keys, state, narrow.act(seen.observation), narrow.env.default_params())
    with pytest.raises(BadInput, match="did you mean 'TestTwoHands'"):
        load_policy(trained, task="TestTwoHand")
    with pytest.raises(BadInput, match="has policies of several tasks: "):
        load_policy(trained)


def test_cloning_learns_the_recorded_actions(file: Path) -> None:
    agent, scalars = agent_of(many_settings(file, agent={"behavior": {"objective": "cloning"}}))
    state = agent.init_state(jax.random.key(0))
    observation = jax.random.uniform(jax.random.key(1), (2, 64, 2), minval=-1.0)
    steps = RecordedSteps(observation, 0.5 * observation)
    update = eqx.filter_jit(agent.update_behavior)
    losses = []
    for index in range(200):
        state, metrics = update(state, steps, jax.random.key(index), scalars, jnp.zeros(()))
        losses.append(float(metrics["actor/loss"]))
    assert losses[-1] < 0.1 * losses[0]
    assert int(state.gradient_steps) == 200


def test_other_actions_are_copied_than_those_where_imagination_starts(file: Path) -> None:
    agent, scalars = agent_of(many_settings(file, agent={"behavior": {"cloning_scale": 100.0}}))
    state = agent.init_state(jax.random.key(0))
    observation = jax.random.uniform(jax.random.key(1), (2, 64, 2), minval=-1.0)
    copied = RecordedSteps(observation + 0.1, 0.5 * observation)
    update = eqx.filter_jit(agent.update_behavior)
    first, metrics = update(state, RecordedSteps(observation, -observation, copied), jax.random.key(2), scalars, 0.0)
    second, _ = update(state, RecordedSteps(observation, 0 * observation, copied), jax.random.key(2), scalars, 0.0)
    alone, _ = update(state, RecordedSteps(observation, -observation), jax.random.key(2), scalars, 0.0)
    same = jax.tree.map(lambda one, other: bool((one == other).all()), first.actor, second.actor)
    assert all(jax.tree.leaves(same)), "actions at the starts must not matter"
    differs = jax.tree.map(lambda one, other: bool((one != other).any()), first.actor, alone.actor)
    assert any(jax.tree.leaves(differs)) and np.isfinite(float(metrics["actor/loss"]))


def test_a_policy_for_a_task_without_episodes_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not name the task 'Other'"):
        PwmOfflineCell.model_validate(offline_settings(file, {"data": {"policies": ["Other"]}}))
    three = {"tasks": [*TASKS, "ProbeRecall"], "policies": ["ProbeRecall"]}
    settings = offline_settings(file, {"data": three, "agent": {"world_model": {"tasks": 3}}})
    with pytest.raises(BadInput, match="no recorded episode of the task 'ProbeRecall' is used; recorded: "):
        loop.read_job([write_cell(tmp_path, settings, task="both")])

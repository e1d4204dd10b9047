"""No dead settings of a cell besides its agent: each changes a traced program, a shape, or what a run records."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.settings.agent_programs import operations, used_inputs
from tests.settings.test_agent_settings import fields_of, nested, other, value_at

from dreamproof.agents.api import Decision
from dreamproof.base.files import read_json, write_json
from dreamproof.base.lines import read_rows
from dreamproof.data.recordings import Recording, write_recording
from dreamproof.envs import registry
from dreamproof.envs.api import Env
from dreamproof.envs.episodes import Episodes
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.records import RunSettings
from dreamproof.settings.cell import CELL_SETTINGS, PwmCell, PwmOfflineCell
from dreamproof.settings.env import EnvSettings
from dreamproof.settings.recorded import RecordedData
from dreamproof.settings.traced import traced_values
from dreamproof.settings.train import EpochTrain, LoopSettings, OfflineTrain, OnlineSettings, Randomise, StepTrain
from dreamproof.testing.small_agent import merged, tiny_settings
from dreamproof.train import loop
from dreamproof.train.bootstrapped_pack import BootstrappedPack
from dreamproof.train.offline_pack import OfflinePack, make_offline_pack
from dreamproof.train.pack import Pack, PackState
from dreamproof.train.pretrained_pack import PretrainedPack

pytestmark = pytest.mark.long(20)

TASK, AGENT_STEPS = "ProbeCredit", 96
OTHERS: dict[str, Any] = {
    "vase": "pushed",
    "action_repeat": 4,
    "episode_simulator_steps": 500,
    "chunk_agent_steps": 8,
    "options": {"length": 3},
    "envs": 8,
    "replay_agent_steps": 16,
    "updates_per_agent_step": 0.5,
    "collapse.fraction": 0.05,
}


class IdleState(NamedTuple):
    """The learning state of an agent that learns nothing."""

    weight: jax.Array
    gradient_steps: jax.Array
    finite: jax.Array


class IdleAgent:
    """The least that a pack needs: its programs are traced in no time."""

    settings = None
    model_fields = ("weight",)

    def init_state(self, key: jax.Array) -> IdleState:
        return IdleState(jnp.zeros(2), jnp.ones((), jnp.int32), jnp.asarray(True))

    def init_memory(self, envs: int) -> jax.Array:
        return jnp.zeros(envs)

    def act(self, state: Any, memory: Any, seen: Any, key: Any, scalars: Any, explore: bool) -> Decision:
        return Decision(jnp.zeros((*seen.reward.shape, 1)), memory, {})

    def update(self, state: Any, batch: Any, key: Any, scalars: Any, progress: Any) -> tuple[Any, dict[str, Any]]:
        return state, {"loss": sum(jnp.sum(part) for part in jax.tree.leaves(batch) if part.dtype == jnp.float32)}

    update_model = update_behavior = update

    def with_frozen_model(self) -> "IdleAgent":
        frozen = IdleAgent()
        frozen.update = lambda state, *_: (state, {"loss": jnp.zeros(())})  # type: ignore[method-assign]
        return frozen


def other_value(path: str, settings: Any) -> Any:
    """A valid value that differs."""
    return (
        OTHERS[path] if path in OTHERS else other(path, dict(fields_of(type(settings)))[path], value_at(settings, path))
    )


def changed(settings: Any, path: str) -> Any:
    """The settings with another value of one setting."""
    values = merged(settings.model_dump(), nested(path, other_value(path, settings)))
    return type(settings).model_validate(values)


def program(function: Any, *inputs: Any) -> list[Any]:
    """What a function computes, with shapes."""
    return list(operations(eqx.filter_make_jaxpr(function)(*inputs)[0].jaxpr))


# Environments.


@cache
def of_env(settings: str) -> tuple[Any, list[Any]]:
    """The declaration of the task and the program of one step, by settings (JSON)."""
    env = registry.make("SafetyPointGoal1", EnvSettings.model_validate_json(settings))
    keys, params = jax.random.split(jax.random.key(0), 1), env.default_params()
    state, _ = eqx.filter_eval_shape(env.reset, keys, params)
    return env.spec, program(env.step, keys, state, jnp.zeros((1, env.spec.action_size)), params)


@pytest.mark.parametrize("path", [path for path in EnvSettings.model_fields if path != "options"])
def test_a_setting_of_an_env_changes_its_program(path: str) -> None:
    base = EnvSettings(observation="lidar", vase="still") if path == "vase" else EnvSettings()
    assert of_env(base.model_dump_json()) != of_env(changed(base, path).model_dump_json())


def test_options_reach_a_custom_env() -> None:
    given: list[dict[str, Any]] = []

    def make(task: str, settings: EnvSettings) -> Env:
        given.append(settings.options)
        return registry.make(TASK)

    registry.register("TestOptions", make)
    registry.make("TestOptions", changed(EnvSettings(), "options"))
    assert given == [OTHERS["options"]]


# Packs.


def idle_pack(train: OnlineSettings, task: str, scalars: dict[str, Any]) -> Pack:
    """A pack of the idle agent."""
    inputs = jax.tree.map(lambda value: jnp.full(1, value), scalars)
    return Pack(IdleAgent(), registry.make(task), train, [0], inputs, AGENT_STEPS)  # type: ignore[arg-type]


def of_pack(train: OnlineSettings) -> list[Any]:
    """Programs of a pack, and how many env steps it takes before training."""
    pack, prefilled = idle_pack(train, TASK, {}), []
    pack.prefill = lambda state, env_steps: (state, prefilled.append(env_steps))  # type: ignore[assignment, return-value]
    state = eqx.filter_eval_shape(pack._init, pack.inputs)
    pack.prepare(state)
    step = pack._epoch if isinstance(train, EpochTrain) else lambda inputs, state: pack._chunk(inputs, state, 1)
    shapes = [part.shape for part in jax.tree.leaves(state) if hasattr(part, "shape")]
    return [prefilled, shapes, program(step, pack.inputs, state)]


ONLINE: dict[str, OnlineSettings] = {
    "step": StepTrain(envs=4, batch=4, window=3, prefill_agent_steps=16, updates_per_agent_step=0.25),
    "epoch": EpochTrain(envs=4, batch=4, window=3, batches=2, prefill_agent_steps=16, replay_agent_steps=None),
}
# Read by packs of their own: those that start from a world model of another run, or train one before the first epoch.
OTHER_PACKS = ("fine_tune", "bootstrap_updates")
# Changes another program than that of an epoch.
BEFORE_EPOCHS = ("prefill_actions",)
LOOP = [path for path, _ in fields_of(LoopSettings) if path not in ("batch", "window")]


def pack_settings() -> Iterator[tuple[str, str]]:
    """Kind and name of the settings that a pack reads."""
    for kind, train in ONLINE.items():
        for path, _ in fields_of(type(train)):
            if path not in (*LOOP, *OTHER_PACKS, *BEFORE_EPOCHS) and not path.startswith("randomise."):
                yield kind, path


@pytest.mark.parametrize(("kind", "path"), list(pack_settings()))
def test_a_setting_of_a_pack_changes_its_program(kind: str, path: str) -> None:
    assert of_pack(ONLINE[kind]) != of_pack(changed(ONLINE[kind], path))


def test_a_pretrained_model_is_frozen_unless_it_is_fine_tuned() -> None:
    def programs(train: EpochTrain) -> list[Any]:
        pack = PretrainedPack(IdleAgent(), registry.make(TASK), train, [0], {}, AGENT_STEPS)  # type: ignore[arg-type]
        return program(pack._epoch, pack.inputs, eqx.filter_eval_shape(pack._init, pack.inputs))

    train = ONLINE["epoch"]
    assert isinstance(train, EpochTrain)
    assert programs(train) != programs(changed(train, "fine_tune"))


def test_the_initial_policy_can_act_before_the_first_epoch() -> None:
    def prefill(train: OnlineSettings) -> list[Any]:
        pack = idle_pack(train, TASK, {})
        state = eqx.filter_eval_shape(pack._init, pack.inputs)
        return program(lambda inputs, state: pack._prefill(inputs, state, 2), pack.inputs, state)

    random, policy = (prefill(train) for train in (ONLINE["epoch"], changed(ONLINE["epoch"], "prefill_actions")))
    assert random != policy
    drawn = [operation for operation in policy if operation[0] == "random_bits"]
    assert len(drawn) < len([operation for operation in random if operation[0] == "random_bits"])


def test_a_bootstrap_is_as_many_model_updates_as_the_setting_says() -> None:
    train = ONLINE["epoch"].model_copy(update={"bootstrap_updates": 6})
    assert isinstance(train, EpochTrain)
    pack = BootstrappedPack(IdleAgent(), registry.make(TASK), train, [0], {}, AGENT_STEPS)  # type: ignore[arg-type]
    pack.prefill = lambda state, env_steps: (state, {})  # type: ignore[method-assign]
    calls: list[int] = []
    pack._compiled_bootstrap = lambda inputs, state, index: (calls.append(int(index)), state)[1]
    pack.prepare(eqx.filter_eval_shape(pack._init, pack.inputs))
    assert calls == [0, 1, 2]  # of two batches each
    with pytest.raises(ValueError, match="bootstrap_updates 5 is not a multiple of batches, 2"):
        EpochTrain.model_validate(train.model_dump() | {"bootstrap_updates": 5})


def test_a_cell_needs_the_world_model_that_it_starts_from() -> None:
    cell = PwmCell.model_validate({"data": {"world_model": "results/before/runs/mlp-seed0"}})
    assert cell.needed_paths == ("results/before/runs/mlp-seed0",)
    assert PwmCell().needed_paths == ()


def test_randomised_physics_depends_on_every_setting_of_it() -> None:
    pack = idle_pack(ONLINE["step"], "SafetyPointGoal1", traced_values(ONLINE["step"]))
    assert set(pack.inputs.scalars["randomise"]) == set(Randomise.model_fields)
    jaxpr = jax.make_jaxpr(lambda inputs: jax.tree.leaves(pack._params(inputs, jnp.zeros((), jnp.int32))))(pack.inputs)
    assert all(used_inputs(jaxpr.jaxpr))


# The loop.


class ScriptedPack(Pack):
    """Steps that are not computed; the return of validations falls early, and every other one costs much."""

    chunks: list[int]
    validated: list[int]

    def prepare(self, state: PackState) -> PackState:
        return state

    def chunk(self, state: PackState, env_steps: int) -> tuple[PackState, dict[str, Any]]:
        self.chunks.append(env_steps)
        return state._replace(env_steps=state.env_steps + env_steps), {"loss": np.zeros((1, 1))}

    def validate(self, agent: Any, episodes: int) -> tuple[Episodes, Any]:
        returns = 10.0 if len(self.validated) < 2 else 1.0
        cost = 5.2 * (len(self.validated) % 2 == 0)
        self.validated.append(episodes)
        one = np.ones((1, 1))
        return Episodes(returns * one, cost * one, one, one, {}, one[None], None), agent


@pytest.fixture(scope="module")
def scripted() -> ScriptedPack:
    """A pack whose first state is computed once."""
    train = CELL_SETTINGS["dreamer"].model_validate(tiny_settings()).train
    assert isinstance(train, OnlineSettings)
    pack = ScriptedPack(IdleAgent(), registry.make(TASK), train, [0], {}, AGENT_STEPS)  # type: ignore[arg-type]
    first = pack.init()
    pack.init = lambda: first  # type: ignore[method-assign]
    return pack


EVERY: dict[str, Any] = {
    "chunk_agent_steps": 4,
    "log_every_agent_steps": 8,
    "evaluate_every_agent_steps": 8,
    "validation_episodes": 2,
    "keep_checkpoints": 2,
    "feasible_cost": 5.5,
    "collapse": {"fraction": 0.3, "evaluations": 2, "rollbacks": 1},
}


def recorded(place: Path, pack: ScriptedPack, train: dict[str, Any]) -> list[Any]:
    """What a run of the loop does and writes."""
    pack.chunks, pack.validated = [], []
    settings = merged(tiny_settings(), {"train": train})
    given = RunSettings(study="s", arm="a", seed=0, task=TASK, agent_steps=AGENT_STEPS, settings=settings)
    run = RunFolder(place)
    run.root.mkdir()
    write_json(run.settings, given.model_dump(mode="json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_make_pack", lambda runs, cells: pack)
        patch.setattr(loop, "StopFlag", lambda: type("Never", (), {"requested": False}))
        loop.train([run])
    rows = [row["agent_steps"] for row in read_rows(run.metrics)]
    saved = sorted(path.name for path in run.checkpoints.iterdir())
    return [pack.chunks, pack.validated, rows, saved, read_json(run.selected), read_rows(run.collapses)]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, scripted: ScriptedPack) -> list[Any]:
    """A run without a change."""
    return recorded(tmp_path_factory.mktemp("loop") / "run", scripted, EVERY)


@pytest.mark.parametrize("path", LOOP)
def test_a_setting_of_the_loop_changes_what_a_run_records(
    path: str, tmp_path: Path, scripted: ScriptedPack, before: list[Any]
) -> None:
    train = StepTrain.model_validate(merged(tiny_settings()["train"], EVERY))
    after = recorded(tmp_path / "run", scripted, merged(EVERY, nested(path, other_value(path, train))))
    assert before != after


# Offline cells.


def offline_pack(place: Path, train: dict[str, Any], data: RecordedData | None = None) -> OfflinePack:
    """A pack of the idle agent that learns from short episodes."""
    file = place / "recorded.npz"
    shape, none = (20, 6), np.zeros(20, int)
    write_recording(file, Recording(np.ones((*shape, 2)), np.ones((*shape, 1)), np.ones(shape), none, none + 6, none))
    data = data or RecordedData(files=(str(file),), tasks=(TASK,), observation_size=2, action_size=1)
    cell = PwmOfflineCell.model_validate({"train": train, "data": data.model_dump()})
    cell = cell.model_copy(update={"data": data})
    return make_offline_pack(IdleAgent(), registry.make(TASK), cell, [0], {}, AGENT_STEPS)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["batch", "window", *(OfflineTrain.model_fields.keys() - LoopSettings.model_fields)])
def test_a_setting_of_an_offline_pack_changes_its_program(path: str, tmp_path: Path) -> None:
    train = OfflineTrain(batch=4, window=3)

    def programs(settings: OfflineTrain) -> list[Any]:
        pack = offline_pack(tmp_path, settings.model_dump())
        state = pack.init()
        return [program(each, pack.inputs, state) for each in (pack._model_update, pack._behavior_update)]

    assert programs(train) != programs(changed(train, path))


def test_every_setting_of_recorded_data_is_read(tmp_path: Path) -> None:
    read: set[str] = set()

    class Watched(RecordedData):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    sizes = {"observation_size": 2, "action_size": 1, "device_episodes": 16}
    data = Watched(files=(str(tmp_path / "recorded.npz"),), tasks=(TASK,), world_model=None, **sizes)
    values = data.model_dump()
    read.clear()
    pack = offline_pack(tmp_path, {"batch": 4, "window": 3}, data)
    pack.prepare(pack.init())
    registry.spec_for(TASK, PwmOfflineCell.model_validate({"data": values}).model_copy(update={"data": data}))
    assert pack.stream is not None
    pack.stream.at(0)
    assert read >= set(values)


def test_every_setting_of_a_cell_is_covered() -> None:
    """A new part of a cell, or of the training settings, needs a test here."""
    assert {name for cell in CELL_SETTINGS.values() for name in cell.model_fields} == {
        "env",
        "agent",
        "train",
        "data",
        "recipe",
    }
    kinds = {cell.model_fields["train"].annotation for cell in CELL_SETTINGS.values()}
    assert kinds == {StepTrain, EpochTrain, OfflineTrain}

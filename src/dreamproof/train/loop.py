"""THE loop: prepare, then chunks of (act, step, update); log, evaluate and save by agent steps. It names no agent."""

import math
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.registry import make_agent
from dreamproof.base.errors import BadInput
from dreamproof.base.files import read_json, write_json
from dreamproof.envs.api import Env
from dreamproof.envs.episodes import Episodes
from dreamproof.envs.registry import make_for, spec_for
from dreamproof.jaxcore.ahead import can_compile_ahead
from dreamproof.jaxcore.compile_events import announce_compiles
from dreamproof.jaxcore.devices import give_back_memory, memory_in_use
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.pulse import Pulse
from dreamproof.runs.reader import read_checkpoint, read_settings, selected_agent_steps
from dreamproof.runs.records import CollapseRecord, RunSettings
from dreamproof.runs.resolved import read_resolved
from dreamproof.runs.sources import different_sources, sources_beside
from dreamproof.runs.writer import RunWriter
from dreamproof.settings.cell import CELL_SETTINGS, CellSettings, PwmCell
from dreamproof.settings.resolved import resolved_changes, resolved_hash
from dreamproof.settings.strict import validate
from dreamproof.settings.traced import static_key, traced_values
from dreamproof.settings.train import EpochTrain, OfflineTrain, OnlineSettings, StepTrain
from dreamproof.train.bootstrapped_pack import BootstrappedPack
from dreamproof.train.collapse import find_collapse, past_collapses, summarise, validation_curve
from dreamproof.train.guard import Frozen, StopFlag
from dreamproof.train.log import MetricSums, progress_bar
from dreamproof.train.offline_pack import make_offline_pack
from dreamproof.train.pack import Pack, PackState, TrainingPack
from dreamproof.train.pretrained_pack import PretrainedPack
from dreamproof.train.saving import (
    checkpoint_facts,
    resolved_run,
    restore,
    running_code,
    save_cell,
    shared_checkpoints,
    template,
    with_agent_from,
)
from dreamproof.train.world_models import WantedModel


@dataclass
class TrainingJob:
    """Several cells of equal shapes, trained together.

    settled: the trained fraction of each cell before which no checkpoint is selected.
    """

    runs: list[RunSettings]
    writers: list[RunWriter]
    cell: CellSettings
    pack: TrainingPack
    frozen: Frozen
    sums: MetricSums
    settled: list[float]

    @property
    def names(self) -> list[str]:
        return [f"{run.arm}/{run.seed}" for run in self.runs]

    @property
    def agent_steps(self) -> int:
        return self.runs[0].agent_steps


def read_job(folders: list[RunFolder], micro_batches: int = 1) -> TrainingJob:
    """The job of these run folders; refuses cells that cannot share one compile."""
    runs = [_settings(folder) for folder in folders]
    cells = [
        validate(CELL_SETTINGS[run.trainer], run.settings, f"{folder.settings} (settings)").with_micro_batches(
            micro_batches
        )
        for run, folder in zip(runs, folders, strict=True)
    ]
    for run, cell in zip(runs[1:], cells[1:], strict=True):
        same = (run.task, run.agent_steps, run.trainer) == (runs[0].task, runs[0].agent_steps, runs[0].trainer)
        if not same or static_key(cell) != static_key(cells[0]):
            raise BadInput(
                f"{run.arm}/{run.seed} cannot train in one pack with {runs[0].arm}/{runs[0].seed}: "
                "task, steps or a static setting differs",
                "set pack_cells: 1 in the study, or make the arms differ in traced settings only",
            )
    for run, folder in zip(runs, folders, strict=True):
        _check_resolved(run, folder)
    pack = _make_pack(runs, cells)
    writers = [RunWriter(folder) for folder in folders]
    settled = [cell.settled_fraction for cell in cells]
    return TrainingJob(runs, writers, cells[0], pack, Frozen(len(runs)), MetricSums(len(runs)), settled)


def _make_pack(runs: list[RunSettings], cells: list[CellSettings]) -> TrainingPack:
    """The pack of cells that share everything but seeds and traced settings."""
    cell, steps, seeds = cells[0], runs[0].agent_steps, [run.seed for run in runs]
    spec = spec_for(runs[0].task, cell)
    env = None if spec.policies else make_for(runs[0].task, cell)
    # Every arm's agent is built: settings that a task does not support are refused for all arms, not only the first.
    agent, *_ = [make_agent(each.agent_name, spec, each.agent) for each in cells]
    rows = [traced_values(each.agent) | _randomised(cells, each, env) for each in cells]
    scalars = jax.tree.map(lambda *values: jnp.asarray(values, jnp.float32), *rows)
    if isinstance(cell.train, OfflineTrain):
        return make_offline_pack(agent, env, cell, seeds, scalars, steps)
    assert isinstance(cell.train, OnlineSettings) and env is not None
    if isinstance(cell, PwmCell):
        _check_episodes(cell.train, env)
        if cell.data.world_model is not None:
            pack = PretrainedPack(agent, env, cell.train, seeds, scalars, steps)
            pack.source = cell.data.world_model
            pack.wanted = [_wanted_model(runs[0].task, each, env) for each in cells if isinstance(each, PwmCell)]
            return pack
        if cell.train.bootstrap_updates:
            return BootstrappedPack(agent, env, cell.train, seeds, scalars, steps)
    return Pack(agent, env, cell.train, seeds, scalars, steps)


def _wanted_model(task: str, cell: PwmCell, env: Env) -> WantedModel:
    terminates = env.spec.terminates and cell.agent.world_model.termination_scale > 0 and not cell.train.fine_tune
    return WantedModel((task,), cell.agent, cell.env, terminates)


def _check_episodes(train: EpochTrain, env: Env) -> None:
    """Refuses to draw windows from finished episodes if there can be none before the first epoch."""
    length, spec = env.spec.episode_agent_steps, env.spec
    if train.replay_sampling == "transitions":
        return
    if train.window > length + 1:
        raise BadInput(
            f"train.window {train.window}: an episode of '{spec.name}' has {length + 1} rows at most, and "
            "replay_sampling: trajectories needs a whole window in one",
            f"set train.window to at most {length + 1}",
        )
    ends_early = spec.terminates or train.staggered
    if not ends_early and train.prefill_agent_steps <= train.envs * length:
        raise BadInput(
            f"train.prefill_agent_steps {train.prefill_agent_steps}: no episode of '{spec.name}' ends before the first "
            "epoch, and replay_sampling: trajectories needs one",
            f"set train.prefill_agent_steps to {train.envs * (length + 1)} or more",
        )


def _randomised(cells: list[CellSettings], cell: CellSettings, env: Env | None) -> dict[str, Any]:
    """The domain randomisation of a cell; empty if no cell of its pack uses it."""
    if env is None or not any(isinstance(each.train, StepTrain) and each.train.randomise.is_on for each in cells):
        return {}
    if not env.varies or env.spec.terminates:
        raise BadInput(
            f"the task '{env.spec.name}' does not support randomisation: "
            f"{'its episodes do not end together' if env.varies else 'it has no physics to vary'}",
            "remove train.randomise from the study file",
        )
    return traced_values(cell.train)


def _check_resolved(run: RunSettings, folder: RunFolder) -> None:
    """Refuses to train if the resolved settings differ from resolved.json."""
    running_code(run.task)  # hashed now: files may change while the process runs
    recorded, own = read_resolved(folder), resolved_run(run)
    if recorded is not None and recorded.hash != resolved_hash(own):
        changes = "\n    ".join(resolved_changes(recorded.resolved, own)[:8])
        raise BadInput(
            f"{folder.resolved}: this version resolves the settings differently:\n    {changes}",
            "install the version that started the run, or dreamproof run STUDY --accept-changes",
        )


def _settings(folder: RunFolder) -> RunSettings:
    found = read_settings(folder)
    if found is None:
        raise BadInput(f"{folder.settings}: missing or not readable", "dreamproof run STUDY")
    if found.trainer not in CELL_SETTINGS:
        raise BadInput(f"{folder.settings}: there is no trainer '{found.trainer}'", "dreamproof schema")
    return found


def train(folders: list[RunFolder], micro_batches: int = 1) -> bool:
    """Trains to the last step, resuming from the newest shared checkpoints; False if it was stopped early."""
    stop = StopFlag()
    job = read_job(folders, micro_batches)
    pulse = Pulse(job.writers)
    with pulse, announce_compiles(pulse.set_compiling, pulse.count_compile), progress_bar() as bar:
        task = bar.add_task(_title(job), total=job.agent_steps, facts="compiling")
        pulse.set("compile", 0, 0)
        state = start(job)
        envs = job.pack.envs
        done = int(state.env_steps) * envs
        _record_frozen(job, state, done)
        chunk = chunk_env_steps(job, done)
        while done < job.agent_steps and not stop.requested and not job.frozen.all:
            began = time.monotonic()
            steps = min(chunk, -(-(job.agent_steps - done) // envs), _until_due(job, done) // envs)
            state, metrics = job.pack.chunk(state, steps)
            metrics = jax.device_get(metrics)
            stop.has_progress = True
            before, done = done, int(state.env_steps) * envs
            rate = (done - before) / (time.monotonic() - began)
            _record_frozen(job, state, done)
            job.sums.add(metrics)
            pulse.set("train", done, int(state.agent.gradient_steps.max()), rate)
            bar.update(task, completed=done, facts=f"{rate * len(job.runs):,.0f} steps/s")
            state = _at_cadence(job, state, (before, done), pulse)
        # After a stop request no checkpoint is selected: the selection would depend on the time of the request.
        _save(job, state, done, pulse, is_candidate=done >= job.agent_steps)
        pulse.set("done" if done >= job.agent_steps else "save", done, int(state.agent.gradient_steps.max()))
    return done >= job.agent_steps


def chunk_env_steps(job: TrainingJob, done: int) -> int:
    """Env steps of one call of the compiled program, in a run that continues at `done` agent steps."""
    settings, envs = job.cell.train, job.pack.envs
    marks = (done, job.agent_steps, settings.evaluate_every_agent_steps)
    return even_chunk(settings.chunk_agent_steps // envs, envs, marks)


def even_chunk(limit: int, envs: int, marks: tuple[int, ...]) -> int:
    """Env steps of a chunk, at most `limit`, that lead from mark to mark (agent steps) without a shorter last chunk.

    Every length of a chunk is a compile of its own, and on a GPU that takes minutes. Where only chunks below a quarter
    of the limit are even, the limit is used.
    """
    whole = math.gcd(*marks)
    lengths = (steps for steps in range(max(1, limit), max(1, limit) // 4, -1) if whole % (steps * envs) == 0)
    return next(lengths, max(1, limit))


def start(job: TrainingJob) -> PackState:
    """The state from disk, or a fresh one prepared for the first update."""
    folders = shared_checkpoints(job.writers)
    if folders is None:
        compile_ahead(job, job.pack.prefilled_agent_steps)
        state = job.pack.prepare(job.pack.init())
        check_same_sources(job)
        return state
    for record in map(read_checkpoint, folders):
        assert record is not None
        job.pack.check_sources(record.sources)
    check_same_sources(job)
    compile_ahead(job, folders[0].agent_steps)
    return restore(job.pack, folders)


def compile_ahead(job: TrainingJob, done: int) -> None:
    """Begins to compile the programs of training and validation; `done` agent steps are trained."""
    if done < job.agent_steps and can_compile_ahead():
        first, chunk = done // job.pack.envs, chunk_env_steps(job, done)
        job.pack.compile_ahead(template(job.pack), first, chunk, job.cell.train.validation_episodes)


def check_same_sources(job: TrainingJob) -> None:
    """Refuses cells that learn from other episodes, or start with another world model, than the rest of their arm."""
    own = {Cell(run.arm, run.seed): job.pack.sources for run in job.runs}
    beside = sources_beside(job.writers[0].run) if job.pack.sources else {}
    others = {cell: sources for cell, sources in beside.items() if cell not in own}
    for other in different_sources(others | own):
        if other.second in own:
            raise BadInput(
                f"{other.name}: is not what {other.first} of this study started with (its hash differs), so their "
                "results are not comparable",
                "restore it, name the checkpoint that the others started with, or use another study folder",
            )


def _record_frozen(job: TrainingJob, state: PackState, done: int) -> None:
    job.frozen.record(np.asarray(state.agent.finite), job.writers, done, np.asarray(state.agent.gradient_steps))


def _title(job: TrainingJob) -> str:
    return job.names[0] if len(job.names) == 1 else f"{len(job.names)} cells"


def _until_due(job: TrainingJob, done: int) -> int:
    """Agent steps to the next evaluation, at least one step of every env."""
    every = job.cell.train.evaluate_every_agent_steps
    return max(job.pack.envs, every - done % every)


def _at_cadence(job: TrainingJob, state: PackState, span: tuple[int, int], pulse: Pulse) -> PackState:
    """Logs, evaluates and saves what is due in the agent steps after span[0] up to span[1]."""
    settings, done = job.cell.train, span[1]
    updates = np.asarray(state.agent.gradient_steps)
    if _is_due(span, settings.log_every_agent_steps):
        give_back_memory()
        memory = memory_in_use()
        for writer, row, count in zip(job.writers, job.sums.take(), updates, strict=True):
            writer.log({"agent_steps": done, "gradient_steps": int(count), **row, **memory})
    if _is_due(span, settings.evaluate_every_agent_steps) and done < job.agent_steps:
        return _save(job, state, done, pulse)
    return state


def _is_due(span: tuple[int, int], every: int) -> bool:
    return span[1] // every > span[0] // every


def _save(job: TrainingJob, state: PackState, done: int, pulse: Pulse, is_candidate: bool = True) -> PackState:
    """Validates and calibrates every replica, saves its checkpoint, and selects the best candidate.

    Returns the state, with the networks of collapsed replicas rolled back.
    """
    updates = np.asarray(state.agent.gradient_steps)
    if not job.writers[0].run.checkpoint_folders():
        check_same_sources(job)  # others may have started at the same time and saved since
    pulse.set("evaluate", done, int(updates.max()))
    episodes, calibrated = job.pack.validate(state.agent, job.cell.train.validation_episodes)
    state = state._replace(agent=calibrated) if is_candidate else state
    played = {} if episodes is None else _validation(episodes)
    means = {name: np.asarray(values).mean(1) for name, values in played.items()}
    pulse.set("save", done, int(updates.max()))
    for index, writer in enumerate(job.writers):
        row = {f"validation/{name}": float(value[index]) for name, value in means.items()}
        if row:
            writer.log({"agent_steps": done, "gradient_steps": int(updates[index]), **row})
        if row and is_candidate:
            # Before the checkpoint is saved: a run killed in between repeats this step.
            if done >= job.settled[index] * job.agent_steps:
                _select(writer, done, row, job.cell.train.feasible_cost)
            state = _handle_collapse(job, state, index, done)
        facts = checkpoint_facts(job.runs[index], done, int(updates[index]), job.names)
        facts |= {"frozen": index in job.frozen.replicas, **job.pack.facts}
        save_cell(writer, state, index, facts)
        chosen = selected_agent_steps(writer.run)
        writer.keep_newest(job.cell.train.keep_checkpoints, set() if chosen is None else {chosen})
        curve = validation_curve(writer.run, done)
        if curve:
            writer.write_summary(summarise(curve, past_collapses(writer.run, done + 1)))
    return state


def _handle_collapse(job: TrainingJob, state: PackState, index: int, done: int) -> PackState:
    """Records a collapse of one replica and rolls it back, while rollbacks and training steps are left."""
    writer, settings = job.writers[index], job.cell.train.collapse
    curve, past = validation_curve(writer.run, done), past_collapses(writer.run, done)
    best = find_collapse(curve, past, settings)
    if best is None or index in job.frozen.replicas:
        return state
    used = sum(record.rolled_back_to is not None for record in past)
    chosen = selected_agent_steps(writer.run)
    chosen = best if chosen is None else chosen
    if not writer.run.checkpoint(chosen).root.is_dir():
        target, outcome = None, "not rolled back: nothing is selected yet and the best checkpoint is no longer kept"
    elif done >= job.agent_steps:
        target, outcome = None, "not rolled back: training is over"
    elif used >= settings.rollbacks:
        target, outcome = None, f"not rolled back: all {settings.rollbacks} rollbacks are used"
    else:
        target, outcome = chosen, f"rolled back to step {chosen}"
    record = CollapseRecord(
        agent_steps=done,
        gradient_steps=int(state.agent.gradient_steps[index]),
        validation_return=curve[done],
        best_return=curve[best],
        best_agent_steps=best,
        rolled_back_to=target,
        reason=f"{settings.evaluations} consecutive validations below {settings.fraction:g} of the best; {outcome}",
    )
    if len(past_collapses(writer.run, done + 1)) == len(past):
        writer.record_collapse(record)
    return state if target is None else with_agent_from(state, index, writer.run.checkpoint(target))


def _validation(episodes: Episodes) -> dict[str, Array]:
    counted = {"return": episodes.returns, "cost": episodes.costs, "goals": episodes.goals}
    forward = {name: value for name, value in episodes.metrics.items() if name.startswith("forward/")}
    return counted | {"length": episodes.lengths} | forward


def _select(writer: RunWriter, agent_steps: int, row: dict[str, float], feasible_cost: float) -> None:
    """Selects the checkpoint with the best validation: feasible ones by return, otherwise the lowest cost."""
    now = {"agent_steps": agent_steps, "return": row["validation/return"], "cost": row["validation/cost"]}

    def merit(entry: dict[str, float]) -> tuple[bool, float]:
        feasible = entry["cost"] <= feasible_cost
        return (feasible, entry["return"] if feasible else -entry["cost"])

    before = read_json(writer.run.selected)
    best = now if before is None or merit(now) > merit(before) else before
    write_json(writer.run.selected, best)

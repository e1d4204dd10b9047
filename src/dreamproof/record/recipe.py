"""Makes a whole data set by a recipe: chunks as TD-MPC2's, and a card that says what is in them.

One program per task plays all its policies and random actions at the same time, because a GPU takes about as long for a
few episodes as for many; programs of later tasks compile meanwhile.
"""

import glob
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.base.commit import code_name
from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import file_hash, text_hash, write_json, write_text
from dreamproof.base.text import nearest_word
from dreamproof.data.chunk_writer import write_chunk
from dreamproof.data.recordings import Recording, TaskInfo, check_new, check_output, set_info, write_recording
from dreamproof.evaluate.loading import Loaded
from dreamproof.evaluate.policy_file import read_policy
from dreamproof.jaxcore.devices import COMPILE_THREADS, library_versions
from dreamproof.jaxcore.keys import layout_keys, noise_keys, step_key
from dreamproof.jaxcore.types import TimeStep
from dreamproof.record.episodes import Rollout, blank, make_rollout, write_into
from dreamproof.record.policies import RecordingPolicy
from dreamproof.runs.records import RunSettings
from dreamproof.settings.recipe import Recipe
from dreamproof.settings.resolved import Resolved, resolved_changes, under_current_names

RANDOM = "random"
HOW_TO_EXPORT = "dreamproof export STUDY FOLDER --policies, with train.keep_checkpoints as many as there are levels"
WRITERS = {".pt": write_chunk, ".npz": write_recording}
"""A chunk of TD-MPC2 has no room for episodes of different lengths; an .npz has."""


@dataclass(frozen=True)
class Level:
    """One policy of one task: its name in the card, its file, and how many episodes it plays in each chunk.

    At a share of its steps, `random_share`, a random action replaces that of the policy.
    """

    name: str
    file: Path | None
    episodes: int
    random_share: float


@dataclass(frozen=True)
class TaskPlan:
    """One task with all that play it; the policies share one agent, so they share one program."""

    task: str
    levels: tuple[Level, ...]
    policy: RecordingPolicy
    states: tuple[Any, ...]

    @property
    def batch(self) -> int:
        """Episodes of one batch: the most that divide the episodes of every level."""
        return math.gcd(*(level.episodes for level in self.levels))

    @property
    def batches(self) -> list[int]:
        """The level of every batch of a chunk."""
        return [number for number, level in enumerate(self.levels) for _ in range(level.episodes // self.batch)]


def make_data(recipe: Recipe, folder: Path, output: Path, report: Callable[[str], None]) -> list[Path]:
    """Records all chunks and writes them with their card; `folder` is where the recipe lies."""
    paths = [output.with_name(f"{output.stem}_{chunk}{output.suffix}") for chunk in range(recipe.chunks)]
    cards = [output.with_suffix(suffix) for suffix in (".json", ".md")]
    for path in (output, *paths):
        check_output(path, tuple(WRITERS))
    for path in cards:
        check_output(path, (path.suffix,))
    for path in (*paths, *cards):
        check_new(path)
    plans = [plan_task(recipe, task, folder / recipe.policies) for task in recipe.tasks]
    specs = [plan.policy.own_spec for plan in plans]
    info = TaskInfo(
        recipe.tasks, tuple(spec.observation_size for spec in specs), tuple(spec.action_size for spec in specs)
    )
    rows = 1 + max(spec.episode_agent_steps for spec in specs)
    if output.suffix == ".pt":
        _check_numbers(recipe.tasks, set_info(rows))
    share = sum(level.episodes for level in plans[0].levels)
    parts = [blank(share * len(plans), rows, info) for _ in range(recipe.chunks)]
    seeds = [recipe.seed * recipe.chunks + chunk for chunk in range(recipe.chunks)]
    found: dict[str, dict[str, list[float]]] = {}
    report(
        f"{len(plans)} tasks, {share * recipe.chunks:,} episodes each; compiling up to {COMPILE_THREADS} at a time, "
        "minutes until the first one is done"
    )
    for number, (plan, play) in enumerate(compiled(plans, seeds)):
        found[plan.task] = returns = play_task(plan, play, number, seeds, parts)
        _check_finite(plan.task, returns)
        report(f"{plan.task}: " + ", ".join(f"{name} {np.mean(each):.0f}" for name, each in returns.items() if each))
    for path, made in zip(paths, parts, strict=True):
        WRITERS[output.suffix](path, made)
    return [*paths, *write_card(recipe, plans, found, paths, output)]


def open_levels(recipe: Recipe, task: str, folder: Path) -> list[tuple[Path, Loaded]]:
    """The policies of a task by their agent steps, one for each level; those that share no program are refused."""
    files = _policy_files(task, folder)
    opened = sorted(((path, read_policy(path)) for path in files), key=lambda each: each[1].record.agent_steps)
    for path, loaded in opened:
        if loaded.run.task != task:
            raise BadInput(
                f"{path}: was trained on '{loaded.run.task}', and its name says '{task}'",
                "name it by its task: TASK-seedN-stepK.npz",
            )
    seeds = sorted({loaded.run.seed for _, loaded in opened})
    if len(seeds) > 1:
        raise BadInput(
            f"{folder}: policies of '{task}' are of the seeds {', '.join(map(str, seeds))}, not of one",
            "move the files of the other seeds to another folder",
        )
    if len(files) != len(recipe.episodes):
        raise BadInput(
            f"{folder}: {len(files)} policy files of the task '{task}', the recipe has {len(recipe.episodes)} levels",
            HOW_TO_EXPORT,
        )
    for before, now in pairwise(opened):
        if before[1].record.agent_steps == now[1].record.agent_steps:
            raise BadInput(
                f"{now[0]} and {before[0].name} are both of {now[1].record.agent_steps:,} agent steps, so of one level",
                "move one of them to another folder",
            )
        _check_same_agent(opened[0], now)
    return opened


def _policy_files(task: str, folder: Path) -> list[Path]:
    """The policy files that are named after a task."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: there is no such folder of policies", HOW_TO_EXPORT)
    files = sorted(folder.glob(f"{glob.escape(task)}-seed*-step*.npz"))
    if not files:
        known = sorted({path.name.partition("-seed")[0] for path in folder.glob("*-seed*-step*.npz")})
        near = nearest_word(task, known)
        others = f"did you mean '{near}'?" if near else f"there are policies of {', '.join(known) or 'no task'}"
        raise BadInput(f"{folder}: no policy file of the task '{task}' (TASK-seedN-stepK.npz); {others}", HOW_TO_EXPORT)
    return files


def _check_same_agent(first: tuple[Path, Loaded], other: tuple[Path, Loaded]) -> None:
    """Refuses a policy that the program of the first one cannot play, or would play as another agent."""
    wanted, given = (_agent_settings(loaded.run) for _, loaded in (first, other))
    changes = resolved_changes(wanted, given)
    if changes:
        raise BadInput(
            f"{other[0]}: was trained with other settings than {first[0].name} ({', '.join(changes)}); all levels of a "
            "task are played by one program",
            "train them with the same agent settings",
        )


def _agent_settings(run: RunSettings) -> Resolved:
    """What shapes the program that plays a policy."""
    settings = under_current_names(run.trainer, run.settings)
    return {"trainer": run.trainer, "settings": {key: settings.get(key) for key in ("agent", "env")}}


def plan_task(recipe: Recipe, task: str, folder: Path) -> TaskPlan:
    """The levels of a task, from its policy files."""
    opened = open_levels(recipe, task, folder)
    files, loaded = [path for path, _ in opened], [each for _, each in opened]
    shares, counts = recipe.random_actions, (recipe.random_episodes, *recipe.episodes)
    if recipe.random_episodes % recipe.chunks or any(
        count % (recipe.chunks * len(shares)) for count in recipe.episodes
    ):
        raise BadInput(
            f"episodes {counts} cannot be split into {recipe.chunks} equal chunks and {len(shares)} equal parts of "
            "random_actions",
            "change chunks or episodes",
        )
    levels, states = [Level(RANDOM, None, recipe.random_episodes // recipe.chunks, 1.0)], [loaded[0].state]
    for file, each, count in zip(files, loaded, recipe.episodes, strict=True):
        for share in shares:
            name = f"step {each.record.agent_steps:,}{_with_random(share)}"
            levels.append(Level(name, file, count // (recipe.chunks * len(shares)), share))
            states.append(each.state)
    acting = ((state, jnp.asarray(level.random_share)) for state, level in zip(states, levels, strict=True))
    return TaskPlan(task, tuple(levels), mixed_policy(task, loaded[0]), tuple(acting))


def _with_random(share: float) -> str:
    return f", {share:.0%} random" if share else ""


def mixed_policy(task: str, run: Loaded) -> RecordingPolicy:
    """A policy whose state says at which share of its steps it acts at random."""
    scalars, size = run.scalars | {"latent_swaps": jnp.zeros(())}, run.env.spec.action_size

    def act(state: Any, memory: Any, seen: TimeStep, key: Array) -> tuple[Array, Any]:
        agent, random_share = state
        act_key, random_key, coin_key = jax.random.split(key, 3)
        decided = run.agent.act(agent, memory, seen, act_key, scalars, explore=True)
        drawn = jax.random.uniform(random_key, (seen.observation.shape[0], size), minval=-1.0)
        is_random = jax.random.uniform(coin_key, (seen.observation.shape[0], 1)) < random_share
        return jnp.where(is_random, drawn, decided.action), decided.memory

    return RecordingPolicy(task, task, run.env, act, (), run.agent.init_memory)


Play = Callable[[Any, tuple[Array, Array, Array]], Rollout]


def compiled(plans: list[TaskPlan], seeds: list[int]) -> Iterator[tuple[TaskPlan, Play]]:
    """The plans in their order with their compiled programs; some later ones compile meanwhile."""

    def make(plan: TaskPlan) -> Play:
        program: Any = eqx.filter_jit(eqx.filter_vmap(make_rollout(plan.policy, plan.batch)))
        play: Play = program.lower(*inputs_of(plan, 0, seeds)).compile()
        return play

    with ThreadPoolExecutor(COMPILE_THREADS) as pool:
        waiting: list[Future[Play]] = [pool.submit(make, plan) for plan in plans]
        for plan, future in zip(plans, waiting, strict=True):
            yield plan, future.result()


def inputs_of(plan: TaskPlan, task: int, seeds: list[int]) -> tuple[Any, tuple[Array, Array, Array]]:
    """States (B, ...) of all batches of all chunks, and their keys of layouts and noise (B, N) and of actions (B,).

    Every chunk has a seed.
    """
    levels = jnp.asarray(plan.batches * len(seeds))

    def stacked(*each: Any) -> Any:
        return jnp.stack(each)[levels] if eqx.is_array(each[0]) else each[0]

    def keys(make: Callable[..., Array]) -> Array:
        count = len(plan.batches) * plan.batch
        return jnp.concatenate([make(seed, "train", count, task) for seed in seeds]).reshape(len(levels), plan.batch)

    acting = [jax.random.split(step_key(seed, "record", task), len(plan.batches)) for seed in seeds]
    return jax.tree.map(stacked, *plan.states), (keys(layout_keys), keys(noise_keys), jnp.concatenate(acting))


def play_task(
    plan: TaskPlan, play: Play, task: int, seeds: list[int], parts: list[Recording]
) -> dict[str, list[float]]:
    """Writes the episodes of a task into all chunks, behind those of the tasks before it; returns theirs by level."""
    returns: dict[str, list[float]] = {level.name: [] for level in plan.levels}
    played = jax.device_get(play(*inputs_of(plan, task, seeds)))
    for number in range(len(plan.batches) * len(seeds)):
        chunk, batch = divmod(number, len(plan.batches))
        first = (task * len(plan.batches) + batch) * plan.batch
        own = slice(first, first + plan.batch)
        write_into(parts[chunk], own, Rollout(*(part[number] for part in played)), task)
        returns[plan.levels[plan.batches[batch]].name] += parts[chunk].reward[own].sum(1).tolist()
    return returns


def _check_numbers(tasks: tuple[str, ...], known: TaskInfo | None) -> None:
    """Refuses a chunk whose tasks would be read under other names: it has numbers only."""
    if known is not None and known.names != tuple(tasks):
        raise BadInput(
            f"a chunk of TD-MPC2 holds all {len(known.names)} tasks of its set, by their numbers, and this recipe has "
            f"{len(tasks)} tasks",
            "write --output FILE.npz, which holds the names",
        )


def _check_finite(task: str, returns: dict[str, list[float]]) -> None:
    """Refuses episodes in which the simulation diverged: nothing can be learned from them."""
    wrong = {name: int((~np.isfinite(values)).sum()) for name, values in returns.items()}
    if any(wrong.values()):
        counts = ", ".join(f"{count} of {name}" for name, count in wrong.items() if count)
        raise BrokenEvidence(
            f"the simulation of {task} gave values that are not finite in {counts}; nothing was written",
            "try the policies of this task: python -m dreamproof.evaluate POLICY.npz --conditions id",
        )


def write_card(
    recipe: Recipe, plans: list[TaskPlan], found: dict[str, dict[str, list[float]]], paths: list[Path], output: Path
) -> list[Path]:
    """The data card: what was recorded by what, as JSON and as a page."""
    share = recipe.episodes[-1] / (recipe.random_episodes + sum(recipe.episodes))
    card = {
        "recipe": recipe.model_dump(mode="json"),
        "recipe_hash": text_hash(json.dumps(recipe.model_dump(mode="json"), sort_keys=True)),
        "files": {path.name: file_hash(path) for path in paths},
        "policies": {
            level.file.name: file_hash(level.file) for plan in plans for level in plan.levels if level.file is not None
        },
        "share_of_the_last_level": share,
        "noise": "the exploration noise of each policy",
        "returns": {
            task: {name: _numbers(values) for name, values in levels.items()} for task, levels in found.items()
        },
        "code_commit": code_name(),
        "versions": library_versions(),
    }
    data, page = output.with_suffix(".json"), output.with_suffix(".md")
    write_json(data, card)
    write_text(page, _page(recipe, found, paths, share))
    return [data, page]


def _numbers(values: list[float]) -> dict[str, float]:
    return {"episodes": len(values), "mean": float(np.mean(values)), "best": float(np.max(values))} if values else {}


def _page(recipe: Recipe, found: dict[str, dict[str, list[float]]], paths: list[Path], share: float) -> str:
    """The card as Markdown: one row per task, mean return of each level, and the best episode."""
    levels = [
        RANDOM,
        *(
            f"level {number + 1}{_with_random(share)}"
            for number in range(len(recipe.episodes))
            for share in recipe.random_actions
        ),
    ]
    counts = ", ".join(map(str, recipe.episodes))
    text = (
        f"{len(paths)} chunks, seed {recipe.seed}. {recipe.random_episodes} episodes per task with random actions, "
        f"{counts} with policies of rising skill and their exploration noise; {share:.0%} of all episodes are of the "
        "last level. Mean returns:"
    )
    lines = [
        f"# Data set of {len(recipe.tasks)} tasks, version {recipe.version}",
        "",
        text,
        "",
        f"| task | {' | '.join(levels)} | best episode |",
        "|---|" + "---|" * (len(levels) + 1),
    ]
    for task, by_level in found.items():
        means = [f"{np.mean(values):.0f}" if values else "–" for values in by_level.values()]
        best = max(max(values) for values in by_level.values() if values)
        lines.append(f"| {task} | {' | '.join(means)} | {best:.0f} |")
    return "\n".join(lines) + "\n"

"""Evaluates many runs at once under named conditions; layouts are the same for every arm and seed."""

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import Calibrated, SeveralPolicies
from dreamproof.agents.certificate import certificate_pairs, certificate_scores, conformal_offset
from dreamproof.base.commit import code_name
from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Condition, Env
from dreamproof.envs.episodes import (
    Episodes,
    Policy,
    RolloutState,
    StepRows,
    begin_rollout,
    complete_episodes,
    continue_rollout,
    cost_names,
    episode_keys,
    finish_rollout,
    flatten_policy,
    repeat_keys,
    split_policies,
)
from dreamproof.envs.scripted import floors
from dreamproof.envs.shift import find_condition
from dreamproof.evaluate import certificate
from dreamproof.evaluate.drawing import as_trail, places_of_first
from dreamproof.evaluate.loading import Loaded
from dreamproof.jaxcore.ahead import Program, can_compile_ahead, compiling, stand_in
from dreamproof.jaxcore.devices import COMPILE_THREADS
from dreamproof.jaxcore.keys import Split, step_key
from dreamproof.jaxcore.types import TimeStep
from dreamproof.runs.records import DATA_FLOORS, RELATIVE_SCORE, EvaluatedCheckpoint, EvaluationRecord
from dreamproof.version import __version__

LAYOUT_SEED = 0
MAX_AGENTS = 20
CALIBRATION_ROUNDS = 2
PARTS = 10
WHICH = ("final", "selected")
CERTIFIED = "plan/certified"
"""Whether the executed plan of a decision was certified, for agents that plan."""
KEPT = ("shadow/", "risk_penalty", "forward/", "plan/margin", CERTIFIED)
"""Beginnings of the names of metrics that a record keeps."""
SIGNALS = ("shadow/uncertainty", "shadow/violation", "shadow/innovation")

Checkpoints = dict[str, Loaded]
Progress = Callable[[], None]


@Program
def _begin_rollout(fixed: tuple[Any, Env], shape: tuple[int, int], layout: Array, params: Any) -> RolloutState:
    agent, env = fixed
    memory = eqx.filter_vmap(lambda _: agent.init_memory(shape[1]))(jnp.zeros(shape[0]))
    return begin_rollout(env, memory, repeat_keys(layout, shape[0]), params)


@Program
def _continue_rollout(
    fixed: tuple[Any, Env],
    agents: tuple[Any, Any],
    rollout: RolloutState,
    noise_and_steps: tuple[Array, Array],
    params: Any,
) -> tuple[RolloutState, StepRows]:
    (agent, env), (noise, steps) = fixed, noise_and_steps
    shape = (jax.tree.leaves(agents)[0].shape[0], noise.shape[0])

    def trace(env_state: Any, seen: TimeStep, memory: Any) -> dict[str, Any]:
        traced = {"places": places_of_first(env, env_state, seen, params, shape[1])}
        return traced | ({"barrier": memory.barrier} if isinstance(agent, Calibrated) else {})

    policy = flatten_policy(_acting(agent, agents), shape)
    return continue_rollout(env, policy, rollout, (repeat_keys(noise, shape[0]), steps), params, trace)


def _acting(agent: Any, agents: tuple[Any, Any]) -> Policy:
    """A policy of R agents, given by their states and traced settings: leading axes (R, E)."""

    def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
        def act(state: Any, scalars: Any, memory: Any, seen: TimeStep) -> Any:
            return agent.act(state, memory, seen, step_key(LAYOUT_SEED, "evaluate", index), scalars, explore=False)

        return tuple(eqx.filter_vmap(act)(*agents, memory, seen))

    return policy


@eqx.filter_jit
def _with_floors(fixed: tuple[Any, Env], agents: tuple[Any, Any], keys: tuple[Array, Array], params: Any) -> Episodes:
    """Whole episodes of R agents, then of all F scripted policies (R + F, E), in one program: MuJoCo compiles long."""
    (agent, env), scripted = fixed, tuple(floors(fixed[1].spec).values())
    agents_count, episodes = jax.tree.leaves(agents)[0].shape[0], keys[0].shape[0]
    rows, count = agents_count * episodes, agents_count + len(scripted)
    acting = flatten_policy(_acting(agent, agents), (agents_count, episodes))

    def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
        action, memory, metrics = acting(memory, jax.tree.map(lambda part: part[:rows], seen), index)
        others = seen.observation[rows:].reshape(len(scripted), episodes, -1)
        key = step_key(LAYOUT_SEED, "floor", index)
        taken = [make(key, observation) for make, observation in zip(scripted, others, strict=True)]
        unused = jnp.zeros(len(scripted) * episodes)
        metrics = {name: jnp.concatenate([value, unused]) for name, value in metrics.items()}
        return jnp.concatenate([action, *taken]), memory, metrics

    def trace(env_state: Any, seen: TimeStep, memory: Any) -> dict[str, Any]:
        return {"places": places_of_first(env, env_state, seen, params, episodes)}

    memory = eqx.filter_vmap(lambda _: agent.init_memory(episodes))(jnp.zeros(agents_count))
    layout, noise = (repeat_keys(each, count) for each in keys)
    return split_policies(complete_episodes(env, policy, memory, (layout, noise), params, trace), (count, episodes))


def run_episodes(
    agents: list[Loaded], condition: Condition, split: Split, episodes: int, progress: Progress = lambda: None
) -> list[Episodes]:
    """Complete deterministic episodes of compatible agents under one condition, on the same layouts, in one batch.

    `progress` is called after every part of the episodes.
    """
    first = agents[0]
    assert all(each.agent is first.agent and each.env is first.env for each in agents), (
        "agents that cannot share a compile"
    )
    if condition.latent_swaps and "latent_swaps" not in first.scalars:
        raise BadInput(
            f"condition '{condition.name}' swaps latent groups, which the agent '{first.run.trainer}' does not support",
            "set latent_swaps: 0 in the settings of the condition",
        )
    params, stacked = condition.change(first.env.default_params()), _stacked(agents, condition)
    fixed, (layout, noise) = (first.agent, first.env), episode_keys(LAYOUT_SEED, split, episodes)
    shape = (len(agents), episodes)
    if can_compile_ahead():
        _compile_ahead(fixed, stacked, (layout, noise), params)
    rollout, parts = _begin_rollout(fixed, shape, layout, params), []
    for steps in parts_of(first.env.spec.episode_agent_steps):
        rollout, rows = _continue_rollout(fixed, stacked, rollout, (noise, steps), params)
        parts.append(jax.device_get(rows))
        progress()
    rows = jax.tree.map(lambda *pieces: np.concatenate(pieces), *parts)
    if CERTIFIED in rows.metrics:
        certified = rows.metrics[CERTIFIED]
        rows = rows._replace(trace=rows.trace | {"certified": certified.reshape(len(certified), *shape)})
    found = jax.device_get(split_policies(finish_rollout(first.env, rollout, rows), shape))
    return [_of_one(found, index) for index in range(len(agents))]


def _compile_ahead(fixed: tuple[Any, Env], agents: tuple[Any, Any], keys: tuple[Array, Array], params: Any) -> None:
    """Begins to compile the programs of `run_episodes`: on a GPU the longer one takes a minute."""
    (layout, noise), env = keys, fixed[1]
    given = fixed, (jax.tree.leaves(agents)[0].shape[0], len(layout)), layout, params
    if _begin_rollout.has_begun(*given):
        return
    with compiling() as pool:
        _begin_rollout.compile_ahead(pool, *given)
        rollout = jax.tree.map(stand_in, eqx.filter_eval_shape(_begin_rollout.function, *given))
        steps = parts_of(env.spec.episode_agent_steps)[0]
        _continue_rollout.compile_ahead(pool, fixed, agents, rollout, (noise, steps), params)


def _stacked(agents: list[Loaded], condition: Condition) -> tuple[Any, Any]:
    """States and traced settings of all agents, with a leading axis."""
    swaps = {"latent_swaps": jnp.asarray(float(condition.latent_swaps))}
    each = [(loaded.state, loaded.scalars | swaps) for loaded in agents]
    stacked: tuple[Any, Any] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    return stacked


def parts_of(agent_steps: int) -> list[Array]:
    """The steps of an episode in equal parts, which share one compile; a single part if PARTS does not divide them."""
    parts = PARTS if agent_steps % PARTS == 0 else 1
    return list(jnp.arange(agent_steps).reshape(parts, -1))


def _of_one(found: Episodes, index: int) -> Episodes:
    """Episodes of one of several agents; a trace has time as its first axis."""
    trace = jax.tree.map(lambda leaf: leaf[:, index], found.trace)
    return Episodes._make([*jax.tree.map(lambda leaf: leaf[index], found[:-1]), trace])


def evaluated(loaded: Loaded, episodes: Episodes, facts: dict[str, float]) -> EvaluatedCheckpoint:
    """One checkpoint's episodes as a record."""
    values = {
        "return": episodes.returns,
        "cost": episodes.costs,
        "goals": episodes.goals,
        "length": episodes.lengths,
    } | {
        name: value
        for name, value in episodes.metrics.items()
        if name.startswith(KEPT) or name in cost_names(loaded.env.spec)
    }
    return EvaluatedCheckpoint(
        agent_steps=loaded.record.agent_steps,
        gradient_steps=loaded.record.gradient_steps,
        parameter_hash=loaded.record.parameter_hash,
        episodes={name: [float(number) for number in value] for name, value in values.items()},
        scalars=facts,
    )


@functools.cache
def _floor(env: Env, name: str) -> Program:
    """Complete episodes of one scripted policy, compiled once for all conditions."""
    scripted = floors(env.spec)[name]

    def policy(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
        return scripted(step_key(LAYOUT_SEED, "floor", index), seen.observation), memory, {}

    return Program(lambda keys, params: complete_episodes(env, policy, None, keys, params))


def _compile_floors_ahead(env: Env, condition: Condition, episodes: int) -> None:
    given = episode_keys(LAYOUT_SEED, "test", episodes), condition.change(env.default_params())
    with compiling() as pool:
        for name in floors(env.spec):
            _floor(env, name).compile_ahead(pool, *given)


def floor_means(env: Env, condition: Condition, episodes: int) -> dict[str, dict[str, float]]:
    """Mean return, cost and goals of the scripted policies on the same layouts."""
    params = condition.change(env.default_params())
    found = {}
    for name in floors(env.spec):
        result = _floor(env, name)(episode_keys(LAYOUT_SEED, "test", episodes), params)
        found[name] = _means(result)
    return found


def _means(found: Episodes) -> dict[str, float]:
    values = {"return": found.returns, "cost": found.costs, "goals": found.goals}
    return {name: float(value.mean()) for name, value in values.items()}


class Evaluator:
    """Evaluates compatible runs together; calibration and nominal episodes are computed once and reused.

    runs: the checkpoints of each run by `final` and `selected`; declared: the study's conditions by name; progress:
    called after every part of the episodes; split: tuning uses validation layouts, never test layouts.
    """

    def __init__(
        self,
        runs: list[Checkpoints],
        declared: dict[str, dict[str, Any]],
        episodes: int,
        progress: Progress = lambda: None,
        split: Split = "test",
    ) -> None:
        self.runs, self.declared, self.episodes, self.progress, self.split = runs, declared, episodes, progress, split
        self._nominal: list[dict[str, Episodes]] = []
        self._tracing = threading.Lock()

    def evaluate_all(self, names: list[str]) -> Iterator[list[EvaluationRecord]]:
        """The records of every condition, in order; several tasks at the same time, because each is compiled."""
        if not isinstance(next(iter(self.runs[0].values())).agent, SeveralPolicies):
            for name in names:  # all of them are known before the first is played
                self._condition(name)
            yield from map(self.evaluate, names)
            return
        with ThreadPoolExecutor(COMPILE_THREADS) as pool:
            yield from pool.map(self._evaluate_task, names)

    def _condition(self, name: str) -> Condition:
        env = next(iter(self.runs[0].values())).env
        return find_condition(env, name, self.declared.get(name, {}).get("settings") or None)

    def evaluate(self, name: str) -> list[EvaluationRecord]:
        """The records of one condition, one for each run."""
        first = next(iter(self.runs[0].values()))
        if isinstance(first.agent, SeveralPolicies):
            return self._evaluate_task(name)
        condition = self._condition(name)
        if not self._nominal:
            if can_compile_ahead():
                _compile_floors_ahead(first.env, condition, self.episodes)
            self._calibrate(first)
        found = self._all_episodes(condition, self.split)
        facts = {
            "condition": name,
            "kind": self.declared.get(name, {}).get("kind") or condition.kind,
            "task": first.run.task,
            "floors": floor_means(first.env, condition, self.episodes),
            "has_cost": first.env.spec.has_cost,
            "code_version": __version__,
            "code_commit": code_name(),
        }
        return [self._record(*each, facts) for each in zip(self.runs, found, self._nominal, strict=True)]

    def _evaluate_task(self, name: str) -> list[EvaluationRecord]:
        """The records of one of several tasks: each run acts with its policy for that task."""
        runs = [each["final"].of_task(name) for each in self.runs]
        env, condition = runs[0].env, find_condition(runs[0].env, "id")
        keys = episode_keys(LAYOUT_SEED, self.split, self.episodes)
        params = condition.change(env.default_params())
        inputs = ((runs[0].agent, env), _stacked(runs, condition), keys, params)
        # Two programs traced at the same time may share parts or not: then other arms miss the compilation cache.
        play: Any = _with_floors
        with self._tracing:
            traced = play.lower(*inputs)
        played = jax.device_get(traced.compile()(*inputs))
        self.progress()
        found = [_of_one(played, index) for index in range(len(runs) + len(floors(env.spec)))]
        means = dict(zip(floors(env.spec), map(_means, found[len(runs) :]), strict=True))
        return [_of_task(*each, means, name) for each in zip(runs, found, strict=False)]

    def _calibrate(self, first: Loaded) -> None:
        """Calibrates on nominal episodes; again with the new offset, since it changes what an agent does.

        Policy files that bring the offset of an evaluation keep it.
        """
        is_done = all(loaded.is_calibrated for checkpoints in self.runs for loaded in checkpoints.values())
        for _ in range(CALIBRATION_ROUNDS if isinstance(first.agent, Calibrated) and not is_done else 1):
            self._nominal = self._nominal_episodes(first)
            self.runs = [_calibrated(*each) for each in zip(self.runs, self._nominal, strict=True)]

    def _nominal_episodes(self, first: Loaded) -> list[dict[str, Episodes]]:
        """Episodes without a shift on separate layouts, for calibration and for comparison with shifted ones.

        Empty for agents without a certificate.
        """
        if not isinstance(first.agent, Calibrated):
            return [{} for _ in self.runs]
        return self._all_episodes(find_condition(first.env, "id"), "calibration")

    def _all_episodes(self, condition: Condition, split: Split) -> list[dict[str, Episodes]]:
        """Episodes of every checkpoint of every run: first the final ones, then the selected ones."""
        made: list[dict[str, Episodes]] = [{} for _ in self.runs]
        wanted = [(index, which) for which in WHICH for index, found in enumerate(self.runs) if which in found]
        for batch in _batches(wanted, min(MAX_AGENTS, len(self.runs))):
            agents = [self.runs[index][which] for index, which in batch]
            played = run_episodes(agents, condition, split, self.episodes, self.progress)
            for (index, which), episodes in zip(batch, played, strict=True):
                made[index][which] = episodes
        return made

    def _record(
        self,
        checkpoints: Checkpoints,
        found: dict[str, Episodes],
        nominal: dict[str, Episodes],
        facts: dict[str, Any],
    ) -> EvaluationRecord:
        made = {
            which: evaluated(
                loaded, found[which], certificate_facts(loaded, found[which], nominal[which]) if nominal else {}
            )
            for which, loaded in checkpoints.items()
        }
        return EvaluationRecord(**facts, checkpoints=made, trail=as_trail(found["final"].trace["places"]))


@eqx.filter_jit
def _recalibrated(agent: Calibrated, state: Any, values: Array, margins: Array) -> Any:
    return agent.calibrate(state, values, margins)


def _calibrated(checkpoints: Checkpoints, nominal: dict[str, Episodes]) -> Checkpoints:
    """The checkpoints with a certificate offset calibrated on nominal episodes."""
    if not nominal:
        return checkpoints
    found = {}
    for which, loaded in checkpoints.items():
        assert isinstance(loaded.agent, Calibrated)
        if loaded.is_calibrated:
            found[which] = loaded
            continue
        played = nominal[which]
        state = _recalibrated(loaded.agent, loaded.state, jnp.asarray(played.trace["barrier"]), played.margins)
        found[which] = replace(loaded, state=state)
    return found


def certificate_facts(loaded: Loaded, episodes: Episodes, nominal: Episodes) -> dict[str, float]:
    """Coverage of the certificate on these episodes, and how well each signal detects them against nominal ones.

    Without enough nominal episodes for calibration there is no coverage.
    """
    agent = loaded.agent
    assert isinstance(agent, Calibrated)
    facts = {}
    if np.isfinite(conformal_offset(jnp.zeros(len(nominal.returns)), agent.miscoverage)):
        offset = float(agent.certificate_offset(loaded.state))
        barrier, margins = jnp.asarray(episodes.trace["barrier"]), jnp.asarray(episodes.margins)
        values, minimum = map(np.asarray, certificate_pairs(barrier, margins, agent.certificate_steps))
        scores = np.asarray(certificate_scores(barrier, margins, agent.certificate_steps))
        facts = {"offset": offset, "claimed": 1 - agent.miscoverage, "coverage": certificate.coverage(scores, offset)}
        facts = {
            f"certificate/{name}": value
            for name, value in (facts | certificate.certified_rates(values, minimum, offset)).items()
        }
        facts |= executed_facts(episodes, agent.certificate_steps)
    for signal in SIGNALS:
        if signal in episodes.metrics:
            area = certificate.auroc(*(np.asarray(each.metrics[signal]) for each in (nominal, episodes)))
            facts[f"auroc/{signal.removeprefix('shadow/')}"] = area
    return facts


def executed_facts(episodes: Episodes, steps: int) -> dict[str, float]:
    """How often the executed plan was certified, and how often the margin then fell below 0 within so many steps.

    Empty for agents that do not plan.
    """
    if "certified" not in episodes.trace:
        return {}
    margins = jnp.asarray(episodes.margins)
    is_certified, minimum = map(np.asarray, certificate_pairs(jnp.asarray(episodes.trace["certified"]), margins, steps))
    rates = certificate.certified_rates(is_certified, minimum, offset=1.0)
    return {f"certificate/executed_{name}": value for name, value in rates.items() if name != "violated"}


def _of_task(loaded: Loaded, found: Episodes, scripted: dict[str, dict[str, float]], task: str) -> EvaluationRecord:
    """The record of one task, with scores that can be compared between tasks."""
    made = _with_scores(evaluated(loaded, found, {}), loaded, task, scripted["random"]["return"])
    data = zip(DATA_FLOORS, ({"return": each} for each in loaded.record.data_returns[task]), strict=True)
    known, largest = scripted | dict(data), loaded.env.spec.max_return
    if largest is not None:
        known = {name: floor | {"score": floor["return"] / largest} for name, floor in known.items()}
    return EvaluationRecord(
        condition=task,
        kind="in_distribution",
        task=task,
        floors=known,
        has_cost=loaded.env.spec.has_cost,
        code_version=__version__,
        code_commit=code_name(),
        checkpoints={"final": made},
        trail=as_trail(found.trace["places"]),
    )


def _with_scores(made: EvaluatedCheckpoint, loaded: Loaded, task: str, random_return: float) -> EvaluatedCheckpoint:
    """`score`: return / largest possible return. `relative_score`: 0 for random actions, 1 for the data's best return.

    Without a known largest return, or where the data's best is no better than random, the score is left out.
    """
    returns, largest = np.asarray(made.episodes["return"]), loaded.env.spec.max_return
    mean, best = loaded.record.data_returns[task]
    scores = {} if largest is None else {"score": returns / largest}
    if best > random_return:
        scores[RELATIVE_SCORE] = (returns - random_return) / (best - random_return)
    return made.model_copy(
        update={
            "episodes": made.episodes | {name: values.tolist() for name, values in scores.items()},
            "scalars": made.scalars | {"data/mean_return": mean, "data/best_return": best},
        }
    )


def _batches(wanted: list[tuple[int, str]], most: int) -> list[list[tuple[int, str]]]:
    """Batches of one size, so that they share a compile; the last one is padded with its last agent."""
    count = -(-len(wanted) // most)
    size = -(-len(wanted) // count)
    cut = [wanted[start : start + size] for start in range(0, len(wanted), size)]
    return [batch + batch[-1:] * (size - len(batch)) for batch in cut]

"""A tiny learner that honours the run-folder contract without importing dreamproof (see docs/contract.md).

A cart on a line drives to a goal; somewhere on its way lies a zone in which speed above a limit costs. The policy is a
small network, trained by evolution strategies on reward minus price × cost; arms differ in how the price is set.

    python line_trainer.py RUN_DIR                        trains, or resumes from the newest checkpoint
    python line_trainer.py RUN_DIR --evaluate CONDITION   evaluates the final checkpoint
"""

import argparse
import faulthandler
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

EPISODE_STEPS = 60
HIDDEN = 8
INPUTS = 6
PARAMETERS = INPUTS * HIDDEN + HIDDEN + HIDDEN + 1
POPULATION = 24
EPISODES_PER_MEMBER = 4
STEPS_PER_UPDATE = POPULATION * EPISODES_PER_MEMBER * EPISODE_STEPS
SPEED_LIMIT = 0.3
DEFAULTS = {
    "price": 0.0,  # of one unit of cost, in units of reward
    "cost_limit": None,  # mean cost of an episode that the price is raised to keep, if set
    "price_rate": 0.02,
    "noise": 0.1,
    "learning_rate": 0.05,
    "save_every_agent_steps": 200_000,
    "log_every_agent_steps": 50_000,
}


def first_states(random, count):
    """Goals, zone centres, positions and speeds of `count` episodes; the zone lies between start and goal."""
    side = random.choice([-1.0, 1.0], count)
    goal = side * random.uniform(0.7, 1.0, count)
    zone = goal * random.uniform(0.4, 0.6, count)
    return goal, zone, np.zeros(count), np.zeros(count)


def act(parameters, inputs):
    """Force in [-1, 1] for inputs (members, episodes, 6); each member has its own row of parameters."""
    cut = INPUTS * HIDDEN
    first = parameters[:, :cut].reshape(-1, INPUTS, HIDDEN)
    hidden = np.tanh(inputs @ first + parameters[:, None, cut : cut + HIDDEN])
    last = parameters[:, cut + HIDDEN : cut + 2 * HIDDEN, None]
    return np.tanh((hidden @ last)[..., 0] + parameters[:, -1:])


def play(parameters, states, mass):
    """Return and cost of every episode, each (members, episodes)."""
    goal, zone, position, speed = (np.broadcast_to(part, (len(parameters), len(states[0]))).copy() for part in states)
    returns, costs = np.zeros_like(goal), np.zeros_like(goal)
    for _ in range(EPISODE_STEPS):
        to_goal, to_zone = goal - position, zone - position
        inputs = np.stack([to_goal, to_zone, speed, np.sign(goal), np.abs(to_zone), np.ones_like(goal)], axis=-1)
        force = act(parameters, inputs)
        speed = np.clip(0.9 * speed + 0.1 * force / mass, -1.0, 1.0)
        before, position = np.abs(to_goal), position + 0.1 * speed
        after = np.abs(goal - position)
        returns += 10.0 * (before - after) + 0.5 * (after < 0.1) - 0.01 * force**2
        costs += (np.abs(zone - position) < 0.15) * 2.0 * np.maximum(0.0, np.abs(speed) - SPEED_LIMIT)
    return returns, costs


class Learner:
    """Parameters, Adam moments, price of cost, counters: everything that a checkpoint holds."""

    def __init__(self, seed, settings):
        self.seed, self.settings = seed, settings
        self.parameters = 0.1 * np.random.default_rng([seed, 0]).standard_normal(PARAMETERS)
        self.first_moment, self.second_moment = np.zeros(PARAMETERS), np.zeros(PARAMETERS)
        self.price = float(settings["price"])
        self.updates = 0

    @property
    def agent_steps(self):
        return self.updates * STEPS_PER_UPDATE

    def update(self):
        """One step of evolution strategies; its randomness depends on seed and update alone, so resuming is exact."""
        random = np.random.default_rng([self.seed, 1 + self.updates])
        half = random.standard_normal((POPULATION // 2, PARAMETERS))
        directions = np.concatenate([half, -half])
        states = first_states(random, EPISODES_PER_MEMBER)
        members = self.parameters + self.settings["noise"] * directions
        returns, costs = play(members, states, mass=1.0)
        scores = (returns - self.price * costs).mean(axis=1)
        ranks = scores.argsort().argsort() / (POPULATION - 1) - 0.5
        self.climb(ranks @ directions / (POPULATION * self.settings["noise"]))
        if self.settings["cost_limit"] is not None:
            excess = costs.mean() - self.settings["cost_limit"]
            self.price = max(0.0, self.price + self.settings["price_rate"] * excess)
        self.updates += 1
        return {"return": float(returns.mean()), "cost": float(costs.mean()), "price": self.price}

    def climb(self, gradient):
        """Adam, upwards."""
        count = self.updates + 1
        self.first_moment = 0.9 * self.first_moment + 0.1 * gradient
        self.second_moment = 0.999 * self.second_moment + 0.001 * gradient**2
        step = (self.first_moment / (1 - 0.9**count)) / (np.sqrt(self.second_moment / (1 - 0.999**count)) + 1e-8)
        # The decay keeps the tanh units away from saturation, where no direction changes anything.
        self.parameters = 0.995 * self.parameters + self.settings["learning_rate"] * step

    def parameter_hash(self):
        return hashlib.sha256(self.parameters.tobytes()).hexdigest()


def write_json(path, value):
    """Replaces a file atomically: a reader sees the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(value))
    os.replace(partial, path)


class Run:
    """Reads and writes one run folder."""

    def __init__(self, root):
        self.root = Path(root)
        self.given = json.loads((self.root / "settings.json").read_text())
        unknown = set(self.given["settings"]) - set(DEFAULTS)
        if unknown:
            sys.exit(f"{self.root / 'settings.json'}: unknown key '{min(unknown)}'; valid: {', '.join(DEFAULTS)}")
        self.settings = {**DEFAULTS, **self.given["settings"]}
        self.beats = 0

    def beat(self, learner, phase):
        """Says how far the loop is. Written by the loop itself, so that a hang silences it."""
        self.beats += 1
        counters = {"agent_steps": learner.agent_steps, "gradient_steps": learner.updates}
        more = {"beat": self.beats, "process_id": os.getpid(), "unix_seconds": time.time()}
        write_json(self.root / "heartbeat.json", {**counters, "phase": phase, **more})

    def log(self, learner, values):
        row = {"agent_steps": learner.agent_steps, "gradient_steps": learner.updates, **values}
        with (self.root / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def save(self, learner):
        """Commits a checkpoint: the folder takes its name only when everything in it is on disk."""
        folder = self.root / "checkpoints" / f"step-{learner.agent_steps:012d}"
        partial = folder.with_name(f".partial-{folder.name}-{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with (partial / "state.npz").open("wb") as file:
            arrays = {"parameters": learner.parameters, "first": learner.first_moment, "second": learner.second_moment}
            np.savez(file, price=learner.price, updates=learner.updates, **arrays)
            file.flush()
            os.fsync(file.fileno())
        record = {
            "agent_steps": learner.agent_steps,
            "gradient_steps": learner.updates,
            "parameter_hash": learner.parameter_hash(),
            "finite": bool(np.isfinite(learner.parameters).all()),
            "files": {"state.npz": hashlib.sha256((partial / "state.npz").read_bytes()).hexdigest()},
            "task": self.given["task"],
            "versions": {"numpy": np.__version__, "python": sys.version.split()[0]},
        }
        write_json(partial / "record.json", record)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
        for old in sorted(folder.parent.glob("step-*"))[:-3]:
            shutil.rmtree(old)

    def restore(self):
        """The learner of the newest checkpoint that is what was saved, or a fresh one."""
        learner = Learner(self.given["seed"], self.settings)
        for folder in sorted((self.root / "checkpoints").glob("step-*"), reverse=True):
            try:
                record = json.loads((folder / "record.json").read_text())
                content = (folder / "state.npz").read_bytes()
            except (OSError, ValueError):
                continue
            if hashlib.sha256(content).hexdigest() != record["files"]["state.npz"]:
                continue
            with np.load(folder / "state.npz", allow_pickle=False) as state:
                learner.parameters = state["parameters"]
                learner.first_moment, learner.second_moment = state["first"], state["second"]
                learner.price, learner.updates = float(state["price"]), int(state["updates"])
            return learner
        return learner


def train(run, stopped):
    """Trains to the declared steps; returns whether they were reached."""
    learner = run.restore()
    run.beat(learner, "start")
    settings, logged, saved = run.settings, learner.agent_steps, learner.agent_steps
    while learner.agent_steps < run.given["agent_steps"]:
        if stopped:
            run.save(learner)
            run.beat(learner, "train")
            print(f"stopped by SIGTERM at {learner.agent_steps} agent steps; saved", flush=True)
            return False
        values = learner.update()
        if not np.isfinite(learner.parameters).all():
            raise FloatingPointError(f"parameters are not finite after update {learner.updates}")
        if learner.updates % 5 == 0:
            run.beat(learner, "train")
        if learner.agent_steps - logged >= settings["log_every_agent_steps"]:
            run.log(learner, values)
            logged = learner.agent_steps
        if learner.agent_steps - saved >= settings["save_every_agent_steps"]:
            run.beat(learner, "save")
            run.save(learner)
            saved = learner.agent_steps
    run.save(learner)
    run.beat(learner, "done")
    print(f"reached {learner.agent_steps} agent steps after {learner.updates} updates", flush=True)
    return True


def evaluate(run, name, episodes):
    """Plays complete episodes with the final parameters and writes evaluations/CONDITION.json."""
    learner = run.restore()
    if learner.updates == 0:
        sys.exit(f"{run.root}: there is no trained checkpoint to evaluate")
    run.beat(learner, "evaluate")
    condition = next((entry for entry in run.given["conditions"] if entry["name"] == name), {"name": name})
    changed = condition.get("settings") or {}
    # Every arm and seed is tested on the same layouts.
    states = first_states(np.random.default_rng([20_000, 0]), episodes)
    returns, costs = play(learner.parameters[None], states, mass=float(changed.get("mass", 1.0)))
    final = {
        "agent_steps": learner.agent_steps,
        "gradient_steps": learner.updates,
        "parameter_hash": learner.parameter_hash(),
        "episodes": {"return": returns[0].tolist(), "cost": costs[0].tolist()},
    }
    record = {
        "condition": name,
        "kind": condition.get("kind") or ("genuine" if changed else "in_distribution"),
        "task": run.given["task"],
        "layouts": "test",
        "checkpoints": {"final": final},
    }
    write_json(run.root / "evaluations" / f"{name}.json", record)
    print(f"{name}: return {returns.mean():.2f}, cost {costs.mean():.2f}, {episodes} episodes", flush=True)


def probe(run):
    """One update, one save, one restore, one short evaluation, in a scratch folder; writes probe.json."""
    phases, begun = {}, time.monotonic()

    def phase(name):
        nonlocal begun
        phases[name], begun = time.monotonic() - begun, time.monotonic()

    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(run.root / "settings.json", scratch)
        inner = Run(scratch)
        learner = inner.restore()
        phase("build")
        learner.update()
        phase("train")
        inner.save(learner)
        phase("save")
        if inner.restore().parameter_hash() != learner.parameter_hash():
            raise RuntimeError("a restored checkpoint is not what was saved")
        phase("restore")
        evaluate(inner, "id", 2)
        phase("evaluate")
        size = sum(path.stat().st_size for path in Path(scratch).glob("checkpoints/*/*"))
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    facts = {
        "phases": phases,
        "host_bytes": host,
        "forecast_host_bytes": host,
        "checkpoint_bytes": size,
        "agent_steps_per_second": STEPS_PER_UPDATE / phases["train"],
        "devices": ["cpu"],
        "versions": {"numpy": np.__version__, "python": sys.version.split()[0]},
    }
    write_json(run.root / "probe.json", facts)
    print(f"probe passed: {', '.join(phases)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="train or evaluate one run folder")
    parser.add_argument("run_dir")
    parser.add_argument("--evaluate", metavar="CONDITION")
    arguments = parser.parse_args()
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    faulthandler.register(signal.SIGUSR1)
    run = Run(arguments.run_dir)
    if os.environ.get("DREAMPROOF_PROBE") == "1":
        probe(run)
    elif arguments.evaluate:
        evaluate(run, arguments.evaluate, run.given["evaluation_episodes"])
    else:
        train(run, stopped)


if __name__ == "__main__":
    main()

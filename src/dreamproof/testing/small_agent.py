"""Settings of agents small enough to compile in seconds, for tests and measurements."""

from typing import Any

AGENT: dict[str, Any] = {
    "world_model": {
        "units": 16,
        "deterministic": 16,
        "groups": 4,
        "entity_units": 8,
        "bins": 21,
        "encoder_layers": 1,
        "head_layers": 1,
    },
    "behavior": {"horizon": 4, "starts": 16},
    "planner": {"horizon": 4, "samples": 8, "proposals": 4, "elites": 4, "iterations": 1},
    "risk": {"units": 8, "members": 2},
}
TRAIN: dict[str, Any] = {
    "envs": 4,
    "prefill_agent_steps": 80,
    "updates_per_agent_step": 0.25,
    "batch": 4,
    "window": 8,
    "chunk_agent_steps": 8,
    "log_every_agent_steps": 40,
    "evaluate_every_agent_steps": 80,
    "validation_episodes": 4,
}


PWM_AGENT: dict[str, Any] = {
    "world_model": {
        "units": [16, 16],
        "encoder_units": [16],
        "latent": 16,
        "termination_units": 8,
        "learning_rate": 1e-3,
    },
    "behavior": {
        "actor_units": [16],
        "critic_units": [16],
        "rounds": 1,
        "critic_passes": 2,
        "critic_batches": 2,
        "horizon": 4,
        "replayed_starts": 4,
        "warm_up_epochs": 0,
        "actor_learning_rate": 2e-3,
        "critic_learning_rate": 2e-3,
        "discount": 0.9,
    },
    "precision": "float32",
}
PWM_TRAIN: dict[str, Any] = {
    "envs": 4,
    "epoch_env_steps": 4,
    "batches": 2,
    "batch": 8,
    "window": 5,
    "prefill_agent_steps": 64,
    "chunk_agent_steps": 128,
    "log_every_agent_steps": 256,
    "evaluate_every_agent_steps": 512,
    "validation_episodes": 4,
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, key by key at every depth."""
    found = dict(base)
    for name, value in changes.items():
        found[name] = merged(found.get(name, {}), value) if isinstance(value, dict) else value
    return found


def tiny_settings(agent: dict[str, Any] | None = None, train: dict[str, Any] | None = None) -> dict[str, Any]:
    """The `settings` of a tiny cell as in a study file."""
    return {"agent": merged(AGENT, agent or {}), "train": merged(TRAIN, train or {})}


def tiny_pwm_settings(agent: dict[str, Any] | None = None, train: dict[str, Any] | None = None) -> dict[str, Any]:
    """The `settings` of a tiny cell of the PWM agent as in a study file."""
    return {"agent": merged(PWM_AGENT, agent or {}), "train": merged(PWM_TRAIN, train or {})}

"""Recipes of `trainer: pwm`: named sets of values, over which a study's own settings are laid."""

from typing import Any, Literal, get_args

from dreamproof.settings.several_tasks import merge

RecipeName = Literal["published", "fork", "dreamproof"]
KEY = "recipe"

# PWM as released (2024), pwm.yaml of its repository. Values that equal today's defaults stand here too, so that a later
# default does not change what was published.
PUBLISHED: dict[str, Any] = {
    "agent": {
        "world_model": {
            "group": 8,
            "reward": "scalar",
            "reward_normalisation": "standardise",
            "reward_clip": 5.0,
            "reward_scale": 1.0,
            "termination_scale": 0.0,
            "decoder": False,
            "decay": 0.99,
            "learning_rate": 3e-4,
            "clip": 20.0,
        },
        "dynamics": {"kind": "mlp"},
        "behavior": {
            "policy": "gaussian",
            "acting": "open_loop",
            "horizon": 16,
            "replayed_starts": 0,
            "rounds": 1,
            "critic_passes": 8,
            "critic_batches": 4,
            "shuffled": False,
            "critics": 3,
            "discount": 0.99,
            "final_value_power": "horizon_plus_one",
            "gae_lambda": 0.95,
            "actor_learning_rate": 5e-4,
            "critic_learning_rate": 5e-4,
            "final_learning_rate": 1e-5,
            "actor_clip": 1.0,
            "critic_clip": 100.0,
            "init_log_std": -1.0,
            "min_log_std": -1.427,
            "entropy_coef": 0.0,
            "detached": True,
            "warm_up_epochs": 0,
        },
        "running_scales": "cumulative",
        "precision": "float32",
    },
    "train": {
        "envs": 128,
        "epoch_env_steps": 16,
        "batches": 8,
        "batch": 256,
        "window": 17,
        "prefill_agent_steps": 65_536,
        "prefill_actions": "policy",
        "replay_agent_steps": 1_000_000,
        "replay_sampling": "trajectories",
        "bootstrap_updates": 1000,
        "staggered": False,
        "collapse": {"fraction": 0.0},
    },
}
# A fork of PWM: a flow of four Heun substeps whose velocity ends in SimNorm; 101 logits of the reward that learn by
# squared error.
FORK: dict[str, Any] = merge(
    PUBLISHED,
    {
        "agent": {
            "world_model": {
                "reward": "broken",
                "bins": 101,
                "bin_reach": 10.0,
                "dynamics_scale": 1.0,
                "endpoint_scale": 0.0,
                "source_pull": 1.0,
            },
            "dynamics": {
                "kind": "flow",
                "integrator": "heun",
                "substeps": 4,
                "predicts": "velocity",
                "space": "broken",
                "source_noise": 0.0,
            },
        },
        "train": {"envs": 256, "batch": 1024, "prefill_agent_steps": 131_072, "replay_agent_steps": 2_000_000},
    },
)
RECIPES: dict[RecipeName, dict[str, Any]] = {"published": PUBLISHED, "fork": FORK, "dreamproof": {}}
assert tuple(RECIPES) == get_args(RecipeName)


def with_recipe(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the values of their recipe written out instead of its name; their own values stay."""
    values = next((found for name, found in RECIPES.items() if name == settings.get(KEY)), None)
    if values is None:
        return settings
    return merge(values, {key: value for key, value in settings.items() if key != KEY})

"""Rewards as the world model learns them: divided by their running scale, or standardised and clipped."""

import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Windows
from dreamproof.agents.normalisation import Moments
from dreamproof.settings.pwm import PwmModelSettings


def reward_scale(rewards: Moments, scales: dict[str, Array]) -> Array:
    """The scale that divides rewards. Without a minimum it would follow tiny first rewards and grow with progress."""
    return jnp.maximum(rewards.root_mean_square, scales["min_reward_scale"])


def reward_divisor(rewards: Moments, scales: dict[str, Array], settings: PwmModelSettings) -> Array:
    """What rewards are divided by before they are learned."""
    return rewards.deviation if settings.reward_normalisation == "standardise" else reward_scale(rewards, scales)


def reward_loss_factor(rewards: Moments, unit: Array, scales: dict[str, Array]) -> Array:
    """Turns squared errors of scaled rewards into squared standard deviations: small rewards also shape the latents."""
    return (unit / jnp.maximum(rewards.deviation, scales["min_reward_std"])) ** 2


def scaled(
    windows: Windows, rewards: Moments, scales: dict[str, Array], settings: PwmModelSettings
) -> tuple[Windows, dict[str, Array]]:
    """Windows (K, T+1, B, ...) with the scale of their rewards, and the loss scales that belong to it."""
    unit = reward_scale(rewards, scales)
    windows = windows._replace(scale=jnp.broadcast_to(unit, windows.reward.shape[:1]))
    if settings.reward != "scalar":
        return windows, scales
    emphasis = reward_loss_factor(rewards, unit, scales)
    return windows, scales | {"reward_scale": scales["reward_scale"] * emphasis}


def standardised(windows: Windows, rewards: Moments, clip: float) -> Windows:
    """Windows whose rewards have lost their running mean, in standard deviations, within ±clip (PWM, 2024)."""
    reward = clipped(windows.reward, rewards, clip)
    return windows._replace(reward=reward, scale=jnp.ones(reward.shape[:1]))


def clipped(reward: Array, rewards: Moments, clip: float) -> Array:
    """Rewards less their running mean, in standard deviations, within ±clip."""
    return jnp.clip((reward - rewards.mean) / rewards.deviation, -clip, clip)

"""Names under which the logs of trainers and evaluations hold the metric of a study."""

from collections.abc import Mapping

# What trainers call the return of an episode, e.g. rollout/ep_rew_mean of stable-baselines3.
RETURN_NAMES = (
    "return", "score", "ep_rew_mean", "mean_reward", "episodic_return", "episode_return", "episode_reward",
    "ep_return", "reward", "r",
)  # fmt: skip


# Groups of values that no episode gave: losses, and what a world model imagines.
NOT_PLAYED = {"model", "world_model", "imagined", "imag", "actor", "critic", "critics", "loss", "losses"}


def known_names(name: str) -> tuple[str, ...]:
    """A metric's own name in lower case, and the other usual ones if it is a return."""
    own = name.lower()
    return (own, *(one for one in RETURN_NAMES if one != own)) if own in RETURN_NAMES else (own,)


def metric_value(values: Mapping[str, float], name: str) -> float | None:
    """A value under its name, under a group such as episode/, or, if it is a return, under another usual name."""
    if name in values:
        return values[name]
    played = {key: value for key, value in values.items() if not NOT_PLAYED.intersection(key.lower().split("/")[:-1])}
    by_end = {key.split("/")[-1].lower(): value for key, value in played.items()}
    return next((by_end[one] for one in known_names(name) if one in by_end), None)

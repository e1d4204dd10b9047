"""World models that TD-MPC2 (2024) or PWM (2024) saved with PyTorch, with the array names of a checkpoint of ours."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dreamproof.data.members import refusal
from dreamproof.data.torch_file import mappings, read_torch_file

NETWORKS = {"_encoder": "encoder", "_dynamics": "dynamics/network", "_reward": "reward_head"}
LAYER = re.compile(r"(_encoder|_dynamics|_reward)(?:\.state)?\.(\d{1,3})\.(weight|bias|ln\.weight|ln\.bias)")
PARTS = {"weight": "weight", "bias": "bias", "ln.weight": "scale", "ln.bias": "shift"}
MARK, TASKS = "_dynamics.0.weight", "_task_emb.weight"


def read_released_model(path: Path) -> dict[str, np.ndarray]:
    """Arrays of encoder, dynamics, reward head and task embedding; policy and critics are left out."""
    found = _state_dict(path)
    arrays = {}
    for network in NETWORKS:
        layers = [match for name in found if (match := LAYER.fullmatch(str(name))) and match[1] == network]
        if not layers:
            raise refusal(path, f"its state dict has no '{network}.0.weight'")
        last = max(int(match[2]) for match in layers)
        missing = [name for number in range(last + 1) if not _has_weight(found, name := f"{network}.{number}.weight")]
        if missing:
            raise refusal(path, f"its state dict has no '{missing[0]}'")
        for match in layers:
            has_norm = f"{match[0].removesuffix(match[3])}ln.weight" in found
            arrays[_our_name(match, last, has_norm)] = _array(path, found, match[0])
    if TASKS in found:
        arrays["model/tasks"] = _array(path, found, TASKS)
    return arrays


def settings_of(arrays: Mapping[str, np.ndarray]) -> str:
    """The settings that these arrays fit, as a study would say them."""
    encoder, dynamics = (_sizes(arrays, f"model/{NETWORKS[name]}") for name in ("_encoder", "_dynamics"))
    bins, latent = _sizes(arrays, "model/reward_head")[-1], encoder[-1]
    tasks, task_size = arrays["model/tasks"].shape if "model/tasks" in arrays else (0, 0)
    reward = f"reward: two_hot, bins: {bins}" if bins > 1 else "reward: scalar"
    known = f", tasks: {tasks}, task_size: {task_size}" if tasks else ""
    model = f"encoder_units: {encoder[1:-1]}, units: {dynamics[1:-1]}, latent: {latent}, {reward}{known}"
    data = f"observation_size: {encoder[0] - task_size}, action_size: {dynamics[0] - latent - task_size}"
    return f"agent: {{world_model: {{{model}}}, dynamics: {{kind: mlp}}}}, data: {{{data}}}"


def _state_dict(path: Path) -> Mapping[Any, Any]:
    """The mapping in the file that holds a world model."""
    for found in mappings(read_torch_file(path)):
        if MARK in found:
            return found
    raise refusal(path, f"no state dict in it has '{MARK}', so it is no world model of TD-MPC2 or PWM")


def _has_weight(found: Mapping[Any, Any], name: str) -> bool:
    """Whether a layer is there; encoders may have `.state` in their names."""
    network, rest = name.split(".", 1)
    return name in found or f"{network}.state.{rest}" in found


def _our_name(layer: re.Match[str], last: int, has_norm: bool) -> str:
    place = "last" if int(layer[2]) == last else f"hidden/{layer[2]}"
    part = PARTS[layer[3]]
    inner = "norm/" if part in ("scale", "shift") else "linear/" if has_norm else ""
    return f"model/{NETWORKS[layer[1]]}/{place}/{inner}{part}"


def _array(path: Path, found: Mapping[Any, Any], name: str) -> np.ndarray:
    """A tensor in float32; weights of layers, (outputs, inputs), are transposed."""
    value = found[name]
    if not isinstance(value, np.ndarray) or not np.issubdtype(value.dtype, np.floating):
        raise refusal(path, f"'{name}' is no tensor of floating-point numbers")
    if not np.isfinite(value).all():
        raise refusal(path, f"'{name}' has values that are not finite")
    is_layer = name.endswith(".weight") and not name.endswith(".ln.weight") and name != TASKS
    if value.ndim != (2 if is_layer or name == TASKS else 1):
        raise refusal(path, f"'{name}' has the shape {value.shape}: it belongs to no network of this kind")
    return np.ascontiguousarray(value.T if is_layer else value, np.float32)


def _sizes(arrays: Mapping[str, np.ndarray], network: str) -> list[int]:
    """The inputs of a network, and the outputs of each of its layers."""
    weights = [name for name in arrays if name.startswith(f"{network}/") and name.endswith("/weight")]
    shapes = [arrays[name].shape for name in sorted(weights, key=lambda name: ("/last/" in name, len(name), name))]
    return [shapes[0][0], *(shape[1] for shape in shapes)]

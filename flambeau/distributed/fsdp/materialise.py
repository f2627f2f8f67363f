"""Initialisation of a sharded model from a checkpoint, of which each rank reads its own rows.

>>> with flambeau.device("meta"):
...     model = Transformer(config)
>>> for layer in model.layers:
...     fully_shard(layer)
>>> fully_shard(model)
>>> model.to_empty(device="cpu")          # memory for this rank's shards, and for nothing else
>>> load_shards(model, "checkpoint/")
"""

from __future__ import annotations

from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from ...nn import Module
from ...serialization.sharded import shards
from ..tensor import DTensor
from ..tensor._utils import compute_local_shape_and_global_offset


@no_grad()
def load_shards(model: Module, path: Any, strict: bool = True) -> tuple[list[str], list[str]]:
    """Fill the parameters and buffers of `model` from safetensors or .bin files: `path` is a folder, an index or one file. Of each
    tensor a rank copies only its part, and one file is open at a time. Returns the names that were missing and those that were not
    expected; with `strict` either is an error.

    >>> layer = flambeau.nn.Linear(2, 2)
    >>> files = flambeau.serialization.save_sharded(layer.state_dict(), "checkpoint")
    >>> load_shards(layer, "checkpoint")
    ([], [])
    """
    wanted = model.state_dict()
    found: set[str] = set()
    unexpected: list[str] = []
    for part in shards(path):
        for name, tensor in part.items():
            if name not in wanted:
                unexpected.append(name)
                continue
            _copy_into(name, wanted[name], tensor)
            found.add(name)
    held = {_storage_id(wanted[name]) for name in found}
    # Others are tied.
    missing = [name for name, value in wanted.items() if name not in found and _storage_id(value) not in held]
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(model).__name__}: missing {sorted(missing)}, unexpected {sorted(unexpected)}"
        )
    return missing, unexpected


def _storage_id(tensor: Any) -> int:
    return id((tensor._local_tensor if isinstance(tensor, DTensor) else tensor)._storage)


def _copy_into(name: str, target: Any, tensor: Tensor) -> None:
    if tuple(target.shape) != tuple(tensor.shape):
        raise RuntimeError(
            f"size mismatch for {name}: copying a param with shape {tensor.shape} from checkpoint, the shape in current model is"
            f" {target.shape}."
        )
    if not isinstance(target, DTensor):
        target.copy_(tensor)
        return
    local = target._local_tensor
    if local.device.type == "meta":
        raise RuntimeError(f"{name} is on the device meta: call model.to_empty(device=...) first")
    shape, offset = compute_local_shape_and_global_offset(target.shape, target.device_mesh, target.placements)
    if local.numel():
        local.copy_(tensor[tuple(slice(start, start + n) for start, n in zip(offset, shape))])

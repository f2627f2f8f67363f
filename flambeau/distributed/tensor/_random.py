"""Random numbers for DTensors: ranks with the same part draw the same numbers, different parts draw different ones.

All ranks must have set the same seed. A replicated tensor is drawn as in one process. For a sharded one, a seed for each part is drawn from
the common generator, which ends in the same state everywhere. (PyTorch does this with the offsets of CUDA generators; on the CPU it draws
the same numbers for every part.)"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ...ops import namespace
from ...random import fork_rng
from ...random import manual_seed as set_seed
from ._dtensor_spec import DTensorSpec
from .placement_types import _is_shard_like

_torch = namespace("torch")


def part_number(spec: DTensorSpec) -> int | None:
    """Return the number of this rank's part, counted over the mesh dimensions that shard the tensor; None if it is not sharded."""
    coordinate = spec.mesh.get_coordinate()
    number, cut = 0, False
    for i, placement in enumerate(spec.placements):
        if _is_shard_like(placement):
            number, cut = number * spec.mesh.size(i) + coordinate[i], True
    return number if cut else None


@contextlib.contextmanager
def drawing(spec: DTensorSpec | None) -> Iterator[None]:
    """Context manager: draw random numbers for a tensor placed by `spec`; None means a replicated one."""
    number = None if spec is None or spec.mesh.get_coordinate() is None else part_number(spec)
    if number is None:
        yield
        return
    seed = int(_torch["randint"](2**62, (1,)).item())
    with fork_rng():
        set_seed((seed + 0x9E3779B97F4A7C15 * (number + 1)) % 2**63)
        yield


def is_rng_supported_mesh(device_mesh: Any) -> bool:
    """Return whether parts of a tensor on this mesh are drawn differently."""
    return True


def manual_seed(seed: int, device_mesh: Any) -> None:
    """Set the seed of this rank's generator, which must be the same on all ranks."""
    if device_mesh.get_coordinate() is None:
        raise RuntimeError(
            "manual_seed requires the current rank to be a part of the device mesh otherwise DTensor RNG state on the rank will"
            " not be initialized and the behavior of DTensor random ops is undefined."
        )
    set_seed(seed)

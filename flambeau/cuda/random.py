"""Seeds and states of the random generators of GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.backend import backend_of, has_backend
from ..core.device import device as Device
from ..core.tensor import Tensor
from . import _index, _require_backend, device_count

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state",
    "set_rng_state_all",
]  # fmt: skip


def _generator(where: Any, name: str) -> Any:
    return _require_backend(name).generator(Device("cuda", _index(where)))


def get_rng_state(device: Any = "cuda") -> Tensor:
    """Return the state of a GPU's generator as a ByteTensor on the CPU."""
    return _generator(device, "get_rng_state").get_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Restore a state that `get_rng_state` returned."""
    _generator(device, "set_rng_state").set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """Return the states of the generators of all GPUs."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Restore states that `get_rng_state_all` returned."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seed the generator of the current GPU; no effect without one."""
    seed = int(seed)
    if has_backend(Device("cuda")):
        _generator(None, "manual_seed").manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all GPUs."""
    seed = int(seed)
    if has_backend(Device("cuda")):
        backend_of(Device("cuda")).seed(seed)


def seed() -> None:
    """Seed the generator of the current GPU with a number from the system."""
    if has_backend(Device("cuda")):
        _generator(None, "seed").seed()


def seed_all() -> None:
    """Seed the generators of all GPUs with one number from the system."""
    if has_backend(Device("cuda")):
        backend_of(Device("cuda")).seed(_generator(None, "seed_all").seed())


def initial_seed() -> int:
    """Return the seed that the current GPU's generator started from."""
    return _generator(None, "initial_seed").initial_seed()

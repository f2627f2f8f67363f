"""State of the random generator: seeds, saved states, and `fork_rng`.

>>> import flambeau
>>> flambeau.manual_seed(0)
>>> state = flambeau.random.get_rng_state()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from .core.backend import backend_of, has_backend
from .core.device import device as Device
from .core.generator import Generator, default_generator, initial_seed, manual_seed, seed
from .core.tensor import Tensor

__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
    "set_rng_state",
]  # fmt: skip


def get_rng_state() -> Tensor:
    """Return the state of the default generator as a ByteTensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Restore a state that `get_rng_state` returned."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """Context manager: random numbers may be drawn and seeds set inside; the default generator is restored on exit.

    The generators of `devices` (by default of all GPUs) are saved as well; a device that does not exist raises.

    >>> with fork_rng():
    ...     noise = flambeau.rand(3)
    """
    if not enabled:
        yield
        return
    kind = Device(device_type or "cuda").type
    where = Device(kind)
    present = has_backend(where)
    chosen = list(devices) if devices is not None else list(range(backend_of(where).device_count)) if present else []
    if chosen and not present:
        raise AssertionError(
            f"fork_rng() saves the generator of the CPU, and there is no {kind} device to save others of"
        )
    others = [backend_of(where).generator(Device(kind, d) if isinstance(d, int) else Device(d)) for d in chosen]
    saved = [(g, g.state_bytes()) for g in (default_generator, *others)]
    try:
        yield
    finally:
        for generator, state in saved:
            generator.go_back_to(state)


def thread_safe_generator() -> Generator | None:
    """Return None: workers of a DataLoader are processes, each with its own generator, so the default one is safe to use."""
    return None

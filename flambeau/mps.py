"""`torch.mps`: Apple's GPUs, which Flambeau does not drive."""

from __future__ import annotations

from .core.absent import raising as _raising


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """Return 0: no such devices are used."""
    return 0


def manual_seed(seed: int) -> None:
    """Do nothing: there is no such generator."""
    int(seed)


globals().update(
    _raising(
        """seed synchronize empty_cache get_rng_state set_rng_state current_allocated_memory driver_allocated_memory
        recommended_max_memory""",
        RuntimeError,
        "Cannot execute mps.{}() without MPS backend.",
    )
)

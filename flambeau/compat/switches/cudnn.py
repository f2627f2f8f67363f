"""`torch.backends.cudnn`: switches that programs set before training on a GPU. Kept for whoever asks; the CPU heeds none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    return False


def version() -> int | None:
    return None


def is_acceptable(tensor: object) -> bool:
    """Whether cuDNN can work on this tensor."""
    return False


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """The switches, for the length of a `with` block."""
    inside = {
        "enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit, "deterministic": deterministic,
        "allow_tf32": allow_tf32,
    }  # fmt: skip
    before = {name: globals()[name] for name in inside}
    globals().update(inside)
    try:
        yield
    finally:
        globals().update(before)

"""Switch for compiling with `script` and `trace`: `torch.jit._state.disable()`, and the environment variable PYTORCH_JIT."""

from __future__ import annotations

from . import _enabled


def enable() -> None:
    """Turn on compilation by `script` and `trace`."""
    _enabled[0] = True


def disable() -> None:
    """Turn off compilation: `script` and `trace` return their arguments unchanged."""
    _enabled[0] = False

"""`torch.backends.mha`: PyTorch's shortcut for inference through transformer layers, a switch without effect here: the layers
always compute the same way."""

from __future__ import annotations

_fastpath = [True]


def get_fastpath_enabled() -> bool:
    """What was last set."""
    return _fastpath[0]


def set_fastpath_enabled(value: bool) -> None:
    """Remember the wish; results do not depend on it."""
    _fastpath[0] = bool(value)

"""`torch.backends.mha`: PyTorch's shortcut for inference through transformer layers, which Flambeau does not have: the layers always
compute the same way."""

from __future__ import annotations


def get_fastpath_enabled() -> bool:
    """Return False: attention has no separate inference path."""
    return False


def set_fastpath_enabled(value: bool) -> None:
    """Programs switch the shortcut off; it cannot be switched on."""
    if value:
        raise RuntimeError("transformer layers have no fast path in Flambeau: it can only be switched off")

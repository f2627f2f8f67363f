"""`torch.backends.mha`: PyTorch's inference shortcut of transformer layers, which Flambeau lacks: the layers always compute the same way."""

from __future__ import annotations


def get_fastpath_enabled() -> bool:
    """Return False: attention has no separate inference path."""
    return False


def set_fastpath_enabled(value: bool) -> None:
    """Accept False, as programs switch the shortcut off; raise an error for True."""
    if value:
        raise RuntimeError("transformer layers have no fast path in Flambeau: it can only be switched off")

"""Settings of PyTorch's code generator, used by programs that compile for a GPU."""

from typing import Any

from ....compiler import cudagraph_mark_step_begin
from . import config


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """Return the settings of the modes of `torch.compile`: none, since all of them record in the same way."""
    modes: dict[str, Any] = {
        m: {} for m in ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
    }
    return modes[mode] if mode else modes


__all__ = ["config", "cudagraph_mark_step_begin", "list_mode_options"]

"""Process groups. There are none yet: `is_available()` says so, as in a PyTorch built without them, and starting one raises."""

from __future__ import annotations

from ..core.absent import raising as _raising


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    return False


globals().update(
    _raising(
        "init_process_group destroy_process_group barrier get_rank get_world_size all_reduce broadcast",
        RuntimeError,
        "torch.distributed.{}(): process groups are not in Flambeau yet (torch.distributed.is_available() is False); run in"
        " one process",
    )
)

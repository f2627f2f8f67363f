"""Process groups. There are none yet: `is_available()` says so, as in a PyTorch built without them, and starting one raises."""

from __future__ import annotations

from typing import Any, NoReturn

_MISSING = "process groups are not in Flambeau yet (torch.distributed.is_available() is False); run in one process"


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    return False


def _needs_group(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"torch.distributed.{name}(): {_MISSING}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Needs a process group."
    return function


init_process_group = _needs_group("init_process_group")
destroy_process_group = _needs_group("destroy_process_group")
barrier = _needs_group("barrier")
get_rank = _needs_group("get_rank")
get_world_size = _needs_group("get_world_size")
all_reduce = _needs_group("all_reduce")
broadcast = _needs_group("broadcast")

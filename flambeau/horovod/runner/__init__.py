"""Starting Horovod programs: `flambeau horovodrun`, and `run` from inside a program."""

from typing import Any


def run(function: Any, args: tuple = (), kwargs: dict | None = None, np: int = 1, **options: Any) -> list:
    """`function(*args, **kwargs)` in `np` new processes; what they returned, by rank."""
    from .launch import run as start  # noqa: PLC0415  so that `python -m` finds the launcher unloaded

    return start(function, args, kwargs, np, **options)

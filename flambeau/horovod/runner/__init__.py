"""Launching of Horovod programs: `flambeau horovodrun`, and `run` from inside a program."""

from typing import Any

from ...core import naming


def run(function: Any, args: tuple = (), kwargs: dict | None = None, np: int = 1, **options: Any) -> list:
    """Run `function(*args, **kwargs)` in `np` new processes; return their results by rank."""
    return naming.above("horovod.runner.launch").run(function, args, kwargs, np, **options)

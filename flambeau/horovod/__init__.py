"""Horovod's interface over Flambeau's process groups: `import horovod.torch as hvd` in a program that runs with Flambeau.

>>> import flambeau.horovod.torch as hvd
>>> hvd.init()
>>> optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
"""

from typing import Any

from ..core import naming as _naming

__version__ = "0.28.1"


def run(function: Any, args: tuple = (), kwargs: dict | None = None, np: int = 1, **options: Any) -> list:
    """Run `function(*args, **kwargs)` in `np` new processes and return their results by rank; `options` are accepted for Horovod's
    programs."""
    return _naming.above("horovod.runner").run(function, args, kwargs or {}, np, **options)

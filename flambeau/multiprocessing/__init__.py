"""Python's multiprocessing, with tensors passed between processes in shared memory instead of copied.

>>> import flambeau.multiprocessing as mp
>>> queue = mp.Queue()
>>> queue.put(flambeau.ones(3))    # the receiver maps the same bytes
>>> mp.spawn(train, args=(model,), nprocs=4)    # train(0, model), train(1, model), ... each in a process of its own
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *

from .spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)
from .tensors import (
    get_all_sharing_strategies,
    get_sharing_strategy,
    init_reductions,
    pack,
    set_sharing_strategy,
    unpack,
)

__all__ = [  # noqa: PLE0604
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "pack",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
    "unpack",
    *multiprocessing.__all__,
]

init_reductions()

"""A model trained by several processes. Process groups are not there yet, so making one raises."""

from __future__ import annotations

from typing import Any

from ..modules.module import Module


class DistributedDataParallel(Module):
    """The same model in every process of a group, with gradients averaged between them."""

    def __init__(self, module: Module, *args: Any, **kwargs: Any):
        raise RuntimeError(
            "DistributedDataParallel needs a process group, and process groups are not in Flambeau yet: train in one process"
        )

"""When models are averaged."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ... import groups
from . import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager(ABC):
    """Counts steps, and averages parameters in some of them."""

    def __init__(self, process_group: Any = None):
        self.process_group = groups._get_default_group() if process_group is None else process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None: ...


class PeriodicModelAverager(ModelAverager):
    """Averages in every `period`-th step, from `warmup_steps` on."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None):
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        if period == 1:
            warnings.warn(
                "When period is 1, no need to use model averaging because the communication cost of all-reducing parameters will"
                " be no less than the cost of all-reducing gradients by DistributedDataParallel in the backward pass."
                " Therefore, only DistributedDataParallel should be used for this case.",
                stacklevel=2,
            )
        self.warmup_steps, self.period = warmup_steps, period

    def average_parameters(self, params: Iterable[Any]) -> None:
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1

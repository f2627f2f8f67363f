"""Averages of parameters over ranks, every few steps."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from ....compat.former_names import settle
from ....core.graph import unrecorded
from ....core.tensor import Tensor
from ... import collectives, groups, subgroups


def average_parameters(params: Iterator[Tensor], process_group: Any) -> None:
    """Replace parameters by their average over the ranks."""
    group = groups._get_default_group() if process_group is None else process_group
    if groups._rank_not_in_group(group):
        return
    tensors = [p.detach() for p in params]
    by_dtype: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor)
    for same in by_dtype.values():
        for tensor in same:
            unrecorded(tensor.div_, group.size())
        collectives.all_reduce_coalesced(same, group=group)


def get_params_to_average(params: Iterable[Any]) -> list[Tensor]:
    """Return the parameters, or those of an optimizer's groups, that have gradients."""
    chosen = []
    for entry in params:
        if isinstance(entry, Tensor):
            chosen += [entry] if entry.grad is not None else []
        elif isinstance(entry, dict):
            chosen += [p for p in entry["params"] if p.grad is not None]
        else:
            raise NotImplementedError(f"Parameter input of type {type(entry)} is not supported")
    return chosen


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    average_parameters(iter(get_params_to_average(params)), process_group)


class ModelAverager(ABC):
    """Base of averagers: counts steps, and averages parameters in some of them."""

    def __init__(self, process_group: Any = None):
        self.process_group = groups._get_default_group() if process_group is None else process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None: ...


class PeriodicModelAverager(ModelAverager):
    """Averager that runs in every `period`-th step, from `warmup_steps` on."""

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
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1


class HierarchicalModelAverager(ModelAverager):
    """Averager over groups of growing size: `period_group_size_dict` maps a period to the size of the groups averaged in it."""

    def __init__(self, period_group_size_dict: Any = None, warmup_steps: int = 0, process_group: Any = None):
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        periods, sizes = list(period_group_size_dict), list(period_group_size_dict.values())
        if periods[0] <= 0:
            raise ValueError("The minimum period in arg ``period_group_size_dict`` must be a positive value.")
        if sizes[-1] != self.process_group.size():
            raise ValueError(
                f"The last value in arg ``period_process_group_dict`` {sizes[-1]} must be equal to the size of arg"
                f" ``process_group`` {self.process_group.size()}."
            )
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        self._periods, self.warmup_steps = periods, warmup_steps
        self.period_process_group_dict: OrderedDict[int, Any] = OrderedDict()
        for period, size in zip(periods, sizes):
            whole = size == self.process_group.size()
            self.period_process_group_dict[period] = self.process_group if whole else subgroups.new_subgroups(size)[0]

    def _find_process_group(self) -> Any:
        """Return the largest group whose period divides the current step."""
        for period in reversed(self._periods):
            if self.step % period == 0:
                return self.period_process_group_dict[period]
        return None

    def average_parameters(self, params: Iterable[Any]) -> None:
        if self.step >= self.warmup_steps:
            group = self._find_process_group()
            if group is not None:
                average_parameters_or_parameter_groups(params, group)
        self.step += 1


settle(__name__)

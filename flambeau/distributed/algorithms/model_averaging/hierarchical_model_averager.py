"""Model averaging on several levels: small groups often, large ones seldom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from ... import subgroups
from . import utils
from .averagers import ModelAverager

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(ModelAverager):
    """`period_group_size_dict` maps a period to the size of the groups that are averaged in it; both grow."""

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
        """Return the largest group whose period divides the present step."""
        for period in reversed(self._periods):
            if self.step % period == 0:
                return self.period_process_group_dict[period]
        return None

    def average_parameters(self, params: Iterable[Any]) -> None:
        if self.step >= self.warmup_steps:
            group = self._find_process_group()
            if group is not None:
                utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1

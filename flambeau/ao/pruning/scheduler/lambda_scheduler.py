"""Sparsity level as a function of the epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base_scheduler import BaseScheduler

__all__ = ["LambdaSL"]


class LambdaSL(BaseScheduler):
    """Scheduler that multiplies a group's initial level by `sl_lambda(epoch)`: one function, or a list with one for each group."""

    def __init__(
        self,
        sparsifier: Any,
        sl_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        count = len(sparsifier.groups)
        if not isinstance(sl_lambda, list | tuple):
            self.sl_lambdas = [sl_lambda] * count
        elif len(sl_lambda) != count:
            raise ValueError(f"Expected {count} lr_lambdas, but got {len(sl_lambda)}")
        else:
            self.sl_lambdas = list(sl_lambda)
        super().__init__(sparsifier, last_epoch, verbose)

    def get_sl(self) -> list[float]:
        self._warn_outside_step()
        return [level * function(self.last_epoch) for function, level in zip(self.sl_lambdas, self.base_sl)]

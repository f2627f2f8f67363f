"""Base of all schedulers: after a step of the sparsifier, set the sparsity level of each of its groups."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ..sparsifier.base_sparsifier import BaseSparsifier

__all__ = ["BaseScheduler"]


def _count_calls(method: Any) -> Callable:
    """Wrap a sparsifier's `step` to count its calls, without keeping the sparsifier alive."""
    if getattr(method, "_with_counter", False):
        return method
    owner, function = weakref.ref(method.__self__), method.__func__

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        sparsifier: Any = owner()
        sparsifier._step_count += 1
        return function(sparsifier, *args, **kwargs)

    step._with_counter = True  # type: ignore[attr-defined]
    return step


class BaseScheduler:
    """Base of schedulers: subclasses return the levels of all groups from `get_sl()`. `base_sl` are the sparsifier's initial levels."""

    sparsifier: Any

    def __init__(self, sparsifier: Any, last_epoch: int = -1, verbose: bool = False) -> None:
        if not isinstance(sparsifier, BaseSparsifier):
            raise TypeError(f"{type(sparsifier).__name__} is not an instance of torch.ao.pruning.BaseSparsifier")
        self.sparsifier = sparsifier
        self.base_sl = [group["sparsity_level"] for group in sparsifier.groups]
        self.last_epoch = last_epoch
        own: Any = sparsifier
        own.step, own._step_count = _count_calls(sparsifier.step), 0
        self._step_count = 0
        self.verbose = verbose
        self._get_sl_called_within_step = False
        self.step()

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes that change, without the sparsifier."""
        return {key: value for key, value in self.__dict__.items() if key != "sparsifier"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.__dict__.update(state_dict)

    def get_last_sl(self) -> list[float]:
        """Return the sparsity levels set by the last step."""
        return self._last_sl

    def get_sl(self) -> list[float]:
        self._warn_outside_step()
        raise NotImplementedError

    def _warn_outside_step(self) -> None:
        if not self._get_sl_called_within_step:
            warnings.warn(
                "To get the last sparsity level computed by the scheduler, please use `get_last_sl()`.", stacklevel=3
            )

    def print_sl(self, is_verbose: bool, group: int, sl: float, epoch: int | None = None) -> None:
        """Print the current sparsity level of a group if `is_verbose`."""
        if is_verbose:
            start = "Adjusting" if epoch is None else f"Epoch {epoch:5d}: adjusting"
            print(f"{start} sparsity level of group {group} to {sl:.4e}.")

    def __repr__(self) -> str:
        return f"{type(self).__name__} (\nSparsifier {self.sparsifier}\n    base_sl: {self.base_sl}\n)"

    def step(self, epoch: int | None = None) -> None:
        """Set the levels of the next epoch. Call it after the sparsifier's step."""
        if self._step_count == 1:
            self._warn_about_order()
        self._step_count += 1
        self._get_sl_called_within_step = True
        try:
            self.last_epoch += 1
            levels = self.get_sl()
        finally:
            self._get_sl_called_within_step = False
        for number, (group, level) in enumerate(zip(self.sparsifier.groups, levels)):
            group["sparsity_level"] = level
            self.print_sl(self.verbose, number, level, epoch)
        self._last_sl = [group["sparsity_level"] for group in self.sparsifier.groups]
        self.sparsifier.enable_mask_update = True

    def _warn_about_order(self) -> None:
        if not hasattr(self.sparsifier.step, "_with_counter"):
            warnings.warn(
                "Seems like `sparsifier.step()` has been overridden after sparsity scheduler initialization. Please, make"
                " sure to call `sparsifier.step()` before `scheduler.step()`.",
                UserWarning,
                stacklevel=3,
            )
        elif self.sparsifier._step_count < 1:
            warnings.warn(
                "Detected call of `scheduler.step()` before `sparsifier.step()`. You have to make sure you run the"
                " sparsifier.step() BEFORE any calls to the scheduler.step().",
                UserWarning,
                stacklevel=3,
            )

    def _make_sure_a_list(self, var: Any) -> list:
        """Return a list of one value for each group."""
        count = len(self.sparsifier.groups)
        if not isinstance(var, list | tuple):
            return [var] * count
        if len(var) != count:
            raise ValueError(f"Expected variable of length {count}, but got {len(var)}")
        return list(var)

"""Base of all schedules: counting epochs, setting learning rates, saving and loading."""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...core.tensor import Tensor
from ..optimizer import Optimizer, to_scalar

Rate = Any  # a float or a one-element tensor

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use"
    " `scheduler.step()` to step the scheduler. If epoch is given, the closed form of the schedule is used, where there"
    " is one."
)
_ORDER_LINK = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def group_values(optimizer: Optimizer, key: str) -> list[Any]:
    """Return an option of every group; tensors are copied, because schedules change them in place."""
    return [_copy(group[key]) for group in optimizer.param_groups]


def set_group_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Set an option of a parameter group; a tensor is changed in place."""
    if isinstance(group[key], Tensor):
        group[key].fill_(to_scalar(value))
    else:
        group[key] = value


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """Return a list with a value for each group, from one for all or from a list."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        value = [value] * groups
    elif len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, param_groups"
            f" has {groups}."
        )
    return [_copy(v) for v in value]


def check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _watch_steps(optimizer: Any) -> None:
    """Record calls of the optimizer's step, to warn of schedules that are stepped too early."""
    step = optimizer.step
    if hasattr(step, "_wrapped_by_lr_sched"):
        return
    function = getattr(step, "__func__", None)
    owner = weakref.ref(optimizer)

    @functools.wraps(step if function is None else function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        self: Any = owner()
        self._opt_called = True
        return step(*args, **kwargs) if function is None else function(self, *args, **kwargs)

    if function is not None:
        del step  # a bound method would keep the optimizer alive for ever
    watched._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = watched


class LRScheduler:
    """Changes the learning rates of an optimizer; call `step()` after each epoch (or batch).

    A subclass defines `get_lr()`: the rates of all groups at `self.last_epoch`, usually computed from the present ones
    in `self.optimizer.param_groups`, so that several schedules can act on one optimizer."""

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False
    optimizer: Optimizer
    last_epoch: int
    base_lrs: list[Rate]
    _last_lr: list[Rate]
    _step_count: int

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", _copy(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with last_epoch"
                    " >= 0. Load the optimizer's state before making the scheduler, or start with last_epoch=-1."
                )
        self.base_lrs = group_values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _watch_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the scheduler: everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the schedule from the result of `state_dict`."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Rate]:
        """Return the rates that this schedule set last, one per group."""
        return self._last_lr

    def get_lr(self) -> list[Rate]:
        """Return the rates at `self.last_epoch`."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Advance to the next epoch (or to a given one), and set the learning rates."""
        if self._step_count == 1:
            self._check_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _check_order(self) -> None:
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. Please,"
                f" make sure to call `optimizer.step()` before `lr_scheduler.step()`. See more details at {_ORDER_LINK}",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. Call them in the opposite order:"
                " otherwise the first value of the learning rate schedule is skipped. See more details at"
                f" {_ORDER_LINK}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        with self._inside_step():
            if epoch is None:
                self.last_epoch += 1
                rates = self.get_lr()
            else:
                self.last_epoch = epoch
                rates = getattr(self, "_get_closed_form_lr", self.get_lr)()
        self._apply(rates)

    def _apply(self, rates: list[Rate]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_group_value(group, "lr", rate)
        self._last_lr = group_values(self.optimizer, "lr")

    @contextmanager
    def _inside_step(self) -> Iterator[None]:
        """Context manager: `get_lr` is called by the schedule itself; calls by users outside of it get a warning."""
        self._get_lr_called_within_step = True
        try:
            yield
        finally:
            self._get_lr_called_within_step = False

    # -- for get_lr -------------------------------------------------------------------------------------------------
    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _current_rates(self) -> list[Rate]:
        return group_values(self.optimizer, "lr")

    def _scale_rates(self, factor: float) -> list[Rate]:
        return [group["lr"] * factor for group in self.optimizer.param_groups]


def without_functions(state: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a schedule's state with functions replaced by what can be saved of them: the attributes of callable objects."""
    for name in names:
        value = state.pop(name)  # last, as in the files that PyTorch saves
        state[name] = [_function_state(f) for f in value] if isinstance(value, list) else _function_state(value)
    return state


def _function_state(function: Callable | None) -> dict[str, Any] | None:
    if function is None or isinstance(function, types.FunctionType):
        return None
    return function.__dict__.copy()

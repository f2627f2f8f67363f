"""Switching recording on and off: no_grad, enable_grad, inference_mode, set_grad_enabled, anomaly detection."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from ..core.graph import grad_mode, inference_threads
from ..core.uninterrupted import uninterrupted

Function = TypeVar("Function", bound=Callable[..., Any])
_state = grad_mode  # for methods whose parameter is called `mode`, as PyTorch's is


class _DecoratorContextManager:
    """Base of context managers that are decorators, too (of functions, generators and classes' methods)."""

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: Any) -> Any:
        raise NotImplementedError

    def clone(self) -> Any:
        """Return a context manager for one call of the decorated function."""
        return self.__class__()

    def __call__(self, function: Function) -> Function:
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or"
                " methods. To preserve the current behavior of class decoration, you can directly decorate the `__init__` method"
                " and nothing else.",
                FutureWarning,
                stacklevel=2,
            )

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return cast(Function, wrapped)

    def _wrap_generator(self, function: Any) -> Any:
        """Wrap a generator function: the mode is on while the generator's own code runs, not while its consumer does."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            try:
                with self.clone():
                    value = next(generator)
                while True:
                    try:
                        sent = yield value
                    except GeneratorExit:
                        with self.clone():
                            generator.close()
                        raise
                    except BaseException as error:  # hand the consumer's exception to the generator
                        with self.clone():
                            value = generator.throw(error)
                    else:
                        with self.clone():
                            value = generator.send(sent)
            except StopIteration as stop:
                return stop.value

        return wrapped


class _Switch(_DecoratorContextManager):
    """Base of context managers that set an autograd switch."""

    def _enter(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> None:
        self.before = (grad_mode.enabled, grad_mode.inference)
        self._enter()

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        grad_mode.enabled, grad_mode.inference = self.before


class _NoArguments(_Switch):
    """Base of context managers that are usable as @no_grad and @no_grad()."""

    @overload
    def __new__(cls) -> _NoArguments: ...
    @overload
    def __new__(cls, orig_func: Callable[..., Any]) -> Any: ...
    def __new__(cls, orig_func: Callable[..., Any] | None = None) -> Any:
        self = object.__new__(cls)
        return self if orig_func is None else self(orig_func)

    def __init__(self, orig_func: Callable[..., Any] | None = None) -> None:
        pass


class no_grad(_NoArguments):
    """Context manager or decorator: operations inside are not recorded.

    >>> x = flambeau.ones(2, requires_grad=True)
    >>> with flambeau.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def _enter(self) -> None:
        grad_mode.enabled = False


class enable_grad(_NoArguments):
    """Context manager or decorator: operations inside are recorded, whatever the surrounding mode is."""

    def _enter(self) -> None:
        grad_mode.enabled = True


class set_grad_enabled(_Switch):
    """Switch recording on or off: at once as a function, restored on exit as a context manager."""

    def __init__(self, mode: bool) -> None:
        self.value = bool(mode)
        self.outer = (_state.enabled, _state.inference)
        _state.enabled = self.value

    def _enter(self) -> None:
        self.before = self.outer
        grad_mode.enabled = self.value

    def __call__(self, function: Function) -> Function:
        grad_mode.enabled = self.outer[0]  # used as a decorator: the switch belongs to the function's calls
        return super().__call__(function)

    def clone(self) -> _Switch:
        return set_grad_enabled(self.value)


class inference_mode(_Switch):
    """Context manager: like `no_grad`, and results can never take part in autograd."""

    def __new__(cls, mode: Any = True) -> Any:
        self = object.__new__(cls)
        if callable(mode):
            self.value = True
            return self(mode)
        return self

    def __init__(self, mode: Any = True) -> None:
        self.value = bool(mode)

    def _enter(self) -> None:
        grad_mode.inference = self.value
        grad_mode.enabled = not self.value
        inference_threads[:0] = (1,)

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        grad_mode.enabled, grad_mode.inference = self.before
        del inference_threads[-1]

    def clone(self) -> _Switch:
        return inference_mode(self.value)


def is_grad_enabled() -> bool:
    """Return whether operations are recorded for backward."""
    return grad_mode.enabled


def is_inference_mode_enabled() -> bool:
    """Return whether inference mode is on."""
    return grad_mode.inference


class set_multithreading_enabled(_Switch):
    """Set whether a backward pass may use several threads, permanently or inside a `with` block. It has no effect: a backward pass runs
    in the calling thread, with kernels on all cores."""

    def __init__(self, mode: bool) -> None:
        self.value, self.outer = bool(mode), _state.multithreading
        _state.multithreading = self.value

    def __enter__(self) -> None:
        grad_mode.multithreading = self.value

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        grad_mode.multithreading = self.outer

    def __call__(self, function: Function) -> Function:
        grad_mode.multithreading = self.outer
        return super().__call__(function)

    def clone(self) -> _Switch:
        return set_multithreading_enabled(self.value)


def is_multithreading_enabled() -> bool:
    """Return the value set by `set_multithreading_enabled`."""
    return grad_mode.multithreading


class set_detect_anomaly:
    """Switch anomaly detection: check gradients for NaN and store the forward line of every operation. A function and a context manager."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = (_state.anomaly, _state.anomaly_check_nan)
        _state.anomaly, _state.anomaly_check_nan = bool(mode), check_nan

    def __enter__(self) -> None:
        pass

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        grad_mode.anomaly, grad_mode.anomaly_check_nan = self.before


class detect_anomaly(set_detect_anomaly):
    """Context manager: errors in the backward pass name the user's own forward line."""

    def __init__(self, check_nan: bool = True) -> None:
        self.before, self.check_nan = (grad_mode.anomaly, grad_mode.anomaly_check_nan), check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for"
            " debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        grad_mode.anomaly, grad_mode.anomaly_check_nan = True, self.check_nan


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Switch anomaly detection on or off in this thread."""
    grad_mode.anomaly, grad_mode.anomaly_check_nan = bool(enabled), check_nan


def is_anomaly_enabled() -> bool:
    """Return whether gradients are checked and errors name the forward line."""
    return grad_mode.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Return whether a NaN in a gradient is an error."""
    return grad_mode.anomaly_check_nan

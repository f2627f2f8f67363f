"""Conversion of the dtype or device of a whole module."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ...core import dtype as dt
from ...core.device import device as Device
from ...core.exchange import swap_tensors
from ...core.graph import unrecorded
from ...core.tensor import Tensor
from ...ops.creation.convert import parse_to
from ...ops.creation.filled import empty_like
from ..parameter import Parameter

_Self = TypeVar("_Self", bound="Conversion")


class ConversionFlags:
    """Switches for how a parameter is converted (see `torch.__future__`)."""

    overwrite = False  # a new Parameter takes its place
    swap = False  # it exchanges all it is with the new tensor; else it gets the new tensor's data


def _data_kind(t: Tensor) -> tuple:
    """Return a key that is equal for tensors that can take over each other's data."""
    return t.device.type == "meta", t.layout


def _swap_tensor(name: str, old: Any, fresh: Any) -> None:
    try:
        swap_tensors(old, fresh)
    except Exception as error:
        raise RuntimeError(f"_apply(): Couldn't swap {name}") from error


def _convert_gradient(name: str, old: Tensor, fresh: Tensor) -> Tensor:
    fresh.requires_grad_(old.requires_grad)
    if ConversionFlags.swap:
        _swap_tensor(name, old, fresh)
    elif ConversionFlags.overwrite or _data_kind(old) != _data_kind(fresh):
        return fresh
    else:
        old.data = fresh
    return old


class Conversion:
    """The conversion methods of Module."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]

    def children(self) -> Any:
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Replace the data of every parameter, gradient and buffer by fn of it."""
        if recurse:
            for child in self.children():
                child._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._apply_to_parameter(name, parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def _apply_to_parameter(self, name: str, parameter: Any, fn: Callable[[Tensor], Tensor]) -> None:
        gradient = parameter.grad
        fresh = unrecorded(fn, parameter)
        fresh_gradient = None if gradient is None else unrecorded(fn, gradient)
        if ConversionFlags.swap:
            _swap_tensor(f"{type(self).__name__}.{name}", parameter, Parameter(fresh, parameter.requires_grad))
        elif ConversionFlags.overwrite or _data_kind(fresh) != _data_kind(parameter):
            parameter = self._parameters[name] = Parameter(fresh, parameter.requires_grad)
        else:
            parameter.data = fresh  # the same Parameter object, so that optimizers keep hold of it
        if fresh_gradient is not None:
            parameter.grad = None
            parameter.grad = _convert_gradient(f"{type(self).__name__}.{name}.grad", gradient, fresh_gradient)

    def _convert_floats(self, d: Any) -> Any:
        return self._apply(lambda t: t.to(d) if t.dtype.is_floating_point else t)

    def to(self: _Self, *args: Any, **kwargs: Any) -> _Self:
        """Move and convert: to(dtype), to(device), to(tensor); only floating point tensors change dtype."""
        d, where, non_blocking, copy, fmt = parse_to(args, dict(kwargs))
        # A parameter's class may have a `to` of its own, which gets a device.
        where = None if where is None else Device(where)
        if copy:
            raise RuntimeError(".to() does not accept copy argument")
        if d is not None and not (d.is_floating_point or d.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={d}")
        if d is not None and d.is_complex:
            warnings.warn(
                "Complex modules are a new feature under active development whose design may change, and some modules might not"
                " work as expected when using complex tensors as parameters or buffers.",
                stacklevel=2,
            )

        def convert(t: Tensor) -> Tensor:
            wanted = d if t.dtype.is_floating_point or t.dtype.is_complex else None
            if fmt is not None and len(t.shape) in (4, 5):
                return t.to(where, wanted, non_blocking, memory_format=fmt)
            return t.to(where, wanted, non_blocking)

        return self._apply(convert)

    def type(self: _Self, dst_type: Any) -> _Self:
        return self._apply(lambda t: t.type(dst_type))

    def float(self: _Self) -> _Self:
        return self._convert_floats(dt.float32)

    def double(self: _Self) -> _Self:
        return self._convert_floats(dt.float64)

    def half(self: _Self) -> _Self:
        return self._convert_floats(dt.float16)

    def bfloat16(self: _Self) -> _Self:
        return self._convert_floats(dt.bfloat16)

    def cpu(self: _Self) -> _Self:
        return self._apply(lambda t: t.cpu())

    def cuda(self: _Self, device: Any = None) -> _Self:
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self: _Self, *, device: Any, recurse: bool = True) -> _Self:
        """Move to a device without copying: the values are undefined afterwards."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

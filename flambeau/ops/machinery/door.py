"""The door: how a primitive with a layout rule is computed, on whatever device its arguments are.

The rule says what the results look like, memory is allocated on their device, and the kernel of that device fills it. On the device
meta that is all: nothing is allocated and no kernel runs. No kernel sees tensors of two devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.backend import backend_of
from ...core.device import cpu, device
from ...core.tensor import Tensor, empty, empty_strided
from .primitive import Saved
from .record import Op


def new_results(op: Op, layout: Callable, hidden: int, returns: Callable | None, runs_empty: bool) -> Callable:
    """The function that computes a primitive into new memory. `hidden` results at the end are for the derivative only."""
    kernels = op.kernels
    names = op.impl.saves

    def compute(*args: Any, **kwargs: Any) -> Any:
        described = layout(*args, **kwargs)
        if type(described) is tuple:  # one result
            out = new(*described)
            where = described[2]
            kernel = kernels.get("cpu") if where is cpu else None
            if kernel is None:
                kernel = kernel_for(op, where)
            if kernel is not None and (runs_empty or 0 not in out.shape):
                _check_devices(op, where, args, kwargs)
                kernel(out, *args, **kwargs)
            return out
        results = [new(*one) for one in described]
        where = described[0][2]
        kernel = kernel_for(op, where)
        if kernel is not None and (runs_empty or any(0 not in out.shape for out in results)):
            _check_devices(op, where, args, kwargs)
            kernel(results, *args, **kwargs)
        public = results[: len(results) - hidden] if hidden else results
        result = (
            public[0] if len(public) == 1 and returns is None else tuple(public) if returns is None else returns(public)
        )
        return Saved(result, **dict(zip(names, results[len(results) - hidden :]))) if hidden else result

    return compute


def changed_argument(op: Op) -> Callable:
    """The function that computes a primitive into its first argument."""

    def compute(destination: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        kernel = kernel_for(op, destination.device)
        if kernel is not None and 0 not in destination.shape:
            _check_devices(op, destination.device, args, kwargs)
            kernel(destination, *args, **kwargs)
        return destination

    return compute


def new(shape: tuple[int, ...], d: Any, where: device, strides: tuple[int, ...] | None = None) -> Tensor:
    """An uninitialised tensor of the layout that a rule describes."""
    return empty(shape, d, where) if strides is None else empty_strided(shape, strides, d, where)


def kernel_for(op: Op, where: device) -> Callable | None:
    """The kernel that computes an operator on a device; None where there is nothing to compute."""
    kind = where.type
    kernel = op.kernels.get(kind)
    if kernel is not None or kind == "meta":
        return kernel
    if "any" in op.kernels and (where is cpu or backend_of(where).compiles):
        return op.kernels["any"]
    known = ", ".join(sorted(op.kernels)) or "none"
    raise NotImplementedError(
        f"Could not run '{op.name}' on the device '{where}': it has no kernel there (it has kernels for: {known}). Move the"
        f" arguments with .to(), or declare one with the operator's `.on({kind!r})`."
    )


def _check_devices(op: Op, where: device, args: tuple, kwargs: dict[str, Any]) -> None:
    """Kernels read memory: all operands must have it, in the same place."""
    for x in args:
        if isinstance(x, Tensor):
            if x.device is not where:
                _refuse(op, where, x)
        elif type(x) is list or type(x) is tuple:
            for y in x:
                if isinstance(y, Tensor) and y.device is not where:
                    _refuse(op, where, y)
    if kwargs:
        _check_devices(op, where, tuple(kwargs.values()), {})


def _refuse(op: Op, where: device, x: Tensor) -> None:
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {where} and {x.device}!"
        f" (when calling {op.name}{'; a tensor on the meta device has no values' if x.device.type == 'meta' else ''})"
    )

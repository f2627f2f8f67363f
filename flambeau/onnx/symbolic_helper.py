"""Helpers for symbolic functions, under PyTorch's names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .builder import Builder, Value
from .dtypes import NUMBER
from .errors import OnnxExporterError, SymbolicValueError

__all__ = ["parse_args", "quantized_args"]

# ONNX's numbers of dtypes by the names of PyTorch's tensor types.
cast_pytorch_to_onnx = {"Byte": 2, "Char": 3, "Double": 11, "Float": 1, "Half": 10, "Int": 6, "Long": 7, "Short": 5, "Bool": 9, "ComplexFloat": 14, "ComplexDouble": 15, "BFloat16": 16, "Undefined": 0}  # fmt: skip


def _constant_or_value(value: Any) -> Any:
    """Return the Python number, list or tensor of a constant value; other values are returned unchanged."""
    if isinstance(value, Value):
        if value.constant is None:
            return value
        return value.constant.item() if value.constant.ndim == 0 else value.constant.tolist()
    return value


def _parse_arg(value: Any, desc: str, arg_name: str | None = None, node_name: str | None = None) -> Any:
    """Convert an argument for a symbolic function: "v" a value, "i" an int, "f" a float, "s" a string, "b" a bool, "is" and "fs" lists, "t"
    a tensor, "none" nothing."""
    if desc in ("none", "v"):
        return value
    found = _constant_or_value(value)
    if isinstance(found, Value):
        raise SymbolicValueError(
            f"ONNX symbolic expected a constant value of the {arg_name!r} argument, got '{value}'", value
        )
    if found is None:
        return None
    kinds: dict[str, Callable] = {
        "i": int,
        "b": bool,
        "f": float,
        "s": str,
        "is": lambda v: [int(n) for n in v],
        "fs": lambda v: [float(n) for n in v],
        "t": np.asarray,
    }
    if desc not in kinds:
        raise OnnxExporterError(f"ONNX symbolic does not know the kind of argument '{desc}'")
    try:
        return kinds[desc](found)
    except (TypeError, ValueError):
        raise SymbolicValueError(
            f"ONNX symbolic expected the {arg_name!r} argument as '{desc}', got '{found}'", value
        ) from None


def parse_args(*arg_descriptors: str) -> Callable[[Callable], Callable]:
    """Decorator of a symbolic function: declare the kind of each argument."""

    def decorate(fn: Callable) -> Callable:
        names = list(inspect.signature(fn).parameters)[1:]

        @functools.wraps(fn)
        def wrapper(g: Builder, *args: Any, **kwargs: Any) -> Any:
            args = args[: len(arg_descriptors)]
            parsed = [_parse_arg(a, d, n, fn.__name__) for a, d, n in zip(args, arg_descriptors, names)]
            return fn(g, *parsed, **kwargs)

        return wrapper

    return decorate


def quantized_args(*arg_q_descriptors: bool, **options: Any) -> Callable[[Callable], Callable]:
    """Decorator of a symbolic function for quantized tensors, without effect: such functions get no quantized tensors here."""
    return lambda fn: fn


def _is_value(x: Any) -> bool:
    return isinstance(x, Value)


def _is_none(x: Any) -> bool:
    return x is None


def _is_constant(value: Any) -> bool:
    return not isinstance(value, Value) or value.constant is not None


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Value)


def _is_list(x: Any) -> bool:
    return isinstance(x, (list, tuple))


_is_packed_list = _is_tensor_list = _is_list


def _unpack_list(values: Any) -> list[Any]:
    return list(values)


def _get_const(value: Any, desc: str, arg_name: str) -> Any:
    return _parse_arg(value, desc, arg_name)


def _maybe_get_const(value: Any, descriptor: str) -> Any:
    return _parse_arg(value, descriptor) if _is_constant(value) else value


def _maybe_get_scalar(value: Any) -> Any:
    return _constant_or_value(value)


def _scalar(x: Any) -> Any:
    found = _constant_or_value(x)
    return None if isinstance(found, (Value, list)) else found


def _get_tensor_rank(x: Value) -> int | None:
    return x.rank


def _get_tensor_sizes(x: Value, allow_nonstatic: bool = True) -> list[int | None] | None:
    return x.type().sizes()


def _get_tensor_dim_size(x: Value, dim: int) -> int | None:
    sizes = _get_tensor_sizes(x)
    return None if sizes is None else sizes[dim]


def _try_get_scalar_type(*args: Value) -> Any:
    return next((a.dtype for a in args if isinstance(a, Value) and a.dtype is not None), None)


def _is_fp(value: Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point


def _is_bool(value: Value) -> bool:
    return value.dtype is not None and NUMBER[value.dtype] == 9


def _unsqueeze_helper(g: Builder, input: Value, axes_i: Sequence[int]) -> Value:
    return g.unsqueeze(input, axes_i)


def _squeeze_helper(g: Builder, input: Value, axes_i: Sequence[int]) -> Value:
    return g.squeeze(input, axes_i)


def _reshape_helper(g: Builder, input: Value, shape: Any, allowzero: int = 0) -> Value:
    return g.reshape(input, shape, bool(allowzero))


def _slice_helper(g: Builder, input: Value, axes: Any, starts: Any, ends: Any, steps: Any = None) -> Value:
    return g.slice(input, axes, starts, ends, steps)


def _size_helper(g: Builder, self: Value, dim: Any) -> Value:
    return g.number(g.size(self, _parse_arg(dim, "i")), None)


def _reducesum_helper(
    g: Builder, input: Value, axes_i: Any = None, keepdims_i: int = 1, noop_with_empty_axes_i: int = 0
) -> Value:
    return g.reduce("ReduceSum", input, axes_i, bool(keepdims_i))


def _unimplemented(op: str, msg: str, value: Any = None) -> None:
    raise NotImplementedError(f"{op}: {msg}")


_onnx_unsupported = _unimplemented

"""Arguments of convolutions: operands and channels checked, strides, padding and dilation in canonical form."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any, TypeAlias

from ...core import dtype as dt
from ...core.tensor import Tensor
from ...core.typenames import type_name
from ..machinery.arguments import is_int
from ..machinery.dtype_rules import unsupported

Window: TypeAlias = tuple[Any, ...]  # (stride, ((low, high), ...) padding, dilation, groups)


def as_sizes(value: Any, dims: int, name: str) -> tuple[int, ...]:
    if isinstance(value, int) or is_int(value):
        return (int(value),) * dims
    values = tuple(map(operator.index, value))
    if len(values) == 1:
        return values * dims
    if len(values) != dims:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {dims} values to match the convolution dimensions, but got {name}={list(values)}"
        )
    return values


# -- checks ---------------------------------------------------------------------------------------------------------------


def check_operands(name: str, input: Tensor, weight: Tensor, bias: Tensor | None, dims: int) -> None:
    """Raise PyTorch's errors about types, ranks and dtypes."""
    for label, t in (("input", input), ("weight", weight), ("bias", bias)):
        if not isinstance(t, Tensor) and (t is not None or label != "bias"):
            raise TypeError(
                f"{name}() received an invalid combination of arguments: {label} must be Tensor, not {type(t).__name__}"
            )
    rank = len(weight.shape)
    if rank < 3:
        raise RuntimeError("weight should have at least three dimensions")
    if rank != dims + 2:
        raise RuntimeError(
            f"Expected {rank}-dimensional input for {rank}-dimensional weight {list(weight.shape)}, but got"
            f" {len(input.shape)}-dimensional input of size {list(input.shape)} instead"
        )
    if len(input.shape) not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got input of size: {list(input.shape)}"
        )
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"Input type ({input.type()}) and weight type ({weight.type()}) should be the same")
    if bias is not None and bias.dtype is not input.dtype:
        raise RuntimeError(f"Input type ({input.type()}) and bias type ({bias.type()}) should be the same")


def check_channels(
    name: str, input: Tensor, weight: Tensor, bias: Tensor | None, dims: int, groups: int, transposed: bool
) -> bool:
    """Raise PyTorch's errors about groups and channels; return whether the input is batched."""
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if weight.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size"
            f" {list(weight.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size"
            f" {list(weight.shape)} instead"
        )
    batched = len(input.shape) == dims + 2
    channels = input.shape[1 if batched else 0]
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if channels != expected:
        raise RuntimeError(
            f"Given {'transposed=1, ' if transposed else f'groups={groups}, '}weight of size {list(weight.shape)}, expected input{list(input.shape)} to have {expected} channels,"
            f" but got {channels} channels instead"
        )
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and bias.shape != (out_channels,):
        raise RuntimeError(
            f"Given {'transposed=1, ' if transposed else ''}weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {out_channels} elements, but got bias of size"
            f" {list(bias.shape)} instead"
        )
    if input.dtype is dt.bool_:
        raise unsupported(name, input.dtype)
    return batched


def read_window(dims: int, kernel: tuple[int, ...], stride: Any, padding: Any, dilation: Any, groups: int) -> Window:
    stride = as_sizes(stride, dims, "stride")
    dilation = as_sizes(dilation, dims, "dilation")
    if not isinstance(padding, str):
        padding = as_sizes(padding, dims, "padding")
    if not is_int(groups):  # 2.0 and True would be found again for 2 and 1
        raise TypeError(f"conv{dims}d(): argument 'groups' (position 7) must be int, not {type_name(groups)}")
    return _checked_window(kernel, stride, padding, dilation, int(groups))


@lru_cache(1024)
def _checked_window(
    kernel: tuple[int, ...], stride: tuple[int, ...], padding: Any, dilation: tuple[int, ...], groups: int
) -> Window:
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError("dilation should be greater than zero")
    if isinstance(padding, str):
        if padding == "valid":
            pads = ((0, 0),) * len(kernel)
        elif padding == "same":
            if any(s != 1 for s in stride):
                raise RuntimeError("padding='same' is not supported for strided convolutions")
            pads = tuple((d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2) for k, d in zip(kernel, dilation))
        else:
            raise RuntimeError(f"Invalid padding string: {padding!r}; it should be 'valid' or 'same'")
    else:
        if any(p < 0 for p in padding):
            raise RuntimeError("negative padding is not supported")
        pads = tuple((p, p) for p in padding)
    if 0 in kernel:
        sizes = " x ".join(map(str, kernel)) + " (TxHxW)"
        if len(kernel) < 3:
            height, width = (1, *kernel)[-2:]
            sizes = f"kernel_height: {height} kernel_width: {width}"
        raise RuntimeError(f"kernel size should be greater than zero, but got{':' * (len(kernel) > 2)} {sizes}")
    return stride, pads, dilation, groups


known_windows: dict[tuple[Any, ...], Window] = {}  # calls that went well


def call_key(name: str, input: Any, weight: Any, bias: Any, settings: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return a key of everything that the checks of a call read; None if it has other arguments than tensors and numbers."""
    if not isinstance(input, Tensor) or not isinstance(weight, Tensor):
        return None
    added = bias if bias is None else (bias.shape, bias.dtype) if isinstance(bias, Tensor) else ()
    if added == () or any(type(value) not in (int, tuple, str) for value in settings):
        return None
    return name, input.shape, weight.shape, input.dtype, weight.dtype, added, settings

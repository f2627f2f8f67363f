"""Norms of many tensors, and products of many with one number, in one launch each, for gradient clipping.

Only if all tensors are dense float32 tensors of one device that has such launches, and no mode must see single calls; otherwise the functions
return None or False, and the caller goes through the list."""

from __future__ import annotations

import functools
from typing import Any

from ...core import modes
from ...core.backend import backend_of
from ...core.device import device
from ...core.dtype import float32
from ...core.layout import is_non_overlapping_and_dense
from ...core.raw_memory import first_address as address
from ...core.tensor import Tensor, empty, numel_of
from ...expr.node import arg
from ...kernels.reduction_parts import Reduction as Parts
from ..machinery.inplace import bump_all
from .norms import BY_ORDER


def norms_of_list(tensors: list[Tensor], order: float) -> Tensor | None:
    """Return the norms of tensors, one after the other."""
    run = _norms(order, tensors[0].device) if order in BY_ORDER and _are_alike(tensors) else None
    if run is None:
        return None
    with modes.named_range("aten::_foreach_norm"):
        out = empty((len(tensors),), float32, tensors[0].device)
        run([(address(t), out._storage.ptr + 4 * i, numel_of(t.shape)) for i, t in enumerate(tensors)])
    return out


def scale_list(tensors: list[Tensor], factor: Tensor) -> bool:
    """Multiply tensors by a number in place. Return whether that was done."""
    run = _products(factor.device) if _are_alike([*tensors, factor]) and numel_of(factor.shape) == 1 else None
    if run is None or len(set(map(address, tensors))) < len(tensors):  # one that is there twice is scaled twice
        return False
    with modes.named_range("aten::_foreach_mul_"):
        number = address(factor)
        run([(address(t), number, numel_of(t.shape)) for t in tensors], ())
        bump_all(tensors, "mul_")
    return True


def _are_alike(tensors: list[Tensor]) -> bool:
    where = tensors[0].device
    if backend_of(where).on_host or (modes.active and (modes.deciding() or modes.asking())):
        return False
    return all(
        type(t) is Tensor and t.dtype is float32 and t.device is where and not t.requires_grad and is_one_piece(t.shape, t._strides)
        for t in tensors
    )  # fmt: skip


@functools.lru_cache(4096)
def is_one_piece(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether a tensor has elements and they fill a stretch of memory without gaps, in any order."""
    return 0 not in shape and is_non_overlapping_and_dense(shape, strides)


@functools.cache
def _norms(order: float, where: device) -> Any:
    impl = BY_ORDER[order]
    compute, acc, out = impl.rule(impl, float32, None)
    parts = Parts(impl.trace((float32,), compute), impl.combine, impl._final(), (float32,), out, acc, 0, 1, "c")
    return backend_of(where).compile_reductions(parts, where)


@functools.cache
def _products(where: device) -> Any:
    return backend_of(where).compile_lists((arg(0) * arg(1),), (float32, float32), (0,), (), where, 1)

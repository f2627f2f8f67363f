"""Random fills of tensors: the generator argument, and the order in which elements get their numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.generator import Generator, default_generator
from ...core.graph import grad_mode
from ...core.random_algorithms import place
from ...core.tensor import Tensor, empty, numel_of
from ...core.typenames import type_name
from ..creation.filled import zeros_like
from ..machinery.arguments import need_tensor
from ..machinery.declare import effect
from ..machinery.inplace import check_writable, rebase_history
from ..machinery.plan import NATIVE
from ..machinery.primitive import Primitive
from ..machinery.quirks import Quirks
from .samplers import Sampler


def as_generator(value: Any, name: str) -> Generator:
    """Return the generator= argument; None is the default generator."""
    if value is None:
        return default_generator
    if not isinstance(value, Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type_name(value)}")
    return value


def store(t: Tensor, flat: np.ndarray) -> None:
    """Store values in visited order as the elements of `t`. No autograd, no change of the version."""
    if not t._contig:
        t._array()[...] = place(flat, t.shape, t._strides)
    elif flat.nbytes:
        flat = np.ascontiguousarray(flat, t.dtype.numpy)
        ctypes.memmove(t.data_ptr(), flat.ctypes.data, flat.nbytes)


@effect(name="random_fill", draws=True, batching="each")
def fill(t: Tensor, generator: Generator, sample: Sampler) -> Tensor:
    """Fill `t` with random numbers. No autograd, no change of the version."""


@fill.on("cpu")
def _(t: Tensor, generator: Generator, sample: Sampler) -> None:
    n = numel_of(t.shape)
    if NATIVE:
        if t._contig:
            if sample.native(t, n, generator, True):
                return
        else:
            flat = empty((n,), t.dtype, t.device)
            if sample.native(flat, n, generator, False):
                store(t, flat._array())
                return
    store(t, sample.flat(generator, n, t.dtype, t._contig))


def _forgotten(label: str) -> Primitive:
    """Return the graph node of a tensor whose values were replaced by random ones: no gradient passes."""

    def overwritten(input: Tensor) -> Tensor:
        return input._bare_alias()

    return Primitive(overwritten, {"input": lambda g: zeros_like(g)}, Quirks(label=label))


_FORGOTTEN: dict[str, Primitive] = {}


def fill_inplace(t: Tensor, name: str, label: str, change: Callable[[], Any]) -> Tensor:
    """Run an in-place random operator: check that `t` may be written, `change` it, and set its history."""
    need_tensor(name, t, "self")
    check_writable(t)
    node = None
    if grad_mode.enabled and t.requires_grad:
        primitive = _FORGOTTEN.setdefault(label, _forgotten(label))
        node = primitive(t).grad_fn
    change()
    t._bump(name)
    if node is not None:
        rebase_history(t, node, 0)
    return t

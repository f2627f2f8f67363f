"""Kinds of tensors by which PyTorch traces programs. Programs ask whether a tensor is one of them; here none is: shapes are followed by
tensors on the device "meta", and recordings are made of real ones."""

from __future__ import annotations

from typing import Any, NoReturn

from ...core.overrides import disabled_torch_function
from ...core.tensor import Tensor

__all__ = ["FakeTensor", "FakeTensorMode", "FunctionalTensor", "is_fake"]


class FakeTensor(Tensor):
    """The class of PyTorch's tensors without values. No tensor is one: `device="meta"` makes tensors without values here."""

    __torch_function__ = disabled_torch_function  # operators need not look for it

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{cls.__name__} is PyTorch's own; make tensors without values with device='meta'")


class FunctionalTensor(FakeTensor):
    """The class of PyTorch's tensors whose changes are recorded as new tensors. No tensor is one."""


class FakeTensorMode:
    """The mode in which PyTorch makes tensors without values; `with torch.device("meta")` does so here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError('FakeTensorMode is PyTorch\'s own; use `with torch.device("meta"):` instead')


def is_fake(x: Any) -> bool:
    """Return whether `x` is one of PyTorch's fake tensors; no tensor of this library is."""
    return isinstance(x, FakeTensor)

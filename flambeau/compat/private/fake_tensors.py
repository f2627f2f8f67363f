"""Kinds of tensors with which PyTorch traces programs. Programs test whether a tensor is one of them; here none is: shapes are computed by
tensors on the device "meta", and recordings use real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ...core.overrides import disabled_torch_function
from ...core.tensor import Tensor


class FakeTensor(Tensor):
    """The class of PyTorch's tensors without values. It has no instances: `device="meta"` makes tensors without values here."""

    __torch_function__ = disabled_torch_function  # operators need not look for it

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{cls.__name__} is PyTorch's own; make tensors without values with device='meta'")


class FunctionalTensor(FakeTensor):
    """The class of PyTorch's tensors whose changes are recorded as new tensors. It has no instances."""


class FakeTensorMode:
    """The mode in which PyTorch makes tensors without values; `with torch.device("meta")` does so here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError('FakeTensorMode is PyTorch\'s own; use `with torch.device("meta"):` instead')


def is_fake(x: Any) -> bool:
    """Return whether `x` is one of PyTorch's fake tensors; no tensor of this library is."""
    return isinstance(x, FakeTensor)


def active_fake_mode() -> None:
    """Return None: no mode of fake tensors is ever on."""


def detect_fake_mode(inputs: Any = None) -> None:
    """Return None: no tensor is a fake one."""


class TracingContext:
    """State of PyTorch's compiler during tracing; it never exists here."""

    @staticmethod
    def try_get() -> None:
        """Return None."""


def valid_vec_isa_list() -> list[Any]:
    """Return []: PyTorch's compiler generates C++ for vector instruction sets; kernels here are compiled by LLVM."""
    return []


@contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """Context manager: yield the mode of fake tensors that was on before, here always None."""
    yield None


def extract_kwargs(arg: Any) -> dict[str, Any]:
    """Return the arguments besides the values that make a nested tensor with the same rows."""
    return {"offsets": arg.offsets(), "lengths": arg.lengths()}

"""Rarely used methods of tensors: former names, devices that are not supported, loading of a tensor by a module."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from ..core import naming
from ..core.backend import backend_of
from ..core.tensor import Tensor


def delete_item(self: Tensor, index: Any) -> NoReturn:
    """Raise TypeError: a tensor's shape does not change."""
    raise TypeError("Tensor does not support deleting items")


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """Return the tensor that `load_state_dict` makes of a parameter and the tensor loaded for it: a copy into it, or the loaded one."""
    return other.detach() if assign else self.copy_(other).detach()


def resize(self: Tensor, *sizes: Any) -> Tensor:
    """Return the elements in another shape. Deprecated: use `reshape`."""
    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    return self.view(*sizes)


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Return the elements in the shape of another tensor. Deprecated: use `reshape_as`."""
    warnings.warn("non-inplace resize_as is deprecated", stacklevel=2)
    return self.view(tensor.size())


def reinforce(self: Tensor, reward: Any) -> NoReturn:
    """Raise an error: removed from PyTorch; use `distributions` and `log_prob`."""
    raise RuntimeError(
        "reinforce() was removed.\nUse torch.distributions instead: loss = -distribution.log_prob(action) * reward"
    )


def _on_absent_device(name: str, error: type[Exception], message: str) -> Callable:
    def method(self: Tensor, device: Any = None, non_blocking: bool = False, **options: Any) -> NoReturn:
        raise error(message)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"A copy on an {name.upper()} device, which Flambeau does not drive."
    return method


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """Return address and layout of a tensor on a GPU, for other libraries. Only tensors on a GPU have it."""
    if self.is_cuda:
        if self.requires_grad:
            raise RuntimeError(
                "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use"
                " var.detach() to get Variable that doesn't require grad."
            )
        size = self.dtype.itemsize
        return {
            "typestr": "|b1"
            if self.dtype.kind == "b"
            else f"<{'f' if self.dtype.kind == 'f' else self.dtype.kind}{size}",
            "shape": tuple(self.shape),
            "strides": None if self.is_contiguous() else tuple(s * size for s in self.stride()),
            "data": (self.data_ptr() if self.numel() else 0, False),
            "version": 2,
        }
    raise AttributeError(
        f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA data is required use"
        " tensor.cuda() to copy tensor to device memory."
    )


def record_stream(self: Tensor, s: Any) -> None:
    """Note that work on the stream `s` uses the tensor: its memory is reused only when that work is done."""
    if not self.is_cuda:
        raise NotImplementedError(
            f"Could not run 'aten::record_stream' with arguments from the '{self.device.type.upper()}' backend: it has no streams"
        )
    backend_of(self.device).record_stream(self._storage.ptr, s.cuda_stream, self.device)


_METHODS: dict[str, Any] = {
    "record_stream": record_stream,
    "__delitem__": delete_item,
    "__long__": Tensor.__int__,
    "__nonzero__": Tensor.__bool__,
    "__cuda_array_interface__": property(cuda_array_interface),
    "module_load": module_load,
    "resize": resize,
    "resize_as": resize_as,
    "reinforce": reinforce,
    "xpu": _on_absent_device("xpu", AssertionError, "Torch not compiled with XPU enabled"),
    "ipu": _on_absent_device("ipu", RuntimeError, "PyTorch is not linked with support for ipu devices"),
    "mtia": _on_absent_device("mtia", AssertionError, "Torch not compiled with MTIA enabled."),
}


def bind_rare_methods() -> None:
    """Add these methods to tensors, and a description to those that have none."""
    for name, method in _METHODS.items():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, method)
    for name, text in naming.table("descriptions_of_methods").items():
        method = vars(Tensor).get(name)
        if method is not None and not method.__doc__:
            method.__doc__ = text

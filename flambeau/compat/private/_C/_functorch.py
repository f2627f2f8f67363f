"""Names of PyTorch's compiled `vmap`: tensors with a hidden batch dimension."""

from __future__ import annotations

from typing import Any

from ....core.absent import raising
from ....core.batched import BatchedTensor
from ....func.mapping import _add_batch_dim, _remove_batch_dim

__all__ = [
    "_add_batch_dim",
    "_remove_batch_dim",
    "get_unwrapped",
    "is_batchedtensor",
    "is_functorch_wrapped_tensor",
    "is_gradtrackingtensor",
    "maybe_get_bdim",
    "maybe_get_level",
]


def is_batchedtensor(tensor: Any) -> bool:
    """Return whether a tensor has a hidden batch dimension of `vmap`."""
    return isinstance(tensor, BatchedTensor)


is_functorch_wrapped_tensor = is_batchedtensor


def is_gradtrackingtensor(tensor: Any) -> bool:
    """Return False: `grad` and `jvp` record on plain tensors."""
    return False


def get_unwrapped(tensor: Any) -> Any:
    """Return the tensor with the hidden batch dimension visible."""
    return tensor._value if is_batchedtensor(tensor) else tensor


def maybe_get_level(tensor: Any) -> int:
    """Return -1 for a plain tensor, or else the depth of the `vmap` that made it."""
    return tensor._level.depth if is_batchedtensor(tensor) else -1


def maybe_get_bdim(tensor: Any) -> int:
    """Return -1 for a plain tensor, or else the dimension of the batch."""
    return tensor._hidden if is_batchedtensor(tensor) else -1


globals().update(
    raising(
        "_vmap_increment_nesting _vmap_decrement_nesting _wrap_for_grad _unwrap_for_grad",
        NotImplementedError,
        "torch._C._functorch.{}() is PyTorch's own step of a transformation; use flambeau.vmap and flambeau.func",
    )
)

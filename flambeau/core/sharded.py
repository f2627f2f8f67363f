"""Tensors whose parts are on several ranks: how operators detect one.

Such a tensor (`distributed.tensor.DTensor`) has the shape and dtype of the whole, and no strides or address: code for strided memory that
reads one raises `ShardedOperand` before it can touch anything. The operator's public face catches that (`ops.machinery.public`) and asks the
tensor what to do instead, so calls on plain tensors pay nothing for the existence of spread ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .absent import unreadable
from .overrides import disabled_torch_function
from .sparse import SparseOperand
from .tensor import Tensor


class ShardedOperand(SparseOperand):
    """Raised when code for the memory of one process reads a tensor that is spread over several."""

    def __init__(self, tensor: Any):
        super().__init__(
            "a DTensor has no memory of its own: this cannot be done with one as it is. Call to_local() for the part of this rank,"
            " or full_tensor() for the whole"
        )
        self.tensor = tensor

    def instead(self, face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        """Return the call to make in place of the one that read the tensor."""
        return functools.partial(self.tensor._call_spread, face, args, kwargs)


class SpreadTensor(Tensor):
    """The base of tensors whose parts are on several ranks. A subclass implements calls on it (`_call_spread`)."""

    __torch_function__ = disabled_torch_function

    _strides, _offset, _contig = unreadable(lambda t, what: ShardedOperand(t))

    def _call_spread(self, face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of an operator that has this tensor among its arguments."""
        raise NotImplementedError

    def _mold(self) -> Callable[[Tensor], Any]:
        """Return the function that makes a tensor like this one from another part for this rank."""
        raise NotImplementedError

    def _beside(self, other: Tensor) -> Tensor:
        """Return this rank's part of another tensor of the same shape, with this tensor's placements."""
        raise NotImplementedError


ShardedOperand.__name__ = ShardedOperand.__qualname__ = "NotImplementedError"  # what a traceback shows
ShardedOperand.__module__ = "builtins"

"""Tensors that stand for parts on several ranks: how operators notice one.

Such a tensor (`distributed.tensor.DTensor`) has the shape and dtype of the whole, and no strides or address: code for strided memory
that reads one meets `ShardedOperand` before it can touch anything. The operator's public face catches that (`ops.machinery.public`)
and asks the tensor what to do instead, so calls on plain tensors pay nothing for the existence of spread ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .sparse import SparseOperand


class ShardedOperand(SparseOperand):
    """Raised where code for the memory of one process meets a tensor that is spread over several."""

    def __init__(self, tensor: Any):
        super().__init__(
            "a DTensor has no memory of its own: this cannot be done with one as it is. Call to_local() for the part of this rank,"
            " or full_tensor() for the whole"
        )
        self.tensor = tensor

    def instead(self, face: Any, args: tuple, kwargs: dict[str, Any]) -> Callable[[], Any]:
        """The call to make in the place of the one that met the tensor."""
        return functools.partial(self.tensor._call_spread, face, args, kwargs)


ShardedOperand.__name__ = ShardedOperand.__qualname__ = "NotImplementedError"  # what a traceback shows
ShardedOperand.__module__ = "builtins"

"""Scores that a loss saves without copying them: large ones exist once, and their gradient is stored over them.

A caller may change scores between the loss and its backward pass. Scores that a linear layer has made need no copy nevertheless: if they
were changed, they are computed again from what the layer has saved for its own derivative."""

from __future__ import annotations

import sys
from typing import Any

from ...core import modes
from ...core.backend import backend_of
from ...core.device import cpu
from ...core.graph import RETRY_MESSAGE, grad_mode, unrecorded, unusual
from ...core.tensor import Tensor
from ..linalg.linear import product_again

_LARGE = 1 << 24  # bytes of scores that are worth it
_HOLDERS = 3  # of scores that nobody else has: what is saved, the rule's argument, and the question


class KeptScores:
    """The memory of scores with the state that it had, and the node of the linear layer that made them."""

    def __init__(self, scores: Tensor, node: Any):
        self.scores, self.node = scores._bare_alias(), node
        self.state = scores._storage.change_state()

    def read(self) -> Tensor:
        """Return the scores as they were."""
        storage = self.scores._storage
        if storage.change_state() == self.state and not getattr(storage, "fixed", False):
            return self.scores
        found = unrecorded(product_again, self.node)
        if found is None:
            raise RuntimeError(RETRY_MESSAGE)  # as the layer's own derivative says
        return found.reshape(self.scores.shape)


def kept_without_copy(input: Tensor) -> KeptScores | None:
    """Return how to keep scores without a copy; None if they are small, on the CPU, watched by a mode, or not simply a linear layer's."""
    made = input if input._base is None else input._base
    if input.device is cpu or input.numel() * input.dtype.itemsize < _LARGE or unusual or type(input) is not Tensor:
        return None
    if not all(mode.stays or mode.only_looks for mode in modes.own.stack) or getattr(input._storage, "fixed", False):
        return None
    whole = made._contig and input._contig and made.numel() == input.numel() and len(input.shape) == 2
    node = made.grad_fn if whole and input._storage is made._storage else None
    return None if product_again(node, False) is None else KeptScores(input, node)


def are_free(scores: Tensor) -> bool:
    """Return whether a rule may store over saved scores: nobody else holds them, and no derivative reads them again."""
    if grad_mode.enabled or not grad_mode.frees or not scores._contig or len(scores.shape) != 2:
        return False
    return sys.getrefcount(scores._storage) == _HOLDERS and backend_of(scores.device).is_private(scores._storage)

"""Flambeau: a deep-learning framework with PyTorch's interface, written in Python."""

from . import autograd, ops
from .core.dtype import ALIASES, BY_NAME
from .core.size import Size
from .core.tensor import Tensor

globals().update(BY_NAME)
globals().update(ALIASES)
globals().update(ops.namespace("torch"))

from .autograd import no_grad  # noqa: E402

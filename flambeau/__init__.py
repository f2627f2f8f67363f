"""Flambeau: a deep-learning framework with PyTorch's interface, written in Python."""

from . import autograd, ops
from .core.dtype import ALIASES, BY_NAME
from .core.size import Size
from .core.tensor import Tensor

globals().update(BY_NAME)
globals().update(ALIASES)
globals().update(ops.namespace("torch"))

from . import nn, random  # noqa: E402
from .autograd import no_grad  # noqa: E402
from .random import (  # noqa: E402
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)

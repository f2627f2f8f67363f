"""Operators whose policy depends on their arguments, or that autocast computes in another way.

Each function gets the operator and the arguments of a call and returns the policy and the function to run."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.casts import casts
from ..core.dtype import float32
from ..core.tensor import Tensor
from ..ops.nn import rnn

Case = tuple[str, Callable]


def _pad(run: Callable, args: tuple, kwargs: dict) -> Case:
    """Mirrored and repeated borders are made in float32, except mirrored ones of volumes."""
    widths = kwargs.get("pad", args[1] if len(args) > 1 else ())
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
    in_float32 = mode == "replicate" or (mode == "reflect" and len(widths) < 6)
    return ("float32" if in_float32 else "parts"), run


def _max_pool3d(run: Callable, args: tuple, kwargs: dict) -> Case:
    """In float32, unless the places of the maxima are wanted, too: that is another operator in PyTorch."""
    indices = kwargs.get("return_indices", args[6] if len(args) > 6 else False)
    return ("" if indices else "float32"), run


def _inner(run: Callable, args: tuple, kwargs: dict) -> Case:
    """A product of matrices chooses; the inner product of two vectors is a dot product, which does not."""
    operands = (*args, *kwargs.values())
    return ("" if all(len(getattr(t, "shape", ())) < 2 for t in operands) else "parts"), run


def _tensordot(run: Callable, args: tuple, kwargs: dict) -> Case:
    """The same, where nothing of either tensor is left over."""
    bound = dict(zip(("a", "b", "dims"), args), **kwargs)
    a, b, dims = bound.get("a"), bound.get("b"), bound.get("dims", 2)
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return "parts", run  # the operator's to report
    if isinstance(dims, int):
        pair: Any = (range(len(a.shape) - dims, len(a.shape)), range(dims))
    else:
        pair = dims.tolist() if isinstance(dims, Tensor) else dims
    left_over = [_left_over(t, d) for t, d in zip((a, b), pair)]
    return ("" if left_over == [1, 1] else "parts"), run


def _left_over(t: Tensor, contracted: Any) -> int:
    rank = len(t.shape)
    gone = {d % rank for d in ([contracted] if isinstance(contracted, int) else contracted)} if rank else set()
    return math.prod(n for d, n in enumerate(t.shape) if d not in gone)


def _pinv(run: Callable, args: tuple, kwargs: dict) -> Case:
    """A decomposition in float32 whose factors are multiplied in the lower precision."""
    lower = casts.dtype

    def rounded(*args: Any, **kwargs: Any) -> Tensor:
        result = run(*args, **kwargs)
        return result.to(lower) if result.dtype is float32 else result

    return "float32", rounded


def _lstm(run: Callable, args: tuple, kwargs: dict) -> Case:
    """As a whole in the lower precision; packed or projected, step by step."""
    packed = isinstance(args[1], Tensor)
    h, c = args[2] if packed else args[1]
    if packed or h.shape[-1] != c.shape[-1]:
        return "parts", partial(rnn.composed_network, "lstm")
    return "lower", run


def _step_by_step(kind: str, run: Callable, args: tuple, kwargs: dict) -> Case:
    """The products of every step in the lower precision, the gates in what follows from the state's dtype."""
    return "parts", partial(rnn.composed_network, kind)


def _one_step(kind: str, run: Callable, args: tuple, kwargs: dict) -> Case:
    return "parts", partial(rnn.composed_cell, kind)


# By PyTorch's names, as in policies.
SPECIAL_CASES: dict[str, Callable[[Callable, tuple, dict], Case]] = {
    "inner": _inner,
    "max_pool3d": _max_pool3d,
    "pad": _pad,
    "linalg_pinv": _pinv,
    "tensordot": _tensordot,
    "lstm": _lstm,
    "gru": partial(_step_by_step, "gru"),
    "rnn_tanh": partial(_step_by_step, "tanh"),
    "rnn_relu": partial(_step_by_step, "relu"),
    "lstm_cell": partial(_one_step, "lstm"),
    "gru_cell": partial(_one_step, "gru"),
    "rnn_tanh_cell": partial(_one_step, "tanh"),
    "rnn_relu_cell": partial(_one_step, "relu"),
}


def _refused(run: Callable, args: tuple, kwargs: dict) -> Case:
    """PyTorch refuses this loss on CUDA: a sigmoid in half precision before it would lose too much."""
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a sigmoid layer right"
        " before the binary cross entropy layer.\nIn this case, combine the two layers using"
        " torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and"
        " BCEWithLogits are\nsafe to autocast."
    )


CUDA_SPECIAL_CASES: dict[str, Callable[[Callable, tuple, dict], Case]] = {
    "binary_cross_entropy": _refused,
    "inner": _inner,
}

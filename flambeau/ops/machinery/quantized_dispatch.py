"""Forms of operators for quantized tensors, and how a call finds them: see `public.recourse`, which meets a
`QuantizedOperand` (core.quantized) where a strided kernel was about to read one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import naming
from ...core.pytree import tree_flatten, tree_map
from ...core.quantized import QuantizedRefusal, QuantizedTensor, wrap
from ...core.tensor import Tensor
from .record import Op


def quantized_form(*operators: Any) -> Callable[..., Any]:
    """Decorator: declare the form that operators have for quantized arguments, in their records."""

    def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
        for operator in operators:
            if operator.op.quantized is not None:
                raise ValueError(f"the quantized form of '{operator.op.name}' is declared twice")
            operator.op.quantized = fn
        return fn

    return declare


def quantized_call(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str | None = None) -> Any:
    """Call the quantized form of an operator, or refuse: because an operator it is made of refused (`reason`), or because it has none. A view
    of a tensor with one scale is the same view of the codes."""
    naming.above("ops.quantizing.operators")  # the forms, when the first is needed
    form = op.quantized
    if form is not None:
        return form(*args, **kwargs)
    if op.kind == "view":
        return on_codes(op.function, args, kwargs)
    raise QuantizedRefusal(
        reason
        or f"Could not run 'aten::{op.name}' with arguments from the 'QuantizedCPU' backend. This operator does not exist for"
        " quantized tensors; call dequantize() on them first if a result in floats is what you want."
    )


def on_codes(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a function that only moves elements, by applying it to the codes."""
    given = next(x for x in tree_flatten((args, kwargs))[0] if isinstance(x, QuantizedTensor))
    if not given._quantizer.per_tensor:
        raise RuntimeError("Setting strides is possible only on uniformly quantized tensor")

    def codes(x: Any) -> Any:
        return x._codes if isinstance(x, QuantizedTensor) else x

    def wrapped(x: Any) -> Any:
        return wrap(x, given._quantizer, given.dtype) if isinstance(x, Tensor) and x.dtype is given._codes.dtype else x

    args, kwargs = tree_map(codes, (args, kwargs))
    return tree_map(wrapped, function(*args, **kwargs))

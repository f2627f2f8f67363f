"""`torch._foreach_*`: one operator over lists of tensors, as optimizers and gradient clipping of many programs call it.

Each name runs the operator of a tensor once for every tensor of the list. Where PyTorch takes a second list, a list of numbers, a
number or a tensor of no dimensions, so does this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.tensor import Tensor
from ..reduce.norms import vector_norm

_UNARY = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round
rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"""
UNARY_NAMES = _UNARY.split()
_BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "clamp_min", "clamp_max")
_TERNARY = ("addcmul", "addcdiv")


def _tensors(name: str, value: Any, position: int = 1, argument: str = "self") -> list[Tensor]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"{name}(): argument '{argument}' (position {position}) must be tuple of Tensors, not {type(value).__name__}"
        )
    for i, t in enumerate(value):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument {position - 1}, but got {type(t).__name__}")
    if not value:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return list(value)


def _spread(tensors: list[Tensor], other: Any) -> Sequence[Any]:
    """Return the second operand of each tensor of a list: one for each, or one for all."""
    if isinstance(other, (list, tuple)):
        if len(other) != len(tensors):
            if other and isinstance(other[0], Tensor):
                raise RuntimeError(
                    f"Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}"
                )
            raise RuntimeError("Tensor list must have same number of elements as scalar list.")
        return other
    if isinstance(other, Tensor) and other.dim() != 0:
        raise RuntimeError(
            f"scalar tensor expected to be 0 dim but it has {other.dim()} dimensions and {other.numel()} elements."
        )
    return [other] * len(tensors)


def _finished(inplace: bool, given: Any, results: list[Tensor]) -> Any:
    return given if inplace else tuple(results)


def _unary(method: str) -> Callable[..., Any]:
    name, inplace = f"_foreach_{method}", method.endswith("_")

    def foreach(self: Any) -> Any:
        return _finished(inplace, self, [getattr(t, method)() for t in _tensors(name, self)])

    return foreach


# The methods that take a number where the function of the same name wants a tensor.
_FOR_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max", "maximum_": "clamp_min_", "minimum_": "clamp_max_"}
_WITHOUT_INPLACE = {"maximum_": "maximum", "minimum_": "minimum"}


def _apply(method: str, t: Tensor, other: Any, options: dict[str, Any]) -> Tensor:
    if method in _FOR_NUMBERS and not isinstance(other, Tensor):
        return getattr(t, _FOR_NUMBERS[method])(other)
    if method in _WITHOUT_INPLACE:
        return t.copy_(getattr(t, _WITHOUT_INPLACE[method])(other))
    return getattr(t, method)(other, **options)


def _binary(method: str) -> Callable[..., Any]:
    name, inplace = f"_foreach_{method}", method.endswith("_")

    def foreach(self: Any, other: Any, **options: Any) -> Any:
        if method == "pow" and isinstance(other, (list, tuple)) and not isinstance(self, (list, tuple)):
            return tuple(self**t for t in _tensors(name, other, 2, "exponent"))
        tensors = _tensors(name, self)
        pairs = zip(tensors, _spread(tensors, other))
        return _finished(inplace, self, [_apply(method, t, o, options) for t, o in pairs])

    return foreach


def _ternary(method: str) -> Callable[..., Any]:
    name, inplace = f"_foreach_{method}", method.endswith("_")

    def foreach(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None) -> Any:
        tensors = _tensors(name, self)
        values = value if scalars is None else scalars
        if isinstance(values, Tensor):
            values = values.tolist()
        rows = zip(tensors, _spread(tensors, tensor1), _spread(tensors, tensor2), _spread(tensors, values))
        return _finished(inplace, self, [getattr(t, method)(a, b, value=v) for t, a, b, v in rows])

    return foreach


def _lerp(method: str) -> Callable[..., Any]:
    name, inplace = f"_foreach_{method}", method.endswith("_")

    def foreach(self: Any, tensors1: Any, weight: Any) -> Any:
        tensors = _tensors(name, self)
        rows = zip(tensors, _spread(tensors, tensors1), _spread(tensors, weight))
        return _finished(inplace, self, [getattr(t, method)(end, w) for t, end, w in rows])

    return foreach


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    return tuple(vector_norm(t, ord, dtype=dtype) for t in _tensors("_foreach_norm", self))


def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    return tuple(t.abs().pow(ord).sum(dtype=dtype) for t in _tensors("_foreach_powsum", self))


def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    return tuple(t.max() for t in _tensors("_foreach_max", self))


def _foreach_mm(self: Any, mat2: Any) -> tuple[Tensor, ...]:
    tensors = _tensors("_foreach_mm", self)
    return tuple(a.mm(b) for a, b in zip(tensors, _spread(tensors, mat2)))


def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Tensor, ...]:
    options = {} if memory_format is None else {"memory_format": memory_format}
    return tuple(t.clone(**options) for t in _tensors("_foreach_clone", self))


def _foreach_zero_(self: Any) -> Any:
    return _finished(True, self, [t.zero_() for t in _tensors("_foreach_zero_", self)])


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    tensors = _tensors("_foreach_copy_", self)
    return _finished(True, self, [t.copy_(s) for t, s in zip(tensors, _spread(tensors, src))])


def _family() -> dict[str, Callable[..., Any]]:
    makers = {**dict.fromkeys(UNARY_NAMES, _unary), **dict.fromkeys(_BINARY, _binary)}
    makers |= {**dict.fromkeys(_TERNARY, _ternary), "lerp": _lerp}
    found = {f"_foreach_{name}{end}": make(name + end) for name, make in makers.items() for end in ("", "_")}
    for name, function in found.items():
        function.__name__ = function.__qualname__ = name
        method = name.removeprefix("_foreach_")
        function.__doc__ = f"`Tensor.{method}` for every tensor of a list."
    own = (_foreach_norm, _foreach_powsum, _foreach_max, _foreach_mm, _foreach_clone, _foreach_zero_, _foreach_copy_)
    return found | {function.__name__: function for function in own}


FOREACH = _family()

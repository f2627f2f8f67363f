"""Calls in PyTorch's former signatures, which had the factors among the tensors: `grad.add_(0.9, buffer)`.

Old programs are full of them. PyTorch still takes them, with a warning, and so does this."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.aliases import AnyFunction, Values
from ...core.settings import is_warn_always_enabled
from ...core.tensor import Tensor

_warned: set[str] = set()  # PyTorch warns once, not for every signature


def former_call(face: AnyFunction, name: str, factors: tuple[str, ...], args: Values, options: dict[str, Any]) -> Any:
    """Call `face` with the tensors of `args` in order, and with its numbers as the keywords `factors`."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    numbers = [a for a in args if not isinstance(a, Tensor)]
    if not 0 < len(numbers) <= len(factors) or not all(isinstance(n, (int, float, complex)) for n in numbers):
        kinds = ", ".join(type(a).__name__ for a in args)
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({kinds})")
    if not _warned or is_warn_always_enabled():
        _warned.add(name)
        now = ", ".join(f"Number {f} = 1" for f in factors)
        warnings.warn(
            f"This overload of {name} is deprecated:\n\t{name}({', '.join(type(a).__name__ for a in args)})\n"
            f"Consider using one of the following signatures instead:\n\t{name}({'Tensor, ' * len(tensors)}*, {now})",
            UserWarning,
            stacklevel=3,
        )
    return face(*tensors, **{**options, **dict(zip(factors, numbers))})


def accepting_former(run: AnyFunction, name: str, factors: tuple[str, ...], tensors: int) -> AnyFunction:
    """Return a function like `run(*tensors, **options)` that accepts the operator's former signature, too."""

    def either(*args: Any, **kwargs: Any) -> Any:
        if len(args) > tensors:
            return former_call(run, name, factors, args, kwargs)
        return run(*args, **kwargs)

    return either

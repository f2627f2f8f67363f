"""The signatures that `help()` shows of operators whose functions take more than PyTorch documents.

Such a function has `*` or `**` parameters: former orders of arguments, NumPy's names, sizes one by one. Programs may use them all, but
`help()` should show PyTorch's signature.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

_Parameter = inspect.Parameter
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
# A docstring may begin with the call: "sort(input, dim=-1, *, stable=None): elements in order".
_CALL = re.compile(r"\w+\(((?:[^()]|\(\))*)\):")
# The names of `*` and `**` parameters that hold other forms of the documented ones.
_UNDOCUMENTED = ("_more", "named", "others")
_TENSOR_OPTIONS: dict[str, Any] = {
    "dtype": None, "layout": None, "device": None, "requires_grad": False, "pin_memory": False,
    "memory_format": None,
}  # fmt: skip


def show_signature(function: Any, name: str) -> None:
    """Set the signature of a public function that PyTorch documents, if its own differs."""
    if _is_open(function):
        function.__signature__ = documented(function, name)


def show_inplace_signature(function: Any, original: Any) -> None:
    """Set the signature of an in-place form to the function's, without `out`, if its own has `*` or `**` parameters."""
    if _is_open(function):
        shown = inspect.signature(original)
        function.__signature__ = shown.replace(parameters=[p for n, p in shown.parameters.items() if n != "out"])


def _is_open(function: Any) -> bool:
    """Return whether a function takes `*` or `**` parameters, and its signature has not been set."""
    if "__signature__" in getattr(function, "__dict__", ()):
        return False
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & _VARIADIC)


def documented(function: Any, name: str = "") -> inspect.Signature:
    """Return the signature that PyTorch documents for a function called `name`."""
    own = inspect.signature(function)
    doc = function.__doc__ or ""
    stated = _CALL.match(doc) if doc.startswith(f"{name}(") else None
    if stated is not None:
        own = inspect.signature(eval(f"lambda {stated[1]}: None")).replace(return_annotation=own.return_annotation)  # noqa: S307 - our own docstring
    return own.replace(parameters=list(_parameters(own)))


def _parameters(signature: inspect.Signature) -> Iterator[inspect.Parameter]:
    every = signature.parameters
    for name, parameter in every.items():
        if parameter.kind is _Parameter.VAR_KEYWORD and name == "options":
            yield from (
                _Parameter(option, _Parameter.KEYWORD_ONLY, default=default)
                for option, default in _TENSOR_OPTIONS.items()
                if option not in every
                and (option != "memory_format" or "input" in every)  # of `zeros_like` and its kin
            )
        elif parameter.kind is _Parameter.VAR_POSITIONAL and "named" in every and "input" in every:
            # `reshape(x, 2, 3)` is documented as `reshape(x, shape)`
            yield parameter.replace(kind=_Parameter.POSITIONAL_OR_KEYWORD)
        elif name not in _UNDOCUMENTED:
            yield parameter

"""Registry of ONNX forms: those declared in this package, and symbolic functions that users register."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import flambeau

from ..library.aten import aten
from . import torchlib
from .errors import OnnxExporterError

Form = Callable[..., Any]
OLDEST, NEWEST = 7, 23  # versions of ONNX's opset that can be written

# What users register: by the names they give, then by version; arguments in order.
CUSTOM: dict[str, dict[int, Form]] = {}


def form(*operators: Any, since: int = 0) -> Callable[[Form], Form]:
    """Declare the form of operators, from an opset version on. It is kept in the operator's record.

    It is called with the builder and, by name, with those arguments of the operator's schema that it has parameters for (`name` is
    PyTorch's name of the operator, `described` what its result looked like when the model ran). Tensors come as values; numbers that the program computes come as 0-d values. For calls that
    torchlib's function translates as well it returns NotImplemented; for those that it does not support it raises NotImplementedError,
    which is reported together with all other missing forms.
    """

    def declare(function: Any) -> Form:
        function.wanted = frozenset(list(inspect.signature(function).parameters)[1:])
        function.since = since
        for operator in operators:
            home = operator.op or operator
            if getattr(home.onnx, "form", home.onnx) not in (None, function):
                raise ValueError(f"{operator} has two ONNX forms")
            if isinstance(home.onnx, Parts):
                home.onnx.form = function
            else:
                home.onnx = function
        return function

    return declare


class Parts:
    """Declaration of an operator as a function of others, which are exported; `form` is for calls of the operator in that function."""

    def __init__(self, function: Callable[..., Any], before: int, form: Form | None) -> None:
        self.function, self.before, self.form = function, before, form


def made_of(*operators: Any, before: int = NEWEST + 1) -> Callable[[Callable], Callable]:
    """Declare the calls that an operator is exported as, by a function of tensors with the parameters of PyTorch's schema. A call of the
    operator itself in it is translated by its form or by torchlib's function; so are all calls from opset version `before` on."""

    def declare(function: Callable) -> Callable:
        for operator in operators:
            home = operator.op or operator
            if isinstance(home.onnx, (str, Parts)):
                raise ValueError(f"{operator} has two ONNX forms")
            home.onnx = Parts(function, before, home.onnx)
        return function

    return declare


def absent(why: str, *operators: Any) -> None:
    """Declare the reason why operators have no ONNX form."""
    for operator in operators:
        (operator.op or operator).onnx = why


def operator_named(name: str) -> Any:
    """Return the operator that `torch.ops` has under a name like "aten::relu", or None."""
    space, _, own = name.partition("::")
    return getattr(aten if space == "aten" else getattr(flambeau.ops, space, None), own, None)


def form_of(name: str) -> Any:
    """Return the form of an operator, or None."""
    found = _declared(name)
    return found.form if isinstance(found, Parts) else None if isinstance(found, str) else found


def parts_of(name: str, opset: int) -> Callable | None:
    """Return the function that an operator is declared to consist of, in an opset version."""
    found = _declared(name)
    return found.function if isinstance(found, Parts) and opset < found.before else None


def reason(name: str) -> str:
    """Return the reason why an operator has no form, or an empty string if none is known."""
    found = _declared(name)
    return found if isinstance(found, str) else ""


def in_torchlib(name: str) -> bool:
    """Return whether torchlib translates an operator for which nothing is declared here."""
    record = getattr(operator_named(name), "op", None)
    return (
        not isinstance(_declared(name), str)
        and form_of(name) is None
        and not torchlib.names().isdisjoint(torchlib.names_of(name, record))
    )


def _declared(name: str) -> Any:
    operator = operator_named(name)
    return None if operator is None else getattr(getattr(operator, "op", None) or operator, "onnx", None)


def custom_form(name: str, opset: int) -> Form | None:
    """Return the form that a user registered for an opset: of the newest version that is not newer, else of the oldest."""
    versions = CUSTOM.get(name)
    if not versions:
        return None
    fitting = [v for v in versions if v <= opset]
    return versions[max(fitting) if fitting else min(versions)]


def _full_name(symbolic_name: str) -> str:
    return f"aten{symbolic_name}" if symbolic_name.startswith("::") else symbolic_name


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Form, opset_version: int) -> None:
    """Register a function that exports an operator: `symbolic_fn(g, *arguments)` writes its nodes with `g.op`."""
    name = _full_name(symbolic_name)
    if "::" not in name or not all(name.split("::", 1)):
        raise OnnxExporterError(
            f"Failed to register operator {name}. The symbolic name must match the format domain::name, and should start "
            "with a letter and contain only alphanumerical characters"
        )
    CUSTOM.setdefault(name, {})[int(opset_version)] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Remove the function registered for an operator and opset by `register_custom_op_symbolic`."""
    name = _full_name(symbolic_name)
    versions = CUSTOM.get(name, {})
    versions.pop(int(opset_version), None)
    if not versions:
        CUSTOM.pop(name, None)

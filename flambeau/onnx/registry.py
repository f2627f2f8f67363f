"""Which ONNX nodes an operator becomes: forms declared here in the house, and symbolic functions that users register."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Form = Callable[..., Any]

FORMS: dict[str, Form] = {}  # "aten::relu" -> the form, called with the arguments of the schema by name
CUSTOM: dict[
    str, dict[int, Form]
] = {}  # the same, from users, by the version they are for, called with arguments in order


def form(*names: str) -> Callable[[Form], Form]:
    """Declare the form of aten operators.

    It is called with the builder and, by name, with those arguments of the operator's schema that it has parameters for. Tensors come as
    values; numbers that the program computes come as 0-d values.
    """

    def declare(function: Form) -> Form:
        function.wanted = frozenset(list(inspect.signature(function).parameters)[1:])  # type: ignore[attr-defined]
        for name in names:
            FORMS[f"aten::{name}"] = function
        return function

    return declare


def custom_form(name: str, opset: int) -> Form | None:
    """What a user registered for this version: the newest that is not newer, else the oldest."""
    versions = CUSTOM.get(name)
    if not versions:
        return None
    fitting = [v for v in versions if v <= opset]
    return versions[max(fitting) if fitting else min(versions)]


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Form, opset_version: int) -> None:
    """Say how an operator is exported: `symbolic_fn(g, *arguments)` writes its nodes with `g.op`."""
    if symbolic_name.startswith("::"):
        symbolic_name = f"aten{symbolic_name}"
    if "::" not in symbolic_name or not all(symbolic_name.split("::", 1)):
        from .errors import OnnxExporterError  # noqa: PLC0415

        raise OnnxExporterError(
            f"Failed to register operator {symbolic_name}. The symbolic name must match the format domain::name, and should start "
            "with a letter and contain only alphanumerical characters"
        )
    CUSTOM.setdefault(symbolic_name, {})[int(opset_version)] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget what was registered."""
    if symbolic_name.startswith("::"):
        symbolic_name = f"aten{symbolic_name}"
    versions = CUSTOM.get(symbolic_name, {})
    versions.pop(int(opset_version), None)
    if not versions:
        CUSTOM.pop(symbolic_name, None)

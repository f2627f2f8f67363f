"""Nodes that onnx's reference implementation computes: strings, labels, trees, and others without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.tensor import Tensor
from ..dtypes import array_of, tensor_of
from ..serialize import onnx_package
from .table import Call


def reference(node: Any, opsets: dict[str, int]) -> Callable[..., Any] | None:
    """Return the function of a node from onnx's reference implementation, or None if it has none."""
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415  few files need it

    helper = onnx_package().helper
    given, made = ([helper.make_empty_tensor_value_info(n) for n in names if n] for names in (node.input, node.output))
    imports = [helper.make_opsetid(domain, version) for domain, version in {"": 1, **opsets}.items()]
    try:
        session = ReferenceEvaluator(
            helper.make_model(helper.make_graph([node], "one", given, made), opset_imports=imports)
        )
    except NotImplementedError:
        return None

    def run(call: Call, *args: Any, **attributes: Any) -> tuple:
        arrays = {name: _array(value) for name, value in zip(node.input, args) if name}
        found = iter(session.run(None, arrays))
        return tuple(_value(next(found)) if name else None for name in node.output)

    return run


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(v) for v in value]
    return array_of(value) if isinstance(value, Tensor) else value


def _value(found: Any) -> Any:
    if isinstance(found, list):
        return [_value(v) for v in found]
    array = np.asarray(found)
    return tensor_of(array) if array.dtype.kind not in "OUS" else array.astype(object)

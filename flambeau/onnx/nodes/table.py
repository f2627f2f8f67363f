"""The table of ONNX operators, and the description of a node that their functions get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NODES: dict[str, Callable[..., Any]] = {}


class Call:
    """A node being run: its operator, the version of its opset, the number of results wanted, the values around it."""

    def __init__(self, kind: str, opset: int, outputs: int, domain: str) -> None:
        self.kind, self.opset, self.outputs, self.domain = kind, opset, outputs, domain
        self.known: dict[str, Any] = {}


def node(*names: str) -> Callable[[Callable], Callable]:
    """Declare the function of operators: it is called with the Call, the inputs (None if left out) and the attributes by name."""

    def declare(function: Callable) -> Callable:
        for name in names:
            NODES[name] = function
        return function

    return declare


def numbers(value: Any) -> list[int]:
    """Return a tensor of sizes, or a list, as a list of Python numbers."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    return [int(v) for v in (listed if isinstance(listed, (list, tuple)) else [listed])]

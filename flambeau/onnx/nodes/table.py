"""The table of ONNX operators, and what their functions get to know of the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NODES: dict[str, Callable[..., Any]] = {}


class Call:
    """A node that is being run: its operator, the version of its opset, how many results are wanted, the values around it."""

    def __init__(self, kind: str, opset: int, outputs: int, domain: str) -> None:
        self.kind, self.opset, self.outputs, self.domain = kind, opset, outputs, domain
        self.known: dict[str, Any] = {}


def node(*names: str) -> Callable[[Callable], Callable]:
    """Declare the function of operators: called with the Call, the inputs (None where left out) and the attributes by name."""

    def declare(function: Callable) -> Callable:
        for name in names:
            NODES[name] = function
        return function

    return declare


def numbers(value: Any) -> list[int]:
    """A tensor of sizes, or a list, as a list of Python numbers."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    return [int(v) for v in (listed if isinstance(listed, (list, tuple)) else [listed])]

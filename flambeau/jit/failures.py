"""Execution of a graph's steps in order, and the errors that propagate out of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .ir import Node

Registers = list
Step = Callable[[Registers], None]


class Error(RuntimeError):
    """An exception that a compiled program raised."""


class Failure(Exception):
    """An error that propagates through nested calls and collects their source locations."""

    def __init__(self, cause: BaseException, message: str, raised: bool, class_name: str = ""):
        super().__init__(message)
        self.cause, self.message, self.raised, self.class_name = cause, message, raised, class_name
        self.frames: list[str] = []

    def report(self) -> Exception:
        word = self.class_name or "RuntimeError"
        text = "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call last):\n"
        text += "".join(reversed(self.frames)) + f"{word}: {self.message}\n"
        return (Error if self.raised else RuntimeError)(text)


class Raised(Exception):
    """Exception that prim::RaiseException raises."""

    def __init__(self, message: str, class_name: str):
        super().__init__(message)
        self.class_name = class_name


def run_steps(steps: list[Step], registers: Registers) -> None:
    step: Any = None
    try:
        for step in steps:
            step(registers)
    except Failure as failure:
        if step.node.kind_ in ("prim::CallMethod", "prim::CallFunction"):
            _add_location(failure, step.node)
        raise
    except RecursionError:
        raise
    except Exception as problem:
        raised = isinstance(problem, Raised)
        made = Failure(problem, str(problem), raised, problem.class_name if isinstance(problem, Raised) else "")
        _add_location(made, step.node)
        raise made from problem


def _add_location(failure: Failure, node: Node) -> None:
    if node.range is not None:
        failure.frames.append(node.range.highlight(node.graph.label))

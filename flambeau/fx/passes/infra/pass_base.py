"""Base class of passes over a graph module, and the result of a pass."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The module after a pass, and whether it was changed."""

    graph_module: Any
    modified: bool


class PassBase(abc.ABC):
    """A pass: implement `call`; `requires` and `ensures` check the module before and after."""

    def __call__(self, graph_module: Any) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: Any) -> PassResult | None:
        """Run the pass on a graph module, and return the result."""

    def requires(self, graph_module: Any) -> None:  # noqa: B027
        """Raise an error unless the pass can run on the module."""

    def ensures(self, graph_module: Any) -> None:  # noqa: B027
        """Raise an error unless the module is valid after the pass."""

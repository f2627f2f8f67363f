"""Construction of graph modules. PyTorch can defer the generation of their code; here it is always generated at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .graph_module import GraphModule


@contextlib.contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    """Context manager without effect: generation of code is never deferred here."""
    yield


def _make_graph_module(*args: Any, graph_module_cls: type | None = None, **kwargs: Any) -> GraphModule:
    return (graph_module_cls or GraphModule)(*args, **kwargs)

"""Passes: functions that read or change a graph."""

from . import (
    graph_drawer,
    graph_manipulation,
    operator_support,
    param_fetch,
    pass_manager,
    shape_prop,
    split_module,
    split_utils,
    tools_common,
)

__all__ = [
    "graph_drawer",
    "graph_manipulation",
    "operator_support",
    "param_fetch",
    "pass_manager",
    "shape_prop",
    "split_module",
    "split_utils",
    "tools_common",
]

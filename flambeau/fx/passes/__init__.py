"""Passes: functions that read or change a graph."""

from . import infra, utils  # noqa: F401, I001  the whole rooms before their parts: see naming.load
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
    "graph_drawer", "graph_manipulation", "operator_support", "param_fetch", "pass_manager", "shape_prop",
    "split_module", "split_utils", "tools_common",
]  # fmt: skip

"""Helpers of passes: subgraph matching, and conversion of subgraphs to modules."""

from . import matcher_utils as matcher_utils
from .common import HolderModule, compare_graphs, lift_subgraph_as_module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]

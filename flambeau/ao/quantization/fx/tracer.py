"""Tracing of a model for quantization: layers, fused ones too, stay calls of modules."""

from __future__ import annotations

from typing import Any

from ....core.naming import torch_name
from ....fx._symbolic_trace import Tracer
from ....fx.proxy import Scope
from ....fx.proxy import ScopeContextManager as _ScopeContextManager
from ....nn import Module, Sequential
from ...nn.intrinsic import _FusedModule

__all__ = ["QuantizationTracer"]


class ScopeContextManager(_ScopeContextManager):
    """Context manager that records which module is being traced."""

    def __init__(self, scope: Scope, current_module: Module, current_module_path: str):
        super().__init__(scope, Scope(current_module_path, type(current_module)))


class QuantizationTracer(Tracer):
    """Tracer for quantization: follows a user's modules, and keeps layers of torch.nn and the skipped modules as leaves."""

    def __init__(self, skipped_module_names: list[str], skipped_module_classes: list[Any]):
        super().__init__()
        self.skipped_module_names = skipped_module_names
        self.skipped_module_classes = skipped_module_classes
        self.scope = Scope("", None)
        self.record_stack_traces = True

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        own = torch_name(type(m).__module__).startswith(("torch.nn", "torch.ao.nn")) and not isinstance(m, Sequential)
        return (
            own
            or module_qualified_name in self.skipped_module_names
            or type(m) in self.skipped_module_classes
            or isinstance(m, _FusedModule)
        )

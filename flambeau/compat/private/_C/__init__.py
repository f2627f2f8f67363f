"""Names of PyTorch's compiled part that Python programs and pickles use."""

from __future__ import annotations

from enum import Enum
from typing import Any

import flambeau as _VariableFunctionsClass  # the functions of `torch` are its attributes

from .... import accelerator
from .... import jit as _jit
from ....core import naming as _naming
from ....core.device import default_device as _default_device
from ....core.device import device
from ....core.generator import Generator
from ....core.layout import broadcast_shapes
from ....core.overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from ....core.overrides import disabled_torch_function as _disabled_torch_function_impl
from ....core.size import Size
from ....core.tensor import Tensor
from ....futures import Future
from ....jit import trace_graph, tracing_state
from ....overrides import _get_current_function_mode_stack
from .. import entry_points
from . import executor_switches, script_types

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "Future", "Generator", "Size", "_VariableFunctions", "_VariableFunctionsClass",
    "_disabled_torch_function_impl", "_infer_size", "_log_api_usage_once", "has_lapack",
]  # fmt: skip

_VariableFunctions = _VariableFunctionsClass
Tag = Enum(  # what definitions of operators may say about them
    "Tag",
    "core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace "
    "inplace_view maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides "
    "needs_fixed_stride_order nondeterministic_bitwise nondeterministic_seeded out out_variant pointwise "
    "pt2_compliant_tag reduction view_copy",
    start=0,
)
Tag.__doc__ = "Properties that an operator's definition may state."
has_lapack = True  # NumPy brings one


def _infer_size(a: tuple[int, ...], b: tuple[int, ...]) -> Size:
    """Return the shape that two shapes broadcast to."""
    return Size(broadcast_shapes(tuple(a), tuple(b)))


def _log_api_usage_once(event: str) -> None:
    """Do nothing: usage reports of libraries are not logged."""


_TensorMeta = type(Tensor)  # the class of the class of tensors


def _get_default_device() -> str:
    """Return the type of the device on which new tensors are made."""
    return _default_device().type


def _get_accelerator(check: bool | None = None) -> device:
    """Return the available accelerator, or the CPU."""
    return accelerator.current_accelerator() or device("cpu")


def _get_privateuse1_backend_name() -> str:
    """Return the name of the device type that PyTorch reserves for other backends; here each has a name of its own."""
    return "privateuseone"


def _len_torch_function_stack() -> int:
    """Return the number of modes of `torch.overrides` that are on in this thread."""
    return len(_get_current_function_mode_stack())


def _get_tracing_state() -> Any:
    """Return the state of the tracing under way in this thread, or None."""
    recorder = tracing_state.active()
    return None if recorder is None else trace_graph.TracingState(recorder)


def __getattr__(name: str):
    """Import parts of the compiled part on first use; TorchScript's types and graphs are those of `jit`."""
    if name in _OF_GRAPHS:
        return getattr(_naming.submodule(_jit.__name__, _OF_GRAPHS[name]), name)
    if name.endswith("Type"):
        found = script_types.exposed(name)
        if found is not None:
            return found
    for further in (executor_switches, entry_points):
        if name in vars(further):
            return vars(further)[name]
    return _naming.submodule(__name__, name)


_OF_GRAPHS = {
    "Graph": "ir", "Node": "ir", "Block": "ir", "Value": "ir", "CompilationUnit": "script_function", "ScriptModule": "module",
    "ScriptFunction": "script_function", "ScriptMethod": "module", "ScriptList": "containers", "ScriptDict": "containers",
    "ScriptObject": "objects",
}  # fmt: skip

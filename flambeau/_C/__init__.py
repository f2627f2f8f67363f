"""Names of PyTorch's compiled part that Python programs and pickles use."""

from __future__ import annotations

import flambeau as _VariableFunctionsClass  # the functions of `torch` are its attributes

from ..core import naming as _naming
from ..core.generator import Generator
from ..core.layout import broadcast_shapes
from ..core.overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from ..core.overrides import disabled_torch_function as _disabled_torch_function_impl
from ..core.size import Size

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "Size", "_VariableFunctions", "_VariableFunctionsClass",
    "_disabled_torch_function_impl", "_infer_size", "_log_api_usage_once", "has_lapack",
]  # fmt: skip

_VariableFunctions = _VariableFunctionsClass
has_lapack = True  # NumPy brings one


def _infer_size(a: tuple[int, ...], b: tuple[int, ...]) -> Size:
    """The shape that two shapes broadcast to."""
    return Size(broadcast_shapes(tuple(a), tuple(b)))


def _log_api_usage_once(event: str) -> None:
    """Libraries report what is used; nobody listens."""


def _get_tracing_state():
    """What `torch.jit.trace` records just now, None where nothing is being recorded."""
    return _naming.load("flambeau.jit.tracing_state").active()


def __getattr__(name: str):
    """The parts of the compiled part are imported when first used; TorchScript's types and graphs are those of `jit`."""
    if name in _OF_GRAPHS:
        return getattr(_naming.load(f"flambeau.jit.{_OF_GRAPHS[name]}"), name)
    if name.endswith("Type"):
        found = _naming.load("flambeau.jit.types").exposed(name)
        if found is not None:
            return found
    return _naming.submodule(__name__, name)


_OF_GRAPHS = {
    "Graph": "ir", "Node": "ir", "Block": "ir", "Value": "ir", "CompilationUnit": "compilation", "ScriptModule": "module",
    "ScriptFunction": "module", "ScriptMethod": "module", "ScriptList": "containers", "ScriptDict": "containers",
    "ScriptObject": "interpreter",
}  # fmt: skip

"""Operators on tensors: one package per family, each operator declared once. `machinery` is what all of them build on."""

# ruff: noqa: F401

import sys as _sys

from ..core import naming as _naming
from . import nn, quantizing, signal  # the packages before their parts, which are imported late: see naming.load
from .creation import construct, convert, filled, memory, overwrite, ranges
from .index import gather, index_vector, indexing, masked, subscript
from .linalg import addmm, matmul
from .machinery.binding import bind_late_methods, bind_methods, declared, late_names, namespace
from .machinery.declare import user_pointwise
from .methods import attributes, names, per_element, python_protocol
from .methods.operators import bind_operators
from .pointwise import arithmetic, bitwise, comparison, conjugate, unary
from .random import fills
from .reduce import extremes, norms, sums
from .shape import complex_views, copies, dimensions, header_changes, joining, parts, rearrange, reshape, strided

bind_methods()
bind_operators()
bind_late_methods()


def __getattr__(name: str):
    """Import on first use: all records (`OPS`), `aten`, `higher_order`, `profiler`, `quantized` and libraries of C++ operators."""
    if name == "OPS":
        return _naming.above("ops.late").OPS
    if name == "aten":
        return _naming.above("library.aten").aten
    if name == "higher_order":
        return _naming.above("library.higher_order").higher_order
    if name in ("quantized", "_quantized", "onednn"):
        return getattr(_naming.above("ops.quantizing.operators"), name)
    if name == "quantized_decomposed":
        return _naming.above("ao.quantization.fx._decomposed").quantized_decomposed
    if name in ("_c10d_functional", "c10d_functional", "c10d"):  # collectives as operators
        _naming.above("distributed._functional_ops")
        return globals()[name]
    if name == "profiler":
        return _naming.above("profiler.range_operators")
    if name in ("load_library", "loaded_libraries"):
        return getattr(_naming.above("library.native"), name)
    native = _sys.modules.get("flambeau.library.native")  # not imported for this: then no library was left out
    absent = None if native is None else native.absent_namespace(name)
    if absent is None:
        raise _naming.no_attribute(__name__, name)
    return absent


pointwise = user_pointwise  # the decorator, and not the room of that name, for programs and for type checkers

__all__ = ["OPS", "declared", "late_names", "namespace", "pointwise"]

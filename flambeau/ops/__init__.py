"""What tensors do: one module per family, each operator declared once."""

from . import arithmetic, convert, creation, einsum, indexing, matmul, reduce, shape
from .binding import bind_methods, namespace
from .declare import user_pointwise as pointwise
from .operators import bind_operators
from .registry import OPS

bind_methods()
bind_operators()

__all__ = ["OPS", "arithmetic", "convert", "creation", "einsum", "indexing", "matmul", "namespace", "pointwise", "reduce", "shape"]

"""What tensors do: one module per family, each operator declared once."""

from . import (  # noqa: F401
    arithmetic,
    attributes,
    construct,
    conv,
    convert,
    creation,
    cross_entropy,
    dropout,
    einsum,
    extremes,
    gather,
    indexing,
    joining,
    legacy,
    masked,
    matmul,
    parts,
    python_protocol,
    random,
    ranges,
    rearrange,
    reduce,
    scan,
    shape,
    softmax,
)
from .binding import bind_methods, namespace
from .declare import user_pointwise as pointwise
from .operators import bind_operators
from .registry import OPS

bind_methods()
bind_operators()

__all__ = ["OPS", "namespace", "pointwise"]

"""What tensors do: one module per family, each operator declared once."""

from . import (  # noqa: F401
    activation,
    arithmetic,
    attention,
    attributes,
    bitwise,
    comparison,
    complex_views,
    conjugate,
    construct,
    conv,
    convert,
    copies,
    creation,
    cross_entropy,
    distance,
    dropout,
    einsum,
    embedding,
    extremes,
    gather,
    header_changes,
    indexing,
    joining,
    legacy,
    loss,
    margin_loss,
    masked,
    matmul,
    normalization,
    parts,
    python_protocol,
    random,
    ranges,
    rearrange,
    reduce,
    rounding,
    sampling,
    scan,
    shape,
    softmax,
    sort,
    special_functions,
    unary,
)
from .binding import bind_methods, namespace
from .declare import user_pointwise as pointwise
from .operators import bind_operators
from .registry import OPS

bind_methods()
bind_operators()

__all__ = ["OPS", "namespace", "pointwise"]

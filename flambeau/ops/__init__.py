"""What tensors do: one module per family, each operator declared once."""

from . import (  # noqa: F401
    activation,
    agreement,
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
    ctc,
    differences,
    distance,
    dropout,
    einsum,
    embedding,
    extremes,
    gather,
    header_changes,
    histogram,
    indexing,
    joining,
    legacy,
    loss,
    margin_loss,
    masked,
    matmul,
    normalization,
    norms,
    parts,
    python_protocol,
    quantiles,
    random,
    random_activation,
    ranges,
    rearrange,
    reduce,
    rounding,
    sampling,
    rnn,
    scan,
    reshape,
    shape,
    strided,
    shuffle,
    softmax,
    sort,
    special_functions,
    statistics,
    unary,
    unique,
)
from .binding import bind_methods, namespace
from .declare import user_pointwise as pointwise
from .operators import bind_operators
from .registry import OPS

bind_methods()
bind_operators()

__all__ = ["OPS", "namespace", "pointwise"]

"""Operators that most programs do not use, or only in layers: imported when one of their names is first used (`binding`)."""

# ruff: noqa: F401

from .. import kinds
from ..index import sort, unique
from ..linalg import (
    bytes_product,
    cholesky,
    determinant,
    einsum,
    functions,
    grouped,
    ldl,
    least_squares,
    linear,
    lobpcg,
    low_rank,
    lu,
    orthogonal,
    products,
    removed,
    scaled,
    solving,
    spectral,
    triangular,
)
from ..machinery.binding import bind_methods
from ..machinery.record import OPS
from ..nn import (
    attention,
    avg_pool,
    batch_norm,
    conv,
    cross_entropy,
    ctc,
    distance,
    dropout,
    embedding,
    embedding_bag,
    fake_quantize,
    fold,
    grid_sample,
    loss,
    margin_loss,
    max_pool,
    max_pool_more,
    multi_head_attention,
    normalization,
    packing,
    random_activation,
    resize,
    rnn,
    shuffle,
    softmax,
)
from ..pointwise import activation, hard_activation, rounding, special_functions
from ..pointwise.foreach import FOREACH
from ..quantizing import methods as quantized_methods
from ..random import sampling
from ..reduce import agreement, differences, histogram, quantiles, scan, statistics
from ..reduce.segments import PLAIN_FUNCTIONS
from ..shape import padding
from ..signal import fourier, spectrogram, windows
from ..sparse import arithmetic as sparse_arithmetic
from ..sparse import compressed, conversion, coo, reductions, rows, zero_filled
from ..sparse import methods as sparse_methods
from ..sparse import products as sparse_products
from ..sparse import shape as sparse_shape

bind_methods()

__all__ = ["FOREACH", "OPS", "PLAIN_FUNCTIONS"]

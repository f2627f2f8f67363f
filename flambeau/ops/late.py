"""Operators that most programs do without, or use only in layers: imported when the first of their names is asked for (`binding`)."""

from . import kinds  # noqa: F401
from .index import sort, unique  # noqa: F401
from .linalg import (  # noqa: F401
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
from .machinery.binding import bind_methods
from .machinery.record import OPS
from .nn import (  # noqa: F401
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
from .pointwise import activation, hard_activation, rounding, special_functions  # noqa: F401
from .pointwise.foreach import FOREACH
from .quantizing import methods as _quantized_methods  # noqa: F401
from .random import sampling  # noqa: F401
from .reduce import agreement, differences, histogram, quantiles, scan, statistics  # noqa: F401
from .reduce.segments import PLAIN_FUNCTIONS
from .shape import border  # noqa: F401
from .signal import fourier, spectrogram, windows  # noqa: F401
from .sparse import arithmetic as _sparse_arithmetic  # noqa: F401
from .sparse import compressed, conversion, coo, reductions, rows, zero_filled  # noqa: F401
from .sparse import methods as _sparse_methods  # noqa: F401
from .sparse import products as _sparse_products  # noqa: F401
from .sparse import shape as _sparse_shape  # noqa: F401

bind_methods()

__all__ = ["FOREACH", "OPS", "PLAIN_FUNCTIONS"]

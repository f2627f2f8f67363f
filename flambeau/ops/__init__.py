"""Operators on tensors: one package per family, each operator declared once. `machinery` is what all of them build on."""

import sys as _sys

from ..core import naming as _naming
from . import kinds, linalg  # noqa: F401
from .creation import construct, convert, filled, memory, overwrite, ranges  # noqa: F401
from .index import gather, index_vector, indexing, masked, sort, subscript, unique  # noqa: F401
from .machinery.binding import bind_methods, namespace
from .machinery.declare import user_pointwise
from .machinery.record import OPS
from .methods import attributes, names, per_element, python_protocol  # noqa: F401
from .methods.operators import bind_operators
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
from .pointwise import (  # noqa: F401
    activation,
    arithmetic,
    bitwise,
    comparison,
    conjugate,
    foreach,
    hard_activation,
    rounding,
    special_functions,
    unary,
)
from .quantizing import methods as _quantized_methods  # noqa: F401
from .random import fills, sampling  # noqa: F401
from .reduce import agreement, differences, extremes, histogram, norms, quantiles, scan, segments, statistics, sums  # noqa: F401
from .shape import (  # noqa: F401
    border,
    complex_views,
    copies,
    dimensions,
    header_changes,
    joining,
    parts,
    rearrange,
    reshape,
    strided,
)
from .signal import fourier, spectrogram, windows  # noqa: F401
from .sparse import arithmetic as _sparse_arithmetic  # noqa: F401
from .sparse import compressed, conversion, coo, products, reductions, rows, zero_filled  # noqa: F401
from .sparse import methods as _sparse_methods  # noqa: F401
from .sparse import shape as _sparse_shape  # noqa: F401

bind_methods()
bind_operators()


def __getattr__(name: str):
    """`torch.ops.aten`, `higher_order`, `profiler`, `quantized` and libraries of C++, imported when first used."""
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
        return _naming.above("autograd.profiler_ops")
    if name in ("load_library", "loaded_libraries"):
        return getattr(_naming.above("library.native"), name)
    native = _sys.modules.get("flambeau.library.native")  # not imported for this: then no library was left out
    absent = None if native is None else native.absent_namespace(name)
    if absent is None:
        raise _naming.no_attribute(__name__, name)
    return absent


pointwise = user_pointwise  # the decorator, and not the room of that name, for programs and for type checkers

__all__ = ["OPS", "namespace", "pointwise"]

"""oneDNN (libdnnl 3.x) called through its C API with ctypes; loaded on first use, optional."""

from flambeau.backends.cpu.onednn.conv import try_backward as try_conv_backward
from flambeau.backends.cpu.onednn.conv import try_forward as try_conv_forward
from flambeau.backends.cpu.onednn.gemm import keep_product, known_product, matmul, supports, try_gemm, try_matmul
from flambeau.backends.cpu.onednn.library import DATA_TYPES, available, version
from flambeau.backends.cpu.onednn.matrix_layout import takes_matrix
from flambeau.backends.cpu.onednn.packed import packed
from flambeau.backends.cpu.onednn.plan import reset

__all__ = [
    "DATA_TYPES", "available", "keep_product", "known_product", "matmul", "packed", "reset", "supports", "takes_matrix",
    "try_conv_backward", "try_conv_forward", "try_gemm", "try_matmul", "version",
]  # fmt: skip

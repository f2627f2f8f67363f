"""What autocast does with each operator, by type of device: plain tables, found by asking PyTorch operator by operator.

Names are those of PyTorch's dispatcher: `linalg_inv` is `linalg.inv`, `mse_loss` is `nn.functional.mse_loss`. An operator
that is in no table computes in the dtypes it is given."""

from __future__ import annotations

from collections.abc import Callable

from ..ops.machinery.record import OPS, Op
from .special_cases import CUDA_SPECIAL_CASES, SPECIAL_CASES

# Computed in the lower precision: the heavy work, which loses little by it.
LOWER = frozenset([
    "addbmm", "addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "linalg_vecdot", "linear", "matmul", "mm", "prelu",
    "scaled_dot_product_attention",
])  # fmt: skip

# Computed in float32: kernels that need the range or the accuracy, or have no lower precision.
FLOAT32 = frozenset([
    "adaptive_avg_pool3d", "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "avg_pool3d",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cdist", "cholesky", "cholesky_inverse",
    "cholesky_solve", "cosine_embedding_loss", "cross_entropy", "ctc_loss", "fft_fft", "fft_fft2", "fft_fftn",
    "fft_hfft", "fft_ifft", "fft_ifft2", "fft_ifftn", "fft_ihfft", "fft_irfft", "fft_irfft2", "fft_irfftn",
    "fft_rfft", "fft_rfft2", "fft_rfftn", "fractional_max_pool2d", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d", "fractional_max_pool3d_with_indices", "geqrf", "grid_sample", "grid_sampler",
    "grid_sampler_2d", "grid_sampler_3d", "hinge_embedding_loss", "huber_loss", "inverse", "kl_div", "l1_loss",
    "linalg_cholesky", "linalg_cholesky_ex", "linalg_cond", "linalg_eig", "linalg_eigh", "linalg_eigvals",
    "linalg_eigvalsh", "linalg_householder_product", "linalg_inv", "linalg_inv_ex", "linalg_lstsq",
    "linalg_matrix_rank", "linalg_qr", "linalg_solve", "linalg_svd", "linalg_svdvals", "linalg_tensorinv",
    "linalg_tensorsolve", "lu", "lu_solve", "margin_ranking_loss", "max_unpool1d", "max_unpool2d", "max_unpool3d",
    "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "nanquantile", "nll_loss", "orgqr", "ormqr",
    "pinverse", "poisson_nll_loss", "polar", "prod", "qr", "quantile", "smooth_l1_loss", "soft_margin_loss", "stft",
    "svd", "trace", "triangular_solve", "triplet_margin_loss", "view_as_complex",
])  # fmt: skip

# Computed in the widest dtype among their arguments.
WIDEST = frozenset(["cat", "index_copy", "stack"])

# The same for CUDA, whose kernels take more in the lower precision, and where more is a matter of range.
CUDA_LOWER = frozenset([
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "gru", "gru_cell", "linalg_multi_dot", "linalg_vecdot", "linear",
    "lstm", "lstm_cell", "matmul", "mm", "mv", "prelu", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell",
    "scaled_dot_product_attention",
])  # fmt: skip
CUDA_FLOAT32 = frozenset([
    "acos", "arccos", "arcsin", "asin", "binary_cross_entropy_with_logits", "cdist", "cosh", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1", "frobenius_norm", "group_norm",
    "hinge_embedding_loss", "huber_loss", "interpolate", "kl_div", "l1_loss", "layer_norm", "linalg_matrix_norm", "linalg_norm",
    "linalg_vector_norm", "log", "log10", "log1p", "log2", "log_softmax", "logsumexp", "margin_ranking_loss", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "nll_loss", "norm", "nuclear_norm", "pdist", "poisson_nll_loss", "pow", "prod",
    "reciprocal", "renorm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax", "softplus", "special_erfinv",
    "special_expm1", "special_log1p", "special_log_softmax", "special_logsumexp", "special_softmax", "sum", "tan",
    "softmin", "triplet_margin_loss", "native_layer_norm",
])  # fmt: skip
CUDA_WIDEST = frozenset([
    "addcdiv", "addcmul", "atan2", "bilinear", "cat", "cross", "dot", "grid_sample", "grid_sampler", "grid_sampler_2d",
    "grid_sampler_3d", "index_put", "scatter_add", "stack", "tensordot", "vdot",
])  # fmt: skip

# One operator in PyTorch that is made of several here; its parts do not choose.
WHOLE = frozenset(["bilinear", "linalg_lu_solve", "linalg_matrix_exp", "matrix_exp"])

# Operators that may run with casting on: made of parts that choose, or of none at all.
_SIMPLE = ("composite", "pointwise", "reduction", "view")

_PREFIXES = {"nn.functional.": "", "linalg.": "linalg_", "fft.": "fft_", "special.": "special_", "Tensor.": ""}


def dispatcher_name(key: str) -> str:
    """PyTorch's name of the operator that the registry has under `key`."""
    for prefix, instead in _PREFIXES.items():
        if key.startswith(prefix):
            return instead + key[len(prefix) :]
    return key


_TABLES: dict[str, tuple] = {
    "cpu": (SPECIAL_CASES, LOWER, FLOAT32, WIDEST),
    "cuda": (CUDA_SPECIAL_CASES, CUDA_LOWER, CUDA_FLOAT32, CUDA_WIDEST),
}


def policy_of(key: str, op: Op, kind: str = "cpu") -> str | Callable:
    """What to do: "lower", "float32" or "widest"; "parts" for an operator whose parts choose, if it has any, "" for one that is
    left alone with its parts; or the function of special_cases that decides."""
    name = dispatcher_name(key)
    special, lower, float32, widest = _TABLES[kind]
    if name in special:
        return special[name]
    if name in lower:
        return "lower"
    if name in float32:
        return "float32"
    if name in widest:
        return "widest"
    return "parts" if op.kind in _SIMPLE and name not in WHOLE else ""


def write_policies() -> None:
    """Give every operator of the registry its policy."""
    for key, op in OPS.items():
        op.autocast = {kind: policy_of(key, op, kind) for kind in _TABLES}

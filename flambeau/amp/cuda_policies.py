"""What autocast does with each operator on CUDA, where that is another thing than on the CPU (which its declaration says).

Names are those of PyTorch's dispatcher: `linalg_vecdot` is `linalg.vecdot`, `mse_loss` is `nn.functional.mse_loss`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..ops.machinery.record import Op

# Computed in the lower precision: the heavy work, which loses little by it.
LOWER = frozenset([
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "gru", "gru_cell", "linalg_multi_dot", "linalg_vecdot", "linear",
    "lstm", "lstm_cell", "matmul", "mm", "mv", "prelu", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell",
    "scaled_dot_product_attention",
])  # fmt: skip
# Computed in float32: what needs the range or the accuracy.
FLOAT32 = frozenset([
    "acos", "arccos", "arcsin", "asin", "binary_cross_entropy_with_logits", "cdist", "cosh", "cosine_embedding_loss",
    "cosine_similarity", "cross_entropy", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1", "frobenius_norm", "group_norm",
    "hinge_embedding_loss", "huber_loss", "interpolate", "kl_div", "l1_loss", "layer_norm", "linalg_matrix_norm", "linalg_norm",
    "linalg_vector_norm", "log", "log10", "log1p", "log2", "log_softmax", "logsumexp", "margin_ranking_loss", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "native_layer_norm", "nll_loss", "norm", "nuclear_norm", "pdist",
    "poisson_nll_loss", "pow", "prod", "reciprocal", "renorm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax",
    "softmin", "softplus", "special_erfinv", "special_expm1", "special_log1p", "special_log_softmax", "special_logsumexp",
    "special_softmax", "sum", "tan", "triplet_margin_loss",
])  # fmt: skip
# Computed in the widest dtype among their arguments.
WIDEST = frozenset([
    "addcdiv", "addcmul", "atan2", "bilinear", "cat", "cross", "dot", "grid_sample", "grid_sampler", "grid_sampler_2d",
    "grid_sampler_3d", "index_put", "scatter_add", "stack", "tensordot", "vdot",
])  # fmt: skip
_SIMPLE = ("composite", "pointwise", "reduction", "view")  # made of parts that choose, or of none at all
_PREFIXES = {"nn.functional.": "", "linalg.": "linalg_", "fft.": "fft_", "special.": "special_", "Tensor.": ""}
_known: dict[int, Any] = {}


def _refused(run: Callable, args: tuple, kwargs: dict) -> NoReturn:
    """PyTorch refuses this loss on CUDA: a sigmoid in half precision before it would lose too much."""
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a sigmoid layer right"
        " before the binary cross entropy layer.\nIn this case, combine the two layers using"
        " torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and"
        " BCEWithLogits are\nsafe to autocast."
    )


def _dispatcher_name(key: str) -> str:
    for prefix, instead in _PREFIXES.items():
        if key.startswith(prefix):
            return instead + key[len(prefix) :]
    return key


def cuda_policy(op: Op) -> str | Callable:
    """What to do on CUDA: "lower", "float32", "widest", "parts" or "" (see Op.autocast), or a function that decides."""
    found = _known.get(id(op))  # operators live as long as the program
    if found is None:
        found = _known[id(op)] = _find(op)
    return found


def _find(op: Op) -> str | Callable:
    name = _dispatcher_name(op.key or op.name)
    if name == "binary_cross_entropy":
        return _refused
    for policy, names in (("lower", LOWER), ("float32", FLOAT32), ("widest", WIDEST)):
        if name in names:
            return policy
    return "parts" if op.kind in _SIMPLE else ""

"""What runs for the operators of neural networks whose arguments are others, or in another order, than those of `nn.functional`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau

from ...core.tensor import Tensor
from .specials import REDUCTIONS, SPECIAL, F, special

# -- activations and dropout ----------------------------------------------------------------------------------------------

SPECIAL["softmax"] = lambda self, dim, dtype=None: flambeau.softmax(self, dim, dtype=dtype)
SPECIAL["log_softmax"] = lambda self, dim, dtype=None: flambeau.log_softmax(self, dim, dtype=dtype)
SPECIAL["_softmax"] = lambda self, dim, widen: flambeau.softmax(self, dim, dtype=flambeau.float32 if widen else None)
SPECIAL["_log_softmax"] = lambda self, dim, widen: flambeau.log_softmax(
    self, dim, dtype=flambeau.float32 if widen else None
)
SPECIAL["log_sigmoid"] = F.logsigmoid
SPECIAL["dropout"] = F.dropout
for _name in ("silu", "mish", "hardsigmoid", "hardswish", "relu6"):
    SPECIAL[f"{_name}_"] = functools.partial(getattr(F, _name), inplace=True)


@special("feature_dropout")
def _feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    return {3: F.dropout1d, 4: F.dropout2d}.get(input.dim(), F.dropout3d)(input, p, train)


@special("feature_dropout_")
def _feature_dropout_in_place(input: Tensor, p: float, train: bool) -> Tensor:
    return input.copy_(_feature_dropout(input, p, train))


# -- normalisation --------------------------------------------------------------------------------------------------------


@special("batch_norm")
def _batch_norm(input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, *settings: Any) -> Tensor:
    return F.batch_norm(input, mean, var, weight, bias, *settings[:3])


@special("instance_norm")
def _instance_norm(input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, *settings: Any) -> Tensor:
    return F.instance_norm(input, mean, var, weight, bias, *settings[:3])


SPECIAL["layer_norm"] = lambda input, shape, *settings: F.layer_norm(input, shape, *settings[:3])
SPECIAL["group_norm"] = lambda input, groups, *settings: F.group_norm(input, groups, *settings[:3])


@special("native_layer_norm")
def _native_layer_norm(input: Tensor, shape: list[int], weight: Any, bias: Any, eps: float) -> tuple:
    dims = tuple(range(-len(shape), 0))
    mean = input.mean(dims, keepdim=True)
    rstd = (input.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return F.layer_norm(input, shape, weight, bias, eps), mean, rstd


def _statistics(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """What a batch is normalized with."""
    dims = [d for d in range(input.dim()) if d != 1]
    return input.mean(dims), (input.var(dims, correction=0) + eps).rsqrt()


@special("_native_batch_norm_legit_no_training")
def _native_batch_norm_eval(
    input: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple:
    empty = input.new_empty(0)
    return F.batch_norm(input, mean, var, weight, bias, False, momentum, eps), empty, empty


@special("_native_batch_norm_legit_functional")
def _native_batch_norm_functional(
    input: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float
) -> tuple:
    new_mean, new_var = mean.clone(), var.clone()
    out = F.batch_norm(input, new_mean, new_var, weight, bias, training, momentum, eps)
    return out, *_statistics(input, eps), new_mean, new_var


@special("_native_batch_norm_legit.no_stats")
def _native_batch_norm_alone(
    input: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple:
    return F.batch_norm(input, None, None, weight, bias, True, momentum, eps), *_statistics(input, eps)


# -- products, windows, sizes ---------------------------------------------------------------------------------------------


@special("embedding")
def _embedding(weight: Tensor, indices: Tensor, padding: int = -1, scale: bool = False, sparse: bool = False) -> Tensor:
    return F.embedding(indices, weight, None if padding < 0 else padding, None, 2.0, scale, sparse)


@special("convolution", "_convolution")
def _convolution(
    input: Tensor, weight: Tensor, bias: Any, stride: list, padding: list, dilation: list, transposed: bool, extra: list, groups: int, *flags: bool
) -> Tensor:  # fmt: skip
    rank = weight.dim() - 2  # one number may stand for those of all dimensions
    if transposed:
        return getattr(F, f"conv_transpose{rank}d")(input, weight, bias, stride, padding, extra, groups, dilation)
    return getattr(F, f"conv{rank}d")(input, weight, bias, stride, padding, dilation, groups)


@special("_convolution_mode")
def _convolution_mode(input: Tensor, weight: Tensor, bias: Any, stride: list, *window: Any) -> Tensor:
    return getattr(F, f"conv{len(stride)}d")(input, weight, bias, stride, *window)


def _pool(name: str, **more: Any) -> Callable:
    """Pooling whose stride, where it is that of the window, is an empty list."""
    function = getattr(F, name)
    return lambda self, kernel_size, stride=None, *rest: function(self, kernel_size, stride or None, *rest, **more)


def _adaptive_max(name: str) -> Callable:
    return lambda self, size: getattr(F, name)(self, size, return_indices=True)


for _rank in (1, 2, 3):
    SPECIAL[f"max_pool{_rank}d"] = _pool(f"max_pool{_rank}d")
    SPECIAL[f"max_pool{_rank}d_with_indices"] = _pool(f"max_pool{_rank}d", return_indices=True)
    SPECIAL[f"avg_pool{_rank}d"] = _pool(f"avg_pool{_rank}d")
    SPECIAL[f"adaptive_max_pool{_rank}d"] = _adaptive_max(f"adaptive_max_pool{_rank}d")


def _resize(mode: str, **more: Any) -> Callable:
    """Sizes follow as one list of factors, or one by one after the size; interpolation of more than the nearest asks about corners."""

    def resize(input: Tensor, size: Any, *rest: Any) -> Tensor:
        corners, scales = (None, rest) if mode.startswith("nearest") else (rest[0], rest[1:])
        if len(scales) == 1 and isinstance(scales[0], (list, tuple)):
            (scales,) = scales
        if size is None:
            return F.interpolate(input, None, [s for s in scales if s is not None], mode, corners, **more)
        return F.interpolate(input, list(size), None, mode, corners, **more)

    return resize


for _rank, _linear in enumerate(("linear", "bilinear", "trilinear"), 1):
    SPECIAL[f"upsample_nearest{_rank}d"] = _resize("nearest")
    SPECIAL[f"_upsample_nearest_exact{_rank}d"] = _resize("nearest-exact")
    SPECIAL[f"upsample_{_linear}{_rank}d"] = _resize(_linear)
SPECIAL["upsample_bicubic2d"] = _resize("bicubic")
for _mode in ("bilinear", "bicubic"):
    SPECIAL[f"_upsample_{_mode}2d_aa"] = _resize(_mode, antialias=True)


def _padded(mode: str) -> Callable:
    return lambda self, padding: F.pad(self, padding, mode)


for _name, _mode in (("reflection", "reflect"), ("replication", "replicate")):
    for _rank in (1, 2, 3):
        SPECIAL[f"{_name}_pad{_rank}d"] = _padded(_mode)


# -- losses ---------------------------------------------------------------------------------------------------------------


def _loss(name: str, *between: str, tensors: int = 2) -> Callable:
    """A loss that knows its reduction as a number; `between` are the parameters after the tensors, in order."""

    def loss(*args: Any, **kwargs: Any) -> Tensor:
        given = dict(zip(between, args[tensors:]))
        reduction = REDUCTIONS[given.pop("reduction", 1)]
        return getattr(F, name)(*args[:tensors], reduction=reduction, **given, **kwargs)

    return loss


for _name, _between in (
    ("mse_loss", "reduction"), ("l1_loss", "reduction"), ("smooth_l1_loss", "reduction beta"), ("kl_div", "reduction"),
    ("huber_loss", "reduction delta"), ("soft_margin_loss", "reduction"), ("multilabel_margin_loss", "reduction"),
    ("binary_cross_entropy", "weight reduction"), ("binary_cross_entropy_with_logits", "weight pos_weight reduction"),
    ("hinge_embedding_loss", "margin reduction"), ("multi_margin_loss", "p margin weight reduction"),
    ("poisson_nll_loss", "log_input full eps reduction"),
):  # fmt: skip
    SPECIAL[_name] = _loss(_name, *_between.split())
SPECIAL["cross_entropy_loss"] = _loss("cross_entropy", "weight", "reduction", "ignore_index", "label_smoothing")
for _name in ("nll_loss", "nll_loss_nd", "nll_loss2d"):
    SPECIAL[_name] = _loss("nll_loss", "weight", "reduction", "ignore_index")
SPECIAL["cosine_embedding_loss"] = _loss("cosine_embedding_loss", "margin", "reduction", tensors=3)
SPECIAL["margin_ranking_loss"] = _loss("margin_ranking_loss", "margin", "reduction", tensors=3)
SPECIAL["triplet_margin_loss"] = _loss("triplet_margin_loss", "margin", "p", "eps", "swap", "reduction", tensors=3)
SPECIAL["ctc_loss"] = _loss("ctc_loss", "blank", "reduction", "zero_infinity", tensors=4)


# -- recurrent networks ---------------------------------------------------------------------------------------------------

for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    SPECIAL[f"{_name}.input"] = getattr(flambeau, _name)


@special("_pack_padded_sequence")
def _pack_padded(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple:
    packed = flambeau.nn.utils.rnn.pack_padded_sequence(input, lengths, batch_first)
    return packed.data, packed.batch_sizes


@special("_pad_packed_sequence")
def _pad_packed(data: Tensor, sizes: Tensor, batch_first: bool, value: float, length: int) -> tuple:
    packed = flambeau.nn.utils.rnn.PackedSequence(data, sizes)
    return flambeau.nn.utils.rnn.pad_packed_sequence(packed, batch_first, value, length if length > 0 else None)

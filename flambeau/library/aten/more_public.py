"""More calls of public functions as calls of PyTorch's operators: sampling, pooling, places and new tensors."""

from __future__ import annotations

from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...ops.creation.filled import fill_raw
from ...ops.machinery.arguments import varargs_ints
from .overloads import aten
from .public import _REDUCTIONS, _RESIZES, entry

_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_PADDING = {"zeros": 0, "border": 1, "reflection": 2}


@entry("nn.functional.grid_sample")
def _grid_sample(
    recorder: Any,
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Any = None,
) -> Any:
    return aten.grid_sampler.default(input, grid, _MODES[mode], _PADDING[padding_mode], bool(align_corners))


@entry("nn.functional.affine_grid")
def _affine_grid(recorder: Any, theta: Tensor, size: Any, align_corners: Any = None) -> Any:
    return aten.affine_grid_generator.default(theta, list(size), bool(align_corners))


@entry("nn.functional.logsigmoid")
def _logsigmoid(recorder: Any, input: Tensor) -> Any:
    return aten.log_sigmoid.default(input)


@entry("nn.functional.feature_alpha_dropout")
def _feature_alpha_dropout(
    recorder: Any, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Any:
    return (aten.feature_alpha_dropout_ if inplace else aten.feature_alpha_dropout).default(input, p, training)


@entry("resize_")
def _resize_(recorder: Any, self: Tensor, *sizes: Any, memory_format: Any = None) -> Any:
    wanted = varargs_ints(sizes, "resize_")
    return self if tuple(wanted) == tuple(self.shape) else aten.resize_.default(self, list(wanted))


@entry("nn.functional.kl_div")
def _kl_div(
    recorder: Any, input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    log_target: bool = False,
) -> Any:  # fmt: skip
    if size_average is not None or reduce is not None:
        raise NotImplementedError("kl_div in a graph: say reduction= instead of size_average and reduce")
    number = _REDUCTIONS["sum" if reduction == "batchmean" else reduction]
    loss = aten.kl_div.default(input, target, number, log_target=log_target)
    return aten.div.Tensor(loss, input.shape[0]) if reduction == "batchmean" and input.dim() else loss


@entry("isreal")
def _isreal(recorder: Any, input: Tensor) -> Any:
    if input.is_complex():
        return aten.eq.Scalar(aten.imag.default(input), 0)
    return aten.ones_like.default(input, dtype=flambeau.bool)


@entry("nonzero")
def _nonzero(recorder: Any, input: Tensor, *, as_tuple: bool = False) -> Any:
    found = aten.nonzero.default(input)
    return tuple(aten.unbind.int(found, 1)) if as_tuple else found


@entry("cdist")
def _cdist(recorder: Any, x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Any:
    return aten.cdist.default(x1, x2, float(p))


@entry("unique")
def _unique(
    recorder: Any,
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Any = None,
) -> Any:
    if dim is None:
        found = aten._unique2.default(input, sorted, return_inverse, return_counts)
    else:
        found = aten.unique_dim.default(input, dim, sorted, return_inverse, return_counts)
    wanted = [found[0]] + [f for f, flag in zip(found[1:], (return_inverse, return_counts)) if flag]
    return tuple(wanted) if len(wanted) > 1 else wanted[0]


@entry("nn.functional.interpolate")
def _interpolate(
    recorder: Any, input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: bool = False,
) -> Any:  # fmt: skip
    rank = input.dim() - 2
    sizes = None if size is None else list(size) if isinstance(size, (list, tuple)) else [size] * rank
    scales = None
    if size is None:
        given = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * rank
        scales = [float(s) for s in given]
    if mode == "area" or recompute_scale_factor:
        if sizes is None:
            assert scales is not None
            sizes = [int(n * s) for n, s in zip(input.shape[2:], scales)]
        scales = None
    if mode == "area":
        return getattr(aten, f"adaptive_avg_pool{rank}d").default(input, sizes)
    if mode == "nearest-exact":
        return getattr(aten, f"_upsample_nearest_exact{rank}d").vec(input, sizes, scales)
    name = _RESIZES.get((mode, input.dim()))
    if name is None:
        raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs another number of dimensions")
    packet = getattr(aten, f"_upsample_{name}_aa" if antialias else f"upsample_{name}")
    if mode == "nearest":
        return packet.vec(input, sizes, scales)
    return packet.vec(input, sizes, bool(align_corners), scales)


@entry("nn.functional.upsample_nearest")
def _upsample_nearest(recorder: Any, input: Tensor, size: Any = None, scale_factor: Any = None) -> Any:
    return _interpolate(recorder, input, size, scale_factor)


@entry("nn.functional.upsample_bilinear")
def _upsample_bilinear(recorder: Any, input: Tensor, size: Any = None, scale_factor: Any = None) -> Any:
    return _interpolate(recorder, input, size, scale_factor, "bilinear", True)


@entry("nn.functional.embedding_bag")
def _embedding_bag(
    recorder: Any, input: Tensor, weight: Tensor, offsets: Any = None, max_norm: Any = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: Any = None,
) -> Any:  # fmt: skip
    if max_norm is not None:
        raise NotImplementedError("embedding_bag with max_norm in a graph")
    if input.dim() == 2:
        rows, each = input.shape
        offsets = aten.arange.start_step(0, rows * each, each, device=input.device, pin_memory=False)
        input = aten.reshape.default(input, [-1])
        if per_sample_weights is not None:
            per_sample_weights = aten.reshape.default(per_sample_weights, [-1])
    number = ("sum", "mean", "max").index(mode)
    given = (
        weight, input, offsets, scale_grad_by_freq, number, sparse, per_sample_weights, include_last_offset,
        padding_idx,
    )  # fmt: skip
    return aten.embedding_bag.padding_idx(*given)[0]


@entry("internal.unsafe_view")
def _unsafe_view(recorder: Any, input: Tensor, shape: Any) -> Any:
    return aten._unsafe_view.default(input, list(shape))


@entry("internal.alias", "internal.alias.1")
def _alias(recorder: Any, input: Tensor) -> Any:
    """A view of everything: x[:, :]."""
    return aten.alias.default(input)


@entry("internal.fill_raw")
def _fill_raw(recorder: Any, t: Tensor, value: complex) -> Any:
    """A number that becomes a tensor on the way (x[0] = 2) is a constant of the graph."""
    if id(t) in getattr(recorder, "known", ()):
        return aten.fill_.Scalar(t, value)
    return recorder.unseen(lambda: fill_raw(t, value))

"""The negative log-likelihood of classes, and what it shares with cross entropy: the layout of scores, and checks of targets."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NoReturn

from ...core.aliases import AnyFunction
from ...core.dtype import opmath
from ...core.raw_memory import is_zero
from ...core.tensor import Tensor, numel_of
from ...kernels.library import loss as kernels
from ..machinery.aten_form import REDUCTIONS, aten_only
from ..machinery.declare import internal
from ..machinery.memory import dense
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from .loss_arguments import check_classes, functional_loss, read_reduction, target_shape


@lru_cache(1024)
def plane_layout(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the form of scores as (outer, classes, inner): classes are the second dimension, or the only one."""
    if len(shape) < 2:
        return 1, shape[0] if shape else 1, 1
    return shape[0], shape[1], numel_of(shape[2:])


def loss_layouts(
    input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float = 0.0, wide: bool = False
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Return the layouts of the loss, and of the statistics that kernels save."""
    outer, _, inner = plane_layout(input.shape)
    full, where = opmath(input.dtype), input.device
    shape = target_shape(input) if reduction == "none" else ()
    return [(shape, full if wide else input.dtype, where), ((3 * outer * inner + kernels.TOTALS,), full, where)]


def _check_targets(stats: Tensor, target: Tensor, classes: int, ignore_index: int) -> None:
    """Raise if the kernel found a target that is no class."""
    place = stats._storage.ptr + (stats.shape[0] - 1) * stats.dtype.itemsize
    if not is_zero(place, stats.dtype.itemsize):
        _refuse_targets(target, classes, ignore_index)


def _refuse_targets(target: Tensor, classes: int, ignore_index: int) -> NoReturn:
    values = target._array()
    bad = values[((values < 0) | (values >= classes)) & (values != ignore_index)]
    raise IndexError(f"Target {bad.flat[0]} is out of bounds.")


def _check_targets_there(stats: Tensor, target: Tensor, classes: int, ignore_index: int) -> None:
    """Check targets on a device whose memory the host cannot read: by copies on the host."""
    _check_targets(stats.cpu(), target.cpu(), classes, ignore_index)


def _nll_second(v: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> Tensor:
    """Return the gradient's gradient: the loss is linear in its input, so it is the loss of `v`."""
    return nll(v, target, weight, reduction, ignore_index)


@internal(
    grads={"grad": _nll_second},
    batching="each",
)
def nll_loss_backward(
    grad: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, stats: Tensor, reduction: str, ignore_index: int
) -> NewTensor:
    """The gradient of the negative log-likelihood with respect to its input."""
    return input.shape, input.dtype, input.device


@nll_loss_backward.op.as_aten
def _(
    recorder: Any,
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Any,
    stats: Tensor,
    reduction: str,
    *settings: Any,
) -> Tensor:
    aten, shape = recorder.aten, input.shape
    rest = weight, REDUCTIONS.index(reduction), *settings, recorder.unseen(stats.select, 0, -kernels.TOTALS)
    if len(shape) < 3:
        return aten.nll_loss_backward.default(grad, input, target, *rest)
    if len(shape) > 4 or len(shape) == 3:  # as images of one row
        input, target = _as_row(aten, input, 2), _as_row(aten, target, 1)
        grad = _as_row(aten, grad, 1) if reduction == "none" else grad
    found = aten.nll_loss2d_backward.default(grad, input, target, *rest)
    return found if found.shape == shape else aten.view.default(found, list(shape))


def _as_row(aten: Any, t: Tensor, dims: int) -> Tensor:
    """Return images of one row, of which this number of dimensions stays."""
    return aten.view.default(aten.contiguous.default(t), [*t.shape[:dims], 1, -1])


@nll_loss_backward.on("any")
def _(
    out: Tensor,
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Any,
    stats: Tensor,
    reduction: str,
    ignore_index: int,
) -> None:
    w = None if weight is None else dense(weight)
    kernels.nll_backward(
        out, dense(grad), stats, dense(target), w, *plane_layout(input.shape), ignore_index, reduction=reduction
    )


def _nll_rule(
    g: Tensor, input: Tensor, target: Tensor, weight: Any, stats: Tensor, reduction: str, ignore_index: int
) -> Tensor:
    return nll_loss_backward(g, input, target, weight, stats, reduction, ignore_index)


def run_nll(out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> None:
    w = None if weight is None else dense(weight)
    kernels.nll(*out, dense(input), dense(target), w, *plane_layout(input.shape), ignore_index, reduction=reduction)


_NLL: dict[str, Any] = {"layout": loss_layouts, "saves": ("stats",), "grads": {"input": _nll_rule}, "runs_empty": True}


@internal(
    quirks=Quirks(label="NllLossBackward0"),
    **_NLL,
    batching="each",
    sharding="loss",
    aten="nll_loss_forward(input, target, weight, reduction, ignore_index)[0]",
)
def nll_loss_rows(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int) -> Tensor:
    """The negative log-likelihood of classes in the last dimension."""


@internal(quirks=Quirks(label="NllLoss2DBackward0"), **_NLL, batching="each", sharding="loss")
def nll_loss_planes(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int) -> Tensor:
    """The negative log-likelihood of classes with further dimensions after them."""


@nll_loss_planes.op.as_aten
def _(recorder: Any, input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> Tensor:
    aten, given, number = recorder.aten, target, REDUCTIONS.index(reduction)
    if len(input.shape) != 4:  # as images of one row
        input, target = _as_row(aten, input, 2), _as_row(aten, target, 1)
    loss = aten.nll_loss2d_forward.default(input, target, weight, number, ignore_index)[0]
    return loss if reduction != "none" or target is given else aten.view.default(loss, list(given.shape))


def _checked(run: AnyFunction, check: AnyFunction) -> AnyFunction:
    """Return a kernel that runs `run` and then checks the targets."""

    def kernel(
        out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, *settings: Any
    ) -> None:
        run(out, input, target, weight, reduction, ignore_index, *settings)
        check(out[1], target, plane_layout(input.shape)[1], ignore_index)

    return kernel


def declare_kernels(run: AnyFunction, *operators: Any) -> None:
    """Declare the kernels of losses, which check the targets."""
    for operator in operators:
        operator.on("cpu")(_checked(run, _check_targets))
        operator.on("any")(_checked(run, _check_targets_there))


declare_kernels(run_nll, nll_loss_rows, nll_loss_planes)


def nll(input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> Tensor:
    chosen = nll_loss_planes if len(input.shape) > 2 else nll_loss_rows
    return chosen(input, target, weight, reduction, ignore_index)


for _name in ("nll_loss", "nll_loss2d"):

    @aten_only(
        f"{_name}_forward", backward=f"{_name}_backward(grad, self, target, weight, reduction, ignore_index, result1)"
    )
    def _(self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int) -> tuple[Tensor, Tensor]:
        """Return the loss, and the sum of the weights by which its mean is divided."""
        check_classes("nll_loss", self, target, weight)
        out = nll(self, target, weight, REDUCTIONS[reduction], ignore_index)
        kept = target != ignore_index
        weights = self.new_ones(target.shape) if weight is None else weight[target * kept]
        return out, (weights * kept).sum() if reduction or not target.dim() else self.new_zeros(())


_NLL_NAMES = tuple(
    f"{name}(input, target, weight, reduction, ignore_index)" for name in ("nll_loss_nd", "nll_loss", "nll_loss2d")
)


@functional_loss(_NLL_NAMES)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """The negative log-likelihood of class indices (N, ...) under log-probabilities (N, C, ...)."""
    reduction = read_reduction(reduction, size_average, reduce)
    if not input.shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    check_classes("nll_loss", input, target, weight)
    return nll(input, target, weight, reduction, ignore_index)

"""Losses with class indices on NVIDIA GPUs: targets that are no class are told when the host next waits for the device, not before."""

from __future__ import annotations

import functools
from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor
from ....ops.machinery.memory import dense
from ....ops.nn.cross_entropy import (
    _launch_indices,
    _layout,
    _run_nll,
    cross_entropy_indices,
    cross_entropy_unrecorded,
    nll_loss_planes,
    nll_loss_rows,
)
from ... import nvidia

# The last statistic is not zero if the kernel before met such a target; the first of them goes into the report.
_TEXT = """
typedef unsigned long long U;
extern "C" __global__ void refuse(const void* met, long long wide, const void* targets, long long bytes, long long count,
    long long classes, long long ignored, long long* report, long long code) {
  if (wide ? *(const double*)met == 0 : *(const float*)met == 0) return;
  for (long long i = 0; i < count; ++i) {
    long long t = bytes == 8 ? ((const long long*)targets)[i] : ((const unsigned char*)targets)[i];
    if ((t >= 0 && t < classes) || t == ignored) continue;
    if (atomicCAS((U*)report, (U)0, (U)code) == 0) report[1] = t;
    return;
  }
}
"""


@functools.cache
def _kernel(where: Any) -> tuple[Any, int]:
    function = nvidia.load_source(_TEXT, where).function("refuse", tuple("qqqqqqqqq"))
    return function, nvidia.error_code("nll_loss", "Target {1} is out of bounds.")


def _report(stats: Tensor, target: Tensor, input: Tensor, ignore_index: int) -> None:
    refuse, code = _kernel(stats.device)
    size = stats.dtype.itemsize
    targets = dense(target)
    refuse(
        1, 1, stats.data_ptr() + (stats.shape[0] - 1) * size, int(stats.dtype is dt.float64), targets.data_ptr(),
        targets.dtype.itemsize, targets.numel(), _layout(input.shape)[1], ignore_index, nvidia.error_flag(stats.device), code,
    )  # fmt: skip


@cross_entropy_indices.on("cuda")
@cross_entropy_unrecorded.on("cuda")
def _(
    out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> None:
    _launch_indices(out, input, target, weight, reduction, ignore_index, smoothing)
    _report(out[1], target, input, ignore_index)


@nll_loss_rows.on("cuda")
@nll_loss_planes.on("cuda")
def _(out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> None:
    _run_nll(out, input, target, weight, reduction, ignore_index)
    _report(out[1], target, input, ignore_index)

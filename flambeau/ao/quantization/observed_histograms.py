"""Histogram observer: finds the range with the smallest quantization error."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import flambeau as torch

from ... import nn
from ...core.tensor import Tensor
from ...jit.marks import export
from ...nn.modules.settings import extending
from .observed_ranges import UniformQuantizationObserverBase
from .utils import is_per_tensor


def _round_to_float32(number: float) -> float:
    """Round a number to float32."""
    if torch.jit.is_scripting():
        return float(torch.tensor(number, dtype=torch.float32))
    return float(np.float32(number))


class HistogramObserver(UniformQuantizationObserverBase):
    """Observer that counts values in bins of equal width, and chooses the range with the smallest squared error.

    Values outside of the bins widen them: counts move to the bin that contains their centre."""

    histogram: Tensor
    min_val: Tensor
    max_val: Tensor

    @extending(UniformQuantizationObserverBase, before="dtype")
    def __init__(self, bins: int = 2048, **settings: Any) -> None:
        if not is_per_tensor(settings["qscheme"]):
            raise NotImplementedError(
                "HistogramObserver's qscheme only support torch.per_tensor_symmetric "
                "                    and torch.per_tensor_affine."
            )
        if settings["is_dynamic"]:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(**settings)
        factory_kwargs = nn.factory_kwargs(settings["factory_kwargs"])
        self.bins = bins
        self.register_buffer("histogram", torch.zeros(self.bins, **factory_kwargs))
        self.register_buffer("min_val", torch.tensor(float("inf"), **factory_kwargs))
        self.register_buffer("max_val", torch.tensor(float("-inf"), **factory_kwargs))
        self.dst_nbins = 2 ** torch.iinfo(self.dtype).bits
        self.upsample_rate = 16  # counts are spread over so many parts of a bin before they move to wider ones

    def _get_norm(self, delta_begin: Tensor, delta_end: Tensor, density: Tensor) -> Tensor:
        """Return the sum of squared distances of values spread evenly from `delta_begin` to `delta_end`."""
        cubes = delta_end * delta_end * delta_end - delta_begin * delta_begin * delta_begin
        return density * (cubes / 3)

    def _compute_quantization_error(self, next_start_bin: int, next_end_bin: int) -> float:
        """Return the quantization error if the quantized range covers the bins from start to end."""
        width = (float(self.max_val) - float(self.min_val)) / self.bins
        level_width = width * (next_end_bin - next_start_bin + 1) / self.dst_nbins
        if level_width == 0.0:
            return 0.0
        begin = (torch.arange(self.bins, device=self.histogram.device) - next_start_bin) * width
        end = begin + width
        last = self.dst_nbins - 1
        level_of_begin = torch.clamp(torch.div(begin, level_width, rounding_mode="floor"), 0, last)
        level_of_end = torch.clamp(torch.div(end, level_width, rounding_mode="floor"), 0, last)
        density, half = self.histogram / width, torch.tensor(level_width / 2)
        whole = (level_of_end - level_of_begin - 1) * self._get_norm(-half, half, density)
        center_of_begin = (level_of_begin + 0.5) * level_width
        center_of_end = level_of_end * level_width + level_width / 2
        norm = self._get_norm(begin - center_of_begin, half, density)
        norm = norm + whole
        norm = norm + self._get_norm(-half, end - center_of_end, density)
        return float(norm.sum())

    def _non_linear_param_search(self) -> tuple[Tensor, Tensor]:
        """Return the range with the smallest error: bins are dropped at the end with fewer values, as long as that helps."""
        if self.histogram.size()[0] != self.bins:
            raise AssertionError("bins mismatch")
        width = (self.max_val - self.min_val) / self.bins
        total = float(torch.sum(self.histogram))
        sums: list[float] = torch.cumsum(self.histogram, dim=0).tolist()
        step, below, above = 1e-5, 0.0, 1.0
        start, end, least = 0, self.bins - 1, float("inf")
        while below < above:
            next_below, next_above = below + step, above - step
            low_limit, high_limit = _round_to_float32(next_below * total), _round_to_float32(next_above * total)
            left, right = start, end
            while left < end and sums[left] < low_limit:
                left += 1
            while right > start and sums[right] > high_limit:
                right -= 1
            next_start, next_end = start, end
            if left - start > end - right:
                next_start, below = left, next_below
            else:
                next_end, above = right, next_above
            if next_start == start and next_end == end:
                continue
            norm = self._compute_quantization_error(next_start, next_end)
            if norm > least:
                break
            least, start, end = norm, next_start, next_end
        return self.min_val + width * start, self.min_val + width * (end + 1)

    def _upscale_histogram(
        self, histogram: Tensor, orig_min: Tensor, orig_max: Tensor, update_min: Tensor, update_max: Tensor
    ) -> Tensor:
        """Return the counts of bins from orig_min to orig_max, redistributed to bins from update_min to update_max."""
        parts = self.bins * self.upsample_rate
        counts = histogram.repeat_interleave(self.upsample_rate) / self.upsample_rate
        edges = torch.linspace(orig_min, orig_max, parts + 1, device=orig_min.device)[:-1].to(histogram.device)
        middles = edges + 0.5 * ((orig_max - orig_min) / parts)
        new_edges = torch.linspace(update_min, update_max, self.bins + 1, device=update_min.device).to(histogram.device)
        places = (torch.bucketize(middles, new_edges, right=True) - 1).clamp(0, self.bins - 1)
        return torch.bincount(places, weights=counts, minlength=self.bins)

    def _combine_histograms(
        self,
        orig_hist: Tensor,
        orig_min: Tensor,
        orig_max: Tensor,
        update_hist: Tensor,
        update_min: Tensor,
        update_max: Tensor,
    ) -> Tensor:
        if update_min == orig_min and update_max == orig_max:
            return orig_hist + update_hist
        if orig_min == orig_max:
            return torch.histc(orig_min, self.bins, min=update_min, max=update_max) * torch.sum(orig_hist) + update_hist
        if update_min > orig_min:
            raise AssertionError("update_min must be <= orig_min")
        if update_max < orig_max:
            raise AssertionError("update_max must be >= orig_max")
        return update_hist + self._upscale_histogram(orig_hist, orig_min, orig_max, update_min, update_max)

    def reset_histogram(self, x: Tensor, min_val: Tensor, max_val: Tensor) -> None:
        """Reset the histogram to the values of x."""
        if min_val.numel() != 1 or max_val.numel() != 1:
            raise AssertionError("histogram min/max values must be scalar.")
        self._store(torch.histc(x, self.bins, min=min_val, max=max_val), min_val, max_val)

    def _store(self, histogram: Tensor, min_val: Tensor, max_val: Tensor) -> None:
        for kept, new in ((self.histogram, histogram), (self.min_val, min_val), (self.max_val, max_val)):
            kept.detach_().resize_(new.shape)
            kept.copy_(new)

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel() == 0:
            return x_orig
        x = x_orig.detach()
        low, high = torch.aminmax(x)
        if low == -torch.inf or high == torch.inf:
            warnings.warn("torch.inf detected in input tensor, ignoring input", stacklevel=2)
            x = x[x.abs() != torch.inf]
            if x.numel() == 0:
                return x_orig
            low, high = torch.aminmax(x)
        if self.min_val == float("inf") or self.max_val == float("-inf"):
            self.reset_histogram(x, low, high)
            return x_orig
        low, high = torch.min(self.min_val, low), torch.max(self.max_val, high)
        update = torch.histc(x, self.bins, min=low, max=high).to(self.histogram.device)
        self._store(self._combine_histograms(self.histogram, self.min_val, self.max_val, update, low, high), low, high)
        return x_orig

    @export
    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        if self.min_val == float("inf") and self.max_val == float("-inf"):
            warnings.warn(
                "must run observer before calling calculate_qparams."
                "                                    Returning default scale and zero point ",
                stacklevel=2,
            )
            device = self.min_val.device.type
            return torch.tensor([1.0], device=device), torch.tensor([0], device=device)
        if self.bins != len(self.histogram):
            raise AssertionError(
                "The number of bins in histogram should be equal to the number of bins supplied while making this observer"
            )
        low, high = self._non_linear_param_search()
        return self._calculate_qparams(low, high)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *lists) -> None:
        version = local_metadata.get("version", None)
        for name, start in (("min_val", "inf"), ("max_val", "-inf")):
            key = prefix + name
            if key in state_dict:
                if (version is None or version < 3) and tuple(state_dict[key].shape) == (0,):
                    state_dict[key] = torch.tensor(float(start))
                setattr(self, name, state_dict[key])
            elif strict:
                missing_keys.append(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *lists)


HistogramObserver.__module__ = "flambeau.ao.quantization.observer"  # its name in pickled objects

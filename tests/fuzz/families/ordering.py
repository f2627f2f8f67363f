"""Sorting, counting, searching and running along a dimension."""

from __future__ import annotations

from ..draw import COMMON, Draw
from .family import family, with_grads


@family
def ordering(draw: Draw) -> list[str]:
    dtype, shape = draw.among(*COMMON), draw.shape(0, 3, 6)
    a = draw.tensor(shape, dtype, draw.kind(), grad=draw.chance(0.5))
    if "complex" not in dtype and draw.chance(0.5) and "tensor" in a:
        a = a.replace("-0.125", "0.5").replace("1.25", "0.5").replace("-3", "2").replace("4", "2")  # ties
    d, n = draw.dim(len(shape)), draw.number(0, 6)
    keep = draw.options(0.3, keepdim="True")
    call = draw.among(
        f"torch.sort(a, dim={d}, stable=True{draw.options(descending='True')})", f"torch.sort(a, {d}, {draw.among(True, False)})",
        f"torch.argsort(a, {d}{draw.options(descending='True', stable='True')})", "torch.msort(a)",
        f"torch.topk(a, {n}, {d}{draw.options(largest='False')}).values", f"torch.kthvalue(a, {n}, {d}{keep}).values",
        f"torch.mode(a, {d}{keep})", f"torch.mode(a, {d}{keep}).values", f"torch.median(a, {d}{keep}).values", "torch.median(a)", "torch.nanmedian(a)",
        f"torch.nanmedian(a, {d}{keep}).values", f"torch.max(a, {d}{keep})", f"torch.min(a, {d}{keep})", "torch.aminmax(a)",
        f"torch.aminmax(a, dim={d})", f"torch.argmax(a, {d}{keep})", "torch.argmin(a)", f"torch.cummax(a, {d})", f"torch.cummin(a, {d})",
        f"torch.cumsum(a, {d}{draw.options(dtype=('torch.float64', 'torch.int64', 'torch.uint8'))})", f"torch.cumprod(a, {d})",
        f"torch.logcumsumexp(a, {d})", f"torch.diff(a, n={draw.number(0, 3)}, dim={d})", f"torch.cumulative_trapezoid(a, dim={d})",
        f"torch.trapezoid(a, dx=0.5, dim={d})", f"torch.quantile(a, {draw.among(0.0, 0.3, 0.5, 1.0)}, dim={d}{draw.options(interpolation=_MODES)})",
        f"torch.nanquantile(a, torch.tensor([0.25, 0.9], dtype=a.dtype){draw.options(dim=d, interpolation=_MODES)})", f"torch.renorm(a, 2, {d}, 1.0)",
        f"torch.logsumexp(a, {d}{keep})", f"torch.prod(a, {d}{keep})", f"torch.var_mean(a, {d}, correction={draw.number(0, 3)}{keep})",
        f"torch.std(a, {d}, {draw.among(True, False)})", f"torch.norm(a, {draw.among(0, 1, 2, 3, 'inf', '-inf', 0.5)}, {d}{keep})",
        f"torch.count_nonzero(a, {d})", "torch.nonzero(a)", f"torch.any(a, {d})", f"torch.all(a, {d}{keep})", f"torch.nansum(a, {d})", f"a.mean({d})",
        "torch.isin(a, a[..., :1])", f"torch.gradient(a, dim={d})", f"torch.rot90(a, {n})", f"torch.roll(a, {n}, {d})",
    )  # fmt: skip
    return with_grads(draw, [f"a = {a}", f"result = {call}"], "a")


_MODES = ("'linear'", "'lower'", "'higher'", "'midpoint'", "'nearest'")


@family
def counting(draw: Draw) -> list[str]:
    dtype = draw.among(*COMMON)
    shape = draw.shape(0, 2, 7)
    lines = [f"a = {draw.tensor(shape, dtype, draw.kind())}"]
    flags = draw.options(return_inverse="True", return_counts="True")
    edges = sorted(draw.number(-8, 8) / 4 for _ in range(draw.number(0, 6)))
    right = (
        draw.options(right="True", out_int32="True") if draw.chance(0.6) else draw.options(side=("'left'", "'right'"))
    )
    lines += (
        [f"b = torch.tensor({edges}, dtype=torch.{dtype})"]
        if "complex" not in dtype and dtype != "bool"
        else [f"b = {draw.tensor((4,), dtype)}"]
    )
    low, high = draw.number(-8, 0) / 4, draw.number(0, 8) / 4
    call = draw.among(
        f"torch.unique(a{flags}{draw.options(0.4, dim=draw.dim(len(shape)), sorted='False')})", f"torch.unique_consecutive(a{flags}{draw.options(0.4, dim=draw.dim(len(shape)))})",
        f"torch.bincount(a % 9{draw.options(minlength=draw.number(0, 9))})", f"torch.histc(a, {draw.number(1, 7)}{draw.options(min=low, max=high)})",
        f"torch.histogram(a, {draw.number(1, 7)}{draw.options(range=(low, high), density='True')})".replace("range=" + str(low), f"range=({low}, {high})").replace("range=" + str(high), f"range=({low}, {high})"),
        f"torch.histogram(a, b{draw.options(density='True', weight='a.abs()')})", f"torch.searchsorted(b, a{right})", f"torch.bucketize(a, b{draw.options(right='True', out_int32='True')})",
        f"torch.histogramdd(a, bins={draw.number(1, 4)}{draw.options(density='True', weight='a[..., 0]')})", f"torch.combinations(b, {draw.number(0, 3)}{draw.options(with_replacement='True')})",
        "torch.cartesian_prod(b, b[:2])", "torch.isin(a, b)", f"torch.bincount(a.flatten() % 9{draw.options(weights='a.flatten() * 0.5')})",
        f"torch.repeat_interleave(b, torch.arange(b.numel()){draw.options(dim=0)})", "torch.vander(b)", "torch.cov(a)", "torch.corrcoef(a)",
    )  # fmt: skip
    return [*lines, f"result = {call}"]

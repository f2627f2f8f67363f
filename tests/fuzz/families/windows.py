"""Pooling, resizing, folding and sampling of images."""

from __future__ import annotations

from ..draw import Draw
from .family import family, with_grads


def image(draw: Draw, n: int, most: int = 7, dtype: str | None = None, grad: bool = True, kind: str = "plain") -> str:
    """A batch of images of n dimensions; the batch may be missing."""
    sizes = [draw.number(1, 3), *(draw.number(1, most) for _ in range(n))]
    sizes = [draw.number(0 if draw.chance(0.1) else 1, 2), *sizes] if draw.chance(0.8) else sizes
    dtype = dtype or draw.among("float32", "float32", "float32", "float64", "bfloat16", "float16", "int64", "uint8")
    return draw.tensor(sizes, dtype, kind, grad=grad and draw.chance(0.8))


def sizes(draw: Draw, n: int, low: int, high: int) -> str:
    """A number or one for each dimension; now and then too many or too few."""
    if draw.chance(0.5):
        return str(draw.number(low, high))
    return str(tuple(draw.number(low, high) for _ in range(n if draw.chance(0.95) else draw.number(1, 4))))


@family
def pooling(draw: Draw) -> list[str]:
    n = draw.number(1, 3)
    kind = draw.among("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "lp_pool", "max_unpool")
    a = image(draw, n, kind=draw.kind())
    if kind.startswith("adaptive"):
        flag = draw.options(return_indices="True") if "max" in kind else ""
        return with_grads(draw, [f"a = {a}", f"result = F.{kind}{n}d(a, {sizes(draw, n, 1, 8)}{flag})"], "a")
    window = sizes(draw, n, 1, 4)
    if kind == "lp_pool":
        call = f"F.lp_pool{n}d(a, {draw.among(1, 2, 3, 0.5)}, {window}{draw.options(stride=sizes(draw, n, 1, 3), ceil_mode='True')})"
        return with_grads(draw, [f"a = {a}", f"result = {call}"], "a")
    more = draw.options(stride=sizes(draw, n, 1, 4), padding=sizes(draw, n, 0, 2), ceil_mode="True")
    if kind == "avg_pool":
        more += draw.options(0.3, count_include_pad="False", divisor_override=draw.number(-1, 5) if n > 1 else 3)
        return with_grads(draw, [f"a = {a}", f"result = F.avg_pool{n}d(a, {window}{more})"], "a")
    more += draw.options(0.4, dilation=sizes(draw, n, 1, 3))
    if kind == "max_pool":
        return with_grads(
            draw, [f"a = {a}", f"result = F.max_pool{n}d(a, {window}{more}{draw.options(return_indices='True')})"], "a"
        )
    back = draw.options(stride=sizes(draw, n, 1, 3), padding=sizes(draw, n, 0, 1))
    lines = [f"a = {a}", f"pooled, where = F.max_pool{n}d(a, {window}{back}, return_indices=True)"]
    return with_grads(
        draw,
        [*lines, f"result = F.max_unpool{n}d(pooled, where, {window}{back}{draw.options(0.3, output_size='a.shape')})"],
        "a",
    )


@family
def resizing(draw: Draw) -> list[str]:
    n = draw.number(1, 3)
    mode = draw.among(
        "nearest", "nearest-exact", "area", ("linear", "bilinear", "trilinear")[n - 1], "bicubic", "bilinear"
    )
    smooth = mode not in ("nearest", "nearest-exact", "area")
    given = (
        f"size={sizes(draw, n, 1, 9)}"
        if draw.chance(0.5)
        else f"scale_factor={draw.among(0.5, 2, 1.5, 0.3, 3, (2.5,) * n, 0.77)}"
    )
    more = draw.options(
        0.5 if smooth else 0.05, align_corners=("True", "False"), antialias=("True", "False", "False")
    ) + draw.options(0.2, recompute_scale_factor="True")
    return with_grads(draw, [f"a = {image(draw, n)}", f"result = F.interpolate(a, {given}, mode={mode!r}{more})"], "a")


@family
def sampling(draw: Draw) -> list[str]:
    n = draw.among(2, 2, 3)
    dtype = draw.among("float32", "float32", "float64", "bfloat16")
    batch, channels = draw.number(1, 2), draw.number(1, 2)
    inside = [draw.number(1, 5) for _ in range(n)]
    points = [draw.number(1, 4) for _ in range(n)]
    a = draw.tensor((batch, channels, *inside), dtype, draw.kind(), grad=True)
    b = draw.tensor((batch, *points, n), dtype, grad=True)  # PyTorch crashes at some points that are not finite
    if draw.chance(0.2):
        call = f"F.affine_grid(c, {(batch, channels, *inside)}{draw.options(align_corners=('True', 'False'))})"
        return with_grads(draw, [f"c = {draw.tensor((batch, n, n + 1), dtype, grad=True)}", f"result = {call}"], "c")
    more = draw.options(
        mode=("'bilinear'", "'nearest'", "'bicubic'"),
        padding_mode=("'zeros'", "'border'", "'reflection'"),
        align_corners=("True", "False"),
    )
    return with_grads(draw, [f"a = {a}", f"b = {b}", f"result = F.grid_sample(a, b{more})"], "a, b")


@family
def folding(draw: Draw) -> list[str]:
    dtype = draw.among("float32", "float32", "float64", "bfloat16", "complex64", "bool")
    way = draw.number(0, 4)
    if way == 0:
        more = draw.options(dilation=sizes(draw, 2, 1, 2), padding=sizes(draw, 2, 0, 2), stride=sizes(draw, 2, 1, 3))
        return with_grads(
            draw, [f"a = {image(draw, 2, 6, dtype)}", f"result = F.unfold(a, {sizes(draw, 2, 1, 3)}{more})"], "a"
        )
    if way == 1:
        window = (draw.number(1, 3), draw.number(1, 3))
        more = f", padding={draw.number(0, 1)}, stride={draw.number(1, 2)}, dilation={draw.number(1, 2)}"
        size = (draw.number(3, 7), draw.number(3, 7))
        lines = [
            f"a = {draw.tensor((draw.number(1, 2), draw.number(1, 2), *size), dtype, grad=True)}",
            f"blocks = F.unfold(a, {window}{more})",
        ]
        return with_grads(draw, [*lines, f"result = F.fold(blocks, {size}, {window}{more})"], "a")
    if way == 2:
        a = draw.tensor(draw.shape(1, 4, 6), dtype, grad=True)
        return with_grads(
            draw, [f"a = {a}", f"result = a.unfold({draw.dim(3)}, {draw.number(0, 4)}, {draw.number(1, 3)})"], "a"
        )
    if way == 3:
        n = draw.number(1, 3)
        pad = tuple(draw.number(-1, 3) for _ in range(2 * draw.number(1, n)))
        mode = draw.among("constant", "reflect", "replicate", "circular")
        value = draw.options(0.3, value=draw.among("1.5", "nan", "2")) if mode == "constant" else ""
        return with_grads(draw, [f"a = {image(draw, n, 5)}", f"result = F.pad(a, {pad}, mode={mode!r}{value})"], "a")
    factor = draw.number(1, 3)
    name = draw.among("pixel_shuffle", "pixel_unshuffle", "channel_shuffle")
    shape = (
        draw.number(1, 2),
        factor * factor * draw.number(1, 2),
        factor * draw.number(1, 2),
        factor * draw.number(1, 3),
    )
    return with_grads(draw, [f"a = {draw.tensor(shape, dtype, grad=True)}", f"result = F.{name}(a, {factor})"], "a")

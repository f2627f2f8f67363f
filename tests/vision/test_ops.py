"""Vision operators against torchvision where it runs without compiled code, and against plain loops where it does not."""

from __future__ import annotations

import importlib
import inspect
import math
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.vision import ops

from .oracle import torchvision

RANDOM = np.random.default_rng(0)


def boxes_in(count: int, size: float, dtype: Any = np.float32) -> np.ndarray:
    corners = RANDOM.random((count, 2, 2)) * size
    return np.concatenate([corners.min(1), corners.max(1) + 0.5], axis=1).astype(dtype)


def close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    a, b = np.asarray(ours.detach().numpy(), np.float64), np.asarray(theirs, np.float64)
    assert a.shape == b.shape
    assert np.abs(a - b).max(initial=0) <= tolerance * max(1.0, np.abs(b).max(initial=0))


# --- non-maximum suppression


def plain_nms(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    keep: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        for k in keep:
            sides = np.minimum(boxes[i, 2:], boxes[k, 2:]) - np.maximum(boxes[i, :2], boxes[k, :2])
            common = np.prod(np.maximum(sides, 0))
            areas = np.prod(boxes[[i, k], 2:] - boxes[[i, k], :2], axis=1).sum()
            if common / (areas - common) > threshold:
                break
        else:
            keep.append(int(i))
    return keep


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nms(threshold: float, dtype: Any) -> None:
    boxes, scores = boxes_in(150, 40, dtype), RANDOM.random(150).astype(dtype)
    scores[::7] = 0.5  # ties keep their order
    kept = ops.nms(flambeau.from_numpy(boxes), flambeau.from_numpy(scores), threshold)
    assert kept.dtype is flambeau.int64
    assert kept.tolist() == plain_nms(boxes, scores, threshold)


@pytest.mark.parametrize("count", [100, 1010])  # both ways to keep categories apart
def test_batched_nms(count: int) -> None:
    boxes, scores = boxes_in(count, 200), RANDOM.random(count).astype(np.float32)
    kinds = RANDOM.integers(0, 4, count)
    kept = ops.batched_nms(*map(flambeau.from_numpy, (boxes, scores, kinds)), 0.5).tolist()
    wanted = []
    for kind in range(4):
        members = np.flatnonzero(kinds == kind)
        wanted += [int(members[i]) for i in plain_nms(boxes[members], scores[members], 0.5)]
    assert kept == sorted(wanted, key=lambda i: -scores[i])


def test_nms_of_nothing_and_of_bad_input() -> None:
    none = flambeau.zeros(0, 4)
    assert ops.nms(none, none[:, 0], 0.5).tolist() == []
    assert ops.batched_nms(none, none[:, 0], none[:, 0].long(), 0.5).tolist() == []
    box = flambeau.ones(2, 4)
    with pytest.raises(RuntimeError, match="2d tensor, got 1D"):
        ops.nms(box[0], box[0], 0.5)
    with pytest.raises(RuntimeError, match="4 elements in dimension 1, got 3"):
        ops.nms(box[:, :3], box[:, 0], 0.5)
    with pytest.raises(RuntimeError, match="got 2 and 1"):
        ops.nms(box, box[:1, 0], 0.5)
    with pytest.raises(RuntimeError, match="same type"):
        ops.nms(box, box[:, 0].double(), 0.5)
    bad = flambeau.tensor([[math.nan, 0, 1, 1], [0, 0, math.inf, 1], [0, 0, 1, 1.0]])
    assert sorted(ops.nms(bad, flambeau.tensor([0.1, 0.2, 0.3]), 0.5).tolist()) == [0, 1, 2]


# --- boxes, by torchvision


@pytest.mark.parametrize(
    "name", ["box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou", "box_area", "masks_to_boxes"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16])
def test_box_functions(name: str, dtype: Any) -> None:
    theirs = torchvision().ops
    torch = judge("torch")

    if name == "masks_to_boxes":
        masks = RANDOM.random((5, 9, 7)) > 0.93
        masks[2] = False
        inputs = [masks.astype(dtype)]
    else:
        inputs = [boxes_in(4, 20).round().astype(dtype), boxes_in(3, 20).round().astype(dtype)][
            : 2 - (name == "box_area")
        ]
    wanted = getattr(theirs, name)(*map(torch.from_numpy, inputs))
    ours = getattr(ops, name)(*map(flambeau.from_numpy, inputs))
    assert str(ours.dtype) == str(wanted.dtype)
    close(ours, wanted.numpy())


@pytest.mark.parametrize("name", ["generalized_box_iou_loss", "distance_box_iou_loss", "complete_box_iou_loss"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_box_losses(name: str, reduction: str) -> None:
    theirs = torchvision().ops
    torch = judge("torch")

    inputs = [boxes_in(6, 10, np.float64), boxes_in(6, 10, np.float64)]
    a = [flambeau.from_numpy(x).requires_grad_() for x in inputs]
    b = [torch.from_numpy(x).requires_grad_() for x in inputs]
    ours, wanted = getattr(ops, name)(*a, reduction=reduction), getattr(theirs, name)(*b, reduction=reduction)
    close(ours, wanted.detach().numpy(), 1e-9)
    ours.sum().backward()
    wanted.sum().backward()
    for x, y in zip(a, b):
        close(x.grad, y.grad.numpy(), 1e-9)
    with pytest.raises(ValueError, match="reduction"):
        getattr(ops, name)(*a, reduction="most")


@pytest.mark.parametrize("alpha", [0.25, -1])
def test_focal_loss(alpha: float) -> None:
    theirs = torchvision().ops
    torch = judge("torch")

    x, y = RANDOM.standard_normal((5, 3)), (RANDOM.random((5, 3)) > 0.5).astype(np.float64)
    a, b = flambeau.from_numpy(x).requires_grad_(), torch.from_numpy(x).requires_grad_()
    ours = ops.sigmoid_focal_loss(a, flambeau.from_numpy(y), alpha=alpha, gamma=1.5, reduction="mean")
    wanted = theirs.sigmoid_focal_loss(b, torch.from_numpy(y), alpha=alpha, gamma=1.5, reduction="mean")
    close(ours, wanted.detach().numpy(), 1e-9)
    ours.backward()
    wanted.backward()
    close(a.grad, b.grad.numpy(), 1e-9)
    with pytest.raises(ValueError, match="alpha"):
        ops.sigmoid_focal_loss(a, a, alpha=3)


@pytest.mark.parametrize("formats", [("xyxy", "xywh", "cxcywh"), ("xywhr", "cxcywhr", "xyxyxyxy")])
def test_box_convert(formats: tuple[str, ...]) -> None:
    theirs = torchvision().ops
    torch = judge("torch")

    if formats[0] == "xyxy":
        start = boxes_in(4, 10)
    else:
        start = np.concatenate([boxes_in(4, 10), RANDOM.random((4, 1)).astype(np.float32) * 80], axis=1)
    for first in formats:
        source = theirs.box_convert(torch.from_numpy(start), formats[0], first)
        for second in formats:
            ours = ops.box_convert(flambeau.from_numpy(source.numpy()), first, second)
            close(ours, theirs.box_convert(source, first, second).numpy())
    with pytest.raises(NotImplementedError, match="Unsupported"):
        ops.box_convert(flambeau.zeros(1, 4), "xyxy", "xywhr")
    with pytest.raises(ValueError, match="Unsupported"):
        ops.box_convert(flambeau.zeros(1, 4), "xyxy", "corners")


def test_clipping_and_dropping_boxes() -> None:
    boxes = flambeau.tensor([[-1.0, -2, 5, 6], [3, 3, 3.5, 20]])
    assert ops.clip_boxes_to_image(boxes, (4, 8)).tolist() == [[0, 0, 5, 4], [3, 3, 3.5, 4]]
    assert ops.remove_small_boxes(boxes, 1.0).tolist() == [0]


# --- regions


def regions(count: int, images: int, size: float) -> np.ndarray:
    rows = np.concatenate([RANDOM.integers(0, images, (count, 1)), boxes_in(count, size, np.float64)], axis=1)
    rows[0, 1:] += size  # partly outside
    rows[1, 3:] = rows[1, 1:3]  # empty
    return rows


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_roi_align(aligned: bool, ratio: int) -> None:
    torchvision()
    torch = judge("torch")

    fallback = inspect.unwrap(judge("torchvision.ops.roi_align")._roi_align)
    # Inside the image: outside, torchvision's Python differs from its compiled operator, see the next test.
    x, rows = RANDOM.standard_normal((2, 3, 10, 12)), regions(7, 2, 18)[2:]
    a, b = flambeau.from_numpy(x).requires_grad_(), torch.from_numpy(x).requires_grad_()
    ours = ops.roi_align(a, flambeau.from_numpy(rows), (3, 4), 0.5, ratio, aligned)
    wanted = fallback(b, torch.from_numpy(rows), 0.5, 3, 4, ratio, aligned)
    close(ours, wanted.detach().numpy(), 1e-9)
    g = RANDOM.standard_normal(ours.shape)
    ours.backward(flambeau.from_numpy(g))
    wanted.backward(torch.from_numpy(g))
    close(a.grad, b.grad.numpy(), 1e-9)
    half = ops.roi_align(a.float(), flambeau.from_numpy(rows).float(), (3, 4), 0.5, ratio, aligned)
    close(half, wanted.detach().numpy(), 1e-4)


def point(plane: np.ndarray, y: float, x: float) -> float:
    """A bilinearly interpolated point; what lies more than one element outside is 0."""
    h, w = plane.shape
    if not (-1 <= y <= h and -1 <= x <= w):
        return 0.0
    y, x = min(max(y, 0.0), h - 1), min(max(x, 0.0), w - 1)
    i, j = int(y), int(x)
    down, right = min(i + 1, h - 1), min(j + 1, w - 1)
    upper = plane[i, j] * (1 - (x - j)) + plane[i, right] * (x - j)
    lower = plane[down, j] * (1 - (x - j)) + plane[down, right] * (x - j)
    return upper * (1 - (y - i)) + lower * (y - i)


def test_roi_align_outside_the_image() -> None:
    x, rows = RANDOM.standard_normal((2, 3, 8, 9)), regions(5, 2, 14)
    for aligned in (False, True):
        ours = ops.roi_align(flambeau.from_numpy(x), flambeau.from_numpy(rows), (3, 2), 0.5, 2, aligned)
        wanted = np.zeros(ours.shape)
        for r, (n, *box) in enumerate(rows):
            x0, y0, x1, y1 = (v * 0.5 - (0.5 if aligned else 0) for v in box)
            high, wide = (v if aligned else max(v, 1) for v in (y1 - y0, x1 - x0))
            for c, i, j in np.ndindex(*wanted.shape[1:]):
                for a, b in np.ndindex(2, 2):
                    at = y0 + (i + (a + 0.5) / 2) * high / 3, x0 + (j + (b + 0.5) / 2) * wide / 2
                    wanted[r, c, i, j] += point(x[int(n), c], *at) / 4
        close(ours, wanted, 1e-9)


def test_ps_roi_align() -> None:
    x, rows = RANDOM.standard_normal((2, 2 * 6, 8, 9)), regions(5, 2, 14)
    ours = ops.ps_roi_align(flambeau.from_numpy(x), flambeau.from_numpy(rows), (3, 2), 0.5, 2)
    wanted = np.zeros(ours.shape)
    for r, (n, *box) in enumerate(rows):
        x0, y0, x1, y1 = (v * 0.5 - 0.5 for v in box)
        for c, i, j in np.ndindex(*wanted.shape[1:]):
            plane = x[int(n), (c * 3 + i) * 2 + j]
            for a, b in np.ndindex(2, 2):
                y = y0 + (i + (a + 0.5) / 2) * (y1 - y0) / 3
                wanted[r, c, i, j] += point(plane, y, x0 + (j + (b + 0.5) / 2) * (x1 - x0) / 2) / 4
    close(ours, wanted, 1e-9)


def round_away(v: float) -> int:
    return int(math.copysign(math.floor(abs(v) + 0.5), v))


def test_roi_pool() -> None:
    x, rows = RANDOM.standard_normal((2, 3, 10, 12)), regions(6, 2, 20)
    rows[2, 1:] = [1, 3, 5, 7]  # halves after scaling
    ours = ops.roi_pool(flambeau.from_numpy(x), flambeau.from_numpy(rows), (3, 2), 0.5)
    wanted = np.zeros(ours.shape)
    for r, (n, *box) in enumerate(rows):
        x0, y0, x1, y1 = (round_away(v * 0.5) for v in box)
        high, wide = max(y1 - y0 + 1, 1) / 3, max(x1 - x0 + 1, 1) / 2
        for i, j in np.ndindex(3, 2):
            top, bottom = (min(max(v + y0, 0), 10) for v in (math.floor(i * high), math.ceil((i + 1) * high)))
            left, right = (min(max(v + x0, 0), 12) for v in (math.floor(j * wide), math.ceil((j + 1) * wide)))
            part = x[int(n), :, top:bottom, left:right]
            wanted[r, :, i, j] = part.max((1, 2)) if part.size else 0
    close(ours, wanted, 1e-9)


def test_ps_roi_pool() -> None:
    x, rows = RANDOM.standard_normal((2, 2 * 6, 10, 12)), regions(6, 2, 20)
    ours = ops.ps_roi_pool(flambeau.from_numpy(x), flambeau.from_numpy(rows), (3, 2), 0.5)
    wanted = np.zeros(ours.shape)
    for r, (n, *box) in enumerate(rows):
        x0, y0, x1, y1 = (round_away(v * 0.5) for v in box)
        high, wide = max(y1 - y0, 1) / 3, max(x1 - x0, 1) / 2
        for c, i, j in np.ndindex(2, 3, 2):
            top, bottom = (min(max(v, 0), 10) for v in (math.floor(i * high + y0), math.ceil((i + 1) * high + y0)))
            left, right = (min(max(v, 0), 12) for v in (math.floor(j * wide + x0), math.ceil((j + 1) * wide + x0)))
            part = x[int(n), (c * 3 + i) * 2 + j, top:bottom, left:right]
            wanted[r, c, i, j] = part.mean() if part.size else 0
    close(ours, wanted, 1e-9)


@pytest.mark.parametrize("name", ["roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool"])
def test_gradients_of_regions(name: str) -> None:
    rows = flambeau.from_numpy(regions(4, 2, 6))
    x = flambeau.from_numpy(RANDOM.standard_normal((2, 8 if name.startswith("ps") else 2, 5, 6))).requires_grad_()

    def pooled(x: Any) -> Any:
        return getattr(ops, name)(x, rows, 2, 0.7)

    assert gradcheck(pooled, (x,))
    if "align" in name:
        assert gradgradcheck(pooled, (x,))


@pytest.mark.parametrize("name", ["roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool"])
def test_bad_regions_are_refused(name: str) -> None:
    call = getattr(ops, name)
    x = flambeau.ones(1, 4, 4, 4)
    row = flambeau.tensor([[0.0, 0, 0, 2, 2]])
    assert tuple(call(x, row[:0], 2).shape) == (0, 1 if name.startswith("ps") else 4, 2, 2)
    assert tuple(call(x, [row[:, 1:]], 2).shape) == (1, 1 if name.startswith("ps") else 4, 2, 2)
    for bad in (flambeau.tensor([[1.0, 0, 0, 2, 2]]), flambeau.tensor([[-1.0, 0, 0, 2, 2]]), row * math.nan):
        with pytest.raises(IndexError, match="boxes name images"):
            call(x, bad, 2)
    for bad in (row[:, 1:], [row], "boxes"):
        with pytest.raises(AssertionError, match="boxes"):
            call(x, bad, 2)
    with pytest.raises(RuntimeError, match="one dtype"):
        call(x.double(), row, 2)
    with pytest.raises(ValueError, match="output_size"):
        call(x, row, 0)
    wild = flambeau.tensor([[0.0, math.nan, -math.inf, math.inf, 1e30]])
    assert call(x, wild, 2).shape[0] == 1  # no number to speak of, but no crash either
    if "align" in name:
        with pytest.raises(RuntimeError, match="too large"):
            call(x, flambeau.tensor([[0.0, 0, 0, 1e12, 1e12]]), 2)
    if name.startswith("ps"):
        with pytest.raises(RuntimeError, match="multiple"):
            call(x, row, 3)


def test_multi_scale_roi_align() -> None:
    pool = ops.MultiScaleRoIAlign(["a", "b"], 3, 2)
    maps = {"a": flambeau.randn(2, 4, 64, 64), "b": flambeau.randn(2, 4, 32, 32), "other": flambeau.randn(2, 4, 1, 1)}
    boxes = [flambeau.tensor([[0.0, 0, 50, 60], [0, 0, 250, 250]]), flambeau.tensor([[10.0, 10, 70, 90]])]
    out = pool(maps, boxes, [(256, 256), (200, 240)])
    assert pool.scales == [0.25, 0.125]
    for row, (image, box, name, scale) in enumerate(
        [(0, boxes[0][0], "a", 0.25), (0, boxes[0][1], "b", 0.125), (1, boxes[1][0], "a", 0.25)]
    ):
        wanted = ops.roi_align(maps[name][image : image + 1], [box[None]], 3, scale, 2)
        assert flambeau.equal(out[row], wanted[0])


# --- deformable convolution


def plain_deform(
    x: np.ndarray, offset: np.ndarray, weight: np.ndarray, mask: np.ndarray | None, s: int, p: int, d: int
) -> Any:
    n, channels, h, w = x.shape
    outs, per_group, kh, kw = weight.shape
    parts = offset.shape[1] // (2 * kh * kw)
    result = np.zeros((n, outs, *offset.shape[2:]))
    for image, out, i, j in np.ndindex(*result.shape):
        group = out // (outs // (channels // per_group))
        for c, a, b in np.ndindex(per_group, kh, kw):
            channel = group * per_group + c
            k = (channel // (channels // parts)) * kh * kw + a * kw + b
            y = i * s - p + a * d + offset[image, 2 * k, i, j]
            z = j * s - p + b * d + offset[image, 2 * k + 1, i, j]
            value = 0.0
            for row, column in ((math.floor(y) + e, math.floor(z) + f) for e in (0, 1) for f in (0, 1)):
                if 0 <= row < h and 0 <= column < w:
                    value += x[image, channel, row, column] * (1 - abs(y - row)) * (1 - abs(z - column))
            scale = 1.0 if mask is None else mask[image, k, i, j]
            result[image, out, i, j] += weight[out, c, a, b] * value * scale
    return result


@pytest.mark.parametrize("groups,parts,modulated", [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_deform_conv2d(groups: int, parts: int, modulated: bool) -> None:
    x, weight = RANDOM.standard_normal((2, 4, 5, 6)), RANDOM.standard_normal((2, 4 // groups, 3, 2))
    size = ((5 + 2 - 2 * 1 - 1) // 2 + 1, (6 + 2 - 1 * 1 - 1) // 2 + 1)
    offset = RANDOM.standard_normal((2, 2 * parts * 6, *size))
    mask = RANDOM.random((2, parts * 6, *size)) if modulated else None
    inputs = [flambeau.from_numpy(v).requires_grad_() for v in (x, offset, weight)]
    moved = None if mask is None else flambeau.from_numpy(mask).requires_grad_()
    bias = flambeau.tensor([1.0, 2.0], dtype=flambeau.float64)
    ours = ops.deform_conv2d(*inputs, bias, stride=2, padding=1, mask=moved)
    wanted = plain_deform(x, offset, weight, mask, 2, 1, 1) + np.array([1.0, 2.0]).reshape(1, 2, 1, 1)
    close(ours, wanted, 1e-9)

    def convolved(x: Any, offset: Any, weight: Any, mask: Any) -> Any:
        return ops.deform_conv2d(x, offset, weight, None, (2, 2), (1, 1), mask=mask)

    assert gradcheck(convolved, (*inputs, moved))


def test_deform_conv2d_without_offsets_is_a_convolution() -> None:
    layer = ops.DeformConv2d(4, 6, 3, padding=2, dilation=2, groups=2)
    x = flambeau.randn(2, 4, 7, 7)
    wanted = flambeau.nn.functional.conv2d(x, layer.weight, layer.bias, padding=2, dilation=2, groups=2)
    close(layer(x, flambeau.zeros(2, 18, 7, 7)), wanted.detach().numpy())
    with pytest.raises(RuntimeError, match="offset has shape"):
        layer(x, flambeau.zeros(2, 18, 6, 7))
    with pytest.raises(RuntimeError, match="mask has shape"):
        layer(x, flambeau.zeros(2, 18, 7, 7), flambeau.zeros(2, 8, 7, 7))
    wild = flambeau.full((2, 18, 7, 7), math.nan)
    wild[0] = 1e30
    assert flambeau.isfinite(layer(x, wild)).all()  # nowhere: every element counts as outside


# --- layers, by torchvision with the same seed


LAYERS: dict[str, tuple[tuple, dict, tuple[int, ...]]] = {
    "Conv2dNormActivation": ((3, 8), {"kernel_size": (3, 5), "dilation": (1, 2), "groups": 1}, (2, 3, 9, 9)),
    "Conv3dNormActivation": ((3, 4), {"stride": 2}, (2, 3, 5, 6, 7)),
    "SqueezeExcitation": ((6, 2), {}, (2, 6, 4, 4)),
    "MLP": ((6, [8, 5]), {"dropout": 0.3}, (4, 6)),
    "Permute": (([0, 2, 1],), {}, (2, 3, 4)),
    "FrozenBatchNorm2d": ((3,), {}, (2, 3, 4, 4)),
    "StochasticDepth": ((0.4, "row"), {}, (9, 3)),
    "DropBlock2d": ((0.3, 3), {}, (2, 3, 8, 9)),
    "DropBlock3d": ((0.3, 3), {}, (2, 3, 8, 9, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    theirs = torchvision().ops
    torch = judge("torch")

    args, options, shape = LAYERS[name]
    flambeau.manual_seed(3)
    torch.manual_seed(3)
    ours, wanted = getattr(ops, name)(*args, **options), getattr(theirs, name)(*args, **options)
    assert repr(ours) == repr(wanted)
    assert [(k, tuple(v.shape)) for k, v in ours.state_dict().items()] == [
        (k, tuple(v.shape)) for k, v in wanted.state_dict().items()
    ]
    x = RANDOM.standard_normal(shape).astype(np.float32)
    for _ in range(2):  # training, then evaluation
        close(ours(flambeau.from_numpy(x)), wanted(torch.from_numpy(x)).detach().numpy())
        ours.eval()
        wanted.eval()


@pytest.mark.parametrize("extra", [None, "LastLevelMaxPool", "LastLevelP6P7"])
def test_feature_pyramid(extra: str | None) -> None:
    torchvision()
    torch = judge("torch")

    wanted_module = judge("torchvision.ops.feature_pyramid_network")
    ours_module = importlib.import_module("flambeau.vision.ops.feature_pyramid_network")
    pair = []
    for library, module in ((flambeau, ours_module), (torch, wanted_module)):
        library.manual_seed(0)
        block = None if extra is None else getattr(module, extra)(*([8, 6] if extra == "LastLevelP6P7" else []))
        pair.append(module.FeaturePyramidNetwork([4, 8], 6, extra_blocks=block))
    for a, b in zip(pair[0].state_dict().items(), pair[1].state_dict().items()):
        assert a[0] == b[0]
        assert np.array_equal(a[1].numpy(), b[1].numpy())
    maps = {"fine": RANDOM.standard_normal((2, 4, 9, 8)), "coarse": RANDOM.standard_normal((2, 8, 5, 4))}
    ours = pair[0]({k: flambeau.from_numpy(v).float() for k, v in maps.items()})
    wanted = pair[1]({k: torch.from_numpy(v).float() for k, v in maps.items()})
    assert list(ours) == list(wanted)
    for name in ours:
        close(ours[name], wanted[name].detach().numpy())
    old = {k.replace(".0.weight", ".weight").replace(".0.bias", ".bias"): v for k, v in pair[0].state_dict().items()}
    pair[0].load_state_dict(old)  # files of old releases

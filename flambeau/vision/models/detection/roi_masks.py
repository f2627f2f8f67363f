"""Masks and keypoints of regions: their training targets and losses, and their projection to the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F

from ...ops.roi_align import roi_align


def maskrcnn_inference(x: Tensor, labels: list[Tensor]) -> list[Tensor]:
    """Return the mask of each detection's own class, as probabilities, per image."""
    chosen = x.sigmoid()[flambeau.arange(x.shape[0]), flambeau.cat(labels)][:, None]
    return list(chosen.split([label.shape[0] for label in labels], dim=0))


def project_masks_on_boxes(gt_masks: Tensor, boxes: Tensor, matched_idxs: Tensor, M: int) -> Tensor:
    """Return the part of each matched mask inside its box, resized to M x M."""
    rows = flambeau.cat([matched_idxs.to(boxes)[:, None], boxes], dim=1)
    return roi_align(gt_masks[:, None].to(rows), rows, (M, M), 1.0)[:, 0]


def maskrcnn_loss(
    mask_logits: Tensor,
    proposals: list[Tensor],
    gt_masks: list[Tensor],
    gt_labels: list[Tensor],
    mask_matched_idxs: list[Tensor],
) -> Tensor:
    """Return the binary cross entropy of the true class's mask."""
    size = mask_logits.shape[-1]
    labels = flambeau.cat([label[idxs] for label, idxs in zip(gt_labels, mask_matched_idxs)])
    targets = flambeau.cat(
        [project_masks_on_boxes(m, p, i, size) for m, p, i in zip(gt_masks, proposals, mask_matched_idxs)]
    )
    if targets.numel() == 0:
        return mask_logits.sum() * 0
    return F.binary_cross_entropy_with_logits(mask_logits[flambeau.arange(labels.shape[0]), labels], targets)


def keypoints_to_heatmap(keypoints: Tensor, rois: Tensor, heatmap_size: int) -> tuple[Tensor, Tensor]:
    """Return the location of each keypoint in its region's heatmap, and whether it is visible and inside."""
    x0, y0, x1, y1 = (t[:, None] for t in rois.unbind(1))
    x, y = keypoints[..., 0], keypoints[..., 1]
    column, row = (
        ((x - x0) * (heatmap_size / (x1 - x0))).floor().long(),
        ((y - y0) * (heatmap_size / (y1 - y0))).floor().long(),
    )
    column[x == x1] = heatmap_size - 1
    row[y == y1] = heatmap_size - 1
    inside = (column >= 0) & (row >= 0) & (column < heatmap_size) & (row < heatmap_size)
    valid = (inside & (keypoints[..., 2] > 0)).long()
    return (row * heatmap_size + column) * valid, valid


def keypointrcnn_loss(
    keypoint_logits: Tensor, proposals: list[Tensor], gt_keypoints: list[Tensor], keypoint_matched_idxs: list[Tensor]
) -> Tensor:
    """Return the cross entropy over the locations of the heatmaps."""
    n, k, h, w = keypoint_logits.shape
    if h != w:
        raise ValueError(f"keypoint_logits height and width should be equal. Instead got height = {h} and width = {w}")
    maps, valid = [], []
    for boxes, truth, matched in zip(proposals, gt_keypoints, keypoint_matched_idxs):
        found = keypoints_to_heatmap(truth[matched], boxes, h)
        maps.append(found[0].view(-1))
        valid.append(found[1].view(-1))
    targets, used = flambeau.cat(maps), flambeau.where(flambeau.cat(valid))[0]
    if targets.numel() == 0 or len(used) == 0:
        return keypoint_logits.sum() * 0
    return F.cross_entropy(keypoint_logits.view(n * k, h * w)[used], targets[used])


def heatmaps_to_keypoints(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    """Return (regions, keypoints, 3): x, y, 1 of the maximum of each heatmap resized to its region; and the maxima."""
    return _HeatmapKeypoints.apply(maps, rois)


def _argmax_positions(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    corner, size = rois[:, :2], (rois[:, 2:] - rois[:, :2]).clamp(min=1)
    whole = size.ceil()
    points = flambeau.zeros((len(rois), maps.shape[1], 3), dtype=flambeau.float32)
    scores = flambeau.zeros((len(rois), maps.shape[1]), dtype=flambeau.float32)
    for i in range(len(rois)):
        width, height = int(whole[i, 0].item()), int(whole[i, 1].item())
        grown = F.interpolate(maps[i][:, None], size=(height, width), mode="bicubic", align_corners=False)[:, 0]
        best = grown.reshape(maps.shape[1], -1).argmax(dim=1)
        row, column = flambeau.div(best, width, rounding_mode="floor"), best % width
        points[i, :, 0] = (column + 0.5) * (size[i, 0] / whole[i, 0]) + corner[i, 0]
        points[i, :, 1] = (row + 0.5) * (size[i, 1] / whole[i, 1]) + corner[i, 1]
        points[i, :, 2] = 1
        scores[i] = grown[flambeau.arange(maps.shape[1]), row, column]
    return points, scores


class _HeatmapKeypoints(flambeau.autograd.Function):
    """Keypoints from heatmaps. Every region resizes its map to another size, which ONNX expresses as a Loop."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, rois: Tensor) -> Any:
        points, scores = _argmax_positions(maps, rois)
        ctx.save_for_backward(maps, rois)
        ctx.mark_non_differentiable(points)
        return points, scores

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        maps, rois = ctx.saved_tensors
        with flambeau.enable_grad():
            given = maps.detach().requires_grad_()
            _, scores = _argmax_positions(given, rois)
        return *flambeau.autograd.grad(scores, given, grads[1]), None

    @staticmethod
    def symbolic(g: Any, maps: Any, rois: Any) -> Any:
        corner, far = (g.slice(rois, [1], [k], [k + 2]) for k in (0, 2))
        size = g.op("Max", g.op("Sub", far, corner), 1.0)
        whole = g.op("Ceil", size)
        b = g.inner("region")
        number, going = type(maps)("", flambeau.int64, ()), type(maps)("", flambeau.bool, ())
        b.graph.inputs = [number, going]
        extent, own_size, own_corner = (b.op("Gather", v, number, axis_i=0) for v in (whole, size, corner))
        wide, high = (b.op("Cast", b.slice(extent, [0], [k], [k + 1]), to_i=7) for k in (0, 1))
        one = b.unsqueeze(b.op("Gather", maps, number, axis_i=0).known(maps.dtype, (None,) * 3), [0])
        sizes = b.op("Concat", b.slice(b.op("Shape", one), [0], [0], [2]), high, wide, axis_i=0)
        grown = b.op(
            "Resize", one, None, None, sizes, mode_s="cubic", cubic_coeff_a_f=-0.75, coordinate_transformation_mode_s="half_pixel"
        )  # fmt: skip
        flat = b.op("Reshape", b.squeeze(grown, [0]), b.constant([0, -1], flambeau.int64)).known(
            maps.dtype, (None, None)
        )
        best = b.op("ArgMax", flat, axis_i=1, keepdims_i=0)
        places = [b.op("Cast", b.op(kind, best, wide), to_i=1) for kind in ("Mod", "Div")]
        found = b.op("Concat", *(b.unsqueeze(v, [1]) for v in places), axis_i=1)
        found = b.op("Add", b.op("Mul", b.op("Add", found, 0.5), b.op("Div", own_size, extent)), own_corner)
        points = b.op("Pad", found, b.constant([0, 0, 0, 1], flambeau.int64), 1.0)
        best_scores = b.reduce("ReduceMax", flat, [1], False)
        b.graph.outputs = [
            b.op("Identity", going).known(flambeau.bool, ()),
            points.known(maps.dtype, (None, 3)),
            best_scores.known(maps.dtype, (None,)),
        ]
        made = g.op("Loop", g.size(rois, 0), g.constant(True, flambeau.bool), body=b.graph, outputs=2)
        return made[0].known(maps.dtype, (None, None, 3)), made[1].known(maps.dtype, (None, None))


def keypointrcnn_inference(x: Tensor, boxes: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return keypoints and their scores, per image."""
    pairs = [heatmaps_to_keypoints(m, b) for m, b in zip(x.split([b.shape[0] for b in boxes], dim=0), boxes)]
    return [p for p, _ in pairs], [s for _, s in pairs]


def expand_boxes(boxes: Tensor, scale: float) -> Tensor:
    """Scale boxes around their centres."""
    half = (boxes[:, 2:] - boxes[:, :2]) * 0.5 * scale
    centre = (boxes[:, 2:] + boxes[:, :2]) * 0.5
    return flambeau.cat((centre - half, centre + half), dim=1)


def paste_mask_in_image(mask: Tensor, box: Tensor, im_h: int, im_w: int) -> Tensor:
    """Return a mask of one box, resized to it, in an image of zeros."""
    x0, y0, x1, y1 = (int(v) for v in box)
    width, height = max(x1 - x0 + 1, 1), max(y1 - y0 + 1, 1)
    grown = F.interpolate(mask[None, None], size=(height, width), mode="bilinear", align_corners=False)[0, 0]
    image = flambeau.zeros((im_h, im_w), dtype=grown.dtype)
    left, right, top, bottom = max(x0, 0), min(x1 + 1, im_w), max(y0, 0), min(y1 + 1, im_h)
    if right > left and bottom > top:
        image[top:bottom, left:right] = grown[top - y0 : bottom - y0, left - x0 : right - x0]
    return image


def _pasted_at_once(masks: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Paste masks into images all at once, as `paste_mask_in_image` does one: a mask times the weights of its rows and columns."""

    def weights(first: Tensor, last: Tensor, count: int) -> Tensor:  # (detections, count, mask's size)
        size = masks.shape[-1]
        length = (last - first + 1).clamp(min=1)[:, None]
        at = flambeau.arange(count)[None] - first[:, None]
        source = ((at + 0.5) * (size / length) - 0.5).clamp(0, size - 1)
        near = (1 - (source[..., None] - flambeau.arange(size)).abs()).clamp(min=0)
        return near * ((at >= 0) & (at < length))[..., None]

    rows, columns = weights(boxes[:, 1], boxes[:, 3], height), weights(boxes[:, 0], boxes[:, 2], width)
    return (rows @ masks[:, 0] @ columns.transpose(1, 2))[:, None]


def paste_masks_in_image(masks: Tensor, boxes: Tensor, img_shape: Sequence[int], padding: int = 1) -> Tensor:
    """Paste masks (detections, 1, M, M) of boxes into images (detections, 1, height, width)."""
    size = masks.shape[-1]
    padded = F.pad(masks, (padding,) * 4)  # so that interpolation fades to zero at the border
    grown = expand_boxes(boxes, float(size + 2 * padding) / size).to(flambeau.int64)
    height, width = img_shape
    if flambeau.jit.is_tracing():
        return _pasted_at_once(padded, grown, height, width)
    found = [paste_mask_in_image(mask[0], box, height, width) for mask, box in zip(padded, grown)]
    return flambeau.stack(found)[:, None] if found else masks.new_empty((0, 1, height, width))

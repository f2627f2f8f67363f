"""Helpers of the operators on boxes, with torchvision's names: programs import them too."""

from __future__ import annotations

from collections.abc import Sequence

import flambeau
from flambeau import Tensor, nn

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Concatenate tensors; one alone is returned itself, not a copy."""
    return tensors[0] if len(tensors) == 1 else flambeau.cat(list(tensors), dim)


def convert_boxes_to_roi_format(boxes: Sequence[Tensor]) -> Tensor:
    """Return rows (K, 5) of image index and box, from one (L, 4) tensor per image."""
    if not boxes:
        raise ValueError("boxes is an empty list: there is nothing to say which dtype and device it has")
    numbers = [flambeau.full_like(b[:, :1], i) for i, b in enumerate(boxes)]
    return flambeau.cat([_cat(numbers), _cat(boxes)], dim=1)


def check_roi_boxes_shape(boxes: Tensor | Sequence[Tensor]) -> None:
    """Raise AssertionError unless `boxes` are rows (K, 5), or a list of (L, 4) tensors."""
    if isinstance(boxes, (list, tuple)):
        if any(each.dim() != 2 or each.shape[1] != 4 for each in boxes):
            raise AssertionError("The shape of the tensor in the boxes list is not correct as List[Tensor[L, 4]]")
    elif not isinstance(boxes, Tensor):
        raise AssertionError("boxes is expected to be a Tensor[L, 5] or a List[Tensor[K, 4]]")
    elif boxes.dim() != 2 or boxes.shape[1] != 5:
        raise AssertionError("The boxes tensor shape is not correct as Tensor[K, 5]")


def split_normalization_params(
    model: nn.Module, norm_classes: Sequence[type] | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the trainable parameters of a model's normalization layers, and all others: for a weight decay of the latter alone."""
    classes = tuple(norm_classes or (*_NORMS, nn.LocalResponseNorm))
    for kind in classes:
        if not issubclass(kind, nn.Module):
            raise ValueError(f"Class {kind} is not a subclass of nn.Module.")
    norms: list[Tensor] = []
    others: list[Tensor] = []
    for module in model.modules():
        leaf = next(module.children(), None) is None
        found = norms if leaf and isinstance(module, classes) else others
        found.extend(p for p in module.parameters(recurse=False) if p.requires_grad)
    return norms, others


def _upcast(t: Tensor) -> Tensor:
    """Convert to a dtype of at least 32 bits, so that products do not overflow."""
    if t.is_floating_point():
        return _upcast_non_float(t)
    return t if t.dtype in (flambeau.int32, flambeau.int64) else t.int()


def _upcast_non_float(t: Tensor) -> Tensor:
    """Convert to float32, unless it is float32 or float64 already."""
    return t if t.dtype in (flambeau.float32, flambeau.float64) else t.float()


def _loss_inter_union(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """Return areas of intersection and union of boxes, row by row."""
    sides = flambeau.min(boxes1[..., 2:], boxes2[..., 2:]) - flambeau.max(boxes1[..., :2], boxes2[..., :2])
    meet = (sides > 0).all(dim=-1)
    common = flambeau.where(meet, sides[..., 0] * sides[..., 1], flambeau.zeros_like(sides[..., 0]))
    areas = [(b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1]) for b in (boxes1, boxes2)]
    return common, areas[0] + areas[1] - common

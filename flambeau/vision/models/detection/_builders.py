"""Builders of detectors: loading the weights of the model and of its backbone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau import nn

from ...ops.misc import FrozenBatchNorm2d
from .._api import expect_value, load_weights, model_builder
from ..resnet import resnet50
from ._utils import overwrite_eps
from .backbone_utils import _resnet_fpn_extractor, _validate_trainable_layers


class Start(NamedTuple):
    """The initial state of a backbone: its own weights, whether it or the whole model was trained before, and what to train now."""

    weights: Any
    progress: bool
    is_trained: bool
    trainable_layers: int | None

    def layers_to_train(self, most: int, usual: int) -> int:
        return _validate_trainable_layers(self.is_trained, self.trainable_layers, most, usual)


def settle(
    weights: Any, progress: bool, num_classes: int | None, weights_backbone: Any, layers: int | None
) -> tuple[Start, int]:
    """Return the initial state of the backbone, and the number of classes: that of the weights, the given one, or COCO's 91."""
    if weights is not None:
        count = expect_value("num_classes", num_classes, len(weights.meta["categories"]))
        return Start(None, progress, True, layers), count
    trained = weights_backbone is not None
    return Start(weights_backbone, progress, trained, layers), 91 if num_classes is None else num_classes


def detector(
    weights: Any, backbone: Any, pretrained: str | None = "IMAGENET1K_V1", zero_eps: bool = False
) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Decorator: make a builder from a function f(start, num_classes, **kwargs) that assembles the model.

    `pretrained` names the member of `backbone` that the backbone has by default. `zero_eps`: the file COCO_V1 was trained with an eps of 0
    in its frozen norms."""
    by_default = None if pretrained is None else backbone[pretrained]
    enum = weights

    def decorate(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        def build(
            *,
            weights: Any = None,
            progress: bool = True,
            num_classes: int | None = None,
            weights_backbone: Any = by_default,
            trainable_backbone_layers: int | None = None,
            **kwargs: Any,
        ) -> nn.Module:
            start, count = settle(weights, progress, num_classes, weights_backbone, trainable_backbone_layers)
            model = load_weights(make(start, count, **kwargs), weights, progress)
            if zero_eps and weights is enum.COCO_V1:
                overwrite_eps(model, 0.0)
            return model

        build.__name__ = build.__qualname__ = make.__name__
        build.__module__ = make.__module__
        build.__doc__ = make.__doc__
        if by_default is not None:
            build.__doc__ = f"{make.__doc__} The backbone is pretrained unless `weights_backbone` is None."
        return model_builder(enum, "COCO_V1", backbone, pretrained or "IMAGENET1K_V1")(build)

    return decorate


def resnet50_body(start: Start, frozen: bool = True, **fpn: Any) -> Any:
    """Return a ResNet-50 with a feature pyramid; trained norms are frozen with `frozen`."""
    trainable = start.layers_to_train(5, 3)
    norm = FrozenBatchNorm2d if start.is_trained and frozen else nn.BatchNorm2d
    backbone = resnet50(weights=start.weights, progress=start.progress, norm_layer=norm)
    if "extra_blocks" in fpn:  # made now: random numbers are drawn in this order
        fpn["extra_blocks"] = fpn["extra_blocks"]()
    return _resnet_fpn_extractor(backbone, trainable, **fpn)

"""Faster R-CNN (Ren et al., 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.nn.modules import Sequential

from ...ops import Conv2dNormActivation, FrozenBatchNorm2d, MultiScaleRoIAlign
from ...ops.misc import Layer
from .._api import weights_enums
from .._utils import initialise, kaiming_fan_out
from ..mobilenetv3 import MobileNet_V3_Large_Weights, mobilenet_v3_large
from ..resnet import ResNet50_Weights
from ._builders import Start, detector, resnet50_body
from ._utils import check_backbone
from .anchor_utils import AnchorGenerator
from .backbone_utils import _mobilenet_extractor
from .generalized_rcnn import GeneralizedRCNN
from .roi_heads import RoIHeads
from .rpn import RegionProposalNetwork, RPNHead
from .transform import GeneralizedRCNNTransform

__all__ = [
    "FasterRCNN", "FasterRCNN_MobileNet_V3_Large_320_FPN_Weights", "FasterRCNN_MobileNet_V3_Large_FPN_Weights",
    "FasterRCNN_ResNet50_FPN_V2_Weights", "FasterRCNN_ResNet50_FPN_Weights", "fasterrcnn_mobilenet_v3_large_320_fpn",
    "fasterrcnn_mobilenet_v3_large_fpn", "fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2",
]  # fmt: skip

_MAPS = ["0", "1", "2", "3"]


def _default_anchorgen() -> AnchorGenerator:
    return AnchorGenerator(((32,), (64,), (128,), (256,), (512,)), ((0.5, 1.0, 2.0),) * 5)


class FasterRCNN(GeneralizedRCNN):
    """Faster R-CNN detector of boxes and classes.

    Training: called with images and targets (boxes, labels), it returns a dict of losses. Evaluation: called with images, it returns for
    each a dict of boxes (in the image's pixels), labels and scores.
    """

    def __init__(
        self,
        backbone: Any,
        num_classes: int | None = None,
        min_size: int | Sequence[int] = 800,
        max_size: int = 1333,
        image_mean: Sequence[float] | None = None,
        image_std: Sequence[float] | None = None,
        rpn_anchor_generator: AnchorGenerator | None = None,
        rpn_head: nn.Module | None = None,
        rpn_pre_nms_top_n_train: int = 2000,
        rpn_pre_nms_top_n_test: int = 1000,
        rpn_post_nms_top_n_train: int = 2000,
        rpn_post_nms_top_n_test: int = 1000,
        rpn_nms_thresh: float = 0.7,
        rpn_fg_iou_thresh: float = 0.7,
        rpn_bg_iou_thresh: float = 0.3,
        rpn_batch_size_per_image: int = 256,
        rpn_positive_fraction: float = 0.5,
        rpn_score_thresh: float = 0.0,
        box_roi_pool: nn.Module | None = None,
        box_head: nn.Module | None = None,
        box_predictor: nn.Module | None = None,
        box_score_thresh: float = 0.05,
        box_nms_thresh: float = 0.5,
        box_detections_per_img: int = 100,
        box_fg_iou_thresh: float = 0.5,
        box_bg_iou_thresh: float = 0.5,
        box_batch_size_per_image: int = 512,
        box_positive_fraction: float = 0.25,
        bbox_reg_weights: tuple[float, float, float, float] | None = None,
        **kwargs: Any,
    ):
        check_backbone(backbone, " (assumed to be the same for all the levels)")
        if (num_classes is None) == (box_predictor is None):
            raise ValueError(
                "num_classes should be None when box_predictor is specified"
                if box_predictor is not None
                else "num_classes should not be None when box_predictor is not specified"
            )
        width = backbone.out_channels
        anchors = rpn_anchor_generator or _default_anchorgen()
        rpn = RegionProposalNetwork(
            anchors,
            rpn_head or RPNHead(width, anchors.num_anchors_per_location()[0]),
            rpn_fg_iou_thresh,
            rpn_bg_iou_thresh,
            rpn_batch_size_per_image,
            rpn_positive_fraction,
            {"training": rpn_pre_nms_top_n_train, "testing": rpn_pre_nms_top_n_test},
            {"training": rpn_post_nms_top_n_train, "testing": rpn_post_nms_top_n_test},
            rpn_nms_thresh,
            rpn_score_thresh,
        )
        pool: Any = box_roi_pool or MultiScaleRoIAlign(_MAPS, output_size=7, sampling_ratio=2)
        if box_head is None:
            box_head = TwoMLPHead(width * pool.output_size[0] ** 2, 1024)
        if box_predictor is None:
            assert num_classes is not None
            box_predictor = FastRCNNPredictor(1024, num_classes)
        heads = RoIHeads(
            pool,
            box_head,
            box_predictor,
            box_fg_iou_thresh,
            box_bg_iou_thresh,
            box_batch_size_per_image,
            box_positive_fraction,
            bbox_reg_weights,
            box_score_thresh,
            box_nms_thresh,
            box_detections_per_img,
        )
        transform = GeneralizedRCNNTransform(min_size, max_size, image_mean, image_std, **kwargs)
        super().__init__(backbone, rpn, heads, transform)


class TwoMLPHead(nn.Module):
    """Two linear layers over a pooled region."""

    def __init__(self, in_channels: int, representation_size: int):
        super().__init__()
        self.fc6 = nn.Linear(in_channels, representation_size)
        self.fc7 = nn.Linear(representation_size, representation_size)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc7(F.relu(self.fc6(x.flatten(start_dim=1)))))


class FastRCNNConvFCHead(Sequential):
    """Convolutions, then linear layers, over a pooled region."""

    def __init__(
        self,
        input_size: tuple[int, int, int],
        conv_layers: Sequence[int],
        fc_layers: Sequence[int],
        norm_layer: Layer | None = None,
    ):
        width, height, across = input_size
        blocks: list[nn.Module] = []
        for out in conv_layers:
            blocks.append(Conv2dNormActivation(width, out, norm_layer=norm_layer))
            width = out
        blocks.append(nn.Flatten())
        width *= height * across
        for out in fc_layers:
            blocks += [nn.Linear(width, out), nn.ReLU(inplace=True)]
            width = out
        super().__init__(*blocks)
        initialise(self, kaiming_fan_out)


class FastRCNNPredictor(nn.Module):
    """Head that predicts class logits and one box per class."""

    def __init__(self, in_channels: int, num_classes: int):
        super().__init__()
        self.cls_score = nn.Linear(in_channels, num_classes)
        self.bbox_pred = nn.Linear(in_channels, num_classes * 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.dim() == 4 and tuple(x.shape[2:]) != (1, 1):
            raise AssertionError(
                f"x has the wrong shape, expecting the last two dimensions to be [1,1] instead of {list(x.shape[2:])}"
            )
        x = x.flatten(start_dim=1)
        return self.cls_score(x), self.bbox_pred(x)


(
    FasterRCNN_ResNet50_FPN_Weights,
    FasterRCNN_ResNet50_FPN_V2_Weights,
    FasterRCNN_MobileNet_V3_Large_FPN_Weights,
    FasterRCNN_MobileNet_V3_Large_320_FPN_Weights,
) = weights_enums(
    "FasterRCNN_ResNet50_FPN",
    "FasterRCNN_ResNet50_FPN_V2",
    "FasterRCNN_MobileNet_V3_Large_FPN",
    "FasterRCNN_MobileNet_V3_Large_320_FPN",
)


@detector(FasterRCNN_ResNet50_FPN_Weights, ResNet50_Weights, zero_eps=True)
def fasterrcnn_resnet50_fpn(start: Start, num_classes: int, **kwargs: Any) -> FasterRCNN:
    """Faster R-CNN on a ResNet-50 with a feature pyramid."""
    return FasterRCNN(resnet50_body(start), num_classes, **kwargs)


def v2_parts(body: Any, anchors: AnchorGenerator) -> dict[str, Any]:
    """Return the heads of the improved recipe (Li et al., 2021)."""
    return {
        "rpn_anchor_generator": anchors,
        "rpn_head": RPNHead(body.out_channels, anchors.num_anchors_per_location()[0], conv_depth=2),
        "box_head": FastRCNNConvFCHead(
            (body.out_channels, 7, 7), [256, 256, 256, 256], [1024], norm_layer=nn.BatchNorm2d
        ),
    }


@detector(FasterRCNN_ResNet50_FPN_V2_Weights, ResNet50_Weights, pretrained=None)
def fasterrcnn_resnet50_fpn_v2(start: Start, num_classes: int, **kwargs: Any) -> FasterRCNN:
    """Faster R-CNN on a ResNet-50 with a feature pyramid, by the improved recipe of Li et al. (2021)."""
    body = resnet50_body(start, frozen=False, norm_layer=nn.BatchNorm2d)
    return FasterRCNN(body, num_classes, **v2_parts(body, _default_anchorgen()), **kwargs)


def _build_on_mobilenet(start: Start, num_classes: int, options: dict[str, Any]) -> FasterRCNN:
    trainable = start.layers_to_train(6, 3)
    norm = FrozenBatchNorm2d if start.is_trained else nn.BatchNorm2d
    backbone = mobilenet_v3_large(weights=start.weights, progress=start.progress, norm_layer=norm)
    body = _mobilenet_extractor(backbone, True, trainable)
    anchors = AnchorGenerator(((32, 64, 128, 256, 512),) * 3, ((0.5, 1.0, 2.0),) * 3)
    return FasterRCNN(body, num_classes, rpn_anchor_generator=anchors, **{"rpn_score_thresh": 0.05, **options})


@detector(FasterRCNN_MobileNet_V3_Large_320_FPN_Weights, MobileNet_V3_Large_Weights)
def fasterrcnn_mobilenet_v3_large_320_fpn(start: Start, num_classes: int, **kwargs: Any) -> FasterRCNN:
    """Faster R-CNN on a MobileNet V3 with a feature pyramid, for images of 320 pixels."""
    sizes = {"min_size": 320, "max_size": 640, "rpn_pre_nms_top_n_test": 150, "rpn_post_nms_top_n_test": 150}
    return _build_on_mobilenet(start, num_classes, {**sizes, **kwargs})


@detector(FasterRCNN_MobileNet_V3_Large_FPN_Weights, MobileNet_V3_Large_Weights)
def fasterrcnn_mobilenet_v3_large_fpn(start: Start, num_classes: int, **kwargs: Any) -> FasterRCNN:
    """Faster R-CNN on a MobileNet V3 with a feature pyramid."""
    return _build_on_mobilenet(start, num_classes, kwargs)

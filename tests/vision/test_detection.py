"""Detectors: the same seed, images and targets give torchvision's losses, gradients and detections."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.vision import models
from flambeau.vision.models import detection

from .compare import assert_same_numbers, gradients, numbers_of, weights
from .oracle import torchvision


def _plain_nms(boxes: Any, scores: Any, threshold: float) -> Any:
    torch = judge("torch")
    overlaps = judge("torchvision.ops.boxes").box_iou(boxes, boxes)
    keep: list[int] = []
    for i in scores.sort(stable=True, descending=True)[1].tolist():
        if not keep or not bool((overlaps[i, keep] > threshold).any()):
            keep.append(i)
    return torch.tensor(keep, dtype=torch.int64)


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torchvision, its two compiled operators of detection replaced by Python."""
    vision = torchvision()
    align = inspect.unwrap(judge("torchvision.ops.roi_align")._roi_align)

    def roi_align(
        input: Any, boxes: Any, size: Any, spatial_scale: float = 1.0, sampling_ratio: int = -1, **rest: Any
    ) -> Any:
        size = rest.get("output_size", size)
        return align(input, boxes, spatial_scale, size[0], size[1], sampling_ratio, rest.get("aligned", False))

    def pooled(input: Any, boxes: Any, output_size: Any, **rest: Any) -> Any:
        return roi_align(input, boxes, output_size, **rest)

    monkeypatch.setattr(judge("torchvision.ops.boxes"), "nms", _plain_nms)
    monkeypatch.setattr(judge("torchvision.ops.poolers"), "roi_align", pooled)
    monkeypatch.setattr(judge("torchvision.models.detection.roi_heads"), "roi_align", roi_align)
    return vision.models.detection


def _backbone(module: Any, extra: int | None = None) -> Any:
    """A ResNet of one block per stage, with a pyramid; with `extra`, of three levels and two more made from so many channels."""
    resnet = module.backbone_utils.resnet
    body = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1])
    more = (
        {}
        if extra is None
        else {"extra_blocks": module.retinanet.LastLevelP6P7(extra, 256), "returned_layers": [2, 3, 4]}
    )
    return module.backbone_utils._resnet_fpn_extractor(body, 5, **more)


def _scene(keypoints: bool = False) -> tuple[list[np.ndarray], list[dict[str, np.ndarray]]]:
    """Two images of different sizes with objects."""
    random = np.random.default_rng(0)
    images, targets = [], []
    for height, width in ((60, 80), (72, 64)):
        images.append(random.random((3, height, width)))
        boxes = np.array([[4.0, 6, 40, 50], [20, 10, 60, 40], [1, 30, 20, 58]])
        masks = np.zeros((3, height, width), np.uint8)
        for mask, (x0, y0, x1, y1) in zip(masks, boxes.astype(int)):
            mask[y0 + 2 : y1, x0:x1] = 1
        target = {"boxes": boxes, "labels": np.array([1, 2, 1]), "masks": masks}
        if keypoints:
            points = boxes[:, None, :2] + random.random((3, 4, 2)) * (boxes[:, None, 2:] - boxes[:, None, :2])
            target["keypoints"] = np.concatenate([points, np.ones((3, 4, 1))], axis=2).astype(np.float32)
        targets.append(target)
    return images, targets


def _tensors(library: Any, scene: Any) -> Any:
    images, targets = scene
    convert = lambda array: library.from_numpy(array.copy())  # noqa: E731
    return [convert(i) for i in images], [{k: convert(v) for k, v in t.items()} for t in targets]


def _compare(ours: Any, theirs: Any, scene: Any) -> None:
    torch = judge("torch")
    assert_same_numbers(numbers_of(flambeau, [ours], weights), numbers_of(torch, [theirs], weights), 1e-12)
    results = []
    for model, library in ((ours, flambeau), (theirs, torch)):
        model.double().train()
        library.manual_seed(5)
        images, targets = _tensors(library, scene)
        losses = dict(model(images, targets))
        sum(losses.values()).backward()
        results.append(({name: float(loss) for name, loss in losses.items()}, numbers_of(library, [model], gradients)))
    (losses, grads), (expected, expected_grads) = results
    assert all(expected.values()), f"{expected} proves nothing"
    assert losses == pytest.approx(expected, rel=1e-6)
    assert_same_numbers(grads, expected_grads, 1e-5, 1e-3)
    with flambeau.no_grad(), torch.no_grad():
        found = ours.eval()(_tensors(flambeau, scene)[0])
        wanted = theirs.eval()(_tensors(torch, scene)[0])
    for a, b in zip(found, wanted):
        assert len(b["boxes"]) > 0
        assert a["labels"].tolist() == b["labels"].tolist()
        np.testing.assert_allclose(a["boxes"].numpy(), b["boxes"].numpy(), rtol=1e-5, atol=1e-5)
        assert_same_numbers(numbers_of(flambeau, a), numbers_of(torch, b), 1e-5)


SMALL = {
    "min_size": 64, "max_size": 96, "rpn_pre_nms_top_n_train": 60, "rpn_pre_nms_top_n_test": 40,
    "rpn_post_nms_top_n_train": 30, "rpn_post_nms_top_n_test": 20, "rpn_batch_size_per_image": 32,
    "box_batch_size_per_image": 16, "box_detections_per_img": 8,
}  # fmt: skip


def _pool(module: Any, size: int = 3) -> Any:
    return module.faster_rcnn.MultiScaleRoIAlign(["0", "1", "2", "3"], size, 2)


def _pair(oracle: Any, make: Any, extra: int | None = None) -> list[Any]:
    made = []
    for library, module in ((flambeau, detection), (judge("torch"), oracle)):
        library.manual_seed(0)
        made.append(make(module, _backbone(module, extra)))
    return made


def test_faster_rcnn(oracle: Any) -> None:
    _compare(
        *_pair(oracle, lambda m, body: m.FasterRCNN(body, num_classes=3, box_roi_pool=_pool(m), **SMALL)), _scene()
    )


def test_mask_rcnn(oracle: Any) -> None:
    def make(m: Any, body: Any) -> Any:
        parts = {"mask_roi_pool": _pool(m, 5), "mask_head": m.mask_rcnn.MaskRCNNHeads(256, [256], 1)}
        return m.MaskRCNN(body, num_classes=3, box_roi_pool=_pool(m), **parts, **SMALL)

    _compare(*_pair(oracle, make), _scene())


def test_keypoint_rcnn(oracle: Any) -> None:
    def make(m: Any, body: Any) -> Any:
        parts = {"keypoint_roi_pool": _pool(m, 5), "keypoint_head": m.keypoint_rcnn.KeypointRCNNHeads(256, [512])}
        return m.KeypointRCNN(body, num_classes=3, num_keypoints=4, box_roi_pool=_pool(m), **parts, **SMALL)

    _compare(*_pair(oracle, make), _scene(keypoints=True))


FEW = {"score_thresh": 0.0, "topk_candidates": 12, "detections_per_img": 10}


@pytest.mark.parametrize("version", [1, 2])
def test_retinanet(oracle: Any, version: int) -> None:
    def make(m: Any, body: Any) -> Any:
        retina = m.retinanet
        anchors = retina._default_anchorgen()
        nn = (flambeau if m is detection else judge("torch")).nn
        norm = None if version == 1 else (lambda width: nn.GroupNorm(32, width))
        head = retina.RetinaNetHead(256, 9, 3, norm_layer=norm)
        head.regression_head._loss_type = "l1" if version == 1 else "giou"
        return m.RetinaNet(body, 3, anchor_generator=anchors, head=head, min_size=64, max_size=96, **FEW)

    _compare(*_pair(oracle, make, 256 if version == 1 else 512), _scene())


def test_fcos(oracle: Any) -> None:
    _compare(*_pair(oracle, lambda m, body: m.FCOS(body, 3, min_size=64, max_size=96, **FEW), 256), _scene())


def test_ssd(oracle: Any) -> None:
    def make(m: Any, _: Any) -> Any:
        features = m.backbone_utils.mobilenet.mobilenet_v3_small(width_mult=0.5).features
        nn = (flambeau if m is detection else judge("torch")).nn
        body = m.ssdlite.SSDLiteFeatureExtractorMobileNet(features, 9, nn.BatchNorm2d, width_mult=0.2)
        anchors = m.anchor_utils.DefaultBoxGenerator([[2], [2, 3], [2], [2], [2], [2]])
        return m.ssd.SSD(body, anchors, (96, 96), 3, **FEW)

    _compare(*_pair(oracle, make), _scene())


def test_ssd_heads_and_vgg(oracle: Any) -> None:
    outputs = []
    for library, m, vgg in (
        (flambeau, detection, models.vgg),
        (judge("torch"), oracle, judge("torchvision.models.vgg")),
    ):
        library.manual_seed(0)
        cfg = [8, "M", 8, "M", 8, "M", 512, "M", 512, "M"]
        body = m.ssd.SSDFeatureExtractorVGG(vgg.make_layers(cfg), False)
        head = m.ssdlite.SSDLiteHead([512, 1024], [4, 6], 3, library.nn.BatchNorm2d)
        image = library.from_numpy(np.random.default_rng(0).standard_normal((1, 3, 300, 300)).astype(np.float32))
        with library.no_grad():
            maps = dict(body.eval()(image))
            outputs.append(numbers_of(library, {**maps, **dict(head.eval()([maps["0"], maps["1"]]))}))
    assert_same_numbers(*outputs, 1e-5)


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_fpn"])
def test_builders_draw_the_same_weights(oracle: Any, name: str) -> None:
    ours, theirs = _pair(oracle, lambda m, _: getattr(m, name)(weights_backbone=None, num_classes=3))
    assert_same_numbers(numbers_of(flambeau, [ours], weights), numbers_of(judge("torch"), [theirs], weights), 1e-12)


# --- without PyTorch


def _mobile() -> Any:
    return detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights_backbone=None, num_classes=3)


def test_detection_of_random_weights_runs() -> None:
    model = _mobile().eval()
    with flambeau.no_grad():
        (found,) = model([flambeau.rand(3, 50, 70)])
    assert set(found) == {"boxes", "labels", "scores"}
    assert len(found["boxes"]) == len(found["labels"]) == len(found["scores"])


def test_bad_targets_are_refused() -> None:
    model = _mobile()
    image = flambeau.rand(3, 50, 70)
    with pytest.raises(AssertionError, match="targets should not be none"):
        model([image])
    with pytest.raises(AssertionError, match=r"shape \[N, 4\]"):
        model([image], [{"boxes": flambeau.zeros(2, 3), "labels": flambeau.ones(2).long()}])
    with pytest.raises(AssertionError, match="positive height and width"):
        model([image], [{"boxes": flambeau.tensor([[5.0, 5, 5, 9]]), "labels": flambeau.ones(1).long()}])
    with pytest.raises(TypeError, match="int64"):
        model([image], [{"boxes": flambeau.tensor([[5.0, 5, 9, 9]]), "labels": flambeau.ones(1)}])
    with pytest.raises(TypeError, match="floating type"):
        model.eval()([flambeau.zeros(3, 50, 70, dtype=flambeau.uint8)])
    with pytest.raises(ValueError, match="3d tensors"):
        model.eval()([flambeau.rand(1, 3, 50, 70)])


def test_images_without_objects_teach_too() -> None:
    model = _mobile()
    losses = model([flambeau.rand(3, 50, 70)], [{"boxes": flambeau.zeros(0, 4), "labels": flambeau.zeros(0).long()}])
    assert all(flambeau.isfinite(v) for v in losses.values())
    assert float(losses["loss_box_reg"]) == 0

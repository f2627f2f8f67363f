"""The transforms of the second generation against torchvision: draws, samples of several inputs, printed forms, errors."""

from __future__ import annotations

import pytest

from .compare import check, libraries, picture
from .test_transforms_classic import ERRORS as CLASSIC_ERRORS
from .test_transforms_classic import REPRS as CLASSIC_REPRS

KINDS = ["pil-RGB", "uint8", "image-float32"]
IMAGES = [
    "Resize(12)", "Resize((9, 14), 'nearest')", "Resize(None, max_size=14)", "CenterCrop(11)", "Pad((1, 2, 3, 4), 5)", "Pad(2, padding_mode='reflect')",
    "Pad(2, fill={torch.Tensor: 3, TV.Image: 4, 'others': 7})", "RandomCrop(12)", "RandomCrop((12, 10), padding=3)", "RandomCrop(25, pad_if_needed=True, fill=3)", "RandomCrop((23, 29))", "RandomCrop(50)",
    "RandomCrop((23, 10), padding=[1, 2])", "RandomHorizontalFlip()", "RandomVerticalFlip()", "RandomPerspective(0.5, 1.0)", "RandomPerspective(0.4, 0.7, fill=3)", "RandomResizedCrop(16)",
    "RandomResizedCrop((8, 9), scale=(0.9, 1.0), ratio=(3.0, 4.0))", "FiveCrop(9)", "TenCrop((9, 8))", "RandomRotation(30)", "RandomRotation((10, 80), 'bilinear', expand=True)", "RandomRotation(30, fill=(1, 2, 3), center=(2, 3))",
    "RandomAffine(30)", "RandomAffine((5, 10), (0.1, 0.3), (0.7, 1.3), (1, 9, 2, 8), 'bilinear', fill=2)", "RandomAffine(0, shear=20)", "ElasticTransform(30.0, 2.0)", "ElasticTransform([20.0, 40.0], [1.0, 3.0], fill=1)",
    "ColorJitter(0.4, 0.3, 0.5, 0.2)", "ColorJitter(brightness=(0.5, 0.6))", "ColorJitter()", "Grayscale()", "Grayscale(3)", "RandomGrayscale(0.6)", "RGB()", "GaussianBlur(3)", "GaussianBlur((3, 5), (0.5, 0.9))",
    "RandomInvert()", "RandomPosterize(3)", "RandomSolarize(0.6)", "RandomAdjustSharpness(2.0)", "RandomAutocontrast()", "RandomEqualize(0.4)", "RandomChannelPermutation()", "RandomPhotometricDistort()", "RandomPhotometricDistort(p=0.9)",
    "AutoAugment()", "AutoAugment(T.AutoAugmentPolicy.CIFAR10)", "AutoAugment(T.AutoAugmentPolicy.SVHN, fill=9)", "RandAugment()", "RandAugment(3, 20, fill=7)", "TrivialAugmentWide()", "TrivialAugmentWide(interpolation='bilinear', fill=[1.0])",
    "AugMix()", "AugMix(5, 2, 2, 0.7, all_ops=False)", "RandomApply([T.RandomCrop(12)], 0.5)", "RandomChoice([T.CenterCrop(3), T.CenterCrop(5), T.CenterCrop(9)])", "RandomChoice([T.CenterCrop(3), T.CenterCrop(5)], p=[0.2, 0.8])",
    "RandomOrder([T.RandomCrop(20), T.Resize(14), T.CenterCrop(13)])", "Compose([T.RandomResizedCrop(14), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4)])", "Lambda(lambda x: T.functional.hflip(x))",
    "ScaleJitter((20, 30), (0.5, 1.5))", "RandomShortestSize([10, 12, 14], 16)", "RandomShortestSize(9)", "RandomResize(9, 20)", "RandomZoomOut(fill=3, p=0.8)", "Identity()", "ToImage()", "PILToTensor()", "ToPILImage()", "ToPureTensor()",
    "ToDtype(torch.float32, scale=True)", "ToDtype({torch.Tensor: torch.float64, 'others': None})", "ToDtype({TV.Mask: torch.float64})", "ConvertImageDtype(torch.float64)", "Normalize([0.5], [0.25])", "RandomErasing(0.8)",
    "RandomErasing(1.0, value='random')", "RandomErasing(1.0, (0.5, 0.9), value=(1, 2, 3))", "GaussianNoise()", "LinearTransformation(torch.eye(2001) * 2, torch.ones(2001))", "UniformTemporalSubsample(2)", "RandomIoUCrop()",
]  # fmt: skip
# Bytes whose exact value lies halfway: sums of float products may come out on either side, and later steps enlarge it.
ONE_OFF = ("Jitter", "AugMix", "Elastic", "Perspective", "bilinear", "Photometric", "GaussianBlur")


def make(L, text):
    return eval(f"T.{text}", {"T": L.V, "torch": L.torch, "TV": L.TV})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", IMAGES)
def test_images(text, kind):
    loose = any(name in text for name in ONE_OFF)
    for seed in range(3):
        check(
            lambda L: make(L, text)(picture(kind, L)), seed, off_by=2 if loose else 0, share=0.02, rtol=1e-4, atol=2e-5
        )


def detection_sample(L, image="image-uint8"):
    """A picture with boxes, labels, masks and points, as a data set gives it."""
    boxes = L.torch.tensor([[2, 3, 12, 15], [10, 8, 28, 22], [14, 2, 19, 20], [0, 0, 4, 4]])
    return picture(image, L), {
        "boxes": L.TV.BoundingBoxes(boxes, format="XYXY", canvas_size=(23, 29)),
        "labels": L.torch.arange(4),
        "masks": L.TV.Mask(L.torch.arange(4 * 23 * 29).reshape(4, 23, 29) % 7),
        "points": L.TV.KeyPoints(L.torch.tensor([[2.0, 3.0], [20.5, 11.25]]), canvas_size=(23, 29)),
        "name": "street",
    }


DETECTION = [
    "RandomIoUCrop()", "RandomZoomOut(p=0.9)", "RandomPhotometricDistort()", "ScaleJitter((20, 30), (0.5, 1.5))", "RandomShortestSize([10, 12, 14])", "RandomHorizontalFlip(0.7)", "RandomVerticalFlip(0.7)", "Resize((12, 17))",
    "CenterCrop((10, 12))", "Pad(3)", "RandomCrop(15)", "RandomResizedCrop(16)", "RandomRotation(30)", "RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 5)", "RandomPerspective(0.3, 1.0)", "ElasticTransform(20.0, 2.0)",
    "SanitizeBoundingBoxes(min_size=5)", "SanitizeBoundingBoxes(labels_getter=lambda s: (s[1]['labels'], s[1]['labels']))", "SanitizeBoundingBoxes(6, labels_getter=None)", "SanitizeKeyPoints()", "ClampBoundingBoxes()", "ClampKeyPoints()", "ConvertBoundingBoxFormat('CXCYWH')",
    "SetClampingMode(None)", "ToPureTensor()", "ToDtype(torch.float32, scale=True)", "ToDtype({TV.Image: torch.float32, TV.Mask: torch.int64, 'others': None})", "ConvertImageDtype()", "ColorJitter(0.3)", "RandomErasing(1.0)", "FiveCrop(4)", "AutoAugment()",
    "Compose([T.RandomPhotometricDistort(), T.RandomZoomOut(fill={TV.Image: 5, 'others': 0}), T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()])", "Lambda(lambda x: x + 1, TV.Mask)", "Normalize([1.0], [2.0])",
    "Compose([T.SetClampingMode(None), T.RandomAffine(20, (0.3, 0.3)), T.ClampBoundingBoxes('hard'), T.SanitizeBoundingBoxes()])", "SanitizeBoundingBoxes(labels_getter=lambda s: s[1]['points'])",
]  # fmt: skip


@pytest.mark.parametrize("text", DETECTION)
@pytest.mark.parametrize("image", ["image-uint8", "pil-RGB", "float32"])
def test_detection_samples(text, image):
    loose = any(name in text for name in ("Photometric", "Elastic", "Perspective", "ScaleJitter"))
    for seed in range(3):
        check(
            lambda L: make(L, text)(detection_sample(L, image)),
            seed,
            off_by=2 if loose else 0,
            share=0.02,
            rtol=1e-3,
            atol=1e-4,
        )


def batch(L, labels):
    images = L.torch.rand(4, 3, 8, 9)
    return images, {
        "index": L.torch.tensor([0, 2, 1, 2]),
        "two": L.torch.eye(4)[:, :3],
        "three": L.torch.zeros(4, 1, 1),
    }[labels]


@pytest.mark.parametrize("labels", ["index", "two", "three"])
@pytest.mark.parametrize("text", ["MixUp(num_classes=3)", "CutMix(num_classes=3)", "MixUp(alpha=0.3, num_classes=3)", "CutMix(alpha=2.0)", "MixUp()", "MixUp(num_classes=5)", "CutMix(num_classes=3, labels_getter=lambda s: s[1])", "MixUp(labels_getter='x')"])  # fmt: skip
def test_mixing(text, labels):
    for seed in range(4):
        check(lambda L: make(L, text)(*batch(L, labels)), seed)
    check(lambda L: make(L, text)({"img": L.TV.Image(batch(L, labels)[0]), "label": batch(L, labels)[1]}))
    check(lambda L: make(L, text)(picture("pil-RGB", L), L.torch.zeros(1)))


@pytest.mark.parametrize("sample", ["dict", "tuple", "nested", "two images", "only boxes", "nothing"])
def test_any_nesting(sample):
    def build(L):
        image, boxes = picture("image-uint8", L), detection_sample(L)[1]["boxes"]
        return {
            "dict": {"a": image, "b": [boxes, "text", None, 3]},
            "tuple": (image, L.torch.zeros(2), boxes),
            "nested": [{"x": (image, boxes)}, {"y": {"z": 1.5}}],
            "two images": (image, image),
            "only boxes": boxes,
            "nothing": {"a": "b"},
        }[sample]

    for text in (
        "RandomCrop(9)",
        "RandomHorizontalFlip(1.0)",
        "Resize((5, 6))",
        "ColorJitter(0.5)",
        "RandomGrayscale(1.0)",
    ):
        check(lambda L: make(L, text)(build(L)))


NEW_REPRS = ["ToImage()", "ToDtype(torch.float32,scale=True)", "ToDtype({torch.Tensor:torch.float32})", "RandomZoomOut()", "RandomIoUCrop()", "ScaleJitter((3,4))", "RandomShortestSize(4)", "RandomShortestSize([4,5],7)", "RandomPhotometricDistort()", "SanitizeBoundingBoxes()", "SanitizeBoundingBoxes(labels_getter=None)", "ClampBoundingBoxes()", "ConvertBoundingBoxFormat('xywh')", "UniformTemporalSubsample(3)", "GaussianNoise()", "JPEG(50)", "JPEG((3,50))", "RandomChannelPermutation()", "MixUp(num_classes=3)", "CutMix(num_classes=3)", "Identity()", "ToPureTensor()", "RGB()", "RandomResize(3,4)", "SetClampingMode('hard')", "ClampKeyPoints()", "SanitizeKeyPoints()", "Lambda(len, torch.Tensor)", "Transform()", "ElasticTransform([1.,2.],3)", "Pad(1, fill={torch.Tensor:3})", "RandomCrop(3, fill={'others':3})", "Resize(4,interpolation=2)", "Resize(4,interpolation='bicubic')", "Resize(None,max_size=3)", "RandAugment(fill=3)", "SanitizeKeyPoints('default')", "Resize(3, T.InterpolationMode.BICUBIC)", "RandomApply([T.Grayscale(), T.RGB()], 0.3)", "RandomCrop([3, 4])"]  # fmt: skip


@pytest.mark.parametrize("text", CLASSIC_REPRS + NEW_REPRS)
def test_printed_form(text):
    ours, theirs = libraries()
    assert repr(make(ours, text)) == repr(make(theirs, text))


NEW_ERRORS = [
    "Resize(None)", "Resize(None, max_size=(1, 2))", "RandomZoomOut(side_range=(0.5, 2))", "RandomZoomOut(side_range=3)", "RandomZoomOut(p=2.0)", "RandomZoomOut(fill='x')", "JPEG(0)", "JPEG(101)", "JPEG((50, 3))", "JPEG('x')", "JPEG((1, 2, 3))",
    "MixUp(labels_getter=3)", "CutMix(alpha=-1, num_classes=2)", "ToDtype('float')", "SanitizeBoundingBoxes(min_size=0)", "SanitizeBoundingBoxes(min_area=0)", "SanitizeBoundingBoxes(labels_getter=3)", "SetClampingMode('x')", "Compose(3)", "Compose([])", "RandomApply(3)",
    "RandomApply([], p=3)", "RandomApply([])", "RandomOrder([])", "RandomChoice([])", "RandomChoice([], p=[1])", "RandomPerspective(2.0)", "RandomHorizontalFlip(3)", "Pad(1, fill='x')", "Pad(1.5)", "RandomCrop(3, padding='x')", "RandomCrop(3, padding=(1, 2, 3))", "ColorJitter(brightness={})", "Lambda(3)", "RandomShortestSize('x')", "ScaleJitter(3)",
]  # fmt: skip


@pytest.mark.parametrize("text", CLASSIC_ERRORS + NEW_ERRORS)
def test_error_types(text):
    check(lambda L: bool(make(L, text)))

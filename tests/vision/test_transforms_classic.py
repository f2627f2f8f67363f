"""The classic transforms against torchvision: the same draws, pictures, printed forms and errors."""

from __future__ import annotations

import pytest

from .compare import check, libraries, picture

KINDS = ["pil-RGB", "uint8", "float32"]
IMAGES = [
    "Resize(12)", "Resize((9, 14))", "Resize(12, max_size=14)", "Resize(12, T.InterpolationMode.NEAREST)", "Resize([12], 3)",
    "CenterCrop(11)", "CenterCrop((30, 8))", "Pad(3)", "Pad((1, 2, 3, 4), 5, 'constant')", "Pad(2, padding_mode='reflect')",
    "RandomCrop(12)", "RandomCrop((12, 10), padding=3)", "RandomCrop(25, pad_if_needed=True, fill=3)", "RandomCrop((23, 29))", "RandomCrop(50)",
    "RandomCrop((30, 12), pad_if_needed=True, padding_mode='reflect')",
    "RandomHorizontalFlip()", "RandomVerticalFlip()", "RandomHorizontalFlip(1.0)", "RandomPerspective(0.5, 1.0)", "RandomPerspective(0.4, 0.7, fill=3)",
    "RandomResizedCrop(16)", "RandomResizedCrop((8, 9), scale=(0.9, 1.0), ratio=(3.0, 4.0))", "FiveCrop(9)", "TenCrop((9, 8))",
    "RandomRotation(30)", "RandomRotation((10, 80), T.InterpolationMode.BILINEAR, expand=True)", "RandomRotation(30, fill=(1, 2, 3), center=(2, 3))",
    "RandomAffine(30)", "RandomAffine((5, 10), (0.1, 0.3), (0.7, 1.3), (1, 9, 2, 8), T.InterpolationMode.BILINEAR, fill=2)", "RandomAffine(0, shear=20)",
    "ElasticTransform(30.0, 2.0)", "ElasticTransform([20.0, 40.0], [1.0, 3.0], fill=1)",
    "ColorJitter(0.4, 0.3, 0.5, 0.2)", "ColorJitter(brightness=(0.5, 0.6))", "ColorJitter()",
    "Grayscale()", "Grayscale(3)", "RandomGrayscale(0.6)", "GaussianBlur(3)", "GaussianBlur((3, 5), (0.5, 0.9))",
    "RandomInvert()", "RandomPosterize(3)", "RandomSolarize(0.6)", "RandomAdjustSharpness(2.0)", "RandomAutocontrast()", "RandomEqualize(0.4)",
    "AutoAugment()", "AutoAugment(T.AutoAugmentPolicy.CIFAR10)", "AutoAugment(T.AutoAugmentPolicy.SVHN, fill=9)",
    "RandAugment()", "RandAugment(3, 20, fill=7)", "TrivialAugmentWide()", "TrivialAugmentWide(interpolation=T.InterpolationMode.BILINEAR, fill=[1.0])",
    "AugMix()", "AugMix(5, 2, 2, 0.7, all_ops=False)",
    "RandomApply([T.RandomCrop(12)], 0.5)", "RandomChoice([T.CenterCrop(3), T.CenterCrop(5), T.CenterCrop(9)])",
    "RandomChoice([T.CenterCrop(3), T.CenterCrop(5)], p=[0.2, 0.8])", "RandomOrder([T.RandomCrop(20), T.Resize(14), T.CenterCrop(13)])",
    "Compose([T.RandomResizedCrop(14), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4)])", "Lambda(lambda x: T.functional.hflip(x))",
]  # fmt: skip
TENSORS = [
    "ConvertImageDtype(torch.float32)", "ConvertImageDtype(torch.uint8)", "Normalize([0.5], [0.25])", "ToPILImage()",
    "RandomErasing(0.8)", "RandomErasing(1.0, value='random')", "RandomErasing(1.0, (0.5, 0.9), value=(1, 2, 3))", "RandomErasing(1.0, (0.99, 1.0), (0.1, 0.2))",
    "LinearTransformation(torch.eye(2001) * 2, torch.ones(2001))",
]  # fmt: skip
# Bytes whose exact value lies halfway: sums of float products may come out on either side.
ONE_OFF = {
    "ColorJitter": 0.02,
    "AugMix": 0.02,
    "ResizedCrop": 0.02,
    "Elastic": 0.01,
    "Perspective": 0.01,
    "BILINEAR": 0.01,
}


def make(L, text):
    return eval(f"T.{text}", {"T": L.T, "torch": L.torch})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", IMAGES)
def test_images(text, kind):
    share = next(
        (share for name, share in ONE_OFF.items() if name in text and kind != "pil-RGB" or text.startswith(name)), 0
    )
    for seed in range(3):
        check(
            lambda L: make(L, text)(picture(kind, L)),
            seed,
            off_by=(2 if "Compose" in text else 1) if share else 0,
            share=share,
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("kind", ["uint8", "float32", "batch-float32"])
@pytest.mark.parametrize("text", TENSORS)
def test_tensors(text, kind):
    for seed in range(2):
        check(lambda L: make(L, text)(picture(kind, L)), seed, rtol=1e-4)


@pytest.mark.parametrize(
    "text", ["ToTensor()", "PILToTensor()", "Compose([T.ToTensor(), T.Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))])"]
)
def test_from_pil(text):
    check(lambda L: make(L, text)(picture("pil-RGB", L)))


REPRS = ["Compose([T.ToTensor(), T.Resize(4)])", "Resize(4)", "Resize((4,5),max_size=None)", "CenterCrop(3)", "RandomCrop(3)", "RandomCrop((3,4),padding=2,fill=1)", "RandomResizedCrop(4)", "FiveCrop(3)", "TenCrop(3)", "RandomHorizontalFlip()", "RandomVerticalFlip(0.2)", "ColorJitter()", "ColorJitter(.1,.2,.3,.4)", "ColorJitter(brightness=(0.5,0.7))", "RandomRotation(10)", "RandomRotation((1,2),fill=(1,2,3),expand=True,center=(1,2))", "RandomAffine(10)", "RandomAffine(10,(.1,.2),(.5,2),3,fill=3)", "RandomAffine((1,2),shear=(1,2,3,4),center=(0,0),interpolation=T.InterpolationMode.BILINEAR)", "RandomPerspective()", "Pad(2)", "Pad((1,2),3,'edge')", "Normalize([.5],[.5])", "Normalize((.5,),(.5,),True)", "ToTensor()", "PILToTensor()", "ToPILImage()", "ToPILImage('RGB')", "ConvertImageDtype(torch.float32)", "RandomErasing()", "Grayscale()", "RandomGrayscale()", "GaussianBlur(3)", "GaussianBlur((3,5),.5)", "RandomInvert()", "RandomPosterize(3)", "RandomSolarize(100.)", "RandomAdjustSharpness(2)", "RandomAutocontrast()", "RandomEqualize()", "Lambda(len)", "RandomApply([T.Grayscale()])", "RandomChoice([T.Grayscale(),T.ToTensor()])", "RandomChoice([T.Grayscale()],p=[.5])", "RandomOrder([T.Grayscale()])", "LinearTransformation(torch.eye(2),torch.zeros(2))", "ElasticTransform()", "AutoAugment()", "AutoAugment(T.AutoAugmentPolicy.CIFAR10)", "RandAugment()", "TrivialAugmentWide()", "AugMix()", "InterpolationMode.BILINEAR", "AutoAugmentPolicy.SVHN", "CenterCrop([3, 4])", "GaussianBlur([3])"]  # fmt: skip


@pytest.mark.parametrize("text", REPRS)
def test_printed_form(text):
    ours, theirs = libraries()
    assert repr(make(ours, text)) == repr(make(theirs, text))


ERRORS = [
    "Resize('4')", "Resize((1, 2, 3))", "Resize({1})", "CenterCrop((1, 2, 3))", "Pad('x')", "Pad((1, 2, 3))", "Pad(1, fill={})", "Pad(1, padding_mode='z')",
    "RandomCrop((1, 2, 3))", "RandomResizedCrop((1, 2, 3))", "RandomResizedCrop(3, scale=1)", "RandomResizedCrop(3, ratio=1)", "RandomRotation(-1)", "RandomRotation((1, 2, 3))", "RandomRotation('a')",
    "RandomRotation(1, center=3)", "RandomRotation(1, center=(3,))", "RandomRotation(1, fill=object())", "RandomAffine(-1)", "RandomAffine(1, translate=2)", "RandomAffine(1, translate=(2, 3))",
    "RandomAffine(1, translate=(0.1, 0.2, 0.3))", "RandomAffine(1, scale=(0, 1))", "RandomAffine(1, scale=3)", "RandomAffine(1, shear=-1)", "RandomAffine(1, shear=(1, 2, 3))", "RandomAffine(1, shear='x')",
    "ColorJitter(-1)", "ColorJitter(hue=0.7)", "ColorJitter(brightness=(3, 1))", "ColorJitter(brightness=(1, 2, 3))", "ColorJitter('x')", "RandomErasing(value={})", "RandomErasing(value='x')",
    "RandomErasing(2.0)", "RandomErasing(scale=(2, 3))", "RandomErasing(scale=2)", "GaussianBlur(2)", "GaussianBlur((3, 3, 3))", "GaussianBlur(3, -1)", "GaussianBlur(3, (2, 1))", "GaussianBlur(3, 'x')", "GaussianBlur(-3)",
    "ElasticTransform('x')", "ElasticTransform([1, 2, 3])", "ElasticTransform(['x'])", "ElasticTransform(fill={})", "ElasticTransform([1, 2])", "Lambda(3)", "RandomChoice(3)", "RandomOrder(3)", "RandomChoice([], p=3)",
    "AutoAugment('x')", "AugMix(11)", "AugMix(0)", "LinearTransformation(torch.zeros(2, 3), torch.zeros(2))", "LinearTransformation(torch.zeros(2, 2), torch.zeros(3))", "FiveCrop((1, 2, 3))", "RandomPerspective(fill=object())",
]  # fmt: skip


@pytest.mark.parametrize("text", ERRORS)
def test_error_types(text):
    check(lambda L: bool(make(L, text)))

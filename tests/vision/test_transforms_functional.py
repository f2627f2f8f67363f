"""The classic functions against torchvision: values, errors and what they accept."""

from __future__ import annotations

import pytest

from .compare import check, picture

PIL_KINDS = ["pil-RGB", "pil-L"]
TENSOR_KINDS = ["uint8", "float32", "gray-uint8", "batch-float32"]
MODES = ["NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS"]
START, END = [[0, 0], [28, 0], [28, 22], [0, 22]], [[3, 2], [25, 4], [27, 20], [1, 19]]


def mode(L, name):
    return L.F.InterpolationMode[name]


# name, expression of (library, image), tolerance
CASES = [
    ("hflip", lambda L, x: L.F.hflip(x)),
    ("vflip", lambda L, x: L.F.vflip(x)),
    ("crop", lambda L, x: L.F.crop(x, 3, 4, 10, 11)),
    ("crop beyond", lambda L, x: L.F.crop(x, -3, 20, 10, 15)),
    ("crop outside", lambda L, x: L.F.crop(x, 40, 50, 4, 5)),
    ("center_crop", lambda L, x: L.F.center_crop(x, [10, 13])),
    ("center_crop int", lambda L, x: L.F.center_crop(x, 10)),
    ("center_crop larger", lambda L, x: L.F.center_crop(x, [30, 12])),
    ("center_crop both larger", lambda L, x: L.F.center_crop(x, [30, 34])),
    ("resized_crop", lambda L, x: L.F.resized_crop(x, 2, 3, 10, 12, [7, 9])),
    ("resize", lambda L, x: L.F.resize(x, [12, 14])),
    ("resize short", lambda L, x: L.F.resize(x, 10)),
    ("resize short list", lambda L, x: L.F.resize(x, [40])),
    ("resize max", lambda L, x: L.F.resize(x, 20, max_size=22)),
    ("resize same", lambda L, x: L.F.resize(x, [23, 29])),
    ("resize no antialias", lambda L, x: L.F.resize(x, [12, 14], antialias=False)),
    ("resize antialias None", lambda L, x: L.F.resize(x, [12, 14], antialias=None)),
    ("pad", lambda L, x: L.F.pad(x, [2])),
    ("pad two", lambda L, x: L.F.pad(x, [2, 3], fill=7)),
    ("pad four", lambda L, x: L.F.pad(x, [1, 2, 3, 4], fill=1)),
    ("pad edge", lambda L, x: L.F.pad(x, [1, 2, 3, 4], padding_mode="edge")),
    ("pad reflect", lambda L, x: L.F.pad(x, [1, 2, 3, 4], padding_mode="reflect")),
    ("pad symmetric", lambda L, x: L.F.pad(x, [1, 2, 3, 4], padding_mode="symmetric")),
    ("pad negative", lambda L, x: L.F.pad(x, [-1, -2, 3, 4])),
    ("pad negative symmetric", lambda L, x: L.F.pad(x, [-1, -2, 3, 4], padding_mode="symmetric")),
    ("pad negative edge", lambda L, x: L.F.pad(x, [-1, -2, 3, 4], padding_mode="edge")),
    ("five_crop", lambda L, x: L.F.five_crop(x, [9, 10])),
    ("ten_crop", lambda L, x: L.F.ten_crop(x, [9, 10])),
    ("ten_crop vertical", lambda L, x: L.F.ten_crop(x, 9, vertical_flip=True)),
    ("rotate", lambda L, x: L.F.rotate(x, 33.0)),
    ("rotate expand", lambda L, x: L.F.rotate(x, 33.0, expand=True)),
    ("rotate 90 expand", lambda L, x: L.F.rotate(x, 90, expand=True)),
    ("rotate bilinear", lambda L, x: L.F.rotate(x, -17, interpolation=mode(L, "BILINEAR"))),
    ("rotate center fill", lambda L, x: L.F.rotate(x, -17, center=[3, 4], fill=[5.0])),
    ("rotate bilinear fill", lambda L, x: L.F.rotate(x, 17, interpolation=mode(L, "BILINEAR"), fill=[1.0])),
    ("affine", lambda L, x: L.F.affine(x, 12.0, [2, 3], 1.2, [3.0, 4.0])),
    ("affine bilinear", lambda L, x: L.F.affine(x, 12.0, [2, 3], 0.8, [3.0, 4.0], interpolation=mode(L, "BILINEAR"))),
    ("affine shear number", lambda L, x: L.F.affine(x, 0, (0, 0), 1, 10, fill=3)),
    ("affine center", lambda L, x: L.F.affine(x, 40.0, [1, -3], 1.1, [0.0, 0.0], center=[5, 6], fill=2)),
    ("perspective", lambda L, x: L.F.perspective(x, START, END)),
    ("perspective nearest", lambda L, x: L.F.perspective(x, START, END, interpolation=mode(L, "NEAREST"))),
    ("perspective fill", lambda L, x: L.F.perspective(x, START, END, fill=9), {"rtol": 1e-3}),
    ("elastic", lambda L, x: L.F.elastic_transform(x, (L.torch.rand(1, 23, 29, 2) - 0.5) * 0.1)),
    ("elastic nearest", lambda L, x: L.F.elastic_transform(x, (L.torch.rand(1, 23, 29, 2) - 0.5) * 0.1, mode(L, "NEAREST"), 3)),
    ("elastic bicubic", lambda L, x: L.F.elastic_transform(x, (L.torch.rand(1, 23, 29, 2) - 0.5) * 0.1, mode(L, "BICUBIC")), {"off_by": 1, "share": 0.001}),
    ("brightness", lambda L, x: L.F.adjust_brightness(x, 1.3)),
    ("brightness 0", lambda L, x: L.F.adjust_brightness(x, 0)),
    ("contrast", lambda L, x: L.F.adjust_contrast(x, 1.4)),
    ("contrast down", lambda L, x: L.F.adjust_contrast(x, 0.37)),
    ("saturation", lambda L, x: L.F.adjust_saturation(x, 1.7)),
    ("saturation down", lambda L, x: L.F.adjust_saturation(x, 0.21)),
    ("hue", lambda L, x: L.F.adjust_hue(x, 0.13)),
    ("hue down", lambda L, x: L.F.adjust_hue(x, -0.37)),
    ("hue zero", lambda L, x: L.F.adjust_hue(x, 0.0)),
    ("gamma", lambda L, x: L.F.adjust_gamma(x, 0.7, 1.1)),
    ("gamma 2", lambda L, x: L.F.adjust_gamma(x, 2)),
    ("sharpness", lambda L, x: L.F.adjust_sharpness(x, 2.3)),
    ("sharpness down", lambda L, x: L.F.adjust_sharpness(x, 0.3)),
    ("grayscale", lambda L, x: L.F.rgb_to_grayscale(x)),
    ("grayscale 3", lambda L, x: L.F.rgb_to_grayscale(x, 3)),
    ("to_grayscale", lambda L, x: L.F.to_grayscale(x, 3)),
    ("invert", lambda L, x: L.F.invert(x)),
    ("posterize", lambda L, x: L.F.posterize(x, 3)),
    ("posterize 0", lambda L, x: L.F.posterize(x, 0)),
    ("posterize 8", lambda L, x: L.F.posterize(x, 8)),
    ("solarize", lambda L, x: L.F.solarize(x, 100)),
    ("solarize low", lambda L, x: L.F.solarize(x, 0.5)),
    ("autocontrast", lambda L, x: L.F.autocontrast(L.F.crop(x, 2, 2, 4, 5))),
    ("equalize", lambda L, x: L.F.equalize(x)),
    ("equalize small", lambda L, x: L.F.equalize(L.F.crop(x, 2, 2, 4, 5))),
    ("blur", lambda L, x: L.F.gaussian_blur(x, [3, 5])),
    ("blur sigma", lambda L, x: L.F.gaussian_blur(x, 5, [0.7, 1.9])),
    ("get_dimensions", lambda L, x: L.F.get_dimensions(x)),
    ("get_image_size", lambda L, x: L.F.get_image_size(x)),
    ("get_image_num_channels", lambda L, x: L.F.get_image_num_channels(x)),
    ("normalize", lambda L, x: L.F.normalize(x, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4])),
    ("normalize inplace", lambda L, x: (L.F.normalize(x, [0.5], [0.2], inplace=True), x)),
    ("normalize std 0", lambda L, x: L.F.normalize(x, [0.5], [0.0])),
    ("erase", lambda L, x: L.F.erase(x, 2, 3, 4, 5, L.torch.tensor(1))),
    ("erase inplace", lambda L, x: (L.F.erase(x, 2, 3, 4, 5, L.torch.ones(3, 4, 5), inplace=True), x)),
    ("to_tensor", lambda L, x: L.F.to_tensor(x)),
    ("pil_to_tensor", lambda L, x: L.F.pil_to_tensor(x)),
    ("to_pil_image", lambda L, x: L.F.to_pil_image(x)),
    ("convert float", lambda L, x: L.F.convert_image_dtype(x, L.torch.float32)),
    ("convert double", lambda L, x: L.F.convert_image_dtype(x, L.torch.float64)),
    ("convert uint8", lambda L, x: L.F.convert_image_dtype(x, L.torch.uint8)),
    ("convert int16", lambda L, x: L.F.convert_image_dtype(x, L.torch.int16)),
    ("convert int32", lambda L, x: L.F.convert_image_dtype(x, L.torch.int32)),
    ("convert int64", lambda L, x: L.F.convert_image_dtype(x, L.torch.int64)),
]  # fmt: skip


@pytest.mark.parametrize("kind", PIL_KINDS + TENSOR_KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_function(case, kind):
    tolerance = case[2] if len(case) > 2 else {}
    check(lambda L: case[1](L, picture(kind, L)), **tolerance)


@pytest.mark.parametrize("kind", PIL_KINDS + TENSOR_KINDS)
@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("size", [[11, 40], [37, 15]], ids=str)
@pytest.mark.parametrize("antialias", [True, False])
def test_resize_modes(kind, name, size, antialias):
    check(lambda L: L.F.resize(picture(kind, L), size, mode(L, name), antialias=antialias), atol=1e-5)


@pytest.mark.parametrize("kind", ["pil-RGBA", "pil-P", "pil-I", "pil-F", "pil-1", "pil-LA", "pil-CMYK", "pil-I;16"])
@pytest.mark.parametrize(
    "case",
    [
        c
        for c in CASES
        if c[0]
        in (
            "to_tensor",
            "pil_to_tensor",
            "pad edge",
            "pad two",
            "rotate",
            "resize",
            "hflip",
            "hue",
            "crop",
            "get_dimensions",
            "affine",
            "brightness",
        )
    ],
    ids=lambda case: case[0],
)
def test_other_pil_modes(case, kind):
    check(lambda L: case[1](L, picture(kind, L)))


@pytest.mark.parametrize("kind", ["double", "batch-uint8", "gray-float32"])
@pytest.mark.parametrize(
    "case",
    [
        c
        for c in CASES
        if c[0]
        in (
            "resize",
            "pad reflect",
            "rotate bilinear fill",
            "contrast",
            "hue",
            "sharpness",
            "equalize",
            "blur",
            "perspective",
            "autocontrast",
        )
    ],
    ids=lambda case: case[0],
)
def test_other_tensors(case, kind):
    check(lambda L: case[1](L, picture(kind, L)), **(case[2] if len(case) > 2 else {}))


ERRORS = [
    ("not an image", lambda L: L.F.hflip("x")),
    ("one dimension", lambda L: L.F.hflip(L.torch.rand(3))),
    ("resize three", lambda L: L.F.resize(L.torch.rand(3, 4, 4), [1, 2, 3])),
    ("resize max two", lambda L: L.F.resize(L.torch.rand(3, 4, 4), [1, 2], max_size=3)),
    ("resize max small", lambda L: L.F.resize(L.torch.rand(3, 4, 4), 5, max_size=5)),
    ("resize size type", lambda L: L.F.resize(L.torch.rand(3, 4, 4), "a")),
    ("resize interpolation", lambda L: L.F.resize(L.torch.rand(3, 4, 4), 3, interpolation="bilinear")),
    ("pad type", lambda L: L.F.pad(L.torch.rand(3, 4, 4), "x")),
    ("pad three", lambda L: L.F.pad(L.torch.rand(3, 4, 4), [1, 2, 3])),
    ("pad mode", lambda L: L.F.pad(L.torch.rand(3, 4, 4), 1, padding_mode="x")),
    ("pad fill", lambda L: L.F.pad(L.torch.rand(3, 4, 4), 1, fill="x")),
    ("pad fill list tensor", lambda L: L.F.pad(L.torch.rand(3, 4, 4), 1, fill=[1, 2, 3])),
    ("five_crop big", lambda L: L.F.five_crop(L.torch.rand(3, 4, 4), 5)),
    ("five_crop three", lambda L: L.F.five_crop(L.torch.rand(3, 4, 4), [1, 2, 3])),
    ("affine translate", lambda L: L.F.affine(L.torch.rand(3, 4, 4), 1, 2, 1, 0)),
    ("affine translate 3", lambda L: L.F.affine(L.torch.rand(3, 4, 4), 1, [2, 3, 4], 1, 0)),
    ("affine angle", lambda L: L.F.affine(L.torch.rand(3, 4, 4), "x", [2, 3], 1, 0)),
    ("affine scale", lambda L: L.F.affine(L.torch.rand(3, 4, 4), 1, [2, 3], -1, 0)),
    ("affine shear", lambda L: L.F.affine(L.torch.rand(3, 4, 4), 1, [2, 3], 1, "x")),
    ("affine shear 3", lambda L: L.F.affine(L.torch.rand(3, 4, 4), 1, [2, 3], 1, [1, 2, 3])),
    ("affine bicubic", lambda L: L.F.affine(L.torch.rand(3, 4, 4), 1, [2, 3], 1, 1, interpolation=L.F.InterpolationMode.BICUBIC)),
    ("rotate fill", lambda L: L.F.rotate(L.torch.rand(3, 4, 4), 1, fill=[1, 2])),
    ("rotate center", lambda L: L.F.rotate(L.torch.rand(3, 4, 4), 1, center=1)),
    ("rotate angle", lambda L: L.F.rotate(L.torch.rand(3, 4, 4), "1")),
    ("perspective three", lambda L: L.F.perspective(L.torch.rand(3, 4, 4), START[:3], END[:3])),
    ("hue", lambda L: L.F.adjust_hue(L.torch.rand(3, 4, 4), 0.7)),
    ("hue channels", lambda L: L.F.adjust_hue(L.torch.rand(2, 4, 4), 0.2)),
    ("brightness", lambda L: L.F.adjust_brightness(L.torch.rand(3, 4, 4), -1)),
    ("gamma", lambda L: L.F.adjust_gamma(L.torch.rand(3, 4, 4), -1)),
    ("posterize", lambda L: L.F.posterize(L.torch.zeros(3, 4, 4, dtype=L.torch.uint8), 9)),
    ("solarize", lambda L: L.F.solarize(L.torch.rand(3, 4, 4), 2)),
    ("sharpness", lambda L: L.F.adjust_sharpness(L.torch.rand(3, 4, 4), -2)),
    ("grayscale", lambda L: L.F.rgb_to_grayscale(L.torch.rand(3, 4, 4), 2)),
    ("blur even", lambda L: L.F.gaussian_blur(L.torch.rand(3, 4, 4), 2)),
    ("blur sigma", lambda L: L.F.gaussian_blur(L.torch.rand(3, 4, 4), 3, -1.0)),
    ("blur sigma 3", lambda L: L.F.gaussian_blur(L.torch.rand(3, 4, 4), 3, [1.0, 1.0, 1.0])),
    ("blur kernel 3", lambda L: L.F.gaussian_blur(L.torch.rand(3, 4, 4), [3, 3, 3])),
    ("blur kernel type", lambda L: L.F.gaussian_blur(L.torch.rand(3, 4, 4), "3")),
    ("normalize int", lambda L: L.F.normalize(L.torch.zeros(3, 4, 4, dtype=L.torch.uint8), [1], [1])),
    ("normalize 2d", lambda L: L.F.normalize(L.torch.zeros(4, 4), [1], [1])),
    ("to_tensor", lambda L: L.F.to_tensor([1])),
    ("to_tensor tensor", lambda L: L.F.to_tensor(L.torch.rand(3))),
    ("to_pil 4d", lambda L: L.F.to_pil_image(L.torch.rand(1, 3, 4, 4))),
    ("to_pil channels", lambda L: L.F.to_pil_image(L.torch.rand(5, 4, 4))),
    ("to_pil mode", lambda L: L.F.to_pil_image(L.torch.rand(3, 4, 4), "L")),
    ("to_pil mode one", lambda L: L.F.to_pil_image(L.torch.rand(1, 4, 4), "RGB")),
    ("to_pil text", lambda L: L.F.to_pil_image("x")),
    ("elastic shape", lambda L: L.F.elastic_transform(L.torch.rand(3, 4, 4), L.torch.rand(1, 3, 4, 2))),
    ("elastic type", lambda L: L.F.elastic_transform(L.torch.rand(3, 4, 4), 1)),
    ("erase pil", lambda L: L.F.erase(picture("pil-RGB", L), 1, 1, 1, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case[0])
def test_error_types(case):
    check(case[1])


@pytest.mark.parametrize("shape,dtype,mode_name", [((3, 4, 5), "uint8", None), ((3, 4, 5), "uint8", "HSV"), ((1, 4, 5), "uint8", "L"), ((4, 5), "uint8", None), ((2, 4, 5), "uint8", None), ((4, 4, 5), "uint8", "CMYK"), ((1, 4, 5), "int16", None), ((1, 4, 5), "int32", None), ((1, 4, 5), "float32", None), ((1, 4, 5), "float32", "F"), ((3, 4, 5), "float32", "YCbCr"), ((1, 4, 5), "int64", None), ((3, 4, 5), "int32", None)])  # fmt: skip
def test_to_pil_image_modes(shape, dtype, mode_name):
    import numpy as np

    values = np.random.RandomState(0).rand(*shape) * (1 if dtype == "float32" else 250)
    check(lambda L: L.F.to_pil_image(L.torch.from_numpy(values.astype(dtype)), mode_name))
    array = np.moveaxis(values.astype(dtype), 0, -1) if len(shape) == 3 else values.astype(dtype)
    check(lambda L: L.F.to_pil_image(array, mode_name))
    check(lambda L: L.F.to_tensor(array))

"""Pictures of tensors, against torchvision's."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from answers import judge

import flambeau as torch
from flambeau.vision import utils

from .oracle import torchvision as oracle

Image = pytest.importorskip("PIL.Image", reason="draws with Pillow: pip install pillow")


def both(name, *args, **options):
    """The results of our function and torchvision's; NumPy arrays become tensors."""
    real = judge("torch")
    results = []
    for lib, module in ((torch, utils), (real, oracle().utils)):

        def convert(value, lib=lib):
            if isinstance(value, np.ndarray):
                return lib.from_numpy(value.copy())
            return (
                [convert(v) for v in value]
                if isinstance(value, list) and value and isinstance(value[0], np.ndarray)
                else value
            )

        results.append(getattr(module, name)(*map(convert, args), **{k: convert(v) for k, v in options.items()}))
    return results


def same(name, *args, **options):
    ours, theirs = both(name, *args, **options)
    assert str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape)
    assert np.array_equal(ours.numpy(), theirs.numpy())
    return ours


def values(*shape, seed=0):
    return np.random.RandomState(seed).rand(*shape).astype(np.float32)


def pixels(*shape, seed=0):
    return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize(
    "shape", [(7, 3, 4, 5), (1, 3, 4, 5), (5, 1, 3, 3), (3, 6, 6), (1, 6, 6), (6, 7), (2, 4, 3, 3)]
)
def test_grids(shape):
    same("make_grid", values(*shape))
    same("make_grid", values(*shape), nrow=3, padding=1, pad_value=0.5)
    same("make_grid", values(*shape) * 5 - 2, normalize=True)
    same("make_grid", values(*shape) * 5 - 2, normalize=True, scale_each=True, nrow=2)
    same("make_grid", values(*shape) * 5 - 2, normalize=True, value_range=(-1, 1), padding=0)
    same("make_grid", pixels(*shape), pad_value=9)


def test_grid_of_a_list():
    same("make_grid", [values(3, 4, 4), values(3, 4, 4, seed=1)])
    same("make_grid", [values(4, 4), values(4, 4, seed=1)])


def test_grid_leaves_its_input_alone():
    x = torch.rand(4, 3, 2, 2) * 3
    before = x.clone()
    utils.make_grid(x, normalize=True)
    assert torch.equal(x, before)
    assert not utils.make_grid(x.requires_grad_()).requires_grad


def test_grid_refuses():
    for bad, message in (
        (3, "expected, got <class 'int'>"),
        ([1], "list containing <class 'int'>"),
        ((torch.ones(3, 2, 2),), "tuple"),
    ):
        with pytest.raises(TypeError, match=message):
            utils.make_grid(bad)
    with pytest.raises(TypeError, match="value_range has to be a tuple"):
        utils.make_grid(torch.ones(2, 3, 2, 2), normalize=True, value_range=[0, 1])


def test_saved_images(tmp_path):
    real = judge("torch")
    array = values(4, 3, 6, 5) * 1.4 - 0.2
    for lib, module, name in ((torch, utils, "ours.png"), (real, oracle().utils, "theirs.png")):
        module.save_image(lib.from_numpy(array), tmp_path / name, nrow=2)
    with Image.open(tmp_path / "ours.png") as mine, Image.open(tmp_path / "theirs.png") as other:
        assert mine.mode == "RGB" and np.array_equal(np.asarray(mine), np.asarray(other))
    file = io.BytesIO()
    utils.save_image(torch.rand(1, 8, 8), file, format="PNG")
    assert Image.open(io.BytesIO(file.getvalue())).size == (8, 8)


BOXES = np.array([[2, 3, 20, 25], [10, 1, 30, 12], [0, 0, 5, 5]], np.float32)
CORNERS = np.array([[3, 3, 30, 8, 25, 28, 5, 20], [10, 10, 38, 12, 35, 20, 12, 18]], np.float32)


@pytest.mark.parametrize(
    "image", [pixels(3, 32, 40), pixels(1, 32, 40), values(3, 32, 40)], ids=["bytes", "grey", "floats"]
)
def test_boxes(image):
    same("draw_bounding_boxes", image, BOXES)
    same("draw_bounding_boxes", image, BOXES, colors="red", width=3)
    same("draw_bounding_boxes", image, BOXES, colors=["red", (1, 2, 3), "#00ff7f"], fill=True)
    same("draw_bounding_boxes", image, BOXES, labels=["cat", "dog", None], colors=(9, 8, 7))
    same("draw_bounding_boxes", image, BOXES, labels=["cat", "dog", "x"], fill_labels=True)
    same(
        "draw_bounding_boxes",
        image,
        BOXES,
        labels=["a", "b", "c"],
        label_colors="white",
        fill_labels=True,
        label_background_colors="blue",
    )
    same("draw_bounding_boxes", image, CORNERS, fill=True)
    same("draw_bounding_boxes", image, CORNERS, labels=["a", "b"], width=2)


def test_boxes_refuse():
    image, boxes = torch.zeros(3, 8, 8, dtype=torch.uint8), torch.tensor([[1, 1, 4, 4]])
    with pytest.warns(UserWarning, match="doesn't contain any box"):
        assert utils.draw_bounding_boxes(image, torch.zeros(0, 4)) is image
    for arguments, problem, message in [
        ((np.zeros((3, 8, 8)), boxes), TypeError, "Tensor expected"),
        ((image.long(), boxes), ValueError, "dtype must be uint8 or float"),
        ((image[None], boxes), ValueError, "individual images"),
        ((image[:2], boxes), ValueError, "Only grayscale and RGB"),
        ((image, boxes.flip(1)), ValueError, "xmin, ymin, xmax, ymax"),
        ((image, boxes, ["a", "b"]), ValueError, "mismatch"),
        ((image, boxes, None, []), ValueError, "Number of colors"),
        ((image, boxes, None, 3), ValueError, "tuple or a string"),
        ((image, boxes, None, (1, 2)), ValueError, "RGB triplet"),
    ]:
        with pytest.raises(problem, match=message):
            utils.draw_bounding_boxes(*arguments)


@pytest.mark.parametrize("image", [pixels(3, 10, 12), values(3, 10, 12)], ids=["bytes", "floats"])
def test_masks(image):
    masks = np.random.RandomState(1).rand(3, 10, 12) > 0.6
    same("draw_segmentation_masks", image, masks)
    same("draw_segmentation_masks", image, masks[0], alpha=0.3, colors="orange")
    same("draw_segmentation_masks", image, masks, colors=[(1, 2, 3), "blue", "#123456"], alpha=1)


def test_masks_refuse():
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    masks = torch.zeros(2, 8, 8, dtype=torch.bool)
    with pytest.warns(UserWarning, match="doesn't contain any mask"):
        assert utils.draw_segmentation_masks(image, masks[:0]) is image
    for arguments, message in [
        ((image[:1], masks), "Pass an RGB image"),
        ((image, masks[None]), r"masks must be of shape"),
        ((image, masks.long()), "dtype bool"),
        ((image, masks[:, :4]), "same height and width"),
    ]:
        with pytest.raises(ValueError, match=message):
            utils.draw_segmentation_masks(*arguments)


@pytest.mark.parametrize("image", [pixels(3, 40, 50), values(3, 40, 50)], ids=["bytes", "floats"])
def test_keypoints(image):
    points = np.array([[[5, 5], [20, 8], [30.7, 30.2]], [[40, 10], [12, 33], [25, 20]]], np.float32)
    seen = np.array([[True, False, True], [True, True, True]])
    same("draw_keypoints", image, points, colors="red")
    same("draw_keypoints", image, points, [(0, 1), (1, 2)], colors=(10, 200, 30), radius=4, width=1)
    same("draw_keypoints", image, points, [(0, 1), (0, 2)], colors="#FF00FF", visibility=seen)
    same("draw_keypoints", image, points, [(0, 2)], visibility=seen[..., None])


def test_keypoints_refuse():
    image, points = torch.zeros(3, 8, 8, dtype=torch.uint8), torch.ones(2, 3, 2)
    for arguments, message in [
        ({"keypoints": points[0]}, "must be of shape"),
        ({"keypoints": points, "visibility": torch.ones(3)}, "Got ndim=1"),
        ({"keypoints": points, "visibility": torch.ones(2, 4)}, "same dimensionality"),
    ]:
        with pytest.raises(ValueError, match=message):
            utils.draw_keypoints(image, **arguments)


@pytest.mark.parametrize("shape", [(2, 20, 30), (3, 2, 9, 7)])
def test_flows(shape):
    flow = np.random.RandomState(2).randn(*shape).astype(np.float32) * 4
    ours, theirs = both("flow_to_image", flow)
    difference = np.abs(ours.numpy().astype(int) - theirs.numpy().astype(int))
    assert ours.dtype is torch.uint8 and ours.shape == tuple(theirs.shape)
    assert difference.max() <= 1 and (difference > 0).mean() < 0.01  # angles are rounded differently in the last bit
    assert flow.shape[-2:] == ours.shape[-2:]


def test_flow_directions():
    flow = torch.zeros(2, 1, 3)
    flow[0, 0, 0], flow[0, 0, 2] = 1.0, -1.0
    right, still, left = utils.flow_to_image(flow)[:, 0].T.tolist()
    assert still == [255, 255, 255] and right == [255, 0, 0] and left == [0, 209, 255]
    with pytest.raises(ValueError, match="dtype torch.float"):
        utils.flow_to_image(flow.double())
    with pytest.raises(ValueError, match="should have shape"):
        utils.flow_to_image(flow[:1])


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert utils.make_grid(torch.ones(2, 3, 2, 2)).shape == (3, 6, 10)
    with pytest.raises(ImportError, match="pip install 'flambeau\\[vision\\]'"):
        utils.save_image(torch.ones(2, 3, 2, 2), io.BytesIO(), "PNG")

"""Transforms without torchvision: what needs no judge, what works without Pillow, and the programs of the notes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import flambeau as torch
from flambeau import vision as torchvision
from flambeau.vision import tv_tensors
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms import v2

PIL_Image = pytest.importorskip("PIL.Image", reason="PIL images need Pillow: pip install 'flambeau[vision]'")


def colors(height=300, width=400):
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows % 256, columns % 256, (rows + columns) % 256], -1).astype(np.uint8)


def test_preparation_for_training_and_validation():
    """The notes' two pipelines."""
    train_transform = torchvision.transforms.Compose(
        [
            torchvision.transforms.RandomResizedCrop(size=224, scale=(0.08, 1.0)),
            torchvision.transforms.RandomHorizontalFlip(),
            torchvision.transforms.ToTensor(),
            torchvision.transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    val_transform = torchvision.transforms.Compose(
        [
            torchvision.transforms.Resize(256),
            torchvision.transforms.CenterCrop(224),
            torchvision.transforms.ToTensor(),
            torchvision.transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    image = PIL_Image.fromarray(colors())
    for transform in (train_transform, val_transform):
        out = transform(image)
        assert out.shape == (3, 224, 224) and out.dtype == torch.float32
        assert out.abs().max() < 3
    middle = np.asarray(image.resize((341, 256), PIL_Image.BILINEAR))[16:240, 58:282]
    expected = (middle / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    assert np.allclose(val_transform(image).numpy(), expected.transpose(2, 0, 1), atol=1e-5)


def test_pictures_to_tensors_and_back(tmp_path):
    """The notes' conversions, and the equivalent functions."""
    PIL_Image.fromarray(colors(20, 30)).save(tmp_path / "figure.png")
    path = tmp_path / "figure.png"
    tensor = torch.from_numpy(np.array(PIL_Image.open(path))).permute(2, 0, 1).float() / 255
    same = torchvision.transforms.functional.to_tensor(PIL_Image.open(path))
    assert torch.equal(tensor, same)
    image = PIL_Image.fromarray(torch.clamp(tensor * 255, min=0, max=255).byte().permute(1, 2, 0).cpu().numpy())
    assert np.array_equal(np.asarray(torchvision.transforms.functional.to_pil_image(tensor)), np.asarray(image))


@pytest.mark.parametrize("picture", [np.ones((4, 4, 5), np.uint8), torch.ones(5, 4, 4)], ids=["array", "tensor"])
def test_five_channels_are_no_picture(picture):
    with pytest.raises(ValueError, match="> 4 channels"):
        F.to_pil_image(picture)


def test_in_a_data_loader():
    pictures = [(PIL_Image.fromarray(colors(32, 32) + i), i) for i in range(6)]
    transform = torchvision.transforms.Compose(
        [torchvision.transforms.RandomCrop(28), torchvision.transforms.ToTensor()]
    )

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return len(pictures)

        def __getitem__(self, i):
            return transform(pictures[i][0]), pictures[i][1]

    batches = list(torch.utils.data.DataLoader(Pictures(), batch_size=4, num_workers=2))
    assert [tuple(x.shape) for x, _ in batches] == [(4, 3, 28, 28), (2, 3, 28, 28)]


def test_resize_of_bytes_is_pillows_up_to_one():
    image = colors(97, 131)
    ours = v2.functional.resize(torch.from_numpy(image).permute(2, 0, 1), [40, 61]).permute(1, 2, 0).numpy()
    pillow = np.asarray(PIL_Image.fromarray(image).resize((61, 40), PIL_Image.BILINEAR))
    assert np.abs(ours.astype(int) - pillow).max() <= 1


def test_crop_outside_has_the_asked_size():
    """torchvision returns another size where the window lies wholly above or left of the image."""
    assert F.crop(torch.rand(3, 8, 9), -12, -9, 4, 5).shape == (3, 4, 5)


def test_gradients_pass_through_tensor_transforms():
    image = torch.rand(1, 3, 9, 8, dtype=torch.float64, requires_grad=True)
    for change in (
        lambda x: F.resize(x, [5, 6]),
        lambda x: F.rotate(x, 20.0, F.InterpolationMode.BILINEAR),
        lambda x: F.gaussian_blur(x, 3, 0.8),
        lambda x: F.normalize(x, [0.5], [0.2]),
        lambda x: F.adjust_contrast(x, 0.7),
    ):
        assert torch.autograd.gradcheck(change, (image,))


def test_own_kind_with_own_kernel():
    class Depth(tv_tensors.TVTensor):
        pass

    @v2.functional.register_kernel(functional=v2.functional.horizontal_flip, tv_tensor_cls=Depth)
    def flip_depth(depth):
        return depth.flip(-1).as_subclass(Depth)

    depth = torch.arange(3.0).as_subclass(Depth)
    flipped, image = v2.RandomHorizontalFlip(p=1)(depth, tv_tensors.Image(torch.rand(3, 4, 5)))
    assert type(flipped) is Depth and flipped.tolist() == [2.0, 1.0, 0.0]
    assert v2.ColorJitter(0.5)(depth) is depth  # no kernel: passes unchanged
    with pytest.raises(TypeError, match="resize"):
        v2.functional.resize(depth, [3])
    with pytest.raises(ValueError, match="builtin"):
        v2.functional.register_kernel(v2.functional.resize, tv_tensors.Image)


def test_kinds_survive_copies_but_not_arithmetic():
    boxes = tv_tensors.BoundingBoxes([[1, 2, 3, 4]], format="XYXY", canvas_size=(5, 6))
    assert type(boxes + 1) is torch.Tensor and type(boxes.add_(1)) is torch.Tensor
    for copied in (boxes.clone(), boxes.to(torch.float64), boxes.detach()):
        assert type(copied) is tv_tensors.BoundingBoxes and copied.canvas_size == (5, 6)
    with tv_tensors.set_return_type("TVTensor"):
        assert type(boxes + 1) is tv_tensors.BoundingBoxes


def test_custom_transform():
    class Shift(v2.Transform):
        def make_params(self, flat_inputs):
            return {"by": int(torch.randint(1, 3, ()))}

        def transform(self, inpt, params):
            return inpt + params["by"]

    first, second = Shift()(tv_tensors.Image(torch.zeros(1, 2, 2)), tv_tensors.Mask(torch.zeros(2, 2)))
    assert first.max() == second.max() >= 1


def test_jpeg_keeps_shape_and_loses_detail():
    image = torch.from_numpy(colors(32, 40)).permute(2, 0, 1)
    out = v2.JPEG(quality=20)(image)
    assert out.shape == image.shape and out.dtype == torch.uint8
    difference = (out.float() - image.float()).abs().mean()
    assert 0 < difference < 20
    assert (v2.JPEG(quality=95)(image).float() - image.float()).abs().mean() < difference


def test_hard_clamping_of_tilted_boxes_is_refused_not_wrong():
    inside = tv_tensors.BoundingBoxes([[10.0, 10, 4, 3, 20]], format="CXCYWHR", canvas_size=(20, 20))
    assert torch.equal(v2.functional.clamp_bounding_boxes(inside, clamping_mode="hard"), inside)
    outside = tv_tensors.BoundingBoxes([[1.0, 1, 9, 3, 20]], format="CXCYWHR", canvas_size=(20, 20))
    with pytest.raises(NotImplementedError, match="soft"):
        v2.functional.clamp_bounding_boxes(outside, clamping_mode="hard")


WITHOUT_PILLOW = """
import sys
sys.modules["PIL"] = None
import flambeau as torch
from flambeau.vision import transforms, tv_tensors
from flambeau.vision.transforms import v2
x = torch.randint(0, 256, (3, 20, 30), dtype=torch.uint8)
steps = [transforms.Resize(10), transforms.ColorJitter(0.1, 0.1, 0.1, 0.1), transforms.RandomAffine(10), transforms.ConvertImageDtype(torch.float32),
         transforms.Normalize([0.5], [0.5])]
assert transforms.Compose(steps)(x).shape == (3, 10, 15)
assert v2.RandomCrop(8)(tv_tensors.Image(x)).shape == (3, 8, 8)
try:
    transforms.ToPILImage()(x)
except ImportError as problem:
    assert "flambeau[vision]" in str(problem)
else:
    raise AssertionError
"""


def test_tensors_need_no_pillow():
    run = subprocess.run([sys.executable, "-c", WITHOUT_PILLOW], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


def test_rotated_boxes_inside_the_canvas_keep_their_numbers_when_clamped():
    given = [[20.0, 15.0, 10.0, 6.0, 30.0], [12.0, 14.0, 8.0, 4.0, 0.0]]
    boxes = tv_tensors.BoundingBoxes(given, format="CXCYWHR", canvas_size=(40, 50))
    assert v2.functional.clamp_bounding_boxes(boxes).tolist() == given


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 1), (4, 5, 3)])
def test_arrays_become_images_with_channels_first(shape):
    array = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
    image = v2.functional.to_image(array)
    assert type(image) is tv_tensors.Image and image.is_contiguous()
    np.testing.assert_array_equal(image.numpy(), array.reshape(4, 5, -1).transpose(2, 0, 1))
    with pytest.raises(ValueError, match="2D or 3D"):
        v2.functional.to_image(array.reshape(1, 4, 5, -1))

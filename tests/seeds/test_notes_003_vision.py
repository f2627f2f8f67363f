"""Programs of the fourth notes file that use torchvision: images, preprocessing, features of pretrained models, fine tuning.

The published weights are replaced by small files of the same names in the cache: every tensor one repeated number."""

from __future__ import annotations

import collections
import sys
import warnings

import numpy as np
import pytest
from notes_models import feature_extractor

import flambeau as torch
from flambeau import nn

Image = pytest.importorskip("PIL.Image", reason="reads and writes images: pip install pillow")

FILES = {"resnet18": "resnet18-f37072fd.pth", "resnet152": "resnet152-394f9c45.pth", "vgg16": "vgg16-397923af.pth"}


@pytest.fixture
def pretrained(vision, tmp_path, monkeypatch):
    """Makes a model as the notes do, with pretrained=True."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    if "torch.hub" in sys.modules:  # another test may have chosen a folder there
        monkeypatch.setattr(sys.modules["torch.hub"], "_hub_dir", None, raising=False)
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)

    def make(name):
        build = getattr(vision("models"), name)
        with torch.device("meta"):
            shapes = build().state_dict()
        weights = {
            key: torch.ones((), dtype=value.dtype).div(2 ** (len(key) % 5)).to(value.dtype).expand(value.shape)
            for key, value in shapes.items()
        }
        torch.save(weights, folder / FILES[name])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `pretrained` is deprecated
            model = build(pretrained=True)
        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
        return model

    return make


def test_tensors_and_pictures(vision, tmp_path):
    functional = vision("transforms.functional")
    tensor = torch.rand(3, 5, 7)
    by_hand = Image.fromarray(torch.clamp(tensor * 255, min=0, max=255).byte().permute(1, 2, 0).cpu().numpy())
    image = functional.to_pil_image(tensor)
    assert image.size == (7, 5) and np.array_equal(np.asarray(image), np.asarray(by_hand))
    path = str(tmp_path / "figure.png")
    image.save(path)
    by_hand = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1).float() / 255
    assert torch.equal(functional.to_tensor(Image.open(path)), by_hand)


def test_preprocessing_for_training_and_validation(vision):
    transforms = vision("transforms")
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    train_transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(size=224, scale=(0.08, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean=mean, std=std),
        ]
    )
    val_transform = transforms.Compose(
        [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), transforms.Normalize(mean, std)]
    )
    grey = Image.new("RGB", (300, 280), (51, 51, 51))
    expected = (torch.full((3,), 0.2) - torch.tensor(mean)) / torch.tensor(std)
    for transform in (train_transform, val_transform):
        sample = transform(grey)
        assert sample.shape == (3, 224, 224) and sample.dtype == torch.float32
        assert torch.allclose(sample, expected[:, None, None].expand(3, 224, 224))


def test_features_of_vgg16(pretrained):
    model = pretrained("vgg16")
    image = torch.rand(1, 3, 32, 32)
    relu5_3, pool5 = model.features[:-1], model.features
    with torch.no_grad():
        model.eval()
        assert relu5_3(image).shape == (1, 512, 2, 2)
        assert torch.equal(pool5(image).flatten(), relu5_3(image).amax((2, 3)).flatten())
    model.classifier = torch.nn.Sequential(*list(model.classifier.children())[:-3])
    with torch.no_grad():
        assert model(image).shape == (1, 4096)


def test_features_of_resnet18(pretrained):
    whole = pretrained("resnet18")
    model = torch.nn.Sequential(collections.OrderedDict(list(whole.named_children())[:-1]))
    image = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        model.eval()
        conv_representation = model(image)
        assert conv_representation.shape == (2, 512, 1, 1)
        assert torch.equal(whole.fc(conv_representation.flatten(1)), whole.eval()(image))


def test_features_of_several_layers_of_resnet152(pretrained):
    model = pretrained("resnet152")
    model = torch.nn.Sequential(collections.OrderedDict(list(model.named_children())[:-1]))
    layers = {"layer1", "layer2", "layer3", "layer4"}
    found = feature_extractor(torch)(pretrained_model=model, layers_to_extract=layers)(torch.rand(1, 3, 32, 32))
    assert [tuple(part.shape) for part in found] == [(1, 256, 8, 8), (1, 512, 4, 4), (1, 1024, 2, 2), (1, 2048, 1, 1)]


def test_fine_tuning_of_the_last_layer(pretrained):
    model = pretrained("resnet18")
    for param in model.parameters():
        param.requires_grad = False
    model.fc = nn.Linear(512, 100)  # Replace the last fc layer
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-4)
    kept, changed = model.conv1.weight.clone(), model.fc.weight.clone()
    nn.functional.cross_entropy(model(torch.rand(2, 3, 32, 32)), torch.tensor([1, 99])).backward()
    optimizer.step()
    assert torch.equal(model.conv1.weight, kept) and not torch.equal(model.fc.weight, changed)


def test_two_learning_rates(pretrained):
    model = pretrained("resnet18")
    finetuned_parameters = list(map(id, model.fc.parameters()))
    conv_parameters = (p for p in model.parameters() if id(p) not in finetuned_parameters)
    parameters = [{"params": conv_parameters, "lr": 1e-3}, {"params": model.fc.parameters()}]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-4)
    assert [(group["lr"], len(group["params"])) for group in optimizer.param_groups] == [(1e-3, 60), (1e-2, 2)]

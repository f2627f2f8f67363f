"""Whole networks, trained a few steps in both libraries from the same seed, and checkpoints carried from one to the other."""

import numpy as np
import pytest

import flambeau

from .helpers import numbers
from .scenarios import torch


def convolutional(nn):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding="same", groups=2),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32, 5),
    )


def perceptron(nn):
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * 64, 16),
        nn.LayerNorm(16),
        nn.SiLU(),
        nn.Linear(16, 16, bias=False),
        nn.PReLU(16),
        nn.Linear(16, 5),
    )


def autoencoder(nn):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1),
        nn.LeakyReLU(0.1),
        nn.ConvTranspose2d(4, 4, 3, stride=2, padding=1, output_padding=1),
        nn.InstanceNorm2d(4, affine=True),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(64, 5),
    )


def train(library, make, steps=4):
    """Losses of a few steps of gradient descent, and the trained network."""
    random = np.random.default_rng(0)
    images = library.from_numpy(random.standard_normal((6, 3, 8, 8)).astype(np.float32))
    labels = library.from_numpy(random.integers(0, 5, 6))
    library.manual_seed(1)
    network = make(library.nn)
    criterion = library.nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = []
    for _ in range(steps):
        network.zero_grad()
        loss = criterion(network(images), labels)
        loss.backward()
        with library.no_grad():
            for parameter in network.parameters():
                parameter -= 0.1 * parameter.grad
        losses.append(loss.item())
    return losses, network, images


@pytest.mark.parametrize("make", [convolutional, perceptron, autoencoder])
def test_training_gives_the_same_losses(make):
    expected, theirs, _ = train(torch, make)
    actual, ours, _ = train(flambeau, make)
    np.testing.assert_allclose(actual, expected, rtol=2e-4)
    assert actual[-1] < actual[0]
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(numbers(ours.state_dict()[name]), numbers(value), rtol=5e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("make", [convolutional, perceptron, autoencoder])
def test_checkpoints_are_exchanged(make):
    _, theirs, their_images = train(torch, make, 1)
    ours = make(flambeau.nn)
    state = {name: flambeau.from_numpy(value.numpy()) for name, value in theirs.state_dict().items()}
    assert repr(ours.load_state_dict(state)) == "<All keys matched successfully>"
    images = flambeau.from_numpy(their_images.numpy())
    np.testing.assert_allclose(numbers(ours.eval()(images)), numbers(theirs.eval()(their_images)), rtol=1e-4, atol=1e-5)
    back = make(torch.nn)
    back.load_state_dict({name: torch.from_numpy(value.numpy()) for name, value in ours.state_dict().items()})
    np.testing.assert_array_equal(numbers(back.eval()(their_images)), numbers(theirs(their_images)))


def test_networks_work_without_gradients_and_in_double_precision():
    network = convolutional(flambeau.nn).double().eval()
    with flambeau.no_grad():
        result = network(flambeau.zeros(2, 3, 8, 8, dtype=flambeau.float64))
    assert result.dtype == flambeau.float64 and not result.requires_grad and tuple(result.shape) == (2, 5)


@pytest.mark.parametrize("kind", ["Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d"])
def test_complex_convolutions(kind):
    """Gradients of complex layers meet the conjugates of the other operand."""
    random = np.random.default_rng(0)
    shape = (2, 4) + (6,) * int(kind[-2])
    values = random.standard_normal(shape) + 1j * random.standard_normal(shape)
    found = []
    for library in (torch, flambeau):
        library.manual_seed(2)
        layer = getattr(library.nn, kind)(4, 6, 3, stride=2, groups=2, dtype=library.complex128)
        x = library.from_numpy(values).requires_grad_()
        y = layer(x)
        (y * y).sum().abs().backward()
        found.append([t.detach().numpy() for t in (y, x.grad, layer.weight.grad, layer.bias.grad)])
    for expected, actual in zip(*found):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)

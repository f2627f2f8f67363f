"""imagenet of pytorch/examples, the tutorials of yunjey/pytorch-tutorial, and all networks of kuangliu/pytorch-cifar."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import data
from .harness import both, needs

pytest.importorskip("torch", reason="compares with the real PyTorch")
pytest.importorskip("PIL", reason="the programs read pictures with Pillow")

TUTORIALS = [
    ("01-basics/linear_regression", 60),
    ("01-basics/logistic_regression", 15),
    ("01-basics/feedforward_neural_network", 15),
    ("02-intermediate/recurrent_neural_network", 6),
    ("02-intermediate/bidirectional_recurrent_neural_network", 6),
    ("02-intermediate/convolutional_neural_network", 15),
    ("03-advanced/generative_adversarial_network", 20),
    ("03-advanced/variational_autoencoder", 20),
]


@pytest.mark.parametrize("program, steps", TUTORIALS, ids=[name.split("/")[1] for name, _ in TUTORIALS])
def test_tutorials(tmp_path, program, steps):
    """They set no seed: the driver does."""
    if "linear" in program:
        needs("matplotlib")

    def prepare(place: Path) -> None:
        for place_of_data in (place.parent.parent / "data", place.parent.parent.parent / "data"):
            if not place_of_data.exists():
                data.mnist(place_of_data, train=300)

    copies = tmp_path / "a" / "b"  # they look for their data two directories up
    both(f"pytorch-tutorial/tutorials/{program}", copies, "main.py", prepare, stop=steps).check(1e-4, steps=steps)


NETWORKS = """
import sys
import torch
from models import *

for name in sys.argv[1:]:
    torch.manual_seed(0)
    network = eval(name)
    pictures, labels = torch.randn(4, 3, 32, 32), torch.tensor([1, 3, 5, 7])
    loss = torch.nn.functional.cross_entropy(network(pictures), labels)
    loss.backward()
    print(name, sum(p.grad.double().norm().item() for p in network.parameters() if p.grad is not None))
"""

# fmt: off
SMALL_NETWORKS = [
    "VGG('VGG11')", "ResNet18()", "PreActResNet18()", "MobileNet()", "MobileNetV2()", "ShuffleNetV2(0.5)", "EfficientNetB0()",
    "SENet18()", "densenet_cifar()", "RegNetX_200MF()", "SimpleDLA()", "ResNeXt29_2x64d()", "GoogLeNet()", "PNASNetA()", "LeNet()",
]
# fmt: on


def test_networks_of_pytorch_cifar(tmp_path):
    def prepare(place: Path) -> None:
        (place / "networks.py").write_text(NETWORKS)

    done = both("pytorch-cifar", tmp_path, ["networks.py", *SMALL_NETWORKS], prepare)
    done.check(1e-4, steps=len(SMALL_NETWORKS), printed_tolerance=1e-2)


def test_imagenet(tmp_path):
    """With random pictures, for two steps of a real ResNet-18; its times are printed among its losses."""
    options = "main.py --dummy -a resnet18 -b 4 -j 0 -p 1 --epochs 1 --seed 1 --lr 0.001 --no-accel"
    done = both("examples/imagenet", tmp_path, options, stop=2)
    done.check_losses(1e-4, steps=2)

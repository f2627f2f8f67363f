"""Programs on pictures of pytorch/examples: mnist and its kin, vae, dcgan, siamese_network, super_resolution, ..."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flambeau

from . import data
from .harness import both, run, sources

torch = pytest.importorskip("torch", reason="compares with the real PyTorch")
pytest.importorskip("PIL", reason="the programs read pictures with Pillow")


def _digits(place: Path) -> None:
    data.mnist(place.parent / "data")


def _same_pictures(ours: Path, theirs: Path, names: list[str]) -> None:
    from PIL import Image

    for name in names:
        a, b = (np.asarray(Image.open(place / name)).astype(int) for place in (ours, theirs))
        assert a.shape == b.shape and abs(a - b).max() <= 1, name


def test_mnist(tmp_path):
    options = ["main.py", "--epochs", "2", "--log-interval", "1", "--save-model"]
    done = both("examples/mnist", tmp_path, options, _digits)
    done.check(1e-4, steps=10)
    assert list(torch.load(done.ours.directory / "mnist_cnn.pt")) == list(
        torch.load(done.theirs.directory / "mnist_cnn.pt")
    )


def test_mnist_rnn(tmp_path):
    options = ["main.py", "--epochs", "2", "--log-interval", "1"]
    both("examples/mnist_rnn", tmp_path, options, _digits).check(1e-5, steps=10)


def test_mnist_hogwild_in_one_process(tmp_path):
    options = ["main.py", "--epochs", "1", "--log-interval", "1", "--num-processes", "1"]
    done = both("examples/mnist_hogwild", tmp_path, options, _digits)  # the losses are printed by the worker
    done.check(1e-4, steps=0)
    assert done.ours.output.count("Loss:") == 5


def test_mnist_hogwild_in_two_processes(tmp_path):
    """Two workers change one model without locks: no two runs are alike, but it learns."""
    import shutil

    place = tmp_path / "program"
    shutil.copytree(sources("examples/mnist_hogwild"), place)
    _digits(place)
    output = run("flambeau", place, ["main.py", "--epochs", "3", "--num-processes", "2", "--lr", "0.05"]).output
    assert len({line.split("\t")[0] for line in output.splitlines() if "Train" in line}) == 2
    assert int(output.split("Accuracy: ")[1].split("/")[0]) > 128 / 10 * 2


def test_mnist_forward_forward(tmp_path):
    def prepare(place: Path) -> None:
        data.mnist(place / "data")

    options = ["main.py", "--epochs", "5", "--train_size", "100", "--test_size", "50", "--log-interval", "1"]
    both("examples/mnist_forward_forward", tmp_path, options, prepare).check(1e-4, steps=10)


def test_vae(tmp_path):
    options = ["main.py", "--epochs", "2", "--batch-size", "64", "--log-interval", "1"]
    done = both("examples/vae", tmp_path, options, _digits)
    done.check(1e-5, steps=10)
    _same_pictures(done.ours.directory, done.theirs.directory, ["results/reconstruction_1.png", "results/sample_2.png"])


def test_dcgan(tmp_path):
    def prepare(place: Path) -> None:
        data.pictures(place / "pictures" / "all", 24, 64)

    options = "main.py --dataset folder --dataroot pictures --workers 0 --batchSize 8 --ngf 8 --ndf 8 --niter 1 --manualSeed 3"
    done = both("examples/dcgan", tmp_path, options, prepare)
    done.check(1e-4, steps=9)
    _same_pictures(done.ours.directory, done.theirs.directory, ["real_samples.png", "fake_samples_epoch_000.png"])


def test_dcgan_with_fake_data(tmp_path):
    options = "main.py --dataset fake --workers 0 --batchSize 4 --ngf 8 --ndf 8 --dry-run --manualSeed 3"
    both("examples/dcgan", tmp_path, options).check(1e-4, steps=3)


def test_siamese_network(tmp_path):
    """At its learning rate of 1 rounding errors grow tenfold a step."""

    def prepare(place: Path) -> None:
        data.mnist(place.parent / "data", train=48, test=20)

    options = ["main.py", "--epochs", "1", "--batch-size", "8", "--test-batch-size", "20", "--log-interval", "1"]
    both("examples/siamese_network", tmp_path, options, prepare, stop=3).check(1e-4, steps=3)


def test_super_resolution(tmp_path):
    def prepare(place: Path) -> None:
        for part in ("train", "test"):
            data.pictures(place / "dataset/BSDS300/images" / part, 1, 260)

    options = "main.py --upscale_factor 4 --batchSize 1 --testBatchSize 1 --nEpochs 3 --threads 0 --lr 0.001"
    done = both("examples/super_resolution", tmp_path, options, prepare)
    done.check(1e-4, steps=3)
    upscaling = "super_resolve.py --input_image dataset/BSDS300/images/test/0.png --model model_epoch_3.pth --output_filename big.png"
    both("examples/super_resolution", tmp_path, upscaling)
    _same_pictures(done.ours.directory, done.theirs.directory, ["big.png"])


def _vgg16_weights(home: Path) -> None:
    """A checkpoint of VGG-16 in the cache, with random convolutions; the classifier, which is not used, takes no space."""
    flambeau.manual_seed(0)
    widths = [3, 64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool"]
    state, channels, index = {}, 3, 0
    for width in widths[1:]:
        if width == "pool":
            index += 1
            continue
        state[f"features.{index}.weight"] = flambeau.randn(width, channels, 3, 3) * (2 / (9 * channels)) ** 0.5
        state[f"features.{index}.bias"] = flambeau.zeros(width)
        channels, index = width, index + 2
    for layer, (rows, columns) in ((0, (4096, 25088)), (3, (4096, 4096)), (6, (1000, 4096))):
        state[f"classifier.{layer}.weight"] = flambeau.zeros(1).expand(rows, columns)
        state[f"classifier.{layer}.bias"] = flambeau.zeros(rows)
    directory = home / "hub" / "checkpoints"
    directory.mkdir(parents=True)
    flambeau.save(state, directory / "vgg16-397923af.pth")


def test_fast_neural_style(tmp_path):
    def prepare(place: Path) -> None:
        data.pictures(place / "pictures" / "all", 2, 64)
        data.pictures(place / "style", 1, 64, seed=1)
        _vgg16_weights(place.parent / "torch-home")

    options = (
        "neural_style/neural_style.py train --dataset pictures --style-image style/0.png --save-model-dir models --image-size 64"
        " --batch-size 1 --epochs 1 --log-interval 1 --style-weight 1e5 --content-weight 1"
    )
    done = both("examples/fast_neural_style", tmp_path, options, prepare)
    done.check_losses(1e-4, steps=2)  # it prints the time of day


def test_vision_transformer(tmp_path):
    """Its data set insists on the digest of the real CIFAR-10; the copy is told not to."""

    def prepare(place: Path) -> None:
        data.cifar10(place / "dataset")
        (place / "accept.py").write_text(
            "import runpy, sys, torchvision\n"
            "torchvision.datasets.CIFAR10._check_integrity = lambda self: True\n"
            "torchvision.datasets.CIFAR10.meta['md5'] = None\n"
            "sys.argv = ['main.py', *sys.argv[1:]]\n"
            "runpy.run_path('main.py', run_name='__main__')\n"
        )

    options = (
        "accept.py --patch-size 8 --latent-size 16 --num-heads 2 --num-encoders 2 --img-size 32 --epochs 1 --lr 0.001"
    )
    both("examples/vision_transformer", tmp_path, options, prepare).check(1e-4, steps=10)

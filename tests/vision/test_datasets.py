"""Data sets: the same samples as torchvision from the same files."""

from __future__ import annotations

import os
import pickle
import sys

import numpy as np
import pytest
from answers import judge

import flambeau as torch
from flambeau.utils.data import DataLoader
from flambeau.vision import datasets

from . import dataset_files as make
from .oracle import torchvision as oracle
from .same_samples import same

Image = make.Image


def negative(image):
    return Image.eval(image, lambda v: 255 - v)


def one_more(target):
    return target + 1


# -- against torchvision --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST"])
@pytest.mark.parametrize("train", [True, False])
def test_mnist(name, train, tmp_path):
    make.mnist(tmp_path / name / "raw")
    data = same(name, str(tmp_path), train, transform=negative, target_transform=one_more)
    assert data.data.shape == (6, 28, 28) and data.data.dtype is torch.uint8 and data.targets.dtype is torch.int64


@pytest.mark.parametrize("split", ["letters", "bymerge", "digits"])
def test_emnist(split, tmp_path):
    make.mnist(
        tmp_path / "EMNIST" / "raw",
        ("train", "test"),
        f"emnist-{split}-{{}}-images-idx3-ubyte",
        f"emnist-{split}-{{}}-labels-idx1-ubyte",
    )
    same("EMNIST", str(tmp_path), split, train=False)


@pytest.mark.parametrize("what", ["train", "test", "test10k", "test50k", "nist"])
@pytest.mark.parametrize("compat", [True, False])
def test_qmnist(what, compat, tmp_path):
    make.qmnist(tmp_path / "QMNIST" / "raw")
    same("QMNIST", str(tmp_path), what, compat)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100"])
def test_cifar(name, train, tmp_path):
    kind = getattr(datasets, name)
    meta = (kind.meta["filename"], kind.meta["key"])
    batches = [b for b, _ in [*kind.train_list, *kind.test_list]]
    make.cifar(tmp_path / kind.base_folder, batches, "labels" if name == "CIFAR10" else "fine_labels", meta)
    patch = {
        "train_list": [[b, None] for b, _ in kind.train_list],
        "test_list": [[b, None] for b, _ in kind.test_list],
        "meta": {**kind.meta, "md5": None},
    }
    same(name, str(tmp_path), train, patch=patch, transform=negative)
    with pytest.raises(RuntimeError, match="not found or corrupted"):
        kind(tmp_path)  # these files have other checksums


def test_image_folder(tmp_path):
    make.image_folder(tmp_path)
    make.picture(tmp_path / "bee" / "deep" / "x.jpg", 99, mode="L")
    make.text(tmp_path / "bee" / "notes.txt", "no image")
    same(
        "ImageFolder",
        str(tmp_path),
        transform=negative,
        attributes=("classes", "class_to_idx", "samples", "targets", "imgs"),
    )
    (tmp_path / "empty").mkdir()
    same("ImageFolder", str(tmp_path), allow_empty=True)
    same("ImageFolder", str(tmp_path), is_valid_file=lambda path: path.endswith("1.png"), allow_empty=True)
    same("DatasetFolder", str(tmp_path), os.path.getsize, (".png", ".txt"), allow_empty=True)
    messages = []
    for module in (datasets, oracle().datasets):
        with pytest.raises(FileNotFoundError) as problem:
            module.ImageFolder(tmp_path)
        messages.append(str(problem.value))
    assert messages[0] == messages[1] and "empty" in messages[0]


@pytest.mark.parametrize("shape", [(3, 8, 9), (1, 5, 5)])
@pytest.mark.parametrize("offset", [0, 1000])
def test_fake_data(shape, offset):
    torch.manual_seed(3)
    before = torch.rand(2).tolist()
    torch.manual_seed(3)
    same("FakeData", 5, shape, 7, random_offset=offset, target_transform=one_more)
    assert torch.rand(2).tolist() == before


@pytest.mark.parametrize("name", ["VOCSegmentation", "VOCDetection"])
def test_voc(name, tmp_path):
    make.voc(tmp_path / "VOCdevkit" / "VOC2012")
    same(name, str(tmp_path), attributes=("images", "targets"))
    same(name, str(tmp_path), image_set="val", transforms=lambda image, target: (negative(image), target))


def test_stl10(tmp_path):
    make.stl10(tmp_path / "stl10_binary")
    patch = {a: [[n, None] for n, _ in getattr(datasets.STL10, a)] for a in ("train_list", "test_list")}
    for split in ("train", "test", "unlabeled", "train+unlabeled"):
        same("STL10", str(tmp_path), split, patch=patch)
    same("STL10", str(tmp_path), "train", 1, patch=patch)


def test_data_sets_in_matlab_files(tmp_path):
    scipy = pytest.importorskip("scipy.io", reason="these data sets come in MATLAB's format: pip install scipy")
    scipy.savemat(tmp_path / "train_32x32.mat", {"X": make.pixels(32, 32, 3, 4), "y": np.array([[10], [1], [2], [10]])})
    patch = {"split_list": {"train": ["", "train_32x32.mat", None]}}
    data = same("SVHN", str(tmp_path), patch=patch, attributes=())
    assert [target for _, target in data] == [0, 1, 2, 0]
    make.caltech101(tmp_path / "caltech101", scipy.savemat)
    for target in ("category", "annotation", ["category", "annotation"]):
        same("Caltech101", str(tmp_path), target, attributes=("categories", "annotation_categories", "y", "index"))
    make.flowers(tmp_path / "flowers-102", scipy.savemat)
    files = {k: (n, None) for k, (n, _) in datasets.Flowers102._file_dict.items()}
    for split in ("train", "val", "test"):
        same("Flowers102", str(tmp_path), split, patch={"_file_dict": files})
    cars = tmp_path / "stanford_cars"
    make.picture(cars / "cars_train" / "00001.jpg")
    kind = [("fname", "O"), ("class", "i4")]
    (cars / "devkit").mkdir()
    scipy.savemat(
        cars / "devkit" / "cars_train_annos.mat",
        {"annotations": np.array([("00001.jpg", 2), ("00001.jpg", 1)], dtype=kind)},
    )
    scipy.savemat(cars / "devkit" / "cars_meta.mat", {"class_names": np.array(["AM General", "Acura"], dtype=object)})
    same("StanfordCars", str(tmp_path))


def test_data_sets_in_text_files(tmp_path):
    make.usps(tmp_path)
    same("USPS", str(tmp_path))
    make.semeion(tmp_path)
    same("SEMEION", str(tmp_path), download=False, patch={"md5_checksum": None})


@pytest.mark.parametrize("file", ["fer2013.csv", "icml_face_data.csv", "train.csv", "test.csv"])
def test_fer2013(file, tmp_path):
    make.fer2013(tmp_path / "fer2013", file)
    patch = {"_RESOURCES": {k: (n, None) for k, (n, _) in datasets.FER2013._RESOURCES.items()}}
    for split in ("train", "test"):
        if file[:4] in ("fer2", "icml", split[:4], f"{split}."):
            same("FER2013", str(tmp_path), split, patch=patch)


def test_celeba(tmp_path):
    make.celeba(tmp_path / "celeba")
    patch = {"file_list": [(i, None, n) for i, _, n in datasets.CelebA.file_list]}
    for target in ("attr", "identity", "bbox", "landmarks", ["attr", "bbox"], []):
        same("CelebA", str(tmp_path), "train", target, patch=patch, attributes=("attr_names",))
    same("CelebA", str(tmp_path), "all", patch=patch)


def test_data_sets_of_listed_files(tmp_path):
    make.listed(tmp_path)
    make.caltech256(tmp_path / "caltech256")
    root = str(tmp_path)
    same("Caltech256", root, attributes=("categories", "y", "index"))
    same("Food101", root, "test")
    same("DTD", root, "train", 3)
    same("FGVCAircraft", root, "test", "family")
    same("GTSRB", root, "train")
    same("GTSRB", root, "test")
    same("RenderedSST2", root, "val")
    same("SUN397", root)
    same("Imagenette", root, "val", "160px", attributes=("classes", "class_to_idx", "wnids", "wnid_to_idx"))
    for targets in ("category", "binary-category", ["category", "segmentation"], []):
        same("OxfordIIITPet", root, target_types=targets, attributes=("classes", "class_to_idx", "bin_class_to_idx"))
    same("EuroSAT", root)
    same("Country211", root, "valid")


def test_imagenet_from_folders(tmp_path):
    make.image_folder(tmp_path / "val", ("n02", "n01"), ".jpeg")
    torch.save(({"n01": ("tench", "Tinca tinca"), "n02": ("shark",)}, ["n01"]), tmp_path / "meta.bin")
    data = same("ImageNet", str(tmp_path), "val", attributes=("classes", "class_to_idx", "wnids", "wnid_to_idx"))
    assert data.class_to_idx == {"tench": 0, "Tinca tinca": 0, "shark": 1}


def test_printed_form(tmp_path):
    make.image_folder(tmp_path)
    transform = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU())
    real = judge("torch")
    twin = real.nn.Sequential(real.nn.ReLU(), real.nn.ReLU())
    mine = datasets.ImageFolder(str(tmp_path), transform=transform, target_transform=transform)
    theirs = oracle().datasets.ImageFolder(str(tmp_path), transform=twin, target_transform=twin)
    assert repr(mine) == repr(theirs)


# -- on their own ---------------------------------------------------------------------------------------------------------


def test_mnist_reads_compressed_files_and_loads_in_batches(tmp_path):
    make.mnist(tmp_path / "MNIST" / "raw", compressed=True)
    data = datasets.MNIST(tmp_path, transform=lambda image: torch.from_numpy(np.array(image)))
    images, targets = next(iter(DataLoader(data, batch_size=6)))
    assert torch.equal(images, torch.from_numpy(make.pixels(6, 28, 28))) and targets.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.class_to_idx["3 - three"] == 3
    assert repr(data).splitlines()[:4] == [
        "Dataset MNIST", "    Number of datapoints: 6", f"    Root location: {tmp_path}", "    Split: Train",
    ]  # fmt: skip
    with pytest.warns(UserWarning, match="train_data has been renamed data"):
        assert data.train_data is data.data


@pytest.mark.parametrize(
    "contents",
    [b"", b"\0\0\10", b"\1\0\10\1", b"\0\0\7\1\0\0\0\1a", b"\0\0\10\4" + bytes(16), b"\0\0\10\3\0\0\0\2", make.idx(make.pixels(6, 28, 28), 8)[:-1],
     b"\0\0\10\3" + b"\xff" * 12],
)  # fmt: skip
def test_damaged_idx_files(contents, tmp_path):
    make.mnist(tmp_path / "MNIST" / "raw")
    (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(contents)
    with pytest.raises(ValueError, match="idx file|should hold"):
        datasets.MNIST(tmp_path)


def test_missing_data(tmp_path):
    for make_one in (
        datasets.MNIST,
        datasets.CIFAR10,
        datasets.STL10,
        datasets.VOCDetection,
        datasets.Food101,
        datasets.EuroSAT,
    ):
        with pytest.raises(RuntimeError, match="not found.*download=True"):
            make_one(tmp_path)
    with pytest.raises(FileNotFoundError, match="any class folder"):
        datasets.ImageFolder(tmp_path)
    with pytest.raises(RuntimeError, match="download it externally"):
        datasets.ImageNet(tmp_path)
    with pytest.raises(ValueError, match="Unknown value 'dev' for argument split. Valid values are {'train', 'test'}"):
        datasets.Food101(tmp_path, "dev")
    with pytest.raises(ValueError, match="Only transforms or transform/target_transform"):
        datasets.VOCDetection(tmp_path, transform=negative, transforms=negative)


def test_without_scipy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    (tmp_path / "train_32x32.mat").write_bytes(b"")
    kind = type("SVHN", (datasets.SVHN,), {"split_list": {"train": ["", "train_32x32.mat", None]}})
    with pytest.raises(RuntimeError, match="SVHN needs scipy.io: pip install scipy"):
        kind(tmp_path)


class Evil:
    def __reduce__(self):
        return (os.system, ("echo pwned",))


def test_batches_run_no_code(tmp_path):
    kind = type("CIFAR10", (datasets.CIFAR10,), {"train_list": [["data_batch_1", None]], "test_list": []})
    make.cifar(tmp_path / kind.base_folder, ["data_batch_1"], "labels", ("batches.meta", "label_names"))
    (tmp_path / kind.base_folder / "data_batch_1").write_bytes(pickle.dumps({"data": Evil()}))
    with pytest.raises(pickle.UnpicklingError, match="no business with"):
        kind(tmp_path)


def test_coco(tmp_path):
    make.coco(tmp_path)
    data = datasets.CocoDetection(str(tmp_path), str(tmp_path / "instances.json"), transform=negative)
    assert data.ids == [10, 20, 30] and len(data) == 3
    image, objects = data[0]
    with Image.open(tmp_path / "10.jpg") as stored:
        assert image.tobytes() == negative(stored.convert("RGB")).tobytes()
    assert [o["id"] for o in objects] == [1, 3, 4] and objects[0]["bbox"] == [1, 2, 3, 4]
    assert data[1][1] == [] and [o["id"] for o in data[2][1]] == [2]
    with pytest.raises(ValueError, match="must be of type integer"):
        data["10"]
    captions = datasets.CocoCaptions(str(tmp_path), str(tmp_path / "instances.json"))
    assert captions[0][1] == ["text 1", "text 3", "text 4"]
    index = data.coco
    assert index.getAnnIds(imgIds=[10], catIds=1) == [1, 4] and index.getAnnIds(iscrowd=False) == [2, 4]
    assert index.getAnnIds(areaRng=[20, 40]) == [2, 3] and index.getCatIds(catNms=["car"]) == [2]
    assert index.getImgIds(catIds=[1, 2]) == [10] and index.loadCats([2])[0]["name"] == "car"
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match="should hold a dictionary"):
        datasets.CocoDetection(str(tmp_path), str(tmp_path / "list.json"))


def test_workers_load_images(tmp_path):
    make.image_folder(tmp_path, count=4)
    data = datasets.ImageFolder(tmp_path, transform=_mean)
    batches = list(DataLoader(data, batch_size=3, num_workers=2))
    means = [m for images, _ in batches for m in images.tolist()]
    assert means == [data[i][0] for i in range(8)]
    assert [t for _, targets in batches for t in targets.tolist()] == [0, 0, 0, 0, 1, 1, 1, 1]


def _mean(image):
    return float(np.asarray(image).mean())

"""Data sets of image files with one class each, which differ in how the files are listed."""

from __future__ import annotations

import csv
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, ClassVar

from ...utils.pillow import pillow
from .._categories import class_names
from .folder import ImageFolder, default_loader, find_classes, make_dataset
from .utils import (
    MISSING,
    MISSING_OR_CORRUPTED,
    check_integrity,
    download_and_extract_archive,
    download_url,
    optional_module,
    verify_str_arg,
)
from .vision import Loader, Transform, VisionDataset


class _ImageList(VisionDataset):
    """Base of data sets of image files: a subclass locates the files, downloads them and lists (path, class)."""

    _splits: ClassVar[tuple[str, ...]] = ()
    _missing = MISSING
    _URL: ClassVar[str]  # of one archive with all files
    _MD5: ClassVar[str | None] = None

    def __init__(
        self,
        root: Any,
        split: str = "train",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
        loader: Loader = default_loader,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self._split = verify_str_arg(split, "split", self._splits) if self._splits else split
        self.loader = loader
        if download and not self._check_exists():
            self._download()
        if not self._check_exists():
            raise RuntimeError(self._missing)
        self._samples = self._list()

    def _folder(self, *parts: str) -> pathlib.Path:
        return pathlib.Path(self.root, *parts)

    def _check_exists(self) -> bool:
        raise NotImplementedError

    def _download(self) -> None:
        download_and_extract_archive(self._URL, self.root, md5=self._MD5)

    def _list(self) -> list[tuple[Any, int]]:
        raise NotImplementedError

    def _name_classes(self, names: list[str]) -> None:
        self.classes = names
        self.class_to_idx = {name: number for number, name in enumerate(names)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self._samples[index]
        return self._each_transformed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self._samples)

    def extra_repr(self) -> str:
        return f"split={self._split}"


class Food101(_ImageList):
    """A thousand photographs of each of 101 dishes."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "test")
    _URL = "http://data.vision.ee.ethz.ch/cvl/food-101.tar.gz"
    _MD5 = "85eeb15f3717b99a5da872d97d918f87"

    def _check_exists(self) -> bool:
        return all(self._folder("food-101", part).is_dir() for part in ("meta", "images"))

    def _list(self) -> list[tuple[Any, int]]:
        listed = json.loads(self._folder("food-101", "meta", f"{self._split}.json").read_text())
        self._name_classes(sorted(listed))
        images = self._folder("food-101", "images")
        return [
            (images.joinpath(*f"{path}.jpg".split("/")), self.class_to_idx[name])
            for name, paths in listed.items()
            for path in paths
        ]


class DTD(_ImageList):
    """Textures in 47 classes; `partition` (1 to 10) is one of ten ways to split them."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    _URL = "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz"
    _MD5 = "fff73e5086ae6bdbea199a49dfb8a4c1"

    def __init__(self, root: Any, split: str = "train", partition: int = 1, *args: Any, **options: Any):
        if not isinstance(partition, int) or not 1 <= partition <= 10:
            raise ValueError(
                f"Parameter 'partition' should be an integer with `1 <= partition <= 10`, but got {partition} instead"
            )
        self._partition = partition
        super().__init__(root, split, *args, **options)

    def _check_exists(self) -> bool:
        return self._folder("dtd", "dtd").is_dir()

    def _download(self) -> None:
        download_and_extract_archive(self._URL, self._folder("dtd"), md5=self._MD5)

    def _list(self) -> list[tuple[Any, int]]:
        base = self._folder("dtd", "dtd")
        lines = (base / "labels" / f"{self._split}{self._partition}.txt").read_text().split()
        pairs = [line.split("/") for line in lines]
        self._name_classes(sorted({name for name, _ in pairs}))
        return [(base / "images" / name / file, self.class_to_idx[name]) for name, file in pairs]

    def extra_repr(self) -> str:
        return f"split={self._split}, partition={self._partition}"


class Flowers102(_ImageList):
    """Flowers of 102 kinds. Reading the lists needs SciPy."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    _missing = MISSING_OR_CORRUPTED
    _download_url_prefix = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
    _file_dict: ClassVar[Any] = {
        "image": ("102flowers.tgz", "52808999861908f626f3c1f4e79d11fa"),
        "label": ("imagelabels.mat", "e0620be6f572b9609742df49c70aed4d"),
        "setid": ("setid.mat", "a5357ecc9cb78c4bef273ce3793fc85c"),
    }
    _splits_map: ClassVar[dict[str, str]] = {"train": "trnid", "val": "valid", "test": "tstid"}
    classes = class_names("flowers102")

    def _check_exists(self) -> bool:
        base = self._folder("flowers-102")
        lists = (self._file_dict["label"], self._file_dict["setid"])
        return (base / "jpg").is_dir() and all(check_integrity(base / name, md5) for name, md5 in lists)

    def _download(self) -> None:
        base = self._folder("flowers-102")
        name, md5 = self._file_dict["image"]
        download_and_extract_archive(self._download_url_prefix + name, base, md5=md5)
        for name, md5 in (self._file_dict["label"], self._file_dict["setid"]):
            download_url(self._download_url_prefix + name, base, md5=md5)

    def _list(self) -> list[tuple[Any, int]]:
        base, read = self._folder("flowers-102"), optional_module("scipy.io", "Flowers102").loadmat
        chosen = read(base / self._file_dict["setid"][0], squeeze_me=True)[self._splits_map[self._split]].tolist()
        labels = (read(base / self._file_dict["label"][0], squeeze_me=True)["labels"] - 1).tolist()
        return [(base / "jpg" / f"image_{number:05d}.jpg", labels[number - 1]) for number in chosen]


class FGVCAircraft(_ImageList):
    """Aircraft by variant, family or manufacturer."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "val", "trainval", "test")
    _URL = "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz"
    _levels: ClassVar[dict[str, str]] = {
        "variant": "variants.txt",
        "family": "families.txt",
        "manufacturer": "manufacturers.txt",
    }

    def __init__(
        self, root: Any, split: str = "trainval", annotation_level: str = "variant", *args: Any, **options: Any
    ):
        self._annotation_level = verify_str_arg(annotation_level, "annotation_level", tuple(self._levels))
        super().__init__(root, split, *args, **options)

    def _check_exists(self) -> bool:
        return self._folder("fgvc-aircraft-2013b").is_dir()

    def _list(self) -> list[tuple[Any, int]]:
        base = self._folder("fgvc-aircraft-2013b", "data")
        names = (base / self._levels[self._annotation_level]).read_text().splitlines()
        self._name_classes([name.strip() for name in names])
        lines = (base / f"images_{self._annotation_level}_{self._split}.txt").read_text().splitlines()
        pairs = [line.strip().split(" ", 1) for line in lines]
        return [(str(base / "images" / f"{image}.jpg"), self.class_to_idx[name]) for image, name in pairs]

    extra_repr = VisionDataset.extra_repr


class GTSRB(_ImageList):
    """German traffic signs."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "test")
    _base_url = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
    _archives: ClassVar[Any] = {
        "train": [("GTSRB-Training_fixed.zip", "513f3c79a4c5141765e10e952eaa2478")],
        "test": [
            ("GTSRB_Final_Test_Images.zip", "c7e4e6327067d32654124b0fe9e82185"),
            ("GTSRB_Final_Test_GT.zip", "fe31e9c9270bbcd7b84b7f21a9d9d9e5"),
        ],
    }

    def _images(self) -> pathlib.Path:
        return self._folder("gtsrb", "GTSRB", *(["Training"] if self._split == "train" else ["Final_Test", "Images"]))

    def _check_exists(self) -> bool:
        return self._images().is_dir()

    def _download(self) -> None:
        for name, md5 in self._archives[self._split]:
            download_and_extract_archive(self._base_url + name, self._folder("gtsrb"), md5=md5)

    def _list(self) -> list[tuple[Any, int]]:
        if self._split == "train":
            return make_dataset(str(self._images()), extensions=(".ppm",))
        with open(self._folder("gtsrb", "GT-final_test.csv")) as file:
            rows = list(csv.DictReader(file, delimiter=";", skipinitialspace=True))
        return [(str(self._images() / row["Filename"]), int(row["ClassId"])) for row in rows]

    extra_repr = VisionDataset.extra_repr


class RenderedSST2(_ImageList):
    """Rendered sentences, negative or positive."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    _URL = "https://openaipublic.azureedge.net/clip/data/rendered-sst2.tgz"
    _MD5 = "2384d08e9dcfa4bd55b324e610496ee5"

    def _images(self) -> pathlib.Path:
        return self._folder("rendered-sst2", "valid" if self._split == "val" else self._split)

    def _check_exists(self) -> bool:
        return all((self._images() / name).is_dir() for name in ("negative", "positive"))

    def _list(self) -> list[tuple[Any, int]]:
        self._name_classes(["negative", "positive"])
        return make_dataset(str(self._images()), extensions=("png",))


class SUN397(_ImageList):
    """Scenes of 397 kinds."""

    _URL = "http://vision.princeton.edu/projects/2010/SUN/SUN397.tar.gz"
    _MD5 = "8ca2778205c41d23104230ba66911c7a"

    def __init__(
        self,
        root: Any,
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
        loader: Loader = default_loader,
    ):
        super().__init__(root, "", transform, target_transform, download, loader)

    def _check_exists(self) -> bool:
        return self._folder("SUN397").is_dir()

    def _list(self) -> list[tuple[Any, int]]:
        base = self._folder("SUN397")
        # A line is /a/abbey: the slashes and the letter are not part of the name.
        self._name_classes([line[3:].strip() for line in (base / "ClassName.txt").read_text().splitlines()])
        return [
            (path, self.class_to_idx["/".join(path.relative_to(base).parts[1:-1])]) for path in base.rglob("sun_*.jpg")
        ]

    extra_repr = VisionDataset.extra_repr


class Imagenette(_ImageList):
    """Ten easy classes of ImageNet, at full size or with the shorter edge at 320 or 160 pixels."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "val")
    _ARCHIVES: ClassVar[Any] = {
        "full": ("https://s3.amazonaws.com/fast-ai-imageclas/imagenette2.tgz", "fe2fc210e6bb7c5664d602c3cd71e612"),
        "320px": ("https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-320.tgz", "3df6f0d01a2c9592104656642f5e78a3"),
        "160px": ("https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz", "e793b78cc4c9e9a4ccc0c1155377a412"),
    }
    _WNID_TO_CLASS: ClassVar[dict[str, tuple[str, ...]]] = {
        "n01440764": ("tench", "Tinca tinca"),
        "n02102040": ("English springer", "English springer spaniel"),
        "n02979186": ("cassette player",),
        "n03000684": ("chain saw", "chainsaw"),
        "n03028079": ("church", "church building"),
        "n03394916": ("French horn", "horn"),
        "n03417042": ("garbage truck", "dustcart"),
        "n03425413": ("gas pump", "gasoline pump", "petrol pump", "island dispenser"),
        "n03445777": ("golf ball",),
        "n03888257": ("parachute", "chute"),
    }

    def __init__(
        self,
        root: Any,
        split: str = "train",
        size: str = "full",
        download: bool = False,
        transform: Transform = None,
        target_transform: Transform = None,
        loader: Loader = default_loader,
    ):
        self._size = verify_str_arg(size, "size", tuple(self._ARCHIVES))
        super().__init__(root, split, transform, target_transform, download, loader)

    def _base(self) -> pathlib.Path:
        return self._folder(pathlib.PurePosixPath(self._ARCHIVES[self._size][0]).stem)

    def _check_exists(self) -> bool:
        return self._base().exists()

    def _download(self) -> None:
        url, md5 = self._ARCHIVES[self._size]
        download_and_extract_archive(url, self.root, md5=md5)

    def _list(self) -> list[tuple[Any, int]]:
        folder = str(self._base() / self._split)
        self.wnids, self.wnid_to_idx = find_classes(folder)
        self.classes = [self._WNID_TO_CLASS[wnid] for wnid in self.wnids]  # type: ignore[misc]
        self.class_to_idx = {name: n for wnid, n in self.wnid_to_idx.items() for name in self._WNID_TO_CLASS[wnid]}
        return make_dataset(folder, self.wnid_to_idx, extensions=".jpeg")

    extra_repr = VisionDataset.extra_repr


class StanfordCars(_ImageList):
    """Cars by make, model and year. Reading the lists needs SciPy; the files can no longer be downloaded."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "test")
    _missing = "Dataset not found."

    def _lists(self) -> pathlib.Path:
        base = self._folder("stanford_cars")
        return (
            base / "devkit" / "cars_train_annos.mat"
            if self._split == "train"
            else base / "cars_test_annos_withlabels.mat"
        )

    def _check_exists(self) -> bool:
        base = self._folder("stanford_cars")
        return (base / "devkit").is_dir() and self._lists().exists() and (base / f"cars_{self._split}").is_dir()

    def _download(self) -> None:
        raise ValueError("The original URL is broken so the StanfordCars dataset cannot be downloaded anymore.")

    def _list(self) -> list[tuple[Any, int]]:
        base, read = self._folder("stanford_cars"), optional_module("scipy.io", "StanfordCars").loadmat
        self._name_classes(read(base / "devkit" / "cars_meta.mat", squeeze_me=True)["class_names"].tolist())
        return [
            (str(base / f"cars_{self._split}" / row["fname"]), row["class"] - 1)
            for row in read(self._lists(), squeeze_me=True)["annotations"]
        ]

    extra_repr = VisionDataset.extra_repr


class EuroSAT(ImageFolder):
    """Satellite images of ten kinds of land."""

    def __init__(
        self,
        root: Any,
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
        loader: Loader = default_loader,
    ):
        base = os.path.join(os.path.expanduser(root), "eurosat")
        images = os.path.join(base, "2750")
        if download and not os.path.exists(images):
            download_and_extract_archive(
                "https://huggingface.co/datasets/torchgeo/eurosat/resolve/c877bcd43f099cd0196738f714544e355477f3fd/EuroSAT.zip",
                base,
                md5="c8fa014336c82ac7804f0398fcb19387",
            )
        if not os.path.exists(images):
            raise RuntimeError(MISSING)
        super().__init__(images, transform, target_transform, loader)
        self.root = os.path.expanduser(root)


class Country211(ImageFolder):
    """Dataset of photographs, labelled by the country they were taken in."""

    def __init__(
        self,
        root: Any,
        split: str = "train",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
        loader: Loader = default_loader,
    ):
        self._split = verify_str_arg(split, "split", ("train", "valid", "test"))
        base = os.path.join(os.path.expanduser(root), "country211")
        if download and not os.path.isdir(base):
            download_and_extract_archive(
                "https://openaipublic.azureedge.net/clip/data/country211.tgz",
                os.path.dirname(base),
                md5="84988d7644798601126c29e9877aab6a",
            )
        if not os.path.isdir(base):
            raise RuntimeError(MISSING)
        super().__init__(os.path.join(base, split), transform, target_transform, loader)
        self.root = str(pathlib.Path(root).expanduser())


class OxfordIIITPet(VisionDataset):
    """Cats and dogs of 37 breeds: "category", "binary-category" (cat or dog), "segmentation", or several of these."""

    _types = ("category", "binary-category", "segmentation")
    _RESOURCES = (
        ("https://www.robots.ox.ac.uk/~vgg/data/pets/data/images.tar.gz", "5c4f3ee8e5d25df40f4fd59a7f44e54c"),
        ("https://www.robots.ox.ac.uk/~vgg/data/pets/data/annotations.tar.gz", "95a8c909bbe2e81eed6a22bccdf3f68f"),
    )

    def __init__(
        self,
        root: Any,
        split: str = "trainval",
        target_types: Any = "category",
        transforms: Transform = None,
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
    ):
        self._split = verify_str_arg(split, "split", ("trainval", "test"))
        wanted = [target_types] if isinstance(target_types, str) else target_types
        self._target_types = [verify_str_arg(kind, "target_types", self._types) for kind in wanted]
        super().__init__(root, transforms, transform, target_transform)
        self._base = pathlib.Path(self.root) / "oxford-iiit-pet"
        if download and not self._check_exists():
            for url, md5 in self._RESOURCES:
                download_and_extract_archive(url, self._base, md5=md5)
        if not self._check_exists():
            raise RuntimeError(MISSING)
        lines = (self._base / "annotations" / f"{split}.txt").read_text().splitlines()
        # image, breed, cat or dog, and the number among those; all counted from 1
        self._rows = [(name, int(breed) - 1, int(kind) - 1) for name, breed, kind, _ in map(str.split, lines)]
        breeds = sorted({(breed, name.rsplit("_", 1)[0]) for name, breed, _ in self._rows})
        self.classes = [" ".join(part.title() for part in name.split("_")) for _, name in breeds]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.bin_classes = ["Cat", "Dog"]
        self.bin_class_to_idx = {"Cat": 0, "Dog": 1}

    def _check_exists(self) -> bool:
        return (self._base / "images").is_dir() and (self._base / "annotations").is_dir()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        name, breed, kind = self._rows[index]
        image = pillow().open(self._base / "images" / f"{name}.jpg").convert("RGB")
        makers: dict[str, Callable] = {
            "category": lambda: breed,
            "binary-category": lambda: kind,
            "segmentation": lambda: pillow().open(self._base / "annotations" / "trimaps" / f"{name}.png"),
        }
        targets = tuple(makers[wanted]() for wanted in self._target_types)
        return self._both_transformed(image, targets if len(targets) > 1 else targets[0] if targets else None)

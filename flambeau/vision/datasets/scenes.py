"""Data sets of image files with classes that folders, lists or databases name: characters, species, places, faces, scenes."""

from __future__ import annotations

import io
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any, ClassVar

from ...utils.pillow import pillow
from .folder import default_loader
from .listed import _ImageList
from .utils import (
    MISSING_OR_CORRUPTED,
    check_integrity,
    download_and_extract_archive,
    download_file_from_google_drive,
    extract_archive,
    iterable_to_str,
    list_dir,
    list_files,
    optional_module,
    verify_str_arg,
)
from .vision import Loader, Transform, VisionDataset


class Omniglot(VisionDataset):
    """Handwritten characters of 50 alphabets, twenty drawings of each; 30 alphabets are the `background`, 20 for evaluation."""

    folder = "omniglot-py"
    download_url_prefix = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python"
    zips_md5: ClassVar[dict[str, str]] = {
        "images_background": "68d2efa1b9178cc56df9314c21c6e718",
        "images_evaluation": "6b91aef0f799c5bb55b94e3f2daec811",
    }

    def __init__(
        self,
        root: Any,
        background: bool = True,
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
        loader: Loader | None = None,
    ):
        super().__init__(os.path.join(root, self.folder), transform=transform, target_transform=target_transform)
        self.background, self.loader = background, loader
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        self.target_folder = os.path.join(self.root, self._get_target_folder())
        self._alphabets = list_dir(self.target_folder)
        self._characters = [
            os.path.join(a, c) for a in self._alphabets for c in list_dir(os.path.join(self.target_folder, a))
        ]
        self._character_images = [
            [(image, number) for image in list_files(os.path.join(self.target_folder, character), ".png")]
            for number, character in enumerate(self._characters)
        ]
        self._flat_character_images = [image for images in self._character_images for image in images]

    def _get_target_folder(self) -> str:
        return "images_background" if self.background else "images_evaluation"

    def _check_integrity(self) -> bool:
        name = self._get_target_folder()
        return check_integrity(os.path.join(self.root, name + ".zip"), self.zips_md5[name])

    def download(self) -> None:
        """Download the archive unless it is present."""
        if not self._check_integrity():
            name = self._get_target_folder()
            url, md5 = f"{self.download_url_prefix}/{name}.zip", self.zips_md5[name]
            download_and_extract_archive(url, self.root, filename=name + ".zip", md5=md5)

    def __len__(self) -> int:
        return len(self._flat_character_images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        name, number = self._flat_character_images[index]
        path = os.path.join(self.target_folder, self._characters[number], name)
        image = pillow().open(path, mode="r").convert("L") if self.loader is None else self.loader(path)
        return self._each_transformed(image, number)


class CLEVRClassification(_ImageList):
    """Rendered scenes; the class is the number of objects, None in the split "test"."""

    _splits: ClassVar[tuple[str, ...]] = ("train", "val", "test")
    _missing = MISSING_OR_CORRUPTED
    _URL = "https://dl.fbaipublicfiles.com/clevr/CLEVR_v1.0.zip"
    _MD5 = "b11922020e72d0cd9154779b2d3d07d2"

    @property
    def _data_folder(self) -> pathlib.Path:
        return self._folder("clevr", "CLEVR_v1.0")

    def _check_exists(self) -> bool:
        return self._data_folder.is_dir()

    def _download(self) -> None:
        download_and_extract_archive(self._URL, self._folder("clevr"), md5=self._MD5)

    def _list(self) -> list[tuple[Any, Any]]:
        self._image_files = sorted((self._data_folder / "images" / self._split).glob("*"))
        self._labels: list[int | None] = [None] * len(self._image_files)
        if self._split != "test":
            scenes = json.loads((self._data_folder / "scenes" / f"CLEVR_{self._split}_scenes.json").read_text())[
                "scenes"
            ]
            counts = {scene["image_filename"]: len(scene["objects"]) for scene in scenes}
            self._labels = [counts[file.name] for file in self._image_files]
        return list(zip(self._image_files, self._labels))


CATEGORIES_2021 = ["kingdom", "phylum", "class", "order", "family", "genus"]
_INATURALIST = "https://ml-inat-competition-datasets.s3.amazonaws.com/"
DATASET_URLS = {
    "2017": _INATURALIST + "2017/train_val_images.tar.gz",
    "2018": _INATURALIST + "2018/train_val2018.tar.gz",
    "2019": _INATURALIST + "2019/train_val2019.tar.gz",
    "2021_train": _INATURALIST + "2021/train.tar.gz",
    "2021_train_mini": _INATURALIST + "2021/train_mini.tar.gz",
    "2021_valid": _INATURALIST + "2021/val.tar.gz",
}
DATASET_MD5 = {
    "2017": "7c784ea5e424efaec655bd392f87301f",
    "2018": "b1c6952ce38f31868cc50ea72d066cc3",
    "2019": "c60a6e2962c9b8ccbd458d12c8582644",
    "2021_train": "e0526d53c7f7b2e3167b2b43bb2690ed",
    "2021_train_mini": "db6ed8330e634445efc8fec83ae81442",
    "2021_valid": "f6f6e0e242e3d4c9569ba56400938afc",
}


class INaturalist(VisionDataset):
    """Animals and plants; the class is the species ("full") or any rank above it, several as a tuple."""

    def __init__(
        self,
        root: Any,
        version: str = "2021_train",
        target_type: list[str] | str = "full",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
        loader: Loader | None = None,
    ):
        self.version = verify_str_arg(version, "version", DATASET_URLS.keys())
        super().__init__(os.path.join(root, version), transform=transform, target_transform=target_transform)
        self.loader = loader
        os.makedirs(root, exist_ok=True)
        if download:
            self.download()
        if not self._check_exists():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        self.all_categories: list[str] = []  # folders, by the species' number
        self.categories_index: dict[str, dict[str, int]] = {}  # rank: name: number
        self.categories_map: list[dict[str, int]] = []  # species: rank: number
        new = self.version.startswith("2021")
        ranks = ("full", *CATEGORIES_2021) if new else ("full", "super")
        asked = target_type if isinstance(target_type, list) else [target_type]
        self.target_type = [verify_str_arg(rank, "target_type", ranks) for rank in asked]
        (self._init_2021 if new else self._init_pre2021)()
        self.index = [
            (number, file)
            for number, folder in enumerate(self.all_categories)
            for file in os.listdir(os.path.join(self.root, folder))
        ]

    def _init_2021(self) -> None:
        """List the folders of 2021, called number_kingdom_phylum_..._species."""
        self.all_categories = sorted(os.listdir(self.root))
        self.categories_index = {rank: {} for rank in CATEGORIES_2021}
        for number, folder in enumerate(self.all_categories):
            pieces = folder.split("_")
            if len(pieces) != 8:
                raise RuntimeError(f"Unexpected category name {folder}, wrong number of pieces")
            if pieces[0] != f"{number:05d}":
                raise RuntimeError(f"Unexpected category id {pieces[0]}, expecting {number:05d}")
            numbers = {}
            for rank, name in zip(CATEGORIES_2021, pieces[1:7]):
                known = self.categories_index[rank]
                numbers[rank] = known.setdefault(name, len(known))
            self.categories_map.append(numbers)

    def _init_pre2021(self) -> None:
        """List the folders before 2021: folders of groups hold folders of species, whose names are numbers, except in 2017."""
        groups = sorted(os.listdir(self.root))
        self.categories_index = {"super": {name: number for number, name in enumerate(groups)}}
        found: dict[int, tuple[str, int]] = {}
        for group_number, group in enumerate(groups):
            for name in sorted(os.listdir(os.path.join(self.root, group))):
                if self.version != "2017" and not name.isdigit():
                    raise RuntimeError(f"Unexpected non-numeric dir name: {name}")
                number = len(found) if self.version == "2017" else int(name)
                if number in found:
                    raise RuntimeError(f"Duplicate category {name}")
                found[number] = (os.path.join(group, name), group_number)
        for number in range(max(found, default=-1) + 1):
            if number not in found:
                raise RuntimeError(f"Missing category {number}")
            self.all_categories.append(found[number][0])
            self.categories_map.append({"super": found[number][1]})

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        number, file = self.index[index]
        path = os.path.join(self.root, self.all_categories[number], file)
        image = pillow().open(path) if self.loader is None else self.loader(path)
        targets = tuple(number if rank == "full" else self.categories_map[number][rank] for rank in self.target_type)
        return self._each_transformed(image, targets if len(targets) > 1 else targets[0])

    def __len__(self) -> int:
        return len(self.index)

    def category_name(self, category_type: str, category_id: int) -> str:
        """Return the name of a species ("full") or of a rank above it, by its number."""
        if category_type == "full":
            return self.all_categories[category_id]
        if category_type not in self.categories_index:
            raise ValueError(f"Invalid category type '{category_type}'")
        for name, number in self.categories_index[category_type].items():
            if number == category_id:
                return name
        raise ValueError(f"Invalid category id {category_id} for {category_type}")

    def _check_exists(self) -> bool:
        return os.path.isdir(self.root) and len(os.listdir(self.root)) > 0

    def download(self) -> None:
        """Download the archive unless the folder is present."""
        if self._check_exists():
            return
        base, url = os.path.dirname(self.root), DATASET_URLS[self.version]
        download_and_extract_archive(url, base, filename=f"{self.version}.tgz", md5=DATASET_MD5[self.version])
        unpacked = os.path.join(base, os.path.basename(url).removesuffix(".tar.gz"))
        if not os.path.exists(unpacked):
            raise RuntimeError(f"Unable to find downloaded files at {unpacked}")
        os.rename(unpacked, self.root)


class PCAM(VisionDataset):
    """Patches of lymph nodes, with tumour tissue (1) or without. Reading needs h5py."""

    _FILES: ClassVar[Any] = {
        split: {
            "images": (f"camelyonpatch_level_2_split_{part}_x.h5", *images),
            "targets": (f"camelyonpatch_level_2_split_{part}_y.h5", *targets),
        }
        for split, part, images, targets in (
            ("train", "train", ("1Ka0XfEMiwgCYPdTI-vv6eUElOBnKFKQ2", "1571f514728f59376b705fc836ff4b63"),
             ("1269yhu3pZDP8UYFQs-NYs3FPwuK-nGSG", "35c2d7259d906cfc8143347bb8e05be7")),
            ("test", "test", ("1qV65ZqZvWzuIVthK8eVDhIwrbnsJdbg_", "d8c2d60d490dbd479f8199bdfa0cf6ec"),
             ("17BHrSrwWKjYsOgTMmoqrIjDy6Fa2o_gP", "60a7035772fbdb7f34eb86d4420cf66a")),
            ("val", "valid", ("1hgshYGWK8V-eGRy8LToWJJgDU_rXWVJ3", "d5b63470df7cfa627aeec8b9dc0c066e"),
             ("1bH8ZRbhSVAhScTS0p9-ZzGnX91cHT3uO", "2b85f58b927af9964a4c15b8f7e8f179")),
        )
    }  # fmt: skip

    def __init__(
        self,
        root: Any,
        split: str = "train",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
    ):
        self.h5py = optional_module("h5py", "PCAM")
        self._split = verify_str_arg(split, "split", ("train", "test", "val"))
        super().__init__(root, transform=transform, target_transform=target_transform)
        self._base_folder = pathlib.Path(self.root) / "pcam"
        if download:
            self._download()
        if not self._check_exists():
            raise RuntimeError("Dataset not found. You can use download=True to download it")

    def _path(self, part: str) -> pathlib.Path:
        return self._base_folder / self._FILES[self._split][part][0]

    def _check_exists(self) -> bool:
        return self._path("images").exists() and self._path("targets").exists()

    def _download(self) -> None:
        if not self._check_exists():
            for name, number, md5 in self._FILES[self._split].values():
                download_file_from_google_drive(number, str(self._base_folder), filename=name + ".gz", md5=md5)
                extract_archive(str(self._base_folder / (name + ".gz")))

    def __len__(self) -> int:
        with self.h5py.File(self._path("images")) as images:
            return images["x"].shape[0]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        with self.h5py.File(self._path("images")) as images, self.h5py.File(self._path("targets")) as targets:
            image = pillow().fromarray(images["x"][index]).convert("RGB")
            return self._each_transformed(image, int(targets["y"][index, 0, 0, 0]))


class _LFW(VisionDataset):
    """Labeled Faces in the Wild: photographs, and lists of people or of pairs. The files can no longer be downloaded."""

    base_folder = "lfw-py"
    file_dict: ClassVar[Any] = {
        "original": ("lfw", "lfw.tgz", "a17d05bd522c52d84eca14327a23d494"),
        "funneled": ("lfw_funneled", "lfw-funneled.tgz", "1b42dfed7d15c9b2dd63d5e5840c86ad"),
        "deepfunneled": ("lfw-deepfunneled", "lfw-deepfunneled.tgz", "68331da3eb755a505a502b5aacb3c201"),
    }
    checksums: ClassVar[dict[str, str]] = {
        "pairs.txt": "9f1ba174e4e1c508ff7cdf10ac338a7d",
        "pairsDevTest.txt": "5132f7440eb68cf58910c8a45a2ac10b",
        "pairsDevTrain.txt": "4f27cbf15b2da4a85c1907eb4181ad21",
        "people.txt": "450f0863dd89e85e73936a6d71a3474b",
        "peopleDevTest.txt": "e4bf5be0a43b5dcd9dc5ccfcb8fb19c5",
        "peopleDevTrain.txt": "54eaac34beb6d042ed3a7d883e247a21",
        "lfw-names.txt": "a6d0a479bd074669f656265a6e693f6d",
    }
    annot_file: ClassVar[dict[str, str]] = {"10fold": "", "train": "DevTrain", "test": "DevTest"}
    names = "lfw-names.txt"
    view: str  # "people" or "pairs"

    def __init__(
        self,
        root: Any,
        split: str = "10fold",
        image_set: str = "funneled",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
        loader: Loader = default_loader,
    ):
        super().__init__(os.path.join(root, self.base_folder), transform=transform, target_transform=target_transform)
        self.image_set = verify_str_arg(image_set.lower(), "image_set", self.file_dict.keys())
        folder, self.filename, self.md5 = self.file_dict[self.image_set]
        self.split = verify_str_arg(split.lower(), "split", ["10fold", "train", "test"])
        self.labels_file = f"{self.view}{self.annot_file[self.split]}.txt"
        self.data: list[Any] = []
        self.targets: list[int] = []
        if download:
            raise ValueError(
                "LFW is no longer offered for download: fetch it by hand and place its files in the folder lfw-py of root"
            )
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        self.images_dir = os.path.join(self.root, folder)
        self._loader = loader
        self._read(pathlib.Path(self.root, self.labels_file).read_text().splitlines())

    def _check_integrity(self) -> bool:
        files = {self.filename: self.md5, self.labels_file: self.checksums[self.labels_file]}
        if self.view == "people":
            files[self.names] = self.checksums[self.names]
        return all(check_integrity(os.path.join(self.root, name), md5) for name, md5 in files.items())

    def _read(self, lines: list[str]) -> None:
        raise NotImplementedError

    def _get_path(self, identity: str, no: int | str) -> str:
        return os.path.join(self.images_dir, identity, f"{identity}_{int(no):04d}.jpg")

    def extra_repr(self) -> str:
        return f"Alignment: {self.image_set}\nSplit: {self.split}"

    def __len__(self) -> int:
        return len(self.data)


class LFWPeople(_LFW):
    """Faces with the person as the class."""

    view = "people"

    def _read(self, lines: list[str]) -> None:
        names = pathlib.Path(self.root, self.names).read_text().splitlines()
        self.class_to_idx = {line.split()[0]: number for number, line in enumerate(names)}
        folds, place = (int(lines[0]), 1) if self.split == "10fold" else (1, 0)
        for _ in range(folds):
            count = int(lines[place])
            for line in lines[place + 1 : place + count + 1]:
                person, images = line.strip().split("\t")
                self.data += [self._get_path(person, number) for number in range(1, int(images) + 1)]
                self.targets += [self.class_to_idx[person]] * int(images)
            place += count + 1

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._each_transformed(self._loader(self.data[index]), self.targets[index])

    def extra_repr(self) -> str:
        return super().extra_repr() + f"\nClasses (identities): {len(self.class_to_idx)}"


class LFWPairs(_LFW):
    """Pairs of faces, of one person (1) or of two."""

    view = "pairs"

    def _read(self, lines: list[str]) -> None:
        numbers = [int(word) for word in lines[0].split("\t")]
        folds, count = numbers if self.split == "10fold" else (1, numbers[0])
        self.pair_names: list[tuple[str, str]] = []
        for place, line in enumerate(lines[1 : 1 + 2 * folds * count]):
            same = place // count % 2 == 0  # in each fold the pairs of one person come first
            words = line.strip().split("\t")
            first, second = (words[0], words[1]), ((words[0], words[2]) if same else (words[2], words[3]))
            self.pair_names.append((first[0], second[0]))
            self.data.append((self._get_path(*first), self._get_path(*second)))
            self.targets.append(int(same))

    def __getitem__(self, index: int) -> tuple[Any, Any, Any]:
        first, second = (self._loader(path) for path in self.data[index])
        if self.transform is not None:
            first, second = self.transform(first), self.transform(second)
        target: Any = self.targets[index]
        return first, second, target if self.target_transform is None else self.target_transform(target)


class LSUNClass(VisionDataset):
    """The scenes of one class of LSUN, from a database. Reading needs lmdb."""

    def __init__(self, root: Any, transform: Transform = None, target_transform: Transform = None):  # fmt: skip
        lmdb = optional_module("lmdb", "LSUN")
        super().__init__(root, transform=transform, target_transform=target_transform)
        options = {"max_readers": 1, "readonly": True, "lock": False, "readahead": False, "meminit": False}
        self.env = lmdb.open(str(root), **options)
        with self.env.begin(write=False) as transaction:
            self.keys = list(transaction.cursor().iternext(keys=True, values=False))
        self.length = len(self.keys)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        with self.env.begin(write=False) as transaction:
            data = transaction.get(self.keys[index])
        return self._each_transformed(pillow().open(io.BytesIO(data)).convert("RGB"), None)

    def __len__(self) -> int:
        return self.length


_SCENES = [
    "bedroom",
    "bridge",
    "church_outdoor",
    "classroom",
    "conference_room",
    "dining_room",
    "kitchen",
    "living_room",
    "restaurant",
    "tower",
]


class LSUN(VisionDataset):
    """Scenes of ten kinds; `classes` is "train", "val", "test" or a list such as ["bedroom_train", "tower_val"]."""

    def __init__(
        self,
        root: Any,
        classes: str | list[str] = "train",
        transform: Transform = None,
        target_transform: Transform = None,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes = self._verify_classes(classes)
        self.dbs = [LSUNClass(os.path.join(root, f"{name}_lmdb"), transform=transform) for name in self.classes]
        self.indices = [sum(map(len, self.dbs[: i + 1])) for i in range(len(self.dbs))]  # where each class ends
        self.length = self.indices[-1] if self.indices else 0

    def _verify_classes(self, classes: Any) -> list[str]:
        splits = ["train", "val", "test"]
        if isinstance(classes, str):
            verify_str_arg(classes, "classes", splits)
            return ["test"] if classes == "test" else [f"{scene}_{classes}" for scene in _SCENES]
        if not isinstance(classes, Iterable):
            raise ValueError(f"Expected type str or Iterable for argument classes, but got type {type(classes)}.")
        for name in classes:
            if not isinstance(name, str):
                raise ValueError(f"Expected type str for elements in argument classes, but got type {type(name)}.")
            scene, _, split = name.rpartition("_")
            unknown = "Unknown value '{}' for {}. Valid values are {{{}}}."
            verify_str_arg(scene, None, _SCENES, unknown.format(scene, "LSUN class", iterable_to_str(_SCENES)))
            verify_str_arg(split, None, splits, unknown.format(split, "postfix", iterable_to_str(splits)))
        return list(classes)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        number = next(i for i, end in enumerate(self.indices) if index < end)
        image, _ = self.dbs[number][index - (self.indices[number - 1] if number else 0)]
        target: Any = number
        return image, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return self.length

    def extra_repr(self) -> str:
        return f"Classes: {self.classes}"

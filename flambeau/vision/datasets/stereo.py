"""Data sets of stereo pairs: the left and the right image and the disparity (1, H, W) of the left one, where it is known."""

from __future__ import annotations

import json
import os
import random
import shutil
from glob import glob
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...utils.pillow import pillow
from .flow import _read_pfm
from .utils import download_and_extract_archive, verify_str_arg
from .vision import Transform, VisionDataset


def _image(path: Any) -> np.ndarray:
    return np.asarray(pillow().open(path))


def _positive_pfm(path: str) -> np.ndarray:
    return np.abs(_read_pfm(path, slice_channels=1))


class StereoMatchingDataset(VisionDataset):
    """Stereo pairs; `transforms` takes (left, right) images, disparities and masks of pixels where these are known.

    A subclass lists files with `_scan` and reads a disparity with `_read_disparity`."""

    _has_built_in_disparity_mask = False

    def __init__(self, root: Any, transforms: Transform = None):
        super().__init__(root)
        self.transforms: Any = transforms
        self._images: list[tuple[str, str | None]] = []
        self._disparities: list[tuple[str | None, str | None]] = []

    def _scan(self, images: tuple[Path, Path], disparities: tuple[Path, Path | None] | None) -> None:
        """Add the files that match the patterns of images and of disparities; None if there are no disparities."""
        found = self._scan_pairs(str(images[0]), str(images[1]))
        self._images += found
        if disparities is None:
            self._disparities += [(None, None)] * len(found)
        else:
            left, right = disparities
            self._disparities += self._scan_pairs(str(left), None if right is None else str(right))

    def _scan_pairs(
        self, paths_left_pattern: str, paths_right_pattern: str | None = None
    ) -> list[tuple[str, str | None]]:
        left = sorted(glob(paths_left_pattern))
        right: list[Any] = sorted(glob(paths_right_pattern)) if paths_right_pattern else [None] * len(left)
        for found, pattern in ((left, paths_left_pattern), (right, paths_right_pattern)):
            if not found:
                raise FileNotFoundError(f"Could not find any files matching the patterns: {pattern}")
        if len(left) != len(right):
            raise ValueError(
                f"Found {len(left)} left files but {len(right)} right files using:\n left pattern: {paths_left_pattern}\n"
                f"right pattern: {paths_right_pattern}\n"
            )
        return list(zip(left, right))

    def _read_img(self, file_path: Any) -> Any:
        image = pillow().open(file_path)
        return image if image.mode == "RGB" else image.convert("RGB")

    def _read_disparity(self, file_path: str) -> tuple[Any, Any]:
        """Return the disparity in a file and the mask of pixels where it is known, or None."""
        return _positive_pfm(file_path), None

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        images: Any = tuple(map(self._read_img, self._images[index]))
        read = [(None, None) if path is None else self._read_disparity(path) for path in self._disparities[index]]
        disparities, masks = zip(*read)
        if self.transforms is not None:
            images, disparities, masks = self.transforms(images, disparities, masks)
        if self._has_built_in_disparity_mask or masks[0] is not None:
            return images[0], images[1], disparities[0], masks[0]
        return images[0], images[1], disparities[0]

    def __len__(self) -> int:
        return len(self._images)


class CarlaStereo(StereoMatchingDataset):
    """Streets of a simulator."""

    def __init__(self, root: Any, transforms: Transform = None):
        super().__init__(root, transforms)
        scenes = Path(root) / "carla-highres" / "trainingF" / "*"
        self._scan((scenes / "im0.png", scenes / "im1.png"), (scenes / "disp0GT.pfm", scenes / "disp1GT.pfm"))


class _KittiStereo(StereoMatchingDataset):
    _has_built_in_disparity_mask = True
    _images_in: tuple[str, str]
    _disparities_in: tuple[str, str | None]

    def __init__(self, root: Any, split: str = "train", transforms: Transform = None):
        super().__init__(root, transforms)
        verify_str_arg(split, "split", ("train", "test"))
        top = Path(root) / type(self).__name__.removesuffix("Stereo") / f"{split}ing"
        left, right = self._disparities_in
        known = (top / left, None if right is None else top / right) if split == "train" else None
        self._scan((top / self._images_in[0], top / self._images_in[1]), known)

    def _read_disparity(self, file_path: str) -> tuple[Any, Any]:
        return _image(file_path)[None] / 256.0, None


class Kitti2012Stereo(_KittiStereo):
    """Streets of KITTI's benchmark of 2012, in colour."""

    _images_in = ("colored_0/*_10.png", "colored_1/*_10.png")
    _disparities_in = ("disp_noc/*.png", None)


class Kitti2015Stereo(_KittiStereo):
    """Streets of KITTI's benchmark of 2015."""

    _images_in = ("image_2/*.png", "image_3/*.png")
    _disparities_in = ("disp_occ_0/*.png", "disp_occ_1/*.png")


class Middlebury2014Stereo(StereoMatchingDataset):
    """Rooms with objects; with `use_ambient_views` the right image is one of several exposures, drawn by `random`."""

    splits: ClassVar[dict[str, list[str]]] = {
        "train": ["Adirondack", "Jadeplant", "Motorcycle", "Piano", "Pipes", "Playroom", "Playtable", "Recycle", "Shelves", "Vintage"],
        "additional": ["Backpack", "Bicycle1", "Cable", "Classroom1", "Couch", "Flowers", "Mask", "Shopvac", "Sticks", "Storage", "Sword1", "Sword2", "Umbrella"],
        "test": ["Plants", "Classroom2E", "Classroom2", "Australia", "DjembeL", "CrusadeP", "Crusade", "Hoops", "Bicycle2", "Staircase", "Newkuba", "AustraliaP", "Djembe", "Livingroom", "Computer"],
    }  # fmt: skip
    _has_built_in_disparity_mask = True
    _SITE = "https://vision.middlebury.edu/stereo"

    def __init__(
        self, root: Any, split: str = "train", calibration: str | None = "perfect", use_ambient_views: bool = False,
        transforms: Transform = None, download: bool = False,
    ):  # fmt: skip
        super().__init__(root, transforms)
        self.split, self.use_ambient_views = (
            verify_str_arg(split, "split", ("train", "test", "additional")),
            use_ambient_views,
        )
        if calibration:
            verify_str_arg(calibration, "calibration", ("perfect", "imperfect", "both"))
            if split == "test":
                raise ValueError("Split 'test' has only no calibration settings, please set `calibration=None`.")
        elif split != "test":
            raise ValueError(
                f"Split '{split}' has calibration settings, however None was provided as an argument.\nSetting calibration to 'perfect'"
                f" for split '{split}'. Available calibration settings are: 'perfect', 'imperfect', 'both'."
            )
        top = Path(root) / "Middlebury2014"
        if download:
            self._download(top)
        if not (top / split).exists():
            raise FileNotFoundError(f"The {split} directory was not found in the provided root directory")
        if not any(scene.startswith(tuple(self.splits[split])) for scene in os.listdir(top / split)):
            raise FileNotFoundError(f"Provided root folder does not contain any scenes from the {split} split.")
        kinds = ("perfect", "imperfect") if calibration == "both" else (calibration,)
        for kind in kinds:
            scenes = top / split / ("*" if kind is None else f"*-{kind}")
            known = None if split == "test" else (scenes / "disp0.pfm", scenes / "disp1.pfm")
            self._scan((scenes / "im0.png", scenes / "im1.png"), known)

    def _read_img(self, file_path: Any) -> Any:
        path = Path(file_path)
        if path.name == "im1.png" and self.use_ambient_views:
            views = [path.with_name("im1E.png"), path.with_name("im1L.png")]
            path = random.choice([*filter(Path.exists, views), path])
        return super()._read_img(path)

    def _read_disparity(self, file_path: str) -> tuple[Any, Any]:
        found = _positive_pfm(file_path)
        found[found == np.inf] = 0
        return found, (found > 0).squeeze(0)

    def _download(self, top: Path) -> None:
        if self.split != "test":
            names = [f"{scene}-{kind}" for scene in self.splits[self.split] for kind in ("perfect", "imperfect")]
            for name in [n for n in names if not (top / self.split / n).exists()]:
                url = f"{self._SITE}/data/scenes2014/zip/{name}.zip"
                download_and_extract_archive(url, str(top / self.split), filename=f"{name}.zip", remove_finished=True)
            return
        os.makedirs(top / "test", exist_ok=True)
        if not set(self.splits["test"]) <= set(os.listdir(top / "test")):
            url = f"{self._SITE}/submit3/zip/MiddEval3-data-F.zip"
            download_and_extract_archive(url, str(top), remove_finished=True)
            for scene in (top / "MiddEval3" / "testF").iterdir():
                shutil.move(str(scene), str(top / "test"))
            shutil.rmtree(top / "MiddEval3")


class CREStereo(StereoMatchingDataset):
    """Rendered shapes, reflections, trees and holes."""

    _has_built_in_disparity_mask = True

    def __init__(self, root: Any, transforms: Transform = None):
        super().__init__(root, transforms)
        for kind in ("shapenet", "reflective", "tree", "hole"):
            top = Path(root) / "CREStereo" / kind
            self._scan((top / "*_left.jpg", top / "*_right.jpg"), (top / "*_left.disp.png", top / "*_right.disp.png"))

    def _read_disparity(self, file_path: str) -> tuple[Any, Any]:
        return _image(file_path).astype(np.float32)[None] / 32.0, None


class FallingThingsStereo(StereoMatchingDataset):
    """Falling household objects, alone ("single") or several ("mixed"); disparities are computed from depths."""

    def __init__(self, root: Any, variant: str = "single", transforms: Transform = None):
        super().__init__(root, transforms)
        verify_str_arg(variant, "variant", ("single", "mixed", "both"))
        for kind in ("single", "mixed") if variant == "both" else (variant,):
            top = Path(root) / "FallingThings" / kind / ("*/*" if kind == "single" else "*")
            self._scan((top / "*.left.jpg", top / "*.right.jpg"), (top / "*.left.depth.png", top / "*.right.depth.png"))

    def _read_disparity(self, file_path: str) -> tuple[Any, Any]:
        settings = json.loads((Path(file_path).parent / "_camera_settings.json").read_text())
        focal = settings["camera_settings"][0]["intrinsic_settings"]["fx"]
        return (6 * focal * 100 / _image(file_path).astype(np.float32))[
            None
        ], None  # baseline of 6 cm, depths of 1/100 cm


class SceneFlowStereo(StereoMatchingDataset):
    """Rendered scenes (flying objects, driving, monkeys); `pass_name` is "clean", "final" (with blur and fog) or "both"."""

    def __init__(
        self, root: Any, variant: str = "FlyingThings3D", pass_name: str = "clean", transforms: Transform = None
    ):
        super().__init__(root, transforms)
        verify_str_arg(variant, "variant", ("FlyingThings3D", "Driving", "Monkaa"))
        verify_str_arg(pass_name, "pass_name", ("clean", "final", "both"))
        top, scenes = Path(root) / "SceneFlow" / variant, "*" if variant == "Monkaa" else "*/*/*"
        known = top / "disparity" / scenes
        for kind in ("clean", "final") if pass_name == "both" else (pass_name,):
            frames = top / f"frames_{kind}pass" / scenes
            self._scan((frames / "left/*.png", frames / "right/*.png"), (known / "left/*.pfm", known / "right/*.pfm"))


class SintelStereo(StereoMatchingDataset):
    """Scenes of an animated film, with the pixels that the other camera does not see masked."""

    _has_built_in_disparity_mask = True

    def __init__(self, root: Any, pass_name: str = "final", transforms: Transform = None):
        super().__init__(root, transforms)
        verify_str_arg(pass_name, "pass_name", ("final", "clean", "both"))
        top = Path(root) / "Sintel" / "training"
        for kind in ("final", "clean") if pass_name == "both" else (pass_name,):
            images = (top / f"{kind}_left/*/*.png", top / f"{kind}_right/*/*.png")
            self._scan(images, (top / "disparities/*/*.png", None))

    def _read_disparity(self, file_path: str) -> tuple[Any, Any]:
        path = Path(file_path)
        red, green, blue = np.moveaxis(_image(path).astype(np.float32), -1, 0)
        mask = np.ones(red.shape, bool)
        for kind, said in (("occlusions", "Occlusion"), ("outofframe", "Out of frame")):
            hidden = path.parents[2] / kind / path.parent.name / path.name
            if not hidden.exists():
                raise FileNotFoundError(f"{said} mask {hidden} does not exist")
            mask &= _image(hidden) == 0
        return (red * 4 + green / 2**6 + blue / 2**14)[None], mask


class InStereo2k(StereoMatchingDataset):
    """Rooms, measured with structured light."""

    def __init__(self, root: Any, split: str = "train", transforms: Transform = None):
        super().__init__(root, transforms)
        scenes = Path(root) / "InStereo2k" / verify_str_arg(split, "split", ("train", "test")) / "*"
        self._scan((scenes / "left.png", scenes / "right.png"), (scenes / "left_disp.png", scenes / "right_disp.png"))

    def _read_disparity(self, file_path: str) -> tuple[Any, Any]:
        return _image(file_path).astype(np.float32)[None] / 1024.0, None


class ETH3DStereo(StereoMatchingDataset):
    """Rooms and gardens in grey, measured with a laser, with a mask of the pixels that both cameras see."""

    _has_built_in_disparity_mask = True

    def __init__(self, root: Any, split: str = "train", transforms: Transform = None):
        super().__init__(root, transforms)
        verify_str_arg(split, "split", ("train", "test"))
        top = Path(root) / "ETH3D"
        scenes = top / ("two_view_training" if split == "train" else "two_view_test") / "*"
        known = (top / "two_view_training_gt/*/disp0GT.pfm", None) if split == "train" else None
        self._scan((scenes / "im0.png", scenes / "im1.png"), known)

    def _read_disparity(self, file_path: str) -> tuple[Any, Any]:
        return _positive_pfm(file_path), _image(Path(file_path).with_name("mask0nocc.png")).astype(bool)

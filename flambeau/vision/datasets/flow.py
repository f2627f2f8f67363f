"""Data sets of optical flow: two images and the flow (2, H, W) from the first to the second, where it is known."""

from __future__ import annotations

import itertools
import os
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from ...utils.data.dataset import ConcatDataset
from ..io import decode_png, read_file
from .folder import default_loader
from .utils import verify_str_arg
from .vision import Loader, Transform, VisionDataset


def _files(folder: Path, pattern: str) -> list[str]:
    return sorted(glob(str(folder / pattern)))


def _read_flo(file_name: str) -> np.ndarray:
    """Read a flow file in Middlebury's format."""
    with open(file_name, "rb") as file:
        if file.read(4) != b"PIEH":
            raise ValueError("Magic number incorrect. Invalid .flo file")
        width, height = (int(number) for number in np.frombuffer(file.read(8), "<i4"))
        values = np.frombuffer(file.read(8 * width * height), "<f4")
    return values.reshape(height, width, 2).transpose(2, 0, 1).copy()


def _read_pfm(file_name: str, slice_channels: int = 2) -> np.ndarray:
    """Read a portable float map, whose rows come from the bottom up; of three channels the first `slice_channels`."""
    with open(file_name, "rb") as file:
        kind = file.readline().rstrip()
        if kind not in (b"PF", b"Pf"):
            raise ValueError("Invalid PFM file")
        size = file.readline().split()
        if len(size) != 2:
            raise Exception("Malformed PFM header.")
        width, height = map(int, size)
        order = "<" if float(file.readline()) < 0 else ">"
        values = np.frombuffer(file.read(), order + "f4")
    channels = 3 if kind == b"PF" else 1
    values = np.flip(values.reshape(height, width, channels).transpose(2, 0, 1), axis=1)
    return values[:slice_channels].astype(np.float32)


def _read_16bits_png_with_flow_and_valid_mask(file_name: str) -> tuple[np.ndarray, np.ndarray]:
    found = decode_png(read_file(file_name)).float()
    return ((found[:2] - 2**15) / 64).numpy(), found[2].bool().numpy()


class FlowDataset(VisionDataset):
    """Base of data sets of image pairs; `transforms` takes both images, the flow and the mask of pixels where the flow is known."""

    _has_builtin_flow_mask = False

    def __init__(self, root: Any, transforms: Transform = None, loader: Loader = default_loader):
        super().__init__(root)
        self.transforms: Any = transforms
        self._flow_list: list[str] = []
        self._image_list: list[list[str]] = []
        self._loader = loader

    def _read_flow(self, file_name: str) -> Any:
        return _read_flo(file_name)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        first, second = (self._loader(path) for path in self._image_list[index])
        flow = self._read_flow(self._flow_list[index]) if self._flow_list else None
        mask = None
        if flow is not None and self._has_builtin_flow_mask:
            flow, mask = flow
        transforms: Any = self.transforms  # of two images and their flow
        if transforms is not None:
            first, second, flow, mask = transforms(first, second, flow, mask)
        if self._has_builtin_flow_mask or mask is not None:
            return first, second, flow, mask
        return first, second, flow

    def __len__(self) -> int:
        return len(self._image_list)

    def __rmul__(self, v: int) -> ConcatDataset:
        return ConcatDataset([self] * v)


class Sintel(FlowDataset):
    """Scenes of an animated film; `pass_name` is "clean", "final" (with blur and fog) or "both"."""

    def __init__(
        self,
        root: Any,
        split: str = "train",
        pass_name: str = "clean",
        transforms: Transform = None,
        loader: Loader = default_loader,
    ):
        super().__init__(root, transforms, loader)
        verify_str_arg(split, "split", ("train", "test"))
        verify_str_arg(pass_name, "pass_name", ("clean", "final", "both"))
        top = Path(root) / "Sintel"
        for kind in ["clean", "final"] if pass_name == "both" else [pass_name]:
            images = top / ("training" if split == "train" else split) / kind
            for scene in os.listdir(images):
                self._image_list += [list(pair) for pair in itertools.pairwise(_files(images / scene, "*.png"))]
                if split == "train":
                    self._flow_list += _files(top / "training" / "flow" / scene, "*.flo")


class KittiFlow(FlowDataset):
    """Streets, with a mask of the pixels whose flow was measured."""

    _has_builtin_flow_mask = True

    def __init__(self, root: Any, split: str = "train", transforms: Transform = None, loader: Loader = default_loader):
        super().__init__(root, transforms, loader)
        verify_str_arg(split, "split", ("train", "test"))
        top = Path(root) / "KittiFlow" / f"{split}ing"
        pairs = list(zip(_files(top / "image_2", "*_10.png"), _files(top / "image_2", "*_11.png")))
        if not pairs:
            raise FileNotFoundError(
                "Could not find the Kitti flow images. Please make sure the directory structure is correct."
            )
        self._image_list = [list(pair) for pair in pairs]
        if split == "train":
            self._flow_list = _files(top / "flow_occ", "*_10.png")

    def _read_flow(self, file_name: str) -> Any:
        return _read_16bits_png_with_flow_and_valid_mask(file_name)


class FlyingChairs(FlowDataset):
    """Chairs flying over photographs; the split is in FlyingChairs_train_val.txt."""

    def __init__(self, root: Any, split: str = "train", transforms: Transform = None):
        super().__init__(root, transforms)
        verify_str_arg(split, "split", ("train", "val"))
        top = Path(root) / "FlyingChairs"
        images, flows = _files(top / "data", "*.ppm"), _files(top / "data", "*.flo")
        chosen = top / "FlyingChairs_train_val.txt"
        if not chosen.exists():
            raise FileNotFoundError(f"{chosen} was not found: it comes from the page of the data set")
        wanted = 1 if split == "train" else 2
        for i, part in enumerate(np.loadtxt(str(chosen), dtype=np.int32, ndmin=1)[: len(flows)]):
            if part == wanted:
                self._flow_list.append(flows[i])
                self._image_list.append([images[2 * i], images[2 * i + 1]])


class FlyingThings3D(FlowDataset):
    """Optical flow of rendered flying objects, seen by two cameras, forwards and backwards in time."""

    def __init__(
        self,
        root: Any,
        split: str = "train",
        pass_name: str = "clean",
        camera: str = "left",
        transforms: Transform = None,
        loader: Loader = default_loader,
    ):
        super().__init__(root, transforms, loader)
        verify_str_arg(split, "split", ("train", "test"))
        verify_str_arg(pass_name, "pass_name", ("clean", "final", "both"))
        verify_str_arg(camera, "camera", ("left", "right", "both"))
        passes = [f"frames_{kind}pass" for kind in (["clean", "final"] if pass_name == "both" else [pass_name])]
        cameras = ["left", "right"] if camera == "both" else [camera]
        top = Path(root) / "FlyingThings3D"
        for kind, side, way in itertools.product(passes, cameras, ("into_future", "into_past")):
            frames = sorted(Path(scene) / side for scene in _files(top / kind / split.upper(), "*/*"))
            moves = sorted(Path(scene) / way / side for scene in _files(top / "optical_flow" / split.upper(), "*/*"))
            if not frames or not moves:
                raise FileNotFoundError(
                    "Could not find the FlyingThings3D flow images. Please make sure the directory structure is correct."
                )
            for images_of, flows_of in zip(frames, moves):
                images, flows = _files(images_of, "*.png"), _files(flows_of, "*.pfm")
                back = way == "into_past"
                # Into the past, the later image comes first.
                self._image_list += [[images[i + back], images[i + (not back)]] for i in range(len(flows) - 1)]
                self._flow_list += [flows[i + back] for i in range(len(flows) - 1)]

    def _read_flow(self, file_name: str) -> Any:
        return _read_pfm(file_name)


class HD1K(FlowDataset):
    """Streets at high resolution, with a mask of the pixels whose flow was measured."""

    _has_builtin_flow_mask = True

    def __init__(self, root: Any, split: str = "train", transforms: Transform = None, loader: Loader = default_loader):
        super().__init__(root, transforms, loader)
        verify_str_arg(split, "split", ("train", "test"))
        top = Path(root) / "hd1k"
        if split == "train":
            for sequence in range(36):
                flows = _files(top / "hd1k_flow_gt" / "flow_occ", f"{sequence:06d}_*.png")
                images = _files(top / "hd1k_input" / "image_2", f"{sequence:06d}_*.png")
                self._flow_list += flows[:-1]
                self._image_list += [[images[i], images[i + 1]] for i in range(len(flows) - 1)]
        else:
            challenge = top / "hd1k_challenge" / "image_2"
            self._image_list = [list(pair) for pair in zip(_files(challenge, "*10.png"), _files(challenge, "*11.png"))]
        if not self._image_list:
            raise FileNotFoundError(
                "Could not find the HD1K images. Please make sure the directory structure is correct."
            )

    def _read_flow(self, file_name: str) -> Any:
        return _read_16bits_png_with_flow_and_valid_mask(file_name)

"""Stereo pairs, patches, places and videos: the same items as torchvision's from the same small files; videos with PyAV."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.vision import datasets
from flambeau.vision.datasets import places365, video

from .same_samples import same
from .test_scenes_and_flow import _picture, _random, _text

Image = pytest.importorskip("PIL.Image")


def _pfm(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = (_random.random((6, 8)) - 0.5).astype("<f4")
    values[0, 0] = np.inf
    path.write_bytes(b"Pf\n8 6\n-1.0\n" + values.tobytes())


def _deep(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(_random.integers(1, 60000, (6, 8), dtype=np.uint16)).save(path)


def _files(
    folder: str, pictures: str, disparities: str = "", write: Callable[[Path], None] = _pfm
) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        for name in pictures.split():
            _picture(root / folder / name)
        for name in disparities.split():
            write(root / folder / name)

    return make


def _falling(root: Path) -> None:
    for scene in ("single/chair/a", "mixed/room"):
        _files(
            "FallingThings",
            f"{scene}/1.left.jpg {scene}/1.right.jpg",
            f"{scene}/1.left.depth.png {scene}/1.right.depth.png",
            _deep,
        )(root)
        settings = {"camera_settings": [{"intrinsic_settings": {"fx": 768.2}}]}
        _text(root / "FallingThings" / scene / "_camera_settings.json", json.dumps(settings))


def _sintel(root: Path) -> None:
    _files(
        "Sintel/training",
        "final_left/a/1.png final_right/a/1.png clean_left/a/1.png clean_right/a/1.png disparities/a/1.png",
    )(root)
    for kind in ("occlusions", "outofframe"):
        path = root / "Sintel/training" / kind / "a/1.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(_random.integers(0, 2, (6, 8), dtype=np.uint8) * 255).save(path)


def _eth3d(root: Path) -> None:
    _files(
        "ETH3D",
        "two_view_training/a/im0.png two_view_training/a/im1.png two_view_test/b/im0.png two_view_test/b/im1.png",
        "two_view_training_gt/a/disp0GT.pfm",
    )(root)
    _picture(root / "ETH3D/two_view_training_gt/a/mask0nocc.png", 6, 8)


def _cre(root: Path) -> None:
    for kind in ("shapenet", "reflective", "tree", "hole"):
        _files(f"CREStereo/{kind}", "1_left.jpg 1_right.jpg", "1_left.disp.png 1_right.disp.png", _deep)(root)


def _patches(root: Path) -> None:
    _picture(root / "liberty" / "b.bmp", 64, 128)
    _picture(root / "liberty" / "a.bmp", 128, 64)
    _text(root / "liberty" / "info.txt", "0 0\n0 0\n1 0\n2 0\n")
    _text(root / "liberty" / "m50_100000_100000_0.txt", "0 0 0 1 0 0\n0 0 0 3 2 0\n")


_SCENES = "Piano-perfect/im0.png Piano-perfect/im1.png", "Piano-perfect/disp0.pfm Piano-perfect/disp1.pfm"
SETS: dict[str, tuple[Callable[[Path], None], list[dict[str, Any]]]] = {
    "CarlaStereo": (_files("carla-highres/trainingF/a", "im0.png im1.png", "disp0GT.pfm disp1GT.pfm"), [{}]),
    "Kitti2012Stereo": (_files("Kitti2012/training", "colored_0/1_10.png colored_1/1_10.png", "disp_noc/1.png", _deep), [{}]),
    "Kitti2015Stereo": (_files("Kitti2015/training", "image_2/1.png image_3/1.png", "disp_occ_0/1.png disp_occ_1/1.png", _deep), [{}]),
    "Middlebury2014Stereo": (_files("Middlebury2014/train", *_SCENES), [{}]),
    "CREStereo": (_cre, [{}]),
    "FallingThingsStereo": (_falling, [{}, {"variant": "both"}]),
    "SceneFlowStereo": (_files("SceneFlow/Monkaa", "frames_cleanpass/a/left/1.png frames_cleanpass/a/right/1.png", "disparity/a/left/1.pfm disparity/a/right/1.pfm"), [{"variant": "Monkaa"}]),
    "SintelStereo": (_sintel, [{}, {"pass_name": "both"}]),
    "InStereo2k": (_files("InStereo2k/train/a", "left.png right.png", "left_disp.png right_disp.png", _deep), [{}]),
    "ETH3DStereo": (_eth3d, [{}, {"split": "test"}]),
    "PhotoTour": (_patches, [{"name": "liberty"}, {"name": "liberty", "train": False}]),
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_items_are_torchvisions(name: str, tmp_path: Path) -> None:
    make, choices = SETS[name]
    make(tmp_path)
    for options in choices:
        same(name, str(tmp_path), attributes=(), **options)


def test_missing_pairs_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Could not find any files matching the patterns"):
        datasets.CarlaStereo(tmp_path)
    _files("carla-highres/trainingF", "a/im0.png a/im1.png b/im0.png")(tmp_path)
    with pytest.raises(ValueError, match="Found 2 left files but 1 right files"):
        datasets.CarlaStereo(tmp_path)


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places365, "check_integrity", lambda path, md5=None: Path(path).exists())
    _text(tmp_path / "categories_places365.txt", "/a/alley 1\n/a/abbey 0\n")
    _text(tmp_path / "places365_val.txt", "one.jpg 1\ntwo.jpg 0\n")
    _text(tmp_path / "places365_test.txt", "one.jpg\n")
    _picture(tmp_path / "val_256" / "one.jpg")
    places = datasets.Places365(str(tmp_path), "val", small=True)
    assert places.classes == ["/a/abbey", "/a/alley"] and places.targets == [1, 0] and places[0][0].size == (8, 6)
    assert datasets.Places365(str(tmp_path), "test").targets == [None]
    with pytest.raises(RuntimeError, match="places365_train_standard.txt does not exist or is corrupted"):
        datasets.Places365(str(tmp_path))


# -- videos -----------------------------------------------------------------------------------------------------------------------


def test_clips_are_cut_at_any_rate() -> None:
    known = {
        "video_paths": ["a", "b"],
        "video_pts": [flambeau.arange(10), flambeau.arange(7)],
        "video_fps": [10.0, 15.0],
    }
    clips = video.VideoClips(["a", "b"], 3, 2, _precomputed_metadata=known)
    assert [c.tolist() for c in clips.clips] == [
        [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 8]],
        [[0, 1, 2], [2, 3, 4], [4, 5, 6]],
    ]
    assert len(clips) == 7 and clips.get_clip_location(4) == (1, 0) and len(clips.subset([1])) == 3
    clips.compute_clips(3, 1, frame_rate=5)
    assert clips.clips[0].tolist() == [[0, 2, 4], [2, 4, 6], [4, 6, 8]]
    clips.compute_clips(2, 2, frame_rate=4)
    assert clips.clips[0].tolist() == [[0, 2], [5, 7]] and clips.resampling_idxs[0].tolist() == [[0, 2], [5, 7]]


def _film(path: Path, frames: int) -> None:
    """A film without loss whose frame n is n everywhere."""
    av = pytest.importorskip("av")
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=5)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "bgr0"
        for n in range(frames):
            picture = av.VideoFrame.from_ndarray(np.full((16, 32, 3), n, np.uint8), format="rgb24")
            container.mux(stream.encode(picture.reformat(format="bgr0")))
        container.mux(stream.encode())


def test_films_of_actions(tmp_path: Path) -> None:
    for name, frames in (("run/a.avi", 6), ("walk/b.avi", 4), ("walk/c.avi", 3)):
        _film(tmp_path / "films" / name, frames)
    _text(tmp_path / "lists" / "run_test_split1.txt", "a.avi 1\n")
    _text(tmp_path / "lists" / "walk_test_split1.txt", "b.avi 1\nc.avi 2\n")
    _text(tmp_path / "lists" / "trainlist01.txt", "run/a.avi 1\nwalk/b.avi 2\n")
    where = str(tmp_path / "films"), str(tmp_path / "lists")
    for kind in (datasets.HMDB51, datasets.UCF101):
        films = kind(*where, frames_per_clip=3, step_between_clips=3)
        assert len(films) == 3 and [films[i][2] for i in range(3)] == [0, 0, 1]
        shown, sound, _ = films[1]
        assert shown.shape == (3, 16, 32, 3) and shown[:, 0, 0, 0].tolist() == [3, 4, 5] and sound.shape == (1, 0)
    (tmp_path / "films").rename(tmp_path / "val")
    kinetics = datasets.Kinetics(str(tmp_path), 2, split="val", frame_rate=2.5)
    assert kinetics[0][0].shape == (2, 3, 16, 32) and kinetics[0][0][:, 0, 0, 0].tolist() == [0, 2]

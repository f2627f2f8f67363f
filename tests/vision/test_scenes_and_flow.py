"""Data sets with boxes, masks, captions, ranks and flows: the same items as torchvision's from the same small files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flambeau.vision import datasets

from .same_samples import same

Image = pytest.importorskip("PIL.Image")
_random = np.random.default_rng(0)


def _picture(path: Path, *shape: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(_random.integers(0, 255, shape or (6, 8, 3), dtype=np.uint8)).save(path)


def _text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _kitti(root: Path) -> None:
    raw = root / "Kitti" / "raw" / "training"
    _picture(raw / "image_2" / "000001.png")
    _text(
        raw / "label_2" / "000001.txt",
        "Car 0.5 1 -1.6 1 2 3 4 1.5 1.6 3.7 4 5 6 0.1\nVan 0 0 0 1 2 3 4 1 1 1 4 5 6 7\n",
    )


def _widerface(root: Path) -> None:
    top = root / "widerface"
    for part in ("train", "val", "test"):
        _picture(top / f"WIDER_{part}" / "images" / "a" / "one.jpg")
        _picture(top / f"WIDER_{part}" / "images" / "a" / "two.jpg")
        lines = "a/one.jpg\n2\n1 2 3 4 0 1 0 1 0 1\n5 6 7 8 1 1 1 0 0 0\na/two.jpg\n0\n0 0 0 0 0 0 0 0 0 0\n"
        _text(top / "wider_face_split" / f"wider_face_{part}_bbx_gt.txt", lines)
    _text(top / "wider_face_split" / "wider_face_test_filelist.txt", "a/one.jpg\na/two.jpg\n")


def _cityscapes(root: Path) -> None:
    _picture(root / "leftImg8bit" / "train" / "ulm" / "ulm_01_leftImg8bit.png")
    targets = root / "gtFine" / "train" / "ulm"
    for kind in ("instanceIds", "labelIds", "color"):
        _picture(targets / f"ulm_01_gtFine_{kind}.png", 6, 8)
    _text(targets / "ulm_01_gtFine_polygons.json", json.dumps({"objects": [{"label": "car"}]}))


def _flickr(root: Path) -> None:
    _picture(root / "1000_a.jpg")
    _text(root / "captions.txt", "1000_a.jpg#0\tA dog .\n1000_a.jpg#1\tA cat .\n")
    _text(
        root / "page.html",
        "<table><tr><td><a href='x'>http://x/1000/</a></td><ul><li>A dog .</li><li> A cat</li></ul></tr></table>",
    )


def _species(root: Path) -> None:
    _picture(root / "2021_train" / "00000_A_B_C_D_E_F_g" / "one.jpg")
    _picture(root / "2021_train" / "00001_A_B_C_D_E_H_i" / "two.jpg")
    _picture(root / "2018" / "Birds" / "1" / "one.jpg")
    _picture(root / "2018" / "Amphibians" / "0" / "two.jpg")


def _clevr(root: Path) -> None:
    top = root / "clevr" / "CLEVR_v1.0"
    _picture(top / "images" / "train" / "a.png")
    _picture(top / "images" / "test" / "b.png")
    scenes = [{"image_filename": "a.png", "objects": [1, 2, 3]}]
    _text(top / "scenes" / "CLEVR_train_scenes.json", json.dumps({"scenes": scenes}))


def _flo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"PIEH" + np.array([8, 6], "<i4").tobytes() + _random.random((6, 8, 2)).astype("<f4").tobytes())


def _sintel(root: Path) -> None:
    for i in range(3):
        _picture(root / "Sintel" / "training" / "clean" / "cave" / f"frame_{i}.png")
    for i in range(2):
        _flo(root / "Sintel" / "training" / "flow" / "cave" / f"frame_{i}.flo")


def _chairs(root: Path) -> None:
    for i in range(2):
        _flo(root / "FlyingChairs" / "data" / f"{i}_flow.flo")
        for side in (1, 2):
            _picture(root / "FlyingChairs" / "data" / f"{i}_img{side}.ppm")
    _text(root / "FlyingChairs" / "FlyingChairs_train_val.txt", "1\n2\n")


def _things(root: Path) -> None:
    for i in range(3):
        _picture(root / "FlyingThings3D" / "frames_cleanpass" / "TRAIN" / "A" / "0000" / "left" / f"{i}.png")
        for way in ("into_future", "into_past"):
            path = root / "FlyingThings3D" / "optical_flow" / "TRAIN" / "A" / "0000" / way / "left" / f"{i}.pfm"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"PF\n8 6\n-1.0\n" + _random.random((6, 8, 3)).astype("<f4").tobytes())


def _moving(root: Path) -> None:
    (root / "MovingMNIST").mkdir()
    np.save(root / "MovingMNIST" / "mnist_test_seq.npy", _random.integers(0, 255, (20, 3, 4, 4), dtype=np.uint8))


SETS: dict[str, tuple[str, Callable[[Path], None], list[dict[str, Any]]]] = {
    "kitti": ("Kitti", _kitti, [{}]),
    "widerface": ("WIDERFace", _widerface, [{}, {"split": "test"}]),
    "cityscapes": ("Cityscapes", _cityscapes, [{}, {"target_type": ["semantic", "polygon", "color"]}]),
    "flickr30k": ("Flickr30k", _flickr, [{"ann_file": "captions.txt"}]),
    "flickr8k": ("Flickr8k", _flickr, [{"ann_file": "page.html"}]),
    "inaturalist": ("INaturalist", _species, [{}, {"target_type": ["full", "genus"]}, {"version": "2018", "target_type": "super"}]),
    "clevr": ("CLEVRClassification", _clevr, [{}, {"split": "test"}]),
    "sintel": ("Sintel", _sintel, [{}]),
    "chairs": ("FlyingChairs", _chairs, [{}, {"split": "val"}]),
    "things": ("FlyingThings3D", _things, [{}]),
    "moving": ("MovingMNIST", _moving, [{}, {"split": "test", "split_ratio": 15}]),
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_items_are_torchvisions(name: str, tmp_path: Path) -> None:
    class_name, make, calls = SETS[name]
    make(tmp_path)
    for options in calls:
        given = {k: str(tmp_path / v) if k == "ann_file" else v for k, v in options.items()}
        same(class_name, str(tmp_path), attributes=(), **given)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    for name in ("Kitti", "WIDERFace", "Cityscapes", "CLEVRClassification", "Omniglot", "LFWPeople", "MovingMNIST"):
        with pytest.raises(RuntimeError, match="not found"):
            getattr(datasets, name)(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        datasets.KittiFlow(str(tmp_path))
    with pytest.raises(ValueError, match="no longer"):
        datasets.LFWPairs(str(tmp_path), download=True)


def test_characters_and_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.Omniglot, "_check_integrity", lambda self: True)
    monkeypatch.setattr(datasets.LFWPairs, "_check_integrity", lambda self: True)
    for number in range(2):
        _picture(tmp_path / "omniglot-py" / "images_background" / "Greek" / "character01" / f"0{number}.png", 5, 5)
    characters = datasets.Omniglot(str(tmp_path))
    assert len(characters) == 2
    assert characters[0][0].mode == "L" and characters[1][1] == 0
    for person in ("Ann", "Bob"):
        for number in (1, 2):
            _picture(tmp_path / "lfw-py" / "lfw_funneled" / person / f"{person}_{number:04d}.jpg")
    _text(tmp_path / "lfw-py" / "pairsDevTrain.txt", "1\nAnn\t1\t2\nAnn\t1\tBob\t2\n")
    pairs = datasets.LFWPairs(str(tmp_path), split="train")
    assert pairs.pair_names == [("Ann", "Ann"), ("Ann", "Bob")]
    assert [pairs[i][2] for i in range(2)] == [1, 0]

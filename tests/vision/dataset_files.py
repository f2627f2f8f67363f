"""Small files laid out like those of real data sets, for tests."""

from __future__ import annotations

import bz2
import gzip
import json
import pathlib
import pickle
import struct

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="reads and writes images: pip install pillow")


def pixels(*shape, seed=0):
    return np.random.RandomState(seed).randint(0, 256, shape).astype(np.uint8)


def picture(path, seed=0, size=(7, 9), mode="RGB"):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    array = pixels(*size, seed=seed) if mode == "L" else pixels(*size, 3, seed=seed)
    Image.fromarray(array).save(path)


def text(path, contents):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(contents)


def idx(array, code):
    kinds = {8: "u1", 12: ">i4", 13: ">f4"}
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.astype(kinds[code]).tobytes()
    )


def mnist(
    folder, names=("train", "t10k"), stem="{}-images-idx3-ubyte", labels="{}-labels-idx1-ubyte", compressed=False
):
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        for file, data in (
            (stem, idx(pixels(6, 28, 28, seed=seed), 8)),
            (labels, idx(np.arange(6) % 10, 8)),
        ):
            path = folder / file.format(name)
            if compressed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
            else:
                path.write_bytes(data)


def qmnist(folder):
    folder.mkdir(parents=True)
    for name, stem, count in (("train", "qmnist-train", 5), ("test", "qmnist-test", 10003), ("nist", "xnist", 4)):
        images = pixels(count, 4, 4, seed=len(name))
        (folder / f"{stem}-images-idx3-ubyte").write_bytes(idx(images, 8))
        (folder / f"{stem}-labels-idx2-int").write_bytes(idx(np.arange(count * 8).reshape(count, 8) % 10, 12))


def cifar(folder, batches, key, meta):
    folder.mkdir(parents=True)
    for seed, name in enumerate(batches):
        batch = {"data": pixels(4, 3072, seed=seed), key: [seed, 1, 2, 3]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    (folder / meta[0]).write_bytes(pickle.dumps({meta[1]: ["a", "b", "c", "d"]}, protocol=2))


def image_folder(folder, classes=("bee", "ant"), ending=".png", count=3):
    for label, name in enumerate(classes):
        for number in range(count):
            picture(folder / name / f"{number}{ending}", seed=10 * label + number)


_XML = """<annotation><folder>VOC</folder><filename>{0}.jpg</filename><size><width>9</width></size>
{1}</annotation>"""
_OBJECT = "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>2</ymin></bndbox><part><name>head</name></part></object>"


def voc(base):
    for number in range(3):
        name = f"2007_00000{number}"
        picture(base / "JPEGImages" / f"{name}.jpg", seed=number)
        picture(base / "SegmentationClass" / f"{name}.png", seed=number, mode="L")
        text(base / "Annotations" / f"{name}.xml", _XML.format(name, _OBJECT * number))
    for kind in ("Segmentation", "Main"):
        text(base / "ImageSets" / kind / "train.txt", "2007_000000\n2007_000002\n2007_000001\n")
        text(base / "ImageSets" / kind / "val.txt", "2007_000001\n")


def coco(folder):
    images = [{"id": number, "file_name": f"{number}.jpg", "width": 9, "height": 7} for number in (30, 10, 20)]
    for image in images:
        picture(folder / image["file_name"], seed=image["id"])
    annotations = [
        {
            "id": n,
            "image_id": i,
            "category_id": c,
            "bbox": [1, 2, 3, 4],
            "area": 12.0 * n,
            "iscrowd": n % 2,
            "caption": f"text {n}",
        }
        for n, (i, c) in enumerate([(10, 1), (30, 2), (10, 2), (10, 1)], start=1)
    ]
    categories = [
        {"id": 1, "name": "cat", "supercategory": "animal"},
        {"id": 2, "name": "car", "supercategory": "vehicle"},
    ]
    text(
        folder / "instances.json", json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )


def stl10(folder):
    folder.mkdir(parents=True)
    for seed, (name, count) in enumerate([("train", 5), ("test", 3), ("unlabeled", 2)]):
        (folder / f"{name}_X.bin").write_bytes(pixels(count, 3, 96, 96, seed=seed).tobytes())
        if name != "unlabeled":
            (folder / f"{name}_y.bin").write_bytes(bytes(range(1, count + 1)))
    text(folder / "class_names.txt", "airplane\nbird\n")
    text(folder / "fold_indices.txt", "0 2\n1 3 4\n" + "0\n" * 8)


def usps(folder):
    rows = pixels(4, 256).astype(np.float32) / 127.5 - 1
    lines = [f"{n + 1} " + " ".join(f"{i + 1}:{v:.4f}" for i, v in enumerate(row)) for n, row in enumerate(rows)]
    (folder / "usps.bz2").write_bytes(bz2.compress(("\n".join(lines) + "\n").encode()))


def semeion(folder):
    rows = [[*(pixels(256, seed=n) % 2), *(int(d == n + 3) for d in range(10))] for n in range(4)]
    text(folder / "semeion.data", "\n".join(" ".join(f"{v:.4f}" for v in row) for row in rows) + "\n")


def celeba(folder):
    names = [f"00000{n}.jpg" for n in range(1, 6)]
    for seed, name in enumerate(names):
        picture(folder / "img_align_celeba" / name, seed=seed)
    text(folder / "list_eval_partition.txt", "".join(f"{name} {n % 3}\n" for n, name in enumerate(names)))
    text(folder / "identity_CelebA.txt", "".join(f"{name} {100 + n}\n" for n, name in enumerate(names)))
    for file, columns in (("list_bbox_celeba", 4), ("list_landmarks_align_celeba", 10), ("list_attr_celeba", 40)):
        low, high = (-1, 1) if "attr" in file else (-5, 200)
        rows = [np.random.RandomState(n).randint(0, 2, columns) * (high - low) + low for n in range(5)]
        head = ("image_id " if "bbox" in file else "") + " ".join(f"c{i}" for i in range(columns))
        body = "".join(f"{name}  {'  '.join(f'{v:2d}' for v in row)}\n" for name, row in zip(names, rows))
        text(folder / f"{file}.txt", f"5\n{head}\n{body}")


def caltech101(folder, savemat):
    for label, name in enumerate(["Faces", "ant", "BACKGROUND_Google"]):
        for number in (1, 2):
            picture(folder / "101_ObjectCategories" / name / f"image_{number:04d}.jpg", seed=10 * label + number)
            target = folder / "Annotations" / {"Faces": "Faces_2"}.get(name, name) / f"annotation_{number:04d}.mat"
            target.parent.mkdir(parents=True, exist_ok=True)
            savemat(target, {"obj_contour": np.arange(6.0).reshape(2, 3) + number})


def caltech256(folder):
    for label, name in enumerate(["001.ak47", "002.flag"]):
        for number in (1, 2, 3):
            picture(
                folder / "256_ObjectCategories" / name / f"{label + 1:03d}_{number:04d}.jpg", seed=10 * label + number
            )
        text(folder / "256_ObjectCategories" / name / "RENAME2", "")


def flowers(folder, savemat):
    for number in range(1, 7):
        picture(folder / "jpg" / f"image_{number:05d}.jpg", seed=number)
    savemat(folder / "imagelabels.mat", {"labels": np.array([[5, 1, 9, 102, 3, 3]])})
    savemat(
        folder / "setid.mat", {"trnid": np.array([[3, 1]]), "valid": np.array([[2, 4]]), "tstid": np.array([[5, 6]])}
    )


def fer2013(folder, name):
    rows = [
        (n % 7, " ".join(map(str, pixels(48 * 48, seed=n))), ["Training", "PublicTest", "PrivateTest"][n % 3])
        for n in range(5)
    ]
    layouts = {
        "fer2013.csv": ("emotion,pixels,Usage", "{0},{1},{2}"), "icml_face_data.csv": ("emotion, Usage, pixels", "{0},{2},{1}"),
        "train.csv": ("emotion,pixels", "{0},{1}"), "test.csv": ("pixels", "{1}"),
    }  # fmt: skip
    head, line = layouts[name]
    text(folder / name, "\n".join([head, *(line.format(*row) for row in rows)]) + "\n")


def listed(folder):
    """Food101, DTD, aircraft, traffic signs, sentences, scenes, Imagenette, pets, EuroSAT, Country211."""
    listing = {"pie": ["pie/1", "pie/0"], "cake": ["cake/2"]}
    for path in sum(listing.values(), []):
        picture(folder / "food-101" / "images" / f"{path}.jpg", seed=int(path[-1]))
    for split in ("train", "test"):
        text(folder / "food-101" / "meta" / f"{split}.json", json.dumps(listing))
    for number, name in enumerate(["dotted", "braided"]):
        picture(folder / "dtd" / "dtd" / "images" / name / f"{name}_1.jpg", seed=number)
    text(folder / "dtd" / "dtd" / "labels" / "train3.txt", "dotted/dotted_1.jpg\nbraided/braided_1.jpg\n")
    aircraft = folder / "fgvc-aircraft-2013b" / "data"
    picture(aircraft / "images" / "0034309.jpg", seed=4)
    text(aircraft / "families.txt", "Boeing 707\nBoeing 727\n")
    text(aircraft / "images_family_test.txt", "0034309 Boeing 727\n")
    picture(folder / "gtsrb" / "GTSRB" / "Training" / "00001" / "a.ppm", seed=5)
    picture(folder / "gtsrb" / "GTSRB" / "Training" / "00000" / "b.ppm", seed=6)
    picture(folder / "gtsrb" / "GTSRB" / "Final_Test" / "Images" / "c.ppm", seed=7)
    text(folder / "gtsrb" / "GT-final_test.csv", "Filename;Width;ClassId\nc.ppm;9;16\n")
    image_folder(folder / "rendered-sst2" / "valid", ("negative", "positive"))
    picture(folder / "SUN397" / "a" / "abbey" / "sun_aaa.jpg", seed=8)
    picture(folder / "SUN397" / "b" / "bar" / "indoor" / "sun_bbb.jpg", seed=9)
    text(folder / "SUN397" / "ClassName.txt", "/a/abbey\n/b/bar/indoor\n")
    image_folder(folder / "imagenette2-160" / "val", ("n01440764", "n03888257"), ".jpeg", 2)
    for number, name in enumerate(["Abyssinian_1", "great_dane_12"]):
        picture(folder / "oxford-iiit-pet" / "images" / f"{name}.jpg", seed=number)
        picture(folder / "oxford-iiit-pet" / "annotations" / "trimaps" / f"{name}.png", seed=number, mode="L")
    text(folder / "oxford-iiit-pet" / "annotations" / "trainval.txt", "great_dane_12 2 2 1\nAbyssinian_1 1 1 1\n")
    image_folder(folder / "eurosat" / "2750", ("Forest", "River"), ".jpg")
    image_folder(folder / "country211" / "valid", ("FR", "DE"), ".jpg")

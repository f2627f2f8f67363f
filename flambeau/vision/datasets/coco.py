"""MS COCO: images with the objects in them, or with captions."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ...utils.pillow import pillow
from .vision import Transform, VisionDataset


def _as_list(value: Any) -> list:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


class CocoIndex:
    """A COCO annotation file, indexed by image, annotation and category: the reading part of pycocotools' `COCO`."""

    def __init__(self, annotation_file: Any):
        with open(annotation_file, encoding="utf-8") as file:
            self.dataset = json.load(file)
        if not isinstance(self.dataset, dict):
            raise ValueError(
                f"annotation file {annotation_file} should hold a dictionary, not a {type(self.dataset).__name__}"
            )
        self.imgs = {image["id"]: image for image in self.dataset.get("images", [])}
        self.cats = {category["id"]: category for category in self.dataset.get("categories", [])}
        self.anns: dict[Any, dict] = {}
        self.imgToAnns: dict[Any, list] = defaultdict(list)
        self.catToImgs: dict[Any, list] = defaultdict(list)
        for annotation in self.dataset.get("annotations", []):
            self.anns[annotation["id"]] = annotation
            self.imgToAnns[annotation["image_id"]].append(annotation)
            if "category_id" in annotation:
                self.catToImgs[annotation["category_id"]].append(annotation["image_id"])

    def getAnnIds(self, imgIds: Any = (), catIds: Any = (), areaRng: Any = (), iscrowd: bool | None = None) -> list:
        """Return the annotations of these images and categories, within a range of areas, of crowds or not."""
        images, categories = _as_list(imgIds), _as_list(catIds)
        found: Iterable[dict] = self.dataset.get("annotations", [])
        if images:
            found = [a for image in images if image in self.imgToAnns for a in self.imgToAnns[image]]
        return [
            a["id"]
            for a in found
            if (not categories or a["category_id"] in categories)
            and (not areaRng or areaRng[0] < a["area"] < areaRng[1])
            and (iscrowd is None or a["iscrowd"] == iscrowd)
        ]

    def getCatIds(self, catNms: Any = (), supNms: Any = (), catIds: Any = ()) -> list:
        names, above, numbers = _as_list(catNms), _as_list(supNms), _as_list(catIds)
        return [
            c["id"]
            for c in self.cats.values()
            if (not names or c["name"] in names)
            and (not above or c["supercategory"] in above)
            and (not numbers or c["id"] in numbers)
        ]

    def getImgIds(self, imgIds: Any = (), catIds: Any = ()) -> list:
        """Return the images that are among these and show all of these categories."""
        images, categories = _as_list(imgIds), _as_list(catIds)
        found = set(images) if images else set(self.imgs)
        for category in categories:
            found &= set(self.catToImgs.get(category, []))
        return list(found)

    def loadAnns(self, ids: Any = ()) -> list[dict]:
        return [self.anns[i] for i in _as_list(ids)]

    def loadCats(self, ids: Any = ()) -> list[dict]:
        return [self.cats[i] for i in _as_list(ids)]

    def loadImgs(self, ids: Any = ()) -> list[dict]:
        return [self.imgs[i] for i in _as_list(ids)]


class CocoDetection(VisionDataset):
    """Images in the folder `root`, and the list of each image's objects in the file `annFile`. pycocotools is not needed."""

    def __init__(
        self,
        root: Any,
        annFile: Any,
        transform: Transform = None,
        target_transform: Transform = None,
        transforms: Transform = None,
    ):
        super().__init__(root, transforms, transform, target_transform)
        self.coco = CocoIndex(annFile)
        self.ids = sorted(self.coco.imgs)

    def _load_image(self, id: Any) -> Any:
        name = self.coco.loadImgs(id)[0]["file_name"]
        return pillow().open(os.path.join(self.root, name)).convert("RGB")

    def _load_target(self, id: Any) -> list[Any]:
        return self.coco.loadAnns(self.coco.getAnnIds(id))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not isinstance(index, int):
            raise ValueError(f"Index must be of type integer, got {type(index)} instead.")
        id = self.ids[index]
        return self._both_transformed(self._load_image(id), self._load_target(id))

    def __len__(self) -> int:
        return len(self.ids)


class CocoCaptions(CocoDetection):
    """MS COCO images with their captions."""

    def _load_target(self, id: Any) -> list[str]:
        return [annotation["caption"] for annotation in super()._load_target(id)]

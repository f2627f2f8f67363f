"""Points for TensorBoard's projector: a table of numbers, labels and small images, in separate files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from PIL import Image
from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo, ProjectorConfig

from .summaries import as_numpy, grid


def encoded(tag: str) -> str:
    """Encode a name so that it can be the name of a folder."""
    return "".join(c if c.isalnum() or c in "_.-~" else f"%{ord(c):02x}" for c in tag)


def write(
    folder: Path, config: ProjectorConfig, points: Any, labels: Any, pictures: Any, step: int, tag: str, header: Any
) -> None:
    """Write the files of one table, and list it in `config`."""
    table = as_numpy(points)
    if table.ndim != 2:
        raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
    place = f"{step:05d}/{encoded(tag)}"
    target = folder / place
    if target.is_file():
        raise NotADirectoryError(f"Path: `{target}` exists, but is a file. Cannot proceed.")
    if target.is_dir():
        print("warning: Embedding dir exists, did you set global_step for add_embedding()?")
    target.mkdir(parents=True, exist_ok=True)
    info = EmbeddingInfo(tensor_name=f"{tag}:{step:05d}", tensor_path=f"{place}/tensors.tsv")
    if labels is not None:
        if len(labels) != len(table):
            raise AssertionError("#labels should equal with #data points")
        (target / "metadata.tsv").write_text(_labels(labels, header), encoding="utf-8")
        info.metadata_path = f"{place}/metadata.tsv"
    if pictures is not None:
        images = as_numpy(pictures)
        if len(images) != len(table):
            raise AssertionError("#images should equal with #data points")
        _sprite(images).save(target / "sprite.png")
        info.sprite.image_path = f"{place}/sprite.png"
        info.sprite.single_image_dim.extend([images.shape[3], images.shape[2]])
    (target / "tensors.tsv").write_text("".join("\t".join(str(v.item()) for v in row) + "\n" for row in table))
    config.embeddings.append(info)
    (folder / "projector_config.pbtxt").write_text(text_format.MessageToString(config))


def _labels(labels: Any, header: Any) -> str:
    if not header:
        return "\n".join(str(label) for label in labels) + "\n"
    if len(header) != len(labels[0]):
        raise AssertionError("len of header must be equal to the number of columns in metadata")
    return "\n".join("\t".join(str(v) for v in row) for row in [header, *labels]) + "\n"


def _sprite(images: np.ndarray) -> Image.Image:
    """Combine square images into one."""
    laid = grid(images, math.ceil(len(images) ** 0.5))
    square = np.zeros((laid.shape[1], laid.shape[1], 3))
    square[: laid.shape[0]] = laid
    return Image.fromarray(np.uint8((square * 255).clip(0, 255)))

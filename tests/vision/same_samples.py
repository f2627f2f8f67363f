"""A data set of ours beside torchvision's: the same samples from the same files, also where torchvision is known by its answers only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import live, told

from flambeau.vision import datasets

from .oracle import torchvision


def plain(value: Any) -> Any:
    """A sample as something that compares across libraries."""
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if hasattr(value, "detach") or isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    return type(value).__name__, value


UNORDERED = ("SUN397",)  # data sets whose samples come as folders are walked: Python 3.13 walks them in another order


def facts(module: Any, name: str, patch: Any, attributes: Iterable[str], args: tuple, options: dict[str, Any]) -> tuple:
    """(data set, what it says of itself and its first samples), with the checksums of class attributes that `patch` changes."""
    data = type(name, (getattr(module, name),), dict(patch))(*args, **options)
    known = {a: getattr(data, a) for a in attributes if hasattr(data, a)}
    samples = [plain(data[i]) for i in range(min(len(data), 12))]
    return data, [len(data), repr(data), sorted(samples, key=repr) if name in UNORDERED else samples, known]


def summary(found: Any, folder: str) -> tuple[str, list[float]]:
    """A digest of facts, the same for the same files in any folder, and how bright each image is: decoders of JPEG differ a little."""
    means: list[float] = []

    def without_pixels(value: Any) -> Any:
        if isinstance(value, bytes):
            means.append(round(float(np.frombuffer(value, np.uint8).mean()), 3) if value else 0.0)
            return len(value)
        if isinstance(value, dict):
            return {name: without_pixels(v) for name, v in value.items()}
        return [without_pixels(v) for v in value] if isinstance(value, (list, tuple)) else value

    text = re.sub(r"0x[0-9a-f]+", "0x", repr(without_pixels(found))).replace(folder, "the folder")
    return hashlib.sha256(text.encode()).hexdigest()[:16], means


def same(
    name: str, /, *args: Any, patch: Any = (), attributes: Iterable[str] = ("classes", "class_to_idx"), **options: Any
) -> Any:
    """Our data set, after it was compared with torchvision's of the same files."""
    ours, found = facts(datasets, name, patch, attributes, args, options)
    assert len(ours) > 0
    for cached in Path(str(args[0])).glob("*.pt") if isinstance(args[0], str) else ():
        cached.unlink()

    def theirs() -> list:
        return facts(torchvision().datasets, name, patch, found[-1], args, options)[1]

    if live():
        assert found == theirs()
        return ours
    (digest, means), (expected, brightness) = (
        summary(found, str(args[0])),
        told(name, lambda: summary(theirs(), str(args[0]))),
    )
    assert means == pytest.approx(brightness, abs=2)
    assert digest == expected
    return ours

"""Helpers that TorchServe offers to handlers: class look-up, labels, settings, an error with a status code."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from ....core.naming import torch_name
from ...archive_reader import read_yaml

logger = logging.getLogger(__name__)
CLEANUP_REGEX = re.compile("<.*?>|&([a-z0-9]+|#[0-9]{1,6}|#x[0-9a-f]{1,6});")
_BACKENDS = ("eager", "aot_eager", "inductor", "onnxrt", "openvino", "tensorrt", "cudagraphs")


class PredictionException(Exception):
    """Raised by a handler to answer with a status code and message of its own."""

    def __init__(self, message: str, error_code: int = 500):
        super().__init__(message)
        self.message = message
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.message} : {self.error_code}"


def list_classes_from_module(module: ModuleType, parent_class: type | None = None) -> list[type]:
    """Return the classes that a module defines itself; with `parent_class`, only its subclasses."""
    names = (module.__name__, torch_name(module.__name__))  # classes of Flambeau's modules may go by PyTorch's names
    classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ in names]
    return [c for c in classes if parent_class is None or issubclass(c, parent_class)]


def check_valid_pt2_backend(backend: str) -> bool:
    """Return whether `torch.compile` has this backend."""
    if backend in _BACKENDS:
        return True
    logger.warning("%s is not a supported backend", backend)
    return False


def load_label_mapping(mapping_file_path: str) -> dict[str, str] | None:
    """Return the names of the classes, from index_to_name.json: {"0": "cat"} or {"0": ["n0123", "cat"]}."""
    if not os.path.isfile(mapping_file_path):
        logger.warning("%r is missing. Inference output will not include class name.", mapping_file_path)
        return None
    with open(mapping_file_path, encoding="utf-8") as file:
        mapping = json.load(file)
    if not isinstance(mapping, dict):
        raise Exception('index->name JSON mapping should be in "class": "label" format.')
    names = mapping.get("object_type_names")
    if isinstance(names, list):
        return {str(i): name for i, name in enumerate(names)}
    labels = {key: value[-1] if isinstance(value, list) else value for key, value in mapping.items()}
    if not all(isinstance(label, str) for label in labels.values()):
        raise Exception("labels in index->name mapping must be either str or List[str]")
    return labels


def map_class_to_label(
    probs: list[Any], mapping: dict[str, str] | None = None, lbl_classes: Iterable[Any] | None = None
) -> list[dict[str, Any]]:
    """Return {name of the class: probability} for each row of probabilities."""
    if not isinstance(probs, list):
        raise Exception("Convert classes to list before doing mapping")
    if mapping is not None and not isinstance(mapping, dict):
        raise Exception("Mapping must be a dict")
    rows = itertools.repeat(range(len(probs[0])), len(probs)) if lbl_classes is None else lbl_classes
    return [
        {mapping[str(c)] if mapping is not None else str(c): p for c, p in zip(classes, row)}
        for classes, row in zip(rows, probs)
    ]


def get_yaml_config(yaml_file_path: str) -> dict[str, Any]:
    """Return the settings in a YAML file."""
    return read_yaml(Path(yaml_file_path), ValueError)


def deprecated(version: Any, replacement: str = "", klass: type[Warning] = PendingDeprecationWarning) -> Callable:
    """Mark a function whose use raises a warning."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(
                f"{function.__name__} is deprecated in {version} and moved to {replacement}", klass, stacklevel=2
            )
            return function(*args, **kwargs)

        return wrapper

    return decorate

"""Base of all transforms of the second generation: nested inputs, and one draw of parameters for all of them."""

from __future__ import annotations

import enum
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flambeau import Tensor, nn

from ....utils._pytree import tree_flatten, tree_unflatten
from ....utils.pillow import is_pil
from ...tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, Video
from .. import draws
from .functional import get_dimensions, get_size, is_pure_tensor
from .functional._dispatch import call_kernel

__all__ = [
    "Transform", "check_type", "get_bounding_boxes", "get_keypoints", "has_all", "has_any", "query_chw", "query_size",
]  # fmt: skip

# -- looking at inputs ------------------------------------------------------------------------------------------------


def check_type(obj: Any, types_or_checks: tuple[Any, ...]) -> bool:
    """Return whether an object is an instance of one of the types, or passes one of the tests."""
    return any(isinstance(obj, check) if isinstance(check, type) else check(obj) for check in types_or_checks)


def has_any(flat_inputs: list[Any], *types_or_checks: Any) -> bool:
    """Return whether one of the inputs is of one of the types."""
    return any(check_type(inpt, types_or_checks) for inpt in flat_inputs)


def has_all(flat_inputs: list[Any], *types_or_checks: Any) -> bool:
    """Return whether every type is among the inputs."""
    return all(has_any(flat_inputs, check) for check in types_or_checks)


def get_bounding_boxes(flat_inputs: list[Any]) -> BoundingBoxes:
    """Return the bounding boxes of a sample."""
    found = next((inpt for inpt in flat_inputs if isinstance(inpt, BoundingBoxes)), None)
    if found is None:
        raise ValueError("No bounding boxes were found in the sample")
    return found


def get_keypoints(flat_inputs: list[Any]) -> KeyPoints:
    """Return the key points of a sample."""
    found = next((inpt for inpt in flat_inputs if isinstance(inpt, KeyPoints)), None)
    if found is None:
        raise ValueError("No keypoints were found in the sample")
    return found


def _single_size(sizes: set[tuple[int, ...]], what: str) -> tuple[int, ...]:
    if not sizes:
        raise TypeError("No image or video was found in the sample")
    if len(sizes) > 1:
        raise ValueError(f"Found multiple {what} values in the sample: {sorted(sizes)}")
    return sizes.pop()


def query_chw(flat_inputs: list[Any]) -> tuple[int, int, int]:
    """Return (channels, height, width) of the images of a sample."""
    kinds = (is_pure_tensor, Image, is_pil, Video)
    found = {tuple(get_dimensions(inpt)) for inpt in flat_inputs if check_type(inpt, kinds)}
    channels, height, width = _single_size(found, "CxHxW dimensions")
    return channels, height, width


def query_size(flat_inputs: list[Any]) -> tuple[int, int]:
    """Return (height, width) of a sample."""
    kinds = (is_pure_tensor, Image, is_pil, Video, Mask, BoundingBoxes, KeyPoints)
    found = {tuple(get_size(inpt)) for inpt in flat_inputs if check_type(inpt, kinds)}
    if not found:
        raise TypeError("No image, video, mask, bounding box of keypoint was found in the sample")
    height, width = _single_size(found, "HxW dimensions")
    return height, width


# -- the base ---------------------------------------------------------------------------------------------------------


class Transform(nn.Module):
    """Base of transforms: subclasses implement `transform(inpt, params)`; `make_params(flat_inputs)` draws what all inputs share.

    A plain tensor counts as the image if there is no other image; further plain tensors pass unchanged.

    A transform that only calls a functional, with the drawn parameters and with attributes of the same names as its arguments, declares
    that in `_functional` and `_options`."""

    _transformed_types: tuple = (Tensor, is_pil)
    _functional: Callable | None = None
    _options: tuple[str, ...] = ()

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        """Raise if the sample cannot be transformed."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        """Draw the parameters that all inputs share."""
        return {}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Transform one input."""
        if self._functional is None:
            raise NotImplementedError
        options = {name: getattr(self, name) for name in self._options}
        if "fill" in options:
            options["fill"] = fill_for(self._fill, inpt)
        return self._call_kernel(self._functional, inpt, **params, **options)

    def _set_fill(self, fill: Any) -> None:
        self.fill = fill
        self._fill = setup_fill(fill)

    def _call_kernel(self, functional: Callable, inpt: Any, *args: Any, **kwargs: Any) -> Any:
        return call_kernel(functional, inpt, *args, **kwargs)

    def forward(self, *inputs: Any) -> Any:
        flat, description = tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        self.check_inputs(flat)
        return self._transform_inputs(flat, description)

    def _transform_inputs(self, flat: list[Any], description: Any) -> Any:
        chosen = self._needs_transform_list(flat)
        params = self.make_params([inpt for inpt, needed in zip(flat, chosen) if needed])
        return tree_unflatten(
            [self.transform(inpt, params) if needed else inpt for inpt, needed in zip(flat, chosen)], description
        )

    def _needs_transform_list(self, flat_inputs: list[Any]) -> list[bool]:
        chosen = []
        take_tensor = not has_any(flat_inputs, Image, Video, is_pil)
        for inpt in flat_inputs:
            needed = check_type(inpt, self._transformed_types)
            if needed and is_pure_tensor(inpt):
                needed, take_tensor = take_tensor, False
            chosen.append(needed)
        return chosen

    def extra_repr(self) -> str:
        shown = []
        for name, value in self.__dict__.items():
            if name.startswith("_") or name == "training":
                continue
            if isinstance(value, (bool, int, float, str, tuple, list, enum.Enum)):
                shown.append(f"{name}={value}")
        return ", ".join(shown)


class RandomApplyTransform(Transform):
    """Base of transforms that are applied with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= p <= 1.0:
            raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
        super().__init__()
        self.p = p

    def forward(self, *inputs: Any) -> Any:
        sample = inputs if len(inputs) > 1 else inputs[0]
        flat, description = tree_flatten(sample)
        self.check_inputs(flat)
        if not draws.happens(self.p):
            return sample
        return self._transform_inputs(flat, description)


# -- arguments --------------------------------------------------------------------------------------------------------


def setup_size(size: Any, error_msg: str = "Please provide only two dimensions (h, w) for size.") -> Any:
    """Return (height, width) from a number or a sequence."""
    if not isinstance(size, (int, Sequence)):
        raise TypeError(f"size should be int or sequence, but got {type(size)}")
    if isinstance(size, int):
        return int(size), int(size)
    if len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(error_msg)
    return size


def number_or_pair(value: Any, name: str) -> list[float]:
    """Return a number or pair as two floats."""
    if not isinstance(value, (int, float, Sequence)):
        raise TypeError(f"{name} should be a number or a sequence of numbers. Got {type(value)}")
    if isinstance(value, (int, float)):
        return [float(value), float(value)]
    if len(value) not in (1, 2):
        raise ValueError(f"If {name} is a sequence its length should be 1 or 2. Got {len(value)}")
    for element in value:
        if not isinstance(element, (int, float)):
            raise ValueError(f"{name} should be a sequence of numbers. Got {type(element)}")
    return [float(value[0]), float(value[-1])]


def _fill_value(fill: Any) -> Any:
    if fill is None:
        return None
    if not isinstance(fill, (int, float)):
        return [float(part) for part in fill]
    return fill


def setup_fill(fill: Any) -> dict[Any, Any]:
    """Return the fill value by kind of input; a single value applies to all."""
    if isinstance(fill, dict):
        for value in fill.values():
            check_fill(value)
        return {kind: _fill_value(value) for kind, value in fill.items()}
    check_fill(fill)
    return {"others": _fill_value(fill)}


def check_fill(fill: Any) -> None:
    if fill is not None and not isinstance(fill, (numbers.Number, tuple, list)):
        raise TypeError(
            f"Got inappropriate fill arg, only Numbers, tuples, lists and dicts are allowed. Got {type(fill)}"
        )


def fill_for(fills: dict[Any, Any], inpt: Any) -> Any:
    """Return the fill value for an input."""
    kind = type(inpt)
    if kind in fills:
        return fills[kind]
    for key, value in fills.items():
        if isinstance(key, type) and is_pil(inpt) and isinstance(inpt, key):
            return value
    if "others" in fills:
        return fills["others"]
    raise RuntimeError("This should never happen, please open an issue on the project's repository if you hit this")


def labels_by_name(inputs: Any) -> Tensor:
    """Find labels by default: the second item of a pair, or the entry named like "labels" of a dictionary."""
    if isinstance(inputs, (tuple, list)):
        inputs = inputs[1]
    if is_pure_tensor(inputs):
        return inputs
    if not isinstance(inputs, Mapping):
        raise ValueError(
            f"When using the default labels_getter, the input passed to forward must be a dictionary or a two-tuple whose second item is a dictionary or a tensor, but got {inputs} instead."
        )
    key = next((key for key in inputs if key.lower() == "labels"), None)
    if key is None:
        key = next((key for key in inputs if "label" in key.lower()), None)
    if key is None:
        raise ValueError(
            "Could not infer where the labels are in the sample. Try passing a callable as the labels_getter parameter? If there are no labels in the sample by design, pass labels_getter=None."
        )
    return inputs[key]


def parse_labels_getter(getter: Any) -> Callable[[Any], Any]:
    if getter == "default":
        return labels_by_name
    if callable(getter):
        return getter
    if getter is None:
        return lambda inputs: None
    raise ValueError(f"labels_getter should either be 'default', a callable, or None, but got {getter}.")

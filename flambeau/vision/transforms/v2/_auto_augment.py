"""Automatic augmentations of the second generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor

from ....utils._pytree import tree_flatten, tree_unflatten
from ....utils.pillow import is_pil
from ...tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, TVTensor, Video
from ...tv_tensors._base import plain
from .. import policies as tables
from ..autoaugment import keep_mixing, mixed_with_chains
from ..kernels.conversion import max_value
from ..policies import AutoAugmentPolicy
from . import functional as F
from ._transform import Transform, check_type, fill_for


def _randint(high: int, low: int = 0) -> int:
    return int(flambeau.randint(low, high, ()))


class _AutomaticAugment(Transform):
    """Base of automatic augmentations: finds the image or video of a sample, and chooses operations of a space."""

    space: tables.Space

    def __init__(self, *, interpolation: Any, fill: Any = None) -> None:
        super().__init__()
        self.interpolation = interpolation
        self._set_fill(fill)

    def augment(self, inpt: Any) -> Any:
        """Return the image or video, changed."""
        raise NotImplementedError

    def forward(self, *inputs: Any) -> Any:
        flat, description = tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        chosen = self._needs_transform_list(flat)
        index = None
        for i, (inpt, needed) in enumerate(zip(flat, chosen)):
            if needed and check_type(inpt, (Image, is_pil, F.is_pure_tensor, Video)):
                if index is not None:
                    raise ValueError(
                        f"Auto augment transformations are only properly defined for a single image or video, but found {len(flat)} in the input."
                    )
                index = i
            elif isinstance(inpt, (BoundingBoxes, Mask, KeyPoints)):
                raise TypeError(f"Inputs of type {type(inpt).__name__} are not supported by {type(self).__name__}()")
        if index is None:
            raise TypeError("Found no image in the sample.")
        flat[index] = self.augment(flat[index])
        return tree_unflatten(flat, description)

    def _pick_policy(self) -> str:
        return tuple(self.space)[_randint(len(self.space))]

    def _magnitudes(self, inpt: Any, name: str, bins: int) -> tuple[Tensor | None, bool]:
        values, signed = self.space[name]
        height, width = F.get_size(inpt)
        return values(bins, height, width), signed

    def _random_sign(self, magnitude: float, signed: bool) -> float:
        return -magnitude if signed and flambeau.rand(()) <= 0.5 else magnitude

    def _apply_random(self, inpt: Any, bins: int, level: Callable[[], int]) -> Any:
        """Apply a random operation; `level()` chooses the index of its magnitude."""
        name = self._pick_policy()
        values, signed = self._magnitudes(inpt, name, bins)
        magnitude = 0.0 if values is None else self._random_sign(float(values[level()]), signed)
        return self._apply_operation(inpt, name, magnitude)

    def _apply_operation(self, inpt: Any, name: str, magnitude: float) -> Any:
        if name == "Solarize":
            magnitude *= max_value(inpt.dtype) if isinstance(inpt, Tensor) else 255
        return tables.apply(F, inpt, name, magnitude, self.interpolation, fill_for(self._fill, inpt))


class AutoAugment(_AutomaticAugment):
    """Apply one of the learned pairs of operations."""

    space = tables.IN_UNITS.auto_augment

    def __init__(self, policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET, interpolation: Any = "nearest", fill: Any = None) -> None:  # fmt: skip
        super().__init__(interpolation=interpolation, fill=fill)
        self.policy = policy
        self._policies = tables.policies(policy)

    def augment(self, inpt: Any) -> Any:
        for name, probability, bin in self._policies[_randint(len(self._policies))]:
            if not flambeau.rand(()) <= probability:
                continue
            values, signed = self._magnitudes(inpt, name, 10)
            magnitude = 0.0
            if values is not None and bin is not None:
                magnitude = self._random_sign(float(values[bin]), signed)
            inpt = self._apply_operation(inpt, name, magnitude)
        return inpt


class RandAugment(_AutomaticAugment):
    """Apply `num_ops` random operations of one strength."""

    space = tables.IN_UNITS.rand_augment

    def __init__(self, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31, interpolation: Any = "nearest", fill: Any = None) -> None:  # fmt: skip
        super().__init__(interpolation=interpolation, fill=fill)
        self.num_ops = num_ops
        self.magnitude = magnitude
        self.num_magnitude_bins = num_magnitude_bins

    def augment(self, inpt: Any) -> Any:
        for _ in range(self.num_ops):
            inpt = self._apply_random(inpt, self.num_magnitude_bins, lambda: self.magnitude)
        return inpt


class TrivialAugmentWide(_AutomaticAugment):
    """Apply a random operation of random strength."""

    space = tables.IN_UNITS.trivial_augment

    def __init__(self, num_magnitude_bins: int = 31, interpolation: Any = "nearest", fill: Any = None) -> None:
        super().__init__(interpolation=interpolation, fill=fill)
        self.num_magnitude_bins = num_magnitude_bins

    def augment(self, inpt: Any) -> Any:
        return self._apply_random(inpt, self.num_magnitude_bins, lambda: _randint(self.num_magnitude_bins))


class AugMix(_AutomaticAugment):
    """Blend the image at random with chains of random operations on it."""

    def __init__(self, severity: int = 3, mixture_width: int = 3, chain_depth: int = -1, alpha: float = 1.0, all_ops: bool = True, interpolation: Any = "bilinear", fill: Any = None) -> None:  # fmt: skip
        super().__init__(interpolation=interpolation, fill=fill)
        keep_mixing(self, severity, mixture_width, chain_depth, alpha, all_ops)
        spaces = tables.IN_UNITS
        self._space = spaces.aug_mix if all_ops else spaces.aug_mix_partial

    @property
    def space(self) -> tables.Space:  # type: ignore[override]
        return self._space

    def augment(self, inpt: Any) -> Any:
        image = inpt if isinstance(inpt, Tensor) else F.pil_to_tensor(inpt)
        image = plain(image)
        lead = 5 if isinstance(inpt, Video) else 4
        batch = image.reshape([1] * max(lead - image.ndim, 0) + list(image.shape))
        mix = mixed_with_chains(batch, self, lambda part: self._apply_random(part, 10, lambda: _randint(self.severity)))
        mixed = mix.reshape(image.shape).to(dtype=image.dtype)
        if isinstance(inpt, TVTensor):
            return type(inpt).wrap(mixed, inpt)
        return mixed if isinstance(inpt, Tensor) else F.to_pil_image(mixed)

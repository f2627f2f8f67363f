"""Classic automatic augmentations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor, nn

from . import functional as F
from . import policies as tables
from .interpolation import InterpolationMode
from .policies import AutoAugmentPolicy

__all__ = ["AugMix", "AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]


def _randint(high: int, low: int = 0) -> int:
    return int(flambeau.randint(low, high, (1,)).item())


class _AutomaticAugment(nn.Module):
    """Base of automatic augmentations: chooses an operation of a space, and its magnitude."""

    space: tables.Space
    shown: tuple[str, ...]

    def __init__(self, interpolation: InterpolationMode, fill: Any) -> None:
        super().__init__()
        self.interpolation = interpolation
        self.fill = fill

    def _fill_for(self, img: Any) -> Any:
        if self.fill is None or not isinstance(img, Tensor):
            return self.fill
        if isinstance(self.fill, (int, float)):
            return [float(self.fill)] * F.get_dimensions(img)[0]
        return [float(f) for f in self.fill]

    def _magnitudes(self, img: Any, name: str, bins: int) -> tuple[list[float] | None, bool]:
        _, height, width = F.get_dimensions(img)
        values, signed = self.space[name]
        found = values(bins, height, width)
        return None if found is None else found.tolist(), signed

    def _pick_policy(self) -> str:
        return list(self.space)[_randint(len(self.space))]

    def _apply_operation(self, img: Any, name: str, magnitude: float, fill: Any) -> Any:
        return tables.apply(F, img, name, magnitude, self.interpolation, fill)

    def _apply_random(self, img: Any, fill: Any, bins: int, level: Callable[[int], int]) -> Any:
        """Apply a random operation; `level(count)` chooses the index of its magnitude."""
        name = self._pick_policy()
        values, signed = self._magnitudes(img, name, bins)
        magnitude = 0.0 if values is None else float(values[level(len(values))])
        return self._apply_operation(img, name, -magnitude if signed and _randint(2) else magnitude, fill)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in self.shown)})"


class AutoAugment(_AutomaticAugment):
    """Apply one of the learned pairs of operations."""

    space = tables.IN_BYTES.auto_augment
    shown = ("policy", "fill")

    def __init__(self, policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET, interpolation: InterpolationMode = InterpolationMode.NEAREST, fill: Any = None) -> None:  # fmt: skip
        super().__init__(interpolation, fill)
        self.policy = policy
        self.policies = tables.policies(policy)

    @staticmethod
    def get_params(transform_num: int) -> tuple[int, Tensor, Tensor]:
        """Draw (policy, probabilities, signs)."""
        return _randint(transform_num), flambeau.rand((2,)), flambeau.randint(2, (2,))

    def forward(self, img: Any) -> Any:
        fill = self._fill_for(img)
        policy, probabilities, signs = self.get_params(len(self.policies))
        for i, (name, probability, bin) in enumerate(self.policies[policy]):
            if probabilities[i] <= probability:
                values, signed = self._magnitudes(img, name, 10)
                magnitude = 0.0 if values is None or bin is None else float(values[bin])
                if signed and signs[i] == 0:
                    magnitude = -magnitude
                img = self._apply_operation(img, name, magnitude, fill)
        return img


class RandAugment(_AutomaticAugment):
    """Apply `num_ops` random operations of one strength."""

    space = tables.IN_BYTES.rand_augment
    shown = ("num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31, interpolation: InterpolationMode = InterpolationMode.NEAREST, fill: Any = None) -> None:  # fmt: skip
        super().__init__(interpolation, fill)
        self.num_ops = num_ops
        self.magnitude = magnitude
        self.num_magnitude_bins = num_magnitude_bins

    def forward(self, img: Any) -> Any:
        fill = self._fill_for(img)
        for _ in range(self.num_ops):
            img = self._apply_random(img, fill, self.num_magnitude_bins, lambda _: self.magnitude)
        return img


class TrivialAugmentWide(_AutomaticAugment):
    """Apply a random operation of random strength."""

    space = tables.IN_BYTES.trivial_augment
    shown = ("num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_magnitude_bins: int = 31, interpolation: InterpolationMode = InterpolationMode.NEAREST, fill: Any = None) -> None:  # fmt: skip
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = num_magnitude_bins

    def forward(self, img: Any) -> Any:
        return self._apply_random(img, self._fill_for(img), self.num_magnitude_bins, _randint)


class AugMix(_AutomaticAugment):
    """Blend the image at random with chains of random operations on it."""

    shown = ("severity", "mixture_width", "chain_depth", "alpha", "all_ops", "interpolation", "fill")

    def __init__(self, severity: int = 3, mixture_width: int = 3, chain_depth: int = -1, alpha: float = 1.0, all_ops: bool = True, interpolation: InterpolationMode = InterpolationMode.BILINEAR, fill: Any = None) -> None:  # fmt: skip
        super().__init__(interpolation, fill)
        keep_mixing(self, severity, mixture_width, chain_depth, alpha, all_ops)
        self.space = tables.IN_BYTES.aug_mix if all_ops else tables.IN_BYTES.aug_mix_partial

    def forward(self, orig_img: Any) -> Any:
        img = orig_img if isinstance(orig_img, Tensor) else F.pil_to_tensor(orig_img)
        fill = self._fill_for(img)
        batch = img.view([1] * max(4 - img.ndim, 0) + list(img.shape))
        mix = mixed_with_chains(
            batch, self, lambda part: self._apply_random(part, fill, 10, lambda _: _randint(self.severity))
        )
        mixed = mix.view(img.shape).to(dtype=img.dtype)
        return mixed if isinstance(orig_img, Tensor) else F.to_pil_image(mixed)


def keep_mixing(mix: Any, severity: int, width: int, depth: int, alpha: float, all_ops: bool) -> None:
    """Check and keep the settings of an AugMix of either generation."""
    if not 1 <= severity <= 10:
        raise ValueError(f"The severity must be between [1, 10]. Got {severity} instead.")
    mix.severity, mix.mixture_width, mix.chain_depth, mix.alpha, mix.all_ops = severity, width, depth, alpha, all_ops


def mixed_with_chains(batch: Tensor, settings: Any, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Blend each image of a batch with chains of changes, with random weights. `settings` is an AugMix of either generation."""
    count, width = len(batch), settings.mixture_width
    shares = flambeau._sample_dirichlet(flambeau.tensor([settings.alpha] * 2).expand(count, -1))
    chains = flambeau._sample_dirichlet(flambeau.tensor([settings.alpha] * width).expand(count, -1))
    weights = chains * shares[:, 1].reshape(count, -1)
    per_image = [count] + [1] * (batch.ndim - 1)
    mix = shares[:, 0].reshape(per_image) * batch
    for i in range(width):
        augmented = batch
        for _ in range(settings.chain_depth if settings.chain_depth > 0 else _randint(4, low=1)):
            augmented = change(augmented)
        mix.add_(weights[:, i].reshape(per_image) * augmented)
    return mix

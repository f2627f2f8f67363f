"""Transforms composed of transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import nn

from .. import draws
from ._transform import Transform


def _check_transforms(transforms: Any, kinds: Any = Sequence, words: str = "a sequence of callables") -> None:
    if not isinstance(transforms, kinds):
        raise TypeError(f"Argument transforms should be {words}")
    if len(transforms) == 0:
        raise ValueError("Pass at least one transform")


class _TransformContainer(Transform):
    """Base of transforms that run several others on the same inputs."""

    transforms: Any

    def _run(self, chosen: Any, inputs: tuple) -> Any:
        several = len(inputs) > 1
        for transform in chosen:
            outputs = transform(*inputs)
            inputs = outputs if several else (outputs,)
        return inputs if several else inputs[0]

    def extra_repr(self) -> str:
        return "\n".join(f"    {transform}" for transform in self.transforms)


class Compose(_TransformContainer):
    """Apply transforms one after the other."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        super().__init__()
        _check_transforms(transforms)
        self.transforms = transforms

    def forward(self, *inputs: Any) -> Any:
        return self._run(self.transforms, inputs)


class RandomApply(_TransformContainer):
    """Apply all of the transforms, or with probability 1 - p none."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        _check_transforms(transforms, (Sequence, nn.ModuleList), "a sequence of callables or a `nn.ModuleList`")
        self.transforms = transforms
        if not 0.0 <= p <= 1.0:
            raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
        self.p = p

    def forward(self, *inputs: Any) -> Any:
        if not draws.happens(self.p):
            return inputs if len(inputs) > 1 else inputs[0]
        return self._run(self.transforms, inputs)


class RandomChoice(Transform):
    """Apply one of the transforms, with the probabilities `p` if given."""

    def __init__(self, transforms: Sequence[Callable[..., Any]], p: Sequence[float] | None = None) -> None:
        _check_transforms(transforms)
        if p is None:
            p = [1] * len(transforms)
        elif len(p) != len(transforms):
            raise ValueError(f"Length of p doesn't match the number of transforms: {len(p)} != {len(transforms)}")
        super().__init__()
        self.transforms = transforms
        total = sum(p)
        self.p = [part / total for part in p]

    def forward(self, *inputs: Any) -> Any:
        chosen = int(flambeau.multinomial(flambeau.tensor(self.p), 1))
        return self.transforms[chosen](*inputs)


class RandomOrder(_TransformContainer):
    """Apply the transforms in a random order."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        _check_transforms(transforms)
        super().__init__()
        self.transforms = transforms

    def forward(self, *inputs: Any) -> Any:
        order = flambeau.randperm(len(self.transforms)).tolist()
        return self._run([self.transforms[i] for i in order], inputs)

    def extra_repr(self) -> str:
        return Transform.extra_repr(self)

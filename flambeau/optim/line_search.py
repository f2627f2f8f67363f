"""A line search for the strong Wolfe conditions: the loss falls enough, and its slope flattens enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.tensor import Tensor

_SUFFICIENT_DECREASE = 1e-4  # part of the linear decrease that the loss has to reach
_CURVATURE = 0.9  # part of the initial slope that may remain


@dataclass
class _Point:
    """Point of a line search: the loss and its gradient at one step size."""

    size: Any
    loss: float
    gradient: Tensor
    slope: float


def strong_wolfe(
    evaluate: Callable[[Any], tuple[float, Tensor]],
    size: Any,
    direction: Tensor,
    longest: Tensor,
    loss: float,
    gradient: Tensor,
    slope: Tensor,
    tolerance: float = 1e-9,
    max_evaluations: int = 25,
) -> tuple[float, Tensor, Any, int]:
    """Return (loss, gradient, step size, number of evaluations) of a step that satisfies the strong Wolfe conditions. `evaluate(size)`
    returns loss and gradient at `size` along `direction`, whose largest component is `longest`; `loss`, `gradient` and `slope` are
    those at the start."""
    search = _Search(evaluate, direction, loss, gradient, slope.item(), max_evaluations)
    search.bracket(size.item() if isinstance(size, Tensor) else size)
    search.zoom(tolerance / max(longest.item(), 1e-300))
    best = search.low
    return best.loss, best.gradient, best.size, search.evaluations


class _Search:
    def __init__(self, evaluate: Callable, direction: Tensor, loss: float, gradient: Tensor, slope: float, budget: int):
        self.evaluate, self.direction, self.budget = evaluate, direction, budget
        self.start = _Point(0, loss, gradient.clone(), slope)
        self.evaluations = 0
        self.rounds = 0
        self.ends: list[_Point] = []  # a bracket of the minimum, or the answer alone
        self.done = False

    @property
    def low(self) -> _Point:
        """Return the better end of the bracket."""
        first, last = self.ends[0], self.ends[-1]
        return first if first.loss <= last.loss else last

    def at(self, size: Any) -> _Point:
        loss, gradient = self.evaluate(size)
        self.evaluations += 1
        return _Point(size, loss, gradient, gradient.dot(self.direction).item())

    def too_high(self, point: _Point) -> bool:
        return point.loss > self.start.loss + _SUFFICIENT_DECREASE * point.size * self.start.slope

    def is_flat(self, point: _Point) -> bool:
        return abs(point.slope) <= -_CURVATURE * self.start.slope

    def bracket(self, size: Any) -> None:
        """Enlarge the step until the minimum is between two of them."""
        before, here = self.start, self.at(size)
        while self.rounds < self.budget:
            if self.too_high(here) or (self.rounds > 1 and here.loss >= before.loss):
                self.ends = [before, here]
                return
            if self.is_flat(here):
                self.ends, self.done = [here], True
                return
            if here.slope >= 0:
                self.ends = [before, here]
                return
            bounds = here.size + 0.01 * (here.size - before.size), here.size * 10
            before, here = here, self.at(minimum_of_cubic(before, here, bounds))
            self.rounds += 1
        self.ends = [self.start, here]

    def zoom(self, narrowest: float) -> None:
        """Narrow the bracket until a point meets both conditions."""
        slow = False  # the last point was close to an end of the bracket
        low, high = (0, 1) if self.ends[0].loss <= self.ends[-1].loss else (1, 0)
        while not self.done and self.rounds < self.budget:
            first, last = self.ends
            if abs(last.size - first.size) < narrowest:
                return
            size = minimum_of_cubic(first, last)
            bottom, top = sorted((first.size, last.size))
            margin = 0.1 * (top - bottom)
            if min(top - size, size - bottom) >= margin:
                slow = False
            elif slow or size >= top or size <= bottom:
                size = top - margin if abs(size - top) < abs(size - bottom) else bottom + margin
                slow = False
            else:
                slow = True
            here = self.at(size)
            self.rounds += 1
            if self.too_high(here) or here.loss >= self.ends[low].loss:
                self.ends[high] = here
                low, high = (0, 1) if self.ends[0].loss <= self.ends[1].loss else (1, 0)
                continue
            self.done = self.is_flat(here)
            if not self.done and here.slope * (self.ends[high].size - self.ends[low].size) >= 0:
                self.ends[high] = self.ends[low]
            self.ends[low] = here


def minimum_of_cubic(a: _Point, b: _Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Return the minimum of the cubic through two points with their slopes, clamped to bounds."""
    lowest, highest = bounds if bounds is not None else sorted((a.size, b.size))
    if a.size == b.size:
        return (lowest + highest) / 2.0
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.size - b.size)
    square = d1 * d1 - a.slope * b.slope
    if square < 0 or math.isnan(square):
        return (lowest + highest) / 2.0
    d2 = math.sqrt(square)
    left, right = (a, b) if a.size <= b.size else (b, a)
    denominator = right.slope - left.slope + 2 * d2
    if denominator == 0:
        return (lowest + highest) / 2.0
    place = right.size - (right.size - left.size) * ((right.slope + d2 - d1) / denominator)
    return min(max(place, lowest), highest)

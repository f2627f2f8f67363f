"""Jacobians for gradcheck: by finite differences, by backward passes and by pushing tangents forward.

All are NumPy matrices with one row per element of the input and one column per element of the output. A complex output has two
columns per element, of its real and its imaginary part; an entry of a complex input is (d / d real part) + i (d / d imaginary
part), as autograd's gradients are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..core.aliases import AnyFunction
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor, copy_of_array
from .api import grad
from .forward_ad import dual_level, make_dual, unpack_dual
from .grad_mode import enable_grad


def tensors_in(x: Any) -> list[Tensor]:
    items = x if isinstance(x, (tuple, list)) else (x,)
    return [t for t in items if isinstance(t, Tensor)]


def differentiable(outputs: Any) -> list[Tensor]:
    return [t for t in tensors_in(outputs) if t.requires_grad]


def is_floating(t: Tensor) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex


def values_of(t: Tensor) -> np.ndarray:
    """Return the elements of a tensor, also of a sparse one, as a vector."""
    dense = t.detach().to_dense() if isinstance(t, SparseTensor) else t.detach()
    return np.array(dense.resolve_conj().contiguous()._array()).reshape(-1)


def as_real(values: np.ndarray) -> np.ndarray:
    """Return real and imaginary parts as separate elements."""
    values = np.ascontiguousarray(values)
    return values.view(values.real.dtype) if np.iscomplexobj(values) else values


def tensor_like(values: np.ndarray, like: Tensor) -> Tensor:
    """Return a new tensor with the shape, dtype and sparse layout of another."""
    dense = copy_of_array(np.asarray(values, like.dtype.numpy).reshape(like.shape), like.dtype)
    if not isinstance(like, SparseTensor):
        return dense
    return dense.to_sparse(layout=like.layout, blocksize=getattr(like, "_blocksize", None))


def stored_places(x: Any, memory: np.ndarray) -> np.ndarray:
    """Return the positions of a sparse tensor's stored values in the dense one, in the order of `memory`, which holds them."""
    if str(x.layout) == "torch.sparse_coo":
        index = np.array(x._indices()._array())
        tail = int(np.prod(x.shape[len(index) :], dtype=np.int64))
        first = np.ravel_multi_index(tuple(index), tuple(x.shape[: len(index)]))
        return (first[:, None] * tail + np.arange(tail)).reshape(-1)
    kept = memory.copy()
    memory[...] = 1 + np.arange(kept.size).reshape(kept.shape)  # each value is its own number
    order = np.argsort(x.detach().to_dense()._array().real.reshape(-1), kind="stable")
    memory[...] = kept
    return order[len(order) - kept.size :]


class Point:
    """An input of the checked function that can be varied."""

    def __init__(self, args: tuple[Any, ...], position: int, masked: bool):
        self.args, self.position = args, position
        self.tensor: Any = args[position]
        self.is_complex = self.tensor.dtype.is_complex
        self.unmasked = isinstance(self.tensor, SparseTensor) and not masked
        self.places: np.ndarray | None = None
        if isinstance(self.tensor, SparseTensor) and masked:
            coo = str(self.tensor.layout) == "torch.sparse_coo"
            self.memory = (self.tensor._values() if coo else self.tensor.detach().values())._array()
            self.places = stored_places(self.tensor, self.memory)
        elif not self.unmasked:
            self.memory = self.tensor._array()
        self.count = self.tensor.numel() if self.places is None else len(self.places)

    @contextmanager
    def moved(self, step: np.ndarray) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of the function with this input changed by `step`, which has one element per row."""
        if self.unmasked:
            replaced = tensor_like(values_of(self.tensor) + step, self.tensor).requires_grad_()
            yield (*self.args[: self.position], replaced, *self.args[self.position + 1 :])
            return
        original = self.memory.copy()
        self.memory[...] = original + step.reshape(original.shape)
        try:
            yield self.args
        finally:
            self.memory[...] = original

    def rows(self, gradient: Tensor) -> np.ndarray:
        """Return the elements of a gradient that belong to rows."""
        values = values_of(gradient)
        return values if self.places is None else values[self.places]


def evaluate(function: AnyFunction, args: tuple[Any, ...], choose: AnyFunction) -> list[Tensor]:
    with enable_grad():
        return choose(function(*args))


def difference(
    function: AnyFunction, point: Point, choose: AnyFunction, step: np.ndarray, eps: float
) -> list[np.ndarray]:
    """Return the change of each output for a small move along `step`, divided by its length."""
    sides = []
    for sign in (eps, -eps):
        with point.moved(sign * step) as args:
            outputs = evaluate(function, args, choose)
            sides.append([(as_real(values_of(t)), tuple(t.shape), t.dtype) for t in outputs])
    for (_, shape, d), (_, other_shape, other_d) in zip(*sides):
        for what, a, b in (("shape", shape, other_shape), ("dtype", d, other_d)):
            if a != b:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are perturbed, but got {a} and {b}"
                )
    return [(up[0] - down[0]) / (2 * eps) for up, down in zip(*sides)]


def directions(point: Point) -> Iterator[tuple[int, complex]]:
    for i in range(point.count):
        for part in (1, 1j) if point.is_complex else (1,):
            yield i, part


def unit(point: Point, i: int, part: complex) -> np.ndarray:
    step = np.zeros(point.count, complex if point.is_complex else float)
    step[i] = part
    return step


def empty_matrix(point: Point, out: Tensor) -> np.ndarray:
    columns = out.numel() * (2 if out.dtype.is_complex else 1)
    return np.zeros((point.count, columns), complex if point.is_complex else float)


def numerical(
    function: AnyFunction, point: Point, choose: AnyFunction, outputs: list[Tensor], eps: float
) -> list[np.ndarray]:
    """Return a Jacobian per output by central differences."""
    found = [empty_matrix(point, out) for out in outputs]
    for i, part in directions(point):
        changes = difference(function, point, choose, unit(point, i, part), eps)
        for matrix, change in zip(found, changes):
            matrix[i] += part * change
    return found


def forward(function: AnyFunction, point: Point, choose: AnyFunction, outputs: list[Tensor]) -> list[np.ndarray]:
    """Return the Jacobians by tangents, column by column."""
    found = [empty_matrix(point, out) for out in outputs]
    for i, part in directions(point):
        for matrix, change in zip(found, pushed(function, point, choose, unit(point, i, part))):
            if change is not None:
                matrix[i] += part * change
    return found


def pushed(function: AnyFunction, point: Point, choose: AnyFunction, step: np.ndarray) -> list[np.ndarray | None]:
    """Return the tangents of the outputs for one tangent of the input, with separate real and imaginary parts."""
    args: list[Any] = [a.detach() if isinstance(a, Tensor) else a for a in point.args]
    with dual_level():
        for i, given in enumerate(point.args):
            if isinstance(given, Tensor) and given.requires_grad:
                values = step if i == point.position else np.zeros(given.numel())
                args[i] = make_dual(args[i], tensor_like(values, given))
        tangents = [unpack_dual(t).tangent for t in choose(function(*args))]
    return [None if t is None else as_real(values_of(t)) for t in tangents]


def analytical(out: Tensor, point: Point, inspect: Callable[[Tensor], None]) -> np.ndarray:
    """Return the Jacobian by a backward pass per column; `inspect` is called with each gradient."""
    matrix = empty_matrix(point, out)
    parts = (1, 1j) if out.dtype.is_complex else (1,)
    for k in range(out.numel()):
        for j, part in enumerate(parts):
            seed = np.zeros(out.numel(), out.dtype.numpy)
            seed[k] = part
            (g,) = grad(out, point.tensor, tensor_like(seed, out), retain_graph=True, allow_unused=True)
            if g is not None:
                inspect(g)
                matrix[:, k * len(parts) + j] = point.rows(g)
    return matrix

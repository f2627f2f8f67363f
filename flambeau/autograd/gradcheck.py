"""gradcheck and gradgradcheck: derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.graph import mode
from ..core.tensor import Tensor, copy_of_array
from .api import grad


class GradcheckError(RuntimeError):
    """Raised when an analytical gradient differs from the numerical one."""


def _tensors(x: Any) -> list[Tensor]:
    items = x if isinstance(x, (tuple, list)) else (x,)
    return [t for t in items if isinstance(t, Tensor)]


def _differentiable(outputs: Any) -> list[Tensor]:
    return [t for t in _tensors(outputs) if t.requires_grad]


def _numerical_jacobian(function: Callable, inputs: tuple, x: Tensor, output: int, eps: float) -> np.ndarray:
    """d output / d x by central differences, one column per element of x; complex x gets real and imaginary steps."""
    flat = x._array()
    columns = []
    steps = (eps, 1j * eps) if x.dtype.is_complex else (eps,)
    for index in np.ndindex(*flat.shape):
        original = flat[index].copy()
        parts = []
        for step in steps:
            flat[index] = original + step
            up = _evaluate(function, inputs, output)
            flat[index] = original - step
            down = _evaluate(function, inputs, output)
            flat[index] = original
            parts.append((up - down) / (2 * eps))
        columns.append(parts[0] if len(parts) == 1 else (parts[0] + 1j * parts[1]))
    n = columns[0].size if columns else 0
    return np.stack(columns, 0) if columns else np.zeros((0, n))


def _evaluate(function: Callable, inputs: tuple, output: int) -> np.ndarray:
    before, mode.enabled = mode.enabled, True
    try:
        result = _differentiable(function(*inputs))[output]
    finally:
        mode.enabled = before
    return np.array(result.detach()._array(), copy=True).reshape(-1)


def _analytical_jacobian(out: Tensor, x: Tensor, create_graph: bool = False) -> np.ndarray:
    """Rows of vector-Jacobian products with unit vectors, as a matrix (x elements, out elements)."""
    n = out.numel()
    shape = (x.numel(), n)
    wide = np.complex128 if x.dtype.is_complex or out.dtype.is_complex else np.float64
    matrix = np.zeros(shape, wide)
    for k in range(n):
        unit = np.zeros(n, out.dtype.numpy)
        unit[k] = 1
        seed = copy_of_array(unit.reshape(out.shape), out.dtype)
        (g,) = grad(out, x, seed, retain_graph=True, allow_unused=True)
        if g is not None:
            matrix[:, k] = np.array(g.detach().contiguous()._array()).reshape(-1)
    return matrix


def gradcheck(
    func: Callable,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients autograd computes agree with central differences (use float64 inputs)."""
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    watched = [t for t in args if isinstance(t, Tensor) and t.requires_grad]
    if not watched:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    try:
        outputs = _differentiable(func(*args))
        if not outputs:
            raise ValueError("gradcheck expects at least one output of the function to require gradient.")
        for i, out in enumerate(outputs):
            for j, x in enumerate(watched):
                _compare(func, args, out, x, i, j, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _compare(
    func: Callable, args: tuple, out: Tensor, x: Tensor, i: int, j: int, eps: float, atol: float, rtol: float
) -> None:
    numerical = _numerical_jacobian(func, args, x, i, eps)
    analytical = _analytical_jacobian(out, x)
    if x.dtype.is_complex or out.dtype.is_complex:
        # autograd returns conj(J)^T v for real v; compare through both real directions of the output
        analytical = analytical.conj() if out.dtype.is_complex and not x.dtype.is_complex else analytical
        if not np.allclose(analytical.real, numerical.real, rtol, atol):
            raise GradcheckError(_message(i, j, numerical, analytical))
        return
    if not np.allclose(analytical, numerical, rtol, atol, equal_nan=True):
        raise GradcheckError(_message(i, j, numerical, analytical))


def _message(i: int, j: int, numerical: np.ndarray, analytical: np.ndarray) -> str:
    return (
        f"Jacobian mismatch for output {i} with respect to input {j},\nnumerical:{numerical}\nanalytical:{analytical}\n"
    )


def gradgradcheck(
    func: Callable,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """gradcheck of the gradient function itself."""
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if grad_outputs is None:
        generator = np.random.RandomState(0)
        seeds = []
        for out in _differentiable(func(*args)):
            values = generator.standard_normal(out.shape)
            seeds.append(copy_of_array(np.asarray(values, out.dtype.numpy), out.dtype).requires_grad_())
    else:
        seeds = [g.requires_grad_() for g in _tensors(grad_outputs)]
    count = len(args)

    def gradient(*everything: Any) -> tuple:
        values, cotangents = everything[:count], everything[count:]
        outs = _differentiable(func(*values))
        wanted = [t for t in values if isinstance(t, Tensor) and t.requires_grad]
        result = grad(outs, wanted, cotangents, create_graph=True, allow_unused=True)
        return tuple(g for g in result if g is not None)

    return gradcheck(gradient, (*args, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)

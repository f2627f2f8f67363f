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


def _numerical_jacobian(read: Callable, x: Tensor, eps: float) -> np.ndarray:
    """d read() / d x by central differences, one row per element of x. For complex x an entry is (d / d real part) + i (d / d
    imaginary part), as autograd's gradients are."""
    flat = x._array()
    rows = []
    for index in np.ndindex(*flat.shape):
        original = flat[index].copy()
        parts = []
        for step in (eps, 1j * eps) if x.dtype.is_complex else (eps,):
            flat[index] = original + step
            up = read()
            flat[index] = original - step
            down = read()
            flat[index] = original
            parts.append((up - down) / (2 * eps))
        rows.append(parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1])
    return np.stack(rows, 0) if rows else np.zeros((0, len(read())))


def _reader(function: Callable, inputs: tuple, choose: Callable, output: int) -> Callable[[], np.ndarray]:
    """A function of the memory of the inputs: one output as a vector, real and imaginary parts as separate elements."""

    def read() -> np.ndarray:
        before, mode.enabled = mode.enabled, True
        try:
            result = choose(function(*inputs))[output]
        finally:
            mode.enabled = before
        values = np.array(result.detach().resolve_conj().contiguous()._array(), copy=True).reshape(-1)
        return values.view(values.real.dtype) if np.iscomplexobj(values) else values

    return read


def _analytical_jacobian(out: Tensor, x: Tensor) -> np.ndarray:
    """The gradients of every element of `out`, its real and imaginary parts apart, as columns."""
    n, directions = out.numel(), (1, 1j) if out.dtype.is_complex else (1,)
    matrix = np.zeros((x.numel(), n * len(directions)), np.complex128 if x.dtype.is_complex else np.float64)
    for k in range(n):
        for j, direction in enumerate(directions):
            unit = np.zeros(n, out.dtype.numpy)
            unit[k] = direction
            seed = copy_of_array(unit.reshape(out.shape), out.dtype)
            (g,) = grad(out, x, seed, retain_graph=True, allow_unused=True)
            if g is not None:
                values = np.array(g.detach().resolve_conj().contiguous()._array()).reshape(-1)
                matrix[:, k * len(directions) + j] = values
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
        everything = func(*args)
        outputs = _differentiable(everything)
        for i, out in enumerate(outputs):
            read = _reader(func, args, _differentiable, i)
            for j, x in enumerate(watched):
                _compare(_numerical_jacobian(read, x, eps), _analytical_jacobian(out, x), i, j, atol, rtol)
        if not outputs:
            _check_constant(func, args, everything, watched, eps)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _compare(numerical: np.ndarray, analytical: np.ndarray, i: int, j: int, atol: float, rtol: float) -> None:
    if not np.allclose(analytical, numerical, rtol, atol, equal_nan=True):
        raise GradcheckError(_message(i, j, numerical, analytical))


def _check_constant(func: Callable, args: tuple, outputs: Any, watched: list[Tensor], eps: float) -> None:
    """Outputs that autograd does not follow must not move with the inputs."""
    for i, out in enumerate(_tensors(outputs)):
        if out.dtype.is_floating_point or out.dtype.is_complex:
            read = _reader(func, args, _tensors, i)
            if any(np.any(_numerical_jacobian(read, x, eps) != 0) for x in watched):
                raise GradcheckError("Numerical gradient for function expected to be zero")


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
        seeds = _tensors(grad_outputs)
    count = len(args)

    def gradient(*everything: Any) -> tuple:
        values, cotangents = everything[:count], everything[count:]
        outs = _differentiable(func(*values))
        wanted = [t for t in values if isinstance(t, Tensor) and t.requires_grad]
        result = grad(outs, wanted, cotangents, create_graph=True, allow_unused=True)
        return tuple(g for g in result if g is not None)

    return gradcheck(gradient, (*args, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)

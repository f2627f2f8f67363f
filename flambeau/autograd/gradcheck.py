"""gradcheck and gradgradcheck: derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.graph import mode
from ..core.tensor import Tensor, copy_of_array
from .api import grad
from .forward_ad import dual_level, make_dual, unpack_dual


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
        return _parts(result)

    return read


def _values(t: Tensor) -> np.ndarray:
    return np.array(t.detach().resolve_conj().contiguous()._array(), copy=True).reshape(-1)


def _parts(t: Tensor) -> np.ndarray:
    """All values as real numbers."""
    values = _values(t)
    return values.view(values.real.dtype) if np.iscomplexobj(values) else values


def _unit(like: Tensor, k: int, value: complex) -> Tensor:
    values = np.zeros(like.numel(), like.dtype.numpy)
    values[k] = value
    return copy_of_array(values.reshape(like.shape), like.dtype)


def _directions(t: Tensor) -> tuple[complex, ...]:
    return (1, 1j) if t.dtype.is_complex else (1,)


def _analytical_jacobian(out: Tensor, x: Tensor, check_dtype: bool = False) -> np.ndarray:
    """The gradients of every element of `out`, its real and imaginary parts apart, as columns."""
    n, directions = out.numel(), _directions(out)
    matrix = np.zeros((x.numel(), n * len(directions)), np.complex128 if x.dtype.is_complex else np.float64)
    for k in range(n):
        for j, direction in enumerate(directions):
            (g,) = grad(out, x, _unit(out, k, direction), retain_graph=True, allow_unused=True)
            if g is None:
                continue
            if check_dtype and g.dtype is not x.dtype:
                raise GradcheckError(f"Gradient has dtype mismatch: it is {g.dtype}, the input {x.dtype}")
            matrix[:, k * len(directions) + j] = _values(g)
    return matrix


def _forward_jacobian(function: Callable, inputs: tuple, x: Tensor, output: int) -> np.ndarray:
    """The same by forward mode, one row per element of x."""
    rows = []
    for k in range(x.numel()):
        parts = []
        for direction in _directions(x):
            with dual_level():
                dual = make_dual(x, _unit(x, k, direction))
                out = _differentiable(function(*(dual if t is x else t for t in inputs)))[output]
                tangent = unpack_dual(out).tangent
                parts.append(_parts(out.new_zeros(out.shape) if tangent is None else tangent))
        rows.append(parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1])
    return np.stack(rows, 0) if rows else np.zeros((0, 0))


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
    """Whether the gradients autograd computes agree with central differences (use float64 inputs).

    `fast_mode` and `masked` are accepted: every element is checked either way, and inputs are strided."""
    if not (check_backward_ad or check_forward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_forward_grad:
        raise NotImplementedError("gradcheck: check_batched_forward_grad is not implemented")
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
                numerical = _numerical_jacobian(read, x, eps)
                if check_forward_ad:
                    _compare(numerical, _forward_jacobian(func, args, x, i), _mismatch(i, j), atol, rtol)
                if check_backward_ad:
                    found = _analytical_jacobian(out, x, check_grad_dtypes)
                    _compare(numerical, found, _mismatch(i, j), atol, rtol)
                    _compare(found, _analytical_jacobian(out, x), _NOT_REENTRANT, nondet_tol, 0)
            if check_backward_ad and check_batched_grad:
                _check_batched(out, watched, atol, rtol)
        if not outputs:
            _check_constant(func, args, everything, watched, eps)
        elif check_backward_ad and check_undefined_grad:
            _check_undefined(outputs, watched)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


_NOT_REENTRANT = "Backward is not reentrant: the same input and gradient give different values when run twice"


def _mismatch(i: int, j: int) -> str:
    return f"Jacobian mismatch for output {i} with respect to input {j}"


def _compare(expected: np.ndarray, found: np.ndarray, what: str, atol: float, rtol: float) -> None:
    if not np.allclose(found, expected, rtol, atol, equal_nan=True):
        raise GradcheckError(f"{what},\nnumerical:{expected}\nanalytical:{found}\n")


def _check_batched(out: Tensor, watched: list[Tensor], atol: float, rtol: float) -> None:
    """Several gradients at once (vmap) must give what one after another gives."""
    seeds = [out.new_ones(out.shape) * (1 + k) for k in range(2)]
    singles = [grad(out, watched, seed, retain_graph=True, allow_unused=True) for seed in seeds]
    pair: Any = seeds[0].new_empty((2, *out.shape))
    for k, seed in enumerate(seeds):
        pair[k] = seed
    together = grad(out, watched, pair, retain_graph=True, allow_unused=True, is_grads_batched=True)
    for j, batch in enumerate(together):
        for k in range(2 if batch is not None else 0):
            _compare(_values(singles[k][j]), _values(batch[k]), f"Batched gradient of input {j}", atol, rtol)


def _check_undefined(outputs: list[Tensor], watched: list[Tensor]) -> None:
    """An output nobody used has no gradient: the backward function must do without, and zeros must give zeros."""
    for out in outputs:
        for g in grad(out, watched, out.new_zeros(out.shape), retain_graph=True, allow_unused=True):
            if g is not None and np.any(_values(g) != 0):
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are undefined or zero"
                )


def _check_constant(func: Callable, args: tuple, outputs: Any, watched: list[Tensor], eps: float) -> None:
    """Outputs that autograd does not follow must not move with the inputs."""
    for i, out in enumerate(_tensors(outputs)):
        if out.dtype.is_floating_point or out.dtype.is_complex:
            read = _reader(func, args, _tensors, i)
            if any(np.any(_numerical_jacobian(read, x, eps) != 0) for x in watched):
                raise GradcheckError("Numerical gradient for function expected to be zero")


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
    if check_fwd_over_rev or not check_rev_over_rev:
        raise NotImplementedError("gradgradcheck: tangents are not pushed through a backward pass (check_fwd_over_rev)")
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if grad_outputs is None:
        generator = np.random.RandomState(0)
        seeds = []
        for out in _differentiable(func(*args)):
            seed = copy_of_array(np.asarray(generator.standard_normal(out.shape), out.dtype.numpy), out.dtype)
            if gen_non_contig_grad_outputs and out.shape:
                seed = seed.unsqueeze(-1).repeat_interleave(2, -1)[..., 0]
            seeds.append(seed.requires_grad_())
    else:
        seeds = _tensors(grad_outputs)
    count = len(args)

    def gradient(*everything: Any) -> tuple:
        values, cotangents = everything[:count], everything[count:]
        outs = _differentiable(func(*values))
        wanted = [t for t in values if isinstance(t, Tensor) and t.requires_grad]
        result = grad(outs, wanted, cotangents, create_graph=True, allow_unused=True)
        return tuple(g for g in result if g is not None)

    return gradcheck(
        gradient, (*args, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
    )  # fmt: skip

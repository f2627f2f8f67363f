"""gradcheck and gradgradcheck: derivatives against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.aliases import AnyFunction
from ..core.sparse import SparseTensor
from ..core.tensor import Tensor, copy_of_array
from . import jacobians as jac
from .api import grad
from .engine import run_backward
from .jacobians import Point, differentiable, is_floating, tensors_in


class GradcheckError(RuntimeError):
    """Raised when an analytical gradient differs from the numerical one."""


@dataclass
class Settings:
    """The options of gradcheck, under PyTorch's names."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_undefined_grad: bool
    check_grad_dtypes: bool
    check_batched_grad: bool
    check_forward_ad: bool
    check_backward_ad: bool
    fast_mode: bool
    masked: bool


def gradcheck(
    func: Callable[..., Any],
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
    """Return whether the derivatives autograd computes agree with central differences (use float64 inputs).

    With `fast_mode` only along one random direction. Sparse inputs are varied at their stored values if `masked`, else everywhere."""
    if not check_forward_ad and not check_backward_ad:
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_forward_grad:
        if not check_forward_ad:
            raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
        raise NotImplementedError("gradcheck: check_batched_forward_grad is not implemented")
    settings = Settings(
        eps, atol, rtol, nondet_tol, check_undefined_grad and check_backward_ad, check_grad_dtypes, check_batched_grad,
        check_forward_ad, check_backward_ad, fast_mode, bool(masked),
    )  # fmt: skip
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    _check_inputs(args)
    try:
        _check(func, args, settings)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_inputs(args: tuple[Any, ...]) -> None:
    watched = [(i, t) for i, t in enumerate(args) if isinstance(t, Tensor) and t.requires_grad]
    if not watched:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    for i, t in watched:
        if t.dtype.to_real().itemsize != 8:
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will likely"
                " fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=3,
            )
        if not isinstance(t, SparseTensor) and any(n > 1 and s == 0 for n, s in zip(t.shape, t._strides)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be"
                " able to compute the numerical gradients correctly. You should call .contiguous on the input before passing it"
                " to gradcheck."
            )


def _check(func: AnyFunction, args: tuple[Any, ...], settings: Settings) -> None:
    everything = func(*args)
    if any(isinstance(t, SparseTensor) for t in tensors_in(everything)):
        raise ValueError(
            "Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of fn for"
            " gradcheck."
        )
    outputs = differentiable(everything)
    points = [Point(args, i, settings.masked) for i, t in enumerate(args) if isinstance(t, Tensor) and t.requires_grad]
    if not outputs and settings.check_backward_ad:
        _check_constant(func, points, everything, settings)
        return
    if settings.check_backward_ad:
        compare = _compare_directions if settings.fast_mode else _compare_jacobians
        compare(func, points, outputs, settings)
        for point in points:
            _check_linear(outputs, point)
        if settings.check_batched_grad:
            _check_batched(outputs, points)
        if settings.check_undefined_grad:
            _check_undefined(func, points, args)
    if settings.check_forward_ad:
        _compare_forward(func, points, settings)


def _check_constant(func: AnyFunction, points: list[Point], outputs: Any, settings: Settings) -> None:
    """Check that outputs which autograd does not follow do not change with the inputs."""

    def choose(outputs: Any) -> list[Tensor]:
        return [t for t in tensors_in(outputs) if is_floating(t)]

    for point in points:
        if any(np.any(m != 0) for m in jac.numerical(func, point, choose, choose(outputs), settings.eps)):
            raise GradcheckError("Numerical gradient for function expected to be zero")


# -- backward -----------------------------------------------------------------------------------------------------------


def _compare_jacobians(func: AnyFunction, points: list[Point], outputs: list[Tensor], settings: Settings) -> None:
    for j, point in enumerate(points):
        estimates = jac.numerical(func, point, differentiable, outputs, settings.eps)
        for i, (out, estimate) in enumerate(zip(outputs, estimates)):
            found, again = (jac.analytical(out, point, _make_inspector(point, settings)) for _ in range(2))
            _compare(
                estimate,
                found,
                out.dtype.is_complex,
                f"Jacobian mismatch for output {i} with respect to input {j}",
                settings,
            )
            _check_repeatable(found, again, settings)


def _compare(estimate: np.ndarray, found: np.ndarray, is_complex: bool, what: str, settings: Settings) -> None:
    columns = [("", slice(None))]
    if is_complex:
        prefix = "While considering the {} part of complex outputs only, "
        columns = [(prefix.format("imaginary"), slice(1, None, 2)), (prefix.format("real"), slice(0, None, 2))]
    for prefix, part in columns:
        a, b = estimate[..., part], found[..., part]
        if not np.allclose(b, a, settings.rtol, settings.atol, equal_nan=True):
            raise GradcheckError(f"{prefix}{what},\nnumerical:{a}\nanalytical:{b}\n")


def _check_repeatable(found: np.ndarray, again: np.ndarray, settings: Settings) -> None:
    if not np.allclose(found, again, 0, settings.nondet_tol, equal_nan=True):
        raise GradcheckError(
            "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different"
            f" values, although analytical gradient matches numerical gradient. The tolerance for nondeterminism was"
            f" {settings.nondet_tol}."
        )


def _make_inspector(point: Point, settings: Settings) -> Callable[[Tensor], None]:
    x = point.tensor

    def inspect(g: Tensor) -> None:
        if g.shape != x.shape:
            raise GradcheckError("Analytical gradient has incorrect size")
        if settings.check_grad_dtypes and g.dtype is not x.dtype:
            raise GradcheckError("Analytical gradient has dtype incorrect type")

    return inspect


def _compare_directions(func: AnyFunction, points: list[Point], outputs: list[Tensor], settings: Settings) -> None:
    """Compare one number per output and input: a random row times the Jacobian times a random column."""
    for j, point in enumerate(points):
        step = _random(point.count, point.is_complex, 1)
        changes = jac.difference(func, point, differentiable, step, settings.eps)
        for i, (out, change) in enumerate(zip(outputs, changes)):
            row = _random(out.numel(), out.dtype.is_complex, 2)
            products = []
            for _ in range(2):
                seed = jac.tensor_like(row, out)
                (g,) = grad(out, point.tensor, seed, retain_graph=True, allow_unused=True)
                if g is not None:
                    _make_inspector(point, settings)(g)
                rows = np.zeros(point.count) if g is None else point.rows(g)
                products.append(np.asarray((rows * step.conj()).real.sum()))
            what = f"Jacobian mismatch for output {i} with respect to input {j}"
            _compare_product(np.asarray(jac.as_real(row) @ change), products[0], row, step, what, settings)
            _check_repeatable(products[0], products[1], settings)


def _compare_product(
    estimate: np.ndarray, found: np.ndarray, row: np.ndarray, step: np.ndarray, what: str, settings: Settings
) -> None:
    tolerance = settings.atol * float(np.abs(row).sum() * np.abs(step).sum())  # each entry may be off by atol
    if not np.allclose(found, estimate, settings.rtol, tolerance, equal_nan=True):
        raise GradcheckError(
            f"{what},\nnumerical:{estimate}\nanalytical:{found}\nThe above quantities are along one direction."
        )


def _random(count: int, is_complex: bool, seed: int) -> np.ndarray:
    """Return a random direction whose elements are of similar size, so that every entry of the Jacobian counts."""
    generator = np.random.RandomState(seed)
    values = 0.5 + generator.random_sample(count)
    values = values + 1j * (0.5 + generator.random_sample(count)) if is_complex else values
    return values / max(float(np.sqrt((np.abs(values) ** 2).sum())), 1e-30)


def _check_linear(outputs: list[Tensor], point: Point) -> None:
    """Check that the gradients of zero gradients are zero, and have the layout of the input."""
    zeros = [jac.tensor_like(np.zeros(out.numel()), out) for out in outputs]
    (g,) = grad(outputs, point.tensor, zeros, retain_graph=True, allow_unused=True)
    x = point.tensor
    if g is None:
        return
    if g.layout is not x.layout and not (isinstance(x, SparseTensor) and not isinstance(g, SparseTensor)):
        raise GradcheckError(f"grad is incorrect layout ({g.layout} is not {x.layout})")
    if g.is_sparse and (g.sparse_dim() != x.sparse_dim() or g.dense_dim() != x.dense_dim()):
        raise GradcheckError("grad is sparse tensor, but has incorrect sparse_dim or dense_dim")
    if np.any(jac.values_of(g) != 0):
        raise GradcheckError("backward not multiplied by grad_output")


def _check_batched(outputs: list[Tensor], points: list[Point]) -> None:
    """Check that several gradients computed at once equal those computed one by one."""
    inputs = [point.tensor for point in points]
    for out in outputs:
        seeds = [jac.tensor_like(_random(out.numel(), out.dtype.is_complex, k), out) for k in (3, 4)]
        one_by_one = [grad(out, inputs, seed, retain_graph=True, allow_unused=True) for seed in seeds]
        batch = copy_of_array(np.stack([np.array(s._array()) for s in seeds]), out.dtype)
        problem: RuntimeError | None = None
        at_once: tuple[Any, ...] = ()
        try:
            at_once = grad(out, inputs, batch, retain_graph=True, allow_unused=True, is_grads_batched=True)
        except RuntimeError as error:
            problem = error
        if problem is not None or not _same(at_once, one_by_one):
            why = (
                f"vmap raised: {problem}"
                if problem is not None
                else "the results differ from those of single gradients"
            )
            raise GradcheckError(
                "gradcheck or gradgradcheck failed while testing batched gradient computation (check_batched_grad=True): "
                + why
            ) from problem


def _same(at_once: tuple[Any, ...], one_by_one: list[tuple[Any, ...]]) -> bool:
    for i, batch in enumerate(at_once):
        for k, single in enumerate(one_by_one):
            if (batch is None) != (single[i] is None):
                return False
            if batch is not None and not np.allclose(jac.values_of(batch[k]), jac.values_of(single[i]), 1e-5, 1e-8):
                return False
    return True


def _check_undefined(func: AnyFunction, points: list[Point], args: tuple[Any, ...]) -> None:
    """Check that outputs without a gradient, all or one of them, do not disturb the backward pass."""
    inputs = [point.tensor for point in points]
    count = len(differentiable(func(*args)))
    for missing in [tuple(range(count)), *((i,) for i in range(count) if count > 1)]:
        outputs = differentiable(func(*args))
        seeds: list[Any] = [None if i in missing else t.new_zeros(t.shape) for i, t in enumerate(outputs)]
        try:
            found = run_backward(outputs, seeds, True, False, inputs, False)
        except RuntimeError as problem:
            warnings.warn(
                "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may break"
                " existing callers of this function. If this is true for you, you can call this function with"
                ' "check_undefined_grad=False" to disable the feature',
                stacklevel=4,
            )
            raise GradcheckError(f"Expected backward function to handle undefined output grads: {problem}") from problem
        if any(g is not None and np.any(jac.values_of(g) != 0) for g in found):
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined or zero."
            )


# -- forward ------------------------------------------------------------------------------------------------------------


def _compare_forward(func: AnyFunction, points: list[Point], settings: Settings) -> None:
    def choose(outputs: Any) -> list[Tensor]:
        return [t for t in tensors_in(outputs) if is_floating(t)]

    for j, point in enumerate(points):
        outputs = jac.evaluate(func, point.args, choose)
        what = "Jacobian computed with forward mode mismatch for output {} with respect to input " + str(j)
        if settings.fast_mode:
            _compare_forward_direction(func, point, choose, outputs, what, settings)
            continue
        estimates = jac.numerical(func, point, choose, outputs, settings.eps)
        for i, found in enumerate(jac.forward(func, point, choose, outputs)):
            _compare(estimates[i], found, outputs[i].dtype.is_complex, what.format(i), settings)


def _compare_forward_direction(
    func: AnyFunction, point: Point, choose: AnyFunction, outputs: list[Tensor], what: str, settings: Settings
) -> None:
    step = _random(point.count, point.is_complex, 1)
    estimates = jac.difference(func, point, choose, step, settings.eps)
    for i, change in enumerate(jac.pushed(func, point, choose, step)):
        row = _random(len(estimates[i]), False, 2)
        found = np.zeros(()) if change is None else np.asarray(row @ change)
        _compare_product(np.asarray(row @ estimates[i]), found, row, step, what.format(i), settings)


# -- second derivatives -------------------------------------------------------------------------------------------------


def gradgradcheck(
    func: Callable[..., Any],
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
    """Check the derivatives of the gradient function itself, as `gradcheck` does."""
    if check_fwd_over_rev or not check_rev_over_rev:
        raise NotImplementedError("gradgradcheck: tangents are not pushed through a backward pass (check_fwd_over_rev)")
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    seeds = _seeds(func, args, gen_non_contig_grad_outputs) if grad_outputs is None else tensors_in(grad_outputs)
    count = len(args)
    watched = [i for i, t in enumerate(args) if isinstance(t, Tensor) and t.requires_grad]

    def gradient(*everything: Any) -> tuple[Any, ...]:
        values = everything[:count]
        outs = differentiable(func(*values))
        result = grad(outs, [values[i] for i in watched], everything[count:], create_graph=True, allow_unused=True)
        return tuple(g for g in result if g is not None)

    return gradcheck(
        gradient, (*args, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
        fast_mode=fast_mode, masked=masked,
    )  # fmt: skip


def _seeds(func: AnyFunction, args: tuple[Any, ...], with_gaps: bool) -> list[Tensor]:
    """Return random gradients of the outputs; `with_gaps`: every second element of larger tensors."""
    generator = np.random.RandomState(0)
    seeds = []
    for out in differentiable(func(*args)):
        values = generator.standard_normal((*out.shape, 2) if with_gaps else out.shape)
        seed = copy_of_array(np.asarray(values, out.dtype.numpy), out.dtype)
        seeds.append((seed[..., 0] if with_gaps else seed).requires_grad_())
    return seeds

"""Derivatives of functions as functions: vjp, jvp, jacobian, hessian, vhp, hvp.

Inputs and outputs are a tensor or a tuple of tensors, and results are nested the same way. Everything is computed by reverse passes: `jvp`
differentiates the vector-Jacobian product with respect to its vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.aliases import AnyFunction
from ..core.tensor import Tensor
from ..ops.creation.ranges import eye
from ..ops.shape.joining import stack
from .api import grad
from .grad_mode import enable_grad

Tensors = tuple[Tensor, ...]


def _as_tuple(given: Any, argument: str, function: str) -> tuple[Tensors, bool]:
    """Return the tensors as a tuple, and whether they were given as one."""
    if isinstance(given, Tensor):
        return (given,), False
    if not isinstance(given, tuple):
        what = f"The {argument} given to {function} must be either a Tensor or a tuple of Tensors"
        raise TypeError(f"{what} but the given {argument} has type {type(given)}.")
    for i, t in enumerate(given):
        if not isinstance(t, Tensor):
            what = f"The {argument} given to {function} must be either a Tensor or a tuple of Tensors"
            raise TypeError(f"{what} but the value at index {i} has type {type(t)}.")
    return given, True


def _prepare_inputs(inputs: Tensors, create_graph: bool) -> Tensors:
    """Return inputs to differentiate with respect to: joined to the caller's graph only if derivatives are to be differentiated."""
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in inputs)


def _finish(results: Any, create_graph: bool) -> Any:
    if create_graph:
        return results
    return results.detach() if isinstance(results, Tensor) else tuple(_finish(r, create_graph) for r in results)


def _unpack(results: tuple[Any, ...], is_tuple: bool) -> Any:
    return results if is_tuple else results[0]


def _check_vector(v: Any, like: Tensors, is_tuple: bool, function: str, what: str, create_graph: bool) -> Tensors:
    if v is None:
        if len(like) == 1 and like[0].numel() == 1:
            return (like[0].new_ones(like[0].shape),)
        raise RuntimeError(
            f"The vector v can only be None if {what} a single element: {function} needs one value per element."
        )
    vectors, _ = _as_tuple(v, "v", function)
    if len(vectors) != len(like):
        given = f"{len(vectors)} {'Tensor' if len(vectors) == 1 else 'Tensors'}"
        if not is_tuple:
            raise RuntimeError(f"The given v should contain a single Tensor. It is a tuple of {given}.")
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {given}.")
    for i, (a, b) in enumerate(zip(vectors, like)):
        if a.shape != b.shape:
            place = f"Entry {i} in v" if is_tuple else "v"
            raise RuntimeError(f"{place} has invalid size: should be {b.shape} but got {a.shape}.")
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach() for t in vectors)


# What strict=True complains of: results that do not require grad, and inputs that play no part in output {}.
_OUTPUT = (
    "Output {} of the user-provided function does not require gradients. The outputs must be computed in a differentiable"
    " manner from the input when running in strict mode.",
    "The output of the user-provided function is independent of input {1}. This is not allowed in strict mode.",
)
_EACH_OUTPUT = (
    _OUTPUT[0],
    "Output {0} of the user-provided function is independent of input {1}. This is not allowed in strict mode.",
)
_JACOBIAN = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is independent"
    " of the inputs or was not computed in a differentiable manner. This is not allowed in strict mode.",
    "The hessian of the user-provided function is independent of input {1}. This is not allowed in strict mode.",
)
_AGAIN = "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict mode when create_graph=True."

Complaints = tuple[str, str]


def _require_gradients(results: Tensors, complaint: str) -> None:
    for i, t in enumerate(results):
        if not t.requires_grad:
            raise RuntimeError(complaint.format(i))


def _gradients(
    outputs: Tensors, inputs: Tensors, seeds: Any, create_graph: bool, strict: Complaints | None, first: int = 0
) -> Tensors:
    """Run one reverse pass; unused inputs have zero derivatives (an error if `strict`)."""
    pairs = [(o, s) for o, s in zip(outputs, seeds) if o.requires_grad]
    if strict is not None:
        _require_gradients(outputs, strict[0])
    found: tuple[Any, ...] = (None,) * len(inputs)
    if pairs:
        found = grad(
            [o for o, _ in pairs], inputs, [s for _, s in pairs],
            create_graph=create_graph, retain_graph=True, allow_unused=True,
        )  # fmt: skip
    for i, g in enumerate(found):
        if g is None and strict is not None:
            raise RuntimeError(strict[1].format(first, i))
    return tuple(t.new_zeros(t.shape) if g is None else g for g, t in zip(found, inputs))


def _evaluate(func: AnyFunction, inputs: Tensors, function: str) -> tuple[Tensors, bool]:
    return _as_tuple(func(*inputs), "outputs of the user-provided function", function)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, ...]:  # fmt: skip
    """Return (func(inputs), the vector `v` times the Jacobian).

    >>> vjp(lambda x: x * x, tensor([1.0, 2.0]), ones(2))[1]
    tensor([2., 4.])
    """
    given, is_tuple = _as_tuple(inputs, "inputs", "vjp")
    with enable_grad():
        points = _prepare_inputs(given, create_graph)
        outputs, several = _evaluate(func, points, "vjp")
        vectors = _check_vector(v, outputs, several, "vjp", "the user-provided function returns", create_graph)
        products = _gradients(outputs, points, vectors, create_graph, _OUTPUT if strict else None)
        if strict and create_graph:
            _require_gradients(products, _AGAIN)
    return _unpack(_finish(outputs, create_graph), several), _unpack(_finish(products, create_graph), is_tuple)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, ...]:  # fmt: skip
    """Return (func(inputs), the Jacobian times the vector `v`)."""
    given, is_tuple = _as_tuple(inputs, "inputs", "jvp")
    with enable_grad():
        points = _prepare_inputs(given, create_graph)
        vectors = _check_vector(v, points, is_tuple, "jvp", "the input to the user-provided function has", create_graph)
        outputs, several = _evaluate(func, points, "jvp")
        products = _forward(outputs, points, vectors, create_graph, _OUTPUT if strict else None)
        if strict and create_graph:
            _require_gradients(products, _AGAIN)
    return _unpack(_finish(outputs, create_graph), several), _unpack(_finish(products, create_graph), several)


def _forward(
    outputs: Tensors, points: Tensors, vectors: Tensors, create_graph: bool, strict: Complaints | None
) -> Tensors:
    """Return the Jacobian times vectors: the vector-Jacobian product is linear in its vector, so its derivative is the Jacobian."""
    seeds = tuple(o.new_ones(o.shape).requires_grad_() for o in outputs)
    backward = _gradients(outputs, points, seeds, True, strict)
    return _gradients(backward, seeds, vectors, create_graph, None)


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Return all first derivatives: for each output and input a tensor of shape (*output.shape, *input.shape).

    One reverse pass per element of the outputs, or with strategy="forward-mode" one product per element of the inputs; with
    `vectorize` all of them at once.
    """
    _check_strategy(strict, vectorize, strategy)
    complaints = _EACH_OUTPUT if strict else None
    return _jacobian(func, inputs, create_graph, complaints, vectorize, strategy)


def _check_strategy(strict: bool, vectorize: bool, strategy: str) -> None:
    if strategy not in ("reverse-mode", "forward-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs than'
            ' inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-mode AD only implemented for `vectorize=True`.")
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either"
            " set `strict=False` or `vectorize=False`."
        )


def _jacobian(
    func: AnyFunction, inputs: Any, create_graph: bool, strict: Complaints | None, vectorize: bool, strategy: str
) -> Any:
    given, is_tuple = _as_tuple(inputs, "inputs", "jacobian")
    with enable_grad():
        points = _prepare_inputs(given, create_graph)
        outputs, several = _evaluate(func, points, "jacobian")
        if strategy == "forward-mode":
            blocks = _columns_at_once(outputs, points, create_graph)
        elif vectorize:
            blocks = [_products_at_once(out, points, create_graph) for out in outputs]
        else:
            blocks = _rows(outputs, points, create_graph, strict)
            if strict is _EACH_OUTPUT and create_graph:
                for row in blocks:
                    _require_gradients(row, _AGAIN)
    table = tuple(_unpack(row, is_tuple) for row in blocks)
    return _finish(_unpack(table, several), create_graph)


def _unit_vectors(like: Tensor) -> list[Tensor]:
    count = like.numel()
    units = []
    for i in range(count):
        unit = like.new_zeros(count)
        unit[i] = 1
        units.append(unit.reshape(like.shape))
    return units


def _rows(outputs: Tensors, points: Tensors, create_graph: bool, strict: Complaints | None) -> list[tuple[Any, ...]]:
    blocks = []
    if strict is not None:
        _require_gradients(outputs, strict[0])
    for i, out in enumerate(outputs):
        rows = [_gradients((out,), points, (unit,), create_graph, strict, i) for unit in _unit_vectors(out)]
        blocks.append(tuple(_stack([r[k] for r in rows], (*out.shape, *p.shape), p) for k, p in enumerate(points)))
    return blocks


def _products_at_once(out: Tensor, points: Tensors, create_graph: bool) -> tuple[Any, ...]:
    """Return the derivatives of all elements of `out`, (*out.shape, *point.shape) for each point."""
    n = out.numel()
    found: tuple[Any, ...] = (None,) * len(points)
    if out.requires_grad and n:
        units = eye(n, dtype=out.dtype, device=out.device).reshape((n, *out.shape))
        found = grad(out, points, units, True, create_graph, allow_unused=True, is_grads_batched=True)
    shapes = [(*out.shape, *p.shape) for p in points]
    return tuple(p.new_zeros(s) if g is None else g.reshape(s) for g, p, s in zip(found, points, shapes))


def _columns_at_once(outputs: Tensors, points: Tensors, create_graph: bool) -> list[tuple[Any, ...]]:
    """Compute the Jacobian's columns from the inputs: rows times unknown vectors, differentiated with respect to the vectors."""
    seeds = tuple(o.new_ones(o.shape).requires_grad_() for o in outputs)
    backward = _gradients(outputs, points, seeds, True, None)
    table: list[list[Any]] = [[] for _ in outputs]
    for row, point in zip(backward, points):
        for i, block in enumerate(_products_at_once(row, seeds, create_graph)):
            order = (*range(len(point.shape), len(block.shape)), *range(len(point.shape)))
            table[i].append(block.permute(order))
    return [tuple(row) for row in table]


def _stack(parts: list[Tensor], shape: tuple[int, ...], like: Tensor) -> Tensor:
    if not parts:
        return like.new_zeros(shape)
    return stack(parts).reshape(shape)


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Return all second derivatives of a function with one number as result."""
    given, is_tuple = _as_tuple(inputs, "inputs", "hessian")

    def gradient(*points: Tensor) -> Any:
        outputs, _ = _scalar(func, points, "hessian")
        if strict:
            _require_gradients(outputs, _OUTPUT[0])
        gradients = _gradients(outputs, points, (outputs[0].new_ones(outputs[0].shape),), True, None)
        return gradients if is_tuple else gradients[0]

    _check_strategy(strict, vectorize, outer_jacobian_strategy)
    argument = given if is_tuple else given[0]
    complaints = _JACOBIAN if strict else None
    return _jacobian(gradient, argument, create_graph, complaints, vectorize, outer_jacobian_strategy)


def _scalar(func: AnyFunction, points: Tensors, function: str) -> tuple[Tensors, bool]:
    outputs, several = _evaluate(func, points, function)
    if several or not isinstance(outputs[0], Tensor):
        raise RuntimeError(f"The function given to {function} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {function} should contain a single element")
    return outputs, several


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, ...]:  # fmt: skip
    """Return (func(inputs), the vector `v` times the Hessian)."""
    return _hessian_product("vhp", _gradients, func, inputs, v, create_graph, strict)


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, ...]:  # fmt: skip
    """Return (func(inputs), the Hessian times the vector `v`). Symmetry of the Hessian is not assumed."""
    return _hessian_product("hvp", _forward, func, inputs, v, create_graph, strict)


def _hessian_product(
    name: str, product: AnyFunction, func: AnyFunction, inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, ...]:
    given, is_tuple = _as_tuple(inputs, "inputs", name)
    with enable_grad():
        points = _prepare_inputs(given, create_graph)
        vectors = _check_vector(v, points, is_tuple, name, "the input to the user-provided function has", create_graph)
        outputs, _ = _scalar(func, points, name)
        ones = (outputs[0].new_ones(outputs[0].shape),)
        first = _gradients(outputs, points, ones, True, _OUTPUT if strict else None)
        second = product(first, points, vectors, create_graph, _JACOBIAN if strict else None)
    return _finish(outputs[0], create_graph), _unpack(_finish(second, create_graph), is_tuple)


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

"""Derivatives of functions: gradients, products with Jacobians, Jacobians, Hessians. All nest, with each other and vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..autograd.engine import LinearPass
from ..core.pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten
from ..core.tensor import Tensor
from ..ops.creation.ranges import eye
from .mapping import vmap
from .tape import Tape, products, zeros_like

Function = Callable[..., Any]
Argnums = Any  # an int or a tuple of ints

# -- choosing arguments -------------------------------------------------------------------------------------------------


def _argument_positions(args: tuple, argnums: Argnums) -> tuple[int, ...]:
    """Return the positions that `argnums` names."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if isinstance(argnums, tuple) and not argnums:
        raise RuntimeError("Tuple argnums must be non-empty")
    positions = []
    for n in argnums if isinstance(argnums, tuple) else (argnums,):
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
        positions.append(n % len(args))
    if len(set(positions)) != len(positions):
        raise RuntimeError(f"All elements in argnums must be unique, got {argnums}")
    return tuple(positions)


def _partial_function(func: Callable, args: tuple, kwargs: dict, argnums: Argnums) -> tuple[Callable, tuple]:
    """Return the function of the chosen arguments alone, and those arguments."""
    positions = _argument_positions(args, argnums)

    def partial(*chosen: Any) -> Any:
        given = list(args)
        for position, value in zip(positions, chosen):
            given[position] = value
        return func(*given, **kwargs)

    return partial, tuple(args[p] for p in positions)


# -- reverse mode -------------------------------------------------------------------------------------------------------


def _split_aux(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return result


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """Return the function that computes the gradient of `func`, whose result is one number.

    >>> grad(flambeau.sin)(flambeau.tensor(0.0))
    tensor(1.)
    """

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """Return the function that computes (gradient, value), or with has_aux (gradient, (value, aux))."""

    @functools.wraps(func)
    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        chosen = _argument_positions(args, argnums)
        tape = Tape()
        with tape:
            given = list(args)
            for position in chosen:
                given[position] = tree_map(tape.follow, args[position])
            value, aux = _split_aux(func(*given, **kwargs), has_aux, "grad_and_value(f)(*args)")
            _check_number(value)
            lowered = tape.lower(value)
            follows_on = tape.leads_outside([lowered])
            found = products([lowered], tape.leaves, [lowered.new_ones(lowered.shape)], follows_on)
            found = [tape.raise_(g) for g in found]
        gradients = []
        for position in chosen:
            leaves, spec = tree_flatten(args[position])
            gradients.append(tree_unflatten(found[: len(leaves)], spec))
            found = found[len(leaves) :]
        result = tuple(gradients) if isinstance(argnums, tuple) else gradients[0]
        value = tape.let_go(value)
        return result, (value, tape.let_go(aux)) if has_aux else value

    return gradient_and_value


def _check_number(value: Any) -> None:
    said = "grad_and_value(f)(*args): Expected f(*args) to return"
    if not isinstance(value, Tensor):
        raise RuntimeError(f"{said} a Tensor, got {type(value)}")
    if value.shape:
        raise RuntimeError(
            f"{said} a scalar Tensor, got tensor with {len(value.shape)} dims. Maybe you wanted to use the vjp or jacrev"
            " APIs instead?"
        )


def _flat_outputs(outputs: Any, name: str) -> tuple[list[Tensor], TreeSpec]:
    flat, spec = tree_flatten(outputs)
    if isinstance(outputs, Tensor):
        return flat, spec
    if not flat or outputs is None:
        raise RuntimeError(f"{name}: Expected f to be a function that has non-empty output (got output = {outputs})")
    for one in flat:
        if not isinstance(one, Tensor):
            raise RuntimeError(f"{name}: expected f(*primals) to return only tensors, got unsupported type {type(one)}")
    return flat, spec


class _TracedCall:
    """A function that has been called once, with the graph of the call."""

    def __init__(self, func: Callable, primals: tuple, has_aux: bool, name: str):
        self.tape = Tape()
        with self.tape as tape:
            self.spec = tree_flatten(primals)[1]
            inside = tree_map(tape.follow if name.startswith("vjp") else tape.follow_forward, primals)
            outputs, self.aux = _split_aux(func(*inside), has_aux, name)
            flat, self.out_spec = _flat_outputs(outputs, name)
            self.lowered = [tape.lower(o) for o in flat]
            self.shapes = [o.shape for o in flat]
        self.outputs = tape.let_go(outputs)
        self.aux = tape.let_go(self.aux)

    def back(self, vectors: list[Tensor], create_graph: bool) -> list[Tensor]:
        """Return vectors times the Jacobian, one product per leaf of the inputs."""
        tape = self.tape
        lowered = [tape.lower(v) for v in vectors]
        return [tape.raise_(g) for g in products(self.lowered, tape.leaves, lowered, create_graph)]

    def needs_graph(self, vectors: list[Tensor]) -> bool:
        tape = Tape()  # the world at the time of this call, not of the first
        if not tape.records_outside:
            return False
        reached = [t for t in (*self.lowered, *vectors) if t.requires_grad]
        self.tape.records_outside = True
        return self.tape.leads_outside(reached)


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return (func(*primals), the function that multiplies a vector with the Jacobian there[, aux])."""
    traced = _TracedCall(func, primals, has_aux, "vjp(f, *primals)")

    def product(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> tuple:
        vectors, spec = tree_flatten(cotangents)
        if spec != traced.out_spec:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function."
                f" cotangents: {spec}, primal output: {traced.out_spec}"
            )
        for i, (v, shape) in enumerate(zip(vectors, traced.shapes)):
            if v.shape != shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {v.shape} and output[{i}] has a shape of {shape}."
                )
        follows_on = traced.needs_graph(vectors) if create_graph is None else create_graph
        return tree_unflatten(traced.back(vectors, follows_on), traced.spec)

    return (traced.outputs, product, traced.aux) if has_aux else (traced.outputs, product)


# -- forward mode -------------------------------------------------------------------------------------------------------


class _LinearMap:
    """The derivative of a traced function as a linear map of the inputs. A vector times the Jacobian is linear in the
    vector, so the derivative of that product is the Jacobian itself."""

    def __init__(self, traced: _TracedCall):
        self.traced, tape = traced, traced.tape
        before = tape.records_outside
        with Tape():
            self.seeds = [_default_seed(o) for o in traced.lowered]
            for seed in self.seeds:
                seed._ensure_autograd().tape = tape
            self.rows = products(traced.lowered, tape.leaves, self.seeds, True, LinearPass)
        tape.records_outside = before

    def jvp(self, tangents: list[Tensor]) -> list[Tensor]:
        traced, tape = self.traced, self.traced.tape
        follows_on = traced.needs_graph(tangents) or (traced.needs_graph([]) and tape.leads_outside(self.rows))
        lowered = [tape.lower(t) for t in tangents]
        reals = [s for s in self.seeds if s.requires_grad]
        found = iter(products(self.rows, reals, lowered, follows_on))
        return [tape.raise_(next(found) if s.requires_grad else zeros_like(s)) for s in self.seeds]


def _default_seed(output: Tensor) -> Tensor:
    seed = output.new_ones(output.shape)
    return seed.requires_grad_() if output.dtype.is_floating_point or output.dtype.is_complex else seed


def _check_tangents(primals: Any, tangents: Any, name: str) -> list[Tensor]:
    flat, spec = tree_flatten(primals)
    if not flat:
        raise RuntimeError(f"{name}: Expected primals to contain at least one Tensor.")
    vectors, given = tree_flatten(tangents)
    if spec != given:
        raise RuntimeError(
            f"{name}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple"
            f" of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure {given}"
        )
    for p, v in zip(flat, vectors):
        for what, one in (("primals", p), ("tangents", v)):
            if not isinstance(one, Tensor):
                raise RuntimeError(f"{name}: Expected {what} to only contain Tensors, got {type(one)}")
        if p.shape != v.shape:
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not"
                f" supported. Tensor is of size {list(p.shape)} while the given forward gradient is of size"
                f" {list(v.shape)}."
            )
        _check_differentiable(p)
    return vectors


def _check_differentiable(primal: Any) -> None:
    if not isinstance(primal, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(primal)}")
    if not (primal.dtype.is_floating_point or primal.dtype.is_complex):
        raise ValueError(f"Expected primal to be floating point or complex, but got: {primal.dtype}")


def jvp(func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> tuple[Any, ...]:
    """Return (func(*primals), the Jacobian there times the tangents[, aux])."""
    name = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{name}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")
    vectors = _check_tangents(primals, tangents, name)
    traced = _TracedCall(func, primals, has_aux, name)
    if strict and not all(o.requires_grad for o in traced.lowered):
        raise RuntimeError(f"{name}: with strict=True every output must depend on the inputs")
    result = tree_unflatten(_LinearMap(traced).jvp(vectors), traced.out_spec)
    return (traced.outputs, result, traced.aux) if has_aux else (traced.outputs, result)


def linearize(func: Function, *primals: Any) -> tuple[Any, ...]:
    """Return (func(*primals), the function that multiplies the Jacobian there with tangents)."""
    for leaf in tree_flatten(primals)[0]:
        _check_differentiable(leaf)
    traced = _TracedCall(func, primals, False, "linearize(f, *primals)")
    linear = _LinearMap(traced)

    def product(*tangents: Any) -> Any:
        vectors = _check_tangents(primals, tangents, "linearize")
        return tree_unflatten(linear.jvp(vectors), traced.out_spec)

    return traced.outputs, product


# -- whole Jacobians ----------------------------------------------------------------------------------------------------


def _basis(tensors: list[Tensor]) -> list[Tensor]:
    """Return one row for every element of all tensors: tensors that are 1 there and 0 elsewhere."""
    counts = [t.numel() for t in tensors]
    total, start, rows = sum(counts), 0, []
    for t, n in zip(tensors, counts):
        block = eye(total, dtype=t.dtype, device=t.device).narrow(1, start, n)
        rows.append(block.reshape((total, *t.shape)))
        start += n
    return rows


def jacrev(
    func: Function,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Function:
    """Return the function that computes the Jacobian of `func`, row by row: all rows at once, or `chunk_size` at a time.

    >>> jacrev(flambeau.square)(flambeau.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        partial, primals = _partial_function(func, args, kwargs, argnums)
        traced = _TracedCall(partial, primals, has_aux, "vjp(f, *primals)")
        outputs = tree_flatten(traced.outputs)[0]
        follows_on = traced.needs_graph([])
        rows = _map_over(lambda *vectors: tuple(traced.back(list(vectors), follows_on)), _basis(outputs), chunk_size)
        inputs = tree_flatten(primals)[0]
        table, start = [], 0
        for out in outputs:
            n = out.numel()
            blocks = [r.narrow(0, start, n).reshape((*out.shape, *x.shape)) for r, x in zip(rows, inputs)]
            table.append(_nest_by_argument(blocks, traced.spec, argnums))
            start += n
        result = tree_unflatten(table, traced.out_spec)
        return (result, traced.aux) if has_aux else result

    return jacobian


def _map_over(product: Callable, basis: list[Tensor], chunk_size: int | None, randomness: str = "error") -> tuple:
    return vmap(product, randomness=randomness, chunk_size=chunk_size)(*basis)


def _nest_by_argument(blocks: list[Tensor], spec: TreeSpec, argnums: Argnums) -> Any:
    result = tree_unflatten(blocks, spec)
    return result if isinstance(argnums, tuple) else result[0]


def jacfwd(func: Function, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Function:
    """Return the function that computes the Jacobian of `func` column by column, all at once."""

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        partial, primals = _partial_function(func, args, kwargs, argnums)
        inputs = tree_flatten(primals)[0]
        for x in inputs:
            _check_differentiable(x)
        traced = _TracedCall(partial, primals, has_aux, "jvp(f, primals, tangents)")
        linear = _LinearMap(traced)
        columns = _map_over(lambda *tangents: tuple(linear.jvp(list(tangents))), _basis(inputs), None, randomness)
        table = []
        for out, column in zip(tree_flatten(traced.outputs)[0], columns):
            blocks, start = [], 0
            for x in inputs:
                n = x.numel()
                blocks.append(column.narrow(0, start, n).movedim(0, -1).reshape((*out.shape, *x.shape)))
                start += n
            table.append(_nest_by_argument(blocks, traced.spec, argnums))
        result = tree_unflatten(table, traced.out_spec)
        return (result, traced.aux) if has_aux else result

    return jacobian


def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """Return the function that computes the second derivatives of `func`: forward over reverse."""
    return jacfwd(jacrev(func, argnums), argnums)


def functionalize(func: Function, *, remove: str = "mutations") -> Function:
    """Return `func` unchanged: mutations and views matter only to a compiler's trace, not to results."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for remove= . Valid options are: remove="
            f"'mutations' and remove='mutations_and_views', got {remove!r}"
        )

    @functools.wraps(func)
    def same(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return same

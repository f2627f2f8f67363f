"""vmap: a function of one element, applied to a whole batch at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.batched import batched
from ..core.generator import default_generator
from ..core.pytree import TreeSpec, tree_flatten, tree_unflatten
from ..core.tensor import Tensor
from ..ops.shape.joining import cat
from . import rules  # noqa: F401  fills the table of batching rules
from .batching import Level

Function = Callable[..., Any]
Dims = Any  # an int, None, or a tree of these with the structure of the arguments (or of its upper part)


def vmap(
    func: Function, in_dims: Dims = 0, out_dims: Dims = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Function:
    """`func` mapped over dimension `in_dims` of its arguments; results are stacked along `out_dims`.

    `randomness` says what random operators inside do: refuse ("error"), draw for each element ("different") or once for
    all ("same"). With `chunk_size` at most that many elements are computed at once.

    >>> flambeau.vmap(flambeau.dot)(flambeau.ones(3, 2), flambeau.ones(3, 2))
    tensor([2., 2., 2.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        size, leaves, dims, spec = flat_arguments(func, in_dims, args)

        def run(length: int, part: list) -> Any:
            return run_batch(func, length, part, dims, spec, out_dims, randomness, kwargs)

        if chunk_size is None or chunk_size >= size:
            return run(size, leaves)
        return _in_chunks(run, size, leaves, dims, out_dims, chunk_size, randomness == "same")

    return mapped


# -- arguments --------------------------------------------------------------------------------------------------------


def _name(func: Callable) -> str:
    return getattr(func, "__name__", repr(func))


def flat_arguments(func: Callable, in_dims: Dims, args: tuple) -> tuple[int, list, list, TreeSpec]:
    """The batch size, the leaves of the arguments and a dimension (or None) for each."""
    said = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{said}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got:"
            f" {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over"
            " a function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args)
    dims = spread(in_dims, args)
    if dims is None:
        raise ValueError(
            f"{said}: in_dims is not compatible with the structure of `inputs`. in_dims has structure"
            f" {tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    checked = [_checked_dim(said, leaf, dim) for leaf, dim in zip(leaves, dims)]
    return _batch_size(leaves, checked, said), leaves, checked, spec


def spread(dims: Dims, tree: Any) -> list | None:
    """A tree of dimensions, or the upper part of one, as a list with an entry per leaf; None where it does not fit."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(tree_flatten(tree)[0])
    children, kind = _children(tree), type(dims)
    given = _children(dims)
    if children is None or given is None or kind is not type(tree):
        return [dims] if given is None and isinstance(tree, Tensor) else None
    if isinstance(dims, dict):
        if set(dims) != set(tree):
            return None
        pairs = [(dims[k], tree[k]) for k in tree]
    else:
        if len(given) != len(children):
            return None
        pairs = list(zip(given, children))
    result: list = []
    for part, child in pairs:
        found = spread(part, child)
        if found is None:
            return None
        result += found
    return result


def _children(tree: Any) -> list | None:
    if isinstance(tree, dict):
        return list(tree.values())
    return list(tree) if isinstance(tree, (tuple, list)) else None


def _checked_dim(said: str, leaf: Any, dim: Any) -> int | None:
    if not isinstance(dim, int):
        if dim is None:
            return None
        raise ValueError(
            f"{said}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(leaf, Tensor):
        raise ValueError(
            f"{said}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over non-Tensor"
            " arguments, please use None as the respective in_dim"
        )
    rank = len(leaf.shape)
    if not -rank <= dim < rank:
        raise ValueError(
            f"{said}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {rank} so expected"
            f" in_dim to satisfy -{rank} <= in_dim < {rank}."
        )
    return dim % rank


def _batch_size(leaves: list, dims: list, said: str) -> int:
    sizes = [leaf.shape[dim] for leaf, dim in zip(leaves, dims) if dim is not None]
    if not sizes:
        raise ValueError(f"{said}: at least one in_dim must be an integer, so that there is something to map over.")
    if any(n != sizes[0] for n in sizes):
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped"
            " dimension"
        )
    return sizes[0]


# -- running ----------------------------------------------------------------------------------------------------------


def run_batch(
    func: Callable, size: int, leaves: list, dims: list, spec: TreeSpec, out_dims: Dims, randomness: str, kwargs: dict
) -> Any:
    with Level(size, randomness) as level:
        inside = [leaf if dim is None else batched(leaf, dim, level) for leaf, dim in zip(leaves, dims)]
        outputs = func(*tree_unflatten(inside, spec), **kwargs)
    return _outside(level, func, outputs, out_dims)


def _outside(level: Level, func: Callable, outputs: Any, out_dims: Dims) -> Any:
    """The results, with the hidden dimension where `out_dims` wants it."""
    leaves, spec = tree_flatten(outputs)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(leaf)}. Did you mean"
                " to set out_dims= to None for output?"
            )
    dims = spread(out_dims, outputs)
    if dims is None and isinstance(out_dims, (tuple, list)) and len(out_dims) == len(leaves) == 1:
        dims = list(out_dims)
    if dims is None or not all(isinstance(d, int) or d is None for d in dims):
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of"
            f" `outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    return tree_unflatten([_placed(level, func, leaf, dim) for leaf, dim in zip(leaves, dims)], spec)


def _placed(level: Level, func: Callable, leaf: Any, dim: int | None) -> Tensor:
    if dim is None:
        if level.owns(leaf):
            raise ValueError(
                f"vmap({_name(func)}, ...): `{_name(func)}` can not return a BatchedTensor when out_dim is None"
            )
        return leaf
    rank = len(leaf.shape) + 1
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    if level.owns(leaf):
        return leaf._value if leaf._hidden == dim % rank else leaf._value.movedim(leaf._hidden, dim)
    return level.full(leaf).movedim(0, dim)


def _in_chunks(
    run: Callable, size: int, leaves: list, dims: list, out_dims: Dims, chunk_size: int, draws_once: bool
) -> Any:
    parts, structure = [], None
    drawn_from = default_generator.get_state() if draws_once else None
    for start in range(0, size, chunk_size):
        if drawn_from is not None:
            default_generator.set_state(drawn_from)
        length = min(chunk_size, size - start)
        piece = [x if d is None else x.narrow(d, start, length) for x, d in zip(leaves, dims)]
        flat, structure = tree_flatten(run(length, piece))
        parts.append(flat)
    assert structure is not None
    where = spread(out_dims, tree_unflatten(parts[0], structure)) or [0] * len(parts[0])
    joined = [column[0] if d is None else cat(list(column), d) for column, d in zip(zip(*parts), where)]
    return tree_unflatten(joined, structure)

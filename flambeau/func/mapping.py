"""vmap: a function of one element, applied to a whole batch at once.

Its steps have PyTorch's names (the module is `torch._functorch.vmap`, too), because libraries with tensor collections of their own replace
them; the level of a running vmap, which they pass on, is an object here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.batched import batched
from ..core.generator import default_generator
from ..core.pytree import TreeSpec, tree_flatten, tree_is_leaf, tree_unflatten
from ..core.tensor import Tensor
from ..ops.shape.joining import cat
from .batching import Level

Function = Callable[..., Any]
Dims = Any  # an int, None, or a tree of these with the structure of the arguments (or of its upper part)


def vmap(
    func: Function, in_dims: Dims = 0, out_dims: Dims = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Function:
    """Map `func` over dimension `in_dims` of its arguments; results are stacked along `out_dims`.

    `randomness` sets what random operators inside do: refuse ("error"), draw for each element ("different") or once for all ("same"). With
    `chunk_size` at most that many elements are computed at once.

    >>> flambeau.vmap(flambeau.dot)(flambeau.ones(3, 2), flambeau.ones(3, 2))
    tensor([2., 2., 2.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        size, dims, leaves, spec = _process_batched_inputs(in_dims, args, func)

        def run(length: int, part: list) -> Any:
            with Level(length, randomness) as level:
                outputs = func(*_create_batched_inputs(dims, part, level, spec), **kwargs)
            return _unwrap_batched(outputs, out_dims, level, length, func)

        if chunk_size is None or chunk_size >= size:
            return run(size, leaves)
        return _run_in_chunks(run, size, leaves, dims, out_dims, chunk_size, randomness == "same")

    return mapped


# -- arguments --------------------------------------------------------------------------------------------------------


def _get_name(func: Callable) -> str:
    """Return the name of a function, or its repr if it has none."""
    return getattr(func, "__name__", repr(func))


def _process_batched_inputs(in_dims: Dims, args: tuple, func: Callable) -> tuple[int, list, list, TreeSpec]:
    """Return the batch size, a dimension (or None) for each leaf of the arguments, the leaves, and the structure of the arguments."""
    said = f"vmap({_get_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{said}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, got:"
            f" {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_get_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over"
            " a function with no inputs. The latter is unsupported."
        )
    leaves, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{said}: in_dims is not compatible with the structure of `inputs`. in_dims has structure"
            f" {tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    checked = [_check_dim(said, leaf, dim) for leaf, dim in zip(leaves, dims)]
    return _batch_size(leaves, checked, said), checked, leaves, spec


def _broadcast_to_and_flatten(tree: Any, treespec: Any, is_leaf: Any = None) -> list[Any] | None:
    """Return values of `tree`, one for each leaf of a structure: a leaf applies to all leaves below its place; None if they do not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf():
        return None
    children, spec = tree_flatten(tree, lambda x: x is not tree or (is_leaf is not None and is_leaf(x)))
    if spec.type != treespec.type or spec.context != treespec.context or len(children) != treespec.num_children:
        return None
    parts = [_broadcast_to_and_flatten(a, b, is_leaf) for a, b in zip(children, treespec.children())]
    return None if any(part is None for part in parts) else [leaf for part in parts for leaf in part or ()]


def _check_dim(said: str, leaf: Any, dim: Any) -> int | None:
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


def _create_batched_inputs(flat_in_dims: list, flat_args: list, vmap_level: Level, args_spec: TreeSpec) -> Any:
    """Return the arguments for the function: without the dimensions that are mapped over."""
    inside = [x if d is None else _add_batch_dim(x, d, vmap_level) for x, d in zip(flat_args, flat_in_dims)]
    return tree_unflatten(inside, args_spec)


def _add_batch_dim(tensor: Tensor, in_dim: int, vmap_level: Level) -> Tensor:
    """Hide a dimension of a tensor from the function that a vmap runs."""
    return batched(tensor, in_dim, vmap_level)


def _unwrap_batched(outputs: Any, out_dims: Dims, vmap_level: Level, batch_size: int, func: Callable) -> Any:
    """Return the results, with the hidden dimension at `out_dims`."""
    leaves, spec = tree_flatten(outputs)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise ValueError(
                f"vmap({_get_name(func)}, ...): `{_get_name(func)}` must only return Tensors, got type {type(leaf)}. Did you mean"
                " to set out_dims= to None for output?"
            )
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if dims is None and isinstance(out_dims, (tuple, list)) and len(out_dims) == len(leaves) == 1:
        dims = list(out_dims)
    if dims is None or not all(isinstance(d, int) or d is None for d in dims):
        raise ValueError(
            f"vmap({_get_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of"
            f" `outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    name = _get_name(func)
    placed = [_maybe_remove_batch_dim(name, leaf, vmap_level, batch_size, dim) for leaf, dim in zip(leaves, dims)]
    return tree_unflatten(placed, spec)


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: Level, batch_size: int, out_dim: int | None
) -> Tensor:
    """Return a result of the function `name` with its hidden dimension, or repeated `batch_size` times, at `out_dim`; unchanged for None."""
    if out_dim is None:
        if vmap_level.owns(batched_output):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return batched_output
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


def _remove_batch_dim(tensor: Any, vmap_level: Level, batch_size: int, out_dim: int) -> Tensor:
    """Return a tensor of a level with its hidden dimension at `out_dim`; one that is equal for all elements is repeated there."""
    rank = len(tensor.shape) + 1
    if not -rank <= out_dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {out_dim})"
        )
    if vmap_level.owns(tensor):
        value, hidden = tensor._value, tensor._hidden
        return value if hidden == out_dim % rank else value.movedim(hidden, out_dim)
    return vmap_level.full(tensor).movedim(0, out_dim)


def _run_in_chunks(
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
    where = _broadcast_to_and_flatten(out_dims, structure) or [0] * len(parts[0])
    joined = [column[0] if d is None else cat(list(column), d) for column, d in zip(zip(*parts), where)]
    return tree_unflatten(joined, structure)

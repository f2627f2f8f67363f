"""Splitting of a batch into microbatches, and merging of their results."""

from __future__ import annotations

import operator
from typing import Any

from ...core.tensor import Tensor
from ...ops.shape.joining import cat
from ...ops.shape.parts import tensor_split
from ...utils._pytree import tree_flatten, tree_unflatten

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]

DEFAULT_CHUNK_DIM = 0


class _CustomReducer:
    """Merges the results of microbatches by a function: reduce_fn(so far, next)."""

    def __init__(self, init_value: Any, reduce_fn: Any) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


class _LossReducer(_CustomReducer):
    pass


sum_reducer = _LossReducer(0.0, operator.add)


class TensorChunkSpec:
    """Specification of the dimension along which a tensor is split."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self.split_dim})"

    def __str__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> Any:
        """Make chunk specs for positional arguments."""
        return tuple(TensorChunkSpec(dim) for dim in chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> Any:
        """Make chunk specs for keyword arguments."""
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


class _Replicate:
    """Specification that every microbatch gets the whole value."""


def _split_tensor(tensor: Tensor, spec: TensorChunkSpec, num_chunks: int) -> list[Tensor]:
    if tensor.size(spec.split_dim) < num_chunks:
        raise AssertionError(f"Tensor size {tensor.size(spec.split_dim)} is smaller than num_chunks")
    chunks = list(tensor_split(tensor, num_chunks, spec.split_dim))
    if tensor.requires_grad and tensor.is_leaf:
        for chunk in chunks:
            chunk.retain_grad()
    return chunks


def _default_spec(value: Any) -> Any:
    return TensorChunkSpec(DEFAULT_CHUNK_DIM) if isinstance(value, Tensor) else _Replicate()


def _is_spec(value: Any) -> bool:
    return isinstance(value, (TensorChunkSpec, _Replicate, _CustomReducer)) or value is _Replicate


def _split_nest(values: Any, specs: Any, num_chunks: int) -> list[Any]:
    """Return nested values for each microbatch."""
    leaves, shape = tree_flatten(values)
    leaf_specs = [_default_spec(leaf) for leaf in leaves] if specs is None else tree_flatten(specs, is_leaf=_is_spec)[0]
    if len(leaf_specs) != len(leaves):
        raise ValueError(f"Argument value {values} did not have the same number of values as as chunk spec {specs}")
    split: list[list[Any]] = []
    for leaf, spec in zip(leaves, leaf_specs, strict=True):
        if isinstance(spec, _Replicate) or spec is _Replicate or not isinstance(leaf, Tensor):
            split.append([leaf] * num_chunks)
        elif isinstance(spec, TensorChunkSpec):
            split.append(_split_tensor(leaf, spec, num_chunks))
        else:
            raise TypeError(f"Unrecognized chunk spec: {spec}")
    return [tree_unflatten([parts[number] for parts in split], shape) for number in range(num_chunks)]


def _most_chunks(values: Any, specs: Any) -> int | None:
    """Return how many chunks the shortest tensor allows."""
    leaves, _ = tree_flatten(values)
    leaf_specs = [_default_spec(v) for v in leaves] if specs is None else tree_flatten(specs, is_leaf=_is_spec)[0]
    sizes = [
        leaf.size(spec.split_dim)
        for leaf, spec in zip(leaves, leaf_specs)
        if isinstance(leaf, Tensor) and isinstance(spec, TensorChunkSpec)
    ]
    return min(sizes, default=None)


def split_args_kwargs_into_chunks(
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    chunks: int,
    args_chunk_spec: Any = None,
    kwargs_chunk_spec: Any = None,
) -> tuple[list[tuple], list[dict]]:
    """Return the arguments of each of `chunks` microbatches. Without specs, tensors are split along dimension 0 and everything else is the
    same for all; short tensors reduce the number of microbatches."""
    kwargs = kwargs or {}
    least = [n for n in (_most_chunks(args, args_chunk_spec), _most_chunks(kwargs, kwargs_chunk_spec)) if n is not None]
    chunks = min([chunks, *least])
    args_split = _split_nest(args, args_chunk_spec, chunks) if args else [()] * chunks
    kwargs_split = _split_nest(kwargs, kwargs_chunk_spec, chunks) if kwargs else [{} for _ in range(chunks)]
    return args_split, kwargs_split


def merge_chunks(chunks: list[Any], chunk_spec: Any) -> Any:
    """Merge the results of microbatches; without a spec tensors are concatenated along dimension 0."""
    if chunk_spec is None:
        specs, shape = (
            [TensorChunkSpec(DEFAULT_CHUNK_DIM)] * len(tree_flatten(chunks[0])[0]),
            tree_flatten(chunks[0])[1],
        )
    else:
        specs, shape = tree_flatten(chunk_spec, is_leaf=_is_spec)
    flat = [tree_flatten(chunk)[0] for chunk in chunks]
    for chunk, leaves in zip(chunks, flat, strict=True):
        if len(leaves) != len(specs):
            raise ValueError(f"Chunk {chunk} did not match chunk spec {chunk_spec}")
    merged = []
    for position, spec in enumerate(specs):
        parts = [leaves[position] for leaves in flat]
        if isinstance(spec, TensorChunkSpec):
            merged.append(cat(parts, spec.split_dim))
        elif isinstance(spec, _CustomReducer):
            value = spec.init_value
            for part in parts:
                value = spec.reduce_fn(value, part)
            merged.append(value)
        else:
            if any(part is not parts[0] and not _same(part, parts[0]) for part in parts):
                raise AssertionError(f"results that should be the same differ: {parts}")
            merged.append(parts[0])
    return tree_unflatten(merged, shape)


def _same(a: Any, b: Any) -> bool:
    return bool(a.equal(b)) if isinstance(a, Tensor) else a == b

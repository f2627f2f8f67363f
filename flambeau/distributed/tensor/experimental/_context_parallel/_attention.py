"""Sharding of buffers along the sequence, and of modules whose attention works on the shards."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from .....core import pytree
from .....core.graph import unrecorded
from .....core.tensor import Tensor
from .....nn.attention.flex_attention import _DEFAULT_SPARSE_BLOCK_SIZE, BlockMask, create_block_mask
from .....ops import namespace
from .....ops.nn import attention
from .... import _functional_collectives as funcol
from ....device_mesh import DeviceMesh
from ....groups import _get_process_group_name
from ..._dtensor import DTensor
from ...parallel.style import ParallelStyle
from ...placement_types import Shard
from ._cp_custom_ops import flex_cp_allgather
from ._load_balancer import _create_default_load_balancer, _LoadBalancer
from ._ring import (
    _attend_spread,
    _CausalBehavior,
    _cp_options,
    _disable_context_parallel_dispatcher,
    _enable_context_parallel_dispatcher,
    _is_causal_behavior,
    _Ring,
    _RotateMethod,
    set_rotate_method,
)

__all__ = [
    "_CausalBehavior", "_ContextParallel", "_RotateMethod", "_attend_spread", "_context_parallel_shard", "_cp_options",
    "_disable_context_parallel_dispatcher", "_enable_context_parallel_dispatcher", "_is_causal_behavior", "context_parallel",
    "context_parallel_unshard", "set_rotate_method",
]  # fmt: skip

_torch = namespace("torch")


# -- buffers ------------------------------------------------------------------------------------------------------------------------


def _ordered(tensor: Tensor, dim: int, order: Tensor | None, what: str) -> Tensor:
    """Return a tensor with the positions along a dimension permuted, possibly differently for each sequence of the batch."""
    if order is None:
        return tensor
    if order.ndim != 2:
        raise AssertionError(f"load balance index expects shape (1, seq_len) or (B, seq_len) but got {order.shape}.")
    rows = tensor.shape[0] if dim else 1
    if order.shape[0] not in (1, rows):
        raise ValueError(f"Cannot {what} buffer: the order has shape {order.shape}, but the buffer {tensor.shape}.")
    if order.shape[0] == 1:
        return tensor.index_select(dim, order[0])
    return _torch["stack"]([tensor[i].index_select(dim - 1, order[i]) for i in range(rows)])


def _part(buffer: Any, dim: int, mesh: DeviceMesh, balancer: _LoadBalancer | None) -> Any:
    if isinstance(buffer, BlockMask):
        return _mask_of_part(buffer, mesh, balancer)
    if not isinstance(buffer, Tensor):
        raise ValueError(f"Unknown buffer type: {type(buffer)}")
    order = None if balancer is None else balancer._generate_indices()
    return Shard(dim).part_of(_ordered(buffer, dim, order, "rearrange"), mesh.size(), mesh.get_local_rank())


def _mask_of_part(mask: BlockMask, mesh: DeviceMesh, balancer: _LoadBalancer | None) -> BlockMask:
    """Return the mask of this rank's queries with all keys, whose stored indices are mapped to the original positions."""
    length, keys = mask.seq_lengths
    if length % (mesh.size() * _DEFAULT_SPARSE_BLOCK_SIZE):
        raise NotImplementedError(
            f"Q_LEN {length} is not divisible by CP mesh world size {mesh.size()} * BLOCK_SIZE {_DEFAULT_SPARSE_BLOCK_SIZE}. This is"
            " not supported yet. "
        )
    own = length // mesh.size()
    balancer = balancer or _create_default_load_balancer(length, mesh.size(), mesh.device_type)
    order = None if balancer is None else balancer._generate_indices()
    start = own * mesh.get_local_rank()

    def place(b: Tensor, index: Tensor) -> Tensor:
        if order is None:
            return index
        return order[0][index] if order.shape[0] == 1 else order[b][index]

    def part(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return mask.mask_mod(b, h, place(b, q_idx + start), place(b, kv_idx))

    batch, heads = mask.kv_num_blocks.shape[:2]
    size = (_DEFAULT_SPARSE_BLOCK_SIZE,) * 2
    return create_block_mask(part, batch, heads, own, keys, device=mesh.device_type, BLOCK_SIZE=size)


def _context_parallel_shard(mesh: DeviceMesh, buffers: Any, seq_dims: Any, load_balancer: Any = None) -> Any:
    """Return this rank's parts of tensors (and of the masks of `flex_attention`) along their dimensions `seq_dims`, in the load
    balancer's order."""
    _cp_options.enable_load_balance = load_balancer is not None
    if len(buffers) != len(seq_dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    given, form = pytree.tree_flatten(buffers)
    dims, _ = pytree.tree_flatten(seq_dims)
    if len(given) != len(dims):
        raise ValueError("`seq_dims` must have the pytree structure as `buffers`.")
    return pytree.tree_unflatten([_part(b, dim, mesh, load_balancer) for b, dim in zip(given, dims)], form)


@contextlib.contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: Sequence[Tensor] | None = None,
    buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: set[Tensor] | None = None,
) -> Iterator[None]:
    """Context manager: each rank has a part of the `buffers` along their dimensions `buffer_seq_dims`, and `scaled_dot_product_attention`
    of such parts is that of the whole sequence. On exit buffers are whole again, except `no_restore_buffers`."""
    given, dims = list(buffers or ()), list(buffer_seq_dims or ())
    if len(given) != len(dims):
        raise ValueError("`seq_dims` must have the same number of elements as `buffers`.")
    kept = {id(b) for b in no_restore_buffers or ()}
    if any(not any(b is g for g in given) for b in no_restore_buffers or ()):
        raise ValueError("`no_restore_buffers` must be a subset of `buffers`.")
    wanted, balancer = _cp_options.enable_load_balance, None
    if given:
        balancer = _create_default_load_balancer(given[0].shape[dims[0]], mesh.size(), given[0].device)
        _cp_options.enable_load_balance = balancer is not None
    wholes = [b.detach() for b in given]
    for b, whole, dim in zip(given, wholes, dims):
        b._adopt(_part(whole, dim, mesh, balancer))
    before = attention.around.attend
    attention.around.attend = _Ring(mesh, _cp_options.enable_load_balance)
    try:
        yield
    finally:
        attention.around.attend = before
        _cp_options.enable_load_balance = wanted
        for b, whole in zip(given, wholes):
            if id(b) not in kept:
                b._adopt(whole)


def context_parallel_unshard(
    mesh: DeviceMesh, buffers: Sequence[Tensor], seq_dims: Sequence[int], load_balancer: Any = None
) -> list[Tensor]:
    """Return the full tensors, gathered from the shards of all ranks."""
    length = buffers[0].shape[seq_dims[0]] * mesh.size()
    balancer = load_balancer or _create_default_load_balancer(length, mesh.size(), buffers[0].device)
    order = None if balancer is None else balancer._generate_indices(restore=True)

    def whole(part: Tensor, dim: int) -> Tensor:
        return _ordered(funcol.all_gather_tensor(part, dim, (mesh, 0), now=True), dim, order, "restore")

    return [unrecorded(whole, b, dim) for b, dim in zip(buffers, seq_dims)]


# -- modules ------------------------------------------------------------------------------------------------------------------------


class _ContextParallel(ParallelStyle):
    """Style of a module that calls attention on shards of the sequence."""

    class AttentionType(Enum):
        """Kind of attention that the module calls."""

        FLEX = "flex_attention"
        SDPA = "scaled_dot_product_attention"

    def __init__(self, seq_dim: int, attention_type: AttentionType) -> None:
        self.seq_dim, self.attention_type = seq_dim, attention_type

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if self.attention_type is self.AttentionType.FLEX:
            module.register_forward_pre_hook(functools.partial(self.flex_input_fn, mesh=device_mesh), with_kwargs=True)
        elif self.attention_type is self.AttentionType.SDPA:
            module.register_forward_pre_hook(functools.partial(self.sdpa_input_fn, mesh=device_mesh), with_kwargs=True)
            module.register_forward_hook(functools.partial(self.sdpa_output_fn, mesh=device_mesh))
        else:
            raise ValueError(f"Unknown attention type: {self.attention_type}")
        return module

    def flex_input_fn(self, module: Any, args: tuple, kwargs: dict[str, Any], mesh: DeviceMesh) -> tuple:
        """Replace this rank's keys and values by those of all ranks."""
        named = dict(zip(("query", "key", "value"), args)) | kwargs
        key, value = named["key"], named["value"]
        if not all(isinstance(t, Tensor) for t in (named["query"], key, value)):
            raise AssertionError("flex_attention is called with three tensors: query, key and value")
        group = _get_process_group_name(mesh.get_group())
        wholes = dict(
            zip(("key", "value"), flex_cp_allgather(key.contiguous(), value.contiguous(), self.seq_dim, group))
        )
        given = [wholes.get(name, t) for name, t in zip(("query", "key", "value"), args)]
        return (*given, *args[3:]), {name: wholes.get(name, t) for name, t in kwargs.items()}

    def sdpa_input_fn(self, module: Any, args: tuple, kwargs: dict[str, Any], mesh: DeviceMesh) -> tuple:
        """Wrap tensors as DTensors sharded along the sequence."""
        placements = [Shard(self.seq_dim)]
        found: list[Any] = []
        for value in itertools.chain(args, kwargs.values()):
            if isinstance(value, DTensor):
                if list(value.placements) != placements:
                    raise AssertionError(f"attention expects {placements}, got {value.placements}")
            elif isinstance(value, Tensor):
                value = DTensor.from_local(value, mesh, placements, run_check=False)
            found.append(value)
        return tuple(found[: len(args)]), dict(zip(kwargs, found[len(args) :]))

    def sdpa_output_fn(self, module: Any, inputs: Any, outputs: Any, mesh: DeviceMesh) -> Any:
        """Return this rank's parts of the results."""
        if isinstance(outputs, Tensor):
            return outputs.to_local() if isinstance(outputs, DTensor) else outputs
        return tuple(t.to_local() if isinstance(t, DTensor) else t for t in outputs)

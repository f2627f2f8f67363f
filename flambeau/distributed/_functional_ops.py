"""Functional collectives as operators of `torch.ops`, for programs that call them there, and as keys of `CommDebugMode`'s counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..fx.node import has_side_effect
from ..library.registration import Library
from . import _functional_collectives as funcol
from . import collectives, groups


def _wait(tensors: list[Any]) -> list[Any]:
    return [funcol.wait_tensor(t) for t in tensors]


_SCHEMAS: dict[str, Callable] = {
    "all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor": lambda input, reduce_op, group_name: (
        funcol.all_reduce(input, reduce_op, group_name, now=True)
    ),
    "all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor": lambda input, group_size, group_name: (
        funcol.all_gather_tensor(input, 0, group_name, now=True)
    ),
    "reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor": (
        lambda input, reduce_op, group_size, group_name: funcol.reduce_scatter_tensor(
            input, reduce_op, 0, group_name, now=True
        )
    ),
    "all_to_all_single(Tensor input, int[] output_split_sizes, int[] input_split_sizes, str group_name) -> Tensor": (
        lambda input, takes, sends, group_name: funcol.all_to_all_single(input, takes, sends, group_name, now=True)
    ),
    "broadcast(Tensor input, int src, str group_name) -> Tensor": lambda input, src, group_name: funcol.broadcast(
        input, src, group_name, now=True
    ),
    "all_reduce_coalesced(Tensor[] inputs, str reduce_op, str group_name) -> Tensor[]": (
        lambda inputs, reduce_op, group_name: _wait(funcol.all_reduce_coalesced(list(inputs), reduce_op, group_name))
    ),
    "all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, str group_name) -> Tensor[]": (
        lambda inputs, group_size, group_name: _wait(funcol.all_gather_into_tensor_coalesced(list(inputs), group_name))
    ),
    "reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, int group_size, str group_name) -> Tensor[]": (
        lambda inputs, reduce_op, group_size, group_name: _wait(
            funcol.reduce_scatter_tensor_coalesced(list(inputs), reduce_op, [0] * len(inputs), group_name)
        )
    ),
    "_wrap_tensor_autograd(Tensor input) -> Tensor": lambda input: input.clone(),  # results here are there already
    "wait_tensor(Tensor tensor) -> Tensor": lambda tensor: funcol.wait_tensor(tensor).clone(),
}


# The operators of process groups themselves, which change their arguments: by these names they are counted.
_IN_PLACE_SCHEMAS: dict[str, Callable] = {
    "broadcast_(Tensor(a!) tensor, int src, str group_name) -> ()": lambda tensor, src, group_name: (
        collectives.broadcast(tensor, src, groups._resolve_process_group(group_name))
    ),
    "scatter_(Tensor(a!) output, Tensor[] parts, int src, str group_name) -> ()": (
        lambda output, parts, src, group_name: collectives.scatter(
            output, list(parts) or None, src, groups._resolve_process_group(group_name)
        )
    ),
    "allreduce_(Tensor(a!) tensor, str group_name) -> ()": lambda tensor, group_name: collectives.all_reduce(
        tensor, group=groups._resolve_process_group(group_name)
    ),
    "_allgather_base_(Tensor(a!) output, Tensor input, str group_name) -> ()": lambda output, input, group_name: (
        collectives.all_gather_into_tensor(output, input, groups._resolve_process_group(group_name))
    ),
    "_reduce_scatter_base_(Tensor(a!) output, Tensor input, str group_name) -> ()": lambda output, input, group_name: (
        collectives.reduce_scatter_tensor(output, input, group=groups._resolve_process_group(group_name))
    ),
}


def _define_operators() -> list[Any]:
    made = []
    for space, schemas in (("_c10d_functional", _SCHEMAS), ("c10d_functional", _SCHEMAS), ("c10d", _IN_PLACE_SCHEMAS)):
        library = Library(space, "FRAGMENT")
        for schema, function in schemas.items():
            library.define(schema)
            library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
        made.append(library)
    return made


_libraries = _define_operators()
for _space in (ops._c10d_functional, ops.c10d_functional):
    has_side_effect(_space.wait_tensor)  # the other ranks take part, whether or not the result is read

"""The functional collectives as operators of `torch.ops`: for programs that call them there, and as what `CommDebugMode` counts by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..library.registration import Library
from . import _functional_collectives as funcol

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
    "_wrap_tensor_autograd(Tensor input) -> Tensor": lambda input: input.clone(),  # results here are there already
    "wait_tensor(Tensor tensor) -> Tensor": lambda tensor: funcol.wait_tensor(tensor).clone(),
}


def _defined() -> list[Any]:
    made = []
    for space in ("_c10d_functional", "c10d_functional"):
        library = Library(space, "FRAGMENT")
        for schema, function in _SCHEMAS.items():
            library.define(schema)
            library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
        made.append(library)
    groups = Library("c10d", "FRAGMENT")  # collectives in place; `torch.distributed.scatter` is how to call this one
    groups.define("scatter_(Tensor[] output_tensors, Tensor[] input_tensors, int root_rank, bool async_op=True) -> Tensor[]")
    return [*made, groups]


_libraries = _defined()

"""Collectives of Python objects, which are sent pickled, between ranks that trust each other."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ..core.dtype import BY_NAME
from ..core.tensor import Tensor, copy_of_array, empty
from . import collectives

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
]  # fmt: skip

_uint8, _int64 = BY_NAME["uint8"], BY_NAME["int64"]


def _object_to_tensor(obj: Any, device: Any = None, group: Any = None) -> tuple[Tensor, Tensor]:
    """Return the pickled object as a tensor, and its size."""
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    return copy_of_array(data, _uint8), copy_of_array(np.array([data.size]), _int64)


def _tensor_to_object(tensor: Tensor, tensor_size: Any, group: Any = None) -> Any:
    return pickle.loads(tensor.numpy()[: int(tensor_size)].tobytes())


def _empty_bytes(count: int) -> Tensor:
    return empty((count,), _uint8)


def _empty_number() -> Tensor:
    return empty((1,), _int64)


def _gather_sizes(size: Tensor, count: int, group: Any) -> list[int]:
    sizes = [_empty_number() for _ in range(count)]
    collectives.all_gather(sizes, size, group)
    return [int(s) for s in sizes]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Gather the objects of all ranks into a list on every rank."""
    if (pg := collectives._group_if_member(group, "all_gather_object")) is None:
        return
    data, size = _object_to_tensor(obj)
    sizes = _gather_sizes(size, pg.size(), group)
    outputs = [_empty_bytes(n) for n in sizes]
    collectives.all_gather(outputs, data, group)
    for position, (output, n) in enumerate(zip(outputs, sizes)):
        object_list[position] = _tensor_to_object(output, n)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Gather the objects of all ranks into a list on rank `dst`."""
    if (pg := collectives._group_if_member(group, "gather_object")) is None:
        return
    root = collectives._root(pg, dst, group_dst, "dst", required=False)
    if pg.rank() == root and not object_gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if pg.rank() != root and object_gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    data, size = _object_to_tensor(obj)
    sizes = _gather_sizes(size, pg.size(), group)
    most = max(sizes)
    padded = _empty_bytes(most)
    padded[: data.numel()] = data
    outputs = [_empty_bytes(most) for _ in sizes] if pg.rank() == root else None
    collectives.gather(padded, outputs, group=group, group_dst=root)
    if outputs is not None and object_gather_list is not None:
        for position, (output, n) in enumerate(zip(outputs, sizes)):
            object_gather_list[position] = _tensor_to_object(output, n)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Copy the objects of rank `src` into the lists of all ranks, which have the same length."""
    if (pg := collectives._group_if_member(group, "broadcast_object_list")) is None:
        return
    root = collectives._root(pg, 0 if src is None and group_src is None else src, group_src, "src")
    sizes = empty((len(object_list),), _int64)
    parts = [_object_to_tensor(obj)[0] for obj in object_list] if pg.rank() == root else []
    for position, part in enumerate(parts):
        sizes[position] = part.numel()
    collectives.broadcast(sizes, group=group, group_src=root)
    data = _empty_bytes(int(sizes.sum()))
    start = 0
    for part in parts:
        data[start : start + part.numel()] = part
        start += part.numel()
    collectives.broadcast(data, group=group, group_src=root)
    if pg.rank() != root:
        _unpack(object_list, sizes, data)


def _unpack(object_list: list[Any], sizes: Tensor, data: Tensor) -> None:
    start = 0
    for position, size in enumerate(sizes.tolist()):
        object_list[position] = _tensor_to_object(data[start : start + size], size)
        start += size


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Send one object of rank `src`'s list to each rank, into the first place of its output list."""
    if (pg := collectives._group_if_member(group, "scatter_object_list")) is None:
        return
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = collectives._root(pg, src, group_src, "src", required=False)
    limit = _empty_number()
    padded, sizes = None, None
    if pg.rank() == root:
        if scatter_object_input_list is None:
            raise ValueError("source rank must provide non-None scatter_object_input_list")
        parts = [_object_to_tensor(obj) for obj in scatter_object_input_list]
        limit[0] = most = max(data.numel() for data, _ in parts)
        padded, sizes = [], [size for _, size in parts]
        for data, _ in parts:
            padded.append(_empty_bytes(most))
            padded[-1][: data.numel()] = data
    collectives.broadcast(limit, group=group, group_src=root)
    mine, size = _empty_bytes(int(limit)), _empty_number()
    collectives.scatter(mine, padded, group=group, group_src=root)
    collectives.scatter(size, sizes, group=group, group_src=root)
    scatter_object_output_list[0] = _tensor_to_object(mine, size)


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send objects to one rank."""
    if (pg := collectives._group_if_member(group, "send_object_list")) is None:
        return
    peer = collectives._root(pg, dst, group_dst, "dst")
    if pg.rank() == peer:
        raise ValueError(
            "Invalid destination rank: destination rank should not be the same as the rank of the current process."
        )
    parts = [_object_to_tensor(obj)[0] for obj in object_list]
    sizes = copy_of_array(np.array([part.numel() for part in parts]), _int64)
    data = copy_of_array(np.concatenate([part.numpy() for part in parts]), _uint8)
    collectives.send(sizes, group=group, group_dst=peer)
    collectives.send(data, group=group, group_dst=peer)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive what `send_object_list` sent; returns the rank of the sender."""
    if collectives._group_if_member(group, "recv_object_list") is None:
        return -1
    sizes = empty((len(object_list),), _int64)
    sender = collectives.recv(sizes, src, group, group_src=group_src)
    data = _empty_bytes(int(sizes.sum()))
    collectives.recv(data, sender, group)
    _unpack(object_list, sizes, data)
    return sender

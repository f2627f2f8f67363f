"""Memory ranges of tensors that an operation of a process group transfers, per rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.graph import unrecorded
from ..core.tensor import Tensor, empty
from .shared_engine import Memory


def memory_of(tensor: Tensor) -> Memory:
    """Return the memory of a tensor without gaps."""
    storage = tensor._storage
    width = tensor.dtype.itemsize
    return Memory((storage.ptr or 0) + tensor._offset * width, tensor.numel() * width, storage)


def contiguous(tensor: Tensor) -> Tensor:
    return tensor if tensor._contig else unrecorded(tensor.contiguous)


def written(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        tensor._storage.version += 1


def even_pieces(tensor: Tensor, count: int) -> tuple[Tensor, ...]:
    return unrecorded(
        lambda: tensor.detach().reshape(-1).chunk(count) if tensor.numel() else (tensor.detach(),) * count
    )


def shares_of(memories: Sequence[Memory], sizes: Sequence[int], rank: int) -> list[Memory]:
    """Return a rank's part of each memory, if every rank gets equally many bytes."""
    return [
        Memory(m.address + size * rank, max(0, min(size, m.nbytes - size * rank)), m.owner)
        for m, size in zip(memories, sizes)
    ]


def even_memories(memory: Memory, count: int) -> list[Memory]:
    size = memory.nbytes // count
    return [Memory(memory.address + size * r, size, memory.owner) for r in range(count)]


class Share(NamedTuple):
    """Elements of a contiguous tensor that one rank receives, and the number of elements reserved for them there."""

    tensor: Tensor
    begin: int
    end: int
    room: int

    def memory(self, width: int) -> Memory:
        whole = memory_of(self.tensor)
        return Memory(whole.address + self.begin * width, (self.end - self.begin) * width, whole.owner)


def even_shares(tensors: Sequence[Tensor], counts: Sequence[int], size: int) -> list[list[Share]]:
    """Return for each rank r the r-th block of counts[i] elements of each tensors[i], shorter at the end."""
    ends = [(tensor, count, tensor.numel()) for tensor, count in zip(tensors, counts)]
    return [[Share(t, min(n * r, end), min(n * (r + 1), end), n) for t, n, end in ends] for r in range(size)]


def stretches(tensors: Sequence[Tensor], starts: Sequence[int], count: int, size: int) -> list[list[Share]]:
    """Return for each rank `count` elements of one long virtual tensor in which tensors[i] begins at starts[i], the first at 0."""
    bounds = [*starts[1:], count * size]
    found: list[list[Share]] = []
    for low in range(0, count * size, count):
        own = []
        for tensor, start, bound in zip(tensors, starts, bounds):
            begin, end = max(low, start) - start, min(low + count, bound) - start
            if begin < end:
                last = max(begin, min(end, tensor.numel()))
                own.append(Share(tensor, begin, last, end - begin))
        found.append(own)
    return found


def lay_out(flat: Tensor, shares: Sequence[Sequence[Share]]) -> None:
    """Write the ranks' shares one after the other into `flat`, padded with zeros."""
    start = 0
    for share in (share for own in shares for share in own):
        count = share.end - share.begin
        if count:
            line = unrecorded(share.tensor.detach().reshape, -1)[share.begin : share.end]
            unrecorded(flat[start : start + count].copy_, line)
        if share.room > count:
            unrecorded(flat[start + count : start + share.room].zero_)
        start += share.room


def split(tensor: Tensor, sizes: Sequence[int] | None, count: int) -> list[Tensor]:
    if sizes is None or not len(sizes):
        if tensor.shape and tensor.shape[0] % count:
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        sizes = [tensor.shape[0] // count] * count
    if len(sizes) != count:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(sizes) != tensor.shape[0]:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    return unrecorded(lambda: [t.detach() for t in tensor.detach().split(list(sizes))])


def flattened(tensors: Sequence[Tensor]) -> Tensor:
    flat = empty((sum(t.numel() for t in tensors),), tensors[0].dtype, tensors[0].device)
    _transfer(flat, tensors, True)
    return flat


def unflatten(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    _transfer(flat, tensors, False)
    written(tensors)


def _transfer(flat: Tensor, tensors: Sequence[Tensor], inwards: bool) -> None:
    start = 0
    for tensor in tensors:
        part = unrecorded(lambda s=start, t=tensor: flat[s : s + t.numel()].view(t.shape))
        one, other = (part, tensor.detach()) if inwards else (tensor.detach(), part)
        unrecorded(one.copy_, other)
        start += tensor.numel()


def put_back(places: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Copy received data from contiguous copies to the tensors they were made for."""
    for place, output in zip(places, outputs):
        if place is not output:
            unrecorded(output.detach().copy_, place)
    written(outputs)

"""The program form: calls of operators over values, in the order in which they happened.

A *value* is a tensor's header over a piece of memory; views are values over the same memory. A *call* is an operator's record with the
arguments it was given, values in the place of tensors, what it returned and which memory it changed. So a program says what happened without
saying where: a replay chooses the memory, and a pass asks the records what calls mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ..core.device import device
from ..core.dtype import dtype
from ..core.layout import memory_span
from ..core.records import record
from ..core.size import Size, make_size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, contiguous_strides, is_contiguous_layout, new_tensor
from .memory import Buffer, Ref, instances

NO_MEMORY = -1  # the buffer of values without elements


@record
class Value:
    """A tensor of a program: its header over a buffer, from byte `start` on. `number` distinguishes tensors at the same place, for recorders
    that need it; `requires_grad` is its value at the call: neither counts when two are compared. A value never changes."""

    buffer: int
    start: int
    shape: Size
    strides: tuple[int, ...]
    dtype: dtype
    device: device
    number: int = -1
    requires_grad: bool = False

    def __eq__(self, other: object) -> bool:
        return type(other) is Value and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple:
        return self.buffer, self.start, self.shape, self.strides, self.dtype, self.device

    @classmethod
    def of(cls, t: Tensor, find: Callable[[int], Ref | None]) -> Value | None:
        """Return a tensor as a value, if `find` knows the place of its address; else None."""
        address = t._storage.ptr
        place = find(address) if address else Ref(NO_MEMORY, -t._offset * t.dtype.itemsize)
        if place is None:
            return None
        start = place.offset + t._offset * t.dtype.itemsize
        return cls(place.buffer, start, t.shape, t._strides, t.dtype, t.device)

    @property
    def nbytes(self) -> int:
        """Return the number of bytes from the first element to the end of the last."""
        low, high = memory_span(self.shape, self.strides, 0)
        return (high - low) * self.dtype.itemsize

    @property
    def span(self) -> tuple[int, int]:
        """Return the range of bytes of the buffer that contains its elements."""
        low, high = memory_span(self.shape, self.strides, 0)
        return self.start + low * self.dtype.itemsize, self.start + high * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Return whether elements follow each other in memory in the order of their indices."""
        return tuple(self.strides) == contiguous_strides(self.shape)

    @property
    def is_whole(self) -> bool:
        """Return whether the elements are contiguous from the first byte of the buffer on."""
        return self.start == 0 and self.is_contiguous

    def over(self, storage: UntypedStorage) -> Tensor:
        """Return the tensor with this header over `storage`, which holds the buffer."""
        contiguous = is_contiguous_layout(self.shape, self.strides)
        start = self.start // self.dtype.itemsize
        return new_tensor(storage, self.shape, self.strides, start, self.dtype, self.device, contiguous)


@record
class Call:
    """A call of an operator.

    `function` is the form that was called (the function, the in-place form, a form without a public name), with `args` and `kwargs`;
    `results` is what it returned. `makes` are the buffers that it made, in order, and `changes` those that existed before and that it has
    written. A call that was `rewritten` gets the memory of its results as its first argument, a list like `results`; `parts` are then the
    recorded calls that it replaces. `recorded` is the call before the layouts of its values were changed. `steps` are its native calls, if it
    has been planned. A call that `stays` may end the program with an error, or has effects that are not known: it is never dropped, and no
    other call moves past it. `notes` are a recorder's further facts about the place of the call."""

    op: Any
    function: Callable
    args: tuple
    kwargs: dict[str, Any]
    results: Any = None
    makes: list[int] = []
    changes: frozenset[int] = frozenset()
    line: str = ""
    parts: tuple[Call, ...] = ()
    steps: list[Any] | None = None
    stays: bool = False
    recorded: Call | None = None
    notes: dict[str, Any] = {}

    @property
    def rewritten(self) -> bool:
        return bool(self.parts)

    @property
    def fixed(self) -> bool:
        """Return whether passes must leave the call alone: it was rewritten already, or is marked to stay."""
        return bool(self.parts) or self.stays

    @property
    def name(self) -> str:
        return self.op.key or self.op.name if hasattr(self.op, "key") else str(self.op)

    def origins(self) -> tuple[Call, ...]:
        """Return the recorded calls that this call replaces."""
        return tuple(part.recorded or part for part in self.parts or (self,))

    def arguments(self) -> list[Value]:
        """Return the values among the arguments."""
        return instances((self.args, self.kwargs), Value)

    def returned(self) -> list[Value]:
        """Return the values among the results."""
        return instances(self.results, Value)

    def reads(self) -> set[int]:
        """Return the buffers that the call may read."""
        return {v.buffer for v in self.arguments()} - {NO_MEMORY}

    def writes(self) -> set[int]:
        """Return the buffers that the call writes: those that it makes and those that it changes."""
        return {*self.makes, *self.changes}

    def touches(self) -> set[int]:
        return {*self.makes, *self.changes, *(v.buffer for v in self.arguments()), *self._returned()} - {NO_MEMORY}

    def _returned(self) -> set[int]:
        return {v.buffer for v in self.returned()} if self.rewritten else set()


@record
class Program:
    """Program of operator calls recorded from a function. `inputs` are the values of its arguments, `outputs` its results with values in
    place of tensors; `kept` are further buffers that are read after the run. `states` maps values to tensors that existed before: such a
    value stands for the tensor itself."""

    buffers: list[Buffer] = []
    calls: list[Call] = []
    inputs: list[Value] = []
    states: dict[Value, Tensor] = {}
    outputs: Any = None
    kept: set[int] = set()

    def lasting(self) -> set[int]:
        """Return the buffers that are read after the program has run: results, and memory that existed before."""
        outputs = {v.buffer for v in instances(self.outputs, Value)}
        return self.kept | outputs | {b.index for b in self.buffers if b.source != "new"}

    def new_value(self, shape: tuple[int, ...], d: dtype, where: device) -> Value:
        """Return a contiguous value over a new buffer, for a rewritten call to write."""
        self.buffers.append(Buffer(len(self.buffers), 0, math.prod(shape) * d.itemsize))
        return Value(self.buffers[-1].index, 0, make_size(shape), contiguous_strides(shape), d, where)

    def last_uses(self) -> dict[int, int]:
        """Return the position of the last call that touches each buffer."""
        return {b: i for i, call in enumerate(self.calls) for b in call.touches()}

    def __iter__(self) -> Iterator[Call]:
        return iter(self.calls)

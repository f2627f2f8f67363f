"""Instructions for repeating the results and side effects of a recorded function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...autograd.function import FunctionCtx
from ...core.device import device
from ...core.dtype import dtype
from ...core.graph import GONE, AccumulateGrad, AutogradState, Node, SavedTensor
from ...core.records import record
from ...core.size import Size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, new_tensor, tensors_in
from ...nn.parameter import Parameter
from ..state.arguments import ATOMS
from .recorder import Memory, NotRecordable
from .views import Views


class Header(NamedTuple):
    """Header of a tensor over one of the storages that are allocated in each call."""

    slot: int
    shape: Any
    strides: tuple[int, ...]
    offset: int
    dtype: Any
    contiguous: bool
    requires_grad: bool = False
    history: tuple[Node, int] | None = None  # a graph whose backward pass has run: it holds no values
    live: int = -1  # index among the results whose graph is still to be differentiated

    def make(self, made: list[UntypedStorage], node: Node | None = None) -> Tensor:
        """Make the tensor; `node` is its history if its graph has not been differentiated yet."""
        t = new_tensor(
            made[self.slot], self.shape, self.strides, self.offset, self.dtype, made[self.slot].device, self.contiguous
        )
        if self.history is not None:
            t._autograd = AutogradState()
            t._autograd.grad_fn, t._autograd.output_nr = self.history
        elif self.live >= 0 and node is not None:
            t._autograd = AutogradState()
            t._autograd.grad_fn, t._autograd.output_nr = node, self.live
        elif self.requires_grad:
            t._autograd = AutogradState()
            t._autograd.requires_grad = True
        return t


@record
class Slot:
    """A storage that is allocated in each call."""

    buffer: int
    size: int


class Made:
    """A result that may be returned in several places: it is made for the first of them."""

    def __init__(self, header: Header):
        self.header, self.places = header, 1
        self._left: list[Tensor] = []  # for the other places

    def make(self, arguments: Any, made: list[UntypedStorage], node: Node | None) -> Tensor:
        t = self.header.make(made, node)
        self._left = [t] * (self.places - 1)
        return t

    def take(self, arguments: Any, made: list[UntypedStorage], node: Node | None) -> Tensor:
        return self._left.pop()

    @property
    def again(self) -> Callable:
        """Return the function that makes this object in a replay, and count one more use of it."""
        self.places += 1
        return self.take


class MadeGradient(Made):
    """A returned gradient: where the call has left it with its leaf (or the argument at this position), that tensor itself."""

    def __init__(self, header: Header, leaf: Any):
        super().__init__(header)
        self.leaf = leaf

    def make(self, arguments: Any, made: list[UntypedStorage], node: Node | None) -> Tensor:
        header, held = self.header, (arguments[self.leaf] if type(self.leaf) is int else self.leaf).grad
        if held is None or (held._storage, held.shape, held._strides) != (
            made[header.slot],
            header.shape,
            header.strides,
        ):
            held = header.make(made, node)
        self._left = [held] * (self.places - 1)
        return held


class Results:
    """Collector of the function's results, while the tensors still exist."""

    def __init__(
        self,
        memory: Memory,
        arguments: list[Tensor],
        known: dict[int, Any],
        containers: frozenset[int] = frozenset(),
        views: Views | None = None,
        stand_ins: bool = False,
    ):
        self.stand_ins = stand_ins  # whether arguments are stored elsewhere than what they stand for
        self.memory, self.known, self.containers, self.views = memory, known, containers, views or Views()
        self.positions = {id(t): i for i, t in enumerate(arguments)}
        self.slots: list[Slot] = []
        self._slot_of: dict[int, int] = {}
        self.live: list[Tensor] = []
        self.gradients: dict[
            int, Any
        ] = {}  # by the id of a gradient that the call has made: its leaf, or an argument's position
        self._made: dict[int, Made] = {}  # by the id of the tensor that is to be made again
        self.numbers: dict[int, tuple[int, Any]] = {}
        self.returned: list[Any] = []  # structure of the result: kinds and lengths of its parts, other values
        self.headers: list[Made] = []  # of new tensors among them

    def add_number(self, value: float, buffer: int, size: int) -> None:
        """Add a number that is only returned; the program leaves it in `buffer`."""
        self.numbers[id(value)] = (len(self.slots), ctypes.c_float if size == 4 else ctypes.c_double)
        self.slots.append(Slot(buffer, size))

    def slot(self, storage: UntypedStorage) -> int | None:
        """Return the slot of a storage that the function made, or None for one that existed before."""
        place = self.memory.find(storage.ptr) if storage.ptr else None
        if storage.ptr and (place is None or place.offset):
            raise NotRecordable("a result is in memory of unknown origin")
        if place is None:
            key, source = -1 - id(storage), "new"
        else:
            key, source = place.buffer, self.memory.buffers[place.buffer].source
        if source != "new":
            return None
        if key not in self._slot_of:
            self._slot_of[key] = len(self.slots)
            self.slots.append(Slot(key, storage.size_bytes))
        return self._slot_of[key]

    def header(self, t: Tensor) -> Header | None:
        """Return instructions for making a tensor like this one, or None if its memory existed before the call."""
        slot = self.slot(t._storage)
        if slot is None:
            return None
        layout = (slot, t.shape, t._strides, t._offset, t.dtype, t._contig)
        if t.grad_fn is None:
            return Header(*layout, t.requires_grad)
        if not is_live(t, self.positions):
            if not walked(t) and any(id(leaf) not in self.known for leaf in leaves_of([t])):
                raise NotRecordable("it makes leaves of its own")
            return Header(*layout, True, (t.grad_fn, t.output_nr))
        if any(t._storage is other._storage for other in self.live):
            raise NotRecordable("two results with a history share memory")
        self.live.append(t)
        return Header(*layout, True, None, len(self.live) - 1)

    def maker(self, value: Any) -> Callable[[list, list, Node | None], Any]:
        """Return a function (arguments, new storages, node of the derivative) that makes the returned value again."""
        if isinstance(value, Tensor):
            return self._tensor_maker(value)
        self.returned.append((type(value), self.numbers[id(value)] if id(value) in self.numbers else _form(value)))
        if id(value) in self.numbers:
            slot, kind = self.numbers[id(value)]
            return lambda arguments, made, node: kind.from_address(made[slot].ptr).value
        if type(value) in ATOMS or id(value) in self.known:
            return lambda arguments, made, node: value
        if id(value) in self.containers:
            raise NotRecordable(f"it returns an argument that is a {type(value).__name__}")
        if isinstance(value, tuple) and hasattr(value, "_make"):
            fields = [self.maker(v) for v in value]
            kind = type(value)
            return lambda arguments, made, node: kind(*[f(arguments, made, node) for f in fields])
        if type(value) in (tuple, list):
            parts, build = [self.maker(v) for v in value], type(value)
            return lambda arguments, made, node: build([part(arguments, made, node) for part in parts])
        if type(value) is dict:
            entries = {k: self.maker(v) for k, v in value.items()}
            return lambda arguments, made, node: {k: entry(arguments, made, node) for k, entry in entries.items()}
        if hasattr(value, "dtype") or isinstance(value, type) or not hasattr(value, "__dict__"):
            try:
                hash(value)
            except TypeError:
                raise NotRecordable(f"it returns a {type(value).__name__}") from None
            if type(value).__module__.partition(".")[0] == __name__.partition(".")[0]:
                return lambda arguments, made, node: value  # a dtype, a device, a size
        raise NotRecordable(f"it returns a {type(value).__name__}")

    def _tensor_maker(self, t: Tensor) -> Callable[[list, list, Node | None], Any]:
        if type(t) not in (Tensor, Parameter):
            raise NotRecordable(f"it returns a {type(t).__name__}")
        position = self.positions.get(id(t))
        if position is not None:
            self.returned.append(position)
            return lambda arguments, made, node: arguments[position]
        if id(t) in self.known:
            self.returned.append(id(t))
            return lambda arguments, made, node: t
        meta = t._autograd
        if type(t) is Parameter or t.__dict__:
            raise NotRecordable("it returns a new Parameter, or a tensor with attributes")
        if meta is not None and (
            meta.hooks or meta.post_hooks or meta.retains_grad or (t.is_leaf and t.grad is not None)
        ):
            raise NotRecordable("it returns a tensor with a gradient or hooks")
        if id(t) in self._made:
            self.returned.append(list(self._made).index(id(t)))
            return self._made[id(t)].again
        header = self.header(t)
        if header is None:
            return self._view_maker(t)
        self._made[id(t)] = MadeGradient(header, self.gradients[id(t)]) if id(t) in self.gradients else Made(header)
        self.returned.append(("new", len(self.headers)))
        self.headers.append(self._made[id(t)])
        return self._made[id(t)].make

    def _view_maker(self, t: Tensor) -> Callable[[list, list, Node | None], Any]:
        """Return a maker of a view of an argument, or of another known tensor: from its layout if that is sufficient, else by the calls that
        made it."""
        base = None if self.stand_ins or t.requires_grad else t._base
        if base is not None and t.dtype is base.dtype and self._is_known(base):
            shape, strides, shift, of = t.shape, t._strides, t._offset - base._offset, self._finder(id(base))
            self.returned.append((self.positions.get(id(base), -id(base)), shift, shape, strides))

            def make(arguments: list, made: list, node: Node | None) -> Tensor:
                base = of(arguments, made)
                return base._view(shape, strides, base._offset + shift)

            return make
        found = self.views.call_of(t)
        if found is None or found[0].root not in self.positions and found[0].root not in self.known:
            raise NotRecordable("it returns another view of memory that existed before")
        call, index = found
        call.resolve(self._finder)
        self.returned.append(call)  # equal to no other: its sizes are those of this recording
        return lambda arguments, made, node: call.take(index, arguments, made)

    def _is_known(self, t: Tensor) -> bool:
        return id(t) in self.positions or id(t) in self.known

    def _finder(self, number: int) -> Callable[[Any, Any], Any]:
        """Return a function (arguments, new storages) that finds a tensor which existed before, by its id: an argument comes with each call."""
        position, held = self.positions.get(number), self.known.get(number)
        if position is not None:
            return lambda arguments, made: arguments[position]
        return lambda arguments, made: held

    def keep(self, storages: list[UntypedStorage]) -> list[int | None]:
        """Return slots for memory that a derivative will read; None for storages that existed before."""
        return [self.slot(s) for s in storages]


def _form(value: Any) -> Any:
    """Return the part of a returned value that must be equal in each call."""
    if type(value) is dict:
        return tuple(value)
    return len(value) if isinstance(value, (tuple, list)) and type(value) is not Size else value


def replaced(value: Any, table: dict[int, Any], copies: list | None = None) -> Any:
    """Return a value with some tensors (or lists and dicts) replaced. Containers without such tensors are kept, because the caller may
    write into them; those that are copied are added to `copies` with their copies."""
    if isinstance(value, Tensor) or id(value) in table:
        return table.get(id(value), value)
    if not table:
        return value
    if isinstance(value, (tuple, list)) and (type(value) in (tuple, list) or hasattr(value, "_make")):
        parts = [replaced(v, table, copies) for v in value]
        if all(a is b for a, b in zip(parts, value)):
            return value
        copy: Any = type(value)(*parts) if hasattr(value, "_make") else type(value)(parts)
    elif type(value) is dict:
        copy = {k: replaced(v, table, copies) for k, v in value.items()}
        if all(copy[k] is v for k, v in value.items()):
            return value
    else:
        return value
    if copies is not None and type(value) in (list, dict):
        copies.append((value, copy))
    return copy


def write_back(copies: list[tuple[Any, Any]], table: dict[int, Any]) -> None:
    """Apply to the original lists and dicts the changes that a function made to copies of its arguments."""
    inner = {id(copy): original for original, copy in copies}
    for original, copy in copies:
        values = copy if type(copy) is list else copy.values()
        now = [inner[id(v)] if id(v) in inner else replaced(v, table) for v in values]
        if type(copy) is list:
            if len(now) != len(original) or any(a is not b for a, b in zip(now, original)):
                original[:] = now
        elif list(original) != list(copy) or any(a is not b for a, b in zip(now, original.values())):
            original.clear()
            original.update(zip(copy, now))


def saved_storages(live: list[Tensor]) -> list[UntypedStorage]:
    """Return the storages that the graph of some tensors saves, in an order that depends on the graph alone."""
    found: dict[int, UntypedStorage] = {}
    for t in live:
        for node in nodes_of(t.grad_fn):
            for storage in held_storages(node):
                found.setdefault(id(storage), storage)
    return list(found.values())


def leaves_of(live: list[Tensor]) -> list[Tensor]:
    """Return the leaves that gradients of some tensors reach."""
    found: dict[int, Tensor] = {}
    for t in live:
        for node in nodes_of(t.grad_fn):
            if isinstance(node, AccumulateGrad):
                found.setdefault(id(node.variable), node.variable)
            elif _ends(node):
                found.setdefault(id(node.leaf), node.leaf)  # type: ignore[attr-defined]
    return list(found.values())


def nodes_of(start: Node | None) -> list[Node]:
    """Return all nodes of a graph, up to the arguments of a function."""
    order = [] if start is None else [start]
    seen = set(map(id, order))
    for node in order:  # grows while it is walked
        for edge in () if _ends(node) else node.edges:
            if edge is not None and id(edge[0]) not in seen:
                seen.add(id(edge[0]))
                order.append(edge[0])
    return order


def _ends(node: Node) -> bool:
    """Return whether a node is where an argument with a history enters (a `differentiable.Boundary`)."""
    return node.label == "CompiledArgumentBackward"


def held_storages(node: Node) -> list[UntypedStorage]:
    """Return the storages that a node saves for its derivative, or that hooks read which restore what it has saved."""
    held = list(_held(node))
    hooked = [value for value in held if isinstance(value, SavedTensor) and value.unpack_hook is not None]
    reads = tensors_in([(v.packed, getattr(getattr(v.unpack_hook, "__self__", None), "reads", ())) for v in hooked])
    values = [value.tensor if isinstance(value, SavedTensor) else value for value in (*held, *reads)]
    storages = (v._storage if isinstance(v, Tensor) else v for v in values)
    return [s for s in storages if isinstance(s, UntypedStorage)]


def unpacks(node: Node) -> bool:
    """Return whether a node calls hooks for what it has saved: a checkpoint, for one, runs a function again."""
    return any(isinstance(value, SavedTensor) and value.unpack_hook is not None for value in _held(node))


def _held(node: Node) -> Iterator[Any]:
    """Yield the storages, tensors and saved tensors that a node keeps, and users' objects in its context, which may hold some."""
    pending, seen = [(value, False) for value in _fields(node)], {id(node)}  # a context holds its own node
    while pending:
        value, users = pending.pop()
        if isinstance(value, (UntypedStorage, Tensor, SavedTensor)):
            yield value
        elif isinstance(value, (Node, FunctionCtx)):
            held = _fields(value) if isinstance(value, Node) else vars(value).values()
            pending += [(v, isinstance(value, FunctionCtx)) for v in held if id(value) not in seen]
            seen.add(id(value))
        elif isinstance(value, (list, tuple)):
            edges = (type(v) is tuple and len(v) == 2 and isinstance(v[0], Node) for v in value)
            pending += [(v, users) for v, edge in zip(value, edges) if type(v) not in ATOMS and not edge]
        elif type(value) is dict:
            pending += [(v, users) for v in value.values()]
        elif users and type(value) not in ATOMS and not isinstance(value, (type, dtype, device)):
            yield value


def _fields(node: Node) -> list[Any]:
    """Return the values of a node's attributes, but for other nodes."""
    if isinstance(node, AccumulateGrad) or _ends(node):
        return []
    slots = (getattr(node, n, None) for c in type(node).__mro__ for n in c.__dict__.get("__slots__", ()))
    return [f for f in (*vars(node).values(), *slots) if not isinstance(f, Node)]


def spent(start: Node | None) -> bool:
    """Return whether a graph saves no values, packed by hooks or not: a backward pass has freed them, or it needs none."""
    return not any(held_storages(node) or unpacks(node) for node in nodes_of(start))


def is_live(t: Tensor, arguments: Any) -> bool:
    """Return whether a result can be differentiated by the caller in a way that depends on the call: its graph saves values, or leads to one
    of these arguments (given by id), which differ between calls."""
    if t.grad_fn is None:
        return False
    if not spent(t.grad_fn):
        return True
    hidden = [v for node in nodes_of(t.grad_fn) for v in _held(node) if not isinstance(v, SavedTensor)]
    return not walked(t) and (bool(hidden) or any(id(leaf) in arguments for leaf in leaves_of([t])))


def live_in(result: Any, arguments: Any, before: Any) -> list[Tensor]:
    """Return the new tensors in a result that a caller can differentiate. Tensors over storages from before the call (given by id) are
    excluded: views of these have a history of their own."""
    found = {id(t): t for t in tensors_in(result)}.values()
    return [t for t in found if id(t) not in arguments and id(t._storage) not in before and is_live(t, arguments)]


def same_results(a: Any, b: Any, alike: Callable[[Tensor, Tensor], bool]) -> bool:
    """Return whether two results have the same structure, tensors with equal headers and, by `alike`, equal values, and equal constants."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a._strides == b._strides and a.requires_grad == b.requires_grad and alike(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same_results(x, y, alike) for x, y in zip(a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_results(x, b[k], alike) for k, x in a.items())
    return a is b or bool(a == b)


def walked(t: Tensor) -> bool:
    """Return whether a backward pass has gone through a tensor's graph and freed the saved values."""
    return any(entry is GONE for node in nodes_of(t.grad_fn) for entry in node.saved_fields().values())

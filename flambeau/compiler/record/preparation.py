"""From a recorded call to a recording: the state before the call, its changes, and whether these can be replayed."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core import naming
from ...core.casts import KeptCopy, casts
from ...core.device import cpu
from ...core.graph import GONE
from ...core.sharded import SpreadTensor
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor
from ...optim.elementwise import ElementwiseOptimizer
from ..passes import pipeline
from ..runtime.first_run import Undo
from ..runtime.program import Program
from ..state.arguments import Arguments
from ..state.guards import AutogradItem, DictItem, GroupItem, Guard, Item, ListItem, TensorItem, observe
from ..state.reach import Reach
from .recorder import NotRecordable, StepRecorder
from .recording import GradSlot, Recorded, extent
from .results import Results, leaves_of, saved_storages
from .steps import Call
from .views import Views

if TYPE_CHECKING:
    from .differentiable import Derivative

differentiable = naming.late("compiler.record.differentiable")


class Changes(NotRecordable):
    """Raised when the function changes Python's state."""


class Prepared:
    """Snapshot of the state before the recorded call, for comparison with the state after it."""

    def __init__(self, reach: Reach, recorder: StepRecorder, given: Arguments, loose: bool = False):
        self.reach, self.recorder, self.given = reach, recorder, given
        self.loose = loose  # whether gradients that are read may be other tensors in each call
        self.inputs: list[Tensor] = []  # leaves with such gradients
        self.switched: dict[tuple[int, str], tuple[dict, str, bool]] = {}  # what the call has set to True or False
        self.outside: dict[int, Any] = {}  # tensors that replace arguments for the caller, by id
        self.casts: list[KeptCopy] = []  # copies of parameters that autocast made in the call and keeps after it
        self.copies: list[tuple[Any, Any]] = []  # lists and dicts among the arguments that the function gets copies of
        self.state = [t for _, t in reach.tensors.values()]
        self.observed = observe(reach.items)
        self.storages: dict[int, UntypedStorage] = {}
        for t in self.state:
            self._know(t)
        self._grads: dict[int, Any] = {}  # by the id of their leaf: weak references to gradients, and their versions
        own = {s.ptr for s in self.storages.values()}
        for t in self.state:
            own |= self._know_gradient(t)
        self.arguments: dict[int, tuple[int, int]] = {}
        for i, t in enumerate(given.tensors):
            self._argument(i, t, own)
        recorder.views = Views([*self.state, *given.tensors])
        self.versions = [(s, s.version) for s in self.storages.values()]
        self.argument_versions = [t._storage.version for t in given.tensors]
        self.headers: list[Any] = [TensorItem(f"argument {i}", t) for i, t in enumerate(given.tensors)]
        self.headers += [DictItem(f"attributes of argument {i}", t.__dict__) for i, t in enumerate(given.tensors)]
        for held in given.containers:
            self.headers.append(ListItem("a list", held) if type(held) is list else DictItem("a dict", held))

    def _know(self, t: Tensor) -> None:
        self.storages[id(t._storage)] = t._storage
        buffer = self.recorder.know_storage(t._storage, "state")
        if buffer is not None:
            buffer.dtype = t.dtype

    def _know_gradient(self, leaf: Tensor) -> set[int]:
        """Note the gradient that a leaf has, which the call may drop, and return the buffers of its memory."""
        grad = leaf.grad if leaf.is_leaf else None
        self._grads[id(leaf)] = None if grad is None else (weakref.ref(grad), grad._storage.version)
        if grad is None or grad.is_sparse:
            return set()
        if id(grad._storage) not in self.storages:
            buffer = self.recorder.know_storage(grad._storage, "state")
            if buffer is not None:
                buffer.dtype, buffer.storage = grad.dtype, None
                self.recorder.loose.add(buffer.index, grad)
        return {grad._storage.ptr}

    def _settle_grads(self) -> None:
        """Decide which gradients that existed before the call belong to its state: those that steps use."""
        self.grads_before: dict[int, Any] = {}  # by the id of their leaf; GONE if it was freed
        pinned = self.recorder.loose.pinned
        for buffer, grads in pinned.items():
            for grad in grads:
                self.recorder.memory.buffers[buffer].storage = grad._storage
        used = {id(grad) for grads in pinned.values() for grad in grads}
        for leaf, known in self._grads.items():
            held = None if known is None else known[0]()
            self.grads_before[leaf] = GONE if known is not None and held is None else held
            if held is not None and id(held) in used and id(held._storage) not in self.storages:
                self.storages[id(held._storage)] = held._storage
                self.versions.append((held._storage, known[1]))

    def _accept(self, t: Tensor) -> None:
        """Refuse an argument that cannot be recorded, and know its gradient."""
        if t.is_sparse or t.device is not cpu:
            raise NotRecordable(f"an argument is on {t.device} with layout {t.layout}")
        meta = t._autograd
        if meta is not None and (meta.hooks or meta.post_hooks or meta.accumulator_hooks):
            raise NotRecordable("an argument has hooks")
        self._know_gradient(t)

    def _argument(self, i: int, t: Tensor, own: set[int]) -> None:
        self._accept(t)
        if t._storage.ptr in own:
            raise NotRecordable("an argument shares memory with a parameter or a buffer")
        buffer = self.recorder.know_storage(t._storage, ("argument", i))
        if buffer is not None and buffer.index not in self.arguments:
            self.arguments[buffer.index] = (i, t._offset * t.dtype.itemsize)

    # -- afterwards -------------------------------------------------------------------------------------------------
    def finish(self, result: Any) -> Recorded:
        recorder = self.recorder
        if recorder.problems:
            raise NotRecordable(recorder.problems[0])
        if recorder.under_way:
            raise NotRecordable("it starts messages that it does not wait for")
        self._settle_grads()
        known = {**{id(t): t for t in self.state}, **self.reach.seen}
        containers = frozenset(map(id, self.given.containers))
        results = Results(recorder.memory, self.given.tensors, known, containers, recorder.views)
        for number in recorder.numbers:
            results.add_number(*number)
        grads = new_grads(
            [*self.state, *range(len(self.given.tensors))], self.given.tensors, self.grads_before, results
        )
        if recorder.observes:
            self._unchanged()
        make = results.maker(result)
        recorder.views.forget()
        self.live = results.live
        derivative, saves = self._derivative(results)
        graph = recorder.graph
        self._guard_grads(graph)
        kept = self._kept_casts()
        buffers = [s.buffer for s in results.slots]
        self._only_known(graph)
        trail = pipeline.run(graph, set(buffers))
        program = Program(graph, self.arguments, [b if b >= 0 else -1 for b in buffers])
        options = self._live_options(graph)
        recorded = Recorded(program, Guard(self.observed), results, make, grads)
        recorded.trail = trail
        recorded.derivative, recorded.saves = derivative, saves
        self._note_changes(recorded)
        undo = Undo(program, bool(recorded.grads or recorded.counted or recorded.switched))
        if program.sends and any(isinstance(step, Call) and step.results is not None for step in graph.steps):
            raise NotRecordable("a number is read from a tensor in a call that sends messages")
        recorded.undo = undo if undo.needed else None
        read: list[Any] = [self.grads_before[id(leaf)] for leaf in self.inputs]
        bumps = {id(s): s.version - v for s, v in self.versions}
        recorded.inputs = [(leaf, bumps.get(id(grad._storage), 0)) for leaf, grad in zip(self.inputs, read)]
        recorded.options, recorded.casts = options, kept
        recorded.objects = self.given.objects
        return recorded

    def _note_changes(self, recorded: Recorded) -> None:
        """Note how often the call changed each storage, which counters it advanced, and where the state is stored."""
        recorded.switched = list(self.switched.values())
        recorded.counted = [step for item in self.reach.items for step in item.steps()]
        recorded.bumps = [(s, s.version - v) for s, v in self.versions if s.version != v and id(s) in self.storages]
        recorded.argument_bumps = [
            (i, t._storage.version - old)
            for i, (t, old) in enumerate(zip(self.given.tensors, self.argument_versions))
            if t._storage.version != old and self._first(i)
        ]
        if getattr(recorded.program, "sends", False):  # what is captured on a GPU has no program yet
            recorded.state_storages = list(self.storages.values())
        recorded.state_addresses = frozenset(s.ptr for s in self.storages.values() if s.ptr)
        recorded.state_ranges = [(s.ptr, s.ptr + s.size_bytes) for s in self.storages.values() if s.ptr]

    def _derivative(self, results: Results) -> tuple[Derivative | None, list[Any]]:
        """Return the derivative that replaces the graph behind the results (None if they have none), and the memory that it reads."""
        if not results.live:
            return None, []
        positions = {id(t): i for i, t in enumerate(self.given.tensors)}
        state = {id(t) for t in self.state}
        leaves: list[Any] = []
        for leaf in leaves_of(results.live):
            if id(leaf) not in positions and id(leaf) not in state:
                raise NotRecordable("it makes leaves of its own")
            leaves.append(positions.get(id(leaf), leaf))
        saved = saved_storages(results.live)
        # an empty storage stands for that of an argument, which comes with each call
        mine = [s if id(s) in self.storages else UntypedStorage(0) for s in saved]
        saves = [own if slot is None else slot for slot, own in zip(results.keep(saved), mine)]
        return differentiable.Derivative(leaves, results.live, dict(self.storages), len(saved), self.state), saves

    def _first(self, i: int) -> bool:
        """Return whether no earlier argument has the same storage as argument `i`."""
        tensors = self.given.tensors
        return all(tensors[k]._storage is not tensors[i]._storage for k in range(i))

    def _unchanged(self) -> None:
        """Check that nothing but gradients has changed."""
        for item in self.reach.items:
            if isinstance(item, AutogradItem):
                before, now = item.seen, item._state()
                if before[:-1] != now[:-1]:  # all but the gradient
                    raise Changes(f"it changes Python's state: {item.difference()}")
                continue
            problem = item.difference()
            if problem:
                switched = item.switched()
                self.switched.update({(id(held), name): (held, name, value) for held, name, value in switched})
                if not switched:
                    raise Changes(f"it changes Python's state: {problem}")
        for item in self.headers:
            problem = item.difference()
            if problem:
                raise Changes(f"it changes an argument: {problem}")

    def _guard_grads(self, graph: Any) -> None:
        """Add guards that a gradient which the function reads keeps its memory."""
        used = {r.buffer for s in graph.steps for r in s.refs()}
        extra: list[Any] = []
        for t in [*self.state, *self.given.tensors]:
            before = self.grads_before[id(t)]
            if before is None or before is GONE or before.is_sparse or not before._storage.ptr:
                continue
            buffers = [b for b in graph.buffers if b.storage is before._storage]
            if any(b.index in used for b in buffers):
                if isinstance(before, SpreadTensor):
                    raise NotRecordable("it adds to a gradient that is spread over ranks")
                if any(t is a for a in self.given.tensors):
                    raise NotRecordable("it adds to the gradient of an argument")
                if self.loose and len(buffers) == 1 and before._storage.owner is None:
                    self._as_input(t, before, buffers[0])
                else:
                    extra += [TensorItem("a gradient", before), GradItem(t, before)]
        if self.inputs:
            extra.append(LooseGradients(self.inputs, {s.ptr for s in self.storages.values()}))
        self.observed += observe(extra)

    def _kept_casts(self) -> list[tuple[Tensor, Any]]:
        """Return the parameters whose copies autocast keeps in a context around the function, and the dtypes of these: an eager call that
        follows reads them."""
        before, arguments = {id(s): v for s, v in self.versions}, {id(t) for t in self.given.tensors}
        found = [one for one in self.casts if id(one.leaf) in self.reach.tensors]
        if any(id(one.leaf) in arguments for one in self.casts):
            raise NotRecordable("autocast keeps a copy of an argument")
        if any(before.get(id(one.storage)) != one.state[1] for one in found):
            raise NotRecordable("autocast casts a parameter that was changed before")
        if found:
            self.observed += observe([CastsItem([(id(one.leaf), one.copy.dtype) for one in found])])
        return [(one.leaf, one.copy.dtype) for one in found]

    def _as_input(self, leaf: Tensor, grad: Tensor, buffer: Any) -> None:
        """Make a gradient that is another tensor in each call an input of the program, after its arguments."""
        position = len(self.given.tensors) + len(self.inputs)
        buffer.source = ("argument", position)
        self.arguments[buffer.index] = (position, grad._offset * grad.dtype.itemsize)
        self.inputs.append(leaf)
        del self.storages[id(grad._storage)]

    def _live_options(self, graph: Any) -> list[Callable[[], dict[str, Any]]]:
        """Return a function for each optimizer update that reads its options in each call from the optimizer's groups, whose numbers may
        change. If the function itself reads groups, or a group is used in another way, the recorded options stay."""
        found: list[Callable[[], dict[str, Any]]] = []
        for update in graph.updates:
            item = None if "param_groups" in self.reach.names or self.reach.computed else self._group_item(update)
            found.append(functools.partial(getattr, update if item is None else item, "options"))
        return found

    def _group_item(self, update: Any) -> GroupItem | None:
        for optimizer in self.reach.optimizers:
            for group in optimizer.param_groups:
                if not isinstance(optimizer, ElementwiseOptimizer) or not _is_ours(optimizer):
                    continue
                if not update.parameters <= {id(p) for p in group["params"]}:
                    continue
                options = optimizer._options(group)
                if options != update.options:
                    return None
                for k, (item, rows) in enumerate(self.observed):
                    if isinstance(item, DictItem) and item.held is group:
                        if not isinstance(item, GroupItem):
                            known = GroupItem(item.what, group, optimizer, options)
                            known.whole = item.names
                            self.observed[k] = (known, rows)
                        return self.observed[k][0]  # type: ignore[return-value]
        return None

    def _only_known(self, graph: Any) -> None:
        """Check that steps touch arguments only between their first and last elements: the memory around them may belong to another tensor
        next time."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for t in self.given.tensors:
            place = self.recorder.memory.find(t._storage.ptr) if t._storage.ptr else None
            if place is not None:
                start = t._offset * t.dtype.itemsize
                spans.setdefault(place.buffer, []).append((start, start + extent(t)))
        for step in graph.steps:
            for ref in step.refs():
                known = spans.get(ref.buffer) if ref.buffer in self.arguments else None
                if known is not None and not any(start <= ref.offset < max(stop, start + 1) for start, stop in known):
                    raise NotRecordable("it accesses memory outside an argument")


def new_grads(holders: list, arguments: list[Tensor], before: dict[int, Any], results: Results) -> list[GradSlot]:
    """Return the gradients that a call has set. `holders` are tensors, or positions of arguments."""
    found = []
    for holder in holders:
        t = arguments[holder] if type(holder) is int else holder
        if not t.is_leaf or before[id(t)] is t.grad:
            continue
        header = mold = None
        if t.grad is not None:
            grad: Any = t.grad
            if isinstance(grad, SpreadTensor):
                mold, grad = grad._mold(), grad._beside(grad)
            if grad.is_sparse or grad.requires_grad or type(grad) is not Tensor:
                raise NotRecordable("it makes a gradient that is sparse or has a history")
            header = results.header(grad)
            if header is None:
                raise NotRecordable("a gradient shares memory with something that existed before")
            if mold is None:
                results.gradients[id(grad)] = holder
        found.append(GradSlot(holder, header, mold))
    return found


def _is_ours(optimizer: Any) -> bool:
    return type(optimizer).__module__.partition(".")[0] == __name__.partition(".")[0]


class GradItem(TensorItem):
    """Guard that a leaf's gradient is a certain tensor."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Tensor, grad: Tensor):
        super().__init__("a gradient", grad)
        self.leaf = leaf

    def rows(self) -> list[tuple[int, int]] | None:
        return None

    def difference(self) -> str:
        meta = self.leaf._autograd
        return "" if meta is not None and meta.grad is self.held else "a gradient is another tensor"


class CastsItem(Item):
    """Parameters that autocast casts once, in a context around the function: no copy of them was made before they were changed."""

    __slots__ = ("keys",)

    def __init__(self, keys: list[tuple[int, Any]]):
        self.what, self.keys = "copies that autocast keeps", keys

    def difference(self) -> str:
        kept = [casts.cache.get(key) for key in self.keys]
        return self.what + " are outdated" if any(one is not None and one.outdated for one in kept) else ""


class LooseGradients(Item):
    """Guard of gradients that are read and may be replaced by other tensors: each must have memory of its own."""

    __slots__ = ("leaves", "others")

    def __init__(self, leaves: list[Tensor], others: set[int]):
        self.what, self.leaves, self.others = "gradients", leaves, others

    def difference(self) -> str:
        found = set()
        for leaf in self.leaves:
            grad = leaf._autograd.grad if leaf._autograd is not None else None
            if grad is None or grad._storage.owner is not None or grad._storage.ptr in self.others:
                return "a gradient is missing, or shares memory"
            found.add(grad._storage.ptr)
        return "" if len(found) == len(self.leaves) else "two gradients share memory"

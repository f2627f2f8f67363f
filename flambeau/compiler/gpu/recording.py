"""Compiled functions on a GPU: the work of a call is captured into one CUDA graph, and later calls run the graph.

The first call runs eagerly. The second is observed: what cannot be captured (reading values, work on the CPU, changes of Python's
state) is a reason to leave the function eager. The third runs eagerly, the state is restored, the call is captured twice (to find out
what memory the graph needs, and with each buffer in its place), the graph runs, and both outcomes are compared. What differs between
calls (addresses of arguments and results, the numbers of optimizers) is patched into the graph; gradients stay at fixed addresses in
the graph's memory."""

from __future__ import annotations

import gc
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

from ...autograd.engine import run_backward
from ...backends.nvidia import cublaslt, driver, graphs, modules, product_tuning, threads
from ...backends.nvidia.memory import DeviceMemory, memories
from ...backends.nvidia.planned import Planned, Sketch
from ...core.backend import backend_of
from ...core.device import device
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, empty_strided, tensors_in
from ...graph.replay import Diverged, modes_off
from ..record import preparation
from ..record.differentiable import Boundary, cut_off
from ..record.operator_call import Stale
from ..record.recorder import Memory, NotRecordable
from ..record.recording import GradSlot, Recorded, extent
from ..record.results import Results, leaves_of, live_in
from ..record.views import Views
from ..runtime.program import Program
from ..state.guards import Guard
from .before_call import LeftState, StateBefore
from .capture import GraphProgram, Observer, address, capturing, copied, static_copies, stream_of
from .derivative import CapturedDerivative, CapturedNode, users_part, watched
from .preparation import Family, Prepared, Wanted
from .program import GpuProgram, write_down
from .second_stream import MOST
from .values import Copy, Outcome, alike, perturb, summary, sums

_SPARE = 1 << 16  # bytes of free memory that a graph does not take
_LARGE = 1 << 30  # bytes of an eager call beside which the graph's memory should not stand


class GraphRecorded(Recorded):
    """A recording on a GPU, captured when it is first checked."""

    program: GraphProgram  # type: ignore[assignment]
    node: Any = None  # a weak reference to the history of the last results
    backward: CapturedDerivative | None = None
    written: GpuProgram | None = None  # the call as a program of operator calls
    unwritten = ""  # why there is none
    wanted: Wanted  # which results of the observed call were differentiated
    prepared: Any  # the state before the observed call

    def __init__(self, prepared: Prepared, where: device, options: list[Any], guard: Guard | None = None):
        guard = guard or Guard(prepared.observed)
        super().__init__(None, guard, Results(Memory(), [], {}), None, [])  # type: ignore[arg-type]
        self.prepared, self.where, self.options = prepared, where, options

    def makes_only_results(self) -> None:
        """Note that the observed call had no effect but its results: recordings for other sizes can share its state and memory."""
        self.family = Family(self.prepared, self.guard, self.where)

    # -- running ----------------------------------------------------------------------------------------------------
    def _storages(self) -> tuple[list[UntypedStorage], bool]:
        """Return storages for the results, and whether they are reused. Gradients stay in the graph's memory, earlier ones are moved out."""
        if self.kept and self.exclusive.unchanged():
            made = self.kept.copy()
            for i in self.others:
                made[i] = UntypedStorage(self.slots[i].size, self.where)
            return made, True
        self.kept = []
        made, reused = [None] * len(self.slots), all(type(slot.holder) is not int for slot in self.grads)
        for slot in self.grads:
            if slot.header is not None and type(slot.holder) is not int:
                made[slot.header.slot] = self._gradient_memory(slot)
                reused = reused and slot.tensor is not None
        for i, one in enumerate(self.slots):
            if made[i] is None:
                made[i] = UntypedStorage(one.size, self.where)
        return made, reused

    def _gradient_memory(self, slot: GradSlot) -> UntypedStorage:
        """Return a storage over a gradient's place in the graph's memory; other holders of that storage are moved to a copy."""
        held: Any = slot.tensor
        memory = held._storage
        in_use = slot.holder.grad is held and held._autograd is None and not held.__dict__
        alone = sys.getrefcount(held) == 3 + (slot.holder.grad is held) and sys.getrefcount(memory) == 3
        if not in_use or not alone:
            slot.tensor = None
        if alone and not getattr(memory, "aliases", None):
            return memory
        if getattr(memory, "fixed", False):
            raise Stale("code outside holds the address of a gradient")
        copy = UntypedStorage(memory.size_bytes, self.where)
        backend_of(self.where).copy(copy.ptr, memory.ptr, memory.size_bytes, self.where)
        place = memory.ptr
        memory._move(copy.ptr, memory.size_bytes)
        copy.ptr = place
        slot.tensor = None
        return copy

    # -- the first run ----------------------------------------------------------------------------------------------
    def check(self, tensors: list[Tensor], run: Callable[..., Any]) -> tuple[str, Any]:
        """Run the function, undo that, capture and run the graph, and compare: return why they differ (or ""), and the result. The two
        runs are sequential, so that the graph's memory and that of the function, history included, are never needed together."""
        before = StateBefore(self.prepared, self.where, self.prepared.read, tensors)
        arguments = [Copy(t) for t in tensors]
        leaves = [t if t.is_leaf else Boundary(t, []).leaf for t in tensors]
        result = run({id(t): end for t, end in zip(tensors, leaves)})
        self.some = self.wanted.some()
        limit = self._memory().reserved
        left = LeftState(self.prepared, self.where)
        eager = self._outcome(tensors, before, result)
        theirs, failed = self._derivatives(leaves, result, self.some)
        del result
        if limit > _LARGE:
            gc.collect()  # a history may hold itself
        # A run that needs much memory is made now, before the graph has memory of its own.
        swings = self._measure_swings(tensors, before, eager, arguments, run) if limit > _LARGE else None
        self._undo(before, arguments, gradients=False)

        def compared() -> str:
            """Capture, run and compare: return why the graph cannot be used, or ""."""
            if failed:
                return failed
            try:
                made[:] = self._capture(tensors, run, *self._plan(tensors, run, before, arguments, limit))
                self.program.capture.replay()
                derivatives = [] if self.backward is None else [d.sample() for d in self.backward.captured()]
                left.put_back()
                problem = self._differs(tensors, made, before, eager, arguments, run, left, swings)
                return problem or _differentiate_otherwise(derivatives, theirs)
            except (NotRecordable, Diverged) as error:
                return str(error)
            except Exception as error:
                return f"it cannot be captured: {type(error).__name__}: {error}"

        made: list[UntypedStorage] = []
        if not failed:
            self._record_program(tensors, run, before)
        problem = "" if self.written is None else compared()
        if problem:
            self._drop_capture()
            self.written, self.unwritten = None, f"captured as it is; as a program of operator calls, {problem}"
            self._undo(before, arguments, gradients=False)
        if self.written is None:
            if self.some and not failed:  # then all may be asked for, too
                result = run({id(t): end for t, end in zip(tensors, leaves)})
                found, failed = self._derivatives(leaves, result, ())
                theirs += found
                del result
                self._undo(before, arguments, gradients=False)
            self._make_room()
            problem = compared()
        self.checked = not problem
        if problem:
            self._undo(before, arguments)
            result = run({})
        else:
            for slot in self.grads:
                of_argument = type(slot.holder) is int
                leaf = tensors[slot.holder] if of_argument else slot.holder
                leaf.grad = slot.header.make(made) if of_argument and slot.header is not None else slot.tensor
            result = self._result(tensors, made)
        del self.prepared  # and the arguments of the first calls
        self._give_back()
        return problem, result

    def _undo(self, before: StateBefore, arguments: list[Copy], gradients: bool = True) -> None:
        """Restore the state and free the memory of the run. Gradients that the function only drops need no values."""
        before.restore(gradients)
        for old in arguments:
            old.put_back()
        self._give_back()

    def _make_room(self) -> None:
        """Release, before a capture, cached memory that it would not use."""
        cublaslt.forget_workspace(self.where, threads.mine.streams[self.where.index or 0])  # the graph has its own
        backend_of(self.where).forget_scratch(self.where)  # type: ignore[attr-defined]
        self._give_back()

    def _give_back(self) -> None:
        self._memory().empty_cache()

    def _memory(self) -> DeviceMemory:
        return memories()[self.where.index or 0]

    def _record_program(self, tensors: list[Tensor], run: Callable[..., Any], before: StateBefore) -> None:
        """Record the call as a program of operator calls and rewrite it; a call that is more than that is captured itself."""
        product_tuning.tune(self.where)
        self._make_room()
        index = self.where.index or 0
        sketch = Sketch(stream_of(index).cuda_stream)
        if not sketch.begin(self._memory()):
            return
        grads = {id(t): t.grad if t.is_leaf else None for t in self.prepared.state}
        try:
            self.written = write_down(
                self.prepared, self.where, tensors, run, graphs.handle_of(index, sketch), self.some,
                lambda statics, results: _new_grads(self.prepared.state, statics, grads, results),
            )  # fmt: skip
        except NotRecordable as problem:
            self.unwritten = f"captured as it is: {problem}"
        except Exception as error:  # of the function, which then has it again when it is captured; or of a pass
            self.unwritten = f"captured as it is: {type(error).__name__}: {error}"
        grads.clear()  # they may go
        try:
            self._clear(sketch, before)
        except NotRecordable as problem:
            self.written, self.unwritten = None, f"captured as it is: {problem}"

    def _plan(
        self, tensors: list[Tensor], run: Callable[..., Any], before: StateBefore, arguments: list[Copy], limit: int
    ) -> tuple[Any, int]:
        """Return memory for the graph, or None, and how many pieces of work may run on the second stream: fewer where all memory would
        exceed the limit. What the graph must hold is known from captures that are thrown away."""
        index, memory = self.where.index or 0, self._memory()
        for most in (MOST, 1, 0):
            found = self._capture_sketch(tensors, run, before, arguments, most)
            if found is not None and product_tuning.tune(self.where):  # other algorithms need other memory
                found = self._capture_sketch(tensors, run, before, arguments, most)
            if found is None:
                return None, most
            sketch, results = found
            # The results' memory does not belong to the graph: reserve it while the graph's is planned.
            spare = [UntypedStorage(size, self.where) for size in (_SPARE, *results)]
            pool = Planned.make(memory, sketch, threads.mine.streams[index], limit if most else math.inf)
            del spare
            if pool is not None:
                break
        return graphs.handle_of(index, pool), most  # type: ignore[arg-type]

    def _capture_sketch(
        self, tensors: list[Tensor], run: Callable[..., Any], before: StateBefore, arguments: list[Copy], most: int
    ) -> tuple[Sketch, list[int]] | None:
        """Make a capture that is thrown away: return the memory that it needs and the sizes of its results, or None if it fails."""
        index = self.where.index or 0
        sketch = Sketch(stream_of(index).cuda_stream)
        if not sketch.begin(self._memory()):
            return None
        try:
            with modules.rehearsing():
                self._capture(tensors, run, graphs.handle_of(index, sketch), most)
        except driver.CudaError:  # not with such addresses
            self._undo(before, arguments, gradients=False)
            self._make_room()
            return None
        return sketch, self._forget_capture(sketch, before)

    def _forget_capture(self, sketch: Sketch, before: StateBefore) -> list[int]:
        """Drop a capture that is not run, and return the sizes of its results."""
        grads = set(self._own_slots())
        sizes = [one.size for i, one in enumerate(self.slots) if i not in grads]
        self._drop_capture()
        self._clear(sketch, before)
        return sizes

    def _own_slots(self) -> dict[int, GradSlot]:
        """Return the gradients that stay in the graph's memory (those of parameters), by their index among the results."""
        return {s.header.slot: s for s in self.grads if s.header is not None and type(s.holder) is not int}

    def _drop_capture(self) -> None:
        for derivative in () if self.backward is None else self.backward.all():
            derivative.graph = None
        self.grads, self.backward, self.make = [], None, None  # type: ignore[assignment]
        self.program = None  # type: ignore[assignment]

    def _clear(self, sketch: Sketch, before: StateBefore) -> None:
        """Restore the state before a capture that is not run."""
        self._memory().peak = sketch.peak
        before.restore(gradients=False, has_run=False)
        if sketch.alive:
            gc.collect()
        if sketch.alive:
            raise NotRecordable("a tensor that it makes outlives the call in a place that later calls would not update")
        self._make_room()

    def _capture(self, tensors: list[Tensor], run: Callable[..., Any], pool: Any, most: int) -> list[UntypedStorage]:
        """Capture a call in memory of `pool`, with at most `most` pieces of work on the second stream. Return storages for its results;
        nothing has run yet."""
        prepared, where = self.prepared, self.where
        capture = graphs.CUDAGraph(keep_graph=True)
        observer = Observer(capture, most=most)
        known = list(prepared.storages.values())
        for storage in known:
            observer.know_storage(storage, "state")
        state = {id(t): t for t in prepared.state}
        grads_before = {i: t.grad if t.is_leaf else None for i, t in state.items()}
        with capturing(capture, where, pool) as callers:
            inputs, statics = static_copies(tensors, observer, where)
            for t, static in zip(tensors, statics):
                static.requires_grad = t.requires_grad
            written, replay, live = self.written, None, []
            observer.views = Views([*prepared.state, *statics])
            with observer.recording():
                if written is None:
                    result = run({id(t): s for t, s in zip(tensors, statics)})
                else:
                    replay = written.emit(statics)
            if observer.problems:
                raise NotRecordable(observer.problems[0])
            if written is None or replay is None:
                results = Results(
                    observer.memory, statics, {**state, **prepared.reach.seen}, views=observer.views, stand_ins=True
                )
                self.grads = _new_grads(prepared.state, statics, grads_before, results)
                self.make, self.slots, live = results.maker(result), results.slots, results.live
                observer.views.forget()
            else:
                self.grads, self.make, self.slots = written.grads(replay), written.make, written.slots
            self.drops_grads = any(s.header is None for s in self.grads)
            mine = self._own_slots()
            with callers():
                made = [
                    mine[i].tensor._storage if i in mine else UntypedStorage(one.size, where)  # type: ignore[union-attr]
                    for i, one in enumerate(self.slots)
                ]
            outputs = [
                (i, copied(capture, made[i].ptr, address(observer, one, replay), one.size, where, True))
                for i, one in enumerate(self.slots)
                if i not in mine and one.size
            ]
            changed = [
                (i, copied(capture, tensors[i].data_ptr(), statics[i].data_ptr(), extent(tensors[i]), where))
                for i, _ in self.argument_bumps
            ]
        self.program = GraphProgram(capture, Program(observer.graph, {}, []), observer)
        self.program.inputs, self.program.outputs, self.program.changed = inputs, outputs, changed
        if len(self.program.updates) != len(self.options):
            raise NotRecordable("it does not do the same in each call")
        self.program.calls = self.unwritten if written is None else written.told()
        self.backward = None if written is None else written.derivative
        if live:
            self.backward = CapturedDerivative.of(live, statics, state, where, self.some)
        for derivative in () if self.backward is None else self.backward.captured():
            derivative.capture(capture.pool(), known, most, replay)
            self.program.after = derivative.graph
        if self.backward is not None and self.backward.usual is not None and replay is not None:
            self.backward.leave(replay)
        return made

    def run(self, tensors: Any) -> Any:
        made, reused = self._storages()
        self.program.run(tensors, made, self._options())
        self._apply_side_effects(tensors, made, reused)
        self.calls += 1
        return self._result(tensors, made)

    def _result(self, tensors: Any, made: list[UntypedStorage]) -> Any:
        """Return the result of a run, with a node that knows its derivative."""
        node = None
        if self.backward is not None:
            node = CapturedNode(self.backward, tensors)
            self.node = weakref.ref(node)
        return self.make(tensors, made, node)

    @property
    def busy(self) -> bool:
        """Return whether the recording runs in an outer call or its memory is needed for a derivative: then the function runs eagerly."""
        node = None if self.node is None else self.node()
        return self._busy or (node is not None and not node.done)

    @busy.setter
    def busy(self, value: bool) -> None:
        self._busy = value

    def _outcome(self, tensors: list[Tensor], before: StateBefore, result: Any) -> Outcome:
        """Return the state that the function has left behind after an eager run."""
        gradients = {id(g.leaf): g.now() for g in before.grads if g.is_new()}
        changed: list[Any] = [Copy(tensors[i]) for i, _ in self.argument_bumps]
        return _side_effects(before, changed, result, gradients)

    def _graph_outcome(self, tensors: list[Tensor], made: list, before: StateBefore) -> Outcome:
        gradients = {
            id(tensors[s.holder] if type(s.holder) is int else s.holder): s.header and s.header.make(made)
            for s in self.grads
        }
        changed: list[Any] = [tensors[i] for i, _ in self.argument_bumps]
        return _side_effects(before, changed, self.make(tensors, made, None), gradients)

    def _differs(
        self,
        tensors: list[Tensor],
        made: list,
        before: StateBefore,
        eager: Outcome,
        arguments: list[Copy],
        run: Callable[..., Any],
        left: LeftState,
        swings: dict[Any, float] | None,
    ) -> str:
        """Return why the graph's outcome is not the function's, or "". A difference too large for one rounding may still come from
        rounding: a gradient that is zero but for noise becomes a full step of Adam. So the function runs once more, from a state that
        differs by rounding alone, to see how far apart the outcomes are (unless these `swings` are given)."""
        with modes_off():
            ours = self._graph_outcome(tensors, made, before)
            if ours.gradients.keys() != eager.gradients.keys():
                return "it does not do the same in each call"
            apart = [d for d in ours.distances(eager, before.sums) if not d[2].is_noise()]
        if not apart or any(math.isinf(d.apart) for _, _, d in apart):
            return _describe_difference(apart, before, eager)
        if swings is None:
            swings = self._measure_swings(tensors, before, eager, arguments, run)
            self._undo(before, arguments)
            self.program.capture.replay()
            left.put_back()
        return _describe_difference([d for d in apart if not d[2].is_noise(swings.get(d[:2], 0.0))], before, eager)

    def _measure_swings(
        self, tensors: list[Tensor], before: StateBefore, eager: Outcome, arguments: list[Copy], run: Callable[..., Any]
    ) -> dict[Any, float]:
        """Return how much the function's outcome changes when its inputs change by rounding alone."""
        self._undo(before, arguments)
        versions = [t._storage.version for t in tensors]
        for t in (*before.tensors, *tensors):
            perturb(t)
        moved = self._outcome(tensors, before, run({}))
        for t, version in zip(tensors, versions):  # their histories may keep them
            t._storage.version = version
        with modes_off():
            return {(what, which): d.apart for what, which, d in moved.distances(eager, before.sums)}

    def _derivatives(
        self, tensors: list[Tensor], result: Any, which: tuple[int, ...]
    ) -> tuple[list[dict[int, Tensor | None]], str]:
        """Compute the derivatives of the results `which` (all if empty) for gradients of ones; return them, and why there are none, or
        "". Gradients are keyed by the positions of arguments, or the ids of other leaves."""
        positions = {id(t): i for i, t in enumerate(tensors)}
        live = live_in(result, positions, {id(t._storage) for t in tensors} | self.prepared.storages.keys())
        if which and which[-1] >= len(live):
            return [], "it does not do the same in each call"
        outputs = [live[i] for i in which or range(len(live))]
        if users := users_part(outputs):
            return [], users
        leaves, told = leaves_of(outputs), list[str]()
        grads = [empty_strided(t.shape, t._strides, t.dtype, t.device).fill_(1.0) for t in outputs]
        try:
            with cut_off(leaves), watched(self.prepared, told):
                given = run_backward(outputs, grads, True, False, leaves, False) if outputs else ()
        except Exception as error:  # of the function's, which its caller may never ask for
            return [], f"it cannot be differentiated: {type(error).__name__}: {error}"
        if told:
            return [], told[0]
        return [{positions.get(id(leaf), id(leaf)): g for leaf, g in zip(leaves, given)}] if outputs else [], ""


def _side_effects(before: StateBefore, changed: list[Any], result: Any, gradients: dict[int, Any]) -> Outcome:
    results = tensors_in(result)
    return Outcome(
        [sums(t) for t in before.tensors], changed, list(map(summary, results)), [t.shape for t in results], gradients
    )


def _differentiate_otherwise(ours: list[dict[int, Any]], theirs: list[dict[int, Any]]) -> str:
    """Return why the graph's derivatives differ from the function's, or ""."""
    if [d.keys() for d in ours] != [d.keys() for d in theirs]:
        return "it does not do the same in each call"
    with modes_off():
        for a, b in ((a, b[leaf]) for d, b in zip(ours, theirs) for leaf, a in d.items()):
            if (a is None) != (b is None) or (a is not None and not alike(a, b)):
                return "a gradient came out differently"
    return ""


def _describe_difference(apart: list[Any], before: StateBefore, eager: Outcome) -> str:
    """Describe the first difference, or return "" if there is none."""
    if not apart:
        return ""
    what, which, how_far = apart[0]
    group: Any = {
        "state": before.tensors,
        "argument": eager.arguments,
        "result": eager.shapes,
        "gradient": eager.gradients,
    }[what]
    shape = list(group[which] if what == "result" else getattr(group[which], "shape", ()))
    return f"{'an' if what == 'argument' else 'a'} {what} of shape {shape} came out differently, {how_far}"


def _new_grads(state: list[Tensor], statics: list[Tensor], before: dict[int, Any], results: Results) -> list[GradSlot]:
    """Return the gradients that the captured call has set; those of parameters with the tensors that it made. `statics` stand for arguments."""
    before = {**before, **{id(s): None for s in statics}}
    found = preparation.new_grads([*state, *range(len(statics))], statics, before, results)
    slots = [s.header.slot for s in found if s.header is not None]
    if len(set(slots)) != len(slots):
        raise NotRecordable("two gradients share memory")
    for slot in found:
        slot.tensor = None if type(slot.holder) is int else slot.holder.grad
    return found

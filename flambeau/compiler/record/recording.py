"""Recordings that can be replayed: the program, and the side effects of an eager call besides values in memory."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core import naming
from ...core.allocator import allocator
from ...core.storage import INFERENCE, UntypedStorage
from ...core.tensor import Tensor, tensors_in
from ..passes.pipeline import Stage
from ..runtime.first_run import Rehearsal, SetAside, Undo, extent, to_the_end
from ..runtime.program import Program
from ..runtime.stepwise import run_stepwise
from ..state.arguments import Arguments, settings_key
from ..state.frames import from_signal_handler
from ..state.guards import Guard, Words, gradient_rows
from ..state.object_layouts import GRADIENTS_ARE_KNOWN
from .comparison import TensorPrint
from .operator_call import Failed, Stale
from .results import Header, Results

if TYPE_CHECKING:
    from .differentiable import Derivative

casting, differentiable = naming.late("amp.casting"), naming.late("compiler.record.differentiable")
messages = naming.late("compiler.runtime.messages")


def _references(thing: Any) -> int:
    return sys.getrefcount(thing)


# Up to Python 3.10 the caller of a function holds references to its arguments, too, while it runs.
_HELD_BY_CALLERS = _references(object()) - 2


class GradSlot:
    """A leaf whose gradient the function sets: a tensor of the state, or an argument."""

    def __init__(self, holder: Any, header: Header | None, mold: Callable | None = None):
        # `mold` makes a tensor that is spread over ranks from this rank's part.
        self.holder, self.header, self.mold = holder, header, mold
        self.tensor: Tensor | None = None
        self.counts = (0, 0)


class Recorded:
    """A recording that can be replayed: its program, guard, results, and the side effects of the call."""

    def __init__(self, program: Program, guard: Guard, results: Results, make: Callable, grads: list[GradSlot]):
        self.program, self.guard, self.make, self.grads = program, guard, make, grads
        self.slots, self.headers, self.returned = results.slots, results.headers, results.returned
        self.bumps: list[tuple[UntypedStorage, int]] = []  # storages of the state and how often they were changed
        self.argument_bumps: list[tuple[int, int]] = []
        self.switched: list[tuple[dict, str, bool]] = []  # entries of dicts that the call sets, and to what
        # numbers that the call only adds to: in a dict or a cell, and how much
        self.counted: list[tuple[Any, str, int]] = []
        # leaves whose gradients are inputs, at any address, and how often the call changes them
        self.inputs: list[tuple[Tensor, int]] = []
        self.options: list[Any] = []
        self.objects: list[Any] = []  # arguments compared by identity: kept alive so that their ids stay theirs
        self.checked = False
        self.calls = 0
        self.state_addresses: frozenset[int] = frozenset()
        self.state_storages: list[UntypedStorage] = []  # until it is compared, if it exchanges messages
        self.drops_grads = any(s.header is None for s in grads)
        self.kept: list[Any] = []  # the storages of gradients that were made last, by slot
        self.others: list[int] = []
        self.exclusive: Any = None
        self.state_ranges: list[tuple[int, int]] = []
        self.seconds = 0.0
        self.sizes = ""  # the sizes that it serves, as text, if there are many
        self.times: list[tuple[str, float]] = []  # of native calls, when it was compared
        self.trail: list[Stage] = []
        self.busy = False  # whether it runs in an outer call: a recording belongs to one thread
        self.derivative: Derivative | None = None
        self.family: Any = None  # the state shared with recordings for other sizes, if there is any
        self.undo: Undo | None = None  # where a step may raise an exception
        # Parameters that autocast, around the call, keeps copies of, and the dtypes of these.
        self.casts: list[Any] = []
        self.light = False  # whether it was made without passes, for one of many sizes
        self.due: float = math.inf  # calls after which a full recording is worth making
        self.saves: list[Any] = []  # slots that the derivative reads, or the storage itself if it existed before

    def fits(self, given: Arguments) -> str:
        """Return why the recording cannot be used for this call, or an empty string if it can."""
        for t in given.tensors:
            storage = t._storage
            if storage.ptr in self.state_addresses or (storage.owner is not None and self._in_state(storage)):
                return "an argument shares memory with a parameter or a buffer"
        return self.difference()

    def difference(self) -> str:
        """Describe what has changed of the state that the function and its derivative read, or return ""."""
        behind = None if self.derivative is None else self.derivative.guard
        return self.guard.difference() or ("" if behind is None else behind.difference())

    def _in_state(self, storage: UntypedStorage) -> bool:
        """Return whether borrowed memory overlaps that of the state."""
        end = storage.ptr + storage.size_bytes
        return any(start < end and storage.ptr < stop for start, stop in self.state_ranges)

    # -- running ----------------------------------------------------------------------------------------------------
    def _with_inputs(self, tensors: Any) -> Any:
        """Return the arguments followed by the gradients that the program reads."""
        if not self.inputs:
            return tensors
        grads: list[Any] = [leaf.grad for leaf, _ in self.inputs]
        if {g._storage.ptr for g in grads} & {t._storage.ptr for t in tensors}:
            raise Stale("an argument shares memory with a gradient")
        return [*tensors, *grads]

    def run(self, tensors: Any) -> Any:
        if self.derivative is not None and self.derivative.problem:
            raise Stale(self.derivative.problem)
        tensors = self._with_inputs(tensors)
        for leaf, target in self.casts:
            casting.kept_copy(leaf, target)
        made, reused = self._storages()
        if self.undo is None:
            self.program.run(tensors, made, self._options())
        else:
            self._run_or_restore(tensors, made, self.undo)
        self._apply_side_effects(tensors, made, reused)
        self.calls += 1
        return self.make(tensors, made, None) if self.derivative is None else self._with_history(tensors, made)

    def _run_or_restore(self, tensors: list[Tensor], made: list[UntypedStorage], undo: Undo) -> None:
        """Run the program. Where a step raises an exception, restore what was there before, and raise `Failed` instead of it."""
        restore, failed, self.program.failed = undo.save(tensors), False, None
        try:
            self.program.run(tensors, made, self._options())
        except BaseException as problem:
            to_the_end(restore)
            if isinstance(problem, Stale):
                raise
            failed = isinstance(problem, Exception) and undo.restores(self.program.failed)
            if not failed or from_signal_handler(problem):
                raise
        if failed:  # not while the exception is handled: a function may ask for that
            raise Failed("an operator has raised an exception")

    def _with_history(self, tensors: list[Tensor], made: list[UntypedStorage]) -> Any:
        """Return the results with a node that knows their derivative."""
        assert self.derivative is not None
        saved = [made[s] if type(s) is int else s for s in self.saves]
        return self.make(tensors, made, differentiable.FunctionNode(self.derivative, tensors, saved))

    def _options(self) -> list[dict[str, Any]]:
        return [o() for o in self.options]

    def _storages(self) -> tuple[list[UntypedStorage], bool]:
        """Return memory for the results. Gradients that only their leaf holds are written in place."""
        if self.kept and self.exclusive.unchanged():
            made = self.kept.copy()
            for i in self.others:
                made[i] = UntypedStorage(self.slots[i].size)
            self.program.changed = self.others
            return made, True
        self.program.changed = None
        grads = self.grads
        made = [None] * len(self.slots)
        reused = True
        for slot in grads:
            header = slot.header
            if header is None:
                continue
            held = slot.tensor
            if (
                held is not None
                and type(slot.holder) is not int
                and slot.holder.grad is held
                and (sys.getrefcount(held), sys.getrefcount(held._storage)) == slot.counts
                and held._autograd is None
                and not held.__dict__
            ):
                made[header.slot] = held._storage
            else:
                slot.tensor, reused = None, False
        for i, one in enumerate(self.slots):
            if made[i] is None:
                made[i] = UntypedStorage(one.size)
        return made, reused

    def _apply_side_effects(self, tensors: list[Tensor], made: list[UntypedStorage], reused: bool) -> None:
        """Apply an eager call's side effects besides values in memory: counters, flags, versions of storages, gradients."""
        for held, name, step in self.counted:
            if name:
                held[name] += step
            else:
                held.cell_contents += step
        for held, name, value in self.switched:
            held[name] = value
        for storage, times in self.bumps:
            storage.version += times
        for i, times in self.argument_bumps:
            tensors[i]._storage.version += times
        for leaf, times in self.inputs:
            leaf.grad._storage.version += times  # type: ignore[union-attr]
        if not reused or self.drops_grads:
            for slot in self.grads:
                if type(slot.holder) is int:
                    grad = None if slot.header is None else slot.header.make(made)
                    tensors[slot.holder]._ensure_autograd().grad = grad
                elif slot.header is None:
                    slot.holder.grad = None
                elif slot.tensor is None:
                    held = slot.header.make(made)
                    if slot.mold is not None:
                        slot.holder.grad = slot.mold(held)
                        continue
                    slot.tensor = slot.holder.grad = held
                    slot.counts = sys.getrefcount(held), sys.getrefcount(held._storage) - 1
                    del held
            self._remember(made)

    def _remember(self, made: list[UntypedStorage]) -> None:
        """Remember the gradients made, so that a look at their memory tells later whether they can be written in place."""
        slots = [s for s in self.grads if s.header is not None]
        self.kept = []
        if not GRADIENTS_ARE_KNOWN or len(slots) != len(self.grads) or any(type(s.holder) is int for s in slots):
            return
        if any(s.mold is not None for s in slots):
            return
        if len({s.header.slot for s in slots if s.header}) != len(slots):
            return  # two gradients in one storage
        rows: list[tuple[int, int]] = []
        for s in slots:
            found = gradient_rows(s.tensor, s.holder._autograd)
            if found is None:
                return
            rows += found
        mine = {s.header.slot for s in slots if s.header}
        self.others = [i for i in range(len(made)) if i not in mine]
        self.kept = [storage if i in mine else None for i, storage in enumerate(made)]
        self.exclusive = Words(rows)

    # -- the first run ----------------------------------------------------------------------------------------------
    def check(self, tensors: list[Tensor], run: Callable[[dict[int, Tensor]], Any]) -> tuple[str, Any]:
        """Run the recording, undo it, run the function (`run`, which takes a mapping of tensors to stand-ins), and compare: return why they
        differ (or ""), and the function's result."""
        tensors = self._with_inputs(tensors)
        self.kept, self.program.changed = [], None  # it may have run, for another size
        allocator.empty_cache()  # blocks that the arena stands for
        if self.program.sends:
            problem, result, *prints = self._rehearse_afterwards(tensors, run)
        else:
            problem, *prints = self._rehearse(tensors)
            with allocator.sparing():
                result = run({})
        if not problem:
            problem = self._compare(tensors, result, *prints)
        del prints
        self.checked = not problem
        if self.checked:
            self._reuse_gradient_memory()
        allocator.empty_cache()  # and the memory of the fingerprints
        return problem, result

    def _reuse_gradient_memory(self) -> None:
        """Write later gradients into the memory of those that the function has made, if nothing else holds them."""
        made: list[Any] = [None] * len(self.slots)
        for slot in self.grads:
            if slot.header is None or type(slot.holder) is int:
                continue
            held = slot.holder.grad
            slot.tensor = held if self._is_spare(held, slot, 4) and held._strides == slot.header.strides else None
            if slot.tensor is not None:
                made[slot.header.slot] = held._storage
                slot.counts = 4, 2
        if all(slot.tensor is not None for slot in self.grads):
            self._remember(made)
            self.program.place(made, [i for i, storage in enumerate(made) if storage is not None])

    def _is_spare(self, held: Any, slot: GradSlot, count: int) -> bool:
        """Return whether a gradient's memory can be reused: besides its leaf and the caller, exactly `count` references hold it."""
        assert slot.header is not None
        return (
            type(held) is Tensor
            and not held.is_sparse
            and held._autograd is None
            and held._base is None
            and not held.__dict__
            and held._offset == slot.header.offset
            and held._storage.owner is None
            and held._storage.size_bytes == self.slots[slot.header.slot].size
            and not getattr(held._storage, "fixed", False)
            and not getattr(held._storage, "aliases", None)
            and sys.getrefcount(held) == count + _HELD_BY_CALLERS
            and sys.getrefcount(held._storage) == 2
            and held._storage.ptr not in self.state_addresses
        )

    def _spare_storages(self) -> tuple[list[UntypedStorage], SetAside]:
        """Return storages for the results of a rehearsal: those of gradients that the function is going to drop, as far as there are any; and
        their saved contents, which are restored before the function runs."""
        found: list[Any] = [None] * len(self.slots)
        for slot in self.grads:
            if slot.header is not None and type(slot.holder) is not int:
                held = slot.holder.grad
                if self._is_spare(held, slot, 4):
                    found[slot.header.slot] = held._storage
        try:
            aside = SetAside([storage for storage in found if storage is not None])
        except OSError:  # no space for files: keep the bytes in memory
            found, aside = [None] * len(self.slots), SetAside([])
        return [UntypedStorage(slot.size) if mine is None else mine for slot, mine in zip(self.slots, found)], aside

    def _rehearse_afterwards(self, tensors: list[Tensor], run: Callable) -> tuple[str, Any, list, list, list]:
        """Run the function, then the program from the state before, with the messages that the function got: return what went wrong, the
        function's result, and fingerprints as `_rehearse` does. The state is then as the function has left it."""
        held = {id(s): s for s in (*self.state_storages, *(t._storage for t in tensors)) if s.ptr}
        states, answers = messages.States(list(held.values()), self.program.graph.draws), messages.Answers()
        self.state_storages = []
        with allocator.sparing(), answers.observing():
            result = run({})
        states.back()
        try:
            problem, *prints = self._rehearse(tensors, answers)
        finally:
            states.forth()
        if answers.kept and not problem:
            problem = f"{answers.kept[0][0].name} is not called as often as when the function runs as it is"
        return problem, result, *prints

    def _rehearse(self, tensors: list[Tensor], answers: Any = None) -> tuple[str, list, list, list]:
        """Run the program and undo it: return what went wrong, and fingerprints of the state, the results and the gradients."""
        made, aside = self._spare_storages()
        shown = {t._storage.ptr for t in tensors_in(self.make(tensors, made, None))}
        problem, ours, gradients = "", [], []
        rehearsal = Rehearsal(self.program, tensors, made, shown)
        self.times, rehearsal.answers = rehearsal.times, answers
        try:
            self.program.rehearsal = functools.partial(run_stepwise, rehearsal=rehearsal)
            self.program.run(tensors, made, self._options())
            ours = [TensorPrint(t) for t in tensors_in(self.make(tensors, made, None))]
            gradients = [None if s.header is None else TensorPrint(s.header.make(made)) for s in self.grads]
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        finally:
            self.program.rehearsal = None
            states = to_the_end(rehearsal.undo)
            to_the_end(aside.put_back)
            aside.close()
        self.program.rest()
        return problem, states, ours, gradients

    def _compare(self, tensors: list[Tensor], result: Any, states: list, ours: list, gradients: list) -> str:
        for address, new in states:
            if not new.matches(address):
                return f"a state of {new.size} bytes came out differently"
        for a, b in zip(ours, tensors_in(result)):
            if not a.matches(b):
                return f"a result of shape {list(b.shape)} came out differently"
        for slot, mine in zip(self.grads, gradients):
            held: Any = tensors[slot.holder].grad if type(slot.holder) is int else slot.holder.grad
            held = held if slot.mold is None else held._beside(held)
            if mine is not None and not mine.matches(held):
                return f"a gradient of shape {list(mine.shape)} came out differently"
        return ""


class Last:
    """Recording whose arguments are tensors without history or shared memory: a short check decides whether a call fits it."""

    __slots__ = ("recorded", "layouts", "settings", "several")

    def __init__(self, recorded: Recorded, tensors: list[Tensor], settings: tuple):
        self.recorded, self.settings = recorded, settings
        self.layouts = [(t.shape, t._strides, t.dtype, t.device, t._storage.version >= INFERENCE) for t in tensors]
        self.several = len(tensors) > 1

    def takes(self, args: tuple) -> bool:
        state = self.recorded.state_addresses
        for t, (shape, strides, d, where, inference) in zip(args, self.layouts):
            if (
                type(t) is not Tensor
                or t._autograd is not None
                or t._base is not None
                or t.dtype is not d
                or t.__dict__
            ):
                return False
            if t.shape != shape or t._strides != strides or t.device is not where:
                return False
            storage = t._storage
            if (storage.version >= INFERENCE) is not inference:
                return False
            if storage.ptr in state or (
                storage.owner is not None and (self.several or self.recorded._in_state(storage))
            ):
                return False
        if self.several and len({t._storage.ptr for t in args}) != len(args):
            return False
        return settings_key() == self.settings and not self.recorded.difference()


__all__ = ["GradSlot", "Last", "Recorded", "extent"]

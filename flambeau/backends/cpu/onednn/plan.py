"""Plans: ready-to-run sequences of oneDNN primitives for one set of shapes, and the per-thread caches that hold them.

A plan owns its primitives and memory objects, so it belongs to one thread. Scratch space does not: all plans of a
thread share one buffer, because they never run at the same time.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NoReturn

import numpy as np

from flambeau.backends.cpu import threads
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn import sequence
from flambeau.backends.cpu.onednn.blocks import FeatureMaps
from flambeau.backends.cpu.onednn.shelter import shelter_pool
from flambeau.core import dtype as dtypes
from flambeau.core import modes
from flambeau.core.uninterrupted import at_once, uninterrupted

_ALIGNMENT = 64
# A primitive that is expected to finish this soon keeps the GIL: giving it away would cost more than it frees.
SHORT_WORK = 4e6  # multiply-adds

# Below this a second thread saves a microsecond or two at best, and costs a time slice where its core is busy.
ONE_THREAD_WORK = 5e5  # multiply-adds

# What things take in memory, about: the code of a primitive made for one shape, of one that changes layouts, and a cache's key
# with the tables and small objects of its entry. (oneDNN does not tell; measured over thousands of shapes.)
CODE_SIZE, _REORDER_SIZE, KEY_SIZE = 96 << 10, 24 << 10, 2 << 10

# The result of creating a primitive descriptor: its address, or None if oneDNN has no fast code.
PrimitiveDesc = int | None


class Owned:
    """Address of an oneDNN object, destroyed with this Python object."""

    __slots__ = ("address", "_destroy")

    def __init__(self, address: int, destroy: Callable[..., int]):
        self._destroy = _destroyers.get(id(destroy)) or _destroyers.setdefault(id(destroy), at_once(destroy))
        self.address = address

    @uninterrupted
    def __del__(self) -> None:
        try:
            self._destroy[self.address]
        except AttributeError:  # construction was interrupted
            pass


_destroyers: dict[int, Any] = {}  # by the identity of the library's functions, which are never freed


class Descriptor(Owned):
    """A memory descriptor. Descriptors never change, so recent ones are shared: several primitives use one feature map."""

    __slots__ = ()

    @classmethod
    def strided(cls, shape: Sequence[int], strides: Sequence[int], data_type: int) -> Descriptor:
        return _descriptor("memory_desc_create_with_strides", tuple(shape), data_type, tuple(strides))

    @classmethod
    def any_layout(cls, shape: Sequence[int], data_type: int) -> Descriptor:
        return cls.tagged(shape, data_type, dnnl.FORMAT_ANY)

    @classmethod
    def channels_last(cls, shape: Sequence[int], data_type: int) -> Descriptor:
        return cls.strided(shape, channels_last_strides(shape), data_type)

    @classmethod
    def tagged(cls, shape: Sequence[int], data_type: int, tag: int) -> Descriptor:
        """Return a memory descriptor in the layout that a format tag names."""
        return _descriptor("memory_desc_create_with_tag", tuple(shape), data_type, tag)


@functools.lru_cache(512)
def _descriptor(function: str, shape: tuple[int, ...], data_type: int, layout: int | tuple[int, ...]) -> Descriptor:
    functions = dnnl.library().functions
    result = ctypes.c_void_p()
    given = layout if isinstance(layout, int) else dnnl.Dims(*layout)
    status = functions[function](ctypes.byref(result), len(shape), dnnl.Dims(*shape), data_type, given)
    if status:
        raise dnnl.failure(status, function, f"shape {shape}")
    return Descriptor(result.value or 0, functions["memory_desc_destroy"])


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense (N, C, *spatial) tensor whose channels are innermost."""
    channels, spatial = shape[1], shape[2:]
    strides, step = [], channels
    for size in reversed(spatial):
        strides.append(step)
        step *= size
    return (step, 1, *reversed(strides))


class Memory:
    """A memory object of a plan: a user's tensor, or scratch space at `offset`. `maps` describes the layout of a user's tensor that
    kernels of our own can convert."""

    __slots__ = ("address", "desc", "offset", "maps")

    def __init__(self, desc: int, owner: Parts, offset: int = 0, maps: FeatureMaps | None = None):
        lib = dnnl.library()
        result = ctypes.c_void_p()
        status = lib.functions["memory_create"](ctypes.byref(result), desc, lib.engine, None)
        if status:
            raise dnnl.failure(status, "memory_create", "")
        self.address = result.value or 0
        owner.memories.append(self.address)
        self.desc, self.offset, self.maps = desc, offset, maps


class Parts:
    """The oneDNN objects of one plan, destroyed with it. One Python object for all of them: there are thousands of plans, and the garbage
    collector visits every object."""

    __slots__ = ("memories", "primitives", "arrays", "_end")

    def __init__(self) -> None:
        functions = dnnl.library().functions
        self.memories: list[int] = []
        self.primitives: list[int] = []
        self.arrays: list[Any] = []  # of execution arguments
        # Made beforehand, because a finalizer must not be interrupted: going through it destroys them all.
        end = map(functions["primitive_destroy"], self.primitives), map(functions["memory_destroy"], self.memories)
        self._end = itertools.chain(*end)

    @uninterrupted
    def __del__(self) -> None:
        try:
            _go_through[self._end]
        except AttributeError:  # construction was interrupted
            pass


_go_through = at_once(collections.deque(maxlen=0).extend)


class _Workspace(threading.local):
    """The calling thread's scratch buffer; it grows to the largest plan's size and is kept."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.buffer = np.empty(0, np.uint8)
        self.address, self.size = 0, 0

    def reserve(self, size: int) -> int:
        if size > self.size:
            size += size // 4  # a little more than needed, because the next shape may be a little larger
            self.clear()  # before allocating anew, so that both are never held at once
            self.buffer = np.empty(size + _ALIGNMENT, np.uint8)
            self.address, self.size = -(-self.buffer.ctypes.data // _ALIGNMENT) * _ALIGNMENT, size
        return self.address


_workspace = _Workspace()


class PrimitivePlan:
    """Primitives to run in order, and the memory objects that receive the user's and the scratch pointers."""

    __slots__ = (
        "what", "described", "results", "size", "steps", "user_memories", "scratch", "scratch_size", "base", "before", "after",
        "table", "address", "runner", "_execute", "_set", "_stream", "_parts",
    )  # fmt: skip

    def __init__(self, builder: Builder):
        lib = dnnl.library()
        self.what, self.size, self.results = builder.what, builder.size, builder.results
        self.described = builder.described
        self.steps = tuple(builder.steps)
        self.user_memories = tuple([memory.address for memory in builder.user])
        self.scratch = tuple(builder.scratch)
        self.scratch_size, self.base = builder.scratch_size, -1
        self.before, self.after = builder.before, builder.after
        brief = builder.work < SHORT_WORK
        self._execute = lib.execute_holding if brief else lib.execute
        self._set, self._stream = lib.set_data_handle, lib.stream
        self._parts = builder.parts
        if builder.hides:
            shelter_pool()
        self.table = sequence.table(self.user_memories, self.steps, builder.hides)
        self.address = ctypes.addressof(self.table)
        self.runner = sequence.runner(brief) or self._run_by_ctypes

    def run(self, *pointers: int) -> None:
        """Run all steps on the user's tensors, given by address in the order the plan was built with."""
        if self.scratch_size:
            self.bind_scratch()
        for kernel, user, offset, numbers in self.before:
            kernel(self.base + offset, pointers[user], *numbers)
        self.runner(self.address, *pointers, *(None,) * (sequence.POINTERS - len(pointers)))
        if self.table[sequence.STATUS]:
            self.fail()
        for kernel, user, offset, numbers in self.after:
            kernel(pointers[user], self.base + offset, *numbers)

    def fail(self) -> NoReturn:
        status, self.table[sequence.STATUS] = self.table[sequence.STATUS], 0
        raise dnnl.failure(status, "primitive_execute", self.what())

    def _run_by_ctypes(self, address: int, *pointers: int | None) -> None:
        """Run the primitives through ctypes, if there is no native runner."""
        for memory, pointer in zip(self.user_memories, pointers):
            self.table[sequence.STATUS] = self.table[sequence.STATUS] or self._set(memory, pointer)
        for primitive, count, arguments in self.steps:
            failed = self.table[sequence.STATUS]
            self.table[sequence.STATUS] = failed or self._execute(primitive, self._stream, count, arguments)

    def bind_scratch(self) -> None:
        base = _workspace.reserve(self.scratch_size)
        if base != self.base:
            self._bind(base)

    def keep_scratch(self) -> None:
        """Allocate scratch memory of the plan's own, so that it may run while other plans do."""
        own = np.empty(self.scratch_size + _ALIGNMENT, np.uint8)
        self._parts.arrays.append(own)
        self._bind(-(-own.ctypes.data // _ALIGNMENT) * _ALIGNMENT)
        self.scratch_size = 0

    def _bind(self, base: int) -> None:
        for memory, offset in self.scratch:
            status = self._set(memory, base + offset)
            if status:
                raise dnnl.failure(status, "memory_set_data_handle", self.what())
        self.base = base


_plain_run = PrimitivePlan.run
_observers = 0


def _observed_run(self: PrimitivePlan, *pointers: int) -> None:
    observer = modes.observing()
    if observer is None:
        _plain_run(self, *pointers)
        return
    event = observer.begin(f"onednn::{self.what().partition(' ')[0]}", modes.FUNCTION)
    try:
        _plain_run(self, *pointers)
    finally:
        observer.end(event)


def tell_observers(more: int) -> None:
    """Count one observer more (1) or less (-1) that is notified when primitives run. Without observers this costs nothing, because the method
    is replaced only while there are some."""
    global _observers
    _observers += more
    PrimitivePlan.run = _observed_run if _observers else _plain_run  # type: ignore[method-assign]


class Builder:
    """Collector of the parts of a plan. `what()` names it in messages."""

    def __init__(self, what: Callable[[], str], work: float):
        self.what, self.work = what, work
        self.steps: list[tuple[int, int, int]] = []
        self.user: list[Memory] = []
        self.scratch: list[tuple[int, int]] = []
        self.scratch_size = self.size = 0
        # Whether signals wait while it runs, because it may start threads or call the general product (see `signals.py`): all but
        # small work by code of the kind "brgemm" or "brgconv".
        self.hides = work >= ONE_THREAD_WORK
        self.results = 1  # how many of the tensors are written: the first ones
        self.described: Any = None  # description of the computation, for callers that can replace it
        self.parts = Parts()
        self.keep: list[Any] = []  # what must live until the plan is made
        # Kernels of our own that run before and after the primitives: (native function, number of the user's tensor,
        # offset in the scratch space, sizes and steps).
        self.before: list[tuple[Any, int, int, tuple[int, ...]]] = []
        self.after: list[tuple[Any, int, int, tuple[int, ...]]] = []

    def user_memory(self, desc: Descriptor | int, maps: FeatureMaps | None = None) -> Memory:
        """Return memory for the next tensor that the caller will pass to `PrimitivePlan.run`."""
        self.keep.append(desc)
        memory = Memory(desc if isinstance(desc, int) else desc.address, self.parts, maps=maps)
        self.user.append(memory)
        return memory

    def constant(self, desc: Descriptor | int, array: np.ndarray) -> Memory:
        """Return memory whose address never changes; the plan keeps it alive."""
        self.keep.append(desc)
        memory = Memory(desc if isinstance(desc, int) else desc.address, self.parts)
        status = dnnl.library().set_data_handle(memory.address, array.ctypes.data)
        if status:
            raise dnnl.failure(status, "memory_set_data_handle", self.what())
        self.parts.arrays.append(array)
        self.size += array.nbytes
        return memory

    def scratch_memory(self, desc: int) -> Memory:
        memory = Memory(desc, self.parts, self.scratch_size)
        self.scratch.append((memory.address, self.scratch_size))
        size = dnnl.library().functions["memory_desc_get_size"](desc)
        self.scratch_size += -(-size // _ALIGNMENT) * _ALIGNMENT
        return memory

    def primitive_desc(self, function: str, *args: Any, prefer: str | None = None) -> PrimitiveDesc:
        """Return a primitive descriptor, or None if oneDNN has no code, or only its slow reference code. `prefer` is the beginning of the
        preferred implementation's name; without it, or without such code, the first is taken."""
        lib = dnnl.library()
        owned = self.owned_desc(function, *args)
        if owned is None:
            return None
        while prefer and not implementation(owned.address).startswith(prefer):
            if lib.functions["primitive_desc_next_impl"](owned.address):
                return self.primitive_desc(function, *args)
        name = implementation(owned.address)
        # Without machine code of our own nothing makes signals wait, so that the general product must not be called.
        exposed = "gemm" in name and sequence.runner(True) is None
        return None if name.startswith("ref") or exposed else owned.address

    def owned_desc(self, function: str, *args: Any) -> Owned | None:
        """Return any primitive descriptor for these arguments, or None if oneDNN has none at all."""
        lib = dnnl.library()
        result = ctypes.c_void_p()
        addresses = [arg.address if isinstance(arg, Owned) else arg for arg in args]
        with threads.one_in_libgomp(self.work < ONE_THREAD_WORK), dnnl.making:
            status = lib.functions[function](ctypes.byref(result), *addresses)
        if status == dnnl.UNIMPLEMENTED:
            return None
        if status:
            raise dnnl.failure(status, function, self.what())
        owned = Owned(result.value or 0, lib.functions["primitive_desc_destroy"])
        self.keep.append((owned, args))
        return owned

    def step(self, primitive_desc: int, arguments: dict[int, Memory], size: int = CODE_SIZE) -> None:
        """Append a primitive with its arguments, and its scratchpad if it needs one."""
        self.size += size
        self.hides = self.hides or not implementation(primitive_desc).startswith("brg")
        lib = dnnl.library()
        result = ctypes.c_void_p()
        with threads.one_in_libgomp(self.work < ONE_THREAD_WORK):
            status = lib.functions["primitive_create"](ctypes.byref(result), primitive_desc)
        if status:
            raise dnnl.failure(status, "primitive_create", self.what())
        primitive = result.value or 0
        self.parts.primitives.append(primitive)
        scratchpad = query(primitive_desc, dnnl.QUERY_SCRATCHPAD)
        if lib.functions["memory_desc_get_size"](scratchpad):
            arguments = {**arguments, dnnl.ARG_SCRATCHPAD: self.scratch_memory(scratchpad)}
        words = [word for arg, memory in arguments.items() for word in (arg, memory.address)]
        array = dnnl.words(len(words))(*words)
        self.parts.arrays.append(array)
        self.steps.append((primitive, len(arguments), ctypes.addressof(array)))

    def reorder(self, source: Memory, target: Memory) -> None:
        lib = dnnl.library()
        function = "reorder_primitive_desc_create"
        created = self.owned_desc(function, source.desc, lib.engine, target.desc, lib.engine, lib.attributes)
        if created is None:
            raise RuntimeError(f"oneDNN: no reorder for {self.what()}")
        self.step(created.address, {dnnl.ARG_SRC: source, dnnl.ARG_DST: target}, _REORDER_SIZE)

    def input(self, memory: Memory, wanted: int) -> Memory:
        """Return `memory` in the layout a primitive wants: itself, or a scratch copy made each run."""
        if same_layout(memory.desc, wanted):
            return memory
        copy = self.scratch_memory(wanted)
        maps = memory.maps
        kernel = None if maps is None else maps.to_blocks(_LaidOut(wanted, maps))
        if kernel is not None and maps is not None:
            self.before.append((kernel, self.user.index(memory), copy.offset, maps.numbers))
        else:
            self.reorder(memory, copy)
        return copy

    def output(self, memory: Memory, wanted: int) -> Memory:
        """Return the memory that a primitive should write so that `memory` gets the result; see `deliver`."""
        return memory if same_layout(memory.desc, wanted) else self.scratch_memory(wanted)

    def deliver(self, result: Memory, memory: Memory) -> None:
        if result is memory:
            return
        maps = memory.maps
        kernel = None if maps is None else maps.from_blocks(_LaidOut(result.desc, maps))
        if kernel is not None and maps is not None:
            self.after.append((kernel, self.user.index(memory), result.offset, maps.numbers))
        else:
            self.reorder(result, memory)


class _LaidOut:
    """Test whether a descriptor is that of these feature maps in the layout of a format tag."""

    def __init__(self, desc: int, maps: FeatureMaps):
        self.desc, self.maps = desc, maps

    def __call__(self, tag: int) -> bool:
        # Named, because it must live while it is read.
        tagged = Descriptor.tagged(self.maps.shape, dnnl.DATA_TYPES[dtypes.float32], tag)
        return same_layout(self.desc, tagged.address)


def query(primitive_desc: int, what: int) -> int:
    """Return the memory descriptor of one of a primitive's operands; the primitive descriptor owns it."""
    return dnnl.library().functions["primitive_desc_query_md"](primitive_desc, what, 0)


def implementation(primitive_desc: int) -> str:
    """Return oneDNN's name of the code it chose, such as "brgconv:avx512_core"."""
    name = ctypes.c_char_p()
    dnnl.library().call("primitive_desc_query", primitive_desc, dnnl.QUERY_IMPL_NAME, 0, ctypes.byref(name))
    return (name.value or b"").decode()


def same_layout(left: int, right: int) -> bool:
    return bool(dnnl.library().functions["memory_desc_equal"](left, right))


class PlanCache:
    """Plans by key, at most `capacity` bytes of them, as far as their sizes are known.

    Two generations make it least-recently-used without any work on a hit: an entry found in the old one moves to the
    young one, and when that is full the old one is dropped.
    """

    __slots__ = ("half", "size", "young", "old", "__weakref__")

    def __init__(self, capacity: int):
        self.half = capacity // 2
        self.size = 0  # of the young generation
        self.young: dict[Hashable, Any] = {}
        self.old: dict[Hashable, Any] = {}

    def find(self, key: Hashable, make: Callable[[], Any], size: int | None = None) -> Any:
        """Return the entry of this key, from the old generation or newly made; for use after a lookup in `young` missed. Without a `size`,
        the entry has one, or is None."""
        entry = self.old.pop(key) if key in self.old else make()
        size = KEY_SIZE + (size if size is not None else 0 if entry is None else entry.size)
        if self.young and self.size + size > self.half:
            self.old, self.young, self.size = self.young, {}, 0
        self.young[key] = entry
        self.size += size
        return entry

    def clear(self) -> None:
        self.young, self.old, self.size = {}, {}, 0


class ThreadPlans(threading.local):
    """Plans of each thread; `cache` is the calling thread's own."""

    def __init__(self, capacity: int):
        self.cache = PlanCache(capacity)
        _caches.add(self.cache)


_caches: weakref.WeakSet[PlanCache] = weakref.WeakSet()


def reset() -> None:
    """Forget all plans of all threads and the calling thread's scratch buffer."""
    for cache in list(_caches):
        cache.clear()
    _workspace.clear()


# A primitive is made for the number of threads at its creation and keeps to it.
threads.on_change(reset)
if hasattr(os, "register_at_fork"):
    # A forked child has none of its parent's worker threads, so it must not run primitives made for them.
    os.register_at_fork(after_in_child=reset)

"""Python calls as recorded events, and the tree of all events: calls, modules, operators and allocations, under PyTorch's names."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..core.user_frames import is_own
from .events import MEMORY_EVENT_NAME
from .recorder import Described, MemoryNote, Note, Recorder
from .settings import RecordScope

_new = object.__new__
_STDLIB = (sysconfig.get_path("stdlib") + os.sep, "<")
_PACKAGES = tuple({sysconfig.get_path(kind) + os.sep for kind in ("purelib", "platlib")})
_TOOLS = ("numpy", "scipy", "llvmlite")  # the packages that this one calls itself


def _is_tool(code: CodeType) -> bool:
    """Return whether code belongs to libraries that this package itself calls, besides the user."""
    file = code.co_filename
    for folder in _PACKAGES:
        if file.startswith(folder):
            return file[len(folder) :].partition(os.sep)[0] in _TOOLS
    return file.startswith(_STDLIB)


@functools.lru_cache(maxsize=4096)
def short_path(file: str) -> str:
    """Return a file's path as traces show it: relative to the entry of `sys.path` that contains it."""
    around = [p for p in map(os.path.abspath, sys.path) if file.startswith(p + os.sep)]
    return file[len(max(around, key=len)) + 1 :] if around else file


class PythonFrame:
    """A line of a program: its file, its number, and the function it is in."""

    __slots__ = ("file_name", "line_number", "function_name")

    def __init__(self, code: CodeType, line: int):
        self.file_name, self.line_number, self.function_name = short_path(code.co_filename), line, code.co_name

    def __str__(self) -> str:
        return f"{self.file_name}({self.line_number}): {self.function_name}"


class PythonCalls:
    """Records every Python call of the thread that starts it, except calls inside this package (its operators are recorded on their own)
    and calls that this package makes into Python's library.

    Frames that are open at the start are calls, too, which begin there."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self._kinds: dict[CodeType, str] = {}
        self._open: list[tuple[FrameType | None, Note]] = []
        self._former: Any = None

    def start(self) -> None:
        frames = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if not is_own(frame) and not frame.f_code.co_filename.startswith("<frozen"):
                frames.append(frame)
            frame = frame.f_back
        for one in reversed(frames):
            self._begin(one, one, one.f_lineno, "call")
        self._former = sys.getprofile()
        sys.setprofile(self._event)

    def stop(self) -> None:
        sys.setprofile(self._former)
        for _, note in reversed(self._open):
            note.end = max(note.start, self.recorder.ended - 1000)  # inside the window, whatever is rounded
        self._open.clear()

    def _event(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "return":
            if self._open and self._open[-1][0] is frame:
                self._end()
            return
        if event in ("c_return", "c_exception"):
            if self._open and self._open[-1][0] is None and self._open[-1][1].what == repr(arg):
                self._end()
            return
        inner = self._open[-1][0] if self._open else None
        if event == "c_call":
            if inner is frame and arg is not sys.setprofile:
                self._begin(None, frame, 0, "c_call", repr(arg))
            return
        kind = self._kinds.get(frame.f_code)
        if kind is None:
            kind = "own" if is_own(frame) else "tool" if _is_tool(frame.f_code) else "user"
            self._kinds[frame.f_code] = kind
        if kind == "user" or kind == "tool" and inner is not None and frame.f_back is inner:
            self._begin(frame, frame.f_back, frame.f_code.co_firstlineno, "call")

    def _begin(self, frame: FrameType | None, caller: FrameType | None, line: int, kind: str, name: str = "") -> None:
        recorder = self.recorder
        note = _new(Note)
        note.what = name if frame is None else str(PythonFrame(frame.f_code, line))
        note.parent, note.thread, note.extra = recorder.current, recorder.thread, "python"
        place = None if frame is None else PythonFrame(frame.f_code, line)
        note.python = kind, place, None if caller is None else PythonFrame(caller.f_code, caller.f_lineno)
        recorder.append(note)
        recorder.current = note
        self._open.append((frame, note))
        note.start = recorder.now()

    def _end(self) -> None:
        note = self._open.pop()[1]
        note.end = self.recorder.now()
        self.recorder.current = note.parent


if TYPE_CHECKING:
    from .profiler_results import Results


class _EventType(Enum):
    """Kind of an entry of the tree."""

    TorchOp = 0
    Backend = 1
    Vulkan = 2
    Allocation = 3
    OutOfMemory = 4
    PyCall = 5
    PyCCall = 6
    Kineto = 7
    PythonGC = 8


@dataclass
class _TensorMetadata:
    """A tensor argument: the address of its values, and their layout. Tensors with one `id` are, or share, one tensor."""

    impl_ptr: int
    storage_data_ptr: int | None
    id: int | None
    allocation_id: int | None
    layout: Any
    device: Any
    dtype: Any
    sizes: list[int]
    strides: list[int]


@dataclass
class _ExtraFields_TorchOp:  # noqa: N801
    """An operator, or a named range."""

    name: str
    inputs: list[Any]
    scope: RecordScope
    sequence_number: int
    allow_tf32_cublas: bool = False


@dataclass
class _ExtraFields_Allocation:  # noqa: N801
    """Memory that was allocated or, if `alloc_size` is negative, freed."""

    ptr: int
    id: int | None
    allocation_id: int | None
    alloc_size: int
    total_allocated: int
    total_reserved: int
    device: Any


@dataclass
class _NNModuleInfo:
    """The module that was called."""

    self_ptr: int
    cls_name: str
    parameters: list[Any] = field(default_factory=list)


@dataclass
class _ExtraFields_PyCall:  # noqa: N801
    """A call of a Python function, or of a module."""

    callsite: PythonFrame | None
    caller: PythonFrame | None
    module: _NNModuleInfo | None = None
    optimizer: Any = None


@dataclass
class _ExtraFields_PyCCall:  # noqa: N801
    """Call of a built-in function."""

    caller: PythonFrame | None


class _ProfilerEvent:
    """An entry of the tree, with the events inside it as its `children`."""

    def __init__(self, number: int, name: str, kind: _EventType, fields: Any, start: int, end: int, thread: int):
        self.id, self.name, self.tag, self.extra_fields = number, name, kind, fields
        self.start_time_ns, self.end_time_ns, self.start_tid = start, end, thread
        self.correlation_id = number + 1 if kind is _EventType.TorchOp else 0
        self.parent: _ProfilerEvent | None = None
        self.children: list[_ProfilerEvent] = []

    @property
    def duration_time_ns(self) -> int:
        return self.end_time_ns - self.start_time_ns

    @property
    def typed(self) -> tuple[_EventType, Any]:
        return self.tag, self.extra_fields

    def __repr__(self) -> str:
        return f"<{self.tag.name} {self.name}, {self.duration_time_ns} ns, {len(self.children)} children>"


class _Allocations:
    """Ids of memory blocks and of the tensors in them, assigned in the order of time.

    A block has its own id. A tensor whose memory was changed (by `set_` or `resize_`) joins its old and new blocks."""

    def __init__(self) -> None:
        self._at: dict[int, int] = {}  # the block that is at an address now
        self._seen: dict[int, int] = {}  # the piece in which a tensor was seen last
        self._joined: dict[int, int] = {}
        self._count = 0

    def allocate(self, address: int) -> int:
        self._count += 1
        self._at[address] = self._count
        return self._count

    def release(self, address: int) -> int | None:
        return self._at.pop(address, None)

    def of_tensor(self, impl: int, address: int) -> int:
        piece = self._at.get(address) or self.allocate(address)
        before = self._seen.get(impl)
        if before is not None and before != piece:
            first, second = sorted((self._root(before), self._root(piece)))
            if first != second:
                self._joined[second] = first
        self._seen[impl] = piece
        return piece

    def _root(self, piece: int) -> int:
        while piece in self._joined:
            piece = self._joined[piece]
        return piece

    def ids(self, used: set[int]) -> dict[int, int]:
        """Return the tensor id of every block in `used`."""
        numbers: dict[int, int] = {}
        return {piece: numbers.setdefault(self._root(piece), len(numbers)) for piece in sorted(used)}


class _Builder:
    def __init__(self, results: Results):
        self.results = results
        recorder = results.recorder
        self.offset = recorder.began_at - recorder.began
        self.pieces = _Allocations()
        self.tensors: list[_TensorMetadata] = []
        self.allocations: list[_ExtraFields_Allocation] = []

    def build(self) -> list[_ProfilerEvent]:
        moments: list[tuple[int, int, Any]] = [(note.start, 0, note) for note in self.results.notes]
        moments += [(entry.time, 1, entry) for entry in self.results.recorder.memory_notes]
        moments.sort(key=lambda m: m[:2])
        made: dict[int, _ProfilerEvent] = {}
        roots = []
        for number, (_, kind, what) in enumerate(moments):
            event = self._memory(number, what) if kind else self._call(number, what)
            if not kind:
                made[id(what)] = event
            around = what.note if kind else what.parent
            while around is not None and id(around) not in made:  # one that did not come to its end
                around = around.parent
            if around is None:
                roots.append(event)
            else:
                event.parent = made[id(around)]
                event.parent.children.append(event)
        self._number()
        return roots

    def _call(self, number: int, note: Note) -> _ProfilerEvent:
        times = (note.start + self.offset, note.end + self.offset, self.results._thread(note.thread))
        if note.extra == "python":
            what, place, caller = note.python or ("call", None, None)
            if what == "c_call":
                return _ProfilerEvent(number, note.name, _EventType.PyCCall, _ExtraFields_PyCCall(caller), *times)
            module = None if note.module is None else _NNModuleInfo(*note.module)
            fields = _ExtraFields_PyCall(place, caller, module)
            return _ProfilerEvent(number, note.name, _EventType.PyCall, fields, *times)
        inputs = [self._argument(v) for v in self.results.inputs_of(note)]
        scope = RecordScope(note.scope)
        fields_of_call = _ExtraFields_TorchOp(note.name, inputs, scope, note.sequence)
        return _ProfilerEvent(number, note.name, _EventType.TorchOp, fields_of_call, *times)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._argument(v) for v in value]
        if not isinstance(value, Described):
            return value
        address = value.storage or None
        piece = None if address is None else self.pieces.of_tensor(value.impl, address)
        made = _TensorMetadata(
            value.impl, address, None, piece, value.layout, value.device, value.dtype, list(value.shape),
            list(value.strides or ()),
        )  # fmt: skip
        self.tensors.append(made)
        return made

    def _memory(self, number: int, entry: MemoryNote) -> _ProfilerEvent:
        piece = self.pieces.allocate(entry.address) if entry.nbytes > 0 else self.pieces.release(entry.address)
        fields = _ExtraFields_Allocation(entry.address, None, piece, entry.nbytes, entry.total, 0, entry.device)
        self.allocations.append(fields)
        moment = entry.time + self.offset
        thread = self.results._thread(entry.thread)
        return _ProfilerEvent(number, MEMORY_EVENT_NAME, _EventType.Allocation, fields, moment, moment, thread)

    def _number(self) -> None:
        ids = self.pieces.ids({t.allocation_id for t in self.tensors if t.allocation_id is not None})
        held: list[_TensorMetadata | _ExtraFields_Allocation] = [*self.tensors, *self.allocations]
        for one in held:
            one.id = None if one.allocation_id is None else ids.get(one.allocation_id)


def event_tree(results: Results) -> list[_ProfilerEvent]:
    """Return the outermost entries, in the order they began."""
    return _Builder(results).build()

"""Observation of what runs in a call of a function: every function written in Python outside this library, and every C function these call.

What code *could* run cannot be told from its names: `str(x)`, a property, a patched method, an operator. So it is observed through
`sys.setprofile`, which sees this thread only. Shared code, such as Python's library, counts as part of its caller."""

from __future__ import annotations

import _abc
import _warnings
import contextlib
import ctypes
import dis
import inspect
import re
import sys
import threading
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ...core.watching import collecting, notice_collections
from ...kernels.loops_source import parse
from . import c_functions
from .event_filter import EventFilter, Skipped, set_profile
from .frames import FRAMES_ARE_KNOWN, FUNCTIONS_ARE_KNOWN, function_id, running_id, signal_handlers
from .origins import LIBRARY, SHARED, USER, is_library_file, kind_of, reaches_outside

MADE = "_flambeau_part"  # what functions are called that are made of other functions' statements
_IMPORTS, _WARN = "<frozen importlib.", (_warnings.warn, _warnings.warn_explicit)
_SHOWS = getattr(warnings._showwarnmsg, "__code__", None)  # type: ignore[attr-defined]


class NewCode(BaseException):
    """Raised in a dry run before users' code does what it has not done in a call. `raises`: it begins to raise an exception."""

    raises = False


def _only_raises(code: types.CodeType, offset: int) -> bool:
    later = " ".join(i.opname for i in dis.get_instructions(code) if i.offset >= offset)
    return re.match(r"((?!\w*(JUMP|RETURN|YIELD|STORE|DELETE))\w+ )*RAISE", later) is not None


def _refuse(why: str) -> None:
    raise NewCode(why)


class Ran:
    """Code that ran: its functions, the globals it saw first, and the largest number of times it was entered in one call."""

    __slots__ = ("code", "space", "times", "functions")

    def __init__(self, code: types.CodeType, space: dict):
        self.code, self.space, self.times = code, space, 0
        # By their ids, weakly where a frame tells the function itself: most are made while they run, and nothing should keep them.
        self.functions: dict[Any, weakref.ref[types.FunctionType] | None] = {}

    def add(self, frame: types.FrameType) -> None:
        """Note the function that a frame runs."""
        key = running_id(frame)
        known = self.functions.get(key)
        # another function may have the id of one that is gone
        if FUNCTIONS_ARE_KNOWN and (known is None or known() is None):
            known = weakref.ref(ctypes.cast(key, ctypes.py_object).value)
        self.functions[key] = known

    def includes(self, f: types.FunctionType) -> bool:
        """Return whether a function with this code ran, as far as it can be distinguished from others."""
        return not FRAMES_ARE_KNOWN or function_id(f) in self.functions


@contextlib.contextmanager
def _tracing(told: Callable[[types.FrameType, str, Any], Any]) -> Iterator[bool]:
    """Context manager: call `told` before each instruction of users' code that is called inside, up to Python 3.12; False in its place if
    that is not possible."""

    def begin(frame: types.FrameType, event: str, arg: Any) -> Any:
        if collecting.now or kind_of(frame.f_code, frame.f_globals) != USER:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return told

    former = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for such a frame when the function is set
    sys.settrace(former or begin)
    try:
        yield former is None
    finally:
        sys.settrace(former)


@contextlib.contextmanager
def _monitoring(told: Callable[[types.FrameType, str, Any], Any]) -> Iterator[bool]:
    """Context manager: do what `_tracing` does from Python 3.13 on, where tracing shows no instructions of a function's first call."""
    monitoring = vars(sys)["monitoring"]
    tool = next((i for i in range(6) if monitoring.get_tool(i) is None and sys.gettrace() is None), None)
    if tool is None:
        yield False
        return
    mine, instruction = threading.get_ident(), monitoring.events.INSTRUCTION
    running = {id(frame) for frame, _ in traceback.walk_stack(sys._getframe())}

    def seen(code: types.CodeType, offset: int) -> Any:
        frame = sys._getframe(1)
        if collecting.now or threading.get_ident() != mine or id(frame) in running:
            return None
        if kind_of(code, frame.f_globals) != USER:
            return monitoring.DISABLE
        told(frame, "opcode", None)
        return None

    monitoring.use_tool_id(tool, __name__)
    try:
        monitoring.register_callback(tool, instruction, seen)
        monitoring.set_events(tool, instruction)
        yield True
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
        monitoring.restart_events()


class Observer:
    """Observer of a function's calls: the code that they have run, and what that code has queried."""

    def __init__(self) -> None:
        self.ran: dict[int, Ran] = {}  # by the id of the code
        # kinds of code, by its id; the code is kept alive, so that the id stays unique
        self.kinds: dict[int, tuple[int, types.CodeType]] = {}
        self.skipped = Skipped()  # code of this library among it
        # code that ran in the function of which this one is a part: it may run here, too
        self.expected: dict[int, Ran] = {}
        # offsets of the instructions of users' code that have run, by the id of that code, which is kept alive
        self.instructions: dict[int, tuple[types.CodeType, set[int]]] = {}
        self.noted = False  # whether they are those of a call: one that ran no users' code has none
        self.refused: list[str] = []  # what the last call did that may give something else in each call
        self._library_names: set[str] = set()
        self.warned = False  # whether a warning was asked for, shown or not
        self.asks_abstract = False  # whether an abstract class decided what is an instance of it
        self.asks_exception = False  # whether it was asked which exception is handled
        self.looks_at_frames = False

    @property
    def library_names(self) -> set[str]:
        """Return the names in code of this library that ran."""
        while self.skipped.passed:
            self.note_library(self.skipped.passed.pop())
        return self._library_names

    def note_library(self, code: types.CodeType) -> None:
        """Note that code of this library ran."""
        self.kinds[id(code)] = (LIBRARY, code)
        self._library_names.update(code.co_names)

    @contextlib.contextmanager
    def watching(self, told: Callable[[str], None] | None = None, noting: bool = False) -> Iterator[None]:
        """Context manager: observe what this thread runs; call `told` with every objection to recording it. `noting`: as `following`."""
        self.refused.clear()
        if not self.sees():
            yield
            return
        former = sys.getprofile()
        watch = _Watch(self, told, former)
        notice_collections()
        set_profile(watch)
        try:
            with self.following() if noting else contextlib.nullcontext():
                yield
        finally:
            set_profile(former)

    @contextlib.contextmanager
    def dry(self) -> Iterator[None]:
        """Context manager: raise NewCode before users' code does what no call has done, or what may reach further than Python's state."""
        watcher = Observer()
        watcher.kinds, watcher.skipped, watcher._library_names = self.kinds, self.skipped, self._library_names
        with watcher.watching(_refuse), self.following(strictly=True):
            yield

    @contextlib.contextmanager
    def following(self, strictly: bool = False) -> Iterator[None]:
        """Context manager: note which instructions of users' code run, or, `strictly`, raise NewCode before one that has never run. A
        debugger keeps its place: then nothing is noted. What a garbage collection calls is not code of the call."""

        def told(frame: types.FrameType, event: str, arg: Any) -> Any:
            code, offset = frame.f_code, frame.f_lasti
            done = self.instructions.setdefault(id(code), (code, set()))[1]
            if strictly and event == "opcode" and offset not in done:
                problem = NewCode(f"{code.co_name} runs other code for other sizes")
                problem.raises = _only_raises(code, offset)
                raise problem
            done.add(offset)
            return told

        notice_collections()
        try:
            with (_tracing if sys.version_info < (3, 13) else _monitoring)(told) as followed:
                if strictly and not followed:
                    raise NewCode("a debugger or other tools follow the program")
                yield
        finally:
            self.noted = True

    @staticmethod
    def sees() -> bool:
        """Return whether this thread can be observed: not while it has a profiler in C."""
        former = sys.getprofile()
        return former is None or callable(former)

    def forget_marked(self, before: set[int]) -> None:
        """Drop functions made by `source` that ran since `before` was noted: each runs once."""
        self.ran = {k: ran for k, ran in self.ran.items() if k in before or ran.code.co_name != MADE}

    def besides(self, function: types.FunctionType) -> Observer:
        """Return an observer for parts of `function` that expects the same code, except that of the function itself unless it was recursive."""
        made = Observer()
        ran = {**self.expected, **self.ran}
        made.expected = {k: one for k, one in ran.items() if one.code is not function.__code__ or one.times > 1}
        made.warned, made.asks_abstract, made._library_names = self.warned, self.asks_abstract, self._library_names
        made.asks_exception, made.kinds, made.skipped = self.asks_exception, self.kinds, self.skipped
        return made


class _Watch(EventFilter):
    """The state of one observed call. Most events are this library's: those of its code are skipped, except warnings."""

    def __init__(self, observer: Observer, told: Callable[[str], None] | None, former: Any):
        super().__init__(former, _WARN, observer.skipped)
        self.observer, self.told = observer, told
        self.entered: dict[int, int] = {}  # how often code was, by its id
        # The outermost frame of an import, of reading a kernel's source, or of a signal's handler: what happens once, or at any time,
        # does not count.
        self.aside: types.FrameType | None = None
        self.apart = {id(code): code for code in (inspect.unwrap(parse).__code__, *signal_handlers())}

    def event(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if id(frame.f_code) in self.skipped.codes:
            self.observer.warned = True
        elif collecting.now:
            return
        elif self.aside is not None:
            if event == "return" and frame is self.aside:
                self.aside, self.until = None, 0
        elif event == "call" and id(frame.f_code) in self.apart:
            self.aside, self.until = frame, id(frame)
        elif event == "call" and frame.f_code.co_filename.startswith(_IMPORTS):
            self.aside, self.until = frame, id(frame)
            if frame.f_code.co_name == "_gcd_import" and self._is_users(frame.f_back):
                self._refuse("a module is imported by a computed name")
        elif event == "call":
            self._called(frame)
        elif event == "c_call":
            self._called_in_c(frame, arg)

    def _called(self, frame: types.FrameType) -> None:
        code = frame.f_code
        kind = self._kind(frame)
        if code is _SHOWS:
            self._refuse("a warning is shown")
        if kind == LIBRARY:
            if id(code) not in self.skipped.codes and self._is_users(frame.f_back):
                self._refuse(f"{code.co_name}() is called, which may reach files or other processes")
            return
        if kind == SHARED and not self._is_users(frame.f_back):
            return
        ran = self.observer.ran.get(id(code))
        if ran is None:
            ran = self.observer.ran[id(code)] = Ran(code, frame.f_globals)
        if FRAMES_ARE_KNOWN:
            ran.add(frame)
        times = self.entered[id(code)] = self.entered.get(id(code), 0) + 1
        ran.times = max(ran.times, times)

    def _called_in_c(self, frame: types.FrameType, f: Any) -> None:
        if f in _WARN:
            self.observer.warned = True
        kind = self._kind(frame)
        if f is sys.setprofile or kind == LIBRARY or (kind == SHARED and not self._is_users(frame.f_back)):
            return
        if getattr(f, "__self__", None) is _abc:
            self.observer.asks_abstract = True
        if f in c_functions.ASK_FOR_EXCEPTIONS:
            self.observer.asks_exception = True
        if f in c_functions.LOOK_AT_FRAMES:
            self.observer.looks_at_frames = True
        why = c_functions.objection(f, kind == USER)
        if why:
            self._refuse(why)

    def _refuse(self, why: str) -> None:
        self.observer.refused.append(why)
        if self.told is not None:
            self.told(why)

    def _kind(self, frame: types.FrameType) -> int:
        code = frame.f_code
        known = self.observer.kinds.get(id(code))
        if known is None:
            known = self.observer.kinds[id(code)] = (kind_of(code, frame.f_globals), code)
            if known[0] == LIBRARY:
                self.observer.note_library(code)
                if not reaches_outside(code):
                    self.skipped.add(code, file=is_library_file(code.co_filename))
            elif known[0] == SHARED and code is not _SHOWS and not code.co_filename.startswith(_IMPORTS):
                self.skipped.add(code, as_caller=True)
        return known[0]

    def _is_users(self, frame: types.FrameType | None) -> bool:
        """Return whether a frame, or the first outside shared code around it, runs user code."""
        while frame is not None and self._kind(frame) == SHARED:
            frame = frame.f_back
        return frame is not None and self._kind(frame) == USER

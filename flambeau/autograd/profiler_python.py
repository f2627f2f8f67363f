"""Calls of Python functions as a profiler's notes: the user's functions, and the built-in ones they call."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import CodeType, FrameType
from typing import Any

from ..core.user_frames import is_own
from .profiler_recorder import Note, Recorder

_new = object.__new__
_STDLIB = (sysconfig.get_path("stdlib") + os.sep, "<")
_PACKAGES = tuple({sysconfig.get_path(kind) + os.sep for kind in ("purelib", "platlib")})
_TOOLS = ("numpy", "scipy", "llvmlite")  # the packages that this one calls itself


def _is_tool(code: CodeType) -> bool:
    """Return whether this is code that this package calls for its own purposes, as well as the user for theirs."""
    file = code.co_filename
    for folder in _PACKAGES:
        if file.startswith(folder):
            return file[len(folder) :].partition(os.sep)[0] in _TOOLS
    return file.startswith(_STDLIB)


@functools.lru_cache(maxsize=4096)
def short_path(file: str) -> str:
    """A file's path as traces show it: below the entry of `sys.path` where it was found."""
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
    """Notes every call in the thread that starts it, except those inside this package, whose operators are notes of their own,
    and what it calls of Python's library.

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

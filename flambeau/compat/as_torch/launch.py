"""Running a program that was written for PyTorch: `python -m flambeau script.py arguments...`.

The program sees what it would see under plain `python`: its own `sys.argv`, `__main__`, `sys.path`, exit code and traceback. The
Python programs that it starts have Flambeau in the place of PyTorch, too (see activation.py).
"""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import Any

from .activation import export
from .posing import install_as_torch

USAGE = """\
usage: python -m flambeau script.py [arguments...]
       python -m flambeau -m module [arguments...]
       python -m flambeau -c code [arguments...]

Runs a program written for PyTorch with Flambeau in its place: import torch and import torchvision give Flambeau, in the Python
programs that it starts, too. `flambeau activate` does the same for a whole Python environment."""

_replaced: list[ModuleType] = []  # the launcher's own main module, kept alive while the program runs


def _own_frames_removed(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that belongs to the program."""
    launcher = {__file__, runpy.__file__, "<frozen runpy>"}
    inside, seen = trace, False
    while inside is not None:
        own = inside.tb_frame.f_code.co_filename in launcher
        if seen and not own:
            return inside
        seen = seen or inside.tb_frame.f_code.co_filename == __file__
        inside = inside.tb_next
    return None if seen else trace


def _show_error(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    value.__traceback__ = _own_frames_removed(trace)
    sys.__excepthook__(kind, value, value.__traceback__)


def _set_first_path(directory: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = directory


def _new_main_module(**attributes: Any) -> ModuleType:
    main = ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={}, __spec__=None, **attributes)
    _replaced.append(sys.modules["__main__"])
    sys.modules["__main__"] = main
    return main


def _run_script(path: str, arguments: Sequence[str]) -> None:
    sys.argv = [path, *arguments]
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.path.pop(0)  # run_path puts the directory or archive there
        runpy.run_path(path, run_name="__main__")
        return
    full = os.path.abspath(path)
    try:
        with io.open_code(full) as file:
            source = file.read()
    except OSError as problem:
        print(
            f"{sys.executable}: can't open file {full!r}: [Errno {problem.errno}] {problem.strerror}", file=sys.stderr
        )
        sys.exit(2)
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    code = compile(source, full, "exec", dont_inherit=True)
    loader = importlib.machinery.SourceFileLoader("__main__", full)
    exec(code, vars(_new_main_module(__file__=full, __cached__=None, __loader__=loader)))


def _run_module(name: str, arguments: Sequence[str]) -> None:
    sys.argv = [name, *arguments]
    _set_first_path(os.getcwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _run_code(text: str, arguments: Sequence[str]) -> None:
    sys.argv = ["-c", *arguments]
    _set_first_path("")
    code = compile(text, "<string>", "exec", dont_inherit=True)
    exec(code, vars(_new_main_module(__loader__=importlib.machinery.BuiltinImporter)))


def run(arguments: Sequence[str]) -> None:
    """Run the program that the command line names, with Flambeau in place of PyTorch."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        sys.exit(0 if arguments else 2)
    what, rest = arguments[0], arguments[1:]
    if what in ("-m", "-c") and not rest:
        print(f"Argument expected for the {what} option\n{USAGE}", file=sys.stderr)
        sys.exit(2)
    if what.startswith("-") and what not in ("-m", "-c"):
        print(f"Unknown option: {what}\n{USAGE}", file=sys.stderr)
        sys.exit(2)
    install_as_torch()
    export()
    sys.excepthook = _show_error
    if "TORCHELASTIC_RUN_ID" in os.environ and isinstance(sys.stdout, io.TextIOWrapper):
        # Workers share the agent's output, and `python -u` writes every argument of print() on its own: lines would mix.
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    if what == "-m":
        _run_module(rest[0], rest[1:])
    elif what == "-c":
        _run_code(rest[0], rest[1:])
    else:
        _run_script(what, rest)

"""Models as native libraries: machine code, weights and a C interface in one folder. Programs that use them need no Python."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..backends.cpu.threads import get_num_threads
from ..compiler import function as compiled
from ..core.tensor import Tensor
from ..jit import ScriptModule
from ..nn.unchanged import in_mode
from ..utils.cpp_extension import _compiler
from . import beside
from . import c_templates as templates
from .branches import reads_training
from .c_program import CProgram
from .capture import Captured, NotExportable, capture


def export_library(
    model: Callable[..., Any],
    example_inputs: Any,
    directory: str | os.PathLike[str] | None = None,
    *,
    archive: str | os.PathLike[str] | None = None,
    name: str | None = None,
    static: bool = False,
    embed_weights: bool = False,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write `model`, as it computes on tensors like `example_inputs`, as a library that runs without Python.

    The folder gets the library (`lib<name>.so`, or `.a` with static=True), `<name>.h` for C, `<name>.hpp` for C++, a CMake package, and
    `<name>.weights` unless they are embedded in the library. Shapes, dtypes and the choices that the model makes are those of the
    example; the code is for the processor it was written on. Returns the library's path. A C compiler is needed.

    Instead of a folder, `archive` names the TorchScript archive that the model was loaded from: then `torch::jit::load` of C++ finds the
    library beside it (docs/cpp.md).

    >>> flambeau.export_library(model.eval(), (flambeau.zeros(1, 3, 224, 224),), "resnet18")  # doctest: +SKIP
    """
    inputs = tuple(example_inputs) if isinstance(example_inputs, (list, tuple)) else (example_inputs,)
    if archive is not None:
        return _beside(model, inputs, archive, progress)
    if directory is None:
        raise TypeError("export_library() needs the folder to write to, or the archive that the model is from")
    name = _identifier(name or type(model).__name__)
    return write_library(model, inputs, Path(directory), name, static, embed_weights, threads, progress)


def _beside(model: Any, inputs: tuple, archive: str | os.PathLike, progress: Callable[[str], None] | None) -> Path:
    if not isinstance(model, ScriptModule):
        raise TypeError(f"{archive} is a TorchScript archive: give export_library what jit.load makes of it")
    if not inputs or not all(isinstance(t, Tensor) for t in inputs):
        raise NotExportable("a library beside an archive takes tensors")
    waits_for_eval, mark = model.training and reads_training(model), beside.stamp(archive)
    more = functools.partial(beside.entry, mark=mark, waits_for_eval=waits_for_eval)
    with in_mode(model, training=False):
        return write_library(
            model, inputs, beside.folder_of(archive), beside.signature(inputs), progress=progress, more=more
        )


def write_library(
    model: Callable,
    inputs: tuple,
    folder: Path,
    name: str,
    static: bool = False,
    embed_weights: bool = False,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
    more: Callable[[CProgram], str] | None = None,
) -> Path:
    """Write a library like `export_library`, with a name that is a C identifier; `more` is further text for the C file."""
    say = progress or (lambda text: None)
    if not compiled.available:
        raise RuntimeError("a library is made of compiled kernels, for which llvmlite is needed: pip install llvmlite")
    compiler = _compiler()
    if getattr(model, "training", False):
        raise RuntimeError(
            "the model is in training mode: call model.eval() first, or its dropout would be part of the library"
        )
    say("recording the model")
    captured = capture(model, inputs)
    _check_layouts(captured)
    program = CProgram(captured, name, threads or get_num_threads())
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        weights = place / f"{name}.weights"
        weights.write_bytes(program.weight_bytes)
        objects = []
        for i, (label, code) in enumerate(program.objects()):
            if i % 25 == 0:
                say(f"compiling kernels: {i} of {len(program.kernels)}")
            objects.append(place / f"{label}.o")
            objects[-1].write_bytes(code)
        (folder / f"{name}.h").write_text(program.header())
        (folder / f"{name}.hpp").write_text(program.wrapper())
        source = place / f"{name}.c"
        text = program.source(str(weights) if embed_weights else None)
        told = "" if static else program.description()
        source.write_text(text + told + (more(program) if more is not None else ""))
        say("compiling the program")
        objects.append(place / f"{name}_program.o")
        _run(
            [
                *_c_compiler(compiler),
                "-O1",
                "-w",
                "-Werror=implicit-function-declaration",
                "-fPIC",
                f"-I{folder}",
                "-c",
                str(source),
                "-o",
                str(objects[-1]),
            ]
        )
        shutil.copy(source, folder / f"{name}.c")
        if not embed_weights:
            shutil.copy(weights, folder / weights.name)
        library = folder / f"lib{name}{'.a' if static else '.so'}"
        library.unlink(missing_ok=True)
        say(f"linking {library.name}")
        if static:
            _run(["ar", "rcs", str(library), *map(str, objects)])
        else:
            _run([*compiler, "-shared", *map(str, objects), *_SYSTEM, "-o", str(library)])
    _write_cmake(folder, name, library.name, static)
    return library


_SYSTEM = ["-lm", "-ldl", "-lpthread"]


def _c_compiler(cxx: list[str]) -> list[str]:
    """Return the C compiler that belongs to the C++ compiler."""
    given = os.environ.get("CC")
    if given:
        return given.split()
    return (
        [next(c for c in ("cc", "gcc", "clang") if shutil.which(c))]
        if any(map(shutil.which, ("cc", "gcc", "clang")))
        else [*cxx, "-x", "c"]
    )


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr or done.stdout}")


def _identifier(name: str) -> str:
    found = re.sub(r"\W", "_", name).strip("_").lower()
    return found if found[:1].isalpha() else f"model_{found}"


def _check_layouts(captured: Captured) -> None:
    for i, t in enumerate(captured.inputs):
        if not t.is_contiguous():
            raise NotExportable(f"input {i} is not contiguous: libraries take dense arrays")
    for d in {t.dtype for t in captured.inputs} | {o.dtype for o in captured.outputs}:
        if d.is_complex:
            raise NotExportable(f"{d} has no counterpart in C")


def _write_cmake(folder: Path, name: str, library: str, static: bool) -> None:
    values = {"name": name, "library": library, "kind": "STATIC" if static else "SHARED"}
    values["links"] = "m;dl;pthread" if static else ""
    text = templates.template("config.cmake")
    for key, value in values.items():
        text = text.replace(f"${{{key}}}", value)
    (folder / f"{name}Config.cmake").write_text(text)

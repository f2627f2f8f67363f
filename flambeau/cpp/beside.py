"""Libraries next to TorchScript archives, which `torch::jit::load` of C++ finds and runs without Python.

    model.pt
    model.pt.native/libfloat32_1x3x224x224.so, float32_1x3x224x224.weights, ...

A library is for one choice of shapes and dtypes, which its name says, and for one state of the archive, whose stamp it holds.
`include/flambeau/native_program.h` reads what is written here."""

from __future__ import annotations

import os
from pathlib import Path

from .c_program import CProgram
from .capture import NotExportable

_TAIL = 1 << 20  # the end of an archive holds the checksums of all its files


def folder_of(archive: str | os.PathLike) -> Path:
    return Path(f"{os.fspath(archive)}.native")


def signature(inputs: tuple) -> str:
    """Return the inputs as a name: float32_1x3x224x224__int64_8."""
    return "__".join(f"{t.dtype.name}_{'x'.join(map(str, t.shape))}" for t in inputs)


def stamp(archive: str | os.PathLike) -> int:
    """Return a number that identifies the state of a file: FNV-1a of its size and its end."""
    size = os.path.getsize(archive)
    with open(archive, "rb") as file:
        file.seek(max(size - _TAIL, 0))
        data = size.to_bytes(8, "little") + file.read()
    found = 0xCBF29CE484222325
    for byte in data:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def entry(program: CProgram, mark: int, waits_for_eval: bool) -> str:
    """Return the C structure that describes the library to `torch::jit::load`."""
    name, captured = program.name, program.captured
    numbers = [len(captured.outputs)]
    for output in captured.outputs:
        numbers += [output.dtype.number, len(output.shape), *output.shape]
    if captured.structure not in ("tensor", "tuple"):
        raise NotExportable("torch::jit::load runs libraries of models that return a tensor or a tuple of tensors")
    return f"""
static const int64_t outputs[] = {{{", ".join(map(str, numbers))}}};
const struct {{
  int64_t version;
  {name}_model *(*create)(const char *, int);
  int (*run)({name}_model *, const void *const *, void *const *);
  const char *(*error)(const {name}_model *);
  void (*destroy)({name}_model *);
  const int64_t *outputs;
  int64_t tuple, waits_for_eval;
  uint64_t archive;
}} flambeau_entry = {{1, {name}_create, {name}_run, {name}_error, {name}_destroy, outputs, {int(captured.structure == "tuple")},
  {int(waits_for_eval)}, {mark}ull}};
"""

"""Object files loaded through LLVM's own linker, for platforms whose objects `image` does not link."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

_numbers = itertools.count()
_engine: Any = None
_loaded: list[Any] = []  # code lives as long as its tracker


def load(object_file: bytes, entry: str, addresses: dict[str, int]) -> int:
    """Return the address of `entry`. Symbols not in `addresses` are looked up in this process."""
    global _engine
    llvm = importlib.import_module("llvmlite.binding")
    if _engine is None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True, reloc="pic", codemodel="small")
        _engine = llvm.create_lljit_compiler(machine)
    library = llvm.JITLibraryBuilder().add_object_img(object_file).add_current_process().export_symbol(entry)
    for name, address in addresses.items():
        library.import_symbol(name, address)
    tracker = library.link(_engine, f"flambeau{next(_numbers)}")
    _loaded.append(tracker)
    return tracker[entry]

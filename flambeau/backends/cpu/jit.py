"""Loop nests to callable native functions: found in memory or on disk, or compiled with LLVM.

llvmlite is imported at the first kernel that neither memory nor disk has.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...core.allocator import make_sure_of
from ...core.locks import COMPILER, new_lock
from ...kernels import cache, complex_nests, emit_llvm, ir
from ...kernels.ir_check import verify
from ...kernels.llvm_text import Function
from ...kernels.nest_analysis import statements
from ...kernels.notice import NOTICE
from . import image, native_call, object_loader, team, threads


class Facts(NamedTuple):
    """Facts about a kernel that are known without its source: its name, its parameters' names, and the positions of those it writes to."""

    name: str
    parameters: tuple[str, ...]
    written: frozenset[int]


@dataclass
class Stats:
    """Counters since the process started."""

    compiled: int = 0
    loaded: int = 0  # from disk
    compile_seconds: float = 0.0


stats = Stats()
_functions: dict[tuple[str, bool], Any] = {}
_addresses: dict[str, tuple[str, int]] = {}  # key -> signature and address of a kernel
sources: dict[int, ir.Kernel | Callable[[], ir.Kernel]] = {}  # what each kernel was built from, by address
facts: dict[int, Facts] = {}  # of kernels, by address
signatures: dict[int, str] = {}  # of everything that can be called, by address: one letter per parameter
_lock = new_lock(COMPILER)
_FORMAT = "3"  # of the files on disk
_RUNTIME = ("flambeau_num_threads", "flambeau_parallel", "flambeau_recorder")
_TEAM_RUNTIME = ("flambeau_team", "GOMP_parallel", "omp_get_num_threads", "omp_get_thread_num")

Written = Function | Callable[..., Function]

_CTYPES = {
    "p": ctypes.c_void_p, "l": ctypes.c_int64, "d": ctypes.c_double, "b": ctypes.c_bool, "f": ctypes.c_float,
    "i": ctypes.c_int32, "s": ctypes.c_int16, "c": ctypes.c_int8, "B": ctypes.c_uint8, "S": ctypes.c_uint16,
    "I": ctypes.c_uint32, "L": ctypes.c_uint64,
}  # fmt: skip


def compile(source: ir.Kernel | Callable[[], ir.Kernel], key: str, brief: bool = False) -> Any:
    """Return the native function of a kernel, as a Python function.

    `key` must determine the kernel completely. `source` may be a function that builds it: it is called only when the
    kernel has to be compiled. A `brief` function keeps the interpreter's lock while it runs: a call costs less, but it
    must not take longer than some microseconds.
    """
    found = _functions.get((key, brief))
    if found is None:
        with _lock:
            if key not in _addresses:
                _addresses[key] = _load_or_build(source, key)
                sources[_addresses[key][1]] = source
            found = _functions[key, brief] = _callable(*_addresses[key], brief)
    return found


def address_of(function: Any) -> int:
    """Return the address at which the machine code of a compiled function starts."""
    if native_call.supported():
        return function.__self__
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def support_function(source: Written, *given: Any, signature: str, brief: bool) -> Any:
    """Return a function that is written in LLVM's instructions instead of a loop nest, as a Python function; see `support_code`."""
    return _callable(signature, support_code(source, *given, signature=signature), brief)


def support_code(source: Written, *given: Any, signature: str = "", straight: bool = False) -> int:
    """Return the address of a function that is written in LLVM's instructions; a `straight` one has no loops, and is not optimised. `source`
    is the function, or a function of a module that writes it from the `given` arguments alone, if its machine code is not stored."""
    if isinstance(source, Function):
        name = cache.digest(source.module(), _environment())
    else:
        name = cache.digest(source.__qualname__, repr(given), _writer(source.__module__))
    stored = cache.read(name, cache.ENTRY)
    if stored is not None:
        return _place(*_unpack(stored))[1]
    function = source if isinstance(source, Function) else source(*given)
    text = function.module()
    with NOTICE.compiling():
        compiler = _compiler()
        made = compiler.straight_code(text) if straight else compiler.object_code(text)
        try:
            code = image.link([made], function.symbol[1:])
        except image.UnsupportedObject:
            code = image.Image(made, function.symbol[1:], [])
    cache.write(name, _pack(signature, code), cache.ENTRY)
    return _place(signature, code)[1]


def object_code(text: str) -> bytes:
    """Return the object file of an LLVM module, for this machine."""
    return _compiler().object_code(text)


def kernel_text(address: int) -> tuple[str, str]:
    """Return the LLVM module of a compiled kernel, and the name of its function."""
    source = sources[address]
    kernel = complex_nests.split(source if isinstance(source, ir.Kernel) else source())
    return emit_llvm.emit(kernel), kernel.name


@functools.cache
def available() -> bool:
    """Return whether kernels can be compiled here."""
    return importlib.util.find_spec("llvmlite") is not None


def _load_or_build(source: ir.Kernel | Callable[[], ir.Kernel], key: str) -> tuple[str, int]:
    name = cache.digest(key, _environment())
    stored = cache.read(name)
    if stored is not None:
        stats.loaded += 1
        signature, code, told = _unpack(stored)
        return _place(signature, code, told)
    with NOTICE.compiling():
        signature, code, told = _build_cached(source)
    cache.write(name, _pack(signature, code, told))
    return _place(signature, code, told)


def _build_cached(source: ir.Kernel | Callable[[], ir.Kernel]) -> tuple[str, image.Image, Facts]:
    """Return a kernel's signature, machine code, and facts."""
    kernel = source if isinstance(source, ir.Kernel) else source()
    verify(kernel)
    kernel = complex_nests.split(kernel)
    signature = "".join("p" if isinstance(p, ir.Buffer) else p.dtype.letter for p in kernel.params)
    stored_to = {s.buffer for s in statements(kernel.body) if isinstance(s, ir.Store)}
    told = Facts(
        kernel.name,
        tuple(p.name for p in kernel.params),
        frozenset(i for i, p in enumerate(kernel.params) if p in stored_to),
    )
    return signature, _build(kernel), told


# ---------------------------------------------------------------------------------------------- compiling


def _build(kernel: ir.Kernel) -> image.Image:
    started = time.perf_counter()
    try:
        computing, *forking = emit_llvm.emit_apart(kernel)
        code = [_compiler().object_code(computing), *map(_compiler().straight_code, forking)]
        return image.link(code, kernel.name)
    except image.UnsupportedObject:  # the entry stays a name: LLVM will link the object when it is loaded
        return image.Image(_compiler().object_code(emit_llvm.emit(kernel)), kernel.name, [])
    finally:
        stats.compiled += 1
        stats.compile_seconds += time.perf_counter() - started


# LLVM ends the process when it gets no memory, so it is made sure before that there is some: more than was seen to be used.
_LLVM_BYTES = 224 << 20  # the library and what it needs for a first kernel
_COMPILING_BYTES = 32 << 20
_IMPORT_BYTES = 16 << 20  # modules of Python that are imported for it: the import system says nothing of memory, either
_BYTES_PER_CHARACTER = 256  # of a kernel's text


class Compiler:
    """LLVM's target machine and pass pipeline for this CPU."""

    def __init__(self) -> None:
        if "llvmlite.binding" not in sys.modules:
            make_sure_of(_LLVM_BYTES, "to load the compiler of kernels")
        self.llvm = importlib.import_module("llvmlite.binding")
        self.llvm.initialize_native_target()
        self.llvm.initialize_native_asmprinter()
        target = self.llvm.Target.from_default_triple()
        self.machine, self.quick_machine = (
            target.create_target_machine(
                cpu=self.llvm.get_host_cpu_name(),
                features=self.llvm.get_host_cpu_features().flatten(),
                opt=level,
                reloc="pic",
                codemodel="small",
            )
            for level in (2, 0)  # 3 gives the same code and takes longer
        )
        self.triple = target.triple
        self.options = self.llvm.create_pipeline_tuning_options(speed_level=2)
        self.options.slp_vectorization = False
        self.straight_code = functools.lru_cache(maxsize=256)(self._straight_code)  # kernels often fork alike

    def _parsed(self, text: str) -> Any:
        module = self.llvm.parse_assembly(f'target triple = "{self.triple}"\n{text}')
        module.data_layout = str(self.machine.target_data)
        return module

    def optimised(self, text: str) -> Any:
        module = self._parsed(text)
        builder = self.llvm.create_pass_builder(self.machine, self.options)
        builder.getModulePassManager().run(module, builder)
        return module

    def object_code(self, text: str) -> bytes:
        make_sure_of(_COMPILING_BYTES + _BYTES_PER_CHARACTER * len(text), "to compile a kernel")
        module = self.optimised(text)
        # Loop strength reduction takes up to half of the code generator's time and gains nothing on x86, whose
        # addressing modes do its work. The switch is global in LLVM, so it is put back for other users of llvmlite.
        self.llvm.set_option("flambeau", "-disable-lsr")
        try:
            return self.machine.emit_object(module)
        finally:
            self.llvm.set_option("flambeau", "-disable-lsr=false")

    def _straight_code(self, text: str) -> bytes:
        """Return the object file of functions without loops: optimising them would take ten times as long, to gain nanoseconds a call."""
        make_sure_of(_COMPILING_BYTES, "to compile a call")
        return self.quick_machine.emit_object(self._parsed(text))


@functools.cache
def _compiler() -> Compiler:
    return Compiler()


# ---------------------------------------------------------------------------------------------- loading


def _pack(signature: str, code: image.Image, told: Facts | None = None) -> bytes:
    known = None if told is None else [told.name, told.parameters, sorted(told.written)]
    header = json.dumps([signature, code.entry, code.slots, known]).encode()
    return len(header).to_bytes(4, "little") + header + code.code


def _unpack(data: bytes) -> tuple[str, image.Image, Facts | None]:
    end = 4 + int.from_bytes(data[:4], "little")
    signature, entry, slots, known = json.loads(data[4:end].decode())
    told = None if known is None else Facts(known[0], tuple(known[1]), frozenset(known[2]))
    return signature, image.Image(data[end:], entry, [(offset, name) for offset, name in slots]), told


@functools.cache
def _prototype(signature: str) -> Any:
    return ctypes.CFUNCTYPE(None, *(_CTYPES[c] for c in signature))


def _place(signature: str, code: image.Image, told: Facts | None = None) -> tuple[str, int]:
    if isinstance(code.entry, str):
        imported = _TEAM_RUNTIME if code.entry == "flambeau_parallel" else _RUNTIME
        address = object_loader.load(code.code, code.entry, {name: _address(name) for name in imported})
    else:
        address = image.load(code, {name: _address(name) for _, name in code.slots})
    if told is not None:
        facts[address] = told
    return signature, address


def _callable(signature: str, address: int, brief: bool) -> Any:
    signatures[address] = signature
    if native_call.supported():
        return native_call.builtin(_entry(signature, brief), address)
    return _prototype(signature)(address)


@functools.cache
def _entry(signature: str, brief: bool) -> int:
    """Return the address of the code that reads a call's arguments from Python."""
    return support_code(native_call.entry, signature, brief, signature=signature, straight=True)


@functools.cache
def _address(name: str) -> int:
    """Return the address of a symbol that native code refers to."""
    if name == "flambeau_num_threads":
        threads.library()  # decides how many threads there can be
        return threads.count_address()
    if name == "flambeau_parallel":  # without libgomp the count of threads stays 1, and this is never called
        return 0 if threads.library() is None else support_code(team.parallel)
    if name == "flambeau_team":
        return team.state_address()
    if name == "flambeau_recorder":
        return ctypes.addressof(native_call.recorder)
    if name.startswith(("Py", "_Py")):
        return native_call.address(name)
    if name.startswith(("GOMP_", "omp_")):
        library = threads.library()
        return 0 if library is None else _symbol(library, name)
    libm = _libm()
    return _symbol(libm if hasattr(libm, name) else ctypes.CDLL(None), name)


def _symbol(library: ctypes.CDLL, name: str) -> int:
    pointer = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert pointer is not None
    return pointer


@functools.cache
def _libm() -> ctypes.CDLL:
    on_linux = sys.platform == "linux"
    return ctypes.CDLL("libm.so.6" if on_linux else importlib.import_module("ctypes.util").find_library("m"))


# ---------------------------------------------------------------------------------------------- identity


@functools.cache
def _environment() -> str:
    """Return all settings besides the kernel that determine its machine code."""
    make_sure_of(_IMPORT_BYTES, "to look for a kernel")
    return cache.digest(
        _FORMAT, _llvm_version(), platform.machine(), _cpu_identity(), _source_digest("expr", "kernels")
    )


def _llvm_version() -> str:
    metadata = importlib.import_module("importlib.metadata")  # at the first kernel: it costs 20 ms
    try:
        return metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        return "none"


def _cpu_identity() -> str:
    """Return model and features of the CPU without LLVM, whose import would cost more than loading a kernel."""
    try:
        with open("/proc/cpuinfo") as file:
            first = file.read(16384).split("\n\n")[0]
    except OSError:
        return f"{platform.processor()} {platform.platform()}"
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join(line for line in first.splitlines() if line.split("\t")[0].split(":")[0].strip() in wanted)


@functools.cache
def _writer(module: str) -> str:
    """Return all settings that determine what functions of a module write: the source of the module and of all that writes for this machine."""
    own = hashlib.sha256(Path(sys.modules[module].__file__ or "").read_bytes()).hexdigest()
    source, system = (
        _source_digest("backends/cpu", "backends/cpu/onednn"),
        (sys.version, sys.platform, str(os.cpu_count())),
    )
    return cache.digest(module, own, source, _environment(), *system)


@functools.cache
def _source_digest(*folders: str) -> str:
    """Return a hash of the modules in some folders, so that a changed formula or emitter does not find old kernels."""
    total = hashlib.sha256()
    for folder in folders:
        with os.scandir(Path(__file__).resolve().parents[2] / folder) as entries:
            paths = sorted(entry.path for entry in entries if entry.name.endswith(".py"))
        for path in paths:
            with open(path, "rb", buffering=0) as file:
                total.update(file.read())
    return total.hexdigest()

"""Kernels written as Python functions: loops over memory, compiled for the dtypes at hand.

    @loop_kernel
    def softmax_rows(out, x, rows, n):
        for i in prange(rows, n):            # parallel; each iteration touches about n elements
            base = i * n
            top = like(x, -inf)              # in the dtype x computes in: float32 for half-width floats
            for j in range(n):
                top = maximum(top, x[base + j])
            total = like(x, 0)
            for j in range(n):
                e = exp(x[base + j] - top)
                out[base + j] = e
                total += e                   # += and *= of floats may be reassociated; total = total + e may not
            for j in range(n):
                out[base + j] = out[base + j] / total

    softmax_rows(out, x, rows, n)

Positional arguments: tensors become buffers, indexed by position in memory; int and bool become int64, float becomes float64 (weak: it takes
the dtype of the other operand); None is None at compile time. Keyword-only arguments are constants of the compiled code: strings, flags,
numbers, dtypes, scalar functions. Tests on constants choose code. The names a kernel may use besides Python's are in `loops_language`, and
re-exported here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.backend import backend_of
from ..core.device import cpu, device
from ..core.dtype import FROM_NUMPY, dtype
from ..core.storage import UntypedStorage
from ..core.written import written
from ..expr.node import Expr
from . import ir
from .loops_frontend import lower_kernel, lower_scalar
from .loops_interpret import interpret
from .loops_language import *  # noqa: F403
from .scalar_function import ScalarFunction as _ScalarFunction
from .scalar_function import describe_constant, fingerprint

ON_HOST = "on_host"  # a constant of this name is True on the CPU and False on other devices, whose memory is slower than their arithmetic

Compiler = Callable[[Callable[[], ir.Kernel], str], Callable[..., Any]]
_compiler: Compiler | None = None
_compiler_chosen = False
# what native functions were compiled from
made: dict[Callable[..., Any], tuple[LoopKernel, dict[str, Any], dict[str, Any]]] = {}


def use_compiler(compiler: Compiler | None) -> None:
    """Set how kernels become callable: `compiler(build, key)` returns a native function. None: they are interpreted. The CPU backend calls
    this when it is imported."""
    global _compiler, _compiler_chosen
    _compiler, _compiler_chosen = compiler, True


class ScalarFunction(_ScalarFunction):
    def inline(self, dtypes: tuple[dtype, ...]) -> tuple[list[str], list[ir.Statement], Expr]:
        """Return parameter names, statements and result for these argument dtypes, from which an emitter writes a function."""
        names, body, result = lower_scalar(self, dtypes)
        return names, body, result.expr


def scalar_function(function: Callable[..., Any]) -> ScalarFunction:
    """Declare a function of numbers that loop kernels and formulas may call.

    >>> @scalar_function
    ... def relu6(x):
    ...     return minimum(maximum(x, 0), 6)
    """
    return ScalarFunction(function)


class LoopKernel:
    """A kernel. `face` is the function that runs it; compiled code is cached by operand types, dtypes and constants."""

    def __init__(self, function: Callable[..., Any], may_alias: bool = False):
        self.function: Any = function
        self.may_alias = may_alias
        self.__name__: str = self.function.__name__
        self.__doc__ = function.__doc__
        code = self.function.__code__
        self.positional: tuple[str, ...] = code.co_varnames[: code.co_argcount]
        self.constants: tuple[str, ...] = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        self._fingerprint: str | None = None

    def face(self, **known: Any) -> Any:
        """Return the function that runs the kernel: of its operands, and by keyword of the constants that are not `known` yet."""
        left = tuple(name for name in self.constants if name not in known)
        entries: dict[tuple[Any, ...], Callable[..., Any]] = {}

        def new_entry(key: tuple[Any, ...], args: tuple[Any, ...], constants: dict[str, Any]) -> Callable[..., Any]:
            entries[key] = entry = self._entry(args, {**known, **constants})
            return entry

        space: dict[str, Any] = {"_type": type, "_known": entries.get, "_new": new_entry, "__name__": __name__}
        positional, named = self.function.__defaults__ or (), self.function.__kwdefaults__ or {}
        operands = len(self.positional)
        space.update({f"_default_{operands - len(positional) + i}": v for i, v in enumerate(positional)})
        space.update({f"_default_{n}": v for n, v in named.items()})
        call = written(lambda: _call_code(operands, left, len(positional), tuple(n for n in left if n in named)), space)
        call.__name__ = call.__qualname__ = self.__name__
        call.__doc__ = self.__doc__
        return call

    def __repr__(self) -> str:
        return f"<loop kernel {self.__name__}({', '.join(self.positional + self.constants)})>"

    # --- the three ways to run or see a kernel

    def interpret(self, *args: Any, **constants: Any) -> None:
        """Run the Python function itself over the operands, checking every index."""
        operands, known = self._bind(args, constants)
        interpret(self.function, operands, known)

    def lower(self, *kinds: Any, **constants: Any) -> ir.Kernel:
        """Return the loop nest for these operands: a dtype for each buffer, int or float for each scalar, None for None."""
        operands, known = self._bind(kinds, constants)
        return self._lower({n: _binding(n, kind, self) for n, kind in operands.items()}, known)

    def _lower(self, bindings: dict[str, Any], known: dict[str, Any]) -> ir.Kernel:
        return lower_kernel(self.function, {**bindings, **known}, self.__name__, self.may_alias)

    def native(self, *kinds: Any, where: device = cpu, **constants: Any) -> Callable[..., Any] | None:
        """Return the compiled function for operands of these kinds on a device, for callers that keep it: it takes addresses and numbers in
        order. None if kernels are interpreted."""
        operands, known = self._bind(kinds, constants)
        if _compiler is None and where is cpu:
            return None
        templates = [dtype if isinstance(k, dtype) else k for k in operands.values()]
        return self._compile(templates, tuple(k for k in operands.values() if isinstance(k, dtype)), known, where)

    # --- calls

    def _bind(self, args: tuple[Any, ...], constants: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return positional operands by name, and constants with their defaults."""
        defaults = self.function.__defaults__ or ()
        missing = len(self.positional) - len(args)
        if not 0 <= missing <= len(defaults):
            raise TypeError(f"{self!r} got {len(args)} operands")
        args = (*args, *defaults[len(defaults) - missing :])
        known = {**(self.function.__kwdefaults__ or {}), **constants}
        if set(known) != set(self.constants):
            wrong = sorted(set(known) ^ set(self.constants))
            raise TypeError(f"{self!r}: missing or unexpected keyword arguments {wrong}; operands are positional")
        return dict(zip(self.positional, args)), known

    def _entry(self, args: tuple[Any, ...], constants: dict[str, Any]) -> Callable[..., Any]:
        """Return a function for operands of these types: one lookup by dtype, one native call."""
        operands, known = self._bind(args, constants)
        if not _compiler_chosen:
            raise RuntimeError(f"{self!r}: no backend yet; import flambeau or flambeau.backends.cpu first")

        def slow(*operands: Any) -> None:
            interpret(self.function, dict(zip(self.positional, operands)), known)

        dtypes, passed, tensors = [], [], []
        for i, (name, value) in enumerate(operands.items()):
            how = _passing(value)
            if how is None:
                raise TypeError(
                    f"{self!r}: operand '{name}' is {type(value).__name__}; expected a tensor, int, float or None "
                    "(constants are passed by keyword)"
                )
            if how[0]:
                dtypes.append(how[0].format(f"a{i}"))
            if hasattr(value, "_storage"):
                tensors.append(f"a{i}")
            if how[1]:
                passed.append(how[1].format(f"a{i}"))
        templates = [_template(v) for v in operands.values()]

        def build(key: tuple[Any, ...]) -> Callable[..., Any]:
            # The CPU compiler has no 8-bit floats; the interpreter does.
            only_interpreted = _compiler is None or any(d in dt.FLOAT8 for d in key)
            found = table[key] = slow if only_interpreted else self._compile(templates, key, known)
            return found

        compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}

        def elsewhere(where: device, *operands: Any) -> None:
            moved, dtypes, blocks = self._device_arguments(where, operands, templates)
            key = (where, *dtypes)
            run = compiled.get(key)
            if run is None:
                run = compiled[key] = self._compile(templates, dtypes, known, where)
            run(*moved)

        table: dict[tuple[Any, ...], Callable[..., Any]] = {}
        names = ", ".join(f"a{i}" for i in range(len(operands)))
        placed = ""
        if tensors:
            there = " and ".join(f"{t}.device is where" for t in tensors)
            only_tensors = not any(isinstance(v, np.ndarray) for v in operands.values())
            placed = f" where = {tensors[0]}.device\n if where is not cpu:\n"
            if only_tensors:  # written out: small kernels wait for this
                key = f"(where, {''.join(d + ', ' for d in dtypes)})"
                placed += (
                    f"  run = compiled({key})\n  if run is not None and {there}: return run({', '.join(passed)})\n"
                )
            placed += f"  return elsewhere(where, {names})\n"
        source = (
            f"def entry({names}):\n{placed}"
            f" key = ({''.join(d + ', ' for d in dtypes)})\n native = table.get(key)\n"
            f" if native is None: native = build(key)\n if native is slow: return slow({names})\n"
            f" native({', '.join(passed)})\n"
        )
        space: dict[str, Any] = {
            "table": table, "build": build, "slow": slow, "elsewhere": elsewhere, "compiled": compiled.get,
            "cpu": cpu, "FROM_NUMPY": FROM_NUMPY, "address": _array_address,
        }  # fmt: skip
        exec(compile(source, f"{__file__}<entry>", "exec"), space)  # the text is made of operand positions only
        return space["entry"]

    def _device_arguments(
        self, where: device, operands: tuple[Any, ...], templates: list[Any]
    ) -> tuple[list[Any], tuple[dtype, ...], list[UntypedStorage]]:
        """Return the native arguments of a call on another device than the CPU, the dtypes of its buffers, and memory to be kept until it has
        been started: NumPy arrays among the operands are copied there first."""
        moved: list[Any] = []
        dtypes: list[dtype] = []
        blocks: list[UntypedStorage] = []
        for value, template in zip(operands, templates):
            if hasattr(value, "_storage"):
                if value.device is not where:
                    raise RuntimeError(
                        f"Expected all tensors to be on the same device, but found at least two devices, {where} and"
                        f" {value.device}! (in {self.__name__})"
                    )
                moved.append(value._storage.ptr + value._offset * value.dtype.itemsize)
                dtypes.append(value.dtype)
            elif isinstance(value, np.ndarray):
                moved.append(self._copy_array(value, where, blocks))
                dtypes.append(FROM_NUMPY[value.dtype])
            elif template is not None:
                moved.append(int(value) if isinstance(value, np.integer) else value)
        return moved, tuple(dtypes), blocks

    def _copy_array(self, array: np.ndarray[Any, Any], where: device, blocks: list[UntypedStorage]) -> int:
        if not array.flags.c_contiguous:
            raise ValueError(f"{self!r}: a NumPy operand must be contiguous")
        block = UntypedStorage(array.nbytes, where)
        backend_of(where).write(block.ptr, array.ctypes.data, array.nbytes, where)
        blocks.append(block)
        return block.ptr

    def _compile(
        self, templates: list[Any], dtypes: tuple[dtype, ...], known: dict[str, Any], where: device = cpu
    ) -> Callable[..., Any]:
        remaining = iter(dtypes)
        kinds = [next(remaining) if t is dtype else t for t in templates]
        bindings = {n: _binding(n, kind, self) for n, kind in zip(self.positional, kinds)}
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.function)
        if where is not cpu and ON_HOST in self.constants:
            known = {**known, ON_HOST: False}
        described = [(n, describe_constant(v)) for n, v in known.items()]
        key = f"loop kernel {self._fingerprint} {self.may_alias} {kinds} {described}"
        if where is not cpu:
            backend = backend_of(where)
            if not backend.compiles:
                raise NotImplementedError(f"{self!r}: the device '{where}' compiles no kernels")
            return backend.compile_for(lambda: self._lower(bindings, known), key, where)
        assert _compiler is not None
        found = _compiler(lambda: self._lower(bindings, known), key)
        made[found] = (self, dict(zip(self.positional, kinds)), known)
        return found


@functools.cache
def _call_code(operands: int, constants: tuple[str, ...], optional: int, preset: tuple[str, ...]) -> CodeType:
    """Return the code that calls kernels with `operands` operands, the last of them `optional`, and these constants, some `preset`. It is
    generated, because many kernels run for less time than packing and unpacking arguments takes. 1, 1.0 and True are equal but not the same
    constant, hence their types in the key."""
    names = [f"_{i}" for i in range(operands)]
    given = ", ".join(names)
    signature = ", ".join(f"_{i}" + f"=_default_{i}" * (i >= operands - optional) for i in range(operands))
    if constants:
        signature += ", *, " + ", ".join(n + f"=_default_{n}" * (n in preset) for n in constants)
    key = ", ".join([*(f"_type({n})" for n in names), *(f"{n}, _type({n})" for n in constants)])
    named = ", ".join(f"'{n}': {n}" for n in constants)
    source = (
        f"def compute({signature}):\n _key = ({key},)\n _entry = _known(_key)\n"
        f" if _entry is None: _entry = _new(_key, ({given},), {{{named}}})\n _entry({given})\n"
    )
    return compile(source, f"{__file__}<loop kernel>", "exec")


def _passing(value: Any) -> tuple[str, str] | None:
    """Return Python text for the dtype and for the native argument of an operand of this type."""
    if value is None:
        return ("", "")
    if isinstance(value, np.ndarray):
        return ("FROM_NUMPY[{0}.dtype]", "address({0})")
    if isinstance(value, (int, float)):
        return ("", "{0}")
    if isinstance(value, np.integer):
        return ("", "int({0})")
    if hasattr(value, "_storage"):
        return ("{0}.dtype", "{0}._storage.ptr + {0}._offset * {0}.dtype.itemsize")
    if hasattr(value, "data_ptr") and isinstance(getattr(value, "dtype", None), dtype):
        return ("{0}.dtype", "{0}.data_ptr()")
    return None


def _array_address(array: np.ndarray[Any, Any]) -> int:
    if not array.flags.c_contiguous:
        raise ValueError("a NumPy operand of a loop kernel must be contiguous")
    # array.ctypes.data would do too, but takes four times as long
    return _addressof(_first_byte(array)) if array.flags.writeable and array.size else array.ctypes.data


_addressof: Any = ctypes.addressof
_first_byte: Any = ctypes.c_char.from_buffer


def _template(value: Any) -> Any:
    """Return int, float, None, or `dtype` for a buffer whose dtype is known at the call."""
    if value is None:
        return None
    if isinstance(value, (int, np.integer)):
        return int
    return float if isinstance(value, float) else dtype


def _binding(name: str, kind: Any, kernel: LoopKernel) -> Any:
    if kind is None:
        return None
    if isinstance(kind, dtype):
        return ir.Buffer(name, kind)
    if kind is int or kind is float:
        return ir.Scalar(name, dt.int64 if kind is int else dt.float64)
    raise TypeError(f"{kernel!r}: '{name}' is described by a dtype, int, float or None, not {kind!r}")


def loop_kernel(function: Callable[..., Any] | None = None, *, may_alias: bool = False) -> Any:
    """Declare a kernel. `may_alias`: buffers that are written may overlap other buffers (slower code).

    Returns the function that runs it, with the kernel itself and the other ways to use it as attributes: `interpret`,
    `lower`, `native`, and `with_constants`, which gives a function with keyword arguments known beforehand."""
    if function is None:
        return lambda f: loop_kernel(f, may_alias=may_alias)
    kernel = LoopKernel(function, may_alias)
    face = kernel.face()
    face.kernel = kernel
    face.interpret, face.lower, face.native = kernel.interpret, kernel.lower, kernel.native
    face.with_constants = kernel.face
    return face

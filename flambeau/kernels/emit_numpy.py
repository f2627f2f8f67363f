"""The reference: formulas, reductions and loop nests interpreted with NumPy.

Slow and simple. It is the reference for tests of the native emitters, and runs where llvmlite is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.node import Expr, walk
from ..expr.typing import infer, operand_dtype
from . import ir
from .numpy_ops import OPERATIONS
from .numpy_values import constant, convert, from_memory, to_memory

Types = dict[int, dtype]
_UNSIGNED = {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}


def evaluate(
    roots: tuple[Expr, ...], arrays: Sequence[Any], in_dtypes: Sequence[dtype], out_dtypes: Sequence[dtype]
) -> list[np.ndarray[Any, Any]]:
    """Return the values of `roots`, element by element over the broadcast `arrays` (bfloat16: uint16 bits)."""
    types = infer(roots, tuple(in_dtypes))
    operands = [from_memory(a, d) for a, d in zip(arrays, in_dtypes)]
    shape = np.broadcast_shapes(*(a.shape for a in operands))
    values: dict[int, np.ndarray[Any, Any]] = {}
    with np.errstate(all="ignore"):
        for x in walk(roots):
            if x.op == "arg":
                values[id(x)] = operands[x.args[0]]
            elif x.op != "const":
                values[id(x)] = _apply(x, values, types)
        results = [to_memory(_operand(r, values, types[id(r)]), d) for r, d in zip(roots, out_dtypes)]
    return [np.array(np.broadcast_to(r, shape)) for r in results]


def _operand(x: Expr, values: dict[int, np.ndarray[Any, Any]], to: dtype) -> np.ndarray[Any, Any]:
    return constant(x.args[0], to) if x.op == "const" else convert(values[id(x)], to)


def _apply(x: Expr, values: dict[int, np.ndarray[Any, Any]], types: Types) -> np.ndarray[Any, Any]:
    """Evaluate a node, given the values of its operands."""
    if x.op == "cast":
        return convert(_operand(x.args[0], values, types[id(x.args[0])]), x.args[1])
    if x.op == "bitcast":
        return _bitcast(x, values)
    if x.op == "call":
        return _call(x, values, types)
    common = operand_dtype(x, types)
    if x.op == "where":
        condition = _operand(x.args[0], values, dt.bool_)
        return np.where(condition, *(_operand(a, values, common) for a in x.args[1:]))
    operation = OPERATIONS.get(x.op)
    if operation is None:
        raise NotImplementedError(f"the NumPy reference does not know the operation '{x.op}'")
    result = np.asarray(operation(*(_operand(a, values, common) for a in x.args)))
    return convert(result, types[id(x)])


def _bitcast(x: Expr, values: dict[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    source, to = x.args
    if source.op == "const":
        number = source.args[0]
        same_size = _UNSIGNED[to.itemsize] if isinstance(number, int) else {4: dt.float32, 8: dt.float64}[to.itemsize]
        value = constant(number, same_size)
    else:
        value = values[id(source)]
    if value.dtype.itemsize != to.itemsize:
        raise TypeError(f"bitcast keeps the size: {value.dtype} has {value.dtype.itemsize} bytes, {to} {to.itemsize}")
    return from_memory(np.ascontiguousarray(value).view(to.numpy).reshape(value.shape), to)


def _call(x: Expr, values: dict[int, np.ndarray[Any, Any]], types: Types) -> np.ndarray[Any, Any]:
    """Call a function of numbers written with loops (`scalar_function`) by its own reference implementation."""
    to = types[id(x)]
    return convert(np.asarray(x.args[0].numpy(*(_operand(a, values, to) for a in x.args[1:]))), to)


# ---- reductions -----------------------------------------------------------------------------------------------------


def reduce(
    map_root: Expr,
    combine: str,
    final: Expr | None,
    arrays: Sequence[Any],
    in_dtypes: Sequence[dtype],
    out_dtype: dtype,
    acc_dtype: dtype,
    axes: tuple[int, ...] | None,
    keepdims: bool = False,
) -> np.ndarray[Any, Any]:
    """Combine `map_root` along `axes` (None: all), then apply the formula `final` (its argument 0 is the result).

    `combine` is one of sum, prod, max, min, any, all, argmax, argmin. nan wins in max, min, argmax and argmin, the
    first of equal elements gives the index, and an index counts through the reduced axes in row-major order.
    """
    if combine not in _COMBINE:
        raise ValueError(f"unknown reduction '{combine}', expected one of {', '.join(_COMBINE)}")
    is_index = combine.startswith("arg")
    mapped_dtype = infer((map_root,), tuple(in_dtypes))[id(map_root)] if is_index else opmath(acc_dtype)
    (mapped,) = evaluate((map_root,), arrays, in_dtypes, (mapped_dtype,))
    axes = tuple(range(mapped.ndim)) if axes is None else tuple(a % mapped.ndim for a in axes)
    kept = [a for a in range(mapped.ndim) if a not in axes]
    rows = mapped.transpose(*kept, *sorted(axes)).reshape(*(mapped.shape[a] for a in kept), -1)
    with np.errstate(all="ignore"):
        result = np.asarray(_COMBINE[combine](rows))
    if keepdims:
        result = result.reshape([1 if a in axes else n for a, n in enumerate(mapped.shape)])
    result_dtype = dt.int64 if is_index else dt.bool_ if combine in ("any", "all") else mapped_dtype
    if final is None:
        return to_memory(convert(result, result_dtype), out_dtype)
    return evaluate((final,), [convert(result, result_dtype)], (result_dtype,), (out_dtype,))[0]


def _sum(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Sum rows; real and complex sums are formed in double precision, so that the reference has hardly any rounding error."""
    wide = {"f": np.float64, "c": np.complex128}.get(rows.dtype.kind, rows.dtype)
    return np.asarray(rows.any(-1) if rows.dtype.kind == "b" else rows.sum(-1, dtype=wide))


_COMBINE = {
    "sum": _sum,
    "prod": lambda rows: rows.all(-1) if rows.dtype.kind == "b" else rows.prod(-1, dtype=rows.dtype),
    "max": lambda rows: rows.max(-1),
    "min": lambda rows: rows.min(-1),
    "any": lambda rows: (rows != 0).any(-1),
    "all": lambda rows: (rows != 0).all(-1),
    "argmax": lambda rows: rows.argmax(-1),
    "argmin": lambda rows: rows.argmin(-1),
}


# ---- loop nests -----------------------------------------------------------------------------------------------------


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


def run(kernel: ir.Kernel, arguments: Sequence[Any]) -> None:
    """Run a loop nest on flat or contiguous arrays (changed in place) and scalars, given in parameter order."""
    if len(arguments) != len(kernel.params):
        raise TypeError(f"kernel '{kernel.name}' takes {len(kernel.params)} arguments, got {len(arguments)}")
    nest = _Nest()
    for parameter, value in zip(kernel.params, arguments):
        if isinstance(parameter, ir.Scalar):
            nest.variables[parameter.name] = constant(value, parameter.dtype)
        else:
            nest.buffers[parameter.name] = _flat(value, parameter)
    with np.errstate(all="ignore"):
        nest.block(kernel.body)


def _flat(array: np.ndarray[Any, Any], buffer: ir.Buffer) -> np.ndarray[Any, Any]:
    if not isinstance(array, np.ndarray) or array.dtype != buffer.dtype.numpy or not array.flags.c_contiguous:
        given = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"buffer '{buffer.name}' needs a contiguous {buffer.dtype.numpy} array, got {given}")
    return array.reshape(-1)


@lru_cache(maxsize=4096)
def _types_of(x: Expr) -> Types:
    return infer((x,), ())


class _Nest:
    """The variables and buffers of one run."""

    def __init__(self) -> None:
        self.variables: dict[str, np.ndarray[Any, Any]] = {}
        self.buffers: dict[str, np.ndarray[Any, Any]] = {}

    def block(self, statements: list[ir.Statement]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, s: ir.Statement) -> None:
        if isinstance(s, ir.Assign):
            self.variables[s.name] = convert(self.value(s.value), s.dtype)
        elif isinstance(s, ir.Store):
            self.buffers[s.buffer.name][self.index(s.buffer, s.index)] = to_memory(self.value(s.value), s.buffer.dtype)
        elif isinstance(s, ir.DeclareLocal):
            self.buffers[s.buffer.name] = np.zeros(s.buffer.local_size, s.buffer.dtype.numpy)
        elif isinstance(s, ir.For):
            self.for_loop(s)
        elif isinstance(s, ir.While):
            self.while_loop(s)
        elif isinstance(s, ir.If):
            self.block(s.then if self.truth(s.condition) else s.otherwise)
        elif isinstance(s, ir.Break):
            raise _Break
        elif isinstance(s, ir.Continue):
            raise _Continue
        else:
            raise NotImplementedError(f"the NumPy reference does not know the statement {type(s).__name__}")

    def for_loop(self, s: ir.For) -> None:
        start, stop, step = (int(self.value(x)) for x in (s.start, s.stop, s.step))
        for i in range(start, stop, step):
            self.variables[s.name] = np.asarray(i, dtype=np.int64)
            if not self.iteration(s.body):
                break

    def while_loop(self, s: ir.While) -> None:
        while self.truth(s.condition) and self.iteration(s.body):
            pass

    def iteration(self, body: list[ir.Statement]) -> bool:
        """Execute one iteration, and return whether the loop continues."""
        try:
            self.block(body)
        except _Continue:
            return True
        except _Break:
            return False
        return True

    def truth(self, x: Expr) -> bool:
        return bool(convert(self.value(x), dt.bool_))

    def index(self, buffer: ir.Buffer, index: Expr) -> int:
        i, size = int(self.value(index)), self.buffers[buffer.name].size
        if not 0 <= i < size:
            raise IndexError(f"index {i} is outside buffer '{buffer.name}' of {size} elements")
        return i

    def value(self, x: Expr) -> np.ndarray[Any, Any]:
        types = _types_of(x)
        return self._operand_value(x, types, {})

    def _operand_value(self, x: Expr, types: Types, done: dict[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Return the value of an operand. Recursive, so that `where` reads only the side it needs: the other may be out of bounds."""
        if id(x) not in done:
            done[id(x)] = self._compute(x, types, done)
        return done[id(x)]

    def _compute(self, x: Expr, types: Types, done: dict[int, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        if x.op == "const":
            return constant(x.args[0], types[id(x)])
        if x.op == "var":
            return convert(self.variables[x.args[0]], x.args[1])
        if x.op == "load":
            buffer, index = x.args
            return from_memory(self.buffers[buffer.name][self.index(buffer, index)], buffer.dtype)
        if x.op == "where":
            taken = x.args[1 if self._operand_value(x.args[0], types, done) else 2]
            done[id(taken)] = self._operand_value(taken, types, done)
            return np.asarray(_operand(taken, done, operand_dtype(x, types)))
        for a in x.args:
            if isinstance(a, Expr) and a.op != "const":
                self._operand_value(a, types, done)
        return _apply(x, done, types)

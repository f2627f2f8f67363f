"""Plans: how one combination of dtypes, shapes and strides is computed by a compiled kernel.

A plan is made once per combination and found again by one dictionary lookup."""

from __future__ import annotations

from array import array
from typing import Any

from ...backends.compiled import map_kernel
from ...backends.cpu import jit
from ...core.aliases import AnyFunction, Values
from ...core.backend import BACKENDS
from ...core.device import cpu, device
from ...core.dtype import dtype, opmath
from ...core.layout import broadcast_two, dense_strides, output_strides
from ...core.size import Size, make_size
from ...core.tensor import Tensor, contiguous_strides, is_contiguous_layout, numel_of
from ...expr.node import Expr
from ...kernels import emit_numpy, geometry
from ...kernels.elementwise import passing
from .dtype_rules import check_fits, usual_range

NATIVE = jit.available()
# Below this many bytes of output a kernel is done before it would pay to let other Python threads run.
_BRIEF = 1 << 15


class Layout:
    """Layout of a tensor's elements: everything of its header but the memory itself."""

    __slots__ = ("shape", "strides", "dtype", "device", "contig", "nbytes")

    shape: Size
    strides: tuple[int, ...]
    dtype: dtype
    device: device
    contig: bool
    nbytes: int  # of a dense tensor of this shape

    def set_layout(self, shape: tuple[int, ...], strides: tuple[int, ...], d: Any, where: Any) -> None:
        self.shape = shape if type(shape) is Size else make_size(shape)
        self.strides = strides
        self.dtype = d
        self.device = where
        self.contig = is_contiguous_layout(shape, strides)
        self.nbytes = numel_of(shape) * d.itemsize

    @staticmethod
    def of(t: Tensor) -> Layout:
        self = Layout()
        self.set_layout(t.shape, t._strides, t.dtype, t.device)
        return self


class Form:
    """Part of a plan that does not depend on sizes and strides: dtypes, device and the traced formula."""

    __slots__ = (
        "device", "dtype", "compute", "natural", "constants", "records", "in_dtypes", "passing", "roots", "is_native",
    )  # fmt: skip

    compute: dtype
    natural: dtype
    in_dtypes: tuple[dtype, ...]
    constants: dict[int, Any]
    records: bool
    passing: str
    roots: tuple[Expr, ...]
    is_native: bool  # whether a compiled kernel can compute it
    device: device
    dtype: dtype  # of the result


class PointwisePlan(Layout):
    """The layout of the result and the kernel that computes it.

    `fn` is None when there is no native kernel to call directly: empty results, values to be checked, a complex number by value."""

    __slots__ = (
        "fn", "native", "first", "passing", "roots", "in_dtypes", "guard", "op", "operands", "constants", "params", "natural",
        "compute", "records", "recipes",
    )  # fmt: skip

    fn: Any
    native: Any  # the kernel, also where `fn` is None because values are checked first
    first: Any  # its first argument: the number of elements, or sizes and strides
    passing: str  # per value: p pointer, d float, l integer, z complex, - not at all (a constant of the formula)
    roots: tuple[Expr, ...]
    in_dtypes: tuple[dtype, ...]
    guard: AnyFunction | None  # checks the values before every call
    op: Any
    operands: tuple[Layout | None, ...]  # of tensors; None for numbers
    constants: dict[int, Any]  # operands that are constants of the formula (None: left out)
    compute: dtype  # the dtype in which the formula is evaluated
    params: tuple[Any, ...]
    natural: dtype  # the result's dtype if none was asked for
    records: bool  # whether autograd may have to record calls
    recipes: dict[int, Any]  # how to differentiate, by which operands need a gradient

    def take(self, form: Form) -> None:
        self.compute, self.natural, self.records = form.compute, form.natural, form.records
        self.constants, self.passing = form.constants, form.passing
        self.in_dtypes, self.roots = form.in_dtypes, form.roots

    def limits_of_numbers(self, operands: Values) -> dict[int, dtype]:
        """Return the dtypes, by position, whose range values must be in at every call. Raise for constants of the formula that are not."""
        op = self.op
        given = [(n, v, varies) for (n, _), v, varies in zip(op.parameters, self.params, op.runtime_flags(self.params))]
        limits = {n: opmath(self.compute) if n in op.quirks.wide_numbers else self.compute for n in op.fits}
        for name, value, varies in given:
            if name in limits and not varies:
                check_fits(value, limits[name])
        values = [*zip(op.operand_names, operands), *((n, v) for n, v, varies in given if varies)]
        numbers = [(i, n) for i, (n, x) in enumerate(values) if x is not None and not isinstance(x, Tensor)]
        return {i: limits[n] for i, n in numbers if n in limits}

    def refuse_beyond(self, limits: dict[int, dtype]) -> None:
        """Check these values before every call, also of the kernel alone."""
        guard, fn = self.guard, self.fn

        def look(*values: Any) -> None:
            for i, d in limits.items():
                check_fits(values[i], d)
            if guard is not None:
                guard(*values)

        # Values that certainly fit are not checked twice. After the kernel's own two arguments come the values, without constants.
        places = [(2 + i - self.passing[:i].count("-"), *usual_range(d), d) for i, d in limits.items()]

        def checked(*arguments: Any) -> None:
            for i, low, high, d in places:
                if not low <= arguments[i] <= high:
                    check_fits(arguments[i], d)
            fn(*arguments)

        self.guard, self.fn = look, checked if fn is not None else None

    def run(self, out: Tensor, values: Values) -> None:
        """Compute into `out`, whose layout is the one the plan was made for."""
        if self.guard is not None:
            self.guard(*values)
        if not self.nbytes or self.device.type == "meta":
            return
        if self.native is None:
            self._run_numpy(out, values)
            return
        arguments: list[Any] = []
        for x, how in zip(values, self.passing):
            if how == "p":
                arguments.append(x._storage.ptr + x._offset * x.dtype.itemsize)
            elif how == "z":
                x = x.item() if isinstance(x, Tensor) else x
                arguments += (x.real, x.imag)
            elif isinstance(x, Tensor) and how != "-":
                arguments.append(x.item())
            elif how != "-":
                arguments.append(x)
        self.native(self.first, out._storage.ptr + out._offset * out.dtype.itemsize, *arguments)

    def _run_numpy(self, out: Tensor, values: Values) -> None:
        if not BACKENDS[self.device.type].on_host:
            raise NotImplementedError(
                f"'{self.op.name}' of {self.in_dtypes} has no kernel on the device '{self.device}'"
            )
        arrays = [x._array() if isinstance(x, Tensor) else x for x, how in zip(values, self.passing) if how != "-"]
        (result,) = emit_numpy.evaluate(self.roots, arrays, self.in_dtypes, (out.dtype,))
        out._array()[...] = result


def compiles(where: device, *dtypes: dtype) -> bool:
    """Return whether formulas over these dtypes become native code on this device."""
    return BACKENDS[where.type].computes(dtypes)


def common_device(operands: Values, where: device | None = None) -> device:
    """Return the device on which a call on these operands (into memory on `where`) runs; 0-dim tensors of the host fit any device."""
    movable = False
    for x in operands:
        if not isinstance(x, Tensor) or x.device is where:
            continue
        if where is None or movable:
            where, movable = x.device, not x.shape and BACKENDS[x.device.type].on_host
        elif x.shape or not BACKENDS[x.device.type].on_host:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices,"
                f" {where} and {x.device}!"
            )
    return where or cpu


def is_by_value(x: Any, where: device) -> bool:
    """Return whether an operand is a number in a tensor of the host while the call runs elsewhere: its value is passed with the call."""
    if not isinstance(x, Tensor) or x.device is where:
        return False
    return BACKENDS[x.device.type].on_host and BACKENDS[where.type].has_values


def broadcast(operands: Values) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    for x in operands:
        if isinstance(x, Tensor):
            shape = broadcast_two(shape, x.shape)
    return shape


def result_strides(
    shape: tuple[int, ...], operands: Values, converted: dtype | None = None, as_is: int = 0, wrap_numbers: bool = False
) -> tuple[int, ...]:
    """Return the strides of a new result: the operands' dimension order, row-major where they leave it open. Operands (but for the first
    `as_is`) that are converted to another dtype count with the layout of their converted copies. With `wrap_numbers`, numbers count as
    tensors without dimensions, so that not all shapes are equal: as in PyTorch this only shows in the strides of dimensions of size 1."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    wrapped = wrap_numbers and len(tensors) < len(operands)
    row_major = contiguous_strides(shape)
    if all(x._contig and x.shape == shape and (not wrapped or x._strides == row_major) for x in tensors):
        return row_major
    layouts: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        (x.shape, x._strides)
        if converted is None or i < as_is or x.dtype is converted
        else (x.shape, dense_strides(x.shape, x._strides))
        for i, x in enumerate(tensors)
    ]
    return output_strides(shape, [*layouts, ((), ())] if wrapped else layouts)


def kernel(
    roots: tuple[Expr, ...], outputs: list[Layout], inputs: list[tuple[dtype, tuple[int, ...] | None]]
) -> tuple[Any, Any]:
    """Return a native function and its first argument, which store roots[k] to outputs[k]. All outputs have one shape. An input is a dtype
    and its strides expanded to that shape, or None for a number that is passed by value."""
    first = outputs[0]
    strides = [o.strides for o in outputs] + [s for _, s in inputs if s is not None]
    sizes: tuple[int, ...]
    planned: tuple[tuple[int, ...], ...] = ()
    if first.contig and strides.count(first.strides) == len(strides):  # the common case: one dense row
        rank, sizes, pointer_kinds = 1, (first.nbytes // first.dtype.itemsize,), "c" * len(strides)
    else:
        rank, sizes, planned, pointer_kinds = geometry.plan(first.shape, strides)
    pointers = iter(pointer_kinds[len(outputs) :])
    kinds = pointer_kinds[: len(outputs)]
    for d, s in inputs:
        kinds += next(pointers) if s is not None else passing(d)
    in_dtypes, out_dtypes = tuple([d for d, _ in inputs]), tuple([o.dtype for o in outputs])
    where = outputs[0].device
    brief = sum([o.nbytes for o in outputs]) < _BRIEF
    fn = map_kernel(roots, in_dtypes, out_dtypes, kinds, rank, where, brief)
    argument: Any = sizes[0]
    if rank > 1 or "s" in kinds:
        argument = array("q", [*sizes, *(s for operand in planned for s in operand)]).tobytes()
    fixed = getattr(fn, "fixed", None)  # where a launch can be prepared for its geometry
    return fn if fixed is None else fixed(argument), argument

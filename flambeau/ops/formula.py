"""Pointwise operators: from a scalar formula to a function on tensors.

A call looks up a *plan* by the operands' dtypes, shapes and strides: the output's layout and a compiled kernel. A plan
is made once; afterwards a call is one dictionary lookup, one allocation and one native call.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.device import cpu, device
from ..core.dtype import dtype, opmath
from ..core.graph import Meta, Node, SavedTensor, gradient_edge, mode
from ..core.layout import broadcast_two, expand_strides, output_strides
from ..core.promotion import get_default_dtype, result_dtype
from ..core.size import Size, make_size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, contiguous_strides, empty_strided, is_contiguous_layout, numel_of
from ..expr import Expr, arg, arguments, as_expr, const, pullback, substitute
from ..expr import functions as vocabulary
from ..expr.node import cast
from ..kernels import emit_numpy, geometry
from ..kernels.elementwise import map_kernel

_new_object = object.__new__
_NUMBERS = (bool, int, float, complex)
_MAX_PLANS = 4096


class Plan:
    """How one combination of operands is computed."""

    __slots__ = ("fn", "first", "passing", "shape", "strides", "nbytes", "dtype", "contig", "device", "roots", "in_dtypes", "offset_sizes")

    fn: Any
    first: Any
    passing: str  # per input: p pointer, d float by value, l integer by value
    shape: Size
    strides: tuple[int, ...]
    nbytes: int
    dtype: dtype
    contig: bool
    device: device

    def run(self, out: Tensor, operands: tuple) -> None:
        """Compute into `out`, whose layout is the one the plan was made for."""
        fn = self.fn
        if fn is None:
            if self.roots is not None and out.device is cpu:
                self._run_numpy(out, operands)
            return
        values: list = []
        for x, how in zip(operands, self.passing):
            if how == "p":
                values.append(x._storage.ptr + x._offset * x.dtype.itemsize)
            elif how == "d":
                values.append(float(x))
            else:
                values.append(int(x))
        fn(self.first, out._storage.ptr + out._offset * out.dtype.itemsize, *values)

    def _run_numpy(self, out: Tensor, operands: tuple) -> None:
        arrays = [x._array() if isinstance(x, Tensor) else x for x in operands]
        (result,) = emit_numpy.evaluate(self.roots, arrays, self.in_dtypes, (out.dtype,))
        out._array()[...] = result


def number_dtype(value: Any) -> dtype:
    if isinstance(value, complex):
        return dt.complex128
    return dt.float64 if isinstance(value, float) else dt.int64


def as_operand(x: Any, op_name: str, position: int) -> Any:
    """Tensors and Python numbers pass; NumPy scalars become numbers; anything else is the user's mistake."""
    if isinstance(x, (Tensor, *_NUMBERS)):
        return x
    if isinstance(x, (np.generic,)):
        return x.item()
    if isinstance(x, np.ndarray) and x.ndim == 0:
        return x.item()
    raise TypeError(
        f"{op_name}(): argument {position + 1} must be Tensor or Number, not {type(x).__name__}"
    )


# -- dtype rules: (compute dtype, output dtype) from the operands -----------------------------------------------------


def promote(op: Pointwise, operands: tuple) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    return d, d


def promote_float(op: Pointwise, operands: tuple) -> tuple[dtype, dtype]:
    """Like promote, but integers and bools compute in the default float dtype."""
    d = result_dtype(operands)
    if d.category < 2:
        d = get_default_dtype()
    return d, d


def compare(op: Pointwise, operands: tuple) -> tuple[dtype, dtype]:
    return result_dtype(operands), dt.bool_


def select(op: Pointwise, operands: tuple) -> tuple[dtype, dtype]:
    """where(condition, a, b): the condition takes no part in promotion."""
    d = result_dtype(operands[1:])
    return d, d


def real_part(op: Pointwise, operands: tuple) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    return d, d.to_real()


def integral(op: Pointwise, operands: tuple) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    if d.category > 1:
        raise RuntimeError(f'"{op.name}_cpu" not implemented for \'{type_word(d)}\'')
    return d, d


def floating_only(op: Pointwise, operands: tuple) -> tuple[dtype, dtype]:
    d = result_dtype(operands)
    if d.category < 2:
        raise RuntimeError(f'"{op.name}_cpu" not implemented for \'{type_word(d)}\'')
    return d, d


_WORDS = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
    "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
}  # fmt: skip


def type_word(d: dtype) -> str:
    """PyTorch's C++ name of a dtype, as its messages use it."""
    return _WORDS[d.name]


class Pointwise:
    """An elementwise operator. `operands` are tensors or numbers; parameters with defaults are numbers or choices.

    The formula sees expressions for operands. A number parameter that differs from its default is a run-time argument
    of the kernel; a string, bool or None selects the formula at plan time."""

    def __init__(
        self,
        name: str,
        formula: Callable,
        rule: Callable = promote,
        grad: Callable | None = None,
        label: str | None = None,
        differentiable: bool = True,
        check: Callable | None = None,
    ):
        self.name = name
        self.formula = formula
        self.rule = rule
        self.grad = grad
        self.label = label or camel(name) + "Backward0"
        self.differentiable = differentiable
        self.check = check
        parameters = list(inspect.signature(formula).parameters.values())
        self.operand_names = tuple(p.name for p in parameters if p.default is p.empty)
        self.parameters = tuple((p.name, p.default) for p in parameters if p.default is not p.empty)
        self.defaults = tuple(d for _, d in self.parameters)
        self.arity = len(self.operand_names)
        self.plans: dict[tuple, Plan] = {}
        self.gradients: dict[tuple, tuple] = {}

    # -- calling ----------------------------------------------------------------------------------------------------
    def unary(self, a: Tensor) -> Tensor:
        try:
            plan = self.plans[a.dtype, a.device, a.shape, a._strides]
        except KeyError:
            plan = self.make_plan((a.dtype, a.device, a.shape, a._strides), (a,), (), None, None)
        storage = UntypedStorage(plan.nbytes, plan.device)
        out = _new_object(Tensor)
        out._storage = storage
        out.shape = plan.shape
        out._strides = plan.strides
        out._offset = 0
        out.dtype = plan.dtype
        out.device = plan.device
        out._contig = plan.contig
        out._meta = out._base = None
        fn = plan.fn
        if fn is not None:
            fn(plan.first, storage.ptr, a._storage.ptr + a._offset * a.dtype.itemsize)
        else:
            plan.run(out, (a,))
        if a._meta is not None and mode.enabled and self.differentiable:
            self.record((a,), (), out)
        return out

    def binary(self, a: Any, b: Any) -> Tensor:
        """Two operands, at least one a tensor."""
        if isinstance(b, Tensor) and isinstance(a, Tensor):
            key: tuple = (a.dtype, a.device, a.shape, a._strides, b.dtype, b.device, b.shape, b._strides)
            plan = self.plans.get(key)
            if plan is None:
                plan = self.make_plan(key, (a, b), (), None, None)
            storage = UntypedStorage(plan.nbytes, plan.device)
            out = _new_object(Tensor)
            out._storage = storage
            out.shape = plan.shape
            out._strides = plan.strides
            out._offset = 0
            out.dtype = plan.dtype
            out.device = plan.device
            out._contig = plan.contig
            out._meta = out._base = None
            fn = plan.fn
            if fn is not None:
                fn(
                    plan.first,
                    storage.ptr,
                    a._storage.ptr + a._offset * a.dtype.itemsize,
                    b._storage.ptr + b._offset * b.dtype.itemsize,
                )
            else:
                plan.run(out, (a, b))
            if (a._meta is not None or b._meta is not None) and mode.enabled and self.differentiable:
                self.record((a, b), (), out)
            return out
        return self.call((a, b))

    def call(self, operands: tuple, params: tuple = (), out_dtype: dtype | None = None) -> Tensor:
        """The general path: any mix of tensors and numbers, parameters, a forced output dtype."""
        plan = self.plan_for(operands, params, out_dtype, None)
        out = _new_object(Tensor)
        out._storage = UntypedStorage(plan.nbytes, plan.device)
        out.shape = plan.shape
        out._strides = plan.strides
        out._offset = 0
        out.dtype = plan.dtype
        out.device = plan.device
        out._contig = plan.contig
        out._meta = out._base = None
        plan.run(out, operands + self.runtime_params(params))
        if mode.enabled and self.differentiable:
            for x in operands:
                if isinstance(x, Tensor) and x._meta is not None:
                    self.record(operands, params, out)
                    break
        return out

    def into(self, out: Tensor, operands: tuple, params: tuple = ()) -> None:
        """Compute into existing memory (the caller has checked shape, dtype and overlap). Records nothing."""
        plan = self.plan_for(operands, params, out.dtype, (out.shape, out._strides, out.device))
        plan.run(out, operands + self.runtime_params(params))

    def runtime_params(self, params: tuple) -> tuple:
        return tuple(
            v for v, d in zip(params, self.defaults) if type(v) in (int, float, complex) and (v != d or type(v) is not type(d))
        )

    def plan_for(self, operands: tuple, params: tuple, out_dtype: dtype | None, out: tuple | None) -> Plan:
        key: list = []
        for x in operands:
            if isinstance(x, Tensor):
                key += (x.dtype, x.device, x.shape, x._strides)
            else:
                key.append(type(x))
        for v, d in zip(params, self.defaults):
            runtime = type(v) in (int, float, complex) and (v != d or type(v) is not type(d))
            key.append(type(v) if runtime else (v, type(v)))
        key += (out_dtype, out)
        frozen = tuple(key)
        plan = self.plans.get(frozen)
        if plan is None:
            plan = self.make_plan(frozen, operands, params, out_dtype, out)
        return plan

    # -- planning ---------------------------------------------------------------------------------------------------
    def make_plan(self, key: tuple, operands: tuple, params: tuple, out_dtype: dtype | None, out: tuple | None) -> Plan:
        if self.check is not None:
            self.check(self, operands)
        where = common_device(operands)
        compute, natural = self.rule(self, operands)
        shape: tuple[int, ...] = ()
        for x in operands:
            if isinstance(x, Tensor):
                shape = broadcast_two(shape, x.shape)
        plan = Plan()
        plan.device = where
        plan.dtype = out_dtype or natural
        self._lay_out(plan, operands, shape, out)
        values = operands + self.runtime_params(params)
        plan.in_dtypes = tuple(x.dtype if isinstance(x, Tensor) else number_dtype(x) for x in values)
        root = self.trace(operands, params, compute)
        if compute.is_complex and not plan.dtype.is_complex and natural.is_complex:
            root = vocabulary.real(root)  # the gradient of a real operand in a complex product
        plan.roots = (root,)
        plan.passing = ""
        plan.fn = plan.first = None
        if where is cpu and plan.nbytes:
            self._compile(plan, values, compute)
        if len(self.plans) >= _MAX_PLANS:
            self.plans.clear()
        self.plans[key] = plan
        return plan

    @staticmethod
    def _lay_out(plan: Plan, operands: tuple, shape: tuple[int, ...], out: tuple | None) -> None:
        plan.shape = make_size(shape)
        if out is not None:
            plan.shape, plan.strides, _ = out
        elif all(x._contig and x.shape == shape for x in operands if isinstance(x, Tensor)):
            plan.strides = contiguous_strides(plan.shape)
        else:
            plan.strides = output_strides(
                shape, [expand_strides(x.shape, x._strides, shape) for x in operands if isinstance(x, Tensor)]
            )
        plan.contig = is_contiguous_layout(plan.shape, plan.strides)
        plan.nbytes = numel_of(plan.shape) * plan.dtype.itemsize

    def _compile(self, plan: Plan, values: tuple, compute: dtype) -> None:
        if any(d.is_complex for d in (*plan.in_dtypes, plan.dtype, compute)):
            return  # complex formulas run on the NumPy emitter
        strides = [plan.strides] + [expand_strides(x.shape, x._strides, plan.shape) for x in values if isinstance(x, Tensor)]
        rank, sizes, planned, kinds = geometry.plan(plan.shape, strides)
        pointers = iter(kinds[1:])
        operand_kinds = kinds[0]
        for x, d in zip(values, plan.in_dtypes):
            how = next(pointers) if isinstance(x, Tensor) else ("d" if d is dt.float64 else "l")
            operand_kinds += how
            plan.passing += how if how in "dl" else "p"
        fn = map_kernel(plan.roots, plan.in_dtypes, (plan.dtype,), operand_kinds, rank)
        if rank == 1 and "s" not in operand_kinds:
            plan.first = sizes[0]
        else:
            numbers = [*sizes] + [s for operand in planned for s in operand]
            plan.first = np.array(numbers, np.int64).tobytes()
        plan.fn = fn

    def trace(self, operands: tuple, params: tuple, compute: dtype) -> Expr:
        """The formula over this call's operands, each cast to the compute dtype."""
        symbols: list = []
        math_type = opmath(compute)
        for i, x in enumerate(operands):
            d = x.dtype if isinstance(x, Tensor) else number_dtype(x)
            if self.rule is select and i == 0:
                symbols.append(arg(i) if d is dt.bool_ else arg(i) != 0)
            elif not isinstance(x, Tensor) and d is not math_type:
                # a Python number is rounded to the compute dtype; a float against integers was promoted before
                symbols.append(cast(arg(i), math_type))
            elif opmath(d) is not math_type:
                symbols.append(cast(arg(i), math_type))
            else:
                symbols.append(arg(i))
        root = self.formula(*symbols, *self._parameter_symbols(params, len(operands), math_type))
        return as_expr(root)

    def _parameter_symbols(self, params: tuple, first: int, math_type: dtype) -> list:
        symbols: list = []
        position = first
        for v, d in zip(params, self.defaults):
            if type(v) in (int, float, complex) and (v != d or type(v) is not type(d)):
                symbol = arg(position)
                position += 1
                symbols.append(symbol if number_dtype(v) is math_type else cast(symbol, math_type))
            elif type(v) in (int, float, complex):
                symbols.append(const(v))
            else:
                symbols.append(v)
        return symbols

    # -- derivative -------------------------------------------------------------------------------------------------
    def make_node(self, operands: tuple) -> PointwiseNode | None:
        """A node for a call on these operands, or None when no gradient flows."""
        edges = tuple(gradient_edge(x) if isinstance(x, Tensor) else None for x in operands)
        for edge in edges:
            if edge is not None:
                node = PointwiseNode(self.label, edges)
                node.op = self
                return node
        return None

    def record(self, operands: tuple, params: tuple, out: Tensor) -> None:
        if not (out.dtype.is_floating_point or out.dtype.is_complex):
            return
        node = self.make_node(operands)
        if node is None:
            return
        node.remember(operands, params, out)
        meta = out._meta
        if meta is None:
            meta = out._meta = Meta()
        meta.grad_fn = node

    def gradient_of(self, index: int, params: tuple) -> tuple[Pointwise | None, tuple[int, ...]]:
        """The operator that computes the gradient of operand `index`, and what it needs: 0 is the incoming gradient,
        1.. the operands, then the run-time parameters, then the output."""
        selected = tuple(
            type(v) if type(v) in (int, float, complex) and v != d else v for v, d in zip(params, self.defaults)
        )
        key = (index, selected)
        found = self.gradients.get(key)
        if found is None:
            found = self.gradients[key] = self._derive(index, params)
        return found

    def _derive(self, index: int, params: tuple) -> tuple[Pointwise | None, tuple[int, ...]]:
        n = self.arity
        symbols = [arg(i + 1) for i in range(n)]
        extra: list = []
        for v, d in zip(params, self.defaults):
            if type(v) in (int, float, complex) and (v != d or type(v) is not type(d)):
                extra.append(arg(n + 1 + sum(isinstance(e, Expr) and e.op == "arg" for e in extra)))
            else:
                extra.append(const(v) if type(v) in (int, float, complex) else v)
        runtime = sum(isinstance(e, Expr) and e.op == "arg" for e in extra)
        g = arg(0)
        if self.grad is not None:
            share = self.grad(g, *symbols, *extra, out=arg(n + 1 + runtime))[index]
        else:
            root = as_expr(self.formula(*symbols, *extra))
            (share,) = pullback(root, g, (symbols[index],))
        if share is None:
            return None, ()
        share = as_expr(share)
        used = tuple(sorted(arguments((share,))))
        place = {a: i for i, a in enumerate(used)}
        (compact,) = substitute((share,), lambda e: arg(place[e.args[0]]) if e.op == "arg" else None)
        return derived(f"{self.name}_backward", compact, len(used)), used


def derived(name: str, root: Expr, count: int) -> Pointwise:
    """A pointwise operator straight from an expression over arg(0..count-1)."""
    names = [f"x{i}" for i in range(count)]

    def formula(*symbols: Expr) -> Expr:
        (result,) = substitute((root,), lambda e: symbols[e.args[0]] if e.op == "arg" else None)
        return result

    op = Pointwise.__new__(Pointwise)
    op.name, op.formula, op.rule, op.grad = name, formula, promote_float, None
    op.label, op.differentiable, op.check = camel(name) + "Backward0", True, None
    op.operand_names, op.parameters, op.defaults, op.arity = tuple(names), (), (), count
    op.plans, op.gradients = {}, {}
    return op


class PointwiseNode(Node):
    """The recorded call of a pointwise operator; its derivative is pointwise operators again."""

    __slots__ = ("op", "params", "shapes", "dtypes")

    op: Pointwise

    def reads_operand(self, index: int, params: tuple) -> bool:
        """Whether a needed gradient uses the value of operand `index`."""
        return any(
            edge is not None and index + 1 in self.op.gradient_of(i, params)[1] for i, edge in enumerate(self.edges)
        )

    def remember(self, operands: tuple, params: tuple, out: Tensor) -> None:
        """Save exactly what the needed gradients read."""
        op = self.op
        self.params = params
        self.output_info = out
        needed: set[int] = set()
        for i, edge in enumerate(self.edges):
            if edge is not None:
                needed.update(op.gradient_of(i, params)[1])
        runtime = op.runtime_params(params)
        everything = (None, *operands, *runtime, out)
        last = len(everything) - 1
        saved: dict[int, Any] = {}
        for i in needed:
            if i == 0:
                continue
            value = everything[i]
            saved[i] = SavedTensor(value, i == last) if isinstance(value, Tensor) else value
        self.saved = saved
        self.shapes = tuple(x.shape if isinstance(x, Tensor) else None for x in operands)
        self.dtypes = tuple(x.dtype if isinstance(x, Tensor) else None for x in operands)
        self.output_info = ((out.shape, out.dtype, out.device),)

    def apply(self, grads: list) -> tuple:
        (g,) = grads
        if g is None:
            return (None,) * len(self.edges)
        saved = self.saved
        if saved is None:
            raise RuntimeError(RETRY_MESSAGE)
        values = {i: v.unpack(self) if isinstance(v, SavedTensor) else v for i, v in saved.items()}
        values[0] = g
        results: list = []
        for i, edge in enumerate(self.edges):
            if edge is None:
                results.append(None)
                continue
            op, used = self.op.gradient_of(i, self.params)
            if op is None:
                results.append(None)
                continue
            if used == (0,) and op.formula(arg(0)) is arg(0):
                share = g
                if share.dtype is not self.dtypes[i]:
                    share = share.real if share.dtype.is_complex and not self.dtypes[i].is_complex else share
                    share = share.to(self.dtypes[i])
            else:
                operands = tuple(values[u] for u in used)
                if not any(isinstance(x, Tensor) for x in operands):  # a constant gradient
                    share = g.new_full(self.shapes[i], op.call((*operands,)).item()) if operands else g * 0
                else:
                    share = op.call(operands, (), self.dtypes[i])
            if share.shape != self.shapes[i]:
                share = share.expand(g.shape) if len(share.shape) < len(self.shapes[i]) else share
                share = share.sum_to_size(self.shapes[i])
            results.append(share)
        return tuple(results)


RETRY_MESSAGE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been"
    " freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify"
    " retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors"
    " after calling backward."
)


def common_device(operands: tuple) -> device:
    where = None
    for x in operands:
        if isinstance(x, Tensor):
            if where is None or (where is not x.device and not zero_dim_on_cpu):
                if where is not None and x.shape == () and x.device is cpu:
                    continue
                if where is not None:
                    raise RuntimeError(
                        "Expected all tensors to be on the same device, but found at least two devices,"
                        f" {where} and {x.device}!"
                    )
                where = x.device
                zero_dim_on_cpu = x.shape == () and where is cpu
            elif where is not x.device and zero_dim_on_cpu:
                where = x.device
                zero_dim_on_cpu = x.shape == () and where is cpu
    return where or cpu


def camel(name: str) -> str:
    """add -> Add, log_softmax -> LogSoftmax: how autograd nodes are named."""
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))


def formula_globals() -> dict[str, Any]:
    """The names a user's formula may use without importing them."""
    names = {n: getattr(vocabulary, n) for n in vocabulary.__all__}
    names.update(abs=abs, min=vocabulary.minimum, max=vocabulary.maximum, round=vocabulary.round_, pow=vocabulary.pow_, pi=math.pi)
    return names


__all__ = ["Plan", "Pointwise", "as_operand", "camel", "compare", "derived", "empty_strided", "floating_only",
           "formula_globals", "integral", "promote", "promote_float", "real_part", "select", "type_word"]  # fmt: skip

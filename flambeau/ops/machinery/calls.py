"""Calls of pointwise operators that are not the faces' common case: parameters, numbers, out=, in place.

A call like an earlier one (types of numbers, layouts of tensors) finds its plan by one lookup here, too."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import graph, user_frames
from ...core.aliases import Values
from ...core.layout import has_internal_overlap
from ...core.promotion import can_cast, scalar_dtype
from ...core.tensor import Tensor, copy_of_array
from ...expr.node import Expr
from .dtype_rules import compare
from .formula import Pointwise, as_operand, camel
from .gradient import make_node, run_plan
from .inplace import (
    check_history_writable,
    check_partial_overlap,
    check_writable,
    check_writable_memory,
    copy_values,
    needs_copy_before_write,
    rebase_history,
)
from .out import check_out, resize_out, write_out
from .plan import PointwisePlan
from .public import recourse

_mode = graph.grad_mode
_PLAIN = (int, float, str, bool, type(None))  # values that can stand in a key


def call_key(impl: Pointwise, operands: Values, params: Values) -> tuple[Any, ...]:
    """Return the key under which a call's plan is kept: calls that share a plan have equal keys."""
    key: list[Any] = []
    for x in operands:
        if isinstance(x, Tensor):
            key += (x.dtype, x.device, x.shape, x._strides)
        elif impl.constant_operands:
            key += (type(x), x)
        else:
            key.append(type(x))
    if impl.fixed_params:
        key += params
    for v in params:
        kind = type(v)
        key.append(kind if kind is float or kind is int else v)
    return tuple(key)


def general(impl: Pointwise, operands: Values, params: Values, out: Any, face: Any) -> Any:
    """Make any call of a pointwise operator: by a plan that is known, or after every check by a new one."""
    if params and _same(params, impl.defaults):
        params = ()
    try:
        key = call_key(impl, operands, params)
        plan = impl.calls.get(key)
        if plan is not None:
            runtime = impl.runtime_params(params) if params else ()
            try:
                if out is None:
                    return run_plan(plan, operands, runtime)
                if _fits(out, plan) and _is_quiet(out, operands):
                    _write(plan, out, operands + runtime, impl.name)
                    return out
            except OverflowError:  # a whole number that only uint64 holds: see as_operand
                pass
        return _first_call(impl, operands, params, out, key)
    except Exception as problem:
        instead = recourse(face, problem, operands, _options(impl, params, out))
        if instead is None:
            raise
    return instead()


def _options(impl: Pointwise, params: Values, out: Any) -> dict[str, Any]:
    options = {name: value for (name, default), value in zip(impl.parameters, params) if value is not default}
    return options if out is None else {**options, "out": out}


def _fits(out: Any, plan: PointwisePlan) -> bool:
    """Return whether a plan for a new result can store into `out` just as well."""
    return (
        isinstance(out, Tensor)
        and out.dtype is plan.dtype
        and out._strides == plan.strides
        and out.shape == plan.shape
        and out.device is plan.device
        and plan.fn is not None
    )


def _first_call(impl: Pointwise, operands: Values, params: Values, out: Any, key: Values) -> Any:
    if any(isinstance(x, Expr) for x in operands):
        return impl.evaluate([*operands, *(params or impl.defaults)], None)  # used inside another formula
    given = operands, params
    operands = checked_operands(impl, operands)
    params = settle(impl, params)
    plan = impl.plan_for(operands, params, None, None)
    if _same(given[0], operands) and _same(given[1], params) and _all_plain(operands, params):
        impl.remember_call(key, plan)
    if out is None:
        return run_plan(plan, operands, impl.runtime_params(params))
    if isinstance(out, Tensor) and has_internal_overlap(out.shape, out._strides):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location."
            " Please clone() the tensor before performing the operation."
        )
    if isinstance(out, Tensor) and out.shape != plan.shape and any(x is out for x in operands):
        raise RuntimeError(f"output with shape {list(out.shape)} doesn't match the broadcast shape {list(plan.shape)}")
    if isinstance(out, Tensor) and out.shape != plan.shape:
        needs_grad = any(isinstance(x, Tensor) and x.requires_grad for x in (out, *operands))
        check_out(impl.name, out, plan.dtype, plan.device, needs_grad and impl.differentiable, _is_exact(impl, plan))
        resize_out(out, plan.shape)
        out._strides, out._contig = plan.strides, plan.contig  # a resized out= has the layout of a new result
    if isinstance(out, Tensor) and out.shape == plan.shape:
        for x in operands:
            if isinstance(x, Tensor):
                check_partial_overlap(out, x)
    if not isinstance(out, Tensor) or not _writes_directly(out, plan, operands):
        result = run_plan(plan, operands, impl.runtime_params(params))
        return write_out(impl.name, out, result, impl.differentiable, _is_exact(impl, plan))
    needs_grad = any(isinstance(x, Tensor) and x.requires_grad for x in (out, *operands))
    check_out(impl.name, out, plan.dtype, plan.device, needs_grad and impl.differentiable, _is_exact(impl, plan))
    impl.into(out, operands, params)
    out._bump(impl.name)
    return out


def _is_exact(impl: Pointwise, plan: PointwisePlan) -> bool:
    """Return whether out= must have the result's dtype; the real result of complex operands is always converted."""
    return impl.exact_out and (plan.natural.is_complex or not plan.compute.is_complex)


def _same(a: Values, b: Values) -> bool:
    """Return whether two tuples hold the same objects: nothing was converted or left out on the way."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b))


def _all_plain(operands: Values, params: Values) -> bool:
    return all(isinstance(x, Tensor) or type(x) in _PLAIN for x in operands) and all(type(v) in _PLAIN for v in params)


def checked_operands(impl: Pointwise, operands: Values) -> tuple[Any, ...]:
    """Return operands that are tensors, or numbers where the operator takes numbers; raise for others."""
    result = tuple(as_operand(x, impl.name, i) for i, x in enumerate(operands))
    if impl.adapt is not None:
        result = impl.adapt(result)
    for i, (x, name) in enumerate(zip(result, impl.operand_names)):
        if not isinstance(x, Tensor) and x is not None and name not in impl.numbers:
            raise TypeError(
                f"{impl.name}(): argument '{name}' (position {i + 1}) must be Tensor, not {type(x).__name__}"
            )
    if not any(isinstance(x, Tensor) for x in result):
        if impl.quirks.numbers_as_tensors:
            return (_number_tensor(result[0]), *result[1:])
        raise TypeError(f"{impl.name}(): argument 'input' (position 1) must be Tensor, not {type(result[0]).__name__}")
    return result


def _number_tensor(value: Any) -> Tensor:
    d = scalar_dtype(value)
    return copy_of_array(np.asarray(value, d.numpy), d)


def _writes_directly(out: Tensor, plan: Any, operands: Values) -> bool:
    """Return whether a kernel can store straight into `out`: right shape, and no operand is overwritten before it is read."""
    if out.shape != plan.shape or has_internal_overlap(out.shape, out._strides):
        return False
    return not any(isinstance(x, Tensor) and needs_copy_before_write(out, x) for x in operands)


def settle(impl: Pointwise, params: Values) -> tuple[Any, ...]:
    """Return parameter values as Python numbers; () if all are the defaults."""
    if not params:
        return ()
    values = tuple(
        v if type(v) in _PLAIN else _parameter(v, impl.name, n) for v, (n, _) in zip(params, impl.parameters)
    )
    unchanged = all(v is d or (type(v) is type(d) and v == d) for v, d in zip(values, impl.defaults))
    return () if unchanged else values


def _parameter(value: Any, op_name: str, name: str) -> Any:
    """Return a 0-dim tensor or NumPy scalar that was given for a number as a Python number."""
    if isinstance(value, Tensor) and (value.shape or value.requires_grad):
        raise TypeError(f"{op_name}(): argument '{name}' must be Number, not Tensor")
    return value.item() if hasattr(value, "item") else value


# -- in place ---------------------------------------------------------------------------------------------------------


def run_inplace(impl: Pointwise, self: Tensor, operands: Values, params: Values, name: str, face: Any) -> Any:
    """Compute a pointwise operator into its first operand."""
    if params and _same(params, impl.defaults):
        params = ()
    try:
        key = call_key(impl, operands, params)
        plan = impl.inplace_plans.get(key)
        if plan is not None and _is_quiet(self, operands):
            _write(plan, self, operands + (impl.runtime_params(params) if params else ()), name)
            return self
        known = None if params or len(operands) > 1 else plan  # nothing but the operand's history is new
        return _change_inplace(impl, self, operands, params, name, key, known)
    except Exception as problem:
        instead = recourse(face, problem, operands, _options(impl, params, None))
        if instead is None:
            raise
    return instead()


def _change_inplace(
    impl: Pointwise, self: Tensor, operands: Values, params: Values, name: str, key: Values, plan: PointwisePlan | None
) -> Tensor:
    """Compute into the first operand with autograd: by the known `plan` for such operands, or by a new one."""
    given, is_new = (operands, params), plan is None
    if not isinstance(self, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(self).__name__}")
    if is_new:
        operands = checked_operands(impl, operands)
    if impl.unrecorded:
        check_writable_memory(self)
    else:
        check_writable(self)
    sources = operands
    if plan is None:
        params = settle(impl, params)
        sources = tuple(_readable(self, x) for x in operands)
        plan = _inplace_plan(impl, self, sources, params)
    runtime = impl.runtime_params(params)
    node = make_node(plan, operands, runtime) if plan.records and graph.grad_mode.enabled else None
    copied = node is not None and node.recipe.reads_operand(0)
    version = self._storage.version
    kept = (_copy_with_history(self), *sources[1:]) if copied else sources
    plan.run(self, sources + runtime)
    self._bump(name)
    plain = is_new and _same(given[0], sources) and _same(given[1], params) and _all_plain(sources, params)
    if plan.fn is not None and plain:
        impl.inplace_plans[key] = plan
    if node is not None:
        # The plan knows another layout than the copy's.
        if graph.unusual or (copied and kept[0]._strides != self._strides):
            node.save_through_hooks(kept, runtime, self)
        else:
            node.save((*kept, *runtime, self))
        _spoil(node, self, operands, version)
        rebase_history(self, node, 0)
    elif graph.grad_mode.enabled and impl.rule is compare and self.dtype.category > 1 and not impl.unrecorded:
        _forget(impl, self, operands)
    return self


def _inplace_plan(impl: Pointwise, self: Tensor, sources: Values, params: Values) -> PointwisePlan:
    try:
        plan = impl.plan_for(sources, params, self.dtype, (self.shape, self._strides, self.device))
        natural = plan.natural
    except NotImplementedError:  # a result that does not fit is the greater mistake
        _, natural = impl.rule(impl, sources) if not impl.rule_reads_params else (None, self.dtype)
        if can_cast(natural, self.dtype):
            raise
    if not can_cast(natural, self.dtype):
        raise RuntimeError(
            f"result type {natural.scalar_type} can't be cast to the desired output type {self.dtype.scalar_type}"
        )
    return plan


def _spoil(node: Any, self: Tensor, operands: Values, version: int) -> None:
    """Save an operand that shares the memory written to (x.div_(x)) with the version it had when it was read, so that a backward pass that
    needs its old values stops with PyTorch's error."""
    for place, i in enumerate(node.recipe.keeps):
        if 2 <= i <= len(operands) and isinstance(operands[i - 1], Tensor):
            x = operands[i - 1]
            if x._storage is self._storage and 0 not in x.shape:
                entry = node.saved[place]
                if type(entry) is tuple:
                    node.saved[place] = (x._storage, version, x._offset * x.dtype.itemsize)
                else:
                    entry.tensor, entry.version = x, version


class ZeroNode(graph.Node):
    """Node of a comparison in place: its operands' gradients are zero, since the result is a truth value."""

    layouts: tuple[Any, ...]

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        (g,) = grads
        if g is None:
            return (None,) * len(self.edges)
        return tuple(None if e is None else g.new_zeros(s, dtype=d) for e, (s, d) in zip(self.edges, self.layouts))


def _forget(impl: Pointwise, self: Tensor, operands: Values) -> None:
    """Set the history of a comparison in place: a node that passes zero gradients."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    edges = tuple(graph.gradient_edge(x) for x in tensors)
    if any(edges):
        label = f"{camel(impl.name)}Backward{len(tensors) - 1}"
        node = graph.named_class(ZeroNode, label)(label, edges)
        node.layouts = tuple((x.shape, x.dtype) for x in tensors)
        node.output_info = ((self.shape, self.dtype, self.device),)
        rebase_history(self, node, 0)


def _is_quiet(self: Tensor, operands: Values) -> bool:
    """Return whether writing to `self` needs neither autograd nor a copy: no history (or nothing is recorded now), and every other operand
    has memory of its own."""
    records = _mode.enabled
    if records and (self._autograd is not None or self._base is not None):
        return False
    pointer = self._storage.ptr
    for x in operands:
        if isinstance(x, Tensor):
            if records and (x._autograd is not None or x._base is not None):
                return False
            if x is not self and x._storage.ptr == pointer:
                return False
    return True


def _write(plan: PointwisePlan, self: Tensor, values: Values, name: str) -> None:
    storage = self._storage
    if storage.watched:
        note_write(self, name)
    arguments = [plan.first, storage.ptr + self._offset * self.dtype.itemsize]
    for x, how in zip(values, plan.passing):
        if how == "p":
            arguments.append(x._storage.ptr + x._offset * x.dtype.itemsize)
        elif how != "-":
            arguments.append(x)
    plan.fn(*arguments)
    storage.version += 1


def note_write(t: Tensor, name: str) -> None:
    """Note which operator changes memory that a graph has saved; refuse if it belongs to inference mode."""
    if t._storage.version < graph.INFERENCE:
        t._storage.last_write = (name, user_frames.user_frame())
    elif not graph.grad_mode.inference:
        check_history_writable(t)


def _readable(self: Tensor, x: Any) -> Any:
    """Return an operand, or a copy of it if writing to `self` could change it before it is read."""
    if not isinstance(x, Tensor) or x is self:
        return x
    check_partial_overlap(self, x)
    return bare_copy(x) if needs_copy_before_write(self, x) else x


def bare_copy(x: Tensor) -> Tensor:
    return copy_values.call((x._bare_alias(),))


def _copy_with_history(x: Tensor) -> Tensor:
    """Return a copy of x with its present history, before it is overwritten."""
    fresh = bare_copy(x)
    if x.grad_fn is not None:
        fresh._set_history(x.grad_fn, x.output_nr)
    return fresh

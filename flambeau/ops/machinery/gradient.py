"""Recording and differentiation of calls of pointwise operators.

A *recipe* lists, for one plan and one set of operands that need gradients, the values to save from the forward call and the expressions of
the gradients. In a plain backward pass all gradients of a call come from one compiled kernel; when the pass itself is recorded
(create_graph), each gradient is a call of a pointwise operator made from its expression."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core import graph, modes
from ...core.batched import BatchedOperand
from ...core.dtype import opmath
from ...core.graph import (
    GONE,
    INFERENCE,
    RETRY_MESSAGE,
    AccumulateGrad,
    AutogradState,
    Node,
    SavedTensor,
    declare_saved,
    grad_mode,
    gradient_edge,
    modified_message,
    named_class,
    public_name,
    refuse_saving,
    user_trace,
)
from ...core.layout import expand_strides
from ...core.promotion import get_default_dtype, promote_types
from ...core.sparse import SparseOperand
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, new_tensor
from ...expr import Expr, arg, arguments
from ...expr.node import cast, replace_arguments
from ...expr.simplify import simplify
from .parameters import positional_count
from .plan import Layout, PointwisePlan, compiles, kernel, result_strides
from .record import lookup

_new_object = object.__new__
_sequence = graph._sequence
_unusual = graph.unusual
_active, _deciding = modes.active, modes.deciding


class Recipe:
    """The derivative of one plan with respect to the operands in `wanted`.

    Values are numbered as in `Pointwise.share`: 0 the incoming gradient, then operands, run-time parameters, the output."""

    __slots__ = ("plan", "wanted", "shares", "keeps", "output", "kernels", "node_class")

    def __init__(self, plan: PointwisePlan, wanted: tuple[int, ...], runtime_count: int):
        self.plan, self.wanted = plan, wanted
        self.output = len(plan.operands) + runtime_count + 1
        self.shares: dict[int, Expr | None | Exception] = {i: _share_or_error(plan, i) for i in wanted}
        roots = tuple(e for e in self.shares.values() if isinstance(e, Expr))
        self.keeps = tuple(sorted(arguments(roots) - {0}))
        self.kernels: dict[tuple[Any, ...], Backward | None] = {}
        self.node_class = named_class(PointwiseNode, _label(plan))
        declare_saved("result", *map(public_name, plan.op.operand_names), *(name for name, _ in plan.op.parameters))

    def reads_operand(self, index: int) -> bool:
        return index + 1 in self.keeps

    def backward_for(self, g: Tensor) -> Backward | None:
        """Return the compiled backward for gradients with the layout of g, or None if there is none."""
        key = (g.dtype, g._strides)
        if key not in self.kernels:
            self.kernels[key] = Backward(self, g) if self._compiles(g) else None
        return self.kernels[key]

    def _compiles(self, g: Tensor) -> bool:
        if any(isinstance(e, Exception) for e in self.shares.values()):
            return False
        layouts = [self.plan, *(layout for layout in self.plan.operands if layout is not None)]
        if any(layout.device is not self.plan.device for layout in layouts):  # a number from the host
            return False
        is_real = not g.dtype.is_complex and not any(layout.dtype.is_complex for layout in layouts)
        return is_real and self.plan.nbytes > 0 and g.shape == self.plan.shape and compiles(self.plan.device)


def _label(plan: PointwisePlan) -> str:
    label = plan.op.label
    if isinstance(label, str):
        return label
    return label(plan.operands, plan.params) if positional_count(label) > 1 else label(plan.operands)


def _share_or_error(plan: PointwisePlan, index: int) -> Expr | None | Exception:
    """Return the gradient of an operand as an expression, or the error that a backward pass raises if there is no derivative."""
    try:
        return plan.op.share(index, plan)
    except NotImplementedError as error:
        return error


def no_derivative(name: str) -> Any:
    """Return the gradient rule of an operator that PyTorch records, but cannot differentiate."""

    def grad(g: Expr, *operands: Expr, out: Expr) -> tuple[Exception, ...]:
        return tuple(RuntimeError(f"derivative for aten::{name} is not implemented") for _ in operands)

    return grad


class Backward:
    """Native call that computes all gradients of a pointwise call, for one layout of the incoming gradient."""

    __slots__ = ("fn", "first", "outputs", "sources", "sums")

    def __init__(self, recipe: Recipe, g: Tensor):
        plan = recipe.plan
        self.outputs: list[Layout] = []
        self.sources: list[
            int | None
        ] = []  # per operand: which output, -1 the incoming gradient itself, None no gradient
        self.sums: list[Any] = []  # per operand: the shape to sum to, if it was broadcast
        roots: list[Expr] = []
        for i, layout in enumerate(plan.operands):
            share = recipe.shares.get(i)
            self.sums.append(layout.shape if layout is not None and layout.shape != plan.shape else None)
            if share is None or layout is None:
                self.sources.append(None)
            elif share is arg(0) and layout.dtype is g.dtype:
                self.sources.append(-1)
            else:
                assert isinstance(share, Expr)
                self.sources.append(len(roots))
                roots.append(share)
                self.outputs.append(self._output(plan, layout, g))
        self.fn = self.first = None
        if roots:
            self.fn, self.first = self._compile(recipe, roots, g)

    @staticmethod
    def _output(plan: PointwisePlan, layout: Layout, g: Tensor) -> Layout:
        out = Layout()
        out.set_layout(plan.shape, result_strides(plan.shape, (g,)), layout.dtype, plan.device)
        return out

    def _compile(self, recipe: Recipe, roots: list[Expr], g: Tensor) -> tuple[Any, Any]:
        """Compile the gradients: number the values that are read 0 (the gradient), 1, 2, ... and cast them to one dtype."""
        plan = recipe.plan
        inputs: list[Any] = [(g.dtype, expand_strides(g.shape, g._strides, plan.shape))]
        for i in recipe.keeps:
            layout = plan if i == recipe.output else plan.operands[i - 1] if i <= len(plan.operands) else None
            if layout is not None:
                inputs.append((layout.dtype, expand_strides(layout.shape, layout.strides, plan.shape)))
            else:
                inputs.append((dt.float64, None))
        compute = g.dtype
        for d, strides in inputs[1:]:
            if strides is not None and d.is_floating_point:
                compute = promote_types(compute, d)
        math_type = opmath(compute if compute.is_floating_point else get_default_dtype())
        condition = recipe.plan.op.reads_condition
        symbols: dict[int, Expr] = {}
        for position, i in enumerate((0, *recipe.keeps)):
            d = inputs[position][0]
            keep = opmath(d) is math_type or (condition and i == 1)
            symbols[i] = arg(position) if keep else cast(arg(position), math_type)
        numbered = replace_arguments(tuple(roots), symbols)
        return kernel(tuple(simplify(r, True) for r in numbered), self.outputs, inputs)

    def run(self, g: Tensor, saved: list[Any], node: Node) -> tuple[Any, ...]:
        fn = self.fn
        shares: list[Any] = []
        if fn is not None:
            arguments = [self.first]
            for layout in self.outputs:
                storage = UntypedStorage(layout.nbytes, layout.device)
                shares.append(
                    new_tensor(storage, layout.shape, layout.strides, 0, layout.dtype, layout.device, layout.contig)
                )
                arguments.append(storage.ptr)
            arguments.append(g._storage.ptr + g._offset * g.dtype.itemsize)
            for entry in saved:
                if type(entry) is tuple:
                    storage, version, offset = entry
                    if storage.version != version:
                        node.complain(entry)  # type: ignore[attr-defined]
                    arguments.append(storage.ptr + offset)
                else:
                    arguments.append(entry)
            fn(*arguments)
        results: list[Any] = []
        for source, target in zip(self.sources, self.sums):
            share = None if source is None else g if source < 0 else shares[source]
            results.append(share if target is None or share is None else share.sum_to_size(target))
        return tuple(results)


def run_plan(plan: PointwisePlan, operands: tuple[Any, ...], runtime: tuple[Any, ...]) -> Tensor:
    """Return a new tensor: the plan's result, with its history."""
    out = _new_object(Tensor)
    storage = out._storage = UntypedStorage(plan.nbytes, plan.device)
    out.shape = plan.shape
    out._strides = plan.strides
    out._offset = 0
    out.dtype = plan.dtype
    out.device = plan.device
    out._contig = plan.contig
    out._autograd = out._base = None
    if plan.fn is None:
        plan.run(out, operands + runtime)
    else:
        arguments = [plan.first, storage.ptr]
        for x, how in zip(operands + runtime, plan.passing):
            if how == "p":
                arguments.append(x._storage.ptr + x._offset * x.dtype.itemsize)
            elif how != "-":
                arguments.append(x)
        plan.fn(*arguments)
    if plan.records and grad_mode.enabled:
        for x in operands:
            if isinstance(x, Tensor) and (x._autograd is not None or x._base is not None):
                record(plan, operands, runtime, out)
                break
    return out


def record(plan: PointwisePlan, operands: tuple[Any, ...], runtime: tuple[Any, ...], out: Tensor) -> None:
    """Set the history of `out` to the call that computed it, if a gradient flows to any operand."""
    node = make_node(plan, operands, runtime)
    if node is None:
        return
    if _unusual:
        node.save_through_hooks(operands, runtime, out)
    elif node.recipe.keeps:
        node.save((*operands, *runtime, out))
    meta = out._autograd
    if meta is None:
        meta = out._autograd = AutogradState()
    meta.grad_fn = node


def make_node(plan: PointwisePlan, operands: tuple[Any, ...], runtime: tuple[Any, ...]) -> PointwiseNode | None:
    """Return a node for this call with its edges, or None if no operand needs a gradient."""
    edges: list[Any] = []
    mask, bit = 0, 1
    for x in operands:
        edge = None
        if isinstance(x, Tensor):
            meta = x._autograd
            if meta is not None or x._base is not None:
                if meta is not None and x._base is None and meta.grad_fn is not None:
                    edge = (meta.grad_fn, meta.output_nr)
                    mask |= bit
                else:
                    edge = gradient_edge(x)
                    if edge is not None:
                        mask |= bit
        edges.append(edge)
        bit += bit
    if not mask:
        return None
    recipe = plan.recipes.get(mask)
    if recipe is None:
        wanted = tuple(i for i, e in enumerate(edges) if e is not None)
        recipe = plan.recipes[mask] = Recipe(plan, wanted, len(runtime))
    node = _new_object(recipe.node_class)  # nothing but these fields: the rest has defaults in the class
    node.edges = tuple(edges)
    node.sequence = next(_sequence)
    node.recipe = recipe
    return node


_KEPT = (tuple, SavedTensor)  # how a node holds a tensor; other entries are numbers


class PointwiseNode(Node):
    """The recorded call of a pointwise operator.

    `saved` holds, in the order of recipe.keeps, numbers as they are and tensors as (storage, version, byte offset): their
    layout is in the plan, their history in `edges`."""

    recipe: Recipe
    saved: Any = ()
    hooked = False  # whether `saved` holds SavedTensor objects

    def save(self, values: tuple[Any, ...]) -> None:
        """Save the values that the gradients read, of `values`: operands, run-time parameters, output."""
        saved: list[Any] = []
        for i in self.recipe.keeps:
            x = values[i - 1]
            if isinstance(x, Tensor):
                storage = x._storage
                storage.watched = True
                version = storage.version
                if version >= INFERENCE:
                    refuse_saving()
                saved.append((storage, version, x._offset * x.dtype.itemsize))
            else:
                saved.append(x)
        self.saved = saved

    def save_through_hooks(self, operands: tuple[Any, ...], runtime: tuple[Any, ...], out: Tensor) -> None:
        """Save like `save`, but in SavedTensor objects, which support hooks and layouts that differ from the plan's."""
        values = (None, *operands, *runtime, out)
        last = len(values) - 1
        self.hooked = True
        self.saved = [
            SavedTensor(values[i], i == last) if isinstance(values[i], Tensor) else values[i] for i in self.recipe.keeps
        ]
        if grad_mode.anomaly:
            self.trace = user_trace()

    def release(self) -> None:
        for entry in self.saved or ():
            if type(entry) in _KEPT:
                self.saved = None
                return

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        g = grads[0]
        if g is None:
            return (None,) * len(self.edges)
        saved = self.saved
        if saved is None:
            raise RuntimeError(RETRY_MESSAGE)
        recipe = self.recipe
        if not grad_mode.enabled and not (_active and _deciding()):
            try:
                backward = recipe.kernels.get((g.dtype, g._strides))
            except SparseOperand:
                return self.apply([g.to_dense()])
            except BatchedOperand:  # many gradients at once: vmap over a backward pass
                return self.apply_operators(g)
            if backward is None:
                backward = recipe.backward_for(g)
            if backward is not None and not self.hooked:
                return backward.run(g, saved, self)
        return self.apply_operators(g.to_dense() if g.is_sparse else g)

    def apply_operators(self, g: Tensor) -> tuple[Any, ...]:
        """Compute each gradient by a call of a pointwise operator, which may be recorded in turn."""
        recipe = self.recipe
        plan = recipe.plan
        values: dict[int, Any] = {0: g}
        for i, entry in zip(recipe.keeps, self.saved):
            values[i] = self._unpack(i, entry)
        results: list[Any] = [None] * len(plan.operands)
        for i in plan.op.alphabetical:
            share, layout = recipe.shares.get(i), plan.operands[i]
            if isinstance(share, Exception):
                raise share
            if share is not None and layout is not None:
                op, used = plan.op.gradient_of(i, plan)
                results[i] = _gradient(g, share, op, tuple(values[u] for u in used), layout)
        return tuple(results)

    def _unpack(self, i: int, entry: Any) -> Any:
        if type(entry) is SavedTensor:
            return entry.unpack(self)
        if type(entry) is not tuple:
            return entry
        storage, version, _ = entry
        tensor = self._restored(i, entry)
        if storage.version != version:
            source = tensor.grad_fn
            raise RuntimeError(modified_message(tensor, version, source, tensor.output_nr))
        return tensor

    def _restored(self, i: int, entry: tuple[Any, ...]) -> Tensor:
        """Return a saved tensor with the layout in the plan and the history in the edges."""
        plan = self.recipe.plan
        is_output = i == self.recipe.output
        layout = plan if is_output else plan.operands[i - 1]
        assert layout is not None
        storage, _, offset = entry
        offset //= layout.dtype.itemsize
        t = new_tensor(storage, layout.shape, layout.strides, offset, layout.dtype, layout.device, layout.contig)
        if is_output:
            return self.as_output(t, 0)
        edge = self.edges[i - 1]
        if edge is not None:
            t._set_history(*edge)
        return t

    def saved_fields(self, hookable: bool = False) -> dict[str, Any]:
        recipe = self.recipe
        op, plan = recipe.plan.op, recipe.plan
        entries = [self._hookable(i, e) for i, e in zip(recipe.keeps, self.saved or ())]
        if hookable and entries:
            self.saved, self.hooked = entries, True
        fields = {public_name(op.operand_names[i]): value for i, value in plan.constants.items()}
        names = [public_name(name) for name in op.operand_names]
        for (name, _), value, is_runtime in zip(
            op.parameters, plan.params or op.defaults, op.runtime_flags(plan.params)
        ):
            if is_runtime:
                names.append(name)
            else:
                fields[name] = value
        names.append("result")
        for i, entry in zip(recipe.keeps, entries or (GONE,) * len(recipe.keeps)):
            fields[names[i - 1]] = entry
        return fields

    def _hookable(self, i: int, entry: Any) -> Any:
        """Return a saved entry as a SavedTensor if it is a tensor, else unchanged."""
        if type(entry) is not tuple:
            return entry
        tensor = self._restored(i, entry)
        edge = None if i == self.recipe.output else self.edges[i - 1]
        if edge is not None and type(edge[0]) is AccumulateGrad:
            tensor = edge[0].variable
        saved = SavedTensor(tensor, i == self.recipe.output)
        saved.version = entry[1]
        return saved

    def complain(self, entry: tuple[Any, ...]) -> None:
        """Raise the error for a saved tensor that was changed in place."""
        self._unpack(self.recipe.keeps[next(k for k, e in enumerate(self.saved) if e is entry)], entry)

    # -- what PyTorch shows of a node -------------------------------------------------------------------------------
    @property
    def output_info(self) -> tuple[Any, ...]:
        plan = self.recipe.plan
        return ((plan.shape, plan.dtype, plan.device),)


def _gradient(g: Tensor, share: Expr, op: Any, operands: tuple[Any, ...], layout: Layout) -> Tensor:
    """Compute one operand's gradient, in the operand's dtype and shape."""
    if share is arg(0):
        result = g
        if g.dtype is not layout.dtype:
            result = (g.real if g.dtype.is_complex and not layout.dtype.is_complex else g).to(layout.dtype)
    elif share.op == "const":  # zero wherever the derivative exists
        if share.args[0] == 0 and g.shape == layout.shape and g.dtype is layout.dtype:
            return lookup("zeros_like").function(g)
        return g.new_full(layout.shape, share.args[0], dtype=layout.dtype)
    else:
        result = op.call(operands, (), layout.dtype)
    if result.shape != g.shape:
        result = result.expand(g.shape)
    return result if result.shape == layout.shape else result.sum_to_size(layout.shape)

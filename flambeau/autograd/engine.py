"""The backward pass: nodes in reverse order of creation, each once all its gradients have arrived. No recursion."""

from __future__ import annotations

import functools
import heapq
import sys
import threading
import warnings
from collections.abc import Callable, Collection
from typing import Any

from ..core import modes
from ..core.batched import BatchedOperand, BatchedTensor
from ..core.graph import AccumulateGrad, Discard, Node, grad_mode, gradient_edge, unrecorded, unusual
from ..core.layout import is_non_overlapping_and_dense
from ..core.overrides import DisableTorchFunctionSubclass, asks_arguments
from ..core.sharded import ShardedOperand
from ..core.sparse import SparseCoo, SparseTensor, new_coo
from ..core.tensor import Tensor, contiguous_strides


def dependencies(roots: list[Node]) -> tuple[dict[Node, int], list[Node]]:
    """Return the number of gradients that each reachable node waits for, and all reachable nodes."""
    counts: dict[Node, int] = dict.fromkeys(roots, 0)
    order = list(counts)
    for node in order:  # grows while it is walked
        for edge in node.edges:
            if edge is not None:
                child = edge[0]
                if child in counts:
                    counts[child] += 1
                else:
                    counts[child] = 1
                    order.append(child)
    return counts, order


def leading_to(nodes: list[Node], wanted: set[Node]) -> set[Node]:
    """Return the nodes from which a wanted node can be reached. Children are older than their users, except accumulators, so one pass from
    the oldest node on is enough."""
    useful = set(wanted)
    for node in sorted(nodes, key=lambda n: -1 if isinstance(n, AccumulateGrad) else n.sequence):
        if any(e is not None and e[0] in useful for e in node.edges):
            useful.add(node)
    return useful


class _Running(threading.local):
    """The backward pass that runs in this thread."""

    current: Pass | None = None


running = _Running()


class Pass:
    """A run of the engine. With `captures` only paths to the captured gradients run, and those are returned; leaves that are reached
    accumulate theirs if `accumulates` is set."""

    def __init__(
        self,
        retain_graph: bool,
        create_graph: bool,
        captures: dict[tuple[Node, int], list[int]] | None,
        count: int,
        accumulates: bool,
    ):
        self.retain_graph = retain_graph
        self.create_graph = create_graph
        self.captures = captures  # (node, output_nr) -> the inputs that need that gradient
        self.results: list[Any] = [None] * count
        self.accumulates = accumulates
        self.reachable: Collection[Node] = ()
        self.callbacks: list[Callable[[], None]] = []  # to be called when the pass is over
        self.around: Pass | None = None  # the outermost pass in whose backward this one runs, if it is nested

    @property
    def outermost(self) -> Pass:
        """Return this pass, or the outermost one in whose backward it runs. (Not a field: a pass that refers to itself would keep its graph
        alive.)"""
        return self.around or self

    def run(self, roots: list[tuple[Node, int, Tensor]], wanted: set[Node] | None) -> list[Any]:
        counts, reachable = dependencies([r[0] for r in roots])
        useful = None if wanted is None else leading_to(reachable, wanted)
        self.reachable = counts if useful is None else useful
        buffers: dict[Node, list[Any]] = {}
        for node, output_nr, gradient in roots:
            add_gradient(buffers, node, output_nr, gradient)
        ready = [(-node.sequence, node) for node in buffers if counts[node] == 0]
        heapq.heapify(ready)
        outgoing: tuple[Any, ...] | None
        casting = modes.active and modes.staying()
        evaluate = self.evaluate_cast if casting else self.evaluate
        observer = modes.observing()
        if observer is not None:
            evaluate = functools.partial(evaluate_observed, observer, evaluate)
        while ready:
            node = heapq.heappop(ready)[1]
            outgoing = None  # let go of the last node's gradients: their reference counts decide about copying
            incoming = buffers.pop(node, None)
            if incoming is not None:
                outgoing = evaluate(node, incoming, useful)
            for position, edge in enumerate(node.edges):
                if edge is not None:
                    child, output_nr = edge
                    if outgoing is not None and outgoing[position] is not None:
                        if child in buffers or child.output_count != 1:
                            add_gradient(buffers, child, output_nr, outgoing[position])
                        else:
                            buffers[child] = [outgoing[position]]
                    left = counts[child] = counts[child] - 1
                    if left == 0:
                        heapq.heappush(ready, (-child.sequence, child))
        if modes.active:
            leaves = [n.variable.grad for n in reachable if isinstance(n, AccumulateGrad)] if self.accumulates else []
            for mode in list(modes.own.stack):
                mode.gradients([*self.results, *leaves])
        return self.results

    def evaluate(self, node: Node, incoming: list[Any], useful: set[Node] | None) -> tuple[Any, ...] | None:
        """Run hooks, capture or accumulate, and apply the node."""
        if useful is not None and node not in useful:
            return None
        if node.prehooks or node.retain:
            run_tensor_hooks(node, incoming)
        if self.captures is not None:
            self.capture(node, incoming)
        if type(node) is AccumulateGrad:
            if self.accumulates:
                if node.prehooks:
                    incoming = run_prehooks(node, incoming)
                accumulate(node, incoming, self.create_graph)
                if node.hooks:
                    run_posthooks(node, (), incoming)
            return None
        wanted = None
        if useful is not None:
            wanted = tuple([e is not None and e[0] in useful for e in node.edges])
            if True not in wanted:
                return None
        if node.prehooks:
            incoming = run_prehooks(node, incoming)
        try:
            if unusual or modes.active:
                outgoing = apply_watched(node, incoming, wanted)
            else:
                outgoing = node.apply(incoming) if wanted is None else node.apply_some(incoming, wanted)
        except BatchedOperand:
            outgoing = apply_one_by_one(node, incoming)
        if node.hooks:
            outgoing = run_posthooks(node, outgoing, incoming)
        if unusual and grad_mode.anomaly:
            check_gradients(node, outgoing)
        if not self.retain_graph:
            node.release()
        return outgoing

    def evaluate_cast(self, node: Node, incoming: list[Any], useful: set[Node] | None) -> tuple[Any, ...] | None:
        """Evaluate a node where a mode may have changed dtypes (autocast): each gradient gets the dtype of its tensor."""
        outgoing = self.evaluate(node, incoming, useful)
        if outgoing is None:
            return None
        return tuple([g if g is None or e is None else in_dtype_of(e, g) for g, e in zip(outgoing, node.edges)])

    def capture(self, node: Node, incoming: list[Any]) -> None:
        assert self.captures is not None
        for output_nr, gradient in enumerate(incoming):
            for i in self.captures.get((node, output_nr), ()):
                self.results[i] = gradient


def add_gradient(buffers: dict[Node, list[Any]], node: Node, output_nr: int, gradient: Tensor) -> None:
    """Sum a gradient into what has already arrived at one output of a node."""
    buffer = buffers.get(node)
    if buffer is None:
        buffer = buffers[node] = [None] * max(node.output_count, output_nr + 1)
    held = buffer[output_nr]
    if held is not None:
        # dense + sparse is defined, sparse + dense is not
        gradient = gradient + held if held.is_sparse else held + gradient
    buffer[output_nr] = gradient


def in_dtype_of(edge: tuple[Node, int], gradient: Tensor) -> Tensor:
    """Return the gradient in the dtype of its tensor, if the node knows that."""
    node, output_nr = edge
    if isinstance(node, AccumulateGrad):
        wanted = node.variable.dtype
    elif node.output_info is not None and node.output_info[output_nr] is not None:
        wanted = node.output_info[output_nr][1]
    else:
        return gradient
    return gradient if gradient.dtype is wanted else gradient.to(wanted)


class LinearPass(Pass):
    """A pass whose results will be differentiated with respect to the gradients it starts from (forward mode). If a derivative rule cannot be
    differentiated, that would be silently zero: it is an error instead."""

    def evaluate(self, node: Node, incoming: list[Any], useful: set[Node] | None) -> tuple[Any, ...] | None:
        outgoing = node.linear(incoming)
        if outgoing is not None:
            return outgoing
        outgoing = super().evaluate(node, incoming, useful)
        if outgoing is not None and any(g is not None and g.requires_grad for g in incoming):
            for g, edge in zip(outgoing, node.edges):
                if g is not None and edge is not None and not g.requires_grad and (g != 0).any().item():
                    raise NotImplementedError(
                        f"Trying to use forward AD with {node.name()} that does not support it because its derivative cannot"
                        " be differentiated again"
                    )
        return outgoing


def run_tensor_hooks(node: Node, incoming: list[Any]) -> None:
    """Run the hooks of a node's output tensors, then store retained gradients: before the node runs, and even if it does not run."""
    for hook in list((node.prehooks or {}).values()):
        if isinstance(hook, TensorHook):
            g = incoming[hook.output_nr] if hook.output_nr < len(incoming) else None
            changed = hook.function(g)
            if changed is not None:
                check_hook_result(changed, g)
                incoming[hook.output_nr] = changed
    for output_nr, reference in (node.retain or {}).items():
        tensor = reference()
        if tensor is not None and incoming[output_nr] is not None:
            held = tensor.grad
            tensor._ensure_autograd().grad = incoming[output_nr] if held is None else held + incoming[output_nr]


def run_prehooks(node: Node, incoming: list[Any]) -> list[Any]:
    """Run the prehooks of a node, and return the gradients they return."""
    for hook in list((node.prehooks or {}).values()):
        if not isinstance(hook, TensorHook):
            changed = hook(tuple(incoming))
            if changed is not None:
                incoming = list(changed) if isinstance(changed, (tuple, list)) else [changed]
    return incoming


class TensorHook:
    """A hook on one output of a node."""

    __slots__ = ("function", "output_nr")

    def __init__(self, function: Any, output_nr: int):
        self.function, self.output_nr = function, output_nr


def check_hook_result(changed: Any, original: Tensor | None) -> None:
    if not isinstance(changed, Tensor):
        raise TypeError(f"expected a Tensor or None from a hook, got {type(changed).__name__}")
    if original is None:
        raise RuntimeError("can't replace a None gradient with a non-None value")
    if changed.shape != original.shape:
        raise RuntimeError(f"hook has changed the size of value: from {list(original.shape)} to {list(changed.shape)}")
    if changed.dtype is not original.dtype:
        raise RuntimeError(f"hook has changed the type of value (was {original.type()} got {changed.type()})")


def run_posthooks(node: Node, outgoing: tuple[Any, ...], incoming: list[Any]) -> tuple[Any, ...]:
    assert node.hooks is not None
    for hook in list(node.hooks.values()):
        changed = hook(outgoing, tuple(incoming))
        if changed is not None:
            outgoing = tuple(changed) if isinstance(changed, (tuple, list)) else (changed,)
    return outgoing


def apply_watched(node: Node, incoming: list[Any], wanted: tuple[bool, ...] | None) -> tuple[Any, ...]:
    """Call `node.apply` (or `apply_some`) and notify an observer; anomaly detection shows the forward call before an error."""
    before, grad_mode.evaluating = grad_mode.evaluating, node
    observer = modes.observing()
    event = None if observer is None else observer.begin(node.name(), modes.BACKWARD, node.sequence)
    try:
        return node.apply(incoming) if wanted is None else node.apply_some(incoming, wanted)
    except Exception:
        if grad_mode.anomaly:
            show_forward_call(node)
        raise
    finally:
        if observer is not None:
            observer.end(event)
        grad_mode.evaluating = before


def evaluate_observed(
    observer: modes.Observer, evaluate: Callable[..., Any], node: Node, incoming: list[Any], useful: set[Node] | None
) -> tuple[Any, ...] | None:
    """Evaluate a node, and notify an observer."""
    leaf = type(node) is AccumulateGrad
    name, sequence = node.name(), -1 if leaf else node.sequence
    events = [observer.begin(f"autograd::engine::evaluate_function: {name}", modes.BACKWARD, sequence)]
    if leaf:
        events.append(observer.begin(name, modes.BACKWARD))
    try:
        return evaluate(node, incoming, useful)
    finally:
        for event in reversed(events):
            observer.end(event)


def apply_one_by_one(node: Node, incoming: list[Any]) -> tuple[Any, ...]:
    """Apply a node to one element of the batch at a time: under vmap, for a node that reads the memory of its gradients."""
    level = max((g._level for g in incoming if isinstance(g, BatchedTensor)), key=lambda one: one.depth)
    return level.joined([node.apply(level.element(incoming, i)) for i in range(level.size)], node.name())


def show_forward_call(node: Node) -> None:
    """Warn with the line that recorded the node, then with those of the nodes in whose backward it was recorded."""
    trace = node.trace
    if trace is None:
        missing = (
            "No forward pass information available. Enable detect anomaly during forward pass for more information."
        )
        _warn_or_print(f"Error detected in {node.name()}. {missing}")
        return
    _warn_or_print(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{trace.text}")
    while trace is not None and trace.parent is not None:
        parent = trace.parent
        what = f"Previous calculation was induced by {parent.name()}."
        trace = parent.trace
        if trace is None:
            _warn_or_print(f"{what} No forward pass information available for it.")
        else:
            _warn_or_print(f"{what} Traceback of forward call that induced the previous calculation:\n{trace.text}")


def _warn_or_print(text: str) -> None:
    """Warn; if warnings are errors, print instead, so that the error being explained is not hidden."""
    try:
        warnings.warn(text, UserWarning, stacklevel=3)
    except UserWarning as problem:
        print(f"UserWarning: {problem}", file=sys.stderr)


def check_gradients(node: Node, outgoing: tuple[Any, ...]) -> None:
    if not grad_mode.anomaly_check_nan:
        return
    for i, g in enumerate(outgoing):
        if isinstance(g, Tensor) and g.isnan().any().item():
            show_forward_call(node)
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


def accumulate(node: AccumulateGrad, incoming: list[Any], create_graph: bool) -> None:
    """Add incoming[0] to the leaf's gradient. It stays in the list so that `take_over` can count its references."""
    variable = node.variable
    meta = variable._ensure_autograd()
    if incoming[0].shape != variable.shape:
        raise RuntimeError(
            f"Function AccumulateGrad got a gradient of shape {list(incoming[0].shape)} for a leaf of shape"
            f" {list(variable.shape)}"
        )
    if incoming[0].dtype is not variable.dtype:
        incoming[0] = incoming[0].to(variable.dtype)
    if not meta.requires_grad:
        pass  # frozen since: PyTorch adds nothing, either, and calls the hooks
    elif meta.grad is None:
        try:
            meta.grad = recorded_copy(incoming[0], variable) if create_graph else take_over(incoming, variable)
        except ShardedOperand:  # it may have another layout than its tensor: later gradients are added to it in place
            meta.grad = incoming[0].clone() if create_graph else unrecorded(incoming[0].clone)
    elif create_graph or meta.grad.is_sparse:
        add_out_of_place(meta, incoming[0], create_graph)
    else:
        unrecorded(meta.grad.add_, incoming[0])
    if meta.post_hooks:
        for hook in list(meta.post_hooks.values()):
            if hook(variable) is not None:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")


def recorded_copy(gradient: Tensor, variable: Tensor) -> Tensor:
    """Return a copy of a gradient that is part of a graph, with the leaf's layout: later passes may add to it."""
    if gradient.is_sparse or not is_non_overlapping_and_dense(variable.shape, variable._strides):
        return gradient.clone()
    return gradient.new_empty_strided(variable.shape, variable._strides).copy_(gradient)


def add_out_of_place(meta: Any, gradient: Tensor, create_graph: bool) -> None:
    """Add a gradient into a new tensor: the sum belongs to the graph, or a dense gradient is added to a sparse one."""
    before, grad_mode.enabled = grad_mode.enabled, create_graph
    try:
        if meta.grad.is_sparse and not gradient.is_sparse:
            meta.grad = gradient + meta.grad
        elif create_graph:
            meta.grad = meta.grad + gradient
        else:
            meta.grad.add_(gradient)
    finally:
        grad_mode.enabled = before


def take_over_sparse(holder: list[Any]) -> Tensor:
    """Return a sparse gradient for a leaf, without copying index and values that it alone holds. It is marked uncoalesced, as in PyTorch."""
    g = holder[0]
    own = all(p._contig and p._base is None and sys.getrefcount(p._storage) <= 2 for p in g._parts())
    if isinstance(g, SparseCoo) and own and sys.getrefcount(g) <= 3:
        return new_coo(g._index_part, g._values_part, g.shape, g._values_part.shape[0] < 2, g._in_bounds)
    return unrecorded(g.clone)


def take_over(holder: list[Any], variable: Tensor) -> Tensor:
    """Return the gradient in holder[0] as the leaf's own tensor: without a copy if nothing else refers to it."""
    if holder[0].is_sparse or isinstance(variable, SparseTensor):
        return take_over_sparse(holder) if holder[0].is_sparse else holder[0]._bare_alias()
    same_layout = holder[0]._strides == variable._strides or (holder[0]._contig and variable._contig)
    viewed = holder[0]._base is not None
    own = same_layout and holder[0]._storage.owner is None
    own = own and (
        not viewed or (holder[0]._base.numel() == variable.numel() and sys.getrefcount(holder[0]._base) <= 2)
    )
    # One reference from the list or the header (two from those of a view and its base), one from the call: nothing else holds them.
    if own and sys.getrefcount(holder[0]) <= 2 and sys.getrefcount(holder[0]._storage) <= 2 + viewed:
        return holder[0]._bare_alias()
    fresh = variable.new_empty_strided(variable.shape, dense_strides(variable, holder[0]))
    return unrecorded(fresh.copy_, holder[0])


def dense_strides(variable: Tensor, gradient: Tensor) -> tuple[int, ...]:
    for t in (variable, gradient):
        if is_non_overlapping_and_dense(t.shape, t._strides):
            return t._strides
    return contiguous_strides(variable.shape)


def run_backward(
    outputs: list[Tensor],
    gradients: list[Tensor],
    retain_graph: bool,
    create_graph: bool,
    inputs: list[Tensor] | None = None,
    accumulate_grad: bool = True,
    kind: Callable[..., Pass] = Pass,
) -> list[Any]:
    """Start a pass at `outputs`. With `inputs`, only paths to them run, and their gradients are returned or (accumulate_grad) added to their
    `.grad`."""
    roots = []
    for i, (t, g) in enumerate(zip(outputs, gradients)):
        edge = gradient_edge(t)
        if edge is None or type(edge[0]) is Discard:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        roots.append((edge[0], edge[1], g))
    captures: dict[tuple[Node, int], list[int]] | None = None
    wanted: set[Node] | None = None
    if inputs is not None:
        captures, wanted = {}, set()
        for i, t in enumerate(inputs):
            edge = gradient_edge(t)
            if edge is None:
                raise RuntimeError("One of the differentiated Tensors does not require grad")
            wanted.add(edge[0])
            captures.setdefault((edge[0], edge[1]), []).append(i)
    run = kind(retain_graph, create_graph, captures, len(inputs or ()), accumulate_grad)
    before, grad_mode.enabled = grad_mode.enabled, create_graph
    outer, running.current = running.current, run
    run.around = None if outer is None else outer.outermost
    try:
        if asks_arguments():  # subclasses override what users call, not what derivatives are made of
            with DisableTorchFunctionSubclass():
                found = run.run(roots, wanted)
        else:
            found = run.run(roots, wanted)
        if run.callbacks:
            grad_mode.enabled = before
            for callback in run.callbacks:  # which may add others
                callback()
        return found
    finally:
        grad_mode.enabled, running.current = before, outer

"""Writing into existing tensors: in-place operators, `out=`, and the effect on autograd history."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ...core import dtype as dt
from ...core.caching import remember
from ...core.dtype import dtype
from ...core.graph import (
    INFERENCE,
    AutogradState,
    Node,
    SavedTensor,
    grad_mode,
    gradient_edge,
    operation_name,
    unrecorded,
)
from ...core.layout import has_internal_overlap, is_non_overlapping_and_dense, memory_span
from ...core.promotion import can_cast
from ...core.raw_memory import move_bytes
from ...core.size import make_size
from ...core.tensor import OpenTensor, Tensor, empty, new_tensor, numel_of
from ...core.user_frames import user_frame
from .dtype_rules import number_dtype, promote
from .formula import Pointwise
from .record import OPS
from .watched import watched


def _unchanged(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Compute in the number's own precision: 0.1 in a float64 tensor is not the float32 nearest to 0.1."""
    source = operands[0]
    if isinstance(source, (float, complex)):
        d = number_dtype(source)
        return d, d
    return promote(op, operands)


copy_values = Pointwise("copy", lambda src: src, _unchanged)


def bump_all(tensors: Iterable[Tensor], op: str) -> None:
    """Count an in-place change of each tensor, as `Tensor._bump` does; the user's line is looked up only once."""
    writer = None
    for t in tensors:
        storage = t._storage
        storage.version += 1
        if storage.watched and storage.version < INFERENCE:
            writer = storage.last_write = writer or (op, user_frame())


def check_writable(t: Tensor) -> None:
    """Raise if PyTorch forbids writing: leaves that require grad, inference tensors, views that forbid it, elements that share memory."""
    check_history_writable(t)
    check_writable_memory(t)


def check_writable_memory(t: Tensor) -> None:
    """Raise if elements of a tensor share memory: the part of `check_writable` that does not concern autograd."""
    if has_internal_overlap(t.shape, t._strides):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location."
            " Please clone() the tensor before performing the operation."
        )


def check_history_writable(t: Tensor) -> None:
    """Raise if autograd forbids writing to a tensor: the part of `check_writable` that does not concern memory."""
    meta = t._autograd
    if t._storage.version >= INFERENCE and not grad_mode.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed."
            "You can make a clone to get a normal tensor before doing inplace update."
        )
    if grad_mode.enabled:
        base = t._base
        if base is None:
            if meta is not None and meta.requires_grad and meta.grad_fn is None:
                raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        else:
            _check_writable_view(t, base)


_CLOSED_VIEWS = {
    "no_grad": "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both"
    " the view and the inplace either both inside the no_grad block (if you don't want the inplace to be tracked) or both"
    " outside (if you want the inplace to be tracked).",
    "inference": "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both"
    " the view and the inplace either both inside the inference_mode block (if you don't want the inplace to be tracked) or both"
    " outside (if you want the inplace to be tracked).",
    "multi": "This view is the output of a function that returns multiple views. Such functions do not allow the output views"
    " to be modified inplace. You should replace the inplace operation by an out-of-place one.",
    "custom": "This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic"
    " to handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect"
    " gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.",
}


def _why_view_is_closed(meta: AutogradState, event: str) -> str:
    """Return the message about a view whose memory must not change while gradients are recorded, and did or is about to."""
    if meta.creation in ("no_grad", "inference"):
        outside = "with grad mode enabled" if meta.creation == "no_grad" else "in normal mode"
        what = f"A view was created in {meta.creation} mode and {event} {outside}."
    else:
        maker = (
            operation_name(meta.grad_fn) if meta.grad_fn else "a Function" if meta.creation == "custom" else "a view"
        )
        what = f"Output {meta.output_nr} of {maker} is a view and {event}."
    return f"{what} {_CLOSED_VIEWS[meta.creation]}"


def _check_writable_view(t: Tensor, base: Tensor) -> None:
    meta = t._autograd
    if not (base.requires_grad or (meta is not None and t.requires_grad)):
        return
    if meta is not None and meta.creation:
        raise RuntimeError(_why_view_is_closed(meta, "is being modified inplace"))
    if base.is_leaf:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")


def same_memory(a: Tensor, b: Tensor) -> bool:
    return a._storage.ptr == b._storage.ptr and a._storage.ptr != 0


def needs_copy_before_write(destination: Tensor, source: Tensor) -> bool:
    """Return whether writing `destination` element by element could change `source` before it is read."""
    a, b = destination._storage, source._storage
    if a.ptr == 0 or b.ptr == 0 or a.ptr + a.size_bytes <= b.ptr or b.ptr + b.size_bytes <= a.ptr:
        return False
    same_start = a.ptr == b.ptr and destination._offset == source._offset and destination.dtype is source.dtype
    if same_start and destination.shape == source.shape and destination._strides == source._strides:
        return False
    low_a, high_a = memory_span(destination.shape, destination._strides, destination._offset)
    low_b, high_b = memory_span(source.shape, source._strides, source._offset)
    size_a, size_b = destination.dtype.itemsize, source.dtype.itemsize
    return low_a * size_a + a.ptr < high_b * size_b + b.ptr and low_b * size_b + b.ptr < high_a * size_a + a.ptr


def check_partial_overlap(destination: Tensor, source: Tensor) -> None:
    """Raise, as PyTorch does, if the source of a write is another view of the same dense memory: shifted, transposed or a part."""
    if not needs_copy_before_write(destination, source):
        return
    dense = is_non_overlapping_and_dense(destination.shape, destination._strides) and is_non_overlapping_and_dense(
        source.shape, source._strides
    )
    if dense:
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single"
            " memory location. Please clone() the tensor before performing the operation."
        )


def _copied(destination: Any, source: Any) -> tuple[Pointwise, tuple[Any, ...]]:
    return copy_values, (source,)


@watched(writes=("destination",), batching="each", formula=_copied)
def raw_copy(destination: Tensor, source: Any) -> None:
    """Copy source to destination, broadcasting and converting; without autograd or a change of the version."""
    if not isinstance(source, Tensor):
        copy_values.into(destination, (source,))
        return
    if needs_copy_before_write(destination, source):
        source = copy_values.call((source,)) if not grad_mode.enabled else unrecorded(copy_values.call, (source,))
    _copy_into(destination, source)


_copy_kernels: dict[tuple[Any, ...], tuple[Any, Any]] = {}


def _copy_into(destination: Tensor, source: Tensor) -> None:
    if destination.device is not source.device:
        transfer(destination, source)
        return
    fn, first = copy_kernel(destination, source)
    if fn is not None:
        fn(
            first,
            destination._storage.ptr + destination._offset * destination.dtype.itemsize,
            source._storage.ptr + source._offset * source.dtype.itemsize,
        )
    elif 0 not in destination.shape:
        copy_values.into(destination, (source,))


copy_into = watched(
    _copy_into, name="copy_into", writes=("destination",), batching="each", aten="copy_", formula=_copied
)
copy_into.__doc__ = "`raw_copy` where the two do not overlap in memory."


def transfer(destination: Tensor, source: Tensor) -> None:
    """Copy to another device: bytes are sent in the layout and dtype of the source, and converted on arrival."""
    if destination.device.type == "meta":
        return
    if source.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    dense = source._bare_alias() if source._contig else copy_values.call((source._bare_alias(),))
    if not dense._contig:  # a dense layout of another order
        dense = dense.contiguous()
    same = destination._contig and destination.shape == dense.shape and destination.dtype is dense.dtype
    there = destination if same else empty(dense.shape, dense.dtype, destination.device)
    size = dense.dtype.itemsize
    move_bytes(
        there._storage.ptr + there._offset * size,
        there.device,
        dense._storage.ptr + dense._offset * size,
        dense.device,
        numel_of(dense.shape) * size,
    )
    if not same:
        _copy_into(destination, there)


def copy_kernel(destination: Tensor, source: Tensor) -> tuple[Any, Any]:
    """Return the kernel that copies between these two layouts and its first argument; (None, None) if there is none."""
    key = (
        destination.shape, destination._strides, destination.dtype, source.shape, source._strides, source.dtype, source.device,
    )  # fmt: skip
    try:
        return _copy_kernels[key]
    except KeyError:
        return remember(_copy_kernels, key, _find_copy_kernel(destination, source))


def _find_copy_kernel(destination: Tensor, source: Tensor) -> tuple[Any, Any]:
    if 0 in destination.shape:
        return None, None
    if source.dtype.is_complex and destination.dtype is source.dtype:  # complex numbers move as pairs
        destination, source = _pairs(destination), _pairs(source)
    elif (
        source.dtype.itemsize == 1 and not source.dtype.has_numpy and destination.dtype is source.dtype
    ):  # and 8-bit floats as bytes
        destination, source = _bytes(destination), _bytes(source)
    layout = (destination.shape, destination._strides, destination.device)
    plan = copy_values.plan_for((source,), (), destination.dtype, layout)
    return plan.fn, plan.first


def _pairs(t: Tensor) -> Tensor:
    shape, strides = (*t.shape, 2), (*(2 * s for s in t._strides), 1)
    return new_tensor(t._storage, make_size(shape), strides, 2 * t._offset, t.dtype.to_real(), t.device, False)


def _bytes(t: Tensor) -> Tensor:
    return new_tensor(t._storage, t.shape, t._strides, t._offset, dt.uint8, t.device, t._contig)


def check_result(t: Tensor, result: Tensor) -> None:
    """Check that an in-place result keeps the shape and fits the dtype."""
    if result.shape != t.shape:
        raise RuntimeError(f"output with shape {list(t.shape)} doesn't match the broadcast shape {list(result.shape)}")
    if not can_cast(result.dtype, t.dtype):
        raise RuntimeError(
            f"result type {result.dtype.scalar_type} can't be cast to the desired output type {t.dtype.scalar_type}"
        )


def assign(t: Tensor, result: Tensor, name: str, write: Callable[[], Any] | None = None) -> Tensor:
    """Give `t` the values and the history of `result`: the in-place form of any operator. `write` stores the values if a copy is not
    sufficient."""
    if result is t:
        return t
    if result.shape != t.shape:
        check_result(t, result)
    if result.dtype is not t.dtype:
        check_result(t, result)
        result = result.to(t.dtype)
    edge = gradient_edge(result) if grad_mode.enabled and result._autograd is not None else None
    if edge is not None:
        keep_original(edge[0], t)
    write() if write is not None else raw_copy(t, result)
    t._bump(name)
    if edge is not None:
        rebase_history(t, edge[0], edge[1])
    elif grad_mode.enabled and t._autograd is not None and t._autograd.grad_fn is not None:
        rebase_history(t, None, 0)
    return t


def keep_original(node: Node, t: Tensor) -> None:
    """Replace what a node has saved of `t` by a copy: its derivative reads the values before the in-place change."""
    if not isinstance(node.saved, dict):
        return
    for entry in node.saved.values():
        if isinstance(entry, SavedTensor) and entry.tensor is t and not entry.is_output:
            original = unrecorded(copy_values.call, (t,))
            edge = gradient_edge(t)
            if edge is not None:
                original._set_history(*edge)
            entry.tensor, entry.version = original, original._storage.version


def rebase_history(t: Tensor, node: Node | None, output_nr: int) -> None:
    """Make t (or, if it is a view, its base) the output of `node`, after an in-place change."""
    base = t._base
    if base is None:
        _become_output(t, node, output_nr)
        return
    if node is not None and t._autograd is not None and t._autograd.creation:
        raise RuntimeError(_why_view_is_closed(t._autograd, "is being modified inplace"))
    base_node = CopySlices(base, t, node, output_nr)
    if node is not None:
        node.whole = weakref.ref(base_node)
    _become_output(base, base_node, 0)
    t._rebuild_view_history()


def _set_output(meta: AutogradState, node: Node | None, output_nr: int) -> None:
    if meta.retains_grad and meta.grad_fn is not None and node is not None:  # .grad is that of the final value
        kept = (meta.grad_fn.retain or {}).pop(meta.output_nr, None)
        if kept is not None:
            node.retain = {**(node.retain or {}), output_nr: kept}
    meta.grad_fn, meta.output_nr = node, output_nr


def _become_output(t: Tensor, node: Node | None, output_nr: int) -> None:
    meta = t._ensure_autograd()
    _set_output(meta, node, output_nr)
    if node is None:
        meta.requires_grad = False
    meta.rebase_version = t._storage.version


class CopySlices(Node):
    """The base's node after one of its views was changed in place: the gradient outside the view passes through,
    the part inside goes back through the function that made the new values."""

    __slots__ = ("fn", "view", "base_layout", "base_offset", "fn_output")

    def __init__(self, base: Tensor, view: Tensor, fn: Node | None, fn_output: int):
        rest = fn.edges[1:] if fn is not None else ()
        super().__init__("CopySlices", (gradient_edge(base), *rest))
        self.fn = fn
        self.fn_output = fn_output
        scale = base.dtype.itemsize / view.dtype.itemsize  # a real view of a complex base counts in halves
        self.view = (view.shape, view._strides, view._offset - int(base._offset * scale), view.dtype)
        self.base_layout, self.base_offset = (base.shape, base._strides), base._offset
        self.output_info = ((base.shape, base.dtype, base.device),)

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        (g,) = grads
        if g is None:
            return (None,) * len(self.edges)
        shape, strides = self.base_layout
        result = g.new_empty_strided(shape, strides)
        result.copy_(g)
        part = view_through(result, *self.view)
        rest: tuple[Any, ...] = ()
        inner = None
        if self.fn is not None:
            incoming: list[Any] = [None] * self.fn.output_count
            incoming[self.fn_output] = part.clone()
            inner, *others = self.fn.apply(incoming)
            rest = tuple(others)
        if self.edges[0] is not None:
            if inner is None:
                part.zero_()
            else:
                part.copy_(inner)
        return (result if self.edges[0] is not None else None, *rest)

    def part_of(self, view: Tensor) -> Any:
        """Return the view, with the history of a view of this node's output."""
        offset, d = self.base_offset, self.output_info[0][1]
        base = new_tensor(view._storage, *self.base_layout, offset, d, view.device, False)
        base._set_history(self, 0)
        return view_through(base, view.shape, view._strides, view._offset, view.dtype)

    def release(self) -> None:
        if self.fn is not None:
            self.fn.release()


def view_through(base: Any, shape: Any, strides: Any, offset: int, d: dtype) -> Any:
    """Return the view of `base` with this geometry in elements of `d`: base's own dtype, or its real or complex counterpart."""
    if d is base.dtype:
        return base.as_strided(shape, strides, offset)
    if base.dtype.is_complex:
        parts = OPS["view_as_real"].function(base)
        whole = parts.shape == shape and parts._strides == strides and parts._offset == offset
        return parts if whole else parts.as_strided(shape, strides, offset)
    pairs = base.as_strided((*shape, 2), (*(2 * s for s in strides), 1), 2 * offset)
    return OPS["view_as_complex"].function(pairs)


def rebuild_view_history(self: Tensor) -> None:
    """Update the history of a view whose base was changed in place."""
    base = self._base
    assert base is not None
    meta = self._ensure_autograd()
    if base._storage is not self._storage:  # `base.data = ...`: the view keeps its memory and its history
        meta.view_version = self._storage.version
        return
    if meta.creation:
        raise RuntimeError(_why_view_is_closed(meta, "its base or another view of its base has been modified inplace"))
    before, grad_mode.enabled = grad_mode.enabled, True
    try:
        if meta.view_fn is not None:
            fresh = meta.view_fn(base)
        else:
            fresh = view_through(base, self.shape, self._strides, self._offset, self.dtype)
    finally:
        grad_mode.enabled = before
    fresh_meta = fresh._autograd or AutogradState()
    _set_output(meta, fresh_meta.grad_fn, fresh_meta.output_nr)
    meta.view_version = self._storage.version


OpenTensor._rebuild_view_history = rebuild_view_history

"""The autograd graph: nodes, edges, saved tensors and grad modes. The engine that walks it is in `autograd`.

This is in `core` because recording happens inside every operator call; it does not depend on operators.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from .uninterrupted import uninterrupted
from .user_frames import is_own

_new_object: Any = object.__new__
_sequence = itertools.count()
_ACCUMULATE_SEQUENCE = 1 << 62  # gradients of leaves are summed as soon as they are complete


class GradMode(threading.local):
    """Autograd switches of one thread, read as `grad_mode.enabled` on every recorded call."""

    enabled = True
    inference = False
    anomaly_check_nan = True
    saved_hooks: tuple[Any, ...] = ()  # (pack, unpack) pairs, the last one in force; changed by push_saved_hooks
    multithreading = True
    evaluating: Node | None = None  # the node whose backward runs, known with anomaly detection
    _anomaly = False

    @property
    def anomaly(self) -> bool:
        return self._anomaly

    @anomaly.setter
    @uninterrupted
    def anomaly(self, value: bool) -> None:
        if value and not self._anomaly:
            unusual[:0] = (None,)
        elif self._anomaly and not value:
            del unusual[-1]
        self._anomaly = value


# One entry, whatever it is, for each thread with anomaly detection, each pair of saved-tensor hooks, each derivative of `func` that runs
# and each block that caches parametrized tensors: recording tests this one list and only then asks the slower per-thread switches.
unusual: list[None] = []

grad_mode = GradMode()

# A storage made in inference mode counts its versions from here: its tensors can never take part in autograd.
INFERENCE = 1 << 62
inference_threads: list[int] = []  # one entry per inference_mode block that is open in some thread


def refuse_saving() -> None:
    raise RuntimeError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation"
        " tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or"
        " use `torch.no_grad()` instead of `torch.inference_mode()`."
    )


@uninterrupted
def push_saved_hooks(pack: Callable[..., Any], unpack: Callable[..., Any]) -> None:
    """Pass tensors saved for backward in this thread through `pack`, and back through `unpack`, from now on."""
    grad_mode.saved_hooks = (*grad_mode.saved_hooks, (pack, unpack))
    unusual[:0] = (None,)


@uninterrupted
def pop_saved_hooks() -> None:
    if grad_mode.saved_hooks:
        grad_mode.saved_hooks = grad_mode.saved_hooks[:-1]
        del unusual[-1]


class AutogradState:
    """The autograd fields of a tensor; a tensor that never takes part in autograd has none.

    Defaults are class attributes: one object is made for every recorded result, and most set only `grad_fn`."""

    requires_grad: bool = False
    grad: Any = None
    grad_fn: Node | None = None
    output_nr: int = 0
    hooks: dict[Any, Any] | None = None
    retains_grad: bool = False
    accumulator: weakref.ref[Any] | None = None  # weak: the node holds the tensor
    post_hooks: dict[Any, Any] | None = None
    accumulator_hooks: int = 0  # how many hooks were ever put on its accumulators
    view_version: int = -1  # storage version when this view's grad_fn was made
    rebase_version: int = -1  # storage version when an in-place op last rewrote this base's history
    view_fn: Callable[..., Any] | None = None
    tape: Any  # of the transform of `func` that records the tensor; not there outside of any
    creation: str = ""  # why a view may not be changed in place: "no_grad", "multi", "custom", ""


def unrecorded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function without recording and return its result."""
    before, grad_mode.enabled = grad_mode.enabled, False
    try:
        return function(*args, **kwargs)
    finally:
        grad_mode.enabled = before


class SavedTensor:
    """A tensor kept for the backward pass, with the version it had.

    An output is saved without its graph (it would be a reference cycle), which is restored when it is read. Users call `register_hooks` on
    one (`grad_fn._raw_saved_self`)."""

    __slots__ = ("tensor", "version", "is_output", "output_nr", "packed", "unpack_hook", "edge")

    def __init__(self, tensor: Any, is_output: bool, output_nr: int = 0):
        storage = tensor._storage
        storage.watched = True
        self.version = storage.version
        if self.version >= INFERENCE:
            refuse_saving()
        self.is_output = is_output
        self.output_nr = output_nr
        self.unpack_hook: Callable[..., Any] | None = None
        self.tensor: Any = tensor._bare_alias() if is_output else tensor
        if unusual and grad_mode.saved_hooks:
            self._pack(*grad_mode.saved_hooks[-1])

    @classmethod
    def holding_nothing(cls) -> SavedTensor:
        """Return the entry for None among the saved values, or (GONE) for a value that was freed."""
        self = _new_object(cls)
        self.tensor = self.unpack_hook = None
        return self

    def _pack(self, pack: Callable[..., Any], unpack: Callable[..., Any]) -> None:
        tensor = self.tensor
        self.edge = None if self.is_output else gradient_edge(tensor)
        self.packed = unrecorded(pack, tensor)
        if tensor._storage.version != self.version:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be"
                " modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if you"
                " need to perform in-place operations on the input to a pack hook."
            )
        self.tensor, self.unpack_hook = None, unpack

    def register_hooks(self, pack_hook: Any = None, unpack_hook: Any = None) -> None:
        """Keep this value as `pack_hook(tensor)`; `unpack_hook` restores it."""
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError(
                "register_hooks(): incompatible function arguments: expected (pack_hook: Callable, unpack_hook: Callable)"
            )
        if self is GONE:
            raise RuntimeError("Calling register_hooks on a saved tensor after it has been freed. " + FREED_MESSAGE)
        if self.unpack_hook is not None:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is"
                " allowed at a time."
            )
        if self.tensor is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        self._pack(pack_hook, unpack_hook)

    @property
    def data(self) -> Any:
        """Return the saved tensor, or the result of the pack hook."""
        return self.tensor if self.unpack_hook is None else self.packed

    def unpack(self, node: Node) -> Any:
        if self.unpack_hook is not None:
            return self._unpack_through_hook(node)
        tensor = self.tensor
        if tensor._storage.version != self.version:
            raise RuntimeError(_modified_message(tensor, self, node))
        return node.as_output(tensor._bare_alias(), self.output_nr) if self.is_output else tensor

    def _unpack_through_hook(self, node: Node) -> Any:
        assert self.unpack_hook is not None
        result = self.unpack_hook(self.packed)
        if not hasattr(result, "_bare_alias"):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                + type(result).__name__
            )
        edge = (node, self.output_nr) if self.is_output else self.edge
        if edge is not None and gradient_edge(result) != edge:  # hooks see to the values; the history is known here
            result = result._bare_alias()
            result._set_history(*edge)
        return result


def _modified_message(tensor: Any, saved: SavedTensor, node: Node) -> str:
    source = node if saved.is_output else (tensor.grad_fn if tensor._autograd is not None else None)
    return modified_message(tensor, saved.version, source, saved.output_nr if saved.is_output else tensor.output_nr)


def modified_message(tensor: Any, version: int, source: Node | None, output_nr: int) -> str:
    """Return the message for a saved tensor that was modified since it had `version`. `source` is the node that made it."""
    made_here = source is not None and not isinstance(source, AccumulateGrad)
    where = f", which is output {output_nr} of {operation_name(source)}," if made_here else ""
    message = (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.type()} {list(tensor.shape)}]{where} is at version {tensor._storage.version};"
        f" expected version {version} instead."
    )
    last = getattr(tensor._storage, "last_write", None)
    if last is not None:
        op, frame_text = last
        message += f" It was last changed by '{op}' at {frame_text}."
    if not grad_mode.anomaly:
        message += (
            " Hint: enable anomaly detection to find the operation that failed to compute its gradient,"
            " with torch.autograd.set_detect_anomaly(True, check_nan=False)."
        )
    return message


def operation_name(node: Any) -> str:
    """Return the operation whose derivative the node is: 'Exp' for ExpBackward0."""
    name, _, number = node.name().rpartition("Backward")
    return name if name and (not number or number.isdigit()) else node.name()


class Node:
    """A recorded operation. `edges[i]` is the target of the gradient of differentiable input i: (node, output_nr).

    Defaults are class attributes, so that making a node sets only what differs."""

    edges: tuple[Any, ...]
    sequence: int
    label: str
    saved: Any = None
    prehooks: dict[Any, Any] | None = None
    hooks: dict[Any, Any] | None = None
    retain: dict[Any, Any] | None = None  # output_nr -> tensor weakref whose .grad is kept
    output_count: int = 1
    output_info: Any = None  # (shape, dtype, device) per output, for missing gradients
    trace: Trace | None = None
    whole: Any = None  # weak reference to the base's node, if the output is a view that was changed in place
    _metadata: dict[Any, Any] | None = None

    def __init__(self, label: str, edges: tuple[Any, ...]):
        self.label = label
        self.edges = edges
        self.sequence = next(_sequence)
        if unusual and grad_mode.anomaly:
            self.trace = user_trace()

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        raise NotImplementedError

    def apply_some(self, grads: list[Any], wanted: tuple[bool, ...]) -> tuple[Any, ...]:
        """Apply the node where only the gradients of some edges are `wanted`: others may be None. A node may override this to save work."""
        return self.apply(grads)

    def linear(self, grads: list[Any]) -> tuple[Any, ...] | None:
        """Return what `apply` returns in a forward-mode pass, by the node's own forward derivative, or None if it has none."""
        return None

    def release(self) -> None:
        """Drop the saved tensors after a backward pass that does not retain the graph. A node without any can be applied again."""
        if self.saved:
            self.saved = None

    def as_output(self, tensor: Any, output_nr: int) -> Any:
        """Return a saved output with its history restored."""
        base_node = None if self.whole is None else self.whole()
        if base_node is not None:
            return base_node.part_of(tensor)
        tensor._set_history(self, output_nr)
        return tensor

    # -- PyTorch's interface ----------------------------------------------------------------------------------------
    def name(self) -> str:
        return self.label

    @property
    def next_functions(self) -> tuple[Any, ...]:
        return tuple((None, 0) if e is None or type(e[0]) is Discard else e for e in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    def _sequence_nr(self) -> int:
        return self.sequence

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        if self.prehooks is None:
            self.prehooks = {}
        return HookHandle(self.prehooks, hook)

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        if self.hooks is None:
            self.hooks = {}
        return HookHandle(self.hooks, hook)

    def saved_fields(self, hookable: bool = False) -> dict[str, Any]:
        """Return values saved for backward under PyTorch's names: numbers, SavedTensors and lists of them; GONE if it was freed. If
        `hookable`, hooks on these SavedTensors are respected by this node."""
        return {}

    def __dir__(self) -> list[str]:
        fields = self.saved_fields()
        others = [name for name in super().__dir__() if not name.startswith(("_saved_", "_raw_saved_"))]
        raw = [f"_raw_saved_{name}" for name, entry in fields.items() if isinstance(entry, (SavedTensor, list))]
        return [*others, *(f"_saved_{name}" for name in fields), *raw]

    def __call__(self, *grads: Any) -> Any:
        if len(grads) != self.output_count:
            raise TypeError(f"{self.name()} expected {self.output_count} arguments, got {len(grads)} instead")
        result = self.apply(list(grads))
        return result[0] if len(result) == 1 else result

    def __repr__(self) -> str:
        return f"<{self.label} object at {id(self):#x}>"


GONE = SavedTensor.holding_nothing()


class _SavedField:
    """Descriptor of a saved value: `grad_fn._saved_self` is the value, `_raw_saved_self` the SavedTensor, which takes hooks."""

    def __init__(self, name: str, raw: bool):
        self.name, self.raw = name, raw

    def __get__(self, node: Node | None, owner: type) -> Any:
        if node is None:
            return self
        fields = node.saved_fields(self.raw)
        if self.name not in fields:
            prefix = "_raw_saved_" if self.raw else "_saved_"
            raise AttributeError(f"'{type(node).__name__}' object has no attribute '{prefix}{self.name}'")
        return raw_value(fields[self.name]) if self.raw else public_value(fields[self.name], node)


def declare_saved(*names: str) -> None:
    """Add attributes for saved values of these names to Node. (A `__getattr__` would make every attribute of every node slower.)"""
    for name in names:
        if f"_saved_{name}" not in Node.__dict__:
            setattr(Node, f"_saved_{name}", _SavedField(name, False))
            setattr(Node, f"_raw_saved_{name}", _SavedField(name, True))


def public_name(parameter: str) -> str:
    """Return PyTorch's name for a saved argument: most of its declarations call the first one `self`."""
    return "self" if parameter == "input" else parameter


def public_value(entry: Any, node: Node) -> Any:
    """Return a saved value as users see it."""
    if entry is GONE:
        raise RuntimeError(RETRY_MESSAGE)
    if isinstance(entry, SavedTensor):
        return entry.unpack(node)
    return tuple(public_value(e, node) for e in entry) if isinstance(entry, (list, tuple)) else entry


def raw_value(entry: Any) -> Any:
    if isinstance(entry, (list, tuple)):
        return tuple(SavedTensor.holding_nothing() if e is None else raw_value(e) for e in entry)
    return entry


@functools.cache
def named_class(base: type, label: str) -> Any:
    """Return the class of `base` nodes called `label`: programs that draw graphs read `type(node).__name__`."""
    return type(label, (base,), {"__module__": "builtins", "label": label})


class Trace(NamedTuple):
    """The place where a node was recorded, and the node during whose backward that was, or None."""

    text: str
    parent: Node | None


def user_trace() -> Trace:
    """Return the stack outside this package, in the form that anomaly detection shows."""
    frames = [f for f in traceback.walk_stack(sys._getframe(1)) if not is_own(f[0])]
    return Trace("".join(traceback.StackSummary.extract(reversed(frames)).format()), grad_mode.evaluating)


FREED_MESSAGE = (
    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify"
    " retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors"
    " after calling backward."
)
RETRY_MESSAGE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been"
    " freed). " + FREED_MESSAGE
)


class HookHandle:
    """Handle that removes the hook it was returned for. Usable as a context manager."""

    _next_id = itertools.count()

    def __init__(self, hooks: dict[Any, Any], hook: Callable[..., Any], prepend: bool = False):
        self.hooks = hooks
        self.id = next(self._next_id)
        hooks[self.id] = hook
        if prepend:
            for key in [k for k in hooks if k != self.id]:
                hooks[key] = hooks.pop(key)

    def remove(self) -> None:
        self.hooks.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()


class AccumulateGrad(Node):
    """The node at the end of every path: adds the gradient to the leaf's `.grad`."""

    label = "AccumulateGrad"
    edges = ()

    def __init__(self, variable: Any):
        self.sequence = next(_sequence) + _ACCUMULATE_SEQUENCE  # unique, and before every other node
        self.variable = variable

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        self.variable._autograd.accumulator_hooks += 1
        return super().register_prehook(hook)

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        self.variable._autograd.accumulator_hooks += 1
        return super().register_hook(hook)

    def release(self) -> None:
        pass


class GradientEdge(NamedTuple):
    """A node and the index of one of its outputs, at which gradients arrive; stands for a tensor in `grad` and `backward`."""

    node: Node
    output_nr: int
    ownership_token: Any = None


class Discard(Node):
    """The node that discards the gradient of a view made without recording; results computed from such a view require grad as its base does."""

    label = "Discard"
    edges = ()

    def __init__(self) -> None:
        self.sequence = next(_sequence)

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        return ()


def gradient_edge(tensor: Any) -> tuple[Any, ...] | None:
    """Return the edge along which the gradient of `tensor` flows, or None if it needs none."""
    if type(tensor) is GradientEdge:
        return (tensor.node, tensor.output_nr)
    meta = tensor._autograd
    if tensor._base is None and meta is not None and meta.grad_fn is not None:
        return (meta.grad_fn, meta.output_nr)
    if tensor._base is not None:
        fn = tensor.grad_fn  # may rebuild the node of a view whose base was changed
        if fn is not None:
            return (fn, tensor._autograd.output_nr)
    if meta is None or not meta.requires_grad:
        return (Discard(), 0) if tensor._base is not None and tensor.requires_grad else None
    node = None if meta.accumulator is None else meta.accumulator()
    if node is None:
        node = AccumulateGrad(tensor)
        meta.accumulator = weakref.ref(node)
    return (node, 0)

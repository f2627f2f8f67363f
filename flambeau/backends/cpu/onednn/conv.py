"""Convolutions through oneDNN: forward and both gradients, with 1 to 3 spatial dimensions.

Operands have any layout (channels first or last, or sliced); oneDNN's fast code needs a layout of its own, so a plan reorders into scratch
memory, computes, and reorders back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

from flambeau.backends.cpu import operands
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn.blocks import FeatureMaps
from flambeau.backends.cpu.onednn.plan import (
    Builder,
    Descriptor,
    Memory,
    PrimitivePlan,
    ThreadPlans,
    channels_last_strides,
    implementation,
    query,
    same_layout,
)
from flambeau.backends.cpu.onednn.postops import EACH, Attributes, Step
from flambeau.backends.cpu.operands import Geometry, Padding
from flambeau.core import dtype as dtypes

_plans = ThreadPlans(256 << 20)
_hints = ThreadPlans(2 << 20)  # descriptors of forward convolutions, which those of their gradients are made from
_MISSING = object()
_SMALL_MAP, _LARGE_WEIGHT, _MANY_CHANNELS = 16, 1 << 17, 512  # pixels, and numbers
_DESC_SIZE = 4 << 10  # of a primitive's descriptor in memory, about

Sizes = int | Sequence[int]


def try_forward(
    y: Any, x: Any, w: Any, bias: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> bool:
    """Compute y = convolution of x with w (+ bias). Return False, having done nothing, if oneDNN cannot."""
    return _run("forward", (y, x, w, bias), (stride, padding, dilation, groups), _make_forward)


def try_backward(
    dx: Any, dw: Any, db: Any, dy: Any, x: Any, w: Any, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> bool:
    """Compute all gradients that are not None, sharing the reordered dy. x may be None without dw, w without dx."""
    return _run("backward", (dx, dw, db, dy, x, w), (stride, padding, dilation, groups), _make_backward)


def _run(
    kind: str, tensors: tuple[Any, ...], window: tuple[Any, ...], make: Callable[..., PrimitivePlan | None]
) -> bool:
    given = [tensor for tensor in tensors if tensor is not None]
    layouts = [None if t is None else (t.shape, t._strides, t.dtype) for t in tensors]
    key = (kind, _frozen(window), *layouts)
    cache = _plans.cache
    plan = cache.young.get(key, _MISSING)
    if plan is _MISSING:
        shape = operands.geometry(len(given[0].shape) - 2, *window)
        plan = cache.find(key, lambda: make(*tensors, shape))
    if plan is None:
        return False
    places = [tensor.data_ptr() for tensor in given]
    if not all(places):
        operands.check_memory(*given)
    plan.run(*places)
    return True


def _frozen(value: Any) -> Any:
    """Return numbers and sequences of them as part of a key: lists become tuples."""
    try:
        hash(value)
    except TypeError:
        return tuple(map(_frozen, value))
    return value


class Described(NamedTuple):
    """Description of a convolution's plan: its tensors by name, in order, each as (shape, strides), and the window that moves over the
    feature maps."""

    kind: str
    tensors: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    dtype: Any
    window: Geometry

    @classmethod
    def of(cls, kind: str, tensors: dict[str, Any], window: Geometry) -> Described:
        given = {name: t for name, t in tensors.items() if t is not None}
        layouts = {name: (tuple(t.shape), tuple(t._strides)) for name, t in given.items()}
        return cls(kind, layouts, next(iter(given.values())).dtype, window)

    def lying(self, last: Container[str]) -> Described:
        """Return this description with the tensors `last` in channels-last layout."""
        layouts = self.tensors.items()
        tensors = {
            n: (shape, channels_last_strides(shape) if n in last else strides) for n, (shape, strides) in layouts
        }
        return self._replace(tensors=tensors)

    def is_blocked(self) -> bool:
        """Return whether the plan converts feature maps to blocks, however they are stored."""
        every = {name: operands.Shaped(*layout, self.dtype) for name, layout in self.tensors.items()}
        x, w, y = (every.get(a) or every.get(b) for a, b in (("x", "dx"), ("w", "dw"), ("y", "dy")))
        return _choose_layout(x, w, y, self.kind == "forward") == "any"

    def plan(self) -> PrimitivePlan | None:
        """Return a new plan that computes this."""
        if self.kind == "backward":
            return self.gradients(*(n for n in ("dx", "dw", "db") if n in self.tensors))
        every = {name: operands.Shaped(*layout, self.dtype) for name, layout in self.tensors.items()}
        return _make_forward(every["y"], every["x"], every["w"], every.get("bias"), self.window)

    def gradients(self, *names: str) -> PrimitivePlan | None:
        """Return the plan that computes only these gradients, from the tensors that they need."""
        needed = {*names, "dy", *(("w",) if "dx" in names else ()), *(("x",) if "dw" in names else ())}
        every = {name: operands.Shaped(*layout, self.dtype) for name, layout in self.tensors.items() if name in needed}
        dx, dw, db, dy, x, w = (every.get(name) for name in ("dx", "dw", "db", "dy", "x", "w"))
        return _make_backward(dx, dw, db, dy, x, w, self.window)

    def followed(self, steps: Sequence[Step], bias: bool = True) -> PrimitivePlan | None:
        """Return the plan of a convolution, with its bias or without, that applies these steps to the sums; None if there is none."""
        if self.kind != "forward" or self.dtype is not dtypes.float32:
            return None
        every = {name: operands.Shaped(*layout, self.dtype) for name, layout in self.tensors.items()}
        given = every.get("bias") if bias else None
        return _make_forward(every["y"], every["x"], every["w"], given, self.window, steps)


class _Problem:
    """Convolution in oneDNN's terms: x (N, C, *), w ([groups,] O, C, *), y (N, O, *), and the window."""

    def __init__(self, kind: str, x: Any, w: Any, y: Any, window: Geometry):
        self.x_shape, self.y_shape, self.window = tuple(x.shape), tuple(y.shape), window
        self.data_type = dnnl.DATA_TYPES[y.dtype]
        out, inner, *kernel = w.shape
        self.w_shape = tuple(w.shape) if window.groups == 1 else (window.groups, out // window.groups, inner, *kernel)
        self.layout = _choose_layout(x, w, y, kind == "convolution")
        told = (kind, y.dtype.name, self.x_shape, tuple(w.shape), self.y_shape, window)
        self.build = Builder(
            lambda: "{} of {} input {}, weight {}, output {}, {}".format(*told),
            math.prod(y.shape) * inner * math.prod(kernel),
        )
        self._wanted: tuple[Descriptor, Descriptor, Descriptor] | None = None
        self.sizes = tuple(
            dnnl.Dims(*values)
            for values in (window.stride, [d - 1 for d in window.dilation], window.before, window.after)
        )

    def user(self, tensor: Any) -> Memory:
        strides = settled_strides(tensor.shape, tensor._strides)
        maps = FeatureMaps.of(tensor.shape, strides, self.data_type)
        return self.build.user_memory(Descriptor.strided(tensor.shape, strides, self.data_type), maps)

    def user_weight(self, w: Any) -> Memory:
        """Return the weight with the leading dimension of (O, C, *) split into (groups, O / groups, C, *)."""
        strides = settled_strides(w.shape, w._strides)
        if self.window.groups > 1:
            strides = (strides[0] * self.w_shape[1], *strides)
        return self.build.user_memory(Descriptor.strided(self.w_shape, strides, self.data_type))

    def wanted(self) -> tuple[Descriptor, Descriptor, Descriptor]:
        """Return the descriptors of x, w and y that a primitive is requested with."""
        if self._wanted is None:
            make = Descriptor.channels_last if self.layout == "channels last" else Descriptor.any_layout
            kind = self.data_type
            x, y = make(self.x_shape, kind), make(self.y_shape, kind)
            self._wanted = x, Descriptor.any_layout(self.w_shape, kind), y
        return self._wanted

    def wanted_bias(self, bias: Any) -> Descriptor | None:
        return None if bias is None else Descriptor.any_layout(bias.shape, self.data_type)

    def forward(self, bias: Any = None, attributes: Attributes | None = None) -> int | None:
        lib = dnnl.library()
        x, w, y = self.wanted()
        created = self.build.owned_desc(
            "convolution_forward_primitive_desc_create",
            *(lib.engine, dnnl.FORWARD_TRAINING, dnnl.CONVOLUTION_DIRECT, x, w, self.wanted_bias(bias), y),
            *self.sizes,
            lib.attributes if attributes is None else attributes.owned,
        )
        if created is None or implementation(created.address).startswith("ref"):
            return None
        if attributes is not None:
            return created.address
        _hints.cache.find(self.hint_key(), lambda: created, _DESC_SIZE)
        return created.address

    def hint(self) -> int | None:
        """Return the address of a forward convolution's descriptor as a hint for its gradients, for which the bias does not matter."""
        known = _hints.cache.young.get(self.hint_key())
        if known is None:
            return self.forward()
        self.build.keep.append(known)
        return known.address

    def hint_key(self) -> tuple[Any, ...]:
        return self.x_shape, self.w_shape, self.window, self.layout, self.data_type

    def backward_data(self, hint: int) -> int | None:
        lib = dnnl.library()
        x, w, y = self.wanted()
        return self.build.primitive_desc(
            "convolution_backward_data_primitive_desc_create",
            *(lib.engine, dnnl.CONVOLUTION_DIRECT, x, w, y),
            *self.sizes,
            *(hint, lib.attributes),
        )

    def backward_weights(self, hint: int, bias: Any) -> int | None:
        lib = dnnl.library()
        x, w, y = self.wanted()
        return self.build.primitive_desc(
            "convolution_backward_weights_primitive_desc_create",
            *(lib.engine, dnnl.CONVOLUTION_DIRECT, x, w, self.wanted_bias(bias), y),
            *self.sizes,
            *(hint, lib.attributes),
        )


def settled_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return the strides with dimensions of size 1 outermost, because oneDNN rejects odd strides even there."""
    if 1 not in shape:
        return tuple(strides)
    extent = max((size * step for size, step in zip(shape, strides, strict=True) if size > 1), default=1)
    return tuple(extent if size == 1 else step for size, step in zip(shape, strides, strict=True))


def _is_channels_last(tensor: Any) -> bool:
    """Return whether channels are innermost and that is not also the usual order (as it is for one pixel or one channel)."""
    return tensor._strides[1] == 1 and tensor.shape[1] > 1 and math.prod(tensor.shape[2:]) > 1


def _choose_layout(x: Any, w: Any, y: Any, forward: bool) -> str:
    """Choose between "channels last" and "any". Measured: the channels-last code is the fastest, but converting to it costs more than to a
    blocked layout. If feature maps are small and the weight is not, blocks are worth the conversion: the channels-last code reads the weight
    again for every few pixels, and that for windows of one pixel needs weights in an order which takes long to make (2048 to 512 channels of
    7x7 take 2.8 times as long)."""
    if not (_is_channels_last(x) or _is_channels_last(y)):
        return "any"
    weights, pixels = math.prod(w.shape), math.prod(y.shape[2:])
    one = forward and w.shape[1] >= _MANY_CHANNELS and math.prod(w.shape[2:]) == 1
    slow = one and 3 * weights > math.prod(x.shape) + math.prod(y.shape)
    return "any" if slow or (pixels <= _SMALL_MAP and weights >= _LARGE_WEIGHT) else "channels last"


def _takes(window: Geometry, *tensors: Any) -> bool:
    """Return whether oneDNN can describe these operands: its dtypes, nothing empty, no element at two indices.

    It also refuses a window that leaves a whole stride or more of the input unread (large output paddings).
    """
    return all(after + stride > 0 for after, stride in zip(window.after, window.stride, strict=True)) and all(
        t.dtype in dnnl.DATA_TYPES and 0 not in t.shape and not operands.overlaps(t.shape, t._strides)
        for t in tensors
        if t is not None
    )


def _make_forward(
    y: Any, x: Any, w: Any, bias: Any, window: Geometry, steps: Sequence[Step] = ()
) -> PrimitivePlan | None:
    operands.check_conv("convolution", x, w, y, bias, window)
    if not _takes(window, y, x, w, bias):
        return None
    problem = _Problem("convolution", x, w, y, window)
    result = tuple(y.shape), settled_strides(y.shape, y._strides)
    attributes = Attributes(steps, result, 1) if steps else None
    created = problem.forward(bias, attributes)
    if created is None:
        return None
    build = problem.build
    y_user, x_user, w_user = problem.user(y), problem.user(x), problem.user_weight(w)
    moved = not same_layout(y_user.desc, query(created, dnnl.QUERY_DST))
    if moved and any(step.operand == EACH or step.kind == "accumulate" for step in steps):
        return None  # the operand has the layout of y, but the primitive's result does not
    arguments = {
        dnnl.ARG_SRC: build.input(x_user, query(created, dnnl.QUERY_SRC)),
        dnnl.ARG_WEIGHTS: build.input(w_user, query(created, dnnl.QUERY_WEIGHTS)),
        dnnl.ARG_DST: build.output(y_user, query(created, dnnl.QUERY_DST)),
    }
    if bias is not None:
        arguments[dnnl.ARG_BIAS] = problem.user(bias)
    if attributes is not None:
        arguments.update(attributes.memories(build))
    build.step(created, arguments)
    build.deliver(arguments[dnnl.ARG_DST], y_user)
    if attributes is None:
        build.described = Described.of("forward", {"y": y, "x": x, "w": w, "bias": bias}, window)
    return PrimitivePlan(build)


def _make_backward(dx: Any, dw: Any, db: Any, dy: Any, x: Any, w: Any, window: Geometry) -> PrimitivePlan | None:
    operands.check_conv_backward(dx, dw, db, dy, x, w, window)
    if not _takes(window, dx, dw, db, dy, x, w):
        return None
    problem = _Problem("convolution backward", x if dx is None else dx, w if dw is None else dw, dy, window)
    hint = problem.hint()
    if hint is None:
        return None
    data = problem.backward_data(hint) if dx is not None else None
    weights = problem.backward_weights(hint, db) if dw is not None else None
    if (data is None and dx is not None) or (weights is None and dw is not None):
        return None
    # In the order of the arguments, as the pointers will come.
    named = {"dx": dx, "dw": dw, "db": db, "dy": dy, "x": x, "w": w}
    user = {
        name: (problem.user_weight if name in ("dw", "w") else problem.user)(tensor)
        for name, tensor in named.items()
        if tensor is not None
    }
    problem.build.described = Described.of("backward", named, window)
    problem.build.results = sum(t is not None for t in (dx, dw, db))
    shared = _SharedInput(problem.build, user["dy"])
    if data is not None:
        _add_backward_data(problem, data, user["dx"], shared, user["w"])
    if weights is not None:
        _add_backward_weights(problem, weights, user["dw"], user.get("db"), shared, user["x"])
    return PrimitivePlan(problem.build)


class _SharedInput:
    """An input that two primitives read, reordered once if they want the same layout."""

    def __init__(self, build: Builder, memory: Memory):
        self.build, self.versions = build, [memory]

    def laid_out(self, wanted: int) -> Memory:
        for version in self.versions:
            if same_layout(version.desc, wanted):
                return version
        self.versions.append(self.build.input(self.versions[0], wanted))
        return self.versions[-1]


def _add_backward_data(problem: _Problem, created: int, dx: Memory, dy: _SharedInput, w: Memory) -> None:
    build = problem.build
    result = build.output(dx, query(created, dnnl.QUERY_DIFF_SRC))
    arguments = {
        dnnl.ARG_DIFF_DST: dy.laid_out(query(created, dnnl.QUERY_DIFF_DST)),
        dnnl.ARG_WEIGHTS: build.input(w, query(created, dnnl.QUERY_WEIGHTS)),
        dnnl.ARG_DIFF_SRC: result,
    }
    build.step(created, arguments)
    build.deliver(result, dx)


def _add_backward_weights(
    problem: _Problem, created: int, dw: Memory, db: Memory | None, dy: _SharedInput, x: Memory
) -> None:
    build = problem.build
    result = build.output(dw, query(created, dnnl.QUERY_DIFF_WEIGHTS))
    arguments = {
        dnnl.ARG_DIFF_DST: dy.laid_out(query(created, dnnl.QUERY_DIFF_DST)),
        dnnl.ARG_SRC: build.input(x, query(created, dnnl.QUERY_SRC)),
        dnnl.ARG_DIFF_WEIGHTS: result,
    }
    if db is not None:
        arguments[dnnl.ARG_DIFF_BIAS] = db
    build.step(created, arguments)
    build.deliver(result, dw)

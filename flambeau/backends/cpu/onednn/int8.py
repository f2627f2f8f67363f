"""Products of integers by oneDNN: u8 or s8 times s8, summed in 32 bits. Weights are converted once.

A `Weights` object keeps the weights in every layout that a primitive has asked for (usually one); plans keep references to them, so that a
run passes only two pointers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.backends.cpu import operands
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn.conv import settled_strides
from flambeau.backends.cpu.onednn.plan import (
    Builder,
    Descriptor,
    Memory,
    Owned,
    PrimitivePlan,
    ThreadPlans,
    query,
    same_layout,
)
from flambeau.backends.cpu.operands import Geometry, numpy_view
from flambeau.core import dtype as dtypes
from flambeau.core.layout import channels_last_strides

from ....core.aliases import Values

_plans = ThreadPlans(256 << 20)
_MISSING = object()
_numbers = itertools.count()


class Weights:
    """Weights of one product: `array` is int8, with the dimensions (in, out) or ([groups,] out, in, *window)."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.number = next(_numbers)  # names them in keys of plans: ids are used again
        self.laid_out: list[tuple[Owned, np.ndarray]] = []

    def in_layout(self, wanted: int) -> np.ndarray:
        """Return the bytes of the weights in a primitive's layout, with the sums of columns that it stores there."""
        for desc, found in self.laid_out:
            if same_layout(desc.address, wanted):
                return found
        functions = dnnl.library().functions
        desc = Owned(dnnl.library().create("memory_desc_clone", wanted), functions["memory_desc_destroy"])
        made = _aligned(functions["memory_desc_get_size"](desc.address))
        build = Builder(lambda: f"weights {self.array.shape}", self.array.size)
        strides = tuple(s // self.array.itemsize for s in self.array.strides)
        source = build.user_memory(
            Descriptor.strided(self.array.shape, settled_strides(self.array.shape, strides), dtypes.int8.dnnl)
        )
        target = Memory(desc.address, build.parts)
        build.user.append(target)
        build.reorder(source, target)
        PrimitivePlan(build).run(self.array.ctypes.data, made.ctypes.data)
        self.laid_out.append((desc, made))
        return made


def _aligned(size: int) -> np.ndarray:
    """Return bytes at an address aligned for vector instructions."""
    whole = np.empty(size + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + size]


def _find(key: Values, make: Callable[[], PrimitivePlan | None]) -> PrimitivePlan | None:
    cache = _plans.cache
    plan = cache.young.get(key, _MISSING)
    return cache.find(key, make) if plan is _MISSING else plan


# -- matrices ----------------------------------------------------------------------------------------------------------


def try_matmul(dst: Any, a: Any, weights: Weights) -> bool:
    """Compute dst (rows, out; dense memory of 32 bits each) = a (rows, in; uint8 or int8, dense) @ weights, as int32 whatever the dtype of
    dst. Return False if oneDNN cannot."""
    if not dnnl.available():
        return False
    plan = _find((weights.number, a.shape, a._strides, a.dtype), lambda: _make_matmul(a, weights))
    if plan is None:
        return False
    operands.check_memory(dst, a)
    plan.run(a.data_ptr(), dst.data_ptr())
    return True


def _make_matmul(a: Any, weights: Weights) -> PrimitivePlan | None:
    lib = dnnl.library()
    shapes = tuple(a.shape), weights.array.shape
    result = a.shape[0], weights.array.shape[1]
    build = Builder(lambda: f"int8 product {shapes}", math.prod(result) * a.shape[1])
    source = Descriptor.strided(a.shape, settled_strides(a.shape, a._strides), a.dtype.dnnl)
    target = Descriptor.strided(result, settled_strides(result, (result[1], 1)), dtypes.int32.dnnl)
    wanted = Descriptor.any_layout(weights.array.shape, dtypes.int8.dnnl)
    created = build.primitive_desc(
        "matmul_primitive_desc_create", lib.engine, source, wanted, None, target, lib.attributes
    )
    return _planned(build, created, source, weights, target)


def _planned(
    build: Builder, created: Any, source: Any, weights: Weights, target: Any, attributes: Any = None
) -> PrimitivePlan | None:
    """Return the plan of a primitive, with the weights in the layout that it wants; None if oneDNN has none."""
    if created is None:
        return None
    held = query(created, dnnl.QUERY_WEIGHTS)
    arguments = {
        dnnl.ARG_SRC: build.user_memory(source),
        dnnl.ARG_WEIGHTS: build.constant(held, weights.in_layout(held)),
    }
    arguments[dnnl.ARG_DST] = build.user_memory(target)
    build.step(created, arguments if attributes is None else {**arguments, **attributes.memories(build)})
    return PrimitivePlan(build)


def matmul(dst: Any, a: Any, weights: Weights) -> None:
    """Multiply 8-bit matrices, also without oneDNN: then exactly, but slowly."""
    if 0 in dst.shape or (0 not in a.shape and try_matmul(dst, a, weights)):
        return
    sums = numpy_view(a).astype(np.float64) @ weights.array.astype(np.float64)
    numpy_view(dst).view(np.int32)[...] = sums.reshape(dst.shape)


# -- convolutions ------------------------------------------------------------------------------------------------------


class Scaling:
    """Scaling of the sums of a convolution. `first` is their factor; `steps` are applied after it in order, each rounded to float32:
    ("multiply", numbers), ("add", numbers), with one number or one for each output channel, ("relu",). Finally the zero point of the result
    is added, and the sum rounded. `input_zero` is the code of zero in the input, which is used for padding."""

    def __init__(self, input_zero: int, zero: int = 0, first: float = 1.0, steps: Sequence[Values] = ()):
        self.input_zero, self.zero, self.first, self.steps = input_zero, zero, first, steps


class _Attributes:
    """The attributes of one primitive, with the memory of their numbers."""

    def __init__(self, lib: dnnl.Library):
        self.lib = lib
        self.owned = Owned(lib.create("primitive_attr_create"), lib.functions["primitive_attr_destroy"])
        lib.call("primitive_attr_set_scratchpad_mode", self.owned.address, dnnl.USER_SCRATCHPAD)
        self.numbers: dict[int, tuple[Descriptor, np.ndarray]] = {}

    def scale(self, argument: int, value: float) -> None:
        self.lib.call("primitive_attr_set_scales_mask", self.owned.address, argument, 0)
        self._keep(dnnl.ARG_ATTR_SCALES | argument, np.array([value], np.float32))

    def zero_point(self, argument: int, value: int) -> None:
        self.lib.call("primitive_attr_set_zero_points_mask", self.owned.address, argument, 0)
        self._keep(dnnl.ARG_ATTR_ZERO_POINTS | argument, np.array([value], np.int32))

    def steps(self, steps: Sequence[Values], dims: int) -> None:
        """Set the operations on sums of `dims` dimensions; see Scaling."""
        made = Owned(self.lib.create("post_ops_create"), self.lib.functions["post_ops_destroy"])
        for number, (step, *values) in enumerate(steps, 1):
            if step == "relu":
                self.lib.call("post_ops_append_eltwise", made.address, dnnl.ELTWISE_RELU, 0.0, 0.0)
                continue
            array = np.ascontiguousarray(values[0], np.float32)
            shape = (1, array.size, *(1,) * (dims - 2))
            self._keep(dnnl.ARG_POST_OP * number | dnnl.ARG_SRC_1, array, shape)
            desc = self.numbers[dnnl.ARG_POST_OP * number | dnnl.ARG_SRC_1][0]
            self.lib.call("post_ops_append_binary", made.address, _WITH_NUMBERS[step], desc.address)
        self.lib.call("primitive_attr_set_post_ops", self.owned.address, made.address)

    def _keep(self, argument: int, values: np.ndarray, shape: tuple[int, ...] | None = None) -> None:
        kind = dtypes.float32 if values.dtype == np.float32 else dtypes.int32
        shape = values.shape if shape is None else shape
        self.numbers[argument] = Descriptor.strided(shape, operands.contiguous_strides(shape), kind.dnnl), values

    def memories(self, build: Builder) -> dict[int, Memory]:
        return {argument: build.constant(desc, values) for argument, (desc, values) in self.numbers.items()}


_WITH_NUMBERS = {"multiply": dnnl.BINARY_MUL, "add": dnnl.BINARY_ADD}


def try_conv(
    y: Any, x: Any, weights: Weights, window: Geometry, transposed: bool, key: Values, scaling: Callable[[], Scaling]
) -> bool:
    """Compute y = a convolution of codes, as codes or as sums, both dense with channels last. `key` names everything that `scaling()` depends
    on. Return False if oneDNN cannot."""
    if not dnnl.available() or 0 in x.shape:
        return False
    full = (weights.number, window, transposed, x.shape, x._strides, x.dtype, y.shape, y._strides, y.dtype, key)
    plan = _find(full, lambda: _make_conv(y, x, weights, window, transposed, scaling()))
    if plan is None:
        return False
    operands.check_memory(y, x)
    plan.run(x.data_ptr(), y.data_ptr())
    return True


def _make_conv(
    y: Any, x: Any, weights: Weights, window: Geometry, transposed: bool, scaling: Scaling
) -> PrimitivePlan | None:
    lib = dnnl.library()
    shape = weights.array.shape
    told = tuple(x.shape), shape, tuple(y.shape), window
    work = math.prod(y.shape) * math.prod(shape[2 if window.groups > 1 else 1 :])
    build = Builder(lambda: "int8 convolution of {} with {} -> {}, {}".format(*told), work)
    # Dimensions of size 1 may have any step in a tensor; oneDNN knows the layout by its own.
    source, target = (Descriptor.strided(t.shape, channels_last_strides(t.shape), t.dtype.dnnl) for t in (x, y))
    wanted = Descriptor.any_layout(shape, dtypes.int8.dnnl)
    attributes = _Attributes(lib)
    if scaling.first != 1:
        attributes.scale(dnnl.ARG_WEIGHTS, scaling.first)
    if scaling.input_zero:
        attributes.zero_point(dnnl.ARG_SRC, scaling.input_zero)
    if scaling.zero:
        attributes.zero_point(dnnl.ARG_DST, scaling.zero)
    attributes.steps(scaling.steps, len(y.shape))
    sizes = (dnnl.Dims(*v) for v in (window.stride, [d - 1 for d in window.dilation], window.before, window.after))
    name, algorithm = (
        ("deconvolution", dnnl.DECONVOLUTION_DIRECT) if transposed else ("convolution", dnnl.CONVOLUTION_DIRECT)
    )
    created = build.primitive_desc(
        f"{name}_forward_primitive_desc_create",
        *(lib.engine, dnnl.FORWARD_INFERENCE, algorithm, source, wanted, None, target, *sizes, attributes.owned),
    )
    return _planned(build, created, source, weights, target, attributes)

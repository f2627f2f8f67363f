"""Recurrent networks by cuDNN: all layers and directions in one call.

Time steps follow each other in memory, each with one row per sequence that is long enough; weights are in one block, all matrices first, then
all biases."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref, c_int, c_int32, c_size_t, c_uint32, c_void_p
from typing import Any

from ...core import dtype as dt
from ...core.caching import remember
from ...core.settings import cudnn_switches
from ...kernels.library.rnn import GATES
from .. import nvidia
from .cudnn_graph import DATA_TYPES, DOUBLE, FLOAT, Unsupported, check, handle, library

_CELLS = {kind: number for number, kind in enumerate(GATES)}
_STANDARD, _LINEAR_INPUT, _ADD = 0, 0, 0
_DEFAULT_MATH, _TENSOR_CORES, _EXACT = 0, 1, 3
_UNPACKED, _PACKED = 0, 1
_LIMIT = 256


class _Local(threading.local):
    def __init__(self) -> None:
        self.networks: dict[tuple[Any, ...], Network] = {}


_local = _Local()


def network(
    kind: str,
    d: Any,
    inputs: int,
    hidden: int,
    layers: int,
    both: bool,
    biased: bool,
    sizes: tuple[int, ...],
    where: Any,
) -> Network:
    """Return the network of this description on a device; raise Unsupported if the library has none."""
    exact = d is dt.float32 and not cudnn_switches.allow_tf32
    key = (kind, d, inputs, hidden, layers, both, biased, sizes, where, exact)
    found = _local.networks.get(key)
    if found is None:
        network = Network(kind, d, inputs, hidden, layers, both, biased, sizes, where, exact)
        found = remember(_local.networks, key, network, _LIMIT)
    return found


def _made(kind: str) -> c_void_p:
    descriptor = c_void_p()
    check(getattr(library(), f"cudnnCreate{kind}Descriptor")(byref(descriptor)), f"cudnnCreate{kind}Descriptor")
    return descriptor


class Network:
    """Descriptors of a network for batches of one shape, and the sizes of its memory."""

    def __init__(
        self,
        kind: str,
        d: Any,
        inputs: int,
        hidden: int,
        layers: int,
        both: bool,
        biased: bool,
        sizes: tuple[int, ...],
        where: Any,
        exact: bool,
    ) -> None:
        self.where = where
        self.data_type = c_int(DATA_TYPES[d])
        own, wide = handle(where), DOUBLE if d is dt.float64 else FLOAT
        math = _TENSOR_CORES if d.itemsize == 2 else _EXACT if exact else _DEFAULT_MATH
        self.settings, self.dropout = _made("RNN"), _made("Dropout")
        check(
            library().cudnnSetDropoutDescriptor(
                self.dropout, own, ctypes.c_float(0), None, c_size_t(0), ctypes.c_ulonglong(0)
            ),
            "cudnnSetDropoutDescriptor",
        )
        check(
            library().cudnnSetRNNDescriptor_v8(
                self.settings, c_int(_STANDARD), c_int(_CELLS[kind]), c_int(2 if biased else 0), c_int(both), c_int(_LINEAR_INPUT),
                self.data_type, c_int(wide), c_int(math), c_int32(inputs), c_int32(hidden), c_int32(hidden), c_int32(layers),
                self.dropout, c_uint32(0),
            ),
            "cudnnSetRNNDescriptor_v8",
        )  # fmt: skip
        directions = 2 if both else 1
        self.x, self.y = self._rows(sizes, inputs), self._rows(sizes, hidden * directions)
        self.state = _made("Tensor")
        shape = (layers * directions, sizes[0], hidden)
        dims, strides = (c_int * 3)(*shape), (c_int * 3)(shape[1] * shape[2], shape[2], 1)
        check(
            library().cudnnSetTensorNdDescriptor(self.state, self.data_type, c_int(3), dims, strides),
            "cudnnSetTensorNdDescriptor",
        )
        weights = c_size_t()
        check(library().cudnnGetRNNWeightSpaceSize(own, self.settings, byref(weights)), "cudnnGetRNNWeightSpaceSize")
        self.weights = weights.value
        expected = _order(kind, inputs, hidden, layers, directions, biased, d.itemsize)
        if self.weights != expected[-1] or not self._lies_so(
            own, expected, directions * layers, 2 * GATES[kind], biased
        ):
            raise Unsupported("cuDNN wants the weights of this network in another order")
        self.space, self.reserve = {}, {}
        for training in (False, True):
            space, reserve = c_size_t(), c_size_t()
            check(
                library().cudnnGetRNNTempSpaceSizes(
                    own, self.settings, c_int(training), self.x, byref(space), byref(reserve)
                ),
                "cudnnGetRNNTempSpaceSizes",
            )
            self.space[training], self.reserve[training] = space.value, reserve.value

    def _rows(self, sizes: tuple[int, ...], features: int) -> c_void_p:
        """Return the descriptor of time steps with these numbers of rows."""
        made, batch = _made("RNNData"), sizes[0]
        lengths = (c_int * batch)(*[sum(n > i for n in sizes) for i in range(batch)])
        layout = _UNPACKED if sizes[-1] == batch else _PACKED
        zero = ctypes.c_double(0)
        check(
            library().cudnnSetRNNDataDescriptor(
                made,
                self.data_type,
                c_int(layout),
                c_int(len(sizes)),
                c_int(batch),
                c_int(features),
                lengths,
                byref(zero),
            ),
            "cudnnSetRNNDataDescriptor",
        )
        return made

    def _lies_so(self, own: c_void_p, expected: list[int], layers: int, parts: int, biased: bool) -> bool:
        """Return whether the library expects every weight at the offset given here."""
        base, matrix, bias = 1 << 20, _made("Tensor"), _made("Tensor")
        found: dict[int, list[int]] = {0: [], 1: []}
        for layer in range(layers):
            for part in range(parts):
                at, at_bias = c_void_p(), c_void_p()
                check(
                    library().cudnnGetRNNWeightParams(
                        own, self.settings, c_int32(layer), c_size_t(self.weights), c_void_p(base), c_int32(part), matrix,
                        byref(at), bias, byref(at_bias),
                    ),
                    "cudnnGetRNNWeightParams",
                )  # fmt: skip
                found[0].append((at.value or 0) - base)
                if biased:
                    found[1].append((at_bias.value or 0) - base)
        for descriptor in (matrix, bias):
            library().cudnnDestroyTensorDescriptor(descriptor)
        return [*found[0], *found[1]] == expected[:-1]

    def forward(
        self, y: int, hy: int, cy: int, x: int, hx: int, cx: int, weights: int, reserve: int, training: bool
    ) -> None:
        space = nvidia.workspace(max(self.space[training], 8), self.where)
        p = c_void_p
        check(
            library().cudnnRNNForward(
                handle(self.where), self.settings, c_int(training), None, self.x, p(x), self.y, p(y), self.state, p(hx), p(hy),
                self.state, p(cx), p(cy), c_size_t(self.weights), p(weights), c_size_t(self.space[training]), p(space.ptr),
                c_size_t(self.reserve[training]), p(reserve),
            ),
            "cudnnRNNForward",
        )  # fmt: skip

    def backward(
        self, dx: int, dhx: int, dcx: int, dw: int, y: int, dy: int, dhy: int, dcy: int, x: int, hx: int, cx: int, weights: int,
        reserve: int,
    ) -> None:  # fmt: skip
        """Compute the gradients of input and states, and add those of the weights to `dw`."""
        space = nvidia.workspace(max(self.space[True], 8), self.where)
        p, own = c_void_p, handle(self.where)
        rooms = (c_size_t(self.space[True]), p(space.ptr), c_size_t(self.reserve[True]), p(reserve))
        check(
            library().cudnnRNNBackwardData_v8(
                own, self.settings, None, self.y, p(y), p(dy), self.x, p(dx), self.state, p(hx), p(dhy), p(dhx), self.state, p(cx),
                p(dcy), p(dcx), c_size_t(self.weights), p(weights), *rooms,
            ),
            "cudnnRNNBackwardData_v8",
        )  # fmt: skip
        check(
            library().cudnnRNNBackwardWeights_v8(
                own, self.settings, c_int(_ADD), None, self.x, p(x), self.state, p(hx), self.y, p(y), c_size_t(self.weights), p(dw),
                *rooms,
            ),
            "cudnnRNNBackwardWeights_v8",
        )  # fmt: skip


def _order(kind: str, inputs: int, hidden: int, layers: int, directions: int, biased: bool, size: int) -> list[int]:
    """Return the offsets of the gates' matrices, then of their biases, then the end, in bytes."""
    gates, at, starts = GATES[kind], 0, []
    for layer in range(layers):
        width = inputs if layer == 0 else hidden * directions
        for _ in range(directions):
            for columns in (width, hidden):
                for _ in range(gates):
                    starts.append(at)
                    at += hidden * columns * size
    if biased:
        for _ in range(layers * directions * 2 * gates):
            starts.append(at)
            at += hidden * size
    return [*starts, at]

"""Operations that oneDNN applies to the sums of a product or a convolution before it writes them: functions, and operations with other
operands.

Only those are used that treat nan and infinities as PyTorch does, and take less time than a loop over the result. Its `relu`, maximum and
minimum, clipping and `exp` turn nan into a number; its `gelu` fails for large numbers. Correct, but slower than our loops, are its hyperbolic
tangent, the `gelu` approximated by it, `sigmoid`, `silu`, and `elu` with alpha 0, which is a `relu`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flambeau.backends.cpu import operands
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn.plan import Builder, Descriptor, Memory, Owned
from flambeau.core import dtype as dtypes

# oneDNN's numbers for functions of one number (with parameters that it calls alpha and beta), and for operations.
FUNCTIONS = {"leaky_relu": 0x20, "square": 0x23, "abs": 0x24, "sqrt": 0x25, "linear": 0x26}
OPERATIONS = {"add": 0x1FFF0, "mul": 0x1FFF1, "div": 0x1FFF4, "sub": 0x1FFF5}
EACH, CHANNEL = "each", "channel"


class Step(NamedTuple):
    """A function of `FUNCTIONS` with its numbers: leaky_relu's slope (not 0), linear's factor and addend. Or an operation of `OPERATIONS`
    with a tensor that has the size and layout of the result (EACH), or one number for each column of a product or channel of feature maps
    (CHANNEL), or without a tensor with the first of `numbers`. Or "accumulate", which adds the previous contents of the result."""

    kind: str
    numbers: tuple[float, ...] = ()
    operand: str = ""


Layout = tuple[Sequence[int], Sequence[int]]  # shape, strides


class Attributes:
    """The attributes of a primitive with these steps, and their operands. Results are float32 with the layout of `result`; `axis` is its
    dimension of channels."""

    def __init__(self, steps: Sequence[Step], result: Layout, axis: int):
        lib = dnnl.library()
        self.owned = Owned(lib.create("primitive_attr_create"), lib.functions["primitive_attr_destroy"])
        lib.call("primitive_attr_set_scratchpad_mode", self.owned.address, dnnl.USER_SCRATCHPAD)
        self._operands: list[tuple[int, Descriptor, np.ndarray | None]] = []
        made = Owned(lib.create("post_ops_create"), lib.functions["post_ops_destroy"])
        for number, step in enumerate(steps, 1):
            if step.kind == "accumulate":
                lib.call("post_ops_append_sum", made.address, 1.0, 0, 0)
            elif step.kind in FUNCTIONS:
                alpha, beta = (*step.numbers, 0.0, 0.0)[:2]
                lib.call("post_ops_append_eltwise", made.address, FUNCTIONS[step.kind], alpha, beta)
            else:
                given = None if step.operand else np.array(step.numbers[:1], np.float32)
                layout = result if step.operand == EACH else _line(result[0], axis if step.operand else -1)
                desc = Descriptor.strided(*layout, dnnl.DATA_TYPES[dtypes.float32])
                lib.call("post_ops_append_binary", made.address, OPERATIONS[step.kind], desc.address)
                self._operands.append((dnnl.ARG_POST_OP * number | dnnl.ARG_SRC_1, desc, given))
        lib.call("primitive_attr_set_post_ops", self.owned.address, made.address)

    def memories(self, build: Builder) -> dict[int, Memory]:
        """Return arguments of the primitive: tensors are passed by pointer, in the order of the steps; numbers belong to the plan."""
        return {
            argument: build.user_memory(desc) if given is None else build.constant(desc, given)
            for argument, desc, given in self._operands
        }


def _line(shape: Sequence[int], axis: int) -> Layout:
    """Return the layout of numbers along one dimension, or of a single one."""
    sizes = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    return sizes, operands.contiguous_strides(sizes)

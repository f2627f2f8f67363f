"""What oneDNN does with the sums of a product or a convolution before it writes them: functions, and operations with other operands.

Only what makes of nan and infinities what PyTorch makes of them is here. oneDNN's own `relu`, for one, makes 0 of nan; the larger of a
number and 0 (a tensor of one element, as second operand) keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flambeau.backends.cpu import operands
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn.plan import Builder, Descriptor, Memory, Owned

# Functions of one number, by oneDNN's number for them: alpha and beta are what it calls their parameters.
FUNCTIONS = {
    "relu": 0x20, "tanh": 0x21, "elu": 0x22, "square": 0x23, "abs": 0x24, "sqrt": 0x25, "linear": 0x26, "softplus": 0x27,
    "sigmoid": 0x29, "exp": 0x2A, "gelu_tanh": 0x2B, "silu": 0x2C, "clip": 0x2E, "clip_v2": 0x2F, "gelu": 0x31, "mish": 0x33, "hardswish": 0x34,
}  # fmt: skip
OPERATIONS = {"add": 0x1FFF0, "mul": 0x1FFF1, "maximum": 0x1FFF2, "minimum": 0x1FFF3, "div": 0x1FFF4, "sub": 0x1FFF5}


class Step(NamedTuple):
    """A function of `FUNCTIONS` with its numbers; an operation of `OPERATIONS` with a tensor of this layout (shape, strides), or without
    one with the first of the numbers; or "accumulate", which adds what the result held before."""

    kind: str
    numbers: tuple[float, ...] = ()
    layout: tuple[tuple[int, ...], tuple[int, ...]] | None = None


class Attributes:
    """The attributes of one primitive whose results have `rank` dimensions, and what its steps read."""

    def __init__(self, steps: Sequence[Step], rank: int, data_type: int):
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
                given = None if step.layout is not None else np.array(step.numbers[:1], np.float32)
                shape = (1,) * rank if step.layout is None else step.layout[0]
                strides = operands.contiguous_strides(shape) if step.layout is None else step.layout[1]
                kind = data_type if given is None else _FLOAT
                desc = Descriptor.strided(shape, strides, kind)
                lib.call("post_ops_append_binary", made.address, OPERATIONS[step.kind], desc.address)
                self._operands.append((dnnl.ARG_POST_OP * number | dnnl.ARG_SRC_1, desc, given))
        lib.call("primitive_attr_set_post_ops", self.owned.address, made.address)

    def memories(self, build: Builder) -> dict[int, Memory]:
        """Arguments of the primitive: tensors come by pointer, in the order of the steps; numbers are the plan's."""
        return {
            argument: build.user_memory(desc) if given is None else build.constant(desc, given)
            for argument, desc, given in self._operands
        }


_FLOAT = 3

__all__ = ["FUNCTIONS", "OPERATIONS", "Attributes", "Step"]

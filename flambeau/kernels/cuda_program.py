"""Any kernel as a program for NVIDIA GPUs: CUDA C++ text, and how it is launched.

run = make(kernel).bind(device)      # device: see cuda_operands.Device
run(*arguments)                      # what the kernel's parameters stand for: addresses, numbers, geometry as bytes
"""

from __future__ import annotations

from . import cuda_irregular, cuda_long_rows, ir
from .cuda_loops import LoopProgram
from .cuda_maps import MapProgram
from .cuda_reductions import ReduceProgram
from .elementwise import Map


def make(
    kernel: ir.Kernel,
) -> MapProgram | ReduceProgram | LoopProgram | cuda_irregular.TextProgram | cuda_long_rows.LongRows:
    """Write a kernel's CUDA program: formulas and reductions get a GPU's loops; loop kernels are cut into launches as written."""
    if isinstance(kernel.recipe, Map):
        return MapProgram(kernel.recipe)
    if isinstance(kernel.recipe, tuple):
        return ReduceProgram(*kernel.recipe)
    if isinstance(kernel.recipe, ir.LoopCall):
        written = cuda_irregular.program(kernel.recipe, kernel) or cuda_long_rows.program(kernel.recipe, kernel)
        if written is not None:
            return written
    return LoopProgram(kernel)

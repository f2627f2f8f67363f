"""Tells loop kernels how they run on the CPU: compiled, or interpreted where there is no compiler."""

from ...kernels.loops import use_compiler
from . import jit

use_compiler(jit.compile if jit.available() else None)

"""Registration of how loop kernels run on the CPU: compiled, or interpreted without a compiler."""

from ...kernels.loops import use_compiler
from . import jit

use_compiler(jit.compile if jit.available() else None)

"""Flambeau: a deep-learning framework with PyTorch's interface, written in Python.

>>> import flambeau as torch
>>> torch.ones(2, 3).sum()
tensor(6.)
"""

# ruff: noqa: E402, F401

import gc as _gc
import math as _math
import sys as _sys
from pathlib import Path as _Path

_collects = _gc.isenabled()
_gc.disable()  # an import makes next to no garbage: looking for it 170 times would take a fifth of the time
try:
    from . import autograd, ops
finally:
    if _collects:
        # What was made until here is old to the collector, which need not look through it at once.
        if not _gc.get_freeze_count():
            _gc.freeze()
            _gc.unfreeze()
        _gc.enable()

from .autograd import (
    enable_grad,
    inference_mode,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .backends.cpu.threads import get_num_interop_threads, get_num_threads, set_num_interop_threads, set_num_threads
from .compat.former_names import MOVED as _MOVED
from .compat.legacy import STORAGE_TYPES as _STORAGE_TYPES
from .compat.legacy import TENSOR_TYPES as _TENSOR_TYPES
from .compat.legacy import is_storage, set_default_tensor_type, typename
from .core import naming as _naming
from .core.device import default_device as get_default_device
from .core.device import device, set_default_device
from .core.dtype import ALIASES as _DTYPE_ALIASES
from .core.dtype import BY_NAME as _DTYPES
from .core.dtype import dtype
from .core.errors import AcceleratorError, FatalError, OutOfMemoryError
from .core.layout import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    jagged,
    layout,
    memory_format,
    preserve_format,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
    strided,
)
from .core.layout import mkldnn as _mkldnn
from .core.numeric_limits import finfo, iinfo
from .core.overrides import DisableTorchFunctionSubclass
from .core.overrides import disabled_torch_function as _disabled_torch_function_impl
from .core.print_options import get_printoptions, printoptions, set_printoptions
from .core.promotion import get_default_dtype, set_default_dtype
from .core.quantized import SCHEMES as _SCHEMES
from .core.quantized import qscheme
from .core.settings import (
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    get_float32_matmul_precision,
    is_deterministic_algorithms_warn_only_enabled,
    is_warn_always_enabled,
    set_deterministic_debug_mode,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_warn_always,
    use_deterministic_algorithms,
)
from .core.size import Size
from .core.storage import UntypedStorage
from .core.tensor import Tensor
from .core.typed_storage import TypedStorage
from .random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .torch_version import OWN_VERSION as __version__

e, pi, inf, nan = _math.e, _math.pi, _math.inf, _math.nan
newaxis = None
legacy_contiguous_format = contiguous_format

globals().update(_DTYPES)
globals().update(_DTYPE_ALIASES)
globals().update(_SCHEMES)
globals().update(_STORAGE_TYPES)
globals().update(_TENSOR_TYPES)
globals().update(ops.declared("torch"))


# Names that live in modules imported only when they are used, by the names of these modules.
_HOMES = {
    name: home
    for line in (_Path(__file__).parent / "data/homes.txt").read_text().splitlines()
    for home, names in (line.split(": "),)
    for name in names.split()
}

has_lapack = has_openmp = has_spectral = True  # NumPy's LAPACK and FFT; libgomp or threads of our own


def __getattr__(name: str):
    """Import subpackages (nn, optim, linalg, ...) on first use."""
    if name == "Storage":
        return _STORAGE_TYPES["DoubleStorage" if get_default_dtype() is _DTYPES["float64"] else "FloatStorage"]
    if name == "torch" and _naming.is_posing():
        return _sys.modules[__name__]  # PyTorch's package imports itself, and programs write `torch.torch`
    if name in ops.late_names()[0]:
        return _add_late_functions()[name]
    if name == "__all__":
        return [public for public in _add_late_functions() if not public.startswith("_")]
    if name in _HOMES:
        return _naming.attribute(__name__, _HOMES[name], name)
    if name.startswith("_") and name not in _MOVED:
        raise _naming.no_attribute(__name__, name)
    return _naming.submodule(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *ops.late_names()[0]})


def _add_late_functions() -> dict[str, object]:
    """Return the names of this module, including those of operators that are imported on first use."""
    late = _naming.above("ops.late")
    found = ops.namespace("torch") | late.FOREACH | late.PLAIN_FUNCTIONS
    globals().update((name, found[name]) for name in ops.late_names()[0] - globals().keys())
    return globals()

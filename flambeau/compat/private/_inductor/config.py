"""Switches of PyTorch's code generator. Programs may set and read them; they have no effect."""

import functools as _functools
import sys as _sys
from types import SimpleNamespace

from ....core.compile_options import SettingsPatch as _SettingsPatch

coordinate_descent_check_all_directions = False
coordinate_descent_tuning = False
epilogue_fusion = True
force_fuse_int_mm_with_mul = False
fx_graph_cache = True
max_autotune = False
triton = SimpleNamespace(unique_kernel_names=True)

patch = _functools.partial(_SettingsPatch, _sys.modules[__name__])

"""Settings of PyTorch's graph capture. Programs may set and read them; nothing here asks for them."""

import functools as _functools
import sys as _sys

from ....core.compile_options import SettingsPatch as _SettingsPatch

cache_size_limit = 8
capture_scalar_outputs = False
optimize_ddp = True
recompile_limit = 8
skip_fwd_side_effects_in_bwd_under_checkpoint = False
suppress_errors = False
verbose = False

patch = _functools.partial(_SettingsPatch, _sys.modules[__name__])

"""Settings of PyTorch's graph capture. Programs may set and read them; they have no effect."""

import functools as _functools
import sys as _sys
from typing import Any as _Any

from ....core.compile_options import SettingsPatch as _SettingsPatch

accumulated_recompile_limit = 256
cache_size_limit = recompile_limit = 8
assume_static_by_default = automatic_dynamic_shapes = dynamic_shapes = True
inline_inbuilt_nn_modules = optimize_ddp = skip_tensor_guards_with_matching_dict_tags = True
allow_unspec_int_on_nn_module = capture_dynamic_output_shape_ops = capture_scalar_outputs = False
enable_cpp_symbolic_shape_guards = fail_on_recompile_limit_hit = force_disable_caches = False
skip_fwd_side_effects_in_bwd_under_checkpoint = suppress_errors = verbose = wrap_top_frame = False
job_id: _Any = None
log_file_name: _Any = None
reorderable_logging_functions = set[object]()

patch = _functools.partial(_SettingsPatch, _sys.modules[__name__])

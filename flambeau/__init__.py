"""Flambeau: a deep-learning framework with PyTorch's interface, written in Python.

>>> import flambeau as torch
>>> torch.ones(2, 3).sum()
tensor(6.)
"""

# ruff: noqa: E402, F401

import gc as _gc
import math as _math
import sys as _sys

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


# Names that live in modules imported only when they are used.
_HOMES = {
    **dict.fromkeys(("SymBool", "SymFloat", "SymInt"), "symbolic"),
    **dict.fromkeys(
        ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum"), "symbolic"
    ),
    **dict.fromkeys(("compiled_with_cxx11_abi", "get_device_module", "get_file_path"), "compat.installation"),
    **dict.fromkeys(("quantized_gru", "quantized_lstm"), "ops.quantizing.recurrent"),
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_"), "optim.fused_functions"),
    "choose_qparams_optimized": "ops.quantizing.embedding",
    "ScriptObject": "ops.quantizing.packed",
    "Future": "futures",
    "GradScaler": "amp",
    "classes": "library.native",
    "export_library": "cpp.aot",
    "load_library": "cpp.native_model",
    "_disable_dynamo": "compiler",
    "_has_compatible_shallow_copy_type": "core.wrapped",
    "_assert": "symbolic",
    **dict.fromkeys(
        [
            "AnyType",
            "BoolType",
            "ClassType",
            "ComplexType",
            "DeviceObjType",
            "DictType",
            "EnumType",
            "FloatType",
            "FutureType",
            "IntType",
            "InterfaceType",
            "ListType",
            "NoneType",
            "NumberType",
            "OptionalType",
            "StreamObjType",
            "StringType",
            "TensorType",
            "TupleType",
            "UnionType",
            "Graph",
            "Node",
            "Block",
            "Value",
            "CompilationUnit",
            "ScriptFunction",
            "ScriptMethod",
            "ScriptList",
            "ScriptDict",
            "DisableTorchFunction",
            "Tag",
        ],
        "compat.private._C",
    ),
    **dict.fromkeys(
        [
            "AVG",
            "AggregationType",
            "AliasDb",
            "Argument",
            "ArgumentSpec",
            "AwaitType",
            "BenchmarkConfig",
            "BenchmarkExecutionStats",
            "BufferDict",
            "CallStack",
            "Capsule",
            "Code",
            "CompleteArgumentSpec",
            "ConcreteModuleType",
            "ConcreteModuleTypeBuilder",
            "DeepCopyMemoTable",
            "DeserializationStorageContext",
            "DispatchKey",
            "DispatchKeySet",
            "ErrorReport",
            "ExcludeDispatchKeyGuard",
            "ExecutionPlan",
            "FileCheck",
            "FunctionSchema",
            "Gradient",
            "GraphExecutorState",
            "IODescriptor",
            "InferredType",
            "JITException",
            "LiteScriptModule",
            "LockingLogger",
            "LoggerBase",
            "ModuleDict",
            "NoopLogger",
            "OperatorInfo",
            "PRIVATE_OPS",
            "ParameterDict",
            "PyObjectType",
            "PyTorchFileWriter",
            "RRefType",
            "SUM",
            "ScriptClass",
            "ScriptClassFunction",
            "ScriptDictIterator",
            "ScriptDictKeyIterator",
            "ScriptListIterator",
            "ScriptModuleSerializer",
            "ScriptObjectProperty",
            "SerializationStorageContext",
            "StaticModule",
            "StorageBase",
            "SymBoolType",
            "SymIntType",
            "TYPE_CHECKING",
            "TracingState",
            "Type",
            "USE_GLOBAL_DEPS",
            "USE_RTLD_GLOBAL_WITH_LIBTORCH",
            "Use",
            "batch_norm_backward_elemt",
            "batch_norm_backward_reduce",
            "batch_norm_elemt",
            "batch_norm_gather_stats",
            "batch_norm_gather_stats_with_counts",
            "batch_norm_stats",
            "batch_norm_update_stats",
            "classproperty",
            "cudnn_affine_grid_generator",
            "cudnn_batch_norm",
            "cudnn_convolution",
            "cudnn_convolution_add_relu",
            "cudnn_convolution_relu",
            "cudnn_convolution_transpose",
            "cudnn_grid_sampler",
            "cudnn_is_acceptable",
            "fbgemm_linear_fp16_weight",
            "fbgemm_linear_fp16_weight_fp32_activation",
            "fbgemm_linear_int8_weight",
            "fbgemm_linear_int8_weight_fp32_activation",
            "fbgemm_linear_quantize_weight",
            "fbgemm_pack_gemm_matrix_fp16",
            "fbgemm_pack_quantized_matrix",
            "get_autocast_ipu_dtype",
            "get_autocast_xla_dtype",
            "has_mkl",
            "import_ir_module",
            "import_ir_module_from_buffer",
            "indices_copy",
            "init_num_threads",
            "is_autocast_ipu_enabled",
            "is_autocast_xla_enabled",
            "is_vulkan_available",
            "merge_type_from_type_comment",
            "miopen_batch_norm",
            "miopen_convolution",
            "miopen_convolution_add_relu",
            "miopen_convolution_relu",
            "miopen_convolution_transpose",
            "miopen_ctc_loss",
            "miopen_depthwise_convolution",
            "miopen_rnn",
            "mkldnn_adaptive_avg_pool2d",
            "mkldnn_convolution",
            "mkldnn_linear_backward_weights",
            "mkldnn_max_pool2d",
            "mkldnn_max_pool3d",
            "mkldnn_rnn_layer",
            "native_norm",
            "parse_ir",
            "parse_schema",
            "parse_type_comment",
            "prepare_multiprocessing_environment",
            "profiler_allow_cudagraph_cupti_lazy_reinit_cuda12",
            "set_autocast_ipu_dtype",
            "set_autocast_ipu_enabled",
            "set_autocast_xla_dtype",
            "set_autocast_xla_enabled",
            "sym_constrain_range",
            "sym_constrain_range_for_size",
            "sym_fresh_size",
            "unify_type_list",
            "values_copy",
            "_assert_async",
            "_shape_as_tensor",
        ],
        "compat.private.entry_points",
    ),
    **dict.fromkeys(
        [
            "_check",
            "_check_index",
            "_check_is_size",
            "_check_not_implemented",
            "_check_tensor_all",
            "_check_tensor_all_with",
            "_check_type",
            "_check_value",
            "_check_with",
        ],
        "core.checks",
    ),
    **dict.fromkeys(
        (
            "_nested_compute_contiguous_strides_offsets",
            "_nested_view_from_buffer",
            "_nested_from_padded",
            "_nested_from_padded_and_nested_example",
            "_nested_tensor_from_mask",
        ),
        "ops.kinds.strided_rows",
    ),
    **dict.fromkeys(("fork", "wait"), "jit"),
    "set_anomaly_enabled": "autograd.grad_mode",
    "thread_safe_generator": "random",
    "to_dlpack": "utils.dlpack",
    "while_loop": "library.higher_order",
    **dict.fromkeys(("Event", "Stream"), "accelerator"),
    "PyTorchFileReader": "serialization.archive",
    "ScriptModule": "jit",
    "autocast": "amp",
    "compile": "compiler",
    "cond": "library.higher_order",
    "install_as_torch": "compat.as_torch.posing",
    "load": "serialization",
    "save": "serialization",
    "vmap": "func",
    **dict.fromkeys(
        [
            "autocast_decrement_nesting",
            "autocast_increment_nesting",
            "clear_autocast_cache",
            "get_autocast_cpu_dtype",
            "get_autocast_dtype",
            "get_autocast_gpu_dtype",
            "is_autocast_cache_enabled",
            "is_autocast_cpu_enabled",
            "is_autocast_enabled",
            "set_autocast_cache_enabled",
            "set_autocast_cpu_dtype",
            "set_autocast_cpu_enabled",
            "set_autocast_dtype",
            "set_autocast_enabled",
            "set_autocast_gpu_dtype",
        ],
        "amp.state",
    ),
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

"""Names of PyTorch's implementation: C++ classes behind TorchScript, entry points of one library's kernels, devices of other vendors.
Programs may compare with them and import them; calling one raises an error that names the alternative."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

from ...core import dtype as _dt
from ...core.absent import absent_classes, raising, returning
from ...core.storage import UntypedStorage
from ...jit.failures import Error
from ...jit.schema import Argument as Argument
from ...jit.schema import Schema
from ...jit.schema import parse_schema as parse_schema
from ...jit.types import Type as Type
from ...ops.creation.construct import tensor
from ...serialization.archive import ArchiveWriter
from ...testing.file_check import FileCheck as FileCheck

StorageBase = UntypedStorage  # the base of PyTorch's, which has one class more
JITException, FunctionSchema = Error, Schema
AggregationType = Enum("AggregationType", "SUM AVG", start=0)  # how counters of a JIT logger are joined
SUM, AVG = AggregationType
AggregationType.__doc__ = "How the counters of a TorchScript logger are joined."
DispatchKey = Enum(
    "DispatchKey", "Undefined CPU CUDA Meta Autograd AutogradCPU AutogradCUDA CompositeImplicitAutograd", start=0
)
DispatchKey.__doc__ = "PyTorch's names of the places where an operator may have a kernel."
PRIVATE_OPS = ("unique_dim",)
TYPE_CHECKING = USE_RTLD_GLOBAL_WITH_LIBTORCH = has_mkl = False
USE_GLOBAL_DEPS = True


class PyTorchFileWriter(ArchiveWriter):
    """PyTorch's writer of its zip files: `write_record(name, data, size)` for each part, then `write_end_of_file()`."""

    def __init__(self, file_name_or_buffer: Any, compute_crc32: bool = True, storage_alignment: int = 64):
        opened = hasattr(file_name_or_buffer, "write")
        self._own = None if opened else Path(file_name_or_buffer).open("wb")  # noqa: SIM115  closed with the archive
        root = "archive" if opened else Path(file_name_or_buffer).stem
        super().__init__(file_name_or_buffer if opened else self._own, root)

    def set_min_version(self, version: int) -> None:
        """Do nothing: written files are readable by every version of PyTorch that reads zip files."""

    def write_end_of_file(self) -> None:
        super().write_end_of_file()
        if self._own is not None:
            self._own.close()


class _ClassProperty:
    """A property of a class: `function(cls)` is called at each access."""

    def __init__(self, func: Any):
        self.func = func

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.func(owner)


classproperty = _ClassProperty

globals().update(
    absent_classes(
        "AliasDb ArgumentSpec AwaitType BenchmarkConfig BenchmarkExecutionStats BufferDict CallStack Capsule Code"
        " CompleteArgumentSpec ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable DeserializationStorageContext"
        " DispatchKeySet ErrorReport ExcludeDispatchKeyGuard ExecutionPlan Gradient GraphExecutorState IODescriptor InferredType"
        " LiteScriptModule LockingLogger LoggerBase ModuleDict NoopLogger OperatorInfo ParameterDict PyObjectType RRefType ScriptClass"
        " ScriptClassFunction ScriptDictIterator ScriptDictKeyIterator ScriptListIterator ScriptModuleSerializer"
        " ScriptObjectProperty SerializationStorageContext StaticModule SymBoolType SymIntType TracingState Use",
        "torch.{} is a C++ class of PyTorch's own; TorchScript is Python here (flambeau.jit)",
        NotImplementedError,
    )
)
globals().update(
    raising(
        "import_ir_module import_ir_module_from_buffer merge_type_from_type_comment parse_ir parse_type_comment unify_type_list",
        NotImplementedError,
        "torch.{}() is a C++ function of PyTorch's own; TorchScript is Python here (flambeau.jit)",
    )
)
globals().update(
    raising(
        "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats"
        " batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats cudnn_affine_grid_generator cudnn_batch_norm"
        " cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose cudnn_grid_sampler"
        " fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight"
        " fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16"
        " fbgemm_pack_quantized_matrix miopen_batch_norm miopen_convolution miopen_convolution_add_relu miopen_convolution_relu"
        " miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d"
        " mkldnn_convolution mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer native_norm",
        NotImplementedError,
        "torch.{}() is the entry point of one library's kernel; call the operator itself, whose kernel is chosen by its device",
    )
)
_NO_DEVICE = "there is no such device."
globals().update(
    returning(
        "is_autocast_ipu_enabled is_autocast_xla_enabled is_vulkan_available cudnn_is_acceptable", bool, _NO_DEVICE
    )
)
globals().update(returning("get_autocast_ipu_dtype", lambda: _dt.float16, _NO_DEVICE))
globals().update(returning("get_autocast_xla_dtype", lambda: _dt.bfloat16, _NO_DEVICE))
globals().update(
    raising(
        "set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled",
        RuntimeError,
        "torch.{}(): there is no such device",
    )
)
globals().update(
    returning(
        "init_num_threads prepare_multiprocessing_environment profiler_allow_cudagraph_cupti_lazy_reinit_cuda12",
        lambda: None,
        "there is nothing to prepare.",
    )
)


def sym_constrain_range(size: Any, **bounds: int | None) -> None:
    """Check that a number read from a tensor is between `min` and `max`."""
    least, most = bounds.get("min"), bounds.get("max")
    if (least is not None and size < least) or (most is not None and size > most):
        raise RuntimeError(f"Invalid value range for {size} between [{least}, {most}].")


def sym_constrain_range_for_size(size: Any, **bounds: int | None) -> None:
    """Check a number that is used as a size: it must also be at least 0."""
    sym_constrain_range(size, min=bounds.get("min") or 0, max=bounds.get("max"))


def sym_fresh_size(expr: Any) -> Any:
    """Return the size: all sizes are known here."""
    return int(expr)


def indices_copy(input: Any) -> Any:
    """Return a copy of a sparse tensor's indices."""
    return input.indices().clone()


def values_copy(input: Any) -> Any:
    """Return a copy of a sparse tensor's values."""
    return input.values().clone()


def _shape_as_tensor(input: Any) -> Any:
    """Return the sizes of a tensor as a tensor."""
    return tensor(list(input.shape), dtype=_dt.int64)


def _assert_async(input: Any, assert_msg: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """Raise an error if the tensor, of one element, is zero. PyTorch checks this on a GPU asynchronously; this waits."""
    if input.numel() != 1:
        raise RuntimeError(f"Expected a Tensor with a single value, but got one of shape {list(input.shape)}")
    if not input.item():
        raise RuntimeError(assert_msg)


def inline_asm_elementwise(
    *inputs: Any, asm_str: str, constraints: str, dtype: Any, is_pure: bool = True, pack: int = 1
) -> Any:
    """Raise an error: this belongs to PyTorch's compiler; use `torch.cuda.jiterator` or an extension instead."""
    raise NotImplementedError(
        "inline_asm_elementwise is a part of PyTorch's compiler; write the kernel as an extension"
    )


globals().update(
    raising(
        "_root_pre_forward",
        NotImplementedError,
        "fsdp._runtime_utils.{} is an inner step of PyTorch's FSDP; call the module",
    )
)
globals().update(
    raising(
        "apply_random_seed apply_sharding apply_shuffle_settings get_all_graph_pipes",
        NotImplementedError,
        "graph_settings.{} is about data pipes, which are not in Flambeau: use utils.data.IterableDataset",
    )
)
globals().update(
    absent_classes(
        "IterDataPipe MapDataPipe ShufflerIterDataPipe",
        "{}: data pipes are not in Flambeau; use utils.data.IterableDataset",
    )
)
globals().update(
    absent_classes("IntInfinity ValueRanges", "{} is SymPy's part of PyTorch's compiler; sizes are ints here")
)
globals().update(
    raising(
        "dropout masked_fill softmax",
        NotImplementedError,
        "the symbolic function {} makes nodes of PyTorch's own ONNX exporter; onnx.export finds operators by their records",
    )
)

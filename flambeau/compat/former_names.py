"""Further names of modules: one table, and the finder that serves it.

PyTorch moves its modules and keeps the former names; programs import both. Its private modules, which programs import, too, are in
`compat.private`. The finder answers for names under this package alone.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..core import naming

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # what `importlib.abc` itself imports in Python 3.11, tempfile and 15 more, is not needed for them
    Loader = MetaPathFinder = object


def _same_names(further: str, home: str, names: str) -> dict[str, str]:
    return {further + name: home + name for name in names.split()}


def _in_one(package: str, parts: str) -> dict[str, str]:
    """Map the parts that a package has in PyTorch to the package itself."""
    return {f"{package}.{part}": package for part in parts.split()}


# Modules and packages, with all that is in them, by the further name: both names give one module object.
MOVED = {
    **_same_names(
        "",
        "compat.private.",
        "_C _VF __config__ __future__ _custom_op _dynamo _higher_order_ops _inductor"
        " _functorch _guards _jit_internal _library _ops _prims_common _subclasses _tensor _tensor_str _utils",
    ),
    **_same_names(
        "backends.", "compat.switches.", "cuda cudnn cusparselt mha mkldnn mps nnpack openmp opt_einsum quantized"
    ),
    "autograd.profiler": "profiler.session",
    "autograd.profiler_util": "profiler.events",
    "backends.kleidiai": "compat.switches.unused",
    "backends.mkl": "compat.switches.unused",
    "compat.private._dynamo.exc": "core.compile_options",
    "compat.private._functorch.vmap": "func.mapping",
    "compiler.config": "compat.private._dynamo.config",
    "distributed._tensor": "distributed.tensor",
    "distributed._tensor.api": "distributed.tensor",
    "distributed._tensor.device_mesh": "distributed.device_mesh",
    "distributed.tensor.device_mesh": "distributed.device_mesh",
    "fx.experimental.proxy_tensor": "export.proxy_tensor",
    "horovod.torch.mpi_ops": "horovod.torch.operations",
    "nn.intrinsic": "ao.nn.intrinsic",
    "nn.parallel.distributed": "distributed.data_parallel",
    "nn.qat": "ao.nn.qat",
    "nn.quantizable": "ao.nn.quantizable",
    "nn.quantized": "ao.nn.quantized",
    "profiler.ranks": "distributed.memory_of_ranks",
    "quantization": "ao.quantization",
    "serve.archive": "serve.archive_reader",
    "utils.bottleneck": "profiler.bottleneck",
    "utils.flop_counter": "profiler.flop_counter",
    **_in_one("cpu.amp", "autocast_mode grad_scaler"),
    **_in_one(
        "serve.ts.metrics",
        "caching_metric dimension metric metric_cache_errors metric_cache_yaml_impl metric_type_enum unit",
    ),
    **_in_one("serve.ts.torch_handler.request_envelope", "base body json kserve kservev2"),
}
# Modules that only gather names of others: "home: name name, home: further=name".
GATHERED = {
    "accelerator.memory": "accelerator: empty_cache empty_host_cache get_memory_info max_memory_allocated max_memory_reserved"
    " memory_allocated memory_reserved memory_stats reset_accumulated_memory_stats reset_peak_memory_stats",
    "ao.quantization.backend_config.fbgemm": "ao.quantization.backend_config.native: get_fbgemm_backend_config",
    "ao.quantization.backend_config.qnnpack": "ao.quantization.backend_config.native: get_qnnpack_backend_config",
    "ao.quantization.backend_config.x86": "ao.quantization.backend_config.native: get_x86_backend_config",
    "ao.quantization.fx.lower_to_fbgemm": "ao.quantization.fx._lower_to_native_backend: lower_to_fbgemm=_lower_to_native_backend",
    "ao.quantization.fx.pattern_utils": "ao.quantization.fx.match_utils: _sorted_patterns_dict",
    "autograd.anomaly_mode": "autograd.grad_mode: detect_anomaly set_detect_anomaly",
    "compat.private._C._distributed_rpc": "distributed.rpc: PyRRef=RRef RpcBackendOptions WorkerInfo _is_current_rpc_agent_set",
    "compat.private._functorch": "func: functional_call grad grad_and_value hessian jacfwd jacrev jvp linearize vjp vmap",
    "compat.private._functorch.apis": "func: grad grad_and_value vmap",
    "compat.private._functorch.eager_transforms": "func: hessian jacfwd jacrev jvp linearize vjp",
    "compat.private._higher_order_ops.inline_asm_elementwise": "compat.private.entry_points: inline_asm_elementwise",
    "compat.private._guards": "compat.private.fake_tensors: TracingContext active_fake_mode detect_fake_mode",
    "compat.private._inductor.cpp_builder": "utils.cpp_extension: get_cxx_compiler",
    "compat.private._inductor.cpu_vec_isa": "compat.private.fake_tensors: valid_vec_isa_list",
    "compat.private._inductor.runtime": "",
    "compat.private._library": "",
    "compat.private._library.infer_schema": "library: infer_schema",
    "compat.private._ops": "library.higher_order: HigherOrderOperator, library.aten: OpOverload OpOverloadPacket, : ops",
    "compat.private._subclasses": "compat.private.fake_tensors: FakeTensor FakeTensorMode",
    "compat.private._subclasses.fake_tensor": "compat.private.fake_tensors: FakeTensor FakeTensorMode is_fake unset_fake_temporarily",
    "compat.private._subclasses.functional_tensor": "compat.private.fake_tensors: FunctionalTensor",
    "compat.private._tensor": "core.tensor: Tensor, serialization.rebuild: _rebuild_from_type_v2=from_type",
    "cuda.green_contexts": "cuda: GreenContext",
    "cuda.sparse": "",
    "cuda.streams": "cuda: Event ExternalStream Stream",
    "distributed._sharded_tensor": "distributed._shard.sharded_tensor: Shard ShardedTensor",
    "distributed.checkpoint._async_process_executor": "distributed.checkpoint._async_executor: _ProcessBasedAsyncCheckpointExecutor",
    "distributed.checkpoint._async_thread_executor": "distributed.checkpoint._async_executor: _ThreadBasedAsyncCheckpointExecutor",
    "distributed.constants": "distributed.options: default_pg_timeout, distributed.rendezvous: default_pg_nccl_timeout",
    "distributed.elastic.rendezvous.registry": "distributed.elastic.rendezvous.api: get_rendezvous_handler rendezvous_handler_registry",
    "distributed.fsdp._runtime_utils": "compat.private.entry_points: _root_pre_forward",
    "distributed.fsdp._unshard_param_utils": "distributed.fsdp._common_utils: FLAT_PARAM",
    "distributed.tensor._ops._math_ops": "distributed.tensor.placement_types: _NormPartial",
    "distributed.tensor.experimental._attention": "distributed.tensor.experimental._context_parallel._attention: _CausalBehavior"
    " _context_parallel_shard _ContextParallel _cp_options _disable_context_parallel_dispatcher _enable_context_parallel_dispatcher"
    " _is_causal_behavior _RotateMethod context_parallel context_parallel_unshard set_rotate_method,"
    " distributed.tensor.experimental._context_parallel._load_balancer: _HeadTailLoadBalancer _LoadBalancer"
    " _PerDocumentHeadTailLoadBalancer _PTRRLoadBalancer",
    "export.decomp_utils": "export.decompositions: CustomDecompTable",
    "fx.experimental.symbolic_shapes": "core.compile_options: ConstraintViolationError, symbolic: ShapeEnv SymTypes guard_or_false=sym_bool guard_or_true=sym_bool has_free_symbols is_concrete_int is_nested_int statically_known_true=sym_bool",
    "jit.frontend": "jit.source: FrontendError NotSupportedError UnsupportedNodeError",
    "mps.event": "mps: Event",
    "mps.profiler": "mps: is_capturing_metal=_is_capturing_metal is_metal_capture_enabled=_is_metal_capture_enabled"
    " metal_capture=_metal_capture profile=_profile start=_start stop=_stop",
    "mtia.memory": "mtia: max_memory_allocated memory_allocated memory_stats reset_peak_memory_stats",
    "mtia.mtia_graph": "mtia: MTIAGraph graph graph_pool_handle",
    "nested._internal": "",
    "nested._internal.nested_int": "core.jagged: NestedIntNode",
    "nested._internal.nested_tensor": "core.jagged: NestedTensor, nested: ViewNestedFromBuffer=_ViewNestedFromBuffer"
    " buffer_from_jagged=_buffer_from_jagged jagged_from_list=_jagged_from_list jagged_from_tensor_and_lengths=_jagged_from_lengths"
    " nested_from_padded=_from_padded"
    " nested_view_from_values_offsets=_view nested_view_from_values_offsets_lengths=_view",
    "nested._internal.ops": "compat.private.fake_tensors: extract_kwargs",
    "onnx.symbolic_opset12": "compat.private.entry_points: dropout",
    "onnx.symbolic_opset9": "compat.private.entry_points: dropout masked_fill softmax",
    "serve.ts.protocol.otf_message_handler": "serve.ts.handler_utils.utils: send_intermediate_predict_response",
    "utils._dtype_abbrs": "core.dtype: dtype_abbrs=ABBREVIATIONS",
    "utils._sympy": "",
    "utils._sympy.numbers": "compat.private.entry_points: IntInfinity",
    "utils._sympy.value_ranges": "compat.private.entry_points: ValueRanges",
    "utils.data.datapipes": "",
    "utils.data.datapipes.datapipe": "compat.private.entry_points: IterDataPipe MapDataPipe",
    "utils.data.datapipes.iter": "",
    "utils.data.datapipes.iter.combinatorics": "compat.private.entry_points: ShufflerIterDataPipe",
    "utils.data.graph_settings": "compat.private.entry_points: apply_random_seed apply_sharding apply_shuffle_settings"
    " get_all_graph_pipes",
    "utils._foreach_utils": "optim.optimizer: _group_tensors_by_device_and_dtype",
    "utils._contextlib": "autograd.grad_mode: _DecoratorContextManager _NoParamDecoratorContextManager=_NoArguments",
    "utils.model_zoo": "hub: load_url=load_state_dict_from_url tqdm",
    "utils.tensorboard.summary": "utils.tensorboard.more_summaries: hparams",
    "vision._internally_replaced_utils": "hub: load_state_dict_from_url",
    "vision.datasets.video_utils": "vision.datasets.video: VideoClips unfold",
    "vision.models.mobilenet": "vision.models.mobilenetv2: MobileNetV2 MobileNet_V2_Weights mobilenet_v2, vision.models.mobilenetv3: MobileNetV3"
    " MobileNet_V3_Large_Weights MobileNet_V3_Small_Weights mobilenet_v3_large mobilenet_v3_small",
    "vision.models.quantization.mobilenet": "vision.models.quantization.mobilenetv2: MobileNet_V2_QuantizedWeights QuantizableMobileNetV2"
    " mobilenet_v2, vision.models.quantization.mobilenetv3: MobileNet_V3_Large_QuantizedWeights QuantizableMobileNetV3 mobilenet_v3_large",
    "vision.ops.ciou_loss": "vision.ops._losses: complete_box_iou_loss",
    "vision.ops.diou_loss": "vision.ops._losses: distance_box_iou_loss",
    "vision.ops.focal_loss": "vision.ops._losses: sigmoid_focal_loss",
    "vision.ops.giou_loss": "vision.ops._losses: generalized_box_iou_loss",
    "vision.ops.ps_roi_align": "vision.ops.roi_align: PSRoIAlign ps_roi_align",
    "vision.ops.ps_roi_pool": "vision.ops.roi_pool: PSRoIPool ps_roi_pool",
    "vision.transforms._functional_pil": "utils.pillow: _is_pil_image=is_pil, vision.transforms.functional: adjust_brightness adjust_contrast"
    " adjust_gamma adjust_hue adjust_saturation adjust_sharpness autocontrast crop equalize get_dimensions get_image_num_channels"
    " get_image_size hflip invert pad posterize resize rotate solarize to_grayscale vflip,"
    " vision.transforms.kernels.pil: _parse_fill=fill_option affine perspective",
    "vision.transforms._functional_tensor": "vision.transforms.functional: adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation"
    " adjust_sharpness autocontrast convert_image_dtype crop equalize erase get_dimensions get_image_num_channels get_image_size hflip"
    " invert normalize posterize rgb_to_grayscale solarize vflip",
    "vision.transforms.v2._utils": "vision.transforms.v2._transform: _parse_labels_getter=parse_labels_getter _setup_size=setup_size check_type"
    " get_bounding_boxes get_keypoints has_all has_any is_pure_tensor query_chw query_size",
    "vision.transforms.v2.functional._utils": "vision.transforms.v2.functional: is_pure_tensor register_kernel",
    "xpu.graphs": "xpu: XPUGraph graph graph_pool_handle is_current_stream_capturing make_graphed_callables",
    "xpu.memory": "xpu: MemPool XPUPluggableAllocator change_current_allocator empty_cache get_per_process_memory_fraction"
    " max_memory_allocated max_memory_reserved mem_get_info memory_allocated memory_reserved memory_snapshot memory_stats"
    " memory_stats_as_nested_dict reset_accumulated_memory_stats reset_peak_memory_stats set_per_process_memory_fraction use_mem_pool",
    "xpu.random": "xpu: get_rng_state get_rng_state_all initial_seed manual_seed manual_seed_all seed seed_all set_rng_state"
    " set_rng_state_all",
    "xpu.streams": "xpu: Event Stream",
}

# Modules of PyTorch that are one here, with the classes that each defines, by the home of all: "module: class class, module: class".
TOGETHER = {
    "distributed.algorithms.model_averaging": "model_averaging.averagers: ModelAverager PeriodicModelAverager,"
    " model_averaging.hierarchical_model_averager: HierarchicalModelAverager, model_averaging.utils:",
    "distributions.counts": "bernoulli: Bernoulli, binomial: Binomial, categorical: Categorical, geometric: Geometric,"
    " mixture_same_family: MixtureSameFamily, multinomial: Multinomial, negative_binomial: NegativeBinomial,"
    " one_hot_categorical: OneHotCategorical OneHotCategoricalStraightThrough, poisson: Poisson",
    "distributions.derived": "independent: Independent, transformed_distribution: TransformedDistribution",
    "distributions.distribution": "exp_family: ExponentialFamily",
    "distributions.intervals": "beta: Beta, continuous_bernoulli: ContinuousBernoulli, dirichlet: Dirichlet,"
    " kumaraswamy: Kumaraswamy, uniform: Uniform",
    "distributions.location_scale": "cauchy: Cauchy, gumbel: Gumbel, half_cauchy: HalfCauchy, half_normal: HalfNormal,"
    " laplace: Laplace, log_normal: LogNormal, logistic_normal: LogisticNormal, normal: Normal, studentT: StudentT,"
    " von_mises: VonMises",
    "distributions.matrices": "lkj_cholesky: LKJCholesky, lowrank_multivariate_normal: LowRankMultivariateNormal,"
    " multivariate_normal: MultivariateNormal, wishart: Wishart",
    "distributions.positive": "chi2: Chi2, exponential: Exponential, fishersnedecor: FisherSnedecor, gamma: Gamma,"
    " generalized_pareto: GeneralizedPareto, inverse_gamma: InverseGamma, pareto: Pareto, weibull: Weibull",
    "distributions.relaxed": "relaxed_bernoulli: LogitRelaxedBernoulli RelaxedBernoulli, relaxed_categorical:"
    " ExpRelaxedCategorical RelaxedOneHotCategorical",
    "optim.adagrad": "adadelta: Adadelta, asgd: ASGD, rmsprop: RMSprop, rprop: Rprop",
    "optim.adam": "adamax: Adamax, adamw: AdamW, nadam: NAdam, radam: RAdam",
}


def _parts(home: str, entry: str) -> dict[str, list[str]]:
    split = (part.partition(":") for part in entry.split(","))
    return {f"{home.rpartition('.')[0]}.{name.strip()}": kinds.split() for name, _, kinds in split}


# By home, then by PyTorch's module: the classes that are defined there.
PARTS = {home: _parts(home, entry) for home, entry in TOGETHER.items()}
MOVED |= {part: home for home, parts in PARTS.items() for part in parts}


def settle(module: str) -> None:
    """Set the modules of the names that a module of `TOGETHER` defines to PyTorch's, for messages and pickles, and add the parts to the
    packages.

    Called at the end of the module: `settle(__name__)`."""
    here = sys.modules[module]
    for part, names in PARTS[module[len(naming.PACKAGE) + 1 :]].items():
        package, _, last = f"{naming.PACKAGE}.{part}".rpartition(".")
        vars(sys.modules[package]).setdefault(last, here)
        for name in names:
            getattr(here, name).__module__ = f"{package}.{last}"


class AliasLoader(Loader):
    """Loader of a module of this package, unchanged, under a second name."""

    def __init__(self, real_name: str):
        self.real_name = real_name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = naming.load(self.real_name)
        self.real_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.real_spec  # the import system has just replaced it by the alias's

    def get_code(self, fullname: str) -> Any:
        """Return the module's code, for `python -m second.name`."""
        real = importlib.util.find_spec(self.real_name)
        return real.loader.get_code(self.real_name) if real is not None else None  # type: ignore[union-attr]


class _Gatherer(Loader):
    """Loader that makes a module of names from others."""

    def __init__(self, entry: str):
        self.entry = entry

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Return None: Python makes the module."""

    def exec_module(self, module: ModuleType) -> None:
        gathered: dict[str, Any] = {}
        for part in self.entry.split(",") if self.entry else ():
            home, _, names = part.partition(":")
            found = naming.load(f"{naming.PACKAGE}.{home.strip()}".rstrip("."))
            for name in names.split():
                here, _, there = name.partition("=")
                gathered[here] = getattr(found, there or here)
        about = "Where PyTorch has " + ", ".join(f"`{name}`" for name in gathered) + "."
        below = functools.partial(naming.submodule, module.__name__)
        vars(module).update(gathered, __all__=list(gathered), __doc__=about, __getattr__=below)


def spec_of(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """Return the import system's spec of the module of a further name; None for other names."""
    name = fullname[len(naming.PACKAGE) + 1 :]
    if name in GATHERED:  # a package, so that others can be gathered below it
        return importlib.machinery.ModuleSpec(
            fullname, _Gatherer(GATHERED[name]), origin=naming.PACKAGE, is_package=True
        )
    head, rest = name, ""
    while head and head not in MOVED:
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    if not head:
        return None
    real_name = f"{naming.PACKAGE}.{MOVED[head]}{rest}"
    try:
        if real_name not in sys.modules and importlib.util.find_spec(real_name) is None:
            return None
    except ModuleNotFoundError as error:  # of a package around it
        if not real_name.startswith(f"{error.name}."):
            raise
        return None
    return importlib.machinery.ModuleSpec(fullname, AliasLoader(real_name), origin=naming.PACKAGE)


class FormerNames(MetaPathFinder):
    """Finder of modules by their further names. It precedes the finder of files, which would load the parts of a package a second time under
    its second name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return spec_of(fullname) if fullname.startswith(f"{naming.PACKAGE}.") else None


def install() -> None:
    """Install the finder that imports the modules of the table."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())

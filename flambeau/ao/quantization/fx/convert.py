"""Conversion of prepared models: each observer becomes a quantize and a dequantize, each layer its reference form."""

from __future__ import annotations

import copy
import operator
import warnings
from typing import Any

import flambeau as torch

from .... import nn
from ....core import naming
from ....fx import Graph, GraphModule, Node
from ....nn.modules.rnn import RNNCellBase
from ....nn.utils.parametrize import type_before_parametrizations
from ...nn.intrinsic import _FusedModule
from ..backend_config import BackendConfig, get_native_backend_config
from ..backend_config.utils import (
    get_fused_module_classes,
    get_pattern_to_dtype_configs,
    get_qat_module_classes,
    get_root_module_to_quantized_reference_module,
)
from ..observer import _is_activation_post_process
from ..qconfig import QConfigAny, qconfig_equals
from ..qconfig_mapping import QConfigMapping
from ..quantize import _remove_qconfig
from ..stubs import DeQuantStub
from ..utils import (
    _parent_name,
    activation_is_statically_quantized,
    get_qparam_dict,
    get_swapped_custom_module_class,
    is_per_channel,
    to_underlying_dtype,
    weight_is_quantized,
)
from ._equalize import equalize
from .custom_config import ConvertCustomConfig
from .fuse import from_former_dict
from .graph_module import _KEY, _is_observed_standalone_module, observed_attrs
from .lower_to_fbgemm import lower_to_fbgemm
from .qconfig_mapping_utils import (
    _compare_prepare_convert_qconfig_mappings,
    _generate_node_name_to_qconfig,
    _is_qconfig_supported_by_dtype_configs,
    _update_qconfig_for_fusion,
    _update_qconfig_for_qat,
)
from .utils import (
    _get_module,
    _is_custom_module_lstm,
    _is_custom_module_mha,
    assert_and_get_unique_device,
    collect_producer_nodes,
    create_getattr_from_value,
    get_custom_module_class_keys,
    graph_module_from_producer_nodes,
    node_arg_is_weight,
)

__all__ = ["convert"]

SUPPORTED_QDTYPES = (
    torch.quint8, torch.qint8, torch.qint32, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32,
    torch.float8_e5m2, torch.float8_e4m3fn,
)  # fmt: skip
_QUANTIZED = (torch.quint8, torch.qint8, torch.qint32)


def _is_dequantize(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_method" and node.target == "dequantize"


def _insert_dequantize_node(node: Node, graph: Graph) -> None:
    with graph.inserting_after(node):
        dequantize = graph.call_method("dequantize", (node,))
    for user in dict(node.users):
        if user is not dequantize:
            user.replace_input_with(node, dequantize)


def _maybe_recursive_remove_dequantize(arg: Any, node: Node) -> None:
    if _is_dequantize(arg):
        node.replace_input_with(arg, arg.args[0])
    elif isinstance(arg, (list, tuple)):
        for one in arg:
            _maybe_recursive_remove_dequantize(one, node)
    elif isinstance(arg, dict):
        for one in arg.values():
            _maybe_recursive_remove_dequantize(one, node)
    else:
        warnings.warn(f"Unsupported node type in recursive remove dequantize: {type(arg)}", stacklevel=2)


def _run_weight_observers(model: GraphModule) -> None:
    """Run the observers of weights that do not depend on the model's inputs."""
    for node in model.graph.nodes:
        if node.op != "call_function":
            continue
        for arg in node.args:
            if isinstance(arg, Node) and node_arg_is_weight(node, arg):
                producers = collect_producer_nodes(arg)
                if producers is not None:
                    graph_module_from_producer_nodes(model, producers)()


class _Conversion:
    """Conversion of a prepared model."""

    def __init__(
        self, model: GraphModule, modules: dict[str, Any], qconfigs: dict[str, QConfigAny], backend: BackendConfig, decomposed: bool
    ):  # fmt: skip
        self.decomposed = decomposed  # into plain tensors of whole numbers
        attrs = observed_attrs(model)
        assert attrs is not None
        self.model, self.graph, self.modules = model, model.graph, modules
        self.qconfigs, self.backend, self.attrs = qconfigs, backend, attrs
        self.device = assert_and_get_unique_device(model)
        self.references = get_root_module_to_quantized_reference_module(backend)
        self.trained = get_qat_module_classes(backend)
        self.static_custom: set[Node] = set()

    def replace_module(self, node: Node, module: Any) -> None:
        parent, name = _parent_name(str(node.target))
        setattr(self.modules[parent], name, module)

    def _has_none_qconfig(self, node: Any) -> bool:
        return isinstance(node, Node) and self.qconfigs.get(node.name, True) is None

    # -- observers -------------------------------------------------------------------------------------------------------
    def _attribute_prefix(self, observer: Node) -> str:
        """Return the prefix of the names of an observer's scale and zero point: the module of the observed value."""
        observed: Any = observer.args[0]
        prefix = ""
        if observed.name in self.qconfigs and self.qconfigs[observed.name] is None:
            users = list(observer.users)
            linear = [n for n in users if n.op == "call_function" and n.target is nn.functional.linear]
            observed = next(iter(linear or users), None)
            prefix = "_input"
        path = self.attrs.node_name_to_scope.get(observed.name, ("",))[0] if observed else ""
        return path + prefix

    def replace_observer(self, node: Node) -> None:
        """Replace an observer by quantize and dequantize, or remove it."""
        observer = self.modules[str(node.target)]
        dtype, dynamic = observer.dtype, getattr(observer, "is_dynamic", False)
        supported = dtype in SUPPORTED_QDTYPES or dynamic or dtype == torch.float16
        value: Any = node.args[0]
        if not supported or all(self._has_none_qconfig(n) for n in (value, *node.users)):
            node.replace_all_uses_with(value)
            self.graph.erase_node(node)
            return
        with self.graph.inserting_before(node):
            if self.decomposed and dtype != torch.float16:
                node.replace_all_uses_with(self._decomposed(node, observer, value, dynamic))
                self.graph.erase_node(node)
                return
            if dynamic:
                reduce_range = torch.backends.quantized.engine in ("fbgemm", "x86")
                quantized = self.graph.call_function(torch.quantize_per_tensor_dynamic, (value, dtype, reduce_range))
            elif dtype in _QUANTIZED:
                quantized = self._quantize(node, observer, value)
            elif dtype == torch.float16:
                quantized = self.graph.call_method("to", (value, dtype))
            else:
                raise NotImplementedError(f"convert_fx: values of {dtype} are not in Flambeau yet")
            node.replace_all_uses_with(self.graph.call_method("dequantize", (quantized,)))
        self.graph.erase_node(node)

    def _decomposed(self, node: Node, observer: Any, value: Node, dynamic: bool) -> Node:
        """Return the value quantized and dequantized by operators that take all parameters as arguments."""
        dtype = to_underlying_dtype(observer.dtype)
        limits = (observer.quant_min, observer.quant_max, dtype)
        home = torch.ops.quantized_decomposed
        if dynamic:
            eps = getattr(observer, "eps", torch.finfo(torch.float32).eps)
            symmetric = observer.qscheme == torch.per_tensor_symmetric
            choose = home.choose_qparams_symmetric if symmetric else home.choose_qparams
            eps = float(eps) if isinstance(eps, torch.Tensor) else eps
            found = self.graph.call_function(choose.tensor, (value, observer.quant_min, observer.quant_max, eps, dtype))
            made = [self.graph.call_function(operator.getitem, (found, i)) for i in (0, 1)]
            quantized = self.graph.call_function(home.quantize_per_tensor.tensor, (value, *made, *limits))
            return self.graph.call_function(home.dequantize_per_tensor.tensor, (quantized, *made, *limits))
        scale, zero_point = observer.calculate_qparams()
        if not is_per_channel(observer.qscheme):
            numbers = (float(scale), int(zero_point), *limits)
            quantized = self.graph.call_function(home.quantize_per_tensor.default, (value, *numbers))
            return self.graph.call_function(home.dequantize_per_tensor.default, (quantized, *numbers))
        made = self._qparams(node, scale, zero_point)
        numbers = (*made, int(observer.ch_axis), *limits)
        quantized = self.graph.call_function(home.quantize_per_channel.default, (value, *numbers))
        return self.graph.call_function(home.dequantize_per_channel.default, (quantized, *numbers))

    def _qparams(self, node: Node, scale: Any, zero_point: Any) -> list[Node]:
        """Add scale and zero point as attributes of the model; return the nodes that read them."""
        prefix = self._attribute_prefix(node)
        return [
            create_getattr_from_value(self.model, self.graph, f"{prefix}_{name}_", v, self.device)
            for name, v in (("scale", scale), ("zero_point", zero_point))
        ]

    def _quantize(self, node: Node, observer: Any, value: Node) -> Node:
        scale, zero_point = observer.calculate_qparams()
        by_channel = is_per_channel(observer.qscheme)
        if not by_channel:
            scale, zero_point = float(scale), int(zero_point)
        made = self._qparams(node, scale, zero_point)
        if by_channel:
            args = (value, *made, int(observer.ch_axis), observer.dtype)
            return self.graph.call_function(torch.quantize_per_channel, args)
        return self.graph.call_function(torch.quantize_per_tensor, (value, *made, observer.dtype))

    def replace_by_dequantize(self, node: Node) -> None:
        """Replace an observer or stub after a module that returns quantized values by a dequantize."""
        source: Any = node.args[0]
        node.replace_all_uses_with(source)
        self.graph.erase_node(node)
        _insert_dequantize_node(source, self.graph)

    # -- layers ----------------------------------------------------------------------------------------------------------
    def convert_weighted_module(self, node: Node) -> None:
        """Replace a layer with a weight by its reference form, with the weight's scale."""
        module: Any = self.modules[str(node.target)]
        qconfig, observer = module.qconfig, None
        if isinstance(module, self.trained):
            trained: Any = module
            observer, module = trained.weight_fake_quant, trained.to_float()
            self.replace_module(node, module)
        if qconfig is None or self._has_none_qconfig(node) or node.name not in self.attrs.observed_node_names:
            return
        dtype_configs = get_pattern_to_dtype_configs(self.backend).get(type(module), [])
        if not _is_qconfig_supported_by_dtype_configs(qconfig, dtype_configs) or not weight_is_quantized(qconfig):
            return
        layer: Any = module[0] if isinstance(module, _FusedModule) else module
        kind = self.references.get(type_before_parametrizations(layer))
        if kind is None:
            raise AssertionError(
                f"No reference quantized module class configured for {type_before_parametrizations(layer)}"
            )
        made = kind.from_float(
            layer, {"is_decomposed": self.decomposed, **self._weight_qparams(layer, qconfig, observer)}
        )
        if isinstance(module, _FusedModule):
            module[0] = made
        else:
            self.replace_module(node, made)

    def _weight_qparams(self, layer: Any, qconfig: Any, observer: Any) -> dict[str, Any]:
        names = (
            ("weight_ih", "weight_hh")
            if isinstance(layer, RNNCellBase)
            else [n for n in layer._flat_weights_names if n.startswith("weight")]
            if isinstance(layer, (nn.LSTM, nn.GRU))
            else None
        )
        if names is None:
            watching = qconfig.weight() if observer is None else observer
            if observer is None and self.device:
                watching.to(self.device)
            watching(layer.weight)
            return get_qparam_dict(watching)
        found = {}
        for name in names:
            watching = qconfig.weight()
            if watching.dtype == torch.qint8:
                watching(getattr(layer, name))
            found[name] = get_qparam_dict(watching)
        return found

    def convert_standalone_module(self, node: Node, is_reference: bool) -> None:
        flow = naming.above("ao.quantization.quantize_fx")  # which calls this
        module: Any = self.modules[str(node.target)]
        attrs: Any = observed_attrs(module)
        for i, arg in enumerate(list(node.args)):
            if i in attrs.standalone_module_input_quantized_idxs:
                self._take_quantized(node, arg)
        if attrs.standalone_module_output_quantized_idxs:
            if attrs.standalone_module_output_quantized_idxs[0] != 0:
                raise AssertionError("Currently only quantized output idxs = [0] is supported")
            _insert_dequantize_node(node, self.graph)
        made = (flow.convert_to_reference_fx if is_reference else flow.convert_fx)(module, backend_config=self.backend)
        self.replace_module(node, made)
        self.modules[str(node.target)] = made

    def _take_quantized(self, node: Node, arg: Any) -> None:
        """Replace a node's dequantized input by the quantized one."""
        if not isinstance(arg, Node):
            raise AssertionError(f"Expecting the argument for custom module node to be a Node, but got {arg}")
        if _is_dequantize(arg):
            node.replace_input_with(arg, arg.args[0])
            if not arg.users:
                self.graph.erase_node(arg)

    def convert_custom_module(self, node: Node, mapping: dict) -> None:
        """Replace an observed module of a user's class by its quantized form."""
        module: Any = self.modules[str(node.target)]
        if activation_is_statically_quantized(module.qconfig):
            self.static_custom.add(node)
            if _is_custom_module_lstm(node, self.modules):
                if not (len(node.args) == 2 and isinstance(node.args[1], tuple) and len(node.args[1]) == 2):
                    raise AssertionError("Expected LSTM custom module inputs to be (input, (hidden0, hidden1))")
                taken: Any = (node.args[0], *node.args[1])
            else:
                taken = node.args if _is_custom_module_mha(node, self.modules) else node.args[:1]
            for arg in taken:
                self._take_quantized(node, arg)
            if len(taken) == 1:
                module.activation_post_process = next(
                    self.modules[str(user.target)]
                    for user in node.users
                    if user.op == "call_module" and _is_activation_post_process(self.modules[str(user.target)])
                )
        kind = get_swapped_custom_module_class(module, mapping, module.qconfig)
        self.replace_module(node, kind.from_observed(module))

    def output(self, node: Node) -> None:
        """Remove the dequantize of results that are to stay quantized."""
        indexes = self.attrs.prepare_custom_config.output_quantized_indexes
        result = node.args[0]
        if isinstance(result, (list, tuple)):
            for i in indexes:
                _maybe_recursive_remove_dequantize(result[i], node)
        elif isinstance(result, (Node, dict)):
            if 0 in indexes:
                _maybe_recursive_remove_dequantize(result, node)
        elif indexes:
            warnings.warn(f"Unsupported node type for output_quantized_idxs: {type(result)}", stacklevel=2)

    def walk(self, is_reference: bool, custom_mapping: dict) -> None:
        weighted = {*self.references, *self.trained, *(fused := get_fused_module_classes(self.backend))}
        custom = get_custom_module_class_keys(custom_mapping)
        inputs = 0
        for node in list(self.graph.nodes):
            if node.op == "placeholder":
                if inputs in self.attrs.prepare_custom_config.input_quantized_indexes:
                    _insert_dequantize_node(node, self.graph)
                inputs += 1
            elif node.op == "output":
                self.output(node)
            elif node.op == "call_module":
                module = _get_module(node, self.modules)
                kind = type_before_parametrizations(module)
                if _is_activation_post_process(module):
                    if node.args[0] in self.static_custom:
                        self.replace_by_dequantize(node)
                    else:
                        self.replace_observer(node)
                elif isinstance(module, DeQuantStub):
                    self.replace_by_dequantize(node)
                elif _is_observed_standalone_module(module):
                    self.convert_standalone_module(node, is_reference)
                elif kind in weighted:
                    if kind not in fused or type_before_parametrizations(module[0]) in self.references:
                        self.convert_weighted_module(node)
                elif kind in custom:
                    self.convert_custom_module(node, custom_mapping)


def _converted_qconfigs(
    model: GraphModule, modules: dict[str, Any], mapping: QConfigMapping, backend: BackendConfig
) -> dict:
    """Return the QConfigs of a mapping given to `convert`, by node; None for nodes that are not to be quantized after all."""
    attrs: Any = observed_attrs(model)
    if attrs.is_qat:
        _update_qconfig_for_qat(mapping, backend)
    _update_qconfig_for_fusion(model, mapping)
    _compare_prepare_convert_qconfig_mappings(attrs.qconfig_mapping, mapping)
    found = _generate_node_name_to_qconfig(
        model, copy.deepcopy(modules), model.graph, mapping, attrs.node_name_to_scope
    )
    for name, qconfig in attrs.node_name_to_qconfig.items():
        if name not in found:
            raise AssertionError(f"Expected key {name} in convert node_name_to_qconfig")
        if found[name] is not None and not qconfig_equals(qconfig, found[name]):
            raise AssertionError(
                f"Expected k {name} to have the same value in prepare and convert QConfigMappings, "
                f"but {qconfig} was updated to {found[name]}"
            )
    return found


def convert(
    model: GraphModule,
    is_reference: bool = False,
    convert_custom_config: Any = None,
    is_standalone_module: bool = False,
    _remove_qconfig_flag: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
    is_decomposed: bool = False,
    keep_original_weights: bool = False,
) -> GraphModule:
    """Return the prepared model in its reference form, or lowered to quantized operators."""
    custom = from_former_dict(ConvertCustomConfig, convert_custom_config, "convert_custom_config_dict", "convert")
    custom = ConvertCustomConfig() if custom is None else custom
    if isinstance(qconfig_mapping, dict):
        warnings.warn(
            "Passing a QConfig dictionary to convert is deprecated and will not be supported in a future version. "
            "Please pass in a QConfigMapping instead.",
            FutureWarning,
            stacklevel=2,
        )
        qconfig_mapping = QConfigMapping.from_dict(qconfig_mapping) if qconfig_mapping else None
    backend = from_former_dict(BackendConfig, backend_config, "backend_config_dict", "prepare")
    backend = get_native_backend_config() if backend is None else backend
    attrs = observed_attrs(model)
    if attrs is None:
        raise AssertionError("incoming model must be produced by prepare_fx")
    modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
    qconfigs = attrs.node_name_to_qconfig
    if qconfig_mapping:
        qconfigs = _converted_qconfigs(model, modules, copy.deepcopy(qconfig_mapping), backend)
    equalize(model, modules)
    _run_weight_observers(model)
    converting = _Conversion(model, modules, qconfigs, backend, is_decomposed)
    converting.walk(is_reference, custom.observed_to_quantized_mapping)
    model.graph.eliminate_dead_code()
    model = GraphModule(model, model.graph)
    if not is_reference:
        model = lower_to_fbgemm(model, qconfigs, attrs.node_name_to_scope, keep_original_weights)
    if _remove_qconfig_flag:
        _remove_qconfig(model)
    model.delete_all_unused_submodules()
    model.meta.pop(_KEY, None)
    return model

"""Insertion of observers into a traced model, for every value that will be quantized."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import flambeau as torch

from ....core import naming
from ....fx import GraphModule, Node
from ..backend_config import BackendConfig, get_native_backend_config
from ..backend_config.utils import get_fusion_pattern_to_root_node_getter, get_module_to_qat_module
from ..observer import ObserverBase, PlaceholderObserver, _is_activation_post_process
from ..qconfig import (
    QConfigAny,
    _default_fp32_placeholder_qconfig,
    _default_quint8_placeholder_qconfig,
    _is_reuse_input_qconfig,
)
from ..qconfig_mapping import QConfigMapping
from ..quantize import convert, propagate_qconfig_
from ..utils import _parent_name, get_qconfig_dtypes, get_swapped_custom_module_class
from ._equalize import is_equalization_observer, node_supports_equalization
from .custom_config import PrepareCustomConfig, StandaloneModuleConfigEntry
from .dtype_support import _FLOAT, dtype_and_dynamic, made, supported_by_backend
from .fuse import from_former_dict
from .graph_module import _KEY, ObservedGraphModuleAttrs
from .match_utils import _find_matches, _nodes_in, _sorted_patterns_dict
from .qconfig_mapping_utils import (
    _generate_node_name_to_qconfig,
    _get_flattened_qconfig_dict,
    _update_qconfig_for_fusion,
    _update_qconfig_for_qat,
)
from .quantize_handler import _default_root_node_getter, _get_pattern_to_quantize_handlers
from .utils import (
    NON_QUANTIZABLE_WEIGHT_OPS,
    _insert_dequant_stubs_for_custom_module_lstm_output,
    _is_custom_module_lstm,
    _maybe_get_custom_module_lstm_from_node_arg,
    all_node_args_have_no_tensors,
    assert_and_get_unique_device,
    get_custom_module_class_keys,
    get_new_attr_name_with_prefix,
    get_non_observable_arg_indexes_and_types,
    node_arg_is_bias,
    node_arg_is_weight,
)

__all__ = ["prepare"]

_UNOBSERVED = (int, float, torch.bool, None)
_OBSERVED = (
    torch.quint8, torch.qint8, torch.qint32, torch.float16, torch.uint8, torch.int8, torch.int16, torch.int32,
    torch.float8_e5m2, torch.float8_e4m3fn,
)  # fmt: skip
_INFO = "target_dtype_info"
_NO_MATCH = (None, None, None, None, None)


def _both_observers(constructor: Any) -> dict[str, Any]:
    return {"input_act_obs_or_fq_ctr": constructor, "output_act_obs_or_fq_ctr": constructor}


def _needs_observer(
    before: Any, wanted: Any, dynamic: bool, reuses_input: bool, is_first_argument: bool = False
) -> bool:
    """Return whether a value of dtype `before` must be observed where dtype `wanted` is required."""
    if dynamic:
        if wanted not in _OBSERVED:
            raise AssertionError(f"Expected cur_target_dtype to be torch.float, but got: {wanted}")
        if before in _UNOBSERVED:
            raise AssertionError("prev_output_dtype must not be in _DO_NOT_OBS_DTYPE_LIST")
        return is_first_argument
    if reuses_input or wanted not in _OBSERVED:
        return False
    return (before in _OBSERVED or before == torch.float) and wanted != before


class _Preparation:
    """The state of `prepare` for one model: the graph and where observers go."""

    def __init__(
        self,
        model: GraphModule,
        matches: dict[str, tuple],
        node_name_to_qconfig: dict[str, QConfigAny],
        custom: PrepareCustomConfig,
        backend: BackendConfig,
        equalized: dict[str, Any],
    ):
        self.model, self.graph, self.equalized = model, model.graph, equalized
        self.matches, self.qconfigs, self.custom, self.backend = matches, node_name_to_qconfig, custom, backend
        self.modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
        self.root_getters = get_fusion_pattern_to_root_node_getter(backend)
        self.device = assert_and_get_unique_device(model)
        self.observed_names: set[str] = set()
        self.swapped: set[str] = set()
        self.without_tensors: dict[Node, bool] = {}

    # -- what each node asks for -----------------------------------------------------------------------------------------
    def _wanted(self, node: Node, qconfig: Any, handler: Any) -> dict[str, Any]:
        if all_node_args_have_no_tensors(node, self.modules, self.without_tensors):
            return _both_observers(None)
        activation, weight, dynamic = get_qconfig_dtypes(qconfig)
        both_half = activation == weight == torch.float16 and not dynamic
        bias = torch.float16 if both_half else torch.float
        config = self.backend._pattern_complex_format_to_config.get(node.target) if node.op == "call_function" else None
        places = config._input_type_to_index if config is not None else {}
        return {
            **_both_observers(qconfig.activation),
            "weight_obs_or_fq_ctr": qconfig.weight,
            "bias_obs_or_fq_ctr": PlaceholderObserver.with_args(dtype=bias),
            "weight_index": places.get("weight"),
            "bias_index": places.get("bias"),
            "reuse_input_obs_or_fq": _is_reuse_input_qconfig(qconfig),
            "input_output_share_observers": handler is not None and handler.is_general_tensor_value_op(),
            "_is_standalone_module": handler is not None and handler.is_standalone_module(),
        }

    def _store_dtypes(self, matched: Any, qconfig: Any, handler: Any, done: set[Node]) -> None:
        for node in _nodes_in(matched):
            if node not in done:
                done.add(node)
                if qconfig is not None:
                    node.meta[_INFO] = self._wanted(node, qconfig, handler)

    def store_all_dtypes(self) -> None:
        """Store the dtypes that every node requires: floating point, its QConfig's, or none if it has no tensors."""
        for node in self.graph.nodes:
            node.meta[_INFO] = _both_observers(_default_fp32_placeholder_qconfig.activation)
        done: set[Node] = set()
        for _, matched, _, handler, qconfig in self.matches.values():
            self._store_dtypes(matched, qconfig, handler, done)
        byte = _default_quint8_placeholder_qconfig.activation
        inputs = outputs = 0
        for node in self.graph.nodes:
            if node.op == "placeholder":
                if inputs in self.custom.input_quantized_indexes:
                    node.meta[_INFO] = _both_observers(byte)
                inputs += 1
            elif node.op == "output":
                if outputs in self.custom.output_quantized_indexes:
                    node.meta[_INFO] = _both_observers(byte)
                outputs += 1
            elif node.op != "get_attr" and all_node_args_have_no_tensors(node, self.modules, self.without_tensors):
                node.meta[_INFO] = _both_observers(None)
        self._tell_of_numbers()
        last: Any = node
        dtype, _ = dtype_and_dynamic(made(last.meta[_INFO]["output_act_obs_or_fq_ctr"]))
        done = set()
        for _, matched, pattern, _, qconfig in self.matches.values():
            if not supported_by_backend(pattern, matched, qconfig, self.backend) and dtype not in _UNOBSERVED:
                self._store_dtypes(matched, _default_fp32_placeholder_qconfig, None, done)

    def _tell_of_numbers(self) -> None:
        for node in self.graph.nodes:
            for places in get_non_observable_arg_indexes_and_types(node).values():
                for i in places(node):
                    arg = node.args[i]
                    for one in arg if isinstance(arg, (list, tuple)) else (arg,):
                        if isinstance(one, Node):
                            self._tell_not_observed(one)

    def _tell_not_observed(self, node: Node) -> None:
        node.meta[_INFO].update(_both_observers(None))
        handler = self.matches.get(node.name, _NO_MATCH)[3]
        if handler is not None and handler.is_general_tensor_value_op() and isinstance(node.args[0], Node):
            self._tell_not_observed(node.args[0])

    # -- observers -------------------------------------------------------------------------------------------------------
    def _is_observer(self, node: Any) -> bool:
        if not isinstance(node, Node) or node.op != "call_module":
            return False
        return _is_activation_post_process(self.modules[str(node.target)])

    def _insert(self, node: Node, observer: Any) -> Node:
        if self.device:
            observer.to(self.device)
        equalizes = is_equalization_observer(observer)
        prefix = f"{node.name}_equalization_process_" if equalizes else "activation_post_process_"
        name = get_new_attr_name_with_prefix(prefix)(self.model)
        setattr(self.model, name, observer)
        self.modules[name] = observer
        with self.graph.inserting_after(node):
            return self.graph.create_node("call_module", name, (node,), {})

    def _dtype_as_output(self, arg: Node) -> Any:
        lstm = _maybe_get_custom_module_lstm_from_node_arg(arg, self.modules)
        source: Any = lstm if lstm is not None else arg.args[0] if self._is_observer(arg) else arg
        info = source.meta.get(_INFO, {})
        return dtype_and_dynamic(made(info.get("output_act_obs_or_fq_ctr", _FLOAT)))[0]

    def _observer_as_input(self, arg: Node, node: Node) -> Any:
        info = node.meta[_INFO]
        if node_arg_is_weight(node, arg):
            if node.target in NON_QUANTIZABLE_WEIGHT_OPS:
                return None
            return made(info.get("weight_obs_or_fq_ctr", _FLOAT))
        which = "bias_obs_or_fq_ctr" if node_arg_is_bias(node, arg) else "input_act_obs_or_fq_ctr"
        return made(info.get(which, _FLOAT))

    def _standalone_needs(self, node: Node, arg: Node, qconfig: Any) -> bool:
        config = self.standalone_config(node, qconfig)[2]
        place = next((i for i, a in enumerate(node.args) if a is arg), None)
        if place is None:
            return False
        wanted = torch.quint8 if place in config.input_quantized_indexes else torch.float
        return self._dtype_as_output(arg) != wanted and wanted != torch.float

    def standalone_config(self, node: Node, parent_qconfig: Any) -> tuple:
        name = str(node.target)
        entry = self.custom.standalone_module_classes.get(
            type(self.modules[name]), StandaloneModuleConfigEntry(None, (), None, None)
        )
        entry = self.custom.standalone_module_names.get(name, entry)
        mapping = entry.qconfig_mapping or QConfigMapping().set_global(parent_qconfig)
        config = entry.prepare_custom_config or PrepareCustomConfig()
        return mapping, entry.example_inputs, config, entry.backend_config or self.backend

    def _observed_input(self, node: Node, arg: Any, qconfig: Any, handler: Any) -> Any:
        """Return the argument, after an observer if it needs one."""
        if isinstance(arg, (list, tuple)):
            return type(arg)(self._observed_input(node, a, qconfig, handler) for a in arg)
        if not isinstance(arg, Node):
            return arg
        if handler is not None and handler.is_standalone_module():
            needed, observer = self._standalone_needs(node, arg, qconfig), made(qconfig.activation)
            wanted = torch.quint8
        else:
            observer = self._observer_as_input(arg, node)
            wanted, dynamic = dtype_and_dynamic(observer)
            reuses = node.meta[_INFO].get("reuse_input_obs_or_fq", False)
            is_first = len(node.args) > 0 and arg is node.args[0]
            needed = _needs_observer(self._dtype_as_output(arg), wanted, dynamic, reuses, is_first)
        if not needed:
            return arg
        for user in arg.users:
            if user.op == "call_module":
                there = self.modules[str(user.target)]
                if type(there) is type(observer) and there.dtype == wanted:
                    return user
        return self._insert(arg, observer)

    def _observe_inputs(self, node: Node, qconfig: Any, handler: Any) -> None:
        node.args = tuple(self._observed_input(node, arg, qconfig, handler) for arg in node.args)
        node.kwargs = {k: self._observed_input(node, arg, qconfig, handler) for k, arg in node.kwargs.items()}

    def _is_branch(self, node: Node) -> bool:
        """Return whether another quantized user has the same input."""
        first = node.args[0] if node.args else None
        others = [user for user in first.users if user is not node] if isinstance(first, Node) else []
        return any(
            self.qconfigs.get(u.name) is not None
            or (u.op == "call_module" and isinstance(self.modules[str(u.target)], ObserverBase))
            for u in others
        )

    def _observe_ranges(self, node: Node, qconfig: Any, is_branch: bool) -> None:
        """Insert observers of columns, for the equalization of inputs and weights."""
        if is_branch:
            warnings.warn(f"Cannot equalize {node} because it is part of a branch.", stacklevel=2)
            return
        args = []
        for arg in node.args:
            if isinstance(arg, Node) and not node_arg_is_bias(node, arg):
                observer = qconfig.weight if node_arg_is_weight(node, arg) else qconfig.input_activation
                arg = self._insert(arg, observer())
            args.append(arg)
        node.args = tuple(args)

    def _observe_output(self, node: Node) -> Node | None:
        info = node.meta[_INFO]
        observer = made(info.get("output_act_obs_or_fq_ctr"))
        dtype, dynamic = dtype_and_dynamic(observer)
        if dynamic or info.get("_is_standalone_module") or not _needs_observer(torch.float, dtype, False, False):
            return None
        return self._insert(node, observer)

    def _source_observer(self, arg: Any) -> Node | None:
        """Return the observer before a value, searching through operators that have none."""
        while not self._is_observer(arg):
            if not isinstance(arg, Node) or arg.op == "placeholder":
                return None
            arg = next((a for a in arg.args if isinstance(a, Node)), arg.args[-1] if arg.args else None)
        return arg

    def _replace_observer(self, node: Node, observer: Any) -> None:
        parent, name = _parent_name(str(node.target))
        setattr(self.modules[parent], name, observer)

    def _share_observer(self, node: Node) -> bool:
        """Use the first input's observer, if it has one, for the result and further inputs."""
        first = next((a for a in node.args if isinstance(a, (Node, list, tuple))), None)
        if first is None:
            return False
        inputs = list(first) if isinstance(first, (list, tuple)) else [first]
        source = self._source_observer(inputs[0])
        if source is None:
            return False
        shared = self.modules[str(source.target)]
        for other in inputs[1:]:
            while not self._is_observer(other):
                if len(other.args) < 1:
                    return False
                other = other.args[0]
            self._replace_observer(other, shared)
        for user in node.users:
            if not self._is_observer(user):
                raise AssertionError("output_obs_node must be an activation post process node")
            self._replace_observer(user, shared)
        return True

    def _remove_output_observer(self, node: Node) -> None:
        for observer in list(node.users):
            observer.replace_all_uses_with(node)
            self.graph.erase_node(observer)

    def _swap_to_observed(self, node: Node, qconfig: Any) -> None:
        if node.target in self.swapped:
            return
        self.swapped.add(str(node.target))
        module = self.modules[str(node.target)]
        kind = get_swapped_custom_module_class(module, self.custom.float_to_observed_mapping, qconfig)
        self._replace_observer(node, kind.from_float(module))

    def _end_of_pattern(self, node: Node, qconfig: Any, handler: Any) -> None:
        info = node.meta[_INFO]
        if _is_custom_module_lstm(node, self.modules, qconfig, handler):
            _insert_dequant_stubs_for_custom_module_lstm_output(node, self.model, self.modules, self.graph)
            self._swap_to_observed(node, qconfig)
            return
        observer = self._observe_output(node)
        if observer is None:
            return
        for user in list(node.users):
            if user is not observer:
                user.replace_input_with(node, observer)
        shares = info.get("input_output_share_observers", False) and not self._is_from_placeholder(node)
        if (shares or info.get("reuse_input_obs_or_fq", False)) and not self._share_observer(node):
            self._remove_output_observer(node)
        if handler is not None and handler.is_custom_module():
            self._swap_to_observed(node, qconfig)

    def _is_from_placeholder(self, node: Node) -> bool:
        """Return whether a node with a quantized result reads an input of the model, which is observed outside of this graph."""
        if not node.args or not isinstance(node.args[0], Node):
            return False
        return self._dtype_as_output(node) in (torch.quint8, torch.uint8) and node.args[0].op == "placeholder"

    def _observed_result(self, value: Any) -> Any:
        if isinstance(value, Node):
            observer = made(value.meta.get(_INFO, {}).get("input_act_obs_or_fq_ctr"))
            wanted = torch.float if observer is None else observer.dtype
            if self._dtype_as_output(value) == wanted or wanted == torch.float:
                return value
            return self._insert(value, observer)
        if isinstance(value, (list, tuple)):
            results = [self._observed_result(v) for v in value]
            return results if isinstance(value, list) else tuple(results)
        if isinstance(value, dict):
            return {k: self._observed_result(v) for k, v in value.items()}
        if value is None:
            return None
        raise Exception("Unhandled type for returned node:", value)

    def observe(self) -> Node | None:
        """Walk the graph and insert the observers; return the output's node."""
        result = None
        for node in list(self.graph.nodes):
            if node.op == "output":
                node.args = tuple(self._observed_result(arg) for arg in node.args)
                result = node
            elif node.op in ("call_module", "call_method", "call_function"):
                self._observe_node(node)
        return result

    def _observe_node(self, node: Node) -> None:
        last, matched, pattern, handler, qconfig = self.matches.get(node.name, _NO_MATCH)
        if qconfig is None or not supported_by_backend(pattern, matched, qconfig, self.backend):
            return
        self.modules = dict(self.model.named_modules(remove_duplicate=False))
        self.observed_names.update(n.name for n in _nodes_in(matched))
        if node is self.root_getters.get(pattern, _default_root_node_getter)(matched):
            is_branch = self._is_branch(node)
            self._observe_inputs(node, qconfig, handler)
            if self.equalized.get(node.name) is not None and node_supports_equalization(node, self.modules):
                self._observe_ranges(node, self.equalized[node.name], is_branch)
        if node is last:
            self._end_of_pattern(node, qconfig, handler)

    def prepare_standalone_modules(self, is_qat: bool) -> None:
        flow = naming.above("ao.quantization.quantize_fx")  # which calls this
        for root, _, _, handler, qconfig in self.matches.values():
            if handler is None or not handler.is_standalone_module():
                continue
            mapping, example_inputs, config, backend = self.standalone_config(root, qconfig)
            observed = flow._prepare_standalone_module_fx(
                self.modules[root.target], mapping, is_qat, example_inputs, config, backend_config=backend
            )
            self._replace_observer(root, observed)
            self.modules[root.target] = observed


def prepare(
    model: GraphModule,
    qconfig_mapping: Any,
    is_qat: bool,
    node_name_to_scope: dict[str, tuple[str, type]],
    example_inputs: tuple[Any, ...],
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Any = None,
    is_standalone_module: bool = False,
) -> GraphModule:
    """Return the traced and fused model with observers."""
    if isinstance(qconfig_mapping, dict):
        warnings.warn(
            "Passing a QConfig dictionary to prepare is deprecated and will not be supported in a future version. "
            "Please pass in a QConfigMapping instead.",
            FutureWarning,
            stacklevel=2,
        )
        qconfig_mapping = QConfigMapping.from_dict(qconfig_mapping)
    if isinstance(_equalization_config, dict):
        warnings.warn(
            "Passing a QConfig dictionary to prepare for equalization is deprecated and will not be supported in a future version."
            " Please pass in a QConfigMapping instead.",
            FutureWarning,
            stacklevel=2,
        )
        _equalization_config = QConfigMapping.from_dict(_equalization_config)
    equalization = QConfigMapping() if _equalization_config is None else copy.deepcopy(_equalization_config)
    custom = from_former_dict(PrepareCustomConfig, prepare_custom_config, "prepare_custom_config_dict", "prepare")
    backend = from_former_dict(BackendConfig, backend_config, "backend_config_dict", "prepare")
    custom = PrepareCustomConfig() if custom is None else custom
    backend = get_native_backend_config() if backend is None else backend
    if not isinstance(qconfig_mapping, QConfigMapping):
        raise AssertionError("qconfig_mapping must be a QConfigMapping")
    qconfig_mapping = copy.deepcopy(qconfig_mapping)
    _update_qconfig_for_fusion(model, qconfig_mapping)
    _update_qconfig_for_fusion(model, equalization)
    propagate_qconfig_(model, _get_flattened_qconfig_dict(qconfig_mapping), custom.to_dict())
    if is_qat:
        convert(model, mapping=get_module_to_qat_module(backend), inplace=True, remove_qconfig=False)
        _update_qconfig_for_qat(qconfig_mapping, backend)
    modules = dict(model.named_modules(remove_duplicate=False))
    equalized = _generate_node_name_to_qconfig(model, modules, model.graph, equalization, node_name_to_scope)
    qconfigs = _generate_node_name_to_qconfig(model, modules, model.graph, qconfig_mapping, node_name_to_scope)
    found = _find_matches(
        model.graph,
        modules,
        _sorted_patterns_dict(_get_pattern_to_quantize_handlers(backend)),
        get_fusion_pattern_to_root_node_getter(backend),
        list(custom.standalone_module_names),
        list(custom.standalone_module_classes),
        get_custom_module_class_keys(custom.float_to_observed_mapping),
    )
    matches = {name: (*match, qconfigs[name]) for name, match in found.items()}
    preparing = _Preparation(model, matches, qconfigs, custom, backend, equalized)
    preparing.prepare_standalone_modules(is_qat)
    preparing.store_all_dtypes()
    result = preparing.observe()
    model = GraphModule(model, model.graph)
    attrs = ObservedGraphModuleAttrs(
        qconfigs, node_name_to_scope, custom, equalized, qconfig_mapping, is_qat, preparing.observed_names
    )
    model.meta[_KEY] = attrs
    if is_standalone_module:
        if result is None or not isinstance(result.args[0], Node):
            raise AssertionError(
                "standalone module only supports returning simple value currently (not tuple, dict etc.)"
            )
        attrs.is_observed_standalone_module = True
        attrs.standalone_module_input_quantized_idxs = custom.input_quantized_indexes
        attrs.standalone_module_output_quantized_idxs = custom.output_quantized_indexes
    return model

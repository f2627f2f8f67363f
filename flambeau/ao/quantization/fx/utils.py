"""Queries of nodes, and creation of nodes for values, for `prepare` and `convert`."""

from __future__ import annotations

import copy
import operator
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import flambeau as torch

from .... import nn
from ....core.tensor import Tensor
from ....fx import Graph, GraphModule, Node, map_arg
from ...nn import quantizable
from ..observer import _is_activation_post_process
from ..quant_type import QuantType
from ..stubs import DeQuantStub
from ..utils import _assert_and_get_unique_device as assert_and_get_unique_device
from ..utils import activation_is_statically_quantized
from .graph_module import ObservedGraphModuleAttrs

__all__ = [
    "ObservedGraphModuleAttrs", "all_node_args_except_first", "all_node_args_have_no_tensors", "assert_and_get_unique_device",
    "collect_producer_nodes", "create_getattr_from_value", "get_custom_module_class_keys", "get_new_attr_name_with_prefix",
    "get_non_observable_arg_indexes_and_types", "get_skipped_module_name_and_classes", "graph_module_from_producer_nodes",
    "maybe_get_next_module", "node_arg_is_bias", "node_arg_is_weight", "return_arg_list",
]  # fmt: skip

Modules = dict[str, Any]
NON_QUANTIZABLE_WEIGHT_OPS = {nn.functional.layer_norm, nn.functional.group_norm, nn.functional.instance_norm}


# -- arguments -----------------------------------------------------------------------------------------------------------


def _arg_is(node: Node, arg: Any, what: str) -> bool:
    index = node.meta.get("target_dtype_info", {}).get(f"{what}_index")
    if index is not None and index < len(node.args) and node.args[index] is arg:
        return True
    return node.kwargs.get(what) is arg


def node_arg_is_weight(node: Node, arg: Any) -> bool:
    return _arg_is(node, arg, "weight")


def node_arg_is_bias(node: Node, arg: Any) -> bool:
    return _arg_is(node, arg, "bias")


def all_node_args_have_no_tensors(node: Any, modules: Modules, cache: dict[Node, bool]) -> bool:
    """Return whether a node is computed from numbers only (sizes, for example)."""
    if not isinstance(node, Node):
        return True
    if node not in cache:
        cache[node] = _is_tensorless(node, modules, cache)
    return cache[node]


def _is_tensorless(node: Node, modules: Modules, cache: dict[Node, bool]) -> bool:
    if node.op in ("placeholder", "get_attr"):
        return False
    if node.op == "call_module":
        observed = _is_activation_post_process(modules[str(node.target)])
        return observed and all_node_args_have_no_tensors(node.args[0], modules, cache)
    if node.op == "call_function" and node.target is operator.getitem:
        return all_node_args_have_no_tensors(node.args[0], modules, cache)
    if node.target is getattr and node.args[1] in ("ndim", "shape"):
        return True
    if node.op == "call_method" and node.target == "size":
        return True
    if not node.args:
        return False
    for arg in node.args:
        if isinstance(arg, list):
            if any(isinstance(a, Node) and not all_node_args_have_no_tensors(a, modules, cache) for a in arg):
                return False
        elif isinstance(arg, Node):
            if not all_node_args_have_no_tensors(arg, modules, cache):
                return False
        elif not isinstance(arg, int):
            return False
    return True


def all_node_args_except_first(node: Node) -> list[int]:
    return list(range(1, len(node.args)))


def return_arg_list(arg_indices: list[int]) -> Callable[[Node], list[int]]:
    """Return a function that returns those of the positions at which a node has arguments."""
    return lambda node: [i for i in arg_indices if i < len(node.args)]


NodeInfo = namedtuple("NodeInfo", "op target")
_ArgumentPlaces = dict[Any, Callable[[Node], list[int]]]
EMPTY_ARG_DICT: _ArgumentPlaces = {}
NON_OBSERVABLE_ARG_DICT: dict[NodeInfo, _ArgumentPlaces] = {  # arguments of methods that are no tensors to be observed
    NodeInfo("call_method", "masked_fill"): {torch.bool: return_arg_list([1]), float: return_arg_list([2])},
    **{
        NodeInfo("call_method", name): {int: all_node_args_except_first}
        for name in ("permute", "repeat", "reshape", "transpose", "view")
    },
    **{NodeInfo("call_method", name): {int: return_arg_list([1])} for name in ("size", "unsqueeze", "unsqueeze_")},
}


def get_non_observable_arg_indexes_and_types(node: Node) -> _ArgumentPlaces:
    """Return functions that find the positions of a node's numeric arguments, by type of number."""
    return NON_OBSERVABLE_ARG_DICT.get(NodeInfo(node.op, node.target), EMPTY_ARG_DICT)


def maybe_get_next_module(
    node: Node, modules: Modules, target_module_type: type | None = None, target_functional_type: Any = None
) -> Node | None:
    """Return the first user of a node that calls a module of a type, or a function; None if there is none."""
    for user in node.users:
        if user.op == "call_module" and target_module_type is not None:
            if isinstance(modules[str(user.target)], target_module_type):
                return user
        elif (
            user.op == "call_function" and target_functional_type is not None and user.target == target_functional_type
        ):
            return user
    return None


# -- modules and attributes ----------------------------------------------------------------------------------------------


def _get_module(node: Node, named_modules: Modules) -> Any:
    return named_modules.get(str(node.target)) if node.op == "call_module" else None


def get_custom_module_class_keys(custom_module_mapping: dict[QuantType, dict[type, type]]) -> list[Any]:
    kinds = (QuantType.STATIC, QuantType.DYNAMIC, QuantType.WEIGHT_ONLY)
    return list({c for kind in kinds for c in custom_module_mapping.get(kind, {})})


def get_skipped_module_name_and_classes(
    prepare_custom_config: Any, is_standalone_module: bool
) -> tuple[list[str], list[Any]]:
    """Return the names and classes of modules that are not traced."""
    names = copy.copy(prepare_custom_config.non_traceable_module_names)
    classes = copy.copy(prepare_custom_config.non_traceable_module_classes)
    if not is_standalone_module:
        names += list(prepare_custom_config.standalone_module_names)
        classes += list(prepare_custom_config.standalone_module_classes)
        classes += get_custom_module_class_keys(prepare_custom_config.float_to_observed_mapping)
    return names, classes


def get_new_attr_name_with_prefix(prefix: str) -> Callable[[Any], str]:
    """Return a function that finds a module's first unused name of the form `prefix0`, `prefix1`, ..."""
    prefix = prefix.replace(".", "_")

    def free_name(module: Any) -> str:
        i = 0
        while hasattr(module, f"{prefix}{i}"):
            i += 1
        return f"{prefix}{i}"

    return free_name


def create_getattr_from_value(module: Any, graph: Graph, prefix: str, value: Any, device: Any = None) -> Node:
    """Register a value as a buffer of the module and return a node that reads it."""
    name = get_new_attr_name_with_prefix(prefix)(module)
    device = assert_and_get_unique_device(module) if device is None else device
    new = value.detach().clone() if isinstance(value, Tensor) else torch.tensor(value, device=device)
    module.register_buffer(name, new)
    return graph.create_node("get_attr", name)


def collect_producer_nodes(node: Node) -> list[Node] | None:
    """Return a node and all nodes it depends on; None if the model's inputs are among them."""
    nodes, frontier = [node], [node]
    while frontier:
        node = frontier.pop()
        for arg in (*node.args, *node.kwargs.values()):
            if not isinstance(arg, Node):
                continue
            if arg.op == "placeholder":
                return None
            nodes.append(arg)
            if not (arg.op == "call_function" and arg.target is getattr):
                frontier.append(arg)
    return nodes


def graph_module_from_producer_nodes(root: GraphModule, producer_nodes: list[Node]) -> GraphModule:
    """Return a module that computes the first of these nodes, which depend on nothing but each other."""
    if len(producer_nodes) == 0:
        raise AssertionError("list of producer nodes can not be empty")
    graph = Graph()
    env: dict[Node, Node] = {}

    def load(arg: Any) -> Any:
        return map_arg(arg, lambda n: env[n])

    for node in reversed(producer_nodes):
        env[node] = graph.node_copy(node, load)
    graph.output(load(producer_nodes[0]))
    return GraphModule(root, graph)


# -- recurrent layers that are taken apart -------------------------------------------------------------------------------


def _is_custom(node: Node, modules: Modules, qconfig: Any, handler: Any, kind: type, taken_apart: type) -> bool:
    module = _get_module(node, modules)
    if qconfig is None or handler is None:
        return isinstance(module, taken_apart)
    return isinstance(module, kind) and activation_is_statically_quantized(qconfig) and handler.is_custom_module()


def _is_custom_module_lstm(node: Node, named_modules: Modules, qconfig: Any = None, qhandler: Any = None) -> bool:
    return _is_custom(node, named_modules, qconfig, qhandler, nn.LSTM, quantizable.LSTM)


def _is_custom_module_mha(node: Node, named_modules: Modules, qconfig: Any = None, qhandler: Any = None) -> bool:
    kinds = (nn.MultiheadAttention, quantizable.MultiheadAttention)
    return _is_custom(node, named_modules, qconfig, qhandler, *kinds)


def _insert_dequant_stub(node: Node, model: Any, named_modules: Modules, graph: Graph) -> Node:
    name = get_new_attr_name_with_prefix("dequant_stub_")(model)
    stub = DeQuantStub()
    setattr(model, name, stub)
    named_modules[name] = stub
    with graph.inserting_after(node):
        return graph.call_module(name, (node,))


def _insert_dequant_stubs_for_custom_module_lstm_output(
    node: Node, model: Any, named_modules: Modules, graph: Graph
) -> Node:
    """Insert a stub after each result of an LSTM, (output, (h, c))."""

    def after(last: Node, make: Callable[[], Node]) -> Node:
        with graph.inserting_after(last):
            return make()

    def stub(value: Node) -> Node:
        return _insert_dequant_stub(value, model, named_modules, graph)

    output = after(node, lambda: graph.call_function(operator.getitem, (node, 0)))
    output_dq = stub(output)
    hidden = after(output_dq, lambda: graph.call_function(operator.getitem, (node, 1)))
    h_dq = stub(after(hidden, lambda: graph.call_function(operator.getitem, (hidden, 0))))
    c_dq = stub(after(h_dq, lambda: graph.call_function(operator.getitem, (hidden, 1))))
    hidden_dq = after(c_dq, lambda: graph.call_function(tuple, ([h_dq, c_dq],)))
    result = after(hidden_dq, lambda: graph.call_function(tuple, ([output_dq, hidden_dq],)))
    for user in list(node.users):
        if user not in (output, hidden):
            user.replace_input_with(node, result)
    _reroute_tuple_getitem_pattern(graph)
    return result


def _reroute_tuple_getitem_pattern(graph: Graph) -> None:
    """Replace getitem of a tuple built in the graph by the element."""
    for node in graph.nodes:
        if not _is_call(node, operator.getitem):
            continue
        path, source = [node.args[1]], node.args[0]
        while _is_call(source, operator.getitem):
            path, source = [source.args[1], *path], source.args[0]
        if not _is_call(source, tuple):
            continue
        while path and _is_call(source, tuple):
            source, path = source.args[0][path[0]], path[1:]
        if not path:
            for user in list(node.users):
                user.replace_input_with(node, source)


def _is_call(node: Any, function: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target is function


_LSTM_PATHS = (("stub", "item"), ("tuple", "stub", "item", "item"), ("stub", "item", "item"), ("tuple", "stub", "item"))


def _maybe_get_custom_module_lstm_from_node_arg(arg: Node, named_modules: Modules) -> Node | None:
    """Return the LSTM whose result `arg` is, searching through stubs and tuples."""
    for path in _LSTM_PATHS:
        node: Any = arg
        for step in path:
            if (
                step == "stub"
                and isinstance(_get_module(node, named_modules), DeQuantStub)
                or step == "item"
                and node.op == "call_function"
                and node.target is operator.getitem
            ):
                node = node.args[0]
            elif step == "tuple" and node.op == "call_function" and node.target is tuple:
                node = node.args[0][0]
            else:
                break
        else:
            if _is_custom_module_lstm(node, named_modules):
                return node
    return None

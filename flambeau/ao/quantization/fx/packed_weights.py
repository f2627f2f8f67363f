"""Constant folding of packed weights: the nodes that pack them are run once, and their results become attributes of the module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch

from .... import nn
from ....fx import Graph, GraphModule, Node, map_arg
from .utils import collect_producer_nodes, get_new_attr_name_with_prefix, graph_module_from_producer_nodes

F = nn.functional
quantized_ops = torch.ops.quantized
CONVS = {F.conv1d: "conv1d", F.conv2d: "conv2d", F.conv3d: "conv3d"}
TRANSPOSED_CONVS = {
    F.conv_transpose1d: "conv_transpose1d",
    F.conv_transpose2d: "conv_transpose2d",
    F.conv_transpose3d: "conv_transpose3d",
}
_PREPACK_NAMES = (
    "linear_prepack",
    "linear_prepack_fp16",
    *(f"{name}_prepack" for name in (*CONVS.values(), *TRANSPOSED_CONVS.values())),
)


# -- functions with weights ----------------------------------------------------------------------------------------------


def prepack(function: Any, weight: Node, rest: list) -> tuple[Callable, list]:
    """Return the operator that packs a weight, and its arguments: those of the function after the input."""
    args = [weight, *rest]
    if function is F.linear:
        name = {torch.float16: "linear_prepack_fp16", torch.qint8: "linear_prepack"}.get(weight.args[-1])
        if name is None:
            raise Exception("can't get linear prepack op for dtype:", weight.args[-1])
        return getattr(quantized_ops, name), args
    if function in (F.conv1d, F.conv_transpose1d):
        for i in (2, 3, 4, 6) if function is F.conv_transpose1d else (2, 3, 4):
            if len(args) > i and isinstance(args[i], int):
                args[i] = (args[i],)
    if function in TRANSPOSED_CONVS and len(args) > 6:
        args[5], args[6] = args[6], args[5]  # groups and dilation
    return getattr(quantized_ops, f"{CONVS.get(function) or TRANSPOSED_CONVS[function]}_prepack"), args


# -- packed weights ------------------------------------------------------------------------------------------------------


def _save_packed_weight(self: Any, destination: Any, prefix: str, keep_vars: Any) -> None:
    for name in [name for name in vars(self) if "_packed_weight" in name]:
        destination[prefix + name] = getattr(self, name)


def _load_packed_weight(self: Any, state_dict: Any, prefix: str, *rest: Any) -> None:
    for name in [name for name in state_dict if name.startswith("_packed_weight")]:
        setattr(self, name, state_dict.pop(name))


def fold_weight(
    quantized_model: GraphModule, node_name_to_scope: dict[str, tuple[str, type]], keep_original_weights: bool = False
) -> GraphModule:
    """Pack the weights that do not depend on inputs; the graph then reads them as attributes."""
    if keep_original_weights:
        raise NotImplementedError("convert_fx: keep_original_weights is not in Flambeau yet")
    packing = {getattr(quantized_ops, name) for name in _PREPACK_NAMES}
    folded: dict[str, Node] = {}
    packed: dict[str, Any] = {}
    for node in quantized_model.graph.nodes:
        if node.op == "call_function" and node.target in packing:
            producers = collect_producer_nodes(node)
            if producers is not None:
                folded.update((producer.name, node) for producer in producers)
                packed[node.name] = graph_module_from_producer_nodes(quantized_model, producers)()
    graph = Graph()
    env: dict[str, Node] = {}

    def load(arg: Any) -> Any:
        return map_arg(arg, lambda n: env[n.name])

    for node in quantized_model.graph.nodes:
        if folded.get(node.name) is node:
            path, _ = node_name_to_scope[next(iter(node.users)).name]
            name = get_new_attr_name_with_prefix(path + "_packed_weight_")(quantized_model)
            setattr(quantized_model, name, packed[node.name])
            env[node.name] = graph.create_node("get_attr", name, (), {})
        elif node.name not in folded:
            env[node.name] = graph.node_copy(node, load)
    made = GraphModule(quantized_model, graph)
    made._register_state_dict_hook(_save_packed_weight)
    made.register_load_state_dict_pre_hook(_load_packed_weight)
    return made

"""Lowering: quantize(layer(dequantize(x))) becomes one quantized layer or operator, and weights are packed.

Each pass looks for one shape of nodes and rewrites the graph in place; what no pass knows stays in its reference form, which computes
in floating point."""

from __future__ import annotations

import operator
from typing import Any

import flambeau as torch

from .... import nn
from ....fx import GraphModule, Node
from ...nn import intrinsic as nni
from ...nn import quantized
from ...nn.intrinsic import quantized as nniq
from ...nn.intrinsic.quantized import dynamic as nniqd
from ...nn.quantized import dynamic as nnqd
from ...nn.quantized import reference as nnqr
from .. import fixed_ranges
from ..quantization_mappings import get_quantized_operator
from ..utils import _parent_name
from .packed_weights import CONVS, TRANSPOSED_CONVS, fold_weight, prepack, quantized_ops
from .utils import _get_module

nnq: Any = quantized
F = nn.functional
Modules = dict[str, Any]

# -- what becomes what ---------------------------------------------------------------------------------------------------

STATIC_LOWER_MODULE_MAP: dict[Any, Any] = {
    nnqr.Linear: nnq.Linear,
    nnqr.Conv1d: nnq.Conv1d,
    nnqr.Conv2d: nnq.Conv2d,
    nnqr.Conv3d: nnq.Conv3d,
}
DYNAMIC_LOWER_MODULE_MAP: dict[Any, Any] = {
    getattr(nnqr, name): getattr(nnqd, name) for name in ("Linear", "GRUCell", "LSTMCell", "RNNCell", "LSTM", "GRU")
}
WEIGHT_ONLY_LOWER_MODULE_MAP: dict[Any, Any] = {nnqr.Embedding: nnq.Embedding, nnqr.EmbeddingBag: nnq.EmbeddingBag}
SPECIAL_PATTERN_LOWER_MODULE_MAP: dict[Any, Any] = {
    **{
        getattr(nn, name): getattr(nnq, name)
        for name in (
            "BatchNorm2d", "BatchNorm3d", "ELU", "LeakyReLU", "Hardswish", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
            "LayerNorm", "Dropout", "Softmax", "PReLU",
        )
    },
    **{
        getattr(nnqr, name): getattr(nnq, name) for name in ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
    },
    nni.BNReLU2d: nniq.BNReLU2d,
    nni.BNReLU3d: nniq.BNReLU3d,
}  # fmt: skip
STATIC_LOWER_FUSED_MODULE_MAP: dict[Any, tuple[Any, Any]] = {  # fused layer: (reference form inside, quantized layer)
    nni.LinearReLU: (nnqr.Linear, nniq.LinearReLU),
    nni.LinearLeakyReLU: (nnqr.Linear, nniq.LinearLeakyReLU),
    nni.LinearTanh: (nnqr.Linear, nniq.LinearTanh),
    nni.ConvReLU1d: (nnqr.Conv1d, nniq.ConvReLU1d),
    nni.ConvReLU2d: (nnqr.Conv2d, nniq.ConvReLU2d),
    nni.ConvReLU3d: (nnqr.Conv3d, nniq.ConvReLU3d),
}
STATIC_LOWER_FUSED_MODULE_TWO_INPUTS_MAP: dict[Any, tuple[Any, Any]] = {
    nni.ConvAdd2d: (nnqr.Conv2d, nniq.ConvAdd2d),
    nni.ConvAddReLU2d: (nnqr.Conv2d, nniq.ConvAddReLU2d),
}
DYNAMIC_LOWER_FUSED_MODULE_MAP: dict[Any, tuple[Any, Any]] = {nni.LinearReLU: (nnqr.Linear, nniqd.LinearReLU)}
_BINARY: dict[Any, str] = {
    operator.add: "add",
    torch.add: "add",
    operator.mul: "mul",
    torch.mul: "mul",
    torch.matmul: "matmul",
}
_SKIPPED_ARGUMENTS = {  # of functions, that their quantized forms do not have
    F.hardswish: ("inplace",),
    F.elu: ("inplace",),
    F.dropout: ("inplace",),
    F.instance_norm: ("running_mean", "running_var", "use_input_stats", "momentum"),
}


class _Operations:
    """Functions, methods and modules that are lowered in the same way."""

    def __init__(self, functions: tuple = (), methods: tuple = (), modules: tuple = ()):
        self.functions, self.methods, self.modules = set(functions), set(methods), set(modules)

    def has(self, node: Node, modules: Modules) -> bool:
        if node.op == "call_function":
            return node.target in self.functions
        if node.op == "call_method":
            return node.target in self.methods
        return node.op == "call_module" and type(modules[str(node.target)]) in self.modules

    def __or__(self, other: _Operations) -> _Operations:
        both = zip((self.functions, self.methods, self.modules), (other.functions, other.methods, other.modules))
        return _Operations(*(tuple(a | b) for a, b in both))


_FIXED_RANGE = _Operations(fixed_ranges.FUNCTIONS, fixed_ranges.METHODS, fixed_ranges.LAYERS)
_WITH_OUTPUT_SCALE = _Operations(
    (F.elu, F.hardswish, F.instance_norm, F.layer_norm, F.leaky_relu, F.dropout),
    (),
    (
        nnqr.ConvTranspose1d, nnqr.ConvTranspose2d, nnqr.ConvTranspose3d, nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.InstanceNorm1d,
        nn.InstanceNorm2d, nn.InstanceNorm3d, nn.LayerNorm, nn.Dropout, nn.PReLU, nn.BatchNorm2d, nn.BatchNorm3d, nni.BNReLU2d,
        nni.BNReLU3d,
    ),
)  # fmt: skip
_SAME_SCALE = _Operations(
    (
        torch.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.hardtanh, F.hardtanh_, F.interpolate,
        F.max_pool1d, F.max_pool2d, F.max_pool3d, F.relu, F.relu6, torch.avg_pool1d, F.avg_pool2d, F.avg_pool3d, torch.clamp,
        torch.flatten, torch.mean, operator.floordiv, torch.channel_shuffle,
        torch.narrow, torch.transpose, torch.repeat_interleave, torch.squeeze, torch.stack, torch.unsqueeze, F.pixel_shuffle,
        F.pixel_unshuffle, torch.cat,
    ),
    (
        "clamp", "mean", "relu", "relu_", "contiguous", "detach", "detach_", "permute", "repeat", "repeat_interleave", "reshape",
        "resize_", "shape", "size", "squeeze", "squeeze_", "transpose", "unsqueeze", "unsqueeze_", "view",
    ),
    (
        nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.Hardtanh,
        nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.ReLU, nn.ReLU6, nn.ChannelShuffle, nn.Identity, nn.PixelShuffle,
        nn.PixelUnshuffle,
    ),
)  # fmt: skip
_SPECIAL = _FIXED_RANGE | _WITH_OUTPUT_SCALE | _SAME_SCALE


# -- shapes of nodes -----------------------------------------------------------------------------------------------------


def is_dequantize_node(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_method" and node.target == "dequantize"


def _is_quantize(node: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target is torch.quantize_per_tensor


def should_skip_lowering(op: Node, qconfig_map: dict[str, Any]) -> bool:
    return op.name in qconfig_map and qconfig_map[op.name] is None


def _is_relu(node: Node, modules: Modules) -> bool:
    if node.op == "call_function":
        return node.target in (F.relu, torch.relu)
    return type(_get_module(node, modules)) is nn.ReLU


def _match_static_pattern(
    node: Node, modules: Modules, qconfig_map: dict[str, Any], matching: Any, places: tuple[int, ...]
) -> tuple[Any, Any, Any]:
    """Return (quantize, relu or None, operator) of quantize([relu](operator(dequantize(x), ...))); Nones without a match.

    At `places`, the operator's arguments are dequantized values, or no nodes; at least one is a value."""
    nothing = (None, None, None)
    if not _is_quantize(node):
        return nothing
    ref: Any = node.args[0]
    relu = ref if _is_relu(ref, modules) else None
    if relu is not None:
        ref = relu.args[0]
    if should_skip_lowering(ref, qconfig_map):
        return nothing
    found = (
        type(_get_module(ref, modules))
        if ref.op == "call_module"
        else ref.target
        if ref.op == "call_function"
        else None
    )
    if found not in matching:
        return nothing
    args = [ref.args[i] for i in places]
    if any(isinstance(arg, Node) and not is_dequantize_node(arg) for arg in args):
        return nothing
    return (node, relu, ref) if any(map(is_dequantize_node, args)) else nothing


def _quantized_class(kind: type, module: Any, plain: dict, fused: dict) -> Any:
    if kind not in fused:
        return plain.get(kind)
    inner, target = fused[kind]
    return target if type(module[0]) is inner else None


def _set_module(modules: Modules, target: Any, module: Any) -> None:
    parent, name = _parent_name(str(target))
    setattr(modules[parent], name, module)


def _all_modules(model: GraphModule) -> Modules:
    return dict(model.named_modules(remove_duplicate=False))


# -- layers --------------------------------------------------------------------------------------------------------------


def _lower_static_modules(model: GraphModule, qconfig_map: dict[str, Any]) -> None:
    modules = _all_modules(model)
    two = STATIC_LOWER_FUSED_MODULE_TWO_INPUTS_MAP
    kinds = {**STATIC_LOWER_MODULE_MAP, **STATIC_LOWER_FUSED_MODULE_MAP}
    for node in model.graph.nodes:
        quantize, _, ref = _match_static_pattern(node, modules, qconfig_map, kinds, (0,))
        if quantize is None:
            quantize, _, ref = _match_static_pattern(node, modules, qconfig_map, two, (0,))
            if quantize is None or len(ref.args) != 2 or not all(map(is_dequantize_node, ref.args)):
                continue
        module = _get_module(ref, modules)
        target = _quantized_class(
            type(module), module, STATIC_LOWER_MODULE_MAP, {**STATIC_LOWER_FUSED_MODULE_MAP, **two}
        )
        if target is None:
            continue
        _, scale, zero_point, _ = quantize.args
        made = target.from_reference(module, getattr(model, scale.target), getattr(model, zero_point.target))
        _set_module(modules, ref.target, made)
        for arg in ref.args:
            ref.replace_input_with(arg, arg.args[0])
        quantize.replace_all_uses_with(ref)
        for gone in (quantize, scale, zero_point):
            model.graph.erase_node(gone)


def _lower_dynamic_modules(model: GraphModule) -> None:
    modules = _all_modules(model)
    for node in model.graph.nodes:
        if node.op != "call_module":
            continue
        module: Any = modules[str(node.target)]
        target = _quantized_class(type(module), module, DYNAMIC_LOWER_MODULE_MAP, DYNAMIC_LOWER_FUSED_MODULE_MAP)
        dequantize: Any = node.args[0] if node.args else None
        if target is None or not is_dequantize_node(dequantize):
            continue
        quantize = dequantize.args[0]
        if quantize.op != "call_function" or quantize.target is not torch.quantize_per_tensor_dynamic:
            continue
        if quantize.args[1] in (torch.float16, torch.quint8, torch.qint8):
            _set_module(modules, node.target, target.from_reference(module))
            node.replace_input_with(dequantize, quantize.args[0])


def _lower_weight_only_modules(model: GraphModule) -> None:
    modules = _all_modules(model)
    for node in model.graph.nodes:
        if node.op == "call_module":
            target = WEIGHT_ONLY_LOWER_MODULE_MAP.get(type(modules[str(node.target)]))
            if target is not None:
                _set_module(modules, node.target, target.from_reference(modules[str(node.target)]))


def _lower_static_functions(model: GraphModule, qconfig_map: dict[str, Any]) -> None:
    modules = _all_modules(model)
    functions: dict[Any, str] = {F.linear: "linear", **CONVS, **TRANSPOSED_CONVS}
    for node in model.graph.nodes:
        quantize, relu, call = _match_static_pattern(node, modules, qconfig_map, functions, (0, 1))
        if quantize is None:
            continue
        _, scale, zero_point, _ = quantize.args
        value, weight, *rest = call.args
        quantized_weight = weight.args[0]
        if quantized_weight.op != "call_function" or quantized_weight.target not in (
            torch.quantize_per_tensor,
            torch.quantize_per_channel,
        ):
            continue
        pack, pack_args = prepack(call.target, quantized_weight, rest)
        kwargs = dict(call.kwargs)
        if call.target is F.linear and "bias" in kwargs:
            kwargs["B"] = kwargs.pop("bias")
        with model.graph.inserting_before(scale):
            packed = model.graph.create_node("call_function", pack, tuple(pack_args), kwargs)
        with_relu = relu is not None and call.target not in TRANSPOSED_CONVS
        call.target = getattr(quantized_ops, functions[call.target] + ("_relu" if with_relu else ""))
        call.args, call.kwargs = (value.args[0], packed, scale, zero_point), {}
        quantize.replace_all_uses_with(call)
        zero_point.append(call)
        model.graph.erase_node(quantize)
        if with_relu:
            model.graph.erase_node(relu)


def _lower_dynamic_functions(model: GraphModule, qconfig_map: dict[str, Any]) -> None:
    modules = _all_modules(model)
    for node in reversed(model.graph.nodes):
        is_relu = node.op == "call_function" and node.target is F.relu or type(_get_module(node, modules)) is nn.ReLU
        relu: Any = node if is_relu else None
        call: Any = node.args[0] if is_relu else node
        if should_skip_lowering(call, qconfig_map) or call.op != "call_function" or call.target is not F.linear:
            continue  # convolutions have no fused relu for values that are quantized while they run
        value, weight, *rest = call.args
        if not (is_dequantize_node(value) and is_dequantize_node(weight)):
            continue
        quantize = value.args[0]
        if quantize.op != "call_function" or quantize.target is not torch.quantize_per_tensor_dynamic:
            continue
        source, dtype, reduce_range = quantize.args
        quantized_weight = weight.args[0]
        names = {(torch.quint8, torch.qint8): "dynamic", (torch.float16, torch.float16): "dynamic_fp16"}
        name = names.get((dtype, quantized_weight.args[-1]))
        if name is None:
            continue
        pack, pack_args = prepack(call.target, quantized_weight, rest)
        kwargs = dict(call.kwargs)
        pack_kwargs = {"B": kwargs.pop("bias")} if "bias" in kwargs else {}
        call.kwargs = kwargs
        with model.graph.inserting_before(call):
            packed = model.graph.create_node("call_function", pack, tuple(pack_args), pack_kwargs)
        call.target = getattr(quantized_ops, f"linear_{'relu_' if relu is not None else ''}{name}")
        call.args = (source, packed, reduce_range) if name == "dynamic" else (source, packed)
        if relu is not None:
            relu.replace_all_uses_with(call)
            model.graph.erase_node(relu)


# -- sums, products, and what needs no weight ----------------------------------------------------------------------------


def _lower_binary(model: GraphModule, qconfig_map: dict[str, Any]) -> None:
    modules = _all_modules(model)
    for node in model.graph.nodes:
        quantize, relu, call = _match_static_pattern(node, modules, qconfig_map, _BINARY, (0, 1))
        if quantize is None:
            continue
        values = [arg for arg in call.args if is_dequantize_node(arg)]
        for value in values:
            call.replace_input_with(value, value.args[0])
        args = list(call.args)
        if len(values) == 2:
            args += quantize.args[1:3]
        target = getattr(quantized_ops, _BINARY[call.target] + ("_relu" if relu is not None else ""))
        with model.graph.inserting_after(quantize):
            made = model.graph.create_node("call_function", target, tuple(args), {})
        made.stack_trace = call.stack_trace
        quantize.replace_all_uses_with(made)
        for gone in (quantize, *([relu] if relu is not None else []), call):
            model.graph.erase_node(gone)


def _lower_sizes(model: GraphModule) -> None:
    """Read sizes from the quantized tensor instead of the dequantized one."""
    for node in model.graph.nodes:
        is_shape = node.op == "call_function" and node.target is getattr and node.args[1] == "shape"
        if is_shape or (node.op == "call_method" and node.target in ("shape", "size")):
            value: Any = node.args[0]
            if is_dequantize_node(value):
                node.args = (value.args[0], *node.args[1:])


def _lower_special(model: GraphModule) -> None:
    """Lower operators that take quantized values directly, or with a scale and zero point for the result."""
    modules = _all_modules(model)
    for node in model.graph.nodes:
        is_half = node.op == "call_method" and node.target == "to" and node.args[1:] == (torch.float16,)
        if not _is_quantize(node) and not is_half:
            continue
        ref: Any = node.args[0]
        if not isinstance(ref, Node) or not _SPECIAL.has(ref, modules):
            continue
        if is_half and (_FIXED_RANGE | _WITH_OUTPUT_SCALE).has(ref, modules):
            continue
        first = ref.args[0] if ref.args else next(iter(ref.kwargs.values()))
        values = [first] if isinstance(first, Node) else list(first)
        if not all(map(is_dequantize_node, values)):
            continue
        _lower_one_special(model, modules, node, ref, values, is_half)


def _lower_one_special(
    model: GraphModule, modules: Modules, quantize: Node, ref: Node, values: list, is_half: bool
) -> None:
    qparams: Any = list(quantize.args[1:])
    if ref.op == "call_module" and not is_half:
        target = SPECIAL_PATTERN_LOWER_MODULE_MAP.get(type(modules[str(ref.target)]))
        if target is not None:
            scale, zero_point = (getattr(model, n.target) for n in qparams[:2])
            _set_module(modules, ref.target, target.from_reference(modules[str(ref.target)], scale, zero_point))
    for value in values:
        ref.replace_input_with(value, value.args[0])
    quantize.replace_all_uses_with(ref)
    model.graph.erase_node(quantize)
    if ref.op == "call_function" and ref.target in _WITH_OUTPUT_SCALE.functions:
        skipped = _SKIPPED_ARGUMENTS.get(ref.target, ())
        kwargs = {k: v for k, v in ref.kwargs.items() if k not in skipped}
        kwargs.update(output_scale=qparams[0], output_zero_point=qparams[1])
        with model.graph.inserting_after(qparams[1]):
            made = model.graph.create_node("call_function", get_quantized_operator(ref.target), ref.args, kwargs)
        made.stack_trace = ref.stack_trace
        ref.replace_all_uses_with(made)
        model.graph.erase_node(ref)
    else:
        for gone in qparams:
            if isinstance(gone, Node):
                model.graph.erase_node(gone)


def _lower_to_native_backend(
    model: GraphModule,
    qconfig_map: dict[str, Any],
    node_name_to_scope: dict[str, tuple[str, type]],
    keep_original_weights: bool = False,
) -> GraphModule:
    """Return the reference model with its patterns replaced by quantized layers and operators."""
    _lower_static_modules(model, qconfig_map)
    _lower_dynamic_modules(model)
    _lower_weight_only_modules(model)
    _lower_static_functions(model, qconfig_map)
    _lower_dynamic_functions(model, qconfig_map)
    _lower_binary(model, qconfig_map)
    _lower_sizes(model)
    _lower_special(model)
    model.graph.eliminate_dead_code()
    model = fold_weight(model, node_name_to_scope, keep_original_weights)
    model.graph.eliminate_dead_code()
    model.recompile()
    model.graph.lint()
    return model

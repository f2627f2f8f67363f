"""Equalization of inputs and weights in a prepared graph: each column of the input is multiplied, and that of the weight divided, so that
both have equal ranges. Between two equalized layers the factors are folded into the weights of the first; before the first one a
multiplication is inserted into the graph."""

from __future__ import annotations

import operator
import warnings
from collections import namedtuple
from typing import Any

import flambeau as torch

from .... import nn
from ....core.tensor import Tensor
from ....fx import GraphModule, Node
from ....nn import functional as F
from ...nn import intrinsic as nni
from ..observer import ObserverBase, PerChannelMinMaxObserver
from ..partial import _with_args
from ..utils import _parent_name, check_min_max_valid
from .graph_module import _get_observed_graph_module_attr
from .utils import get_new_attr_name_with_prefix, maybe_get_next_module, node_arg_is_weight

CUSTOM_MODULE_SUPP_LIST: list[Any] = []
_FUSED = (nni.LinearReLU, nni.ConvReLU1d, nni.ConvReLU2d, nni.ConvReLU3d)
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FUNCTIONS = (F.linear, F.conv1d, F.conv2d, F.conv3d)
_BY_CHANNEL = {
    torch.per_tensor_affine: torch.per_channel_affine,
    torch.per_tensor_symmetric: torch.per_channel_symmetric,
}


def reshape_scale(scale: Tensor, axis: int, input: Tensor) -> Tensor:
    """Return a scale for each element along an axis, in a shape that broadcasts with a tensor."""
    return scale.view([input.size(axis) if d == axis else 1 for d in range(input.ndim)])


def _is_one(scale: Tensor) -> bool:
    return scale.nelement() == 1 and bool(scale == 1)


def _check_dims(x: Tensor) -> None:
    if not 2 <= x.ndim <= 5:
        raise ValueError("InputEqualizationObserver only supports Linear and Conv layers")


class _InputEqualizationObserver(nn.Module):
    """Observer of the smallest and the largest value of each column of inputs."""

    def __init__(
        self,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_tensor_affine,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict | None = None,
    ) -> None:
        super().__init__()
        if qscheme not in _BY_CHANNEL:
            raise TypeError("Input qscheme must be per-tensor")
        self.dtype, self.qscheme = dtype, qscheme
        self.input_obs = PerChannelMinMaxObserver(
            ch_axis=1, dtype=dtype, qscheme=_BY_CHANNEL[qscheme], quant_min=quant_min, quant_max=quant_max,
            factory_kwargs=factory_kwargs,
        )  # fmt: skip
        self.equalization_scale = torch.tensor(1)
        self.equalization_shape: list[int] = []

    def forward(self, x_orig: Tensor) -> Tensor:
        _check_dims(x_orig)
        self.equalization_shape = [x_orig.size(1) if d == 1 else 1 for d in range(x_orig.ndim)]
        return self.input_obs(x_orig)

    def get_input_minmax(self) -> tuple[Tensor, Tensor]:
        return self.input_obs.min_val, self.input_obs.max_val

    def set_equalization_scale(self, equalization_scale: Tensor) -> None:
        if not _is_one(equalization_scale):
            self.equalization_scale = torch.reshape(equalization_scale, self.equalization_shape)

    def calculate_scaled_minmax(self) -> tuple[Any, Any]:
        """Return the smallest and the largest value of the scaled inputs."""
        if _is_one(self.equalization_scale):
            warnings.warn(
                "Must call calculate_equalization_scale before calling calculate_scaled_minmax. "
                "Will not scale the next quantization observer.",
                stacklevel=2,
            )
            return None, None
        low, high = self.get_input_minmax()
        scale = reshape_scale(self.equalization_scale, 0, low)
        return torch.min(low * scale), torch.max(high * scale)

    with_args = classmethod(_with_args)


class _WeightEqualizationObserver(nn.Module):
    """Observer of the smallest and the largest value of each column of a weight."""

    def __init__(
        self,
        dtype: Any = torch.qint8,
        qscheme: Any = torch.per_tensor_affine,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict | None = None,
    ) -> None:
        super().__init__()
        self.dtype, self.qscheme, self.ch_axis = dtype, qscheme, 1
        self.weight_col_obs = PerChannelMinMaxObserver(
            ch_axis=1, dtype=dtype, qscheme=_BY_CHANNEL.get(qscheme, qscheme), quant_min=quant_min, quant_max=quant_max,
            factory_kwargs=factory_kwargs,
        )  # fmt: skip
        self.equalization_scale = torch.tensor(1)

    def forward(self, w_orig: Tensor) -> Tensor:
        _check_dims(w_orig)
        return self.weight_col_obs(w_orig)

    def get_weight_col_minmax(self) -> tuple[Tensor, Tensor]:
        return self.weight_col_obs.min_val, self.weight_col_obs.max_val

    def set_equalization_scale(self, equalization_scale: Tensor) -> None:
        self.equalization_scale = equalization_scale

    with_args = classmethod(_with_args)


def calculate_equalization_scale(
    input_obs: _InputEqualizationObserver, weight_obs: _WeightEqualizationObserver
) -> Tensor:
    """Return the factors by which columns of the input are multiplied."""
    low, high = input_obs.get_input_minmax()
    low_weight, high_weight = weight_obs.get_weight_col_minmax()
    if not (check_min_max_valid(low, high) and check_min_max_valid(low_weight, high_weight)):
        warnings.warn(
            "Must run observer before calling calculate_equalization_scale. "
            "Returning default equalization scale torch.tensor(1).",
            stacklevel=2,
        )
        return torch.tensor(1)
    if low.shape != low_weight.shape:
        raise ValueError(
            "Input and Weight must have the same column dimension. "
            f"Found {low.shape} and {low_weight.shape} shapes instead."
        )
    scale = torch.sqrt((high_weight - low_weight) / (high - low))
    scale[scale == 0.0] = 1
    return torch.nan_to_num(scale, nan=1, posinf=1, neginf=1)


class EqualizationQConfig(namedtuple("EqualizationQConfig", ["input_activation", "weight"])):
    """Observers for the equalization of inputs and weights: classes, or results of `with_args`."""

    __slots__ = ()

    def __new__(cls, input_activation: Any = nn.Identity, weight: Any = nn.Identity) -> Any:
        if isinstance(input_activation, nn.Module) or isinstance(weight, nn.Module):
            raise ValueError(
                "EqualizationQConfig received observer instance, please pass observer class instead. "
                "Use MyObserver.with_args(x=1) to override arguments to constructor if needed"
            )
        return super().__new__(cls, input_activation, weight)


input_equalization_observer = _InputEqualizationObserver.with_args(
    dtype=torch.quint8, qscheme=torch.per_tensor_symmetric
)
weight_equalization_observer = _WeightEqualizationObserver.with_args(
    dtype=torch.qint8, qscheme=torch.per_channel_symmetric
)
default_equalization_qconfig = EqualizationQConfig(
    input_activation=input_equalization_observer, weight=weight_equalization_observer
)


def node_supports_equalization(node: Node, modules: dict[str, Any]) -> bool:
    """Return whether a node is a linear layer or a convolution."""
    if node.op == "call_module":
        return type(modules[str(node.target)]) in (*_LAYERS, *_FUSED, *CUSTOM_MODULE_SUPP_LIST)
    return node.op == "call_function" and node.target in _FUNCTIONS


def is_equalization_observer(observer: Any) -> bool:
    return isinstance(observer, (_InputEqualizationObserver, _WeightEqualizationObserver))


class _Equalization:
    """Equalization of a prepared model: find the scales, then apply them to the graph and its weights."""

    def __init__(self, model: GraphModule, modules: dict[str, Any]):
        self.model, self.modules = model, modules

    def module_of(self, node: Any, kind: Any) -> Any:
        """Return the module that a node calls if it has type `kind`, else None."""
        if not isinstance(node, Node) or node.op != "call_module":
            return None
        found = self.modules[str(node.target)]
        return found if isinstance(found, kind) else None

    def layer(self, node: Node) -> Any:
        module = self.modules[str(node.target)]
        return module[0] if type(module) in _FUSED else module

    def weight_observer_node(self, node: Node) -> Node | None:
        """Return the node that observes the weight of a function's call."""
        for arg in node.args:
            if node_arg_is_weight(node, arg) and self.module_of(arg, _WeightEqualizationObserver) is not None:
                return arg
        return None

    def weight_observer(self, node: Node) -> Any:
        if node.op == "call_function":
            found = self.weight_observer_node(node)
            return None if found is None else self.modules[str(found.target)]
        observer = _get_observed_graph_module_attr(self.model, "equalization_node_name_to_qconfig")[node.name].weight()
        observer(self.layer(node).weight)
        return observer

    def find_scales(self) -> dict[str, Any]:
        """Compute the scales; return the observers of weights, by the names of their layers' nodes."""
        found = {}
        for node in self.model.graph.nodes:
            inputs = self.module_of(node, _InputEqualizationObserver)
            if inputs is None:
                continue
            user = next((u for u in node.users if node_supports_equalization(u, self.modules)), None)
            if user is None:
                raise AssertionError("Expected an operation node after the input equalization observer")
            weights = self.weight_observer(user)
            if weights is None:
                continue
            scale = calculate_equalization_scale(inputs, weights)
            inputs.set_equalization_scale(scale)
            weights.set_equalization_scale(scale)
            found[user.name] = weights
        return found

    def next_scale(self, node: Node) -> Tensor | None:
        """Return the scale of the layer that follows directly, or after a relu."""
        relu = maybe_get_next_module(node, self.modules, nn.ReLU)
        relu = maybe_get_next_module(node, self.modules, target_functional_type=F.relu) if relu is None else relu
        observer = maybe_get_next_module(node if relu is None else relu, self.modules, ObserverBase)
        if observer is None:
            return None
        following = maybe_get_next_module(observer, self.modules, _InputEqualizationObserver)
        if following is None:
            return None
        scale = self.modules[str(following.target)].equalization_scale
        return None if _is_one(scale) else scale

    def apply(self, weights: dict[str, Any]) -> None:
        for node in list(self.model.graph.nodes):
            if self.module_of(node, _InputEqualizationObserver) is not None:
                self.apply_to_input(node)
            elif node.name in weights:
                scale = weights[node.name].equalization_scale
                following = self.next_scale(node)
                if not _is_one(scale):
                    self.apply_to_weight(node, scale, following)
                if node.op == "call_function":
                    self.forget_weight(node)

    def apply_to_input(self, node: Node) -> None:
        """Replace an observer of inputs by a multiplication; remove it if the layer before has the factors folded in."""
        observer_node: Any = node.args[0]
        source = observer_node.args[0]
        if not (node_supports_equalization(source, self.modules) or "relu" in source.name):
            observer = self.modules[str(node.target)]
            watching = self.modules[str(observer_node.target)]
            low, high = observer.calculate_scaled_minmax() if isinstance(watching, ObserverBase) else (None, None)
            if low is not None:
                watching.min_val, watching.max_val = low, high
            graph = self.model.graph
            name = get_new_attr_name_with_prefix(source.name + "_equalization_scale")(self.modules)
            setattr(self.model, name, observer.equalization_scale)
            with graph.inserting_before(observer_node):
                scale = graph.create_node("get_attr", name)
            with graph.inserting_after(scale):
                product = graph.create_node("call_function", torch.mul, (source, scale))
            observer_node.replace_input_with(source, product)
        self.remove(node, observer_node)

    def apply_to_weight(self, node: Node, scale: Tensor, following: Tensor | None) -> None:
        if node.op == "call_module":
            layer = self.layer(node)
            weight, bias = _scaled(layer.weight, layer.bias, scale, following)
            layer.weight = nn.Parameter(weight)
            if following is not None and bias is not None:
                layer.bias = nn.Parameter(bias)
            return
        observer: Any = self.weight_observer_node(node)
        places = [observer.args[0].args[0]]
        places += [a for a in node.args if isinstance(a, Node) and a.op == "get_attr" and "bias" in a.name][:1]
        homes = [(self.modules[parent], name) for parent, name in (_parent_name(str(p.target)) for p in places)]
        held = [getattr(*home) for home in homes]
        new = _scaled(held[0], held[1] if len(held) > 1 else None, scale, following)
        for home, value in zip(homes, new):
            if value is not None:
                setattr(*home, value)

    def forget_weight(self, node: Node) -> None:
        """Reset the weight's observer for the new weight, and remove the equalization observer."""
        observer: Any = self.weight_observer_node(node)
        if observer is not None:
            self.modules[str(observer.args[0].target)].reset_min_max_vals()
            self.remove(observer, observer.args[0])

    def remove(self, node: Node, instead: Node) -> None:
        for user in list(node.users):
            user.replace_input_with(node, instead)
        self.model.graph.erase_node(node)


def _scaled(weight: Tensor, bias: Tensor | None, scale: Tensor, following: Tensor | None) -> tuple[Tensor, Any]:
    """Divide a layer's weight by its inputs' factors, and multiply it and the bias by the factors of the next layer's inputs."""
    made = weight * torch.reciprocal(reshape_scale(scale, 1, weight))
    if following is None:
        return made, bias
    made = made * reshape_scale(following, 0, weight)
    return made, None if bias is None else bias * reshape_scale(following, 0, bias)


def equalize(model: GraphModule, modules: dict[str, Any]) -> None:
    """Find the equalization scales of a calibrated model, and apply them."""
    work = _Equalization(model, modules)
    work.apply(work.find_scales())


def _convert_equalization_ref(model: GraphModule) -> GraphModule:
    """Return the equalized model before quantization."""
    equalize(model, dict(model.named_modules(remove_duplicate=False)))
    return GraphModule(model, model.graph)


def get_equalization_qconfig_dict(layer_sqnr_dict: dict[str, float], num_layers_to_equalize: int) -> Any:
    """Return a configuration that equalizes the given number of layers with the lowest signal-to-noise ratio."""
    worst = sorted(layer_sqnr_dict.items(), key=operator.itemgetter(1))[:num_layers_to_equalize]
    return {"module_name": [(name, default_equalization_qconfig) for name, _ in worst]}

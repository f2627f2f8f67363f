"""Feature extraction: every node of a model's graph has a name, and a model can be made that returns some of their values.

>>> extractor = create_feature_extractor(resnet18(), {"layer1": "features", "layer4.1.relu_1": "last"})
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from flambeau import fx, nn
from flambeau.fx.graph_module import _KEPT_BY_COPIES, _CodeOnlyModule, _copy_attr
from flambeau.nn.unchanged import in_mode, unchanged
from flambeau.vision import ops

__all__ = ["create_feature_extractor", "get_graph_node_names"]


class LeafModuleAwareTracer(fx.Tracer):
    """A tracer with a given list of module classes that are leaves."""

    def __init__(self, *args: Any, leaf_modules: Any = (), **kwargs: Any) -> None:
        self.leaf_modules = leaf_modules
        super().__init__(*args, **kwargs)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, tuple(self.leaf_modules)) or super().is_leaf_module(m, module_qualified_name)


class NodePathTracer(LeafModuleAwareTracer):
    """A tracer that names every node by the path of the module that makes it: "layer1.0.add", or "layer1.0.relu_1" for the
    second call of a module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.current_module_qualname = ""
        self.node_to_qualname: OrderedDict[fx.Node, str] = OrderedDict()
        self._numbers: dict[str, int] = {}

    def call_module(self, m: nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Any:
        before, path = self.current_module_qualname, self.path_of_module(m)
        self.current_module_qualname = path
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.current_module_qualname = before

    def create_proxy(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None, type_expr: Any = None, *more: Any
    ) -> fx.Proxy:
        proxy = super().create_proxy(kind, target, args, kwargs, name, type_expr)
        self.node_to_qualname[proxy.node] = self._path(proxy.node)
        return proxy

    def _path(self, node: fx.Node) -> str:
        path = self.current_module_qualname
        if node.op != "call_module":
            path = f"{path}.{node}" if path else str(node)
        path = re.sub(r"(?<=.)_[0-9]+$", "", path)
        number = self._numbers.get(path)
        self._numbers[path] = 0 if number is None else number + 1
        return path if number is None else f"{path}_{number + 1}"


def _is_subsequence(part: list[str], whole: list[str]) -> bool:
    remaining = iter(whole)
    return all(item in remaining for item in part)


def _warn_graph_differences(train_tracer: NodePathTracer, eval_tracer: NodePathTracer) -> None:
    train, evaluation = (list(t.node_to_qualname.values()) for t in (train_tracer, eval_tracer))
    if train == evaluation:
        return
    if _is_subsequence(evaluation, train):
        message = (
            "NOTE: The nodes obtained by tracing the model in eval mode "
            "are a subsequence of those obtained in train mode. "
        )
    elif _is_subsequence(train, evaluation):
        message = (
            "NOTE: The nodes obtained by tracing the model in train mode "
            "are a subsequence of those obtained in eval mode. "
        )
    else:
        message = "The nodes obtained by tracing the model in train mode are different to those obtained in eval mode. "
    advice = (
        "When choosing nodes for feature extraction, you may need to specify "
        "output nodes for train and eval mode separately."
    )
    warnings.warn(message + advice, stacklevel=3)


def _tracer_options(given: dict[str, Any] | None) -> dict[str, Any]:
    """Return tracer options with torchvision's operators, and layers made of them, as leaves."""
    layers = [value for _, value in inspect.getmembers(ops) if inspect.isclass(value) and issubclass(value, nn.Module)]
    options = {} if given is None else given
    options["autowrap_modules"] = tuple({*options.get("autowrap_modules", ()), math, ops})
    options["leaf_modules"] = list({*options.get("leaf_modules", ()), *layers})
    return options


def _traced_modes(
    model: nn.Module, options: dict[str, Any], concrete_args: Any
) -> Iterator[tuple[str, NodePathTracer, fx.Graph]]:
    """Yield the model traced in training and in evaluation mode; its mode is restored afterwards."""
    for mode in ("train", "eval"):
        tracer = NodePathTracer(**options)
        with unchanged(model, training=mode == "train"):
            graph = tracer.trace(model, concrete_args=concrete_args)
        yield mode, tracer, graph


def get_graph_node_names(
    model: nn.Module,
    tracer_kwargs: dict[str, Any] | None = None,
    suppress_diff_warning: bool = False,
    concrete_args: dict[str, Any] | None = None,
) -> tuple[list[str], list[str]]:
    """Return the names of the nodes in training and in evaluation mode."""
    tracers = [tracer for _, tracer, _ in _traced_modes(model, _tracer_options(tracer_kwargs), concrete_args)]
    if not suppress_diff_warning:
        _warn_graph_differences(*tracers)
    train, evaluation = (list(t.node_to_qualname.values()) for t in tracers)
    return train, evaluation


class DualGraphModule(fx.GraphModule):
    """A module with one graph for training and one for evaluation."""

    def __init__(
        self, root: nn.Module, train_graph: fx.Graph, eval_graph: fx.Graph, class_name: str = "GraphModule"
    ) -> None:
        super(fx.GraphModule, self).__init__()
        type(self).__name__ = class_name
        self.train_graph, self.eval_graph = train_graph, eval_graph
        for node in itertools.chain(train_graph.nodes, eval_graph.nodes):
            if node.op in ("get_attr", "call_module"):
                if not isinstance(node.target, str):
                    raise TypeError(f"node.target should be of type str instead of {type(node.target)}")
                _copy_attr(root, self, node.target)
        self.train()
        self.graph = train_graph
        if eval_graph._tracer_cls is not train_graph._tracer_cls:
            raise TypeError(
                f"Train mode and eval mode should use the same tracer class. Instead got {eval_graph._tracer_cls} for eval"
                f" vs {train_graph._tracer_cls} for train"
            )
        tracer = train_graph._tracer_cls
        self._tracer_cls = tracer if tracer and "<locals>" not in tracer.__qualname__ else None

    def train(self, mode: bool = True) -> DualGraphModule:
        """Switch between training and evaluation, and exchange the graph accordingly."""
        if mode != self.training:
            self.graph = self.train_graph if mode else self.eval_graph
        return super().train(mode)

    def _deepcopy_init(self) -> Callable[..., None]:
        return DualGraphModule.__init__

    def __deepcopy__(self, memo: dict) -> DualGraphModule:
        copied: Any = type(self).__new__(type(self))
        memo[id(self)] = copied
        body = _CodeOnlyModule(copy.deepcopy(vars(self), memo))
        self._deepcopy_init()(copied, body, vars(body)["train_graph"], vars(body)["eval_graph"])
        for name in _KEPT_BY_COPIES:
            if name in vars(self):
                setattr(copied, name, copy.deepcopy(vars(self)[name], memo))
        copied.meta = copy.deepcopy(getattr(self, "meta", {}), memo)
        return copied.train(self.training)


def _name_nodes(nodes: Any) -> dict[str, str]:
    if isinstance(nodes, list):
        return {str(node): str(node) for node in nodes}
    return {str(node): str(name) for node, name in nodes.items()}


def _return_only(graph: fx.Graph, tracer: NodePathTracer, wanted: dict[str, str]) -> None:
    """Make the graph return, for each name, the last node of the requested module or node."""
    available = list(tracer.node_to_qualname.values())
    for query in wanted:
        if not any(re.match(rf"^{query}(\.|$)", name) for name in available):
            raise ValueError(
                f"node: '{query}' is not present in model. Hint: use `get_graph_node_names` to make sure the `return_nodes`"
                " you specified are present. It may even be that you need to specify `train_return_nodes` and"
                " `eval_return_nodes` separately."
            )
    graph.erase_node(graph.output_node())
    remaining = dict(wanted)
    chosen: list[tuple[str, fx.Node]] = []
    nodes = list(graph.nodes)
    for node in reversed(nodes):
        path = tracer.node_to_qualname.get(node)
        if path is None:
            continue
        found = next((q for q in remaining if ".".join(path.split(".")[: q.count(".") + 1]) == q), None)
        if found is not None:
            chosen.insert(0, (remaining.pop(found), node))
    with graph.inserting_after(nodes[-1]):
        graph.output(dict(chosen))


def create_feature_extractor(
    model: nn.Module,
    return_nodes: Any = None,
    train_return_nodes: Any = None,
    eval_return_nodes: Any = None,
    tracer_kwargs: dict[str, Any] | None = None,
    suppress_diff_warning: bool = False,
    concrete_args: dict[str, Any] | None = None,
) -> fx.GraphModule:
    """Return a model that returns a dict of inner values. `return_nodes` is a list of nodes' names, or a dict from them to the names in the
    result; a module's path means its last node. Parameters are shared with the model."""
    if return_nodes is None and train_return_nodes is None and eval_return_nodes is None:
        raise ValueError(
            "Either `return_nodes` or `train_return_nodes` and `eval_return_nodes` together, should be specified"
        )
    if (train_return_nodes is None) != (eval_return_nodes is None):
        raise ValueError(
            "If any of `train_return_nodes` and `eval_return_nodes` are specified, then both should be specified"
        )
    if (return_nodes is None) == (train_return_nodes is None):
        raise ValueError("If `train_return_nodes` and `eval_return_nodes` are specified, then both should be specified")
    wanted = {
        "train": _name_nodes(return_nodes if train_return_nodes is None else train_return_nodes),
        "eval": _name_nodes(return_nodes if eval_return_nodes is None else eval_return_nodes),
    }
    tracers, graphs = [], {}
    was_training = model.training
    for mode, tracer, graph in _traced_modes(model, _tracer_options(tracer_kwargs), concrete_args):
        traced = fx.GraphModule(tracer.root, graph, type(model).__name__)
        _return_only(graph, tracer, wanted[mode])
        traced.graph.eliminate_dead_code()
        tracers.append(tracer)
        graphs[mode] = graph
    if not suppress_diff_warning:
        _warn_graph_differences(*tracers)
    with in_mode(model, None):  # layers are shared: each stays in its own mode
        extractor = DualGraphModule(model, graphs["train"], graphs["eval"], class_name=type(model).__name__)
        return extractor.train(was_training)

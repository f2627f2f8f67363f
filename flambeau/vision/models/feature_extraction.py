"""The outputs of a model's inner modules.

torchvision finds nodes by tracing the model's code, so that functions (`add`, `flatten`) are nodes too. Here a node is a call of a
module: "layer1.0.conv1", or the n-th further call of one ("layer1.0.relu_1"), or a whole block ("layer1"). Names of these kinds
mean the same in both.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from flambeau import nn

__all__ = ["create_feature_extractor", "get_graph_node_names"]


def _refuse_tracing(tracer_kwargs: Any, concrete_args: Any) -> None:
    if tracer_kwargs or concrete_args:
        raise NotImplementedError(
            "nodes are calls of modules here: there is no tracer to take tracer_kwargs or concrete_args"
        )


def get_graph_node_names(
    model: nn.Module, tracer_kwargs: Any = None, suppress_diff_warning: bool = False, concrete_args: Any = None
) -> tuple[list[str], list[str]]:
    """The names of the modules at the end of the tree, in the order of registration, for training and for evaluation.

    Blocks and further calls of a module may be asked for as well; see the text above. The two lists never differ, so there is
    no warning to suppress.
    """
    _refuse_tracing(tracer_kwargs, concrete_args)
    names = [name for name, module in model.named_modules() if name and not any(True for _ in module.children())]
    return names, list(names)


class _AllFound(Exception):
    """Nothing after the last wanted node needs to run."""


def _located(model: nn.Module, node: str) -> tuple[str, int]:
    """The module a node name means, and which of its calls."""
    modules = dict(model.named_modules())
    if node in modules and node:
        return node, 0
    match = re.fullmatch(r"(.+)_([1-9]\d*)", node)
    if match and match.group(1) in modules:
        return match.group(1), int(match.group(2))
    raise ValueError(
        f"node: '{node}' is not present in model. Hint: use `get_graph_node_names` to make sure the `return_nodes` you "
        "specified are present; here nodes are calls of modules, not of functions."
    )


class FeatureExtractor(nn.Module):
    """A model that returns the outputs of some of its modules. Parameters are shared with the model, under the same names."""

    def __init__(self, model: nn.Module, train_nodes: Mapping[str, str], eval_nodes: Mapping[str, str]):
        super().__init__()
        self.__dict__["_model"] = model  # not a child: its children are this module's, with their own names
        for name, parameter in model.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in model.named_buffers(recurse=False):
            self.register_buffer(name, buffer)
        for name, child in model.named_children():
            self.add_module(name, child)
        self._nodes = {True: dict(train_nodes), False: dict(eval_nodes)}
        self._places = {node: _located(model, node) for nodes in self._nodes.values() for node in nodes}
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        model: nn.Module = self.__dict__["_model"]
        model.training = self.training
        wanted = self._nodes[self.training]
        found: dict[str, Any] = {}
        calls: dict[str, int] = {}
        nodes: dict[str, dict[int, str]] = {}
        for node in wanted:
            module, call = self._places[node]
            nodes.setdefault(module, {})[call] = node

        def watch(name: str) -> Any:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                call = calls.get(name, 0)
                calls[name] = call + 1
                if call in nodes[name]:
                    found[nodes[name][call]] = output
                    if len(found) == len(wanted):
                        raise _AllFound

            return hook

        handles = [model.get_submodule(name).register_forward_hook(watch(name)) for name in nodes]
        try:
            model(*args, **kwargs)
        except _AllFound:
            pass
        finally:
            for handle in handles:
                handle.remove()
        missing = [node for node in wanted if node not in found]
        if missing:
            raise RuntimeError(f"{type(model).__name__} did not run {missing}; no features to return for them")
        return OrderedDict((new, found[node]) for node, new in wanted.items())


def _as_mapping(nodes: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    return {str(k): str(v) for k, v in nodes.items()} if isinstance(nodes, Mapping) else {str(n): str(n) for n in nodes}


def create_feature_extractor(
    model: nn.Module,
    return_nodes: Sequence[str] | Mapping[str, str] | None = None,
    train_return_nodes: Sequence[str] | Mapping[str, str] | None = None,
    eval_return_nodes: Sequence[str] | Mapping[str, str] | None = None,
    tracer_kwargs: dict[str, Any] | None = None,
    suppress_diff_warning: bool = False,
    concrete_args: dict[str, Any] | None = None,
) -> FeatureExtractor:
    """A module that returns a dict of the outputs of these nodes (a list of names, or a mapping to new names).

    >>> from flambeau.vision.models import resnet18
    >>> features = create_feature_extractor(resnet18(), {"layer1": "fine", "layer4": "coarse"})
    """
    _refuse_tracing(tracer_kwargs, concrete_args)
    if return_nodes is None and (train_return_nodes is None or eval_return_nodes is None):
        raise ValueError(
            "Either `return_nodes` or `train_return_nodes` and `eval_return_nodes` together, should be specified"
        )
    if return_nodes is not None and (train_return_nodes is not None or eval_return_nodes is not None):
        raise ValueError(
            "If `train_return_nodes` and `eval_return_nodes` are specified, then `return_nodes` should not be"
        )
    train = train_return_nodes if return_nodes is None else return_nodes
    evaluation = eval_return_nodes if return_nodes is None else return_nodes
    assert train is not None and evaluation is not None
    return FeatureExtractor(model, _as_mapping(train), _as_mapping(evaluation))

"""`pipeline()`: a model's exported graph, split into stages where `pipe_split()` was called or where `split_spec` says.

A stage receives the outputs of the previous one, and passes on what later ones need as well: so stages communicate with their neighbours
only."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import flambeau

from ...export import export
from ...fx import Graph, GraphModule, Node
from ...library import Library
from ...nn import Module
from ...utils import _pytree as pytree
from ._utils import PipeInfo
from .stage import _PipelineStage, build_stage

_LIBRARY = Library("pippy", "FRAGMENT")
_LIBRARY.define("_pipe_split() -> ()")
_LIBRARY.impl("_pipe_split", lambda: None, "CompositeExplicitAutograd")


def pipe_split() -> None:
    """Mark the end of a stage in a model's `forward`: what follows belongs to the next one. It has no effect when the model runs
    unsplit."""
    flambeau.ops.pippy._pipe_split()


class SplitPoint(Enum):
    """Position of a split: before a module, or after it."""

    BEGINNING = 1
    END = 2


PipeSplitWrapper = type("PipeSplitWrapper", (), {"SplitPoint": SplitPoint})


def annotate_split_points(mod: Module, spec: dict[str, SplitPoint]) -> None:
    """Insert calls of `pipe_split` before or after these modules, in place."""
    for name, point in spec.items():
        target = mod.get_submodule(name)
        original = target.forward
        if point == SplitPoint.BEGINNING:
            target.forward = _before(original)
        elif point == SplitPoint.END:
            target.forward = _after(original)
        else:
            raise ValueError("Unknown split point type.")


def _before(forward: Callable) -> Callable:
    def split_and_forward(*args: Any, **kwargs: Any) -> Any:
        pipe_split()
        return forward(*args, **kwargs)

    return split_and_forward


def _after(forward: Callable) -> Callable:
    def forward_and_split(*args: Any, **kwargs: Any) -> Any:
        try:
            return forward(*args, **kwargs)
        finally:
            pipe_split()

    return forward_and_split


def _stages_of(graph: Graph) -> tuple[dict[Node, int], int]:
    """Return the stage of every node that computes, and the number of stages. A split after which nothing has been computed is ignored."""
    stage, fresh, found = 0, False, dict[Node, int]()
    for node in graph.nodes:
        if node.op == "call_function" and "_pipe_split" in str(node.target):
            stage += fresh
            fresh = False
        elif node.op not in ("placeholder", "get_attr", "output"):
            found[node] = stage
            fresh = True
    return found, stage + fresh


class _Cut:
    """The graphs of the stages, extracted from one graph."""

    def __init__(self, whole: GraphModule) -> None:
        self.whole, self.graph = whole, whole.graph
        self.stage_of, self.count = _stages_of(self.graph)
        self.inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.result = next(n for n in self.graph.nodes if n.op == "output")
        self.last_use: dict[Node, int] = {}
        for node in self.graph.nodes:
            stage = self.count - 1 if node is self.result else self.stage_of.get(node)
            if stage is not None:
                for source in node.all_input_nodes:
                    self.last_use[source] = max(self.last_use.get(source, 0), stage)

    def handed_on(self, stage: int) -> list[Node]:
        """Return the values that a stage passes to the next: all that later ones need."""
        made = [*self.inputs, *self.stage_of]
        return [n for n in made if self.stage_of.get(n, 0) <= stage < self.last_use.get(n, -1) and n.op != "get_attr"]

    def module(self, stage: int) -> GraphModule:
        graph = Graph()
        here: dict[Node, Node] = {}
        for node in self.inputs if stage == 0 else self.handed_on(stage - 1):
            here[node] = graph.placeholder(node.name)
        for node, number in self.stage_of.items():
            if number != stage:
                continue
            for source in node.all_input_nodes:
                if source.op == "get_attr" and source not in here:
                    here[source] = graph.node_copy(source)
            here[node] = graph.node_copy(node, lambda n: here[n])
        if stage == self.count - 1:
            for source in self.result.all_input_nodes:
                if source.op == "get_attr" and source not in here:
                    here[source] = graph.node_copy(source)
            graph.output(tuple(here[n] if isinstance(n, Node) else n for n in self.result.args[0]))
        else:
            graph.output(tuple(here[n] for n in self.handed_on(stage)))
        return GraphModule(self.whole, graph, f"Stage{stage}")


def _nested(module: GraphModule, shape: Any) -> GraphModule:
    flat = module.forward

    def forward(*args: Any) -> Any:
        return pytree.tree_unflatten(list(flat(*args)), shape)

    module.forward = forward
    return module


class Pipe(Module):
    """A model in stages, `get_stage_module(i)` each. A call runs them one after the other and returns (result,)."""

    def __init__(self, split_gm: Module, num_stages: int, has_loss_and_backward: bool, loss_spec: Any = None) -> None:
        super().__init__()
        self.split_gm, self.num_stages = split_gm, num_stages
        self.has_loss_and_backward, self.loss_spec = has_loss_and_backward, loss_spec

    def get_stage_module(self, stage_idx: int) -> Module:
        """Return the module of one stage."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return getattr(self.split_gm, f"submod_{stage_idx}")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        values: Any = tuple(pytree.tree_flatten((args, kwargs))[0])
        for number in range(self.num_stages):
            values = self.get_stage_module(number)(*values)
        return (values,) if not isinstance(values, tuple) else values

    def info(self) -> PipeInfo:
        """Return a description of the pipeline, for `build_stage`."""
        return PipeInfo(
            graph=self.split_gm, num_stages=self.num_stages, has_loss_and_backward=self.has_loss_and_backward
        )

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> _PipelineStage:
        """Make the pipeline stage that this rank runs."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self.info(), device, group)

    def print_readable(self) -> None:
        """Print the code of all stages."""
        for number in range(self.num_stages):
            print(self.get_stage_module(number))

    @staticmethod
    def from_tracing(
        mod: Module,
        example_args: tuple[Any, ...],
        example_kwargs: dict[str, Any] | None = None,
        split_policy: Callable[[GraphModule], GraphModule] | None = None,
    ) -> Pipe:
        """Export a model with these example arguments, and split it."""
        whole: Any = export(mod, example_args, example_kwargs, strict=False)
        graph_module = whole.module()
        if split_policy is not None:
            graph_module = split_policy(graph_module)
        cut = _Cut(graph_module)
        stages = Module()
        for number in range(cut.count):
            stage = cut.module(number)
            if number == cut.count - 1:
                stage = _nested(stage, graph_module._out_spec)
            stages.add_module(f"submod_{number}", stage)
        return Pipe(stages, cut.count, False)


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[[GraphModule], GraphModule] | None = None,
) -> Pipe:
    """Split a model into stages, with the arguments of one microbatch as an example: at the modules that `split_spec` names, where
    `split_policy` inserts `pipe_split` calls into the graph, or else where the model itself calls `pipe_split()`."""
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    if split_spec is None:
        return Pipe.from_tracing(module, mb_args, mb_kwargs, split_policy)
    forwards = {name: module.get_submodule(name).__dict__.get("forward") for name in split_spec}
    annotate_split_points(module, split_spec)
    try:
        return Pipe.from_tracing(module, mb_args, mb_kwargs)
    finally:
        for name, forward in forwards.items():  # the model is left as it was
            del module.get_submodule(name).__dict__["forward"]
            if forward is not None:
                module.get_submodule(name).__dict__["forward"] = forward

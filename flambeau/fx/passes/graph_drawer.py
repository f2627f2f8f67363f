"""Drawings of graphs with the package `pydot` (and graphviz, to render them)."""

from __future__ import annotations

import hashlib
from itertools import chain
from typing import Any

import flambeau

from ...nn import Module, Parameter
from ..codegen import _parse_stack_trace
from ..graph_module import GraphModule, _get_attr
from ..names import qualified_name
from ..node import Node, _format_arg
from ..operator_schemas import normalize_function
from .shape_prop import TensorMetadata

__all__ = ["FxGraphDrawer"]

_COLOURS = {
    "placeholder": '"AliceBlue"',
    "call_module": "LemonChiffon1",
    "get_param": "Yellow2",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
}
_TARGET_COLOURS = [
    "CadetBlue1", "Coral", "DarkOliveGreen1", "DarkSeaGreen1", "GhostWhite", "Khaki1", "LavenderBlush1",
    "LightSkyBlue", "MistyRose1", "MistyRose2", "PaleTurquoise2", "PeachPuff1", "Salmon", "Thistle1", "Thistle3",
    "Wheat1",
]  # fmt: skip
_BOX = {"style": '"filled,rounded"', "fontcolor": "#000000"}


def _pydot() -> Any:
    try:
        import pydot  # noqa: PLC0415  an optional package
    except ModuleNotFoundError:
        raise RuntimeError(
            "FXGraphDrawer requires the pydot package to be installed. Please install "
            "pydot through your favorite Python package manager."
        ) from None
    return pydot


def _escape(text: str) -> str:
    return text.replace("{", r"\{").replace("}", r"\}")


class FxGraphDrawer:
    """Draws a graph module: `FxGraphDrawer(gm, "name").get_dot_graph().write_svg("file.svg")`. Submodules that are graphs have separate
    drawings."""

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._pydot = _pydot()
        self._name = name
        self.dot_graph_shape = dot_graph_shape if dot_graph_shape is not None else "record"
        self.normalize_args = normalize_args
        self.ignore_getattr, self.ignore_parameters = ignore_getattr, ignore_parameters_and_buffers
        self.skip_node_names, self.parse_stack_trace = skip_node_names_in_args, parse_stack_trace
        self._dot_graphs = {name: self._to_dot(graph_module, name)}
        for node in graph_module.graph.nodes:
            if node.op == "call_module":
                module = _get_attr(graph_module, node.target)
                if isinstance(module, GraphModule):
                    self._dot_graphs[f"{name}_{node.target}"] = self._to_dot(module, f"{name}_{node.target}")

    def get_dot_graph(self, submod_name: str | None = None) -> Any:
        """Return the drawing of the module or of a submodule."""
        return self.get_main_dot_graph() if submod_name is None else self.get_submod_dot_graph(submod_name)

    def get_main_dot_graph(self) -> Any:
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> Any:
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, Any]:
        return self._dot_graphs

    def _to_dot(self, module: GraphModule, name: str) -> Any:
        pydot = self._pydot
        drawing = pydot.Dot(name, rankdir="TB")
        shown = [n for n in module.graph.nodes if not (self.ignore_getattr and n.op == "get_attr")]
        for node in shown:
            drawing.add_node(pydot.Node(node.name, label=self._label(module, node), **self._style(node)))
            if node.op == "call_module" and not self.ignore_parameters:
                self._draw_parameters(drawing, node, _get_attr(module, node.target))
        for node in shown:
            for user in node.users:
                drawing.add_edge(pydot.Edge(node.name, user.name))
        return drawing

    def _draw_parameters(self, drawing: Any, node: Node, module: Module) -> None:
        if isinstance(module, GraphModule):
            return
        for name, tensor in chain(module.named_parameters(), module.named_buffers()):
            full = f"{node.name}.{name}"
            kind = "parameter" if isinstance(tensor, Parameter) else "buffer"
            label = f"{{{full}|op_code=get_{kind}\\l{tensor.dtype}{list(tensor.shape)}\\n}}"
            style = {"fillcolor": "Salmon", "shape": self.dot_graph_shape, **_BOX}
            drawing.add_node(self._pydot.Node(full, label=label, **style))
            drawing.add_edge(self._pydot.Edge(full, node.name))

    def _style(self, node: Node) -> dict[str, str]:
        colour = _COLOURS.get(node.op)
        if colour is None:
            name = node._pretty_print_target(node.target)
            number = int(hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[:8], 16)
            colour = _TARGET_COLOURS[number % len(_TARGET_COLOURS)]
        return {"shape": self.dot_graph_shape, "fillcolor": colour, **_BOX}

    def _label(self, module: GraphModule, node: Node) -> str:
        label = f"{{name=%{node.name}|op_code={node.op}\n"
        if node.op == "call_module":
            called = _get_attr(module, node.target)
            constants = [f"{c}: {getattr(called, c)}" for c in getattr(called, "__constants__", ())]
            label += f"\\n{_escape(flambeau.typename(called))}\\n|" + r"\n".join(constants) + r"\n"
        else:
            target = node.target if isinstance(node.target, str) else qualified_name(node.target)
            label += f"|target={_escape(target)}\\n"
            args, kwargs = self._arguments(node)
            label += self._values(args, "args=(", ")") if args else ""
            label += self._values(kwargs, "kwargs={", "}") if kwargs else ""
            label += f"|num_users={len(node.users)}\\n"
        label += self._metadata(node.meta.get("tensor_meta"))
        place = _parse_stack_trace(node.stack_trace) if self.parse_stack_trace else None
        if place is not None:
            short = "/".join(place.file.split("/")[-2:])
            label += f"|file={short}:{place.lineno} {place.code}\\n"
        return label + "}"

    def _arguments(self, node: Node) -> tuple[Any, Any]:
        found = None
        if self.normalize_args and node.op == "call_function":
            found = normalize_function(node.target, node.args, node.kwargs, normalize_to_only_use_kwargs=True)
        return (node.args, node.kwargs) if found is None else (found.args, found.kwargs)

    def _values(self, values: Any, opening: str, closing: str) -> str:
        if isinstance(values, dict):
            shown = [f"{k}: {_format_arg(v, max_list_len=8)}" for k, v in values.items()]
        else:
            shown = [_format_arg(v, max_list_len=8) for v in values]
        if self.skip_node_names:
            shown = [text for text in shown if "%" not in text]
        if not shown:
            return ""
        if len(shown) == 1:
            return _escape(f"|{opening}{shown[0]},{closing}")
        return _escape(f"|{opening}\\l" + r",\n".join(shown) + rf",\n{closing}\l")

    def _metadata(self, meta: Any) -> str:
        if meta is None:
            return ""
        if isinstance(meta, TensorMetadata):
            fields = {"dtype": meta.dtype, "shape": tuple(meta.shape)}
            fields |= {"requires_grad": meta.requires_grad, "stride": meta.stride}
            return "".join(f"|{name}={value}\\n" for name, value in fields.items())
        if isinstance(meta, (list, tuple, dict)):
            return "".join(self._metadata(m) for m in (meta.values() if isinstance(meta, dict) else meta))
        raise RuntimeError(f"Unsupported tensor meta type {type(meta)}")

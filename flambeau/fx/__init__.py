"""Graphs of programs: trace a module, read and change what it does, and get a module again.

>>> module = symbolic_trace(flambeau.nn.Sequential(flambeau.nn.Linear(3, 4), flambeau.nn.ReLU()))
>>> print(module.code.strip())
def forward(self, input):
    input_1 = input
    _0 = getattr(self, "0")(input_1);  input_1 = None
    _1 = getattr(self, "1")(_0);  _0 = None
    return _1
"""

from . import immutable_collections, interpreter, node, proxy, traceback
from ._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace
from .graph import CodeGen, Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .patching import wrap
from .proxy import Proxy
from .subgraph_rewriter import replace_pattern

__all__ = [
    "CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "PH", "Proxy", "ProxyableClassMeta", "Tracer",
    "Transformer", "has_side_effect", "immutable_collections", "interpreter", "map_arg", "node", "proxy",
    "replace_pattern", "symbolic_trace", "traceback", "wrap",
]  # fmt: skip

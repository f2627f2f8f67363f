"""Types that the gradual checker of traced programs infers: shapes of which some sizes are unknown."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
C, TT, fx = module("fx.experimental.graph_gradual_typechecker"), module("fx.tensor_type"), module("fx")
T, D = TT.TensorType, TT.Dyn
import operator
def inferred(given, *calls, made=None):
    root = nn.Module()
    root.w = nn.Parameter(exact(2, 3))
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{i}") for i in range(len(given))]
    for node, kind in zip(nodes, given):
        node.type = kind
    for i, call in enumerate(calls):
        target, args, kwargs, kind = (*call, *(None, None, None))[:4]
        args = tuple(nodes[a.index] if isinstance(a, At) else a for a in args or ())
        if isinstance(target, nn.Module):
            setattr(root, f"m{i}", target)
            made = graph.call_module(f"m{i}", args)
        elif isinstance(target, str):
            made = graph.get_attr(target) if target == "w" else graph.call_method(target, args, kwargs or {})
        else:
            made = graph.call_function(target, args, kwargs or {})
        made.type = kind
        nodes.append(made)
    graph.output(nodes[-1])
    traced = fx.GraphModule(root, graph)
    done = C.GraphTypeChecker({}, traced).type_check()
    return done, [[str(d) for d in n.type.dims] if isinstance(n.type, T) else str(n.type) for n in graph.nodes], [bool(n.meta.get("broadcast")) for n in graph.nodes]
class At:
    def __init__(self, index):
        self.index = index
x, y = At(0), At(1)
"""
# A program for each line: expressions, between semicolons.
CALLS = """
str(T((1, D))); str(T[2, D, 3]); repr(D); str(D); T((1, 2)) == T([1, 2]); T((1, 2)) == T((2, 1)); D == D; T((1, 2)).dims; T((1, 2)) == (1, 2); str(T[(1, 2)])
[TT.is_consistent(a, b) for a in (D, T((1, D)), T((1, 2)), int, T((1, D, 3))) for b in (D, T((1, D)), T((D, 3)), T((1, 2)), T((2, 2)), int, float, T((1, 2, 3)))]; [TT.is_more_precise(a, b) for a in (D, T((1, D)), T((1, 2)), int, T((1, D, 3))) for b in (D, T((1, D)), T((D, 3)), T((1, 2)), T((2, 2)), int, float, T((1, 2, 3)))]
str(C.get_greatest_upper_bound(D, T((1, 2)))); str(C.get_greatest_upper_bound(T((1, 2)), D)); str(C.get_greatest_upper_bound(T((D, 2)), T((1, D)))); C.get_greatest_upper_bound(T((2, 2)), T((1, D))); C.get_greatest_upper_bound(T((2,)), T((1, D))); str(C.get_greatest_upper_bound(D, D)); str(C.get_greatest_upper_bound(T((D, D)), T((3, D))))
str(C.expand_to_tensor_dim(D, 4)); str(C.expand_to_tensor_dim(D, 1)); str(C.expand_to_tensor_dim(T((1, 2)), 2)); C.expand_to_tensor_dim(T((1, 2)), 3); C.expand_to_tensor_dim(int, 3)
list(map(str, C.broadcast_types(D, T((1, 2))))); list(map(str, C.broadcast_types(T((1, 2)), D))); list(map(str, C.broadcast_types(T((1, 2)), T((3, 1))))); list(map(str, C.broadcast_types(T((4, 1, 2)), T((3, 1))))); list(map(str, C.broadcast_types(T((3, D)), T((5, 1, D, 2))))); C.broadcast_types(int, T((1,))); C.broadcast_types(T((1,)), float); list(map(str, C.broadcast_types(T((2, 3)), T((4, 5)))))
C.register_inference_rule(L.add)(len); raised(lambda: C.register_inference_rule("another one")(len)); C.register_inference_rule("another one")(len)
inferred([T((2, 3)), T((1, 3))], (L.add, (x, y))); inferred([T((2, 3)), T((3,))], (operator.add, (x, y))); inferred([T((2, 3)), T((2, 4))], (L.add, (x, y))); inferred([T((2, 3)), D], (L.add, (x, y))); inferred([D, T((2, 3))], (L.add, (x, y))); inferred([D, D], (L.add, (x, y))); inferred([T((2, 3)), int], (L.add, (x, y))); inferred([int, int], (L.add, (x, y))); inferred([T((D, 3)), T((2, D))], (L.add, (x, y))); inferred([T((2, 3)), None], (L.add, (x, y))); inferred([T((1, D)), T((D, 4))], (L.add, (x, y)))
inferred([T((2, 3))], (L.reshape, (x, [6]))); inferred([T((2, 3))], (L.reshape, (x, [-1, 2]))); inferred([T((2, 3))], (L.reshape, (x, [4]))); inferred([D], (L.reshape, (x, [4, -1]))); inferred([T((2, D))], (L.reshape, (x, [4, 5]))); inferred([T((3, D))], (L.reshape, (x, [4, 5]))); inferred([T((2, D))], (L.reshape, (x, [2, -1]))); inferred([T((2, 3))], (L.reshape, (x, [3, 2]))); inferred([T((2, 3))], (L.reshape, (x, [12, -1]))); inferred([T((2, 3))], (L.reshape, (x, [12]))); inferred([T((2, 3))], (L.reshape, (x, [3]))); inferred([T((2, 6))], (L.reshape, (x, [4, -1]))); inferred([T((2, 6))], (L.reshape, (x, [8, -1]))); inferred([T((2, D, 3))], (L.reshape, (x, [3, 4]))); inferred([T((2, D, D))], (L.reshape, (x, [3, 4])))
inferred([T((2, 3, 4))], (L.transpose, (x, 0, 2))); inferred([T((2, 3, 4))], (L.transpose, (x, 1, 2))); inferred([T((2, 3, 4))], (L.transpose, (x, 1, 3))); inferred([T((2, 3, 4))], (L.transpose, (x, 3, 1))); inferred([T((2, 3, 4))], (L.transpose, (x, -1, 0))); inferred([D], (L.transpose, (x, 0, 1))); inferred([T((2, 3))], (L.transpose, (x, 0, 1), {}, T((3, D)))); inferred([T((2, 3))], (L.transpose, (x, 0, 1), {}, T((2, D))))
inferred([T((2, 3, 4))], (L.flatten, (x, 1))); inferred([T((2, 3, 4))], (L.flatten, (x, 0, 1))); inferred([T((2, D, 4))], (L.flatten, (x, 1))); inferred([T((2, D, 4))], (L.flatten, (x, 0, 1))); inferred([T((2, 3, 4))], (L.flatten, (x, 1, -1))); inferred([T((2, 3, 4))], (L.flatten, (x, 2, 1))); inferred([T((2, 3, 4))], (L.flatten, (x, 1, 3))); inferred([T((2, 3, 4))], (L.flatten, (x, 3, 3))); inferred([T((2, 3, 4))], (L.flatten, (x, 1, 1))); inferred([D], (L.flatten, (x, 1))); inferred([D], (L.flatten, (x, 1), {}, T((2, D)))); inferred([T((2, 3, 4))], (L.flatten, (x, 1), {}, T((2, D)))); inferred([T((2, 3, 4))], (L.flatten, (x, 1), {}, T((2, 13)))); inferred([T((2, 3, 4, 5))], (L.flatten, (x, 1, 2))); inferred([T((2, 3, 4, 5))], (L.flatten, (x, 0, -2)))
inferred([T((2, 3, 4, 5))], (nn.BatchNorm2d(3), (x,))); inferred([T((2, 3, 4, 5))], (nn.BatchNorm2d(4), (x,))); inferred([D], (nn.BatchNorm2d(4), (x,))); inferred([T((2, D, 4, 5))], (nn.BatchNorm2d(4), (x,))); inferred([T((2, 4, 5))], (nn.BatchNorm2d(4), (x,))); inferred([T((2, D, 4, 5))], (nn.BatchNorm2d(4), (x,), {}, T((D, 4, 4, 5)))); inferred([T((2, D, 4, 5))], (nn.BatchNorm2d(4), (x,), {}, T((D, 3, 4, 5)))); inferred([T((2, D, 4, 5))], (nn.BatchNorm2d(4), (x,), {}, T((3, 4, 4, 5))))
inferred([T((2, 3, 9, 8))], (nn.Conv2d(3, 4, 3), (x,))); inferred([T((2, 3, D, 8))], (nn.Conv2d(3, 4, 3, stride=2), (x,))); inferred([T((2, D, 9, D))], (nn.Conv2d(3, 4, 3), (x,))); inferred([T((2, 4, 9, 8))], (nn.Conv2d(3, 4, 3), (x,))); inferred([D], (nn.Conv2d(3, 4, 3), (x,))); inferred([T((3, 9, 8))], (nn.Conv2d(3, 4, 3), (x,))); inferred([T((2, 3, 9, 8))], (nn.Conv2d(3, 4, 3), (x,), {}, T((D, 4, 7, D)))); inferred([T((2, 3, 9, 8))], (nn.Conv2d(3, 4, 3), (x,), {}, T((D, 4, 8, D)))); inferred([T((2, 3, 9, 8))], (nn.Conv2d(3, 4, (1, 5), dilation=(3, 2)), (x,)))
inferred([T((2, 3, 9, 8))], (nn.MaxPool2d(3), (x,))); inferred([T((3, 9, 8))], (nn.MaxPool2d(3, 2), (x,))); inferred([T((9, 8))], (nn.MaxPool2d(3), (x,))); inferred([T((1, 2, 3, 9, 8))], (nn.MaxPool2d(3), (x,))); inferred([D], (nn.MaxPool2d(3), (x,))); inferred([D], (nn.MaxPool2d(3), (x,), {}, T((1, D)))); inferred([T((2, 3, D, 8))], (nn.MaxPool2d(3, 1), (x,))); inferred([T((2, 3, 9, 8))], (nn.MaxPool2d(2), (x,), {}, T((D, 3, D, 4)))); inferred([T((2, 3, 9, 8))], (nn.MaxPool2d(2), (x,), {}, T((D, 3, D, 5))))
inferred([T((2, 3, 9, 8))], (nn.AdaptiveAvgPool2d(3), (x,))); inferred([T((2, 3, 9, 8))], (nn.AdaptiveAvgPool2d((3, 5)), (x,))); inferred([T((3, 9, 8))], (nn.AdaptiveAvgPool2d(3), (x,))); inferred([T((9, 8))], (nn.AdaptiveAvgPool2d(3), (x,))); inferred([D], (nn.AdaptiveAvgPool2d(3), (x,))); inferred([T((2, 3, 9, 8))], (nn.AdaptiveAvgPool2d(3), (x,), {}, T((2, 3, 3, 4))))
inferred([T((2, 3, 9, 8))], (nn.Linear(8, 4), (x,))); inferred([T((2, 7))], (nn.Linear(8, 4), (x,))); inferred([T((2, D))], (nn.Linear(8, 4), (x,))); inferred([D], (nn.Linear(8, 4), (x,))); inferred([D], (nn.Linear(8, 4), (x,), {}, T((D, 4)))); inferred([T((2, 8))], (nn.Linear(8, 4), (x,), {}, T((D, 4)))); inferred([T((2, 8))], (nn.Linear(8, 4), (x,), {}, T((D, 5))))
inferred([T((2, 3))], (nn.ReLU(), (x,))); inferred([D], (nn.ReLU(), (x,))); inferred([D], (nn.ReLU(), (x,), {}, T((2, D)))); inferred([T((2, D))], (nn.ReLU(), (x,), {}, T((D, 3)))); inferred([T((2, D))], (nn.ReLU(), (x,), {}, T((3, 3)))); inferred([T((2, 3))], (nn.Sigmoid(), (x,))); inferred([T((2, 3))], (L.sigmoid, (x,))); inferred([T((2, 3))], ("sigmoid", (x,))); inferred([T((2, 3))], ("w",)); inferred([T((2, 3))], ("w", (), {}, T((2, D)))); inferred([T((2, 3))], ("w",), (L.add, (x, At(1)))); inferred([None], (nn.ReLU(), (x,))); inferred([T((2, 3, 9, 8))], (nn.Conv2d(3, 4, (3, 2), stride=2, padding=(1, 2), dilation=(2, 1)), (x,))); inferred([T((2, 3, 9, 8))], (nn.MaxPool2d((3, 2), stride=2, padding=(1, 0), dilation=(1, 2)), (x,)))
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)

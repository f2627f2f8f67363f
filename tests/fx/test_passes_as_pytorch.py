"""Passes, traces, schemas and hooks of traced programs, at the border of each check, with PyTorch's outcome."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
import typing, operator, copy, types
fx, S, PM, IP = module("fx"), module("fx.operator_schemas"), module("fx.passes.pass_manager"), module("fx.passes.infra.pass_manager")
TB, G, M, U = module("fx.traceback"), module("fx.passes.graph_manipulation"), module("fx.passes.utils.matcher_utils"), module("fx.passes.utils.source_matcher_utils")
SP, TC, NM, B = module("fx.passes.split_utils"), module("fx.passes.tools_common"), module("fx.passes.utils.matcher_with_name_node_map_utils"), module("fx.passes.infra.pass_base")
x = exact(2, 3)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner = nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.register_buffer("b", exact(2))
    def forward(self, x, scale=2.0):
        return self.inner(self.first(x)) * scale + self.b
def traced(function=None):
    return fx.symbolic_trace(function or Net())
def text(made):
    return (made.code if hasattr(made, "code") else str(made)).replace("flambeau", "torch")
def node(made, name):
    return next(n for n in made.graph.nodes if n.name == name)
def swapped(old, *new):
    made = traced(lambda x: L.relu(x) + x.neg() + F.relu(x))
    G.replace_target_nodes_with(made, old[0], old[1], *new)
    made.recompile()
    return text(made), made(x)
def sized(made, args):
    G.get_size_of_all_nodes(made, args)
    return [[n.name, n.size_bytes] for n in made.graph.nodes if hasattr(n, "size_bytes")]
def one(n):
    return n + 1
def two(n):
    return n * 2
def three(n):
    return n - 3
def manager(constraints=(), **more):
    return PM.PassManager([one, two, three], list(constraints), **more)
def edited(steps, change):
    def run(made):
        steps.append(len(made.graph.nodes))
        done = False
        for n in list(made.graph.nodes):
            if change and n.target is L.relu and not done:
                n.target, done = L.tanh, True
        made.recompile()
        return B.PassResult(made, done)
    return run
def ran(steps=2, changes=True, **more):
    seen = []
    made = IP.PassManager([edited(seen, changes)], steps=steps, **more)
    done = made(traced(lambda x: L.relu(L.relu(L.relu(x)))))
    return text(done.graph_module), done.modified, seen
def matches(program, pattern, **more):
    found = M.SubgraphMatcher(traced(pattern).graph, **more).match(traced(program).graph)
    return [[sorted(n.name for n in m.nodes_map.values() if hasattr(n, "name")), [n.name for n in m.anchors], [getattr(n, "name", n) for n in m.placeholder_nodes], [n.name for n in m.returning_nodes]] for m in found]
def hooked(*hooks):
    made, seen = traced(), []
    def note(*given, **named):
        seen.append([str(g) for g in (*given, *named.items()) if not isinstance(g, fx.GraphModule)])
    for hook in hooks:
        getattr(made, f"_register_{hook}_hook")(note)
    with made.graph.inserting_before(node(made, "add")):
        new = made.graph.call_function(L.relu, (node(made, "mul"),))
    node(made, "add").replace_input_with(node(made, "mul"), new)
    node(made, "add").replace_all_uses_with(new)
    made.graph.erase_node(node(made, "add"))
    for hook in hooks:
        getattr(made, f"_unregister_{hook}_hook")(note)
    made.graph.call_function(L.relu, (new,))
    return seen
def sources(made, wanted, **meta):
    for n in made.graph.nodes:
        if n.op in ("call_function", "get_attr") and n.name in meta:
            n.meta["source_fn_stack"] = [meta[n.name]]
    found = U.get_source_partitions(made.graph, wanted)
    return [[getattr(k, "__name__", str(k)), [[[n.name for n in part] for part in (p.nodes, p.input_nodes, p.output_nodes, p.params)] for p in v]] for k, v in found.items()]
def named(*path):
    made = traced()
    return made.add_submodule(path[0], nn.ReLU()) if len(path) == 1 else made.delete_submodule(path[1]), [n for n, _ in made.named_modules()]
"""
# A program for each line: expressions, between semicolons.
CALLS = """
S.create_type_hint([]) == list[typing.Any]; S.create_type_hint([int, int]) == list[int]; S.create_type_hint((int, bool)) == tuple[int, ...]; S.create_type_hint((bool, int)) == tuple[int, ...]; S.create_type_hint([int, str]) == list[typing.Any]; S.create_type_hint(int) is int; S.create_type_hint(()) == tuple[typing.Any, ...]; S.create_type_hint((str, int, int)) == tuple[typing.Any, ...]
[S.type_matches(a, b) for a in (int, float, typing.Any, list[int], list[float], typing.Optional[int], typing.Union[int, str], tuple[int, ...], L.Tensor, typing.List[int], typing.List[L.Tensor]) for b in (int, bool, float, str, list[int], tuple[int, ...], tuple[int, int], L.Tensor, nn.Parameter, type(None), list[str], list[L.Tensor])]
[S.normalize_function(f, a, k, normalize_to_only_use_kwargs=o) for o in (False, True) for f, a, k in ((F.relu, (1,), {}), (F.linear, (1, 2), {"bias": 3}), (F.linear, (1,), {}), (F.softmax, (1,), {"dim": 2}), (len, (1,), {}), (F.dropout, (1, 0.3), {"training": False}))]; [S.normalize_module(Net(), t, a, k, o) for o in (False, True) for t, a, k in (("first", (1,), {}), ("first", (), {"input": 2}), ("inner", (1,), {}))]; S.normalize_module(Net(), "first", (1, 2)); S.normalize_module(Net(), "none", (1,)); S.normalize_module(Net(), "first.none", (1,)); S.get_signature_for_torch_op(len); S.get_signature_for_torch_op(len, True); len(S.get_signature_for_torch_op(L.add)) > 0; [raised(lambda: S.check_for_mutable_operation(f, a, k)) for f, a, k in ((L.add, (x, x), {}), (L.relu_, (x,), {}), (operator.add, (x, x), {}), (len, (x,), {}))]
[PM.loop_pass(one, n_iter=n)(1) for n in (1, 2, 5)]; PM.loop_pass(one, n_iter=0)(1); PM.loop_pass(one, n_iter=-1)(1); PM.loop_pass(one)(1); PM.loop_pass(one, n_iter=1, predicate=bool)(1); [PM.loop_pass(two, predicate=lambda v: v < n)(1) for n in (1, 2, 8, 9)]; PM.inplace_wrapper(one)(3); PM.inplace_wrapper(one).__name__; PM.log_hook(one)(3); PM.log_hook(one, 10).__name__; [PM.these_before_those_pass_constraint(one, two)(a, b) for a in (one, two, three) for b in (one, two, three)]; [PM.this_before_that_pass_constraint(one, two)(a, b) for a in (one, two, three) for b in (one, two, three)]
manager()(5); manager([PM.this_before_that_pass_constraint(one, two)])(5); manager([PM.this_before_that_pass_constraint(three, one)])(5); PM.PassManager.build_from_passlist([two, one])(5); (lambda m: (m.remove_pass(["two"]), m(5)))(manager()); (lambda m: (m.remove_pass(None), m(5)))(manager()); (lambda m: (m.replace_pass(two, three), m(5)))(manager()); (lambda m: (m.add_pass(two), m.add_constraint(PM.this_before_that_pass_constraint(two, one)), m(5)))(manager()); (lambda m: (m.add_pass(two), m.add_constraint(PM.this_before_that_pass_constraint(one, three)), m(5)))(manager()); (lambda m: (m.validate(), m._validated, m.add_pass(one), m._validated))(manager()); (lambda m: (m.remove_pass(["one"]), [p.__name__ for p in m.passes]))(manager())
ran(); ran(1); ran(2, False); ran(5); ran(3, run_checks_after_each_pass=True); IP.PassManager([lambda g: 3])(traced()); IP.PassManager([lambda g: None])(traced()); IP.PassManager([lambda g: g / 0])(traced()); IP.PassManager([lambda g: None], suppress_check_failures=True)(traced()); IP.pass_result_wrapper(None); IP.pass_result_wrapper(lambda g: None)(1); IP.pass_result_wrapper(lambda g: g)(nn.ReLU()).modified; IP.pass_result_wrapper(lambda g: B.PassResult(g, False))(nn.ReLU()).modified; (lambda m: (m.add_pass(one), m.add_constraint(lambda a, b: True), m._validated, len(m.passes), len(m.constraints)))(IP.PassManager()); IP.PassManager().add_checks(lambda: 1); IP.PassManager().add_checks(lambda a, b: 1); IP.PassManager().add_checks(lambda a: 1); [p.__name__ for p in (lambda m: (m.solve_constraints(), m.passes)[1])(IP.PassManager([one, two, three], [IP.this_before_that_pass_constraint(three, one), IP.this_before_that_pass_constraint(one, two)]))]; IP.PassManager([one, two], [IP.this_before_that_pass_constraint(two, one), IP.this_before_that_pass_constraint(one, two)]).solve_constraints()
TB.NodeSource(None, "p").to_dict()["pass_name"]; [TB.NodeSource(None, "p", a)._get_action_string() for a in (None, TB.NodeSourceAction.CREATE, [TB.NodeSourceAction.REPLACE, TB.NodeSourceAction.CREATE])]; TB.NodeSource(None, "p", "create"); TB.NodeSource(None, "p", ["create"]); str(TB.NodeSource(None, "p", TB.NodeSourceAction.CREATE)).count("pass_name"); [TB.NodeSource(None, "p") == o for o in (TB.NodeSource(None, "p"), TB.NodeSource(None, "q"), 3)]; len({TB.NodeSource(None, "p"), TB.NodeSource(None, "p"), TB.NodeSource(None, "q")}); TB.NodeSource(None, "p").node_info; (lambda s: (s.node_info.name, s.node_info.target, s.name, s.target))(TB.NodeSource(node(traced(), "first"), "p", TB.NodeSourceAction.CREATE)); (lambda s: len(TB.NodeSource(s, "q").from_node))(node(traced(), "first"))
TB.has_preserved_node_meta(); (lambda c: (c.__enter__(), TB.has_preserved_node_meta(), TB.set_stack_trace(["a", "b"]), TB.format_stack(), TB.set_grad_fn_seq_nr(4), dict(TB.get_current_meta()), TB.set_grad_fn_seq_nr(7), TB.get_current_meta()["in_grad_fn"], TB.reset_grad_fn_seq_nr(), TB.get_current_meta()["grad_fn_seq_nr"], TB.reset_grad_fn_seq_nr(), dict(TB.get_current_meta()), c.__exit__(None, None, None), dict(TB.get_current_meta())))(TB.preserve_node_meta()); (TB.set_stack_trace(["a"]), TB.set_grad_fn_seq_nr(3), TB.reset_grad_fn_seq_nr(), dict(TB.get_current_meta())); isinstance(TB.format_stack(), list); TB.get_current_replay_node(); (lambda c: (c.__enter__(), TB.get_current_replay_node(), c.__exit__(None, None, None), TB.get_current_replay_node()))(TB.set_current_replay_node(5)); (lambda c: (c.__enter__(), dict(TB.get_current_meta()), c.__exit__(None, None, None), dict(TB.get_current_meta())))(TB.annotate({"k": 1})); TB.annotate_fn({"k": 2})(lambda: dict(TB.get_current_meta()))(); (lambda a, b: (a.__enter__(), b.__enter__(), dict(TB.get_current_meta()), b.__exit__(None, None, None), dict(TB.get_current_meta()), a.__exit__(None, None, None)))(TB.annotate({"k": 1, "j": 3}), TB.annotate({"k": 2})); TB.get_graph_provenance_json(fx.Graph()); sorted(TB.get_graph_provenance_json(traced().graph))
swapped(("call_function", L.relu), "call_function", L.tanh); swapped(("call_method", "neg"), "call_method", "abs"); swapped(("call_function", F.relu), "call_function", F.selu); swapped(("call_function", L.neg), "call_method", "abs"); sized(traced(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))), (x,)); sized(traced(lambda x: L.relu(x.half())), (x,)); sized(traced(lambda x: (L.relu(x) > 0).double()), (x,)); sized(traced(), None); sized(traced(), ()); G.get_tensor_meta(node(traced(), "first"))
matches(lambda x: L.relu(x) + 1, lambda x: L.relu(x)); matches(lambda x: L.relu(x) + 1, lambda x: L.relu(x) + 2); matches(lambda x: L.relu(x) + 1, lambda x: L.relu(x) + 2, ignore_literals=True); matches(lambda x: L.relu(x) + L.relu(x), lambda x: L.relu(x)); matches(lambda x: L.relu(L.relu(L.relu(x))), lambda x: L.relu(L.relu(x))); matches(lambda x: L.relu(L.relu(L.relu(x))), lambda x: L.relu(L.relu(x)), remove_overlapping_matches=False); matches(lambda x, y: L.add(x, y), lambda x: L.add(x, x)); matches(lambda x, y: L.add(x, x), lambda x, y: L.add(x, y)); matches(lambda x: L.add(x, 3), lambda x, y: L.add(x, y)); matches(lambda x: L.relu(L.tanh(x)), lambda x: L.relu(x), match_placeholder=True); matches(lambda x: L.relu(L.tanh(x)), lambda x: L.relu(x), match_output=True); matches(lambda x: L.tanh(L.relu(x)), lambda x: L.relu(x), match_output=True); M.SubgraphMatcher(fx.Graph()); matches(lambda x: (L.relu(x), L.tanh(x)), lambda x: (L.relu(x), L.tanh(x))); matches(lambda x: L.cat([x, L.relu(x)]), lambda x, y: L.cat([x, y])); matches(lambda x: L.cat([x, x, x]), lambda x, y: L.cat([x, y])); matches(lambda x: L.sum(x, dim=1), lambda x: L.sum(x, dim=1)); matches(lambda x: L.sum(x, dim=0), lambda x: L.sum(x, dim=1)); matches(lambda x: L.tanh(L.relu(x)) + L.relu(x), lambda x: L.tanh(L.relu(x)))
hooked("replace_node"); hooked("create_node", "erase_node"); traced()._register_create_node_hook(3); traced()._register_erase_node_hook(None); traced()._register_replace_node_hook("a"); traced()._register_deepcopy_hook(1); named("new"); named("inner.2"); named("a.b"); named("first.weight"); named("", "inner.0"); named("", "inner.5"); named("", "none.x"); named("", "first"); named("", "first.weight"); traced().delete_all_unused_submodules(); (lambda m: (setattr(m, "graph", 3)))(traced()); fx.GraphModule(3, fx.Graph()); fx.GraphModule({}, traced().graph); fx.GraphModule(nn.Module(), traced().graph); [n for n, _ in fx.GraphModule(Net(), fx.Graph()).named_modules()]; text(copy.copy(traced())); text(copy.deepcopy(traced())); type(traced()._replicate_for_data_parallel()).__name__
sources(traced(lambda x: L.relu(L.tanh(x)) + x), [L.relu, L.tanh], relu=("relu", L.relu), tanh=("t", L.tanh)); sources(traced(lambda x: L.relu(L.tanh(x)) + x), ["both"], relu=("a", "both"), tanh=("a", "both")); sources(traced(lambda x: L.relu(L.tanh(x)) + x), ["both"], relu=("a", "both"), tanh=("b", "both")); sources(traced(lambda x: L.relu(L.tanh(x)) + x), [L.abs], relu=("relu", L.relu)); [SP.getattr_recursive(Net(), n) is None for n in ("first", "first.weight", "inner.0", "inner.1.weight")]; SP.getattr_recursive(Net(), "nothing"); (lambda m: (SP.setattr_recursive(m, "inner.0", nn.Tanh()), type(m.inner[0]).__name__))(Net()); (lambda m: (SP.setattr_recursive(m, "kept", 5), m.kept))(Net())
text(traced().graph); (lambda g: g.erase_node(node(traced(), "first")))(traced().graph); (lambda m: m.graph.erase_node(node(m, "first")))(traced()); (lambda m: m.graph.inserting_before(node(traced(), "add")))(traced()); (lambda m: m.graph.inserting_after(node(traced(), "add")))(traced()); fx.Graph().create_node("other", "t"); fx.Graph().create_node("call_function", L.relu, [1]); fx.Graph().create_node("call_function", L.relu, (1,), [2]); fx.Graph().call_module("m", ()) and 1; fx.Graph().call_function("relu"); fx.Graph().call_method(L.relu); fx.Graph().get_attr("a") and 1; fx.Graph().output_node(); fx.Graph().lint(); (lambda g: (g.call_function(L.relu, (g.placeholder("x"),)), g.placeholder("y"), g.lint()))(fx.Graph()); [n.name for n in traced().graph.find_nodes(op="call_module")]; [n.name for n in traced().graph.find_nodes(op="call_module", target="first")]; [n.name for n in traced().graph.find_nodes(op="placeholder", sort=False)]; traced().graph.eliminate_dead_code(); (lambda g: (L and g.call_function(L.relu, (1,)), g.eliminate_dead_code(), len(g.nodes)))(fx.Graph()); [n.name for n in reversed(traced().graph.nodes)]; len(traced().graph.nodes)
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)

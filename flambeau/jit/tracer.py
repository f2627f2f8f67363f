"""Tracing: `trace` runs Python code on examples and returns the operators it called as a graph.

A mode on the operator stack records every public operator. Calls of submodules are read as blocks and become methods of the traced
submodules afterwards. Sizes of tensors are numbers with a known origin, so that a view by `x.size(0)` stays one by the size.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch

from ..core.pytree import tree_map_only
from ..core.tensor import Tensor, tensors_in
from . import enabled, recursive
from .functions import Function
from .inlining import inlined
from .ir import Block, Graph, Node
from .module import RecursiveScriptModule, ScriptModule, TopLevelTracedModule, TracedModule
from .naming import qualified_name, unique_name
from .schema import Argument, Schema
from .script_function import ScriptFunction
from .trace_lifting import lift, tidy
from .trace_places import TracerWarning, warn
from .trace_reader import TraceReader, tensor_type
from .trace_recorder import UNTRACEABLE, Tracer, TracingCheckError
from .traced_sizes import TracedNumber
from .type_joins import unshaped
from .types import TENSOR, ClassType, DictType, ListType, ShapedTensor, TupleType, Type
from .value_types import inferred


def _record_call(
    function: Callable, args: tuple, kwargs: dict, names: Sequence[str], root: Any, kind: ClassType | None, strict: bool
) -> tuple[Graph, Any]:
    tracer = Tracer(root)
    reader = TraceReader(tracer, kind)
    copies = [tree_map_only(Tensor, _alias, given) for given in (*args, *kwargs.values())]
    types = [_example_type(held) for held in copies]
    if not all(map(_can_be_traced, types)):
        raise RuntimeError(UNTRACEABLE.format(TupleType([unshaped(t) for t in types]).code))
    for name, held, given in zip((*names, *kwargs), copies, types):
        value = reader.graph.add_input("", given)
        known = tracer.structure(held, tracer.know)
        if name.isidentifier():
            value.set_name(name)
            tracer.named.add(getattr(known, "number", -1))
        reader.set_value(known, value)
    with tracer.watching():
        positional, named = copies[: len(args)], dict(zip(kwargs, copies[len(args) :]))
        result = function(*positional, **named)
        if result is None:
            raise RuntimeError("traced functions must return tensors, got None")
        checked = _check_output(result)
        if strict and isinstance(result, (dict, list)):
            text = f"Encountering a {type(result).__name__} at the output of the tracer might cause the trace to be incorrect, this is only valid if the container structure does not change based on the module's inputs. Consider using a constant container instead (e.g. for `list`, use a `tuple` instead. for `dict`, use a `NamedTuple` instead). If you absolutely need this and know the side effects, pass strict=False to trace() to allow this behavior."
            if isinstance(result, dict):
                raise RuntimeError(text)
            warn(text)
        tracer.finish(checked)
    reader.graph.add_output(reader.read())
    lift(reader.graph)
    tidy(reader.graph)
    return reader.graph, result


def _check_output(result: Any) -> Any:
    if isinstance(result, (Tensor, TracedNumber)):
        return result
    if isinstance(result, tuple):
        return tuple(map(_check_output, result))
    if isinstance(result, list):
        return list(map(_check_output, result))
    if isinstance(result, dict):
        return {k: _check_output(v) for k, v in result.items()}
    raise RuntimeError(f"Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions, but got a value of type {type(result).__name__}")  # fmt: skip


def _alias(tensor: Tensor) -> Tensor:
    """Return a view of an example tensor, so that a failed trace leaves the shape of the example itself alone."""
    if tensor.layout is torch.strided and tensor.requires_grad and not tensor.is_leaf:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _can_be_traced(kind: Type) -> bool:
    if isinstance(kind, DictType):
        return _can_be_traced(kind.value)
    if isinstance(kind, (TupleType, ListType)):
        return all(map(_can_be_traced, kind.contained()))
    return kind is TENSOR or isinstance(kind, ShapedTensor)


def _example_type(thing: Any) -> Type:
    if isinstance(thing, Tensor):
        return tensor_type(Tracer().value(thing), thing)
    if isinstance(thing, tuple):
        return TupleType([unshaped(_example_type(t)) for t in thing])
    found = inferred(thing)
    if found is None:
        raise RuntimeError(UNTRACEABLE.format(type(thing).__name__))
    return unshaped(found)


def _argument_names(function: Callable, count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [f"argument_{i + 1}" for i in range(count)]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*names[:count], *(f"argument_{i + 1}" for i in range(len(names), count))]


def _as_tuple(example: Any) -> tuple:
    return example if isinstance(example, tuple) else tuple(example) if isinstance(example, list) else (example,)


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """Run a function or a module on examples and return the operators it called as a compiled function or module.

    >>> traced = trace(lambda x: x * 2, torch.ones(3))
    """
    if not enabled():
        return func
    if isinstance(func, (ScriptModule, ScriptFunction)):
        warnings.warn(
            "The input to trace is already a ScriptModule, tracing it is a no-op. Returning the object as is.",
            stacklevel=2,
        )
        return func
    if isinstance(func, torch.nn.Module):
        if any(m._backward_hooks for m in func.modules()):
            raise ValueError("Modules that have backward hooks assigned can't be compiled: " + str(func))
        examples: Any = example_kwarg_inputs if example_kwarg_inputs is not None else example_inputs
        return trace_module(func, {"forward": examples}, None, check_trace, check_inputs, check_tolerance, strict, example_inputs_is_kwarg=example_kwarg_inputs is not None)  # fmt: skip
    if inspect.ismethod(func) and isinstance(func.__self__, torch.nn.Module):
        if func.__name__ != "forward":
            raise AttributeError(
                "trace doesn't support compiling individual module's functions.\nPlease use trace_module"
            )
        made = trace_module(
            func.__self__, {func.__name__: example_inputs}, None, check_trace, check_inputs, check_tolerance, strict
        )
        return getattr(made, func.__name__)
    args = () if example_kwarg_inputs is not None else _as_tuple(example_inputs)
    kwargs = dict(example_kwarg_inputs or {})
    names = _argument_names(func, len(args))
    graph, _ = _record_call(func, args, kwargs, names, None, None, strict)
    name = unique_name(qualified_name(func))
    schema = Schema(
        name.rpartition(".")[2], "", _arguments(graph, [*names, *kwargs]), [unshaped(graph.outputs_[0].type)]
    )
    made_function = ScriptFunction(Function(name).define(graph, schema), func)
    if check_trace:
        examples = [args] if check_inputs is None else [_as_tuple(i) for i in check_inputs]
        for example in examples:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TracerWarning)  # the same ones again
                again, _ = _record_call(func, _clone(example), _clone(kwargs), names, None, None, strict)
            _compare_graphs(graph, again)
            second = ScriptFunction(Function(name).define(again, schema), func)
            _check(made_function, func, second, example, kwargs, check_tolerance, graph)
    return made_function


def _arguments(graph: Graph, names: Sequence[str]) -> list[Argument]:
    first = [Argument("self", graph.inputs_[0].type)] if len(graph.inputs_) > len(names) else []
    values = graph.inputs_[len(first) :]
    return [
        *first,
        *(
            Argument(n if n.isidentifier() else f"argument_{i}", unshaped(v.type))
            for i, (n, v) in enumerate(zip(names, values))
        ),
    ]


def trace_module(
    mod: Any,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> Any:
    """Trace several methods of a module, each on its examples, into one compiled module."""
    if not isinstance(mod, torch.nn.Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    made = recursive.script_module(RecursiveScriptModule, mod, share=False, tracing=True)
    kind = made.script_type
    own = {id(m) for m in mod.modules()}
    for inner in made.modules():
        if id(inner) not in own and not inner.script_type.compiled:
            inner.__class__, inner.script_type.compile_method = TracedModule, None
    made.__class__ = TopLevelTracedModule
    for name, example in inputs.items():
        args = () if example_inputs_is_kwarg else _as_tuple(example)
        kwargs = dict(example) if example_inputs_is_kwarg else {}
        method = getattr(mod, name)
        call = mod if name == "forward" else method
        names = _argument_names(method, len(args))
        graph, _ = _record_call(call, args, kwargs, names, mod, kind, strict)
        schema = Schema(name, "", _arguments(graph, [*names, *kwargs]), [unshaped(graph.outputs_[0].type)])
        kind.methods[name] = Function(f"{kind.name}.{name}", None, kind).define(graph, schema)
        if check_trace:
            checked = [_as_tuple(i[name] if isinstance(i, dict) else i) for i in check_inputs or ()]
            for given in [example] if check_inputs is None else checked:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", TracerWarning)  # the same ones again
                    again = trace_module(
                        mod, {name: given}, None, False, strict=strict, example_inputs_is_kwarg=example_inputs_is_kwarg
                    )
                _compare_graphs(graph, again.script_type.methods[name].graph)
                traced, second = (m if name == "forward" else getattr(m, name) for m in (made, again))
                one = () if example_inputs_is_kwarg else _as_tuple(given)
                _check(traced, call, second, one, kwargs, check_tolerance, graph)
    return made


def _compare_graphs(first: Graph, second: Graph) -> None:
    """Raise TracingCheckError unless two traces of the same code recorded the same operators."""
    kinds = [[n.kind_ for n in g.nodes_ if n.kind_ != "prim::Constant"] for g in (first, second)]
    if kinds[0] != kinds[1]:
        raise TracingCheckError(f"Graphs differed across invocations!\n{first}\n{second}", None)
    tensors = [[n.attributes["value"] for n in g.nodes_ if n.kind_ == "prim::Constant" and isinstance(n.attributes.get("value"), Tensor)] for g in (first, second)]  # fmt: skip
    for a, b in zip(*tensors):
        if a.shape != b.shape or not torch.equal(a, b):
            raise TracingCheckError(None, f"Tensor-valued Constant nodes differed in value across invocations. This often indicates that the tracer has encountered untraceable code.\n{a}\n{b}")  # fmt: skip


def _random_nodes(block: Block) -> list[Node]:
    found = []
    for node in block.nodes_:
        if node.isNondeterministic():
            found.append(node)
        found += [n for inner in node.blocks_ for n in _random_nodes(inner)]
    return found


def _check(
    traced: Any, function: Callable, again: Any, args: tuple, kwargs: dict, tolerance: float, graph: Graph
) -> None:
    """Run a trace, its original, and the second trace on the same arguments; warn about results that differ.

    As in PyTorch these are ordinary calls: a model in training mode updates its statistics and draws random numbers in each."""
    with torch.no_grad():
        found = traced(*_clone(args), **_clone(kwargs))
        expected = function(*_clone(args), **_clone(kwargs))
        if _results_are_close(found, expected, "Python function", tolerance, graph):
            _results_are_close(found, again(*_clone(args), **_clone(kwargs)), "repeated trace", tolerance, graph)


def _results_are_close(found: Any, expected: Any, of: str, tolerance: float, graph: Graph) -> bool:
    """Return whether two results are close; warns about those that are not."""
    for number, (a, b) in enumerate(zip(tensors_in(expected), tensors_in(found))):
        try:
            torch.testing.assert_close(b.double() if b.is_floating_point() else b, a.double() if a.is_floating_point() else a, rtol=tolerance, atol=tolerance, equal_nan=True)  # fmt: skip
        except AssertionError as problem:
            random = _random_nodes(inlined(graph))
            if random:
                nodes = "\n\t".join(str(n) for n in random)
                warn(f"Trace had nondeterministic nodes. Did you forget call .eval() on your model? Nodes:\n\t{nodes}\nThis may cause errors in trace checking. To disable trace checking, pass check_trace=False to torch.jit.trace()")  # fmt: skip
            warn(f"Output nr {number + 1}. of the traced function does not match the corresponding output of the {of}. Detailed error:\n{problem}")  # fmt: skip
            return False
    return True


def _clone(tree: Any) -> Any:
    return tree_map_only(Tensor, lambda t: t.detach().clone(), tree)

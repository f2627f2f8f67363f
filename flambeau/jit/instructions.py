"""Implementation of graph nodes that are not operators: control flow, containers, attributes, calls, Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flambeau as torch

from ..core.native_class import CustomClass
from ..core.tensor import Tensor
from ..futures import Future
from ..profiler import record_function
from . import operators
from .failures import Raised, Registers, Step, run_steps
from .ir import Node
from .naming import unmangled
from .objects import ScriptObject, fits, to_script, tuple_class
from .plain_operators import shown
from .types import BOOL, COMPLEX, FLOAT, INT, NUMBER, ClassType, FunctionType, ListType, TensorType, TupleType

if TYPE_CHECKING:
    from .interpreter import Program


def _list(program: Program, node: Node, ins: list[int]) -> Step:
    out = program.slot(node.outputs_[0])

    def step(r: Registers) -> None:
        r[out] = [r[i] for i in ins]

    return step


def _tuple(program: Program, node: Node, ins: list[int]) -> Step:
    out, kind = program.slot(node.outputs_[0]), node.outputs_[0].type
    assert isinstance(kind, TupleType)
    make = tuple_class(kind) if kind.fields else None

    def step(r: Registers) -> None:
        values = [r[i] for i in ins]
        r[out] = tuple(values) if make is None else make(*values)

    return step


def _dict(program: Program, node: Node, ins: list[int]) -> Step:
    out = program.slot(node.outputs_[0])
    keys, values = ins[::2], ins[1::2]

    def step(r: Registers) -> None:
        r[out] = {r[k]: r[v] for k, v in zip(keys, values)}

    return step


def _unpack(program: Program, node: Node, ins: list[int]) -> Step:
    outs, (source,) = [program.slot(v) for v in node.outputs_], ins

    def step(r: Registers) -> None:
        values = r[source]
        if len(values) != len(outs):
            raise RuntimeError(f"Expected {len(outs)} elements in a list but found {len(values)}")
        for out, value in zip(outs, values):
            r[out] = value

    return step


def _tuple_index(program: Program, node: Node, ins: list[int]) -> Step:
    out, (source, index) = program.slot(node.outputs_[0]), ins

    def step(r: Registers) -> None:
        values, place = r[source], r[index]
        if not -len(values) <= place < len(values):
            raise IndexError("Tuple index out of range")
        r[out] = values[place]

    return step


def _pass_through(program: Program, node: Node, ins: list[int]) -> Step:
    out, source = program.slot(node.outputs_[0]), ins[0]

    def step(r: Registers) -> None:
        r[out] = r[source]

    return step


def _unwrap(program: Program, node: Node, ins: list[int]) -> Step:
    out, source = program.slot(node.outputs_[0]), ins[0]

    def step(r: Registers) -> None:
        if r[source] is None:
            raise RuntimeError("Unwrapping null optional")
        r[out] = r[source]

    return step


def _ignore(program: Program, node: Node, ins: list[int]) -> Step | None:
    program.slot(node.outputs_[0])
    return None


def _get_attribute(program: Program, node: Node, ins: list[int]) -> Step:
    out, (source,), name = program.slot(node.outputs_[0]), ins, node.attributes["name"]

    def step(r: Registers) -> None:
        r[out] = r[source]._slot(name)

    return step


def _set_attribute(program: Program, node: Node, ins: list[int]) -> Step:
    (target, source), name = ins, node.attributes["name"]

    def step(r: Registers) -> None:
        r[target]._set_slot(name, r[source])

    return step


def _call_method(program: Program, node: Node, ins: list[int]) -> Step:
    out, name, owner = program.slot(node.outputs_[0]), node.attributes["name"], ins[0]

    def step(r: Registers) -> None:
        r[out] = r[owner].script_type.find_method(name).run([r[i] for i in ins])

    return step


def _call_function(program: Program, node: Node, ins: list[int]) -> Step:
    out, rest = program.slot(node.outputs_[0]), ins[1:]
    kind = node.inputs_[0].type
    assert isinstance(kind, FunctionType)
    function = kind.function

    def step(r: Registers) -> None:
        r[out] = function.run([r[i] for i in rest])

    return step


def _create(program: Program, node: Node, ins: list[int]) -> Step:
    out, kind = program.slot(node.outputs_[0]), node.outputs_[0].type
    assert isinstance(kind, ClassType)

    native = kind.python_class if issubclass(kind.python_class or object, CustomClass) else None

    def step(r: Registers) -> None:
        r[out] = ScriptObject(kind) if native is None else native.__new__(native)  # its __init__ fills it

    return step


def _if(program: Program, node: Node, ins: list[int]) -> Step:
    outs = [program.slot(v) for v in node.outputs_]
    branches = []
    for block in node.blocks_:
        steps = program.compile(block)
        branches.append((steps, list(zip(outs, [program.slot(v) for v in block.outputs_]))))
    (yes, yes_moves), (no, no_moves) = branches
    (condition,) = ins

    def step(r: Registers) -> None:
        steps, moves = (yes, yes_moves) if r[condition] else (no, no_moves)
        run_steps(steps, r)
        for out, value in [(o, r[v]) for o, v in moves]:
            r[out] = value

    return step


def _loop(program: Program, node: Node, ins: list[int]) -> Step:
    body = node.blocks_[0]
    inside = [program.slot(v) for v in body.inputs_]
    steps = program.compile(body)
    results = [program.slot(v) for v in body.outputs_]
    outs = [program.slot(v) for v in node.outputs_]
    limit, start, carried = ins[0], ins[1], ins[2:]

    def step(r: Registers) -> None:
        count, go_on, number = r[limit], r[start], 0
        values = [r[i] for i in carried]
        while go_on and number < count:
            r[inside[0]] = number
            for place, value in zip(inside[1:], values):
                r[place] = value
            run_steps(steps, r)
            go_on, values = r[results[0]], [r[i] for i in results[1:]]
            number += 1
        for out, value in zip(outs, values):
            r[out] = value

    return step


def _print(program: Program, node: Node, ins: list[int]) -> Step:
    def step(r: Registers) -> None:
        print(*[shown(r[i]) for i in ins])

    return step


def _raise(program: Program, node: Node, ins: list[int]) -> Step:
    def step(r: Registers) -> None:
        name = r[ins[1]] if len(ins) > 1 else None
        raise Raised(r[ins[0]], name or "")

    return step


def _isinstance(program: Program, node: Node, ins: list[int]) -> Step:
    out, (source,), kinds = program.slot(node.outputs_[0]), ins, node.attributes["types"]

    def step(r: Registers) -> None:
        r[out] = any(fits(r[source], k) for k in kinds)

    return step


def _python(program: Program, node: Node, ins: list[int]) -> Step:
    out, function = program.slot(node.outputs_[0]), node.attributes["python"]
    kind, names = node.outputs_[0].type, node.attributes.get("keywords", ())
    count = len(ins) - len(names)

    def step(r: Registers) -> None:
        result = function(*[r[i] for i in ins[:count]], **{n: r[i] for n, i in zip(names, ins[count:])})
        if result is None and node.attributes.get("unannotated"):  # what is not annotated may return nothing
            r[out] = None
            return
        try:
            r[out] = to_script(result, kind)
        except TypeError as problem:
            given = "_TensorMeta" if result is Tensor else type(result).__name__
            raise RuntimeError(
                f" expected value of type {kind.repr_str()} for return value but instead got value of type {given}.\n"
                f"Value: {result}\nCast error details: {problem}"
            ) from None

    return step


def _fork(program: Program, node: Node, ins: list[int]) -> Step:
    """Return a step that runs the forked block at once and stores a completed future."""
    steps = program.compile(node.blocks_[0])
    source, out = program.slot(node.blocks_[0].outputs_[0]), program.slot(node.outputs_[0])

    def step(r: Registers) -> None:
        run_steps(steps, r)
        future: Future = Future()
        future.set_result(r[source])
        r[out] = future

    return step


def _enter(program: Program, node: Node, ins: list[int]) -> Step:
    out, (source,), entered = program.slot(node.outputs_[0]), ins, program.contexts()
    known = _CONTEXTS.get(unmangled(getattr(node.inputs_[0].type, "name", "")))

    def step(r: Registers) -> None:
        thing = r[source]
        if known is not None:
            context = known(thing.slots)
            context.__enter__()
            r[out], way_out = thing, context.__exit__
        else:
            r[out], way_out = thing.call("__enter__"), functools.partial(thing.call, "__exit__")
        r[entered].append(way_out)

    return step


# Contexts represented by objects of compiled classes: the methods of those classes are implemented here.
_CONTEXTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "__torch__.torch.amp.autocast_mode.autocast": lambda slots: torch.autocast(
        slots["device"], dtype=operators.dtype_of(slots["fast_dtype"]), enabled=slots["_enabled"]
    ),
    "__torch__.torch.autograd.profiler.record_function": lambda slots: record_function(slots["name"], slots["args"]),
}


def _exit(program: Program, node: Node, ins: list[int]) -> Step:
    out, entered = program.slot(node.outputs_[0]), program.contexts()

    def step(r: Registers) -> None:
        r[out] = r[entered].pop()(None, None, None)

    return step


def _to_list(program: Program, node: Node, ins: list[int]) -> Step:
    out, source, kind = program.slot(node.outputs_[0]), ins[0], node.outputs_[0].type
    depth, element = 0, kind
    while isinstance(element, ListType):
        depth, element = depth + 1, element.element

    def step(r: Registers) -> None:
        tensor = r[source]
        if tensor.dim() != depth:
            raise RuntimeError("Output annotation list dimension and runtime tensor dimension must match for tolist()")
        wanted = {
            INT: not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype is not torch.bool,
            FLOAT: tensor.is_floating_point(),
            BOOL: tensor.dtype is torch.bool,
        }
        if not wanted.get(element, True):
            raise RuntimeError("Output annotation element type and runtime tensor element type must match for tolist()")
        r[out] = tensor.tolist()

    return step


def _make_tensor(program: Program, node: Node, ins: list[int]) -> Step:
    """Return the step of `torch.tensor(list)`: the dtype follows from the list's static type, also for an empty list."""
    element, out = node.inputs_[0].type, program.slot(node.outputs_[0])
    while isinstance(element, ListType):
        element = element.element
    if isinstance(node.inputs_[0].type, ListType) and element not in (INT, FLOAT, BOOL, COMPLEX, NUMBER):
        message = f"Input must be of ints, floats, or bools, got {element.repr_str()}"
        if isinstance(element, TensorType) and not node.inputs_[0].node.inputs_:
            message += "\nEmpty lists default to List[Tensor]. Add a variable annotation to the assignment to create an empty list of another type (torch.jit.annotate(List[T, []]) where T is the type of elements in the list for Python 2)"

        def refuse(r: Registers) -> None:
            raise RuntimeError(message)

        return refuse
    make = torch.tensor if node.kind_ == "aten::tensor" else torch.as_tensor
    known = {INT: torch.int64, BOOL: torch.bool}.get(element) if isinstance(node.inputs_[0].type, ListType) else None

    def step(r: Registers) -> None:
        data, dtype, device, *more = (r[i] for i in ins)
        options = {"requires_grad": more[0]} if more else {}
        try:
            r[out] = make(data, dtype=known if dtype is None else operators.dtype_of(dtype), device=device, **options)
        except ValueError as problem:
            raise RuntimeError(str(problem).replace("expected sequence", "Expected sequence")) from None

    return step


def _container_index(program: Program, node: Node, ins: list[int]) -> Step:
    """Index a ModuleList or ModuleDict by a number or name known only at run time."""
    out, (source, index) = program.slot(node.outputs_[0]), ins

    def step(r: Registers) -> None:
        held = r[source]._modules
        key = r[index] if isinstance(r[index], str) else str(r[index] % len(held) if held else 0)
        if key not in held:
            raise RuntimeError(f"KeyError: {key}")
        r[out] = held[key]

    return step


def _chunk(program: Program, node: Node, ins: list[int]) -> Step:
    outs, (source,) = [program.slot(v) for v in node.outputs_], ins
    count, dim = node.attributes["chunks"], node.attributes["dim"]

    def step(r: Registers) -> None:
        for out, value in zip(outs, r[source].chunk(count, dim)):
            r[out] = value

    return step


SPECIAL: dict[str, Any] = {
    "prim::ListConstruct": _list, "prim::TupleConstruct": _tuple, "prim::DictConstruct": _dict, "prim::TupleUnpack": _unpack,
    "prim::ListUnpack": _unpack, "prim::TupleIndex": _tuple_index, "prim::unchecked_cast": _pass_through,
    "prim::unchecked_unwrap_optional": _pass_through, "aten::_unwrap_optional": _unwrap, "prim::Uninitialized": _ignore,
    "prim::GetAttr": _get_attribute, "prim::SetAttr": _set_attribute, "prim::CallMethod": _call_method,
    "prim::CallFunction": _call_function, "prim::CreateObject": _create, "prim::If": _if, "prim::Loop": _loop, "prim::Print": _print,
    "prim::RaiseException": _raise, "prim::isinstance": _isinstance, "prim::PythonOp": _python, "prim::fork": _fork,
    "prim::Enter": _enter, "prim::Exit": _exit, "prim::tolist": _to_list, "prim::ConstantChunk": _chunk,
    "aten::tensor": _make_tensor, "aten::as_tensor": _make_tensor, "prim::ModuleContainerIndex": _container_index,
}  # fmt: skip

"""Resolution of names inside a Python function that is compiled: its closure, its globals, Python's own names."""

from __future__ import annotations

import ast
import builtins
import cmath
import collections
import copy
import enum
import functools
import inspect
import math
import types as python_types
import warnings
from collections.abc import Callable
from typing import Any, Optional

import flambeau as torch
import flambeau.jit as jit

from ..compat.legacy import TENSOR_TYPES
from ..core.graph import unrecorded
from ..library.aten.resolver import by_name
from ..library.custom_op import CustomOpDef
from ..library.native import ClassNamespace
from ..library.operator import OperatorFace
from ..ops.machinery.arguments import need_tensor, need_tensors
from ..ops.machinery.formula import Pointwise
from ..ops.machinery.record import Op
from ..ops.nn.loss_arguments import reduction_number
from ..profiler import record_function
from . import classes, contexts, operators
from . import signatures as notes
from .emitter import Emitter
from .formula_values import FormulaValue
from .functions import Definition, Function, defaults_of, parsed, text_definition
from .marks import Mark, boolean_dispatched, mark_of, overloads
from .module_values import ModuleValue, SuperValue
from .named_values import (
    CastValue,
    ClassValue,
    EnumClass,
    ExceptionClass,
    IgnoredFunction,
    MagicMethod,
    NamedTupleClass,
    PythonModule,
    PythonObject,
)
from .naming import is_library, qualified_name
from .python_values import BoundFunction, Dispatch, LegacyConstructor, ModuleClass, RecorderValue
from .record_forms import declares_calls, forms_of, takes_alike
from .schema import Schema, all_names, schemas_of, symbol_of
from .source import Range, error
from .types import DEVICE, INT, OF_PYTHON, TENSOR, ClassType, EnumType, InterfaceType, TupleType, Type
from .values import BuiltinFunction, FunctionValue, SimpleValue, SpecialForm, Sugared, SugaredTuple

# -- functions with a meaning of their own ----------------------------------------------------------------------------------


def _context_class(form: type) -> Sugared:
    return ClassValue(classes.script_class(form))  # type: ignore[arg-type]


@functools.cache
def _special_objects() -> dict[int, tuple[Any, Callable[[], Sugared]]]:
    """Return the Python objects that have a meaning built into the compiler, by `id`."""
    table: dict[int, tuple[Any, Callable[[], Sugared]]] = {}

    def put(thing: Any, make: Callable[[], Sugared]) -> None:
        table[id(thing)] = (thing, make)

    meanings = {
        "isinstance": (builtins.isinstance, jit.isinstance), "print": (print,), "getattr": (getattr,), "hasattr": (hasattr,),
        "range": (range,), "zip": (zip,), "enumerate": (enumerate,), "tuple": (tuple,), "list": (list,), "dict": (dict, collections.OrderedDict),
        "reversed": (reversed,), "len": (len,), "slice": (slice,), "super": (super,), "annotate": (jit.annotate,), "is_scripting": (jit.is_scripting,),
        "is_tracing": (jit.is_tracing,), "fork": (jit.fork,), "wait": (jit.wait,), "no_grad": (torch.no_grad,),
        "rethrow_optional": (jit._unwrap_optional,), "assert_": (torch._assert,), "check": (torch._check,),
        "false": (torch.overrides.has_torch_function, torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic, torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling),
        "noop": (torch._C._log_api_usage_once, need_tensor, need_tensors), "new_device": (torch.device,), "unrecorded": (unrecorded,),
    }  # fmt: skip
    thing: Any
    for form, things in meanings.items():
        for thing in things:
            put(thing, functools.partial(SpecialForm, form))
    for thing, word in ((int, "Int"), (float, "Float"), (bool, "Bool"), (complex, "Complex"), (str, "str")):
        put(thing, functools.partial(CastValue, OF_PYTHON[thing], f"aten::{word}"))
    plain = {
        "aten::round": round, "aten::hash": hash, "aten::hex": hex, "aten::oct": oct, "aten::bin": bin, "aten::ord": ord,
        "aten::chr": chr, "aten::sorted": sorted, "aten::all": all, "aten::any": any, "aten::sum": sum, "prim::min": min,
        "prim::max": max, "aten::divmod": divmod, "aten::pow": pow, "aten::warn": warnings.warn,
        "aten::Size": torch.Size, "aten::manual_seed": torch.manual_seed, "aten::is_grad_enabled": torch.is_grad_enabled,
        "aten::set_grad_enabled": torch.set_grad_enabled, "aten::initial_seed": torch.initial_seed, "aten::Generator": torch.Generator,
        "aten::tensor": torch.tensor, "aten::as_tensor": torch.as_tensor, "aten::is_autocast_enabled": torch.is_autocast_enabled,
        "aten::is_autocast_cpu_enabled": torch.is_autocast_cpu_enabled, "aten::get_autocast_dtype": torch.get_autocast_dtype,
        "aten::broadcast_shapes": torch.broadcast_shapes, "prim::id": id, "aten::grad": torch.autograd.grad,
        "aten::backward": torch.autograd.backward, "aten::_infer_size": torch._C._infer_size,
        "aten::_get_tracing_state": torch._C._get_tracing_state, "aten::save": torch.save,
    }  # fmt: skip
    for symbol, thing in plain.items():
        put(thing, functools.partial(BuiltinFunction, symbol))
    put(torch.autocast, functools.partial(_context_class, contexts.autocast))
    put(record_function, functools.partial(_context_class, contexts.record_function))
    put(abs, lambda: MagicMethod("__abs__", BuiltinFunction("prim::abs")))
    for home in (math, cmath):
        for name in dir(home):
            symbol = {"remainder": "mathremainder", "phase": "angle", "rect": "polar"}.get(name, name)
            takes_numbers = any(
                "Tensor" not in str(s.arguments[0]) for s in schemas_of(f"aten::{symbol}") if s.arguments
            )
            if not name.startswith("_") and takes_numbers and callable(getattr(home, name)):
                put(getattr(home, name), functools.partial(BuiltinFunction, f"aten::{symbol}"))
    for name in all_names():
        space, _, short = name.partition("::")
        function = by_name(short) if space == "aten" else None
        if function is None or not callable(function):
            continue
        op = getattr(function, "op", None)
        if id(function) not in table or getattr(op, "name", None) == short:
            scripted = isinstance(op, Op) and op.scripted
            put(function, functools.partial(record_form, op) if scripted else functools.partial(BuiltinFunction, name))
    return table


class Resolver:
    """Base of name resolvers; subclasses implement the lookup."""

    is_library = False  # whether the code is Flambeau's own
    is_text = False  # whether it was given as text
    trusts_returns = False  # whether a tuple may be returned where a NamedTuple is declared

    def lookup(self, name: str) -> tuple[bool, Any]:
        """Return whether a name is defined, and its Python object."""
        return False, None

    def name(self, m: Any, place: Range | None, name: str) -> Sugared | None:
        found, thing = self.lookup(name)
        return self.sugared(m, place, thing) if found else None

    def type(self, m: Any, name: str) -> Any:
        """Return the Python object (or Type) of a dotted name, or None."""
        first, *rest = name.split(".")
        found, thing = self.lookup(first)
        for part in rest:
            if not found:
                return None
            found, thing = hasattr(thing, part), getattr(thing, part, None)
        return (type(None) if thing is None else thing) if found else None

    def argument_type(self, m: Any, tree: ast.FunctionDef, name: str) -> Type | None:
        """Return a type for an argument from a source other than its annotation, or None."""
        return None

    def annotation(self, name: str) -> Any:
        """Return the evaluated annotation of an argument (or of "return"), or None."""
        return None

    def compiled_builtin(self, symbol: str) -> Any:
        return None

    def python_object(self, m: Any, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self.python_object(m, e) for e in node.elts)
        return self.type(m, notes.dotted(node) or "")

    def no_grad_class(self, m: Any) -> Sugared:
        kind = classes.script_class(contexts.no_grad)
        assert isinstance(kind, ClassType)
        return ClassValue(kind)

    def tensor_method(self, m: Any, place: Range | None, name: str, value: Any) -> Sugared | None:
        known = _special_objects().get(id(by_name(name)))
        return None if known is None else BoundFunction(known[1](), value)

    def parent_of(self, m: Any, place: Range | None, node: ast.Call) -> Sugared | None:
        """Return the value of `super()` inside a method: the methods of the next class; None outside of modules."""
        found = m.find(m.self_name) if m.self_name else None
        if not isinstance(found, ModuleValue):
            return None
        return SuperValue(found, self.owner_class(m))

    def owner_class(self, m: Any) -> Any:
        return None

    def self_value(self, m: Any, value: Any, kind: Type) -> Sugared:
        return self.attribute_value(m, value, None, "")

    def attribute_value(self, m: Any, value: Any, owner: ClassType | None, name: str) -> Sugared:
        concrete = getattr(value.type, "concrete", None)
        if concrete is not None:
            return ModuleValue(value, concrete)
        return SimpleValue(value)

    # -- Python objects ----------------------------------------------------------------------------------------------------
    def sugared(self, m: Any, place: Range | None, thing: Any, constant: bool = False) -> Sugared:
        """Return the compile-time meaning of a Python object."""
        simple = self._constant(m, place, thing, constant)
        if simple is not None:
            return simple
        if isinstance(thing, Sugared):
            return thing
        if isinstance(thing, Function):
            return FunctionValue([thing])
        if isinstance(thing, ClassNamespace):  # every name is looked up among classes
            return PythonModule(thing)
        if hasattr(thing, "__script_if_tracing_wrapper"):
            thing = thing.__original_fn
        script = getattr(thing, "script_function", None)
        if isinstance(script, Function):
            return FunctionValue([script])
        known = _special_objects().get(id(thing))
        mark = mark_of(thing)
        if known is not None and mark is None:
            return known[1]()
        if isinstance(thing, CustomOpDef):
            thing = thing._opoverload
        if isinstance(thing, OperatorFace):
            return BuiltinFunction(thing.op.name)
        if isinstance(thing, python_types.ModuleType):
            return _Namespace(thing) if thing is torch.nn.functional else PythonModule(thing)
        if isinstance(thing, type):
            return self._class(m, place, thing)
        if inspect.ismethod(thing) and isinstance(thing.__self__, type):
            return self._function(m, place, thing.__func__)
        if inspect.isfunction(thing) or isinstance(thing, python_types.BuiltinFunctionType):
            return self._function(m, place, thing)
        if isinstance(thing, jit.ScriptModule):
            return PythonObject(thing, "Cannot call a ScriptModule that is not a submodule of the caller")
        return PythonObject(thing)

    def _constant(self, m: Any, place: Range | None, thing: Any, constant: bool) -> Sugared | None:
        if thing is None:
            return SimpleValue(m.none(place))
        kind = OF_PYTHON.get(type(thing))
        if kind is not None:
            return SimpleValue(m.constant(thing, kind, place))
        if operators.is_numbered(thing):
            return SimpleValue(m.constant(thing.number, INT, place))
        if isinstance(thing, torch.device):
            return SimpleValue(m.constant(thing, DEVICE, place))
        if isinstance(thing, tuple) and (constant or not hasattr(thing, "_fields")):
            items = [self.sugared(m, place, item, constant) for item in thing]
            return (
                SimpleValue(SugaredTuple(items).as_value(place, m))
                if all(isinstance(i, SimpleValue) for i in items)
                else SugaredTuple(items)
            )
        if isinstance(thing, list) and constant:
            values = [self.sugared(m, place, item, True).as_value(place, m) for item in thing]
            return SimpleValue(m.graph.list_of(values[0].type if values else TENSOR, values, place))
        if isinstance(thing, enum.Enum):
            return SimpleValue(m.graph.constant(thing, classes.enum_type(type(thing)), place))
        return None

    def _class(self, m: Any, place: Range | None, thing: Any) -> Sugared:
        if issubclass(thing, BaseException):
            return ExceptionClass(f"{thing.__module__}.{thing.__qualname__}")
        if issubclass(thing, torch.nn.Module):
            return ModuleClass(thing)
        if mark_of(thing) in (Mark.IGNORE, Mark.UNUSED):
            raise error(place, f"Cannot instantiate class '{thing.__name__}' in a script function", notes.FrontendError)
        if thing in TENSOR_TYPES.values():
            return LegacyConstructor(thing)
        try:
            kind = notes.class_type(thing)
        except notes.UnknownType:
            return PythonObject(thing)
        if isinstance(kind, TupleType):
            return NamedTupleClass(kind)
        if isinstance(kind, EnumType):
            return EnumClass(kind)
        if isinstance(kind, ClassType):
            return ClassValue(kind)
        if isinstance(kind, InterfaceType):
            return PythonObject(thing)
        return PythonObject(thing)

    def _function(self, m: Any, place: Range | None, thing: Any) -> Sugared:
        mark = mark_of(thing)
        if mark in (Mark.IGNORE, Mark.UNUSED):
            return ignored(m, thing, mark)
        switch = boolean_dispatched.get(thing)
        if switch is not None:
            chosen = {
                truth: self.sugared(m, place, switch[f"if_{word}"])
                for truth, word in ((True, "true"), (False, "false"))
            }
            return Dispatch(switch["arg_name"], switch["index"], chosen, switch["default"])
        op = getattr(thing, "op", None)
        if isinstance(op, Op) and isinstance(op.impl, Pointwise) and not op.namespaces:
            return FormulaValue(op)
        if is_library(getattr(thing, "__module__", None) or "") and hasattr(thing, "op"):
            return record_form(thing.op)
        if not inspect.isfunction(thing):
            return PythonObject(
                thing,
                f"Python builtin {thing!r} is currently not supported in Torchscript: see https://pytorch.org/docs/main/jit_unsupported.html",
            )
        overloads = getattr(thing, "__script_overloads__", None) or _overloads_of(thing)
        if overloads:
            return FunctionValue(overloads)
        return FunctionValue([function_for(thing)])

    def ignored(self, m: Any, thing: Any, owner: Any, self_type: Type) -> Sugared:
        return ignored(m, thing, mark_of(thing), owner, self_type)

    def python_result(self, thing: Any) -> Type:
        """Return the type of a Python callable's result: its annotation, else a tensor."""
        function = thing if inspect.isroutine(thing) else type(thing).__call__
        hint = getattr(function, "__annotations__", {}).get("return")
        return TENSOR if hint is None or isinstance(hint, str) else notes.python_type(hint)


class _Namespace(PythonModule):
    """`torch.nn.functional`: functions that have a record are compiled as the record says, before operators of the same name are tried."""

    def attr(self, place: Range | None, m: Any, name: str) -> Sugared:
        found = getattr(self.module, name, None)
        if found is None or not hasattr(found, "op") or mark_of(found) is not None:
            return super().attr(place, m, name)
        return record_form(found.op)


# -- operators of the library -----------------------------------------------------------------------------------------------------

_SPACE = "__torch__.torch.nn.functional"


@functools.cache
def record_form(op: Any) -> Sugared:
    """Return the compiled meaning of a call of this library's operator: the function that its declaration describes, one of PyTorch's
    operators, the calls of PyTorch's operators that it consists of, or its own body."""
    functional = "nn.functional" in op.namespaces
    name = f"{_SPACE}.{op.name}"
    written = (op.aten_calls,) if declares_calls(op) else op.scripted
    if written:
        return FunctionValue([_calls_function(op, calls, f"{name}{i or ''}") for i, calls in enumerate(written)])
    forms = forms_of(op) if functional else []
    if forms:
        names = NamesResolver(_FORM_NAMES)
        made: dict[bool, Sugared] = {
            f.chosen: FunctionValue([Function(f"{_SPACE}.{f.name}", text_definition(f.text, names))]) for f in forms
        }
        flag = forms[0].flag
        return made[False] if flag is None else Dispatch(flag, list(op.arguments).index(flag), made, takes_flag=False)
    symbol = f"aten::{op.aten_name}" if op.aten else symbol_of(op)
    if schemas_of(symbol) and (not functional and not op.aten or takes_alike(op, symbol)):
        return BuiltinFunction(symbol)
    return FunctionValue([function_for(op.source, name)])


def _calls_function(op: Any, calls: Any, name: str) -> Function:
    """Return the function that calls the PyTorch operators an operator consists of (`Op.as_aten`), without its `recorder` argument."""
    tree, source = parsed(calls)
    tree = copy.deepcopy(tree)
    tree.name, recorder = op.name, tree.args.args.pop(0).arg
    names = PythonResolver(calls, {recorder: RecorderValue()})
    return Function(name, Definition(tree, source, names, defaults_of(calls)))


# -- Python functions -----------------------------------------------------------------------------------------------------------

_functions: dict[Any, Function] = {}


class PythonResolver(Resolver):
    """Resolver for a Python function: its closure, globals and builtins."""

    def __init__(self, function: Any, more: dict[str, Any] | None = None, owner: Any = None):
        self.globals = function.__globals__
        self.is_library = is_library(str(self.globals.get("__name__", ""))) and "jit" not in self.globals["__name__"]
        self.more = more or {}
        self.owner = owner
        self.annotations = getattr(function, "__annotations__", {})
        cells = function.__closure__ or ()
        self.closure = dict(zip(function.__code__.co_freevars, cells))

    def lookup(self, name: str) -> tuple[bool, Any]:
        if name in self.more:
            return True, self.more[name]
        if name in self.closure:
            try:
                return True, self.closure[name].cell_contents
            except ValueError:
                return False, None
        if name in self.globals:
            return True, self.globals[name]
        if hasattr(builtins, name):
            return True, getattr(builtins, name)
        return False, None

    def annotation(self, name: str) -> Any:
        return self.annotations.get(name)

    def owner_class(self, m: Any) -> Any:
        if self.owner is not None:
            return self.owner
        return self.closure["__class__"].cell_contents if "__class__" in self.closure else None


class NamesResolver(Resolver):
    """A resolver that looks names up in a table."""

    is_library = True

    def __init__(self, names: dict[str, Any]):
        self.names = names

    def lookup(self, name: str) -> tuple[bool, Any]:
        return name in self.names, self.names.get(name)


_FORM_NAMES: dict[str, Any] = {
    "Tensor": torch.Tensor, "List": list, "Optional": Optional, "Tuple": tuple, "torch": torch, "aten": contexts.aten,
    "ValueError": ValueError, "reduction_number": reduction_number,
}  # fmt: skip


def function_for(thing: Any, name: str | None = None) -> Function:
    """Return the compiled form of a Python function, which is compiled on its first call."""
    found = _functions.get(thing)
    if found is None:
        tree, source = parsed(thing)
        definition = Definition(tree, source, PythonResolver(thing), defaults_of(thing))
        found = _functions[thing] = Function(name or qualified_name(thing), definition)
    return found


def _overloads_of(thing: Any) -> list[Function]:
    declarations = overloads(thing)
    if any(declared is thing for declared in declarations):
        raise RuntimeError(f'Implementation for the function "{qualified_name(thing)}" is missing. Please make sure a definition is provided and defined after all overload declarations.')  # fmt: skip
    return [_overload(thing, declared) for declared in declarations]


@functools.cache
def _overload(thing: Any, declared: Any) -> Function:
    return function_for_overload(thing, declared)


def function_for_overload(implementation: Any, declared: Any) -> Function:
    """Return the implementation compiled with the types of an overload's declaration."""
    tree, source = parsed(implementation)
    head, head_source = parsed(declared)

    class Typed(PythonResolver):
        def argument_type(self, m: Any, tree: ast.FunctionDef, name: str) -> Type | None:
            reader = Emitter(PythonResolver(declared), head_source)
            schema = notes.schema_of(reader, head, None, {})
            index = schema.index_of(name)
            return None if index is None else schema.arguments[index].type

    own, other = defaults_of(declared), defaults_of(implementation)
    for name, value in own.items():
        if name in other and other[name] != value:
            raise RuntimeError(f"Default parameters on overloads do not affect the runtime so they must equal to the default parameter on the implementation function. Found on parameter {name}")  # fmt: skip
    tree, defaults = _narrow(tree, head, {**other, **own})
    definition = Definition(tree, source, Typed(implementation), defaults)
    return Function(qualified_name(implementation), definition)


def _narrow(tree: ast.FunctionDef, head: ast.FunctionDef, defaults: dict[str, Any]) -> tuple[ast.FunctionDef, dict]:
    """Return copies of an implementation's tree and defaults for an overload; raise if it needs parameters that `head` does not declare."""
    tree = copy.deepcopy(tree)
    declared = {a.arg for a in (*head.args.args, *head.args.kwonlyargs)}
    missing = [a.arg for a in tree.args.args if a.arg not in declared and a.arg not in defaults]
    if missing:
        raise RuntimeError(f"Parameters not specified in the overload: {', '.join(missing)}")
    return tree, defaults


def ignored(m: Any, thing: Any, mark: Mark | None, owner: Any = None, self_type: Type | None = None) -> Sugared:
    """Return a Python function that is called back from compiled code; its types come from its annotations."""
    tree, source = parsed(thing)
    reader = Emitter(PythonResolver(thing), source)
    if owner is not None and not (tree.args.posonlyargs or tree.args.args):
        raise error(source.range_of(tree), "Non-static method does not have a self argument")
    unused = mark is Mark.UNUSED
    if unused or tree.args.vararg is not None or tree.args.kwarg is not None:  # of any arguments
        tree = copy.copy(tree)
        tree.args = ast.arguments([], [], None, [], [], None, [])
        schema = notes.schema_of(reader, tree, None, {})
        schema = Schema(schema.name, "", [], schema.returns, is_vararg=True)
    else:
        schema = notes.schema_of(reader, tree, self_type, defaults_of(thing))
    unannotated = not schema.returns
    if unannotated:
        schema = Schema(schema.name, "", schema.arguments, [TENSOR], schema.is_vararg)
    return IgnoredFunction(thing, schema, thing.__name__, unused, owner, unannotated)

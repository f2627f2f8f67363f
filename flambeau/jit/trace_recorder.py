"""The mode that records a program's operators for `trace` (see `tracer`); `trace_reader` makes a graph of what it has written."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..core.native_class import CustomClass
from ..core.tensor import Tensor, tensors_in
from ..graph import program
from ..library.aten.choice import choose
from ..library.aten.overloads import OpOverload
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from ..ops.creation.construct import tensor
from .functions import Function
from .module import ScriptModule
from .schema import symbol_of
from .trace_places import user_range, variable_name, warn_of_constant
from .traced_sizes import TracedNumber, TracedSizes, plain

ENTER, LEAVE, RETURN = "enter", "leave", "return"  # what is written down besides calls: (path,), (), (result,)

UNTRACEABLE = (
    "Type '{}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, and Tuples of Tensors can be traced"
)


class TracingCheckError(Exception):
    """Raised when a trace does not compute the same as the Python code."""

    def __init__(self, graph_diff_error: Any, tensor_compare_error: Any, extra_msg: Any = None):
        self.message = "Tracing failed sanity checks!\n"
        for text in (extra_msg, graph_diff_error, tensor_compare_error):
            self.message += f"{text}\n" if text is not None else ""
        super().__init__(self.message)


class Submodule(NamedTuple):
    """A module among the arguments of a call, represented by its path."""

    path: str


class Tracer(TracedSizes):
    """Records calls of TorchScript's operators: the `op` of a call is the operator's name, or a compiled function."""

    differentiates = False
    reads_values = True
    follows_floats = True
    reads_python = True  # subscripts are seen with every slice, and with the numbers that the program wrote

    def __init__(self, root: Any = None, scope_of: Callable[[Any], str] | None = None):
        super().__init__()
        self.scope_of = scope_of  # the name of what a module's forward records
        self.paths: dict[int, str] = {}
        self.modules: dict[int, str] = {}
        self.entered = [("", root)]  # the modules whose forward is being recorded
        self.named: set[int] = set()  # numbers of values that have names, or get none
        self.names: list[tuple[program.Value, str]] = []  # those that were found since the last call
        if root is not None:
            tensors = [*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False)]
            for name, held in tensors:
                self.paths.setdefault(id(held), name)
            for name, module in root.named_modules():
                self.modules.setdefault(id(module), name)
                for label, held in vars(module).items():
                    if isinstance(held, CustomClass):
                        self.paths.setdefault(id(held), f"{name}.{label}" if name else label)

    # -- values ----------------------------------------------------------------------------------------------------------
    def found(self, t: Tensor) -> program.Value | None:
        """Return the value of a known tensor. Each tensor object has its own value, named after the variable that holds it."""
        if id(t) not in self.known:
            return None
        value = self.known[id(t)][1]
        if value.number not in self.named and (name := variable_name(t)):
            self.named.add(value.number)
            self.names.append((value, name))
        return value

    def foreign(self, t: Tensor) -> program.Value:
        made = self.number(t)
        if id(t) in self.paths:
            self.named.add(made.number)
        return made

    def notes(self, op: Any) -> dict[str, Any]:
        names, self.names = self.names, []
        return {"names": names, "range": user_range(), "scope": "/".join(self.scopes)}

    # -- the mode --------------------------------------------------------------------------------------------------------
    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if self.quiet:
            return function(*args, **kwargs)
        if op.tells and not op.has_parts:
            return self.python_value(op, function, args, kwargs)
        if op.data and not isinstance(data := op.bind(args, kwargs)[op.data], Tensor):
            return self._made_of(data, function, args, kwargs)
        symbol = symbol_of(op)
        if not symbol.startswith("aten::"):  # `quantized::linear`, or a user's
            return self._run_recorded(symbol, (args, kwargs), function, args, kwargs)
        found = NotImplemented
        if kwargs.get("out") is not None:
            found = self._record_out_call(op, function, args, kwargs)
        elif "nn.functional" not in op.namespaces and any(isinstance(a, Tensor) and not a.shape for a in args[1:]):
            found = self._record_numbers(op, function, args, kwargs)
        result = super().handle(op, function, args, kwargs) if found is NotImplemented else found
        self._check_seen(op, args, kwargs, result)
        return result

    def again(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        return self.run_plain(functools.partial(super().again, function), (args, kwargs), {}, shapes=False)

    def make(self, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
        schema = overload._schema
        values = overload.bind(args, kwargs)
        for place, argument in enumerate(schema.arguments):
            if argument.name.startswith("cudnn_enable"):  # a graph may be run elsewhere
                values[place] = True
        return self._run_recorded(schema.name, schema.as_call(values), lambda *a, **k: overload.run(a, k), args, kwargs)

    def _made_of(self, data: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run a call that makes a tensor of Python data: a constant of the graph, unless it is the size of a tensor."""
        made = self.run(function, args, kwargs)
        if not isinstance(data, TracedNumber) or made.requires_grad:
            return made
        number = self._run_recorded("prim::NumToTensor", ((data,), {}), tensor, (data,), {})
        return number if made.dtype is number.dtype else self.aten.to.dtype(number, made.dtype)

    def _record_out_call(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run and record a call with `out=`."""
        out = kwargs["out"]
        if isinstance(out, Tensor):
            named = {"self" if k == "input" else k: v for k, v in kwargs.items()}
            return self._run_recorded(f"aten::{op.aten_name}", (args, named), function, args, kwargs)
        found = self.handle(op, function, args, {k: v for k, v in kwargs.items() if k != "out"})
        if any(o.shape != f.shape for o, f in zip(out, found)):
            raise NotImplementedError(f"tracing a call of {op.name} with out= of other shapes than its results")
        return type(found)([self.aten.copy_.default(o, f) for o, f in zip(out, found)])

    def _record_numbers(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run and record a call with tensors in the place of numbers, which the graph converts; NotImplemented for other calls."""
        symbol = f"aten::{op.aten_name}"
        if choose(op.aten_name, args, kwargs, loose=True) is not None or not self.reader.fits(symbol, args, kwargs):
            return NotImplemented
        return self._run_recorded(symbol, (args, kwargs), function, args, kwargs)

    def _run_recorded(self, op: Any, given: tuple, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run a call and record it with the arguments `given` instead; return the result."""
        given = self.structure(given)
        result = self.run(function, args, kwargs)
        self.unseen(self.write, op, function, given, result)
        return result

    def _check_seen(self, op: Any, args: tuple, kwargs: dict, result: Any) -> None:
        """Check that an operator's result is recorded if its operands are: otherwise it would become a constant of the graph."""
        from_known = any(id(t) in self.known for t in tensors_in((args, kwargs)))
        if from_known and any(id(t) not in self.known for t in tensors_in(result)):
            raise NotImplementedError(
                f"tracing a call of {op.name}: TorchScript has no operator for it, or not with these arguments"
            )

    # -- compiled code -----------------------------------------------------------------------------------------------------
    def lost(self, size: TracedNumber) -> None:
        warn_of_constant("float")

    def call_script(self, function: Function, args: tuple, kwargs: dict) -> Any:
        """Run a compiled function or method, and record the call, so that the graph calls it too."""
        if self.quiet:
            return function.run(function.bind(plain(args), plain(kwargs)))
        given = args if function.owner is None else (self._submodule(args[0]), *args[1:])
        return self._run_recorded(
            function, (given, kwargs), lambda *a, **k: function.run(function.bind(a, k)), args, kwargs
        )

    def _submodule(self, module: Any) -> Submodule:
        if id(module) not in self.modules:
            raise RuntimeError("a compiled module that is called while tracing must be a submodule of what is traced")
        return Submodule(self.modules[id(module)])

    # -- submodules ------------------------------------------------------------------------------------------------------
    def enter(self, module: Any, args: tuple) -> None:
        if self.scope_of is not None:
            self.scopes.append(self.scope_of(module))
        path, (outer, current) = self.modules.get(id(module)), self.entered[-1]
        if self.quiet or not path or isinstance(module, ScriptModule) or module is current:
            return
        if not outer or path.startswith(outer + "."):
            self.write(ENTER, None, ((path,), {}), None)
            self.entered.append((path, module))

    def leave(self, module: Any, args: tuple, result: Any) -> None:
        if self.scope_of is not None:
            self.scopes.pop()
        if len(self.entered) > 1 and self.entered[-1][1] is module:
            self.entered.pop()
            self.write(LEAVE, None, ((), {}), None)

    def finish(self, result: Any) -> None:
        """Record the value that the program returns."""
        self.write(RETURN, None, self.unseen(self.structure, ((result,), {})), None)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        handles = [register_module_forward_pre_hook(self.enter), register_module_forward_hook(self.leave)]
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

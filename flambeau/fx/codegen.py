"""Generation of the Python function that runs a graph."""

from __future__ import annotations

import enum
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import flambeau

from ..core.device import device
from ..core.tensor import Tensor
from ..utils import _pytree as pytree
from . import _pytree as fx_pytree
from .names import Namespace, forbid_name, is_device_class, is_from_torch, qualified_name, type_repr
from .node import Node, shape_text
from .tensor_type import TensorType

TransformCodeFunc = Callable[[list[str]], list[str]]

BINARY_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/", "div": "/", "mod": "%", "pow": "**",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "matmul": "@",
}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}

reflectable_magic_methods = {name: f"{{}} {symbol} {{}}" for name, symbol in BINARY_SYMBOLS.items()}
reflectable_magic_methods["getitem"] = "{}[{}]"
magic_methods = {
    **{name: f"{{}} {symbol} {{}}" for name, symbol in _COMPARISONS.items()},
    "pos": "+{}",
    "neg": "-{}",
    "invert": "~{}",
    **reflectable_magic_methods,
}
inplace_methods = {
    f"i{name.rstrip('_')}": f"{{}} {symbol}= {{}}" for name, symbol in BINARY_SYMBOLS.items() if name != "div"
}
inplace_methods["setitem"] = "{}[{}] = {}"

_TYPING_NAMES = {list: list, dict: dict, set: set, frozenset: frozenset, tuple: tuple}  # noqa: UP006


class _CustomBuiltin(NamedTuple):
    """A name that the code of every graph may use, and the line that imports it in a module written to a file."""

    import_str: str
    obj: Any


_custom_builtins: dict[str, _CustomBuiltin] = {}


def _register_custom_builtin(name: str, import_str: str, obj: Any) -> None:
    _custom_builtins[name] = _CustomBuiltin(import_str, obj)
    forbid_name(name, obj)


_register_custom_builtin("inf", "from math import inf", math.inf)
_register_custom_builtin("nan", "from math import nan", math.nan)
_register_custom_builtin("NoneType", "NoneType = type(None)", type(None))
_register_custom_builtin("torch", "import torch", flambeau)
_register_custom_builtin("device", "from torch import device", device)
_register_custom_builtin("fx_pytree", "import torch.fx._pytree as fx_pytree", fx_pytree)
_register_custom_builtin("pytree", "import torch.utils._pytree as pytree", pytree)


@dataclass
class PythonCode:
    """The source text of a graph, with the objects its names refer to."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None
    _prologue_start: int = 0


@dataclass(frozen=True)
class _ParsedStackTrace:
    """The innermost location of a stack trace."""

    file: str
    lineno: str
    name: str
    code: str

    def get_summary_str(self) -> str:
        return f"File: {self.file}:{self.lineno} in {self.name}, code: {self.code}"


_FRAME_PATTERN = re.compile(r'File "(.+)", line (\d+), in (.+)')


def _parse_stack_trace(
    stack_trace: str | None, filter_fn: Callable[[str, str, str], bool] | None = None
) -> _ParsedStackTrace | None:
    """Return the last location in a stack trace that the filter accepts."""
    lines = (stack_trace or "").strip().split("\n")
    for line, code in reversed(list(zip(lines, lines[1:]))):
        place = _FRAME_PATTERN.fullmatch(line.strip())
        if place and (filter_fn is None or filter_fn(place[1], place[3], code.strip())):
            return _ParsedStackTrace(place[1], place[2], place[3], code.strip())
    return None


def _format_target(base: str, target: str) -> str:
    """Return the expression for a path: `self.layer` or `getattr(self, "0")`."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


def _colour(code: str) -> Callable[[str], str]:
    return lambda text: f"\x1b[{code}m{text}\x1b[0m"


class _Palette:
    """Colours for a terminal, or none."""

    def __init__(self, colored: bool) -> None:
        plain = lambda text: text  # noqa: E731
        self.red = _colour("31") if colored else plain
        self.blue = _colour("34") if colored else plain
        self.dim = _colour("2") if colored else plain
        self.dim_blue = _colour("2;34") if colored else plain
        self.dim_green = _colour("2;32") if colored else plain


@dataclass
class _Options:
    verbose: bool = False
    include_stride: bool = False
    include_device: bool = False
    colored: bool = False
    expanded_def: bool = False
    additional_meta: list[str] | None = None


def _accepted_options(function: Callable, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that `function` has parameters for: users' overrides may have older signatures."""
    parameters = inspect.signature(function).parameters
    return {name: value for name, value in options.items() if name in parameters}


class CodeGen:
    """Generates a Python function from a graph. Subclass it to change how arguments are taken and results returned."""

    _sym_repr: Callable[[Any], str] = repr

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """Return the `def` line for these parameters."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        if not expanded_def:
            return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"
        lines = "".join(self._parameter_line(v) for v in free_vars)
        return f"def {self._func_name}(\n{lines}){maybe_return_annotation}:"

    @staticmethod
    def _parameter_line(parameter: str) -> str:
        code, mark, comment = parameter.partition("#")
        return f"    {code.rstrip()},  # {comment.lstrip()}\n" if mark else f"    {parameter},\n"

    def generate_output(
        self, output_args: Any, *, descs: Sequence[str] | None = None, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        """Return the text of the `return` statement."""
        return "return " + self._output_text(output_args, descs, repr_fn or repr)

    @staticmethod
    def _output_text(values: Any, descs: Sequence[str] | None, repr_fn: Callable[[Any], str]) -> str:
        if descs is None or not isinstance(values, (list, tuple)):
            return repr_fn(values)
        opening, closing = "()" if isinstance(values, tuple) else "[]"
        lines = "".join(f"    {repr_fn(value)},  # {desc}\n" for value, desc in zip(values, descs))
        return f"{opening}\n{lines}{closing}"

    def process_inputs(self, *args: Any) -> Any:
        """Return the values of the graph's placeholders for the arguments of the function."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """Return the function's result for the value of the graph's output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Further (name, value) pairs that the code uses."""
        return []

    def _gen_python_code(
        self, nodes: Iterable[Node], root_module: str, namespace: Namespace, **options: Any
    ) -> PythonCode:
        options.pop("record_func", None)
        return _Writer(self, list(nodes), root_module, namespace, _Options(**options)).write()


class _Writer:
    """Writer of one graph as Python code."""

    def __init__(self, codegen: CodeGen, nodes: list[Node], root: str, namespace: Namespace, options: _Options) -> None:
        self.codegen, self.nodes, self.root, self.namespace, self.options = codegen, nodes, root, namespace, options
        self.palette = _Palette(options.colored)
        self.parameters: list[str] = []
        self.body: list[str] = []
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.return_annotation = ""
        self.last_summary: str | None = None
        for name, (_, value) in _custom_builtins.items():
            self.add_global(name, value)

    # -- names --

    def add_global(self, hint: str, value: Any) -> str:
        """Return the name under which the code refers to the value."""
        if is_from_torch(value) and not is_device_class(value):
            return type_repr(value) if isinstance(value, type) else qualified_name(value)
        name = self.namespace.create_name(hint, value)
        if self.globals.setdefault(name, value) is not value and self.globals[name] != value:
            raise AssertionError(f"Global name {name} already assigned to different object")
        return name

    def type_name(self, kind: Any) -> str:
        """Return the source of an annotation, registering its parts as globals."""
        if isinstance(kind, tuple) and kind == ():
            return "()"
        text = type_repr(kind)
        if isinstance(kind, types.UnionType) and "|" in text:
            return "|".join(self.type_name(part) for part in typing.get_args(kind))
        origin = getattr(kind, "__origin__", None)
        if not origin:
            return self.add_global(text, kind)
        if isinstance(kind, typing._GenericAlias):  # type: ignore[attr-defined]
            origin = _TYPING_NAMES.get(origin, origin)
        name = self.add_global(type_repr(origin), origin)
        parts = kind.dims if isinstance(kind, TensorType) else typing.get_args(kind)
        return f"{name}[{','.join(self.type_name(part) for part in parts)}]" if parts else name

    def text(self, value: Any) -> str:
        """Write a value as an expression."""
        if isinstance(value, Node):
            return repr(value)
        if isinstance(value, tuple):
            if hasattr(value, "_fields"):
                return f"{self.add_global(qualified_name(type(value)), type(value))}{tuple(value)!r}"
            comma = "," if len(value) == 1 else ""
            return f"({', '.join(self.text(v) for v in value)}{comma})"
        if isinstance(value, list):
            return f"[{', '.join(self.text(v) for v in value)}]"
        if isinstance(value, slice):
            return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        if isinstance(value, enum.Enum):
            return f"{self.add_global(type(value).__name__, type(value))}.{value.name}"
        if isinstance(value, Tensor):
            return f"torch.Tensor(size={list(value.shape)}, dtype={str(value.dtype).split('.')[-1]})"
        if hasattr(value, "_schema") and callable(value):
            return self.add_global(qualified_name(value), value)
        return self.palette.blue(repr(value))

    def arguments(self, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        return ", ".join([*map(self.text, args), *(f"{k} = {self.text(v)}" for k, v in kwargs.items())])

    # -- lines --

    def write(self) -> PythonCode:
        done_with = self._last_uses()
        for index, node in enumerate(self.nodes):
            if self.options.verbose:
                self._emit_location(node)
            self.body.append(f"# COUNTER: {index}\n")
            self._emit(node)
            self._emit_deletions(node, done_with.get(node, []))
        if not self.nodes:
            self.body.append("pass\n")
        wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped)
        body = self.codegen._body_transformer(self.body) if self.codegen._body_transformer else self.body
        for name, value in self.codegen.additional_globals():
            self.add_global(name, value)
        definition = self.codegen.gen_fn_def
        options = _accepted_options(definition, {"expanded_def": self.options.expanded_def})
        return self._assemble(wraps, definition(self.parameters, self.return_annotation, **options), body)

    def _assemble(self, wraps: str, prologue: str, body: list[str]) -> PythonCode:
        """Join the lines and map each to its node by the counters among them."""
        numbers: dict[int, int | None] = {}
        lines: list[str] = []
        first = prologue.count("\n") + 1
        current = None
        for line in "".join(body).split("\n"):
            counter = re.search(r"# COUNTER: (\d+)", line)
            if counter:
                current = int(counter[1])
            else:
                numbers[len(lines) + first] = current
                lines.append(line)
        code = "\n".join(lines).lstrip("\n")
        indented = "\n".join("    " + line for line in code.split("\n"))
        source = f"\n{wraps}\n\n{prologue}\n{indented}"
        return PythonCode(source, self.globals, numbers, wraps.count("\n") + 4)

    def _last_uses(self) -> dict[Node, list[Node]]:
        """Return for each node the nodes whose value is read there for the last time."""
        seen: set[Node] = set()
        found: dict[Node, list[Node]] = {}
        for user in reversed(self.nodes):
            for node in user._input_nodes:
                if node not in seen:
                    seen.add(node)
                    found.setdefault(user, []).append(node)
        return found

    def _emit_deletions(self, node: Node, unused: list[Node]) -> None:
        """Append code that deletes values which no later line reads."""
        if node.op == "placeholder":
            return
        if node.op == "output":
            self.body.append("\n")
            return
        names = [repr(n) for n in unused] + ([] if node.users else [repr(node)])
        forgotten = " = ".join([*names, "None"])
        self.body.append(f";  {self.palette.dim(forgotten)}\n" if names else "\n")

    def _emit_location(self, node: Node) -> None:
        """Append a comment with the source location of the following calls."""
        if node.op in ("placeholder", "output"):
            return
        wanted = [f"{key}: {node.meta[key]}" for key in self.options.additional_meta or () if key in node.meta]
        extra = f"# {', '.join(wanted)} " if wanted else ""
        custom = {k: v if len(str(v)) <= 40 else f"{str(v)[:40]}..." for k, v in node.meta.get("custom", {}).items()}
        annotation = f" Annotation: {custom}" if custom else ""
        place = _parse_stack_trace(node.stack_trace)
        where = place.get_summary_str() if place else "No stacktrace found for following nodes"
        summary = f"\n{self.palette.dim(f'{extra}#{annotation} {where}')}\n"
        if summary != self.last_summary:
            self.last_summary = summary
            self.body.append(summary)

    def _annotation(self, node: Node) -> str:
        plain = "" if node.type is None else f" : {self.type_name(node.type)}"
        if not self.options.verbose:
            return plain
        value: Any = node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))
        if isinstance(value, Tensor) and value.layout not in (flambeau.sparse_csc, flambeau.sparse_csr):
            text = self._tensor_text(node, value)
            return f': "{text}"' if type(value) in _PLAIN_TENSORS else f': "{type(value).__name__}({text})"'
        if "symbolic" in node.meta:
            return f': "Sym({CodeGen._sym_repr(node.meta["symbolic"])})"'
        if type(value).__name__ == "TensorMetadata":
            return f': "{value.dtype.short}{shape_text(value.shape)}"'
        return plain

    def _tensor_text(self, node: Node, value: Tensor) -> str:
        sizes, strides = node.meta.get("sizes", value.shape), node.meta.get("strides", value.stride())
        text = self.palette.red(value.dtype.short) + self.palette.blue(shape_text(sizes))
        text += self.palette.dim_blue(shape_text(strides) if self.options.include_stride else "")
        return text + self.palette.dim_green(str(value.device) if self.options.include_device else "")

    def _emit(self, node: Node) -> None:
        kind = self._annotation(node)
        if node.op == "placeholder":
            self._emit_placeholder(node, kind)
        elif node.op == "output":
            self._emit_output(node)
        elif node.op == "call_method":
            method = _format_target(self.text(node.args[0]), node.target)
            self.body.append(f"{node!r}{kind} = {method}({self.arguments(node.args[1:], node.kwargs)})")
        elif node.op == "call_module":
            module = _format_target(self.root, node.target)
            self.body.append(f"{node!r}{kind} = {module}({self.arguments(node.args, node.kwargs)})")
        elif node.op == "get_attr":
            self.body.append(f"{node!r}{kind} = {_format_target(self.root, node.target)}")
        elif node.op == "call_function":
            self._emit_function(node, kind)
        else:
            raise NotImplementedError(f"node: {node.op} {node.target}")

    def _emit_placeholder(self, node: Node, kind: str) -> None:
        default = f" = {self.text(node.args[0])}" if node.args else ""
        desc = node.meta.get("desc") if self.options.expanded_def else None
        comment = f"  # {desc}" if desc is not None else ""
        self.parameters.append(f"{node.target}{kind}{default}{comment}")
        plain = node.target.replace("*", "")
        if plain != repr(node):
            self.body.append(f"{node!r} = {plain}\n")

    def _emit_output(self, node: Node) -> None:
        if node.type is not None:
            self.return_annotation = f" -> {self.type_name(node.type)}"
        desc = node.meta.get("desc") if self.options.expanded_def else None
        generate = self.codegen.generate_output
        self.body.append(generate(node.args[0], **_accepted_options(generate, {"descs": desc, "repr_fn": self.text})))

    def _emit_function(self, node: Node, kind: str) -> None:
        target = node.target
        if getattr(target, "__module__", "") == "_operator":
            values = [self.text(a) for a in node.args]
            if target.__name__ in magic_methods:
                self.body.append(f"{node!r}{kind} = {magic_methods[target.__name__].format(*values)}")
                return
            if target.__name__ in inplace_methods:
                changed = inplace_methods[target.__name__].format(*values)
                self.body.append(f"{changed};  {node!r}{kind} = {values[0]}")
                return
        name = self.add_global(qualified_name(target), target)
        if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier():
            self.body.append(f"{node!r}{kind} = {_format_target(self.text(node.args[0]), node.args[1])}")
            return
        self.body.append(f"{node!r}{kind} = {name}({self.arguments(node.args, node.kwargs)})")
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(name)


_PLAIN_TENSORS = (Tensor,)


class _BoxedCodeGen(CodeGen):
    """Writer of functions that take all arguments in one list and empty it, so that they can be freed while it runs."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        text = f"def {self._func_name}(self, args_list){maybe_return_annotation}:"
        names = [v.split(":")[0].split("=")[0].strip() for v in free_vars if v != "self"]
        if not names:
            return text
        fetched = "".join(f"\n    {name} = next(args_iter)" for name in names)
        return f"{text}\n    args_iter = iter(args_list){fetched}\n    args_list.clear()"

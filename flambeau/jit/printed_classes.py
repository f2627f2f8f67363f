"""Classes as source: definitions of modules, classes, named tuples, enums and interfaces."""

from __future__ import annotations

from typing import Any

from ..core.native_class import CustomClass
from ..ops.machinery.schema import number_text, quoted
from .operators import is_numbered
from .printed_nodes import is_identifier
from .printing import Body, Printer
from .types import ClassType, EnumType, InterfaceType, TupleType, result_type
from .value_types import inferred


def class_code(printer: Printer, kind: Any) -> str:
    """Return the definition of a class, a NamedTuple, an enum or an interface as source."""
    name = _last_name(kind)
    if isinstance(kind, TupleType):
        lines = [f"class {name}(NamedTuple):"]
        lines += [f"  {f} : {printer.type_name(t)}" for f, t in zip(kind.fields, kind.elements)]
        return "\n".join(lines) + "\n"
    if isinstance(kind, EnumType):
        lines = [f"class {name}(Enum):"]
        lines += [f"  {n} = {quoted(v) if isinstance(v, str) else number_text(v)}" for n, v in kind.members]
        return "\n".join(lines) + "\n"
    if isinstance(kind, InterfaceType):
        return _interface_code(printer, kind, name)
    return _module_code(printer, kind, name) if kind.is_module else _plain_class_code(printer, kind, name)


def _last_name(kind: Any) -> str:
    full: str = (
        str(kind.tuple_name)
        if isinstance(kind, TupleType)
        else kind.enum_name
        if isinstance(kind, EnumType)
        else kind.name
    )
    return full.rpartition(".")[2]


def _interface_code(printer: Printer, kind: InterfaceType, name: str) -> str:
    lines = [f"class {name}({'ModuleInterface' if kind.is_module else 'Interface'}):"]
    for label, schema in kind.methods.items():
        words = ["self", *(f"{a.name}: {printer.type_name(a.type)}" for a in schema.arguments[1:])]
        lines += [f"  def {label}({', '.join(words)}) -> {printer.type_name(result_type(schema))}:", "    pass"]
    return "\n".join(lines) + "\n"


def _module_code(printer: Printer, kind: ClassType, name: str) -> str:
    lines = [f"class {name}(Module):"]
    for word, held in (("parameters", kind.parameters), ("buffers", kind.buffers)):
        names = "".join(f"{quoted(n)}, " for n in kind.attributes if n in held)
        lines.append(f"  __{word}__ = [{names}]")
    for word, hooks in (("forward_pre_hooks", kind.forward_pre_hooks), ("forward_hooks", kind.forward_hooks)):
        if hooks:
            lines.append(f"  __{word}__ = [{''.join(f'{quoted(h.base_name)}, ' for h in hooks)}]")
    lines += _attribute_lines(printer, kind)
    body = Body(printer, 1)
    for label, value in kind.constants.items():
        if is_identifier(label):
            t = inferred(value)
            if t is not None:
                lines.append(f"  {label} : Final[{printer.type_name(t)}] = {body.literal(_print_numbered(value), t)}")
    return "\n".join(lines) + "\n" + _methods_code(printer, kind)


def _print_numbered(value: Any) -> Any:
    return value.number if is_numbered(value) else value


def _attribute_lines(printer: Printer, kind: ClassType) -> list[str]:
    lines = []
    if any(not is_identifier(n) for n in kind.attributes):
        lines.append("  __annotations__ = []")
    for name, t in kind.attributes.items():
        text = printer.type_name(t)
        lines.append(f"  {name} : {text}" if is_identifier(name) else f"  __annotations__[{quoted(name)}] = {text}")
    return lines


def _plain_class_code(printer: Printer, kind: ClassType, name: str) -> str:
    if issubclass(kind.python_class or object, CustomClass):
        if "__getstate__" not in kind.methods:
            raise RuntimeError(
                f"Cannot serialize custom bound C++ class {kind.name}. Please define serialization methods via def_pickle() for this class."
            )
        return ""
    lines = [f"class {name}:", *_attribute_lines(printer, kind)]
    return "\n".join(lines) + "\n" + _methods_code(printer, kind)


def _methods_code(printer: Printer, kind: ClassType) -> str:
    done: list[str] = []
    texts: list[str] = []
    while True:  # writing one method may compile another
        waiting = [n for n in kind.methods if n not in done]
        if not waiting:
            return "".join(texts)
        done.append(waiting[0])
        method = kind.methods[waiting[0]]
        if method.unused:
            continue
        texts.append(printer.function(method.ensure(), 1))

"""The operators as C++ functions and methods of tensors: `include/ATen/*.inc`, written from the operators' schemas.

python -m flambeau.cpp.headers            # write them again, after an operator was added or changed
python -m flambeau.cpp.headers --check    # fails if they are not up to date

Each names an operator and its arguments. The record's public function runs, looked up at the first call.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..core.dtype import dtype
from ..core.tensor import Tensor
from ..library.aten.resolver import find, record_of
from ..ops.machinery.schema import REQUIRED, Argument, Schema
from ..ops.machinery.schema_table import aten_names, overloads_of, schema_of

FOLDER = Path(__file__).parents[1] / "include" / "ATen"
_HEAD = "// Written by `python -m flambeau.cpp.headers` from the operators' schemas. Do not change it by hand.\n"

# Written by hand in Tensor.h and ATen.h: what needs no call of Python, or is different in C++.
_BY_HAND = frozenset([
    "tensor", "as_tensor", "size", "stride", "dim", "numel", "item", "to", "index", "index_put", "index_put_",
    "backward", "requires_grad_", "retain_grad", "data", "cpu", "cuda", "is_floating_point", "is_complex",
    "is_contiguous", "storage_offset", "element_size", "get_device", "is_leaf", "output_nr", "_version", "layout",
    "device", "dtype", "from_file", "set_data", "numpy", "tolist", "contiguous_format", "sym_size", "sym_stride",
    "sym_numel", "sym_storage_offset", "type", "ndimension", "nbytes", "itemsize", "is_same_size", "print", "einsum",
])  # fmt: skip
_ONLY_IN_CPP = ("slice", "alias", "numpy_T", "polygamma")  # methods there, not in Python
# What a program does before it has started Python (flambeau/native.h): an undefined tensor where it must start.
_NATIVE = {
    "zeros": "native_filled(size, 0, options)",
    "ones": "native_filled(size, 1, options)",
    "full": "native_full(size, fill_value, options)",
    "empty": "native_empty(size, memory_format ? options.memory_format(memory_format) : options)",
    "slice": "native_slice(self, dim, start, end, step)",
    "select": "native_select(self, dim, index)",
    "detach": "native_alias(self)",
    "contiguous": "native_contiguous(self, memory_format)",
}
_KEYWORDS = frozenset([
    "and", "or", "not", "xor", "bool", "int", "float", "double", "long", "short", "char", "default", "register",
    "union", "new", "delete", "switch", "case", "this", "auto", "class",
])  # fmt: skip
_PLAIN = {
    "Tensor": "const Tensor &", "Tensor?": "const optional<Tensor> &", "Tensor[]": "TensorList ", "int": "int64_t ",
    "int?": "optional<int64_t> ", "int[]": "IntArrayRef ", "int[]?": "OptionalIntArrayRef ", "float": "double ",
    "float?": "optional<double> ", "float[]": "ArrayRef<double> ", "float[]?": "optional<ArrayRef<double>> ",
    "bool": "bool ", "bool?": "optional<bool> ", "Scalar": "const Scalar &", "Scalar?": "const optional<Scalar> &",
    "Scalar[]": "ArrayRef<Scalar> ", "str": "string_view ", "str?": "optional<string_view> ",
    "ScalarType": "ScalarType ", "ScalarType?": "optional<ScalarType> ", "MemoryFormat": "MemoryFormat ",
    "MemoryFormat?": "optional<MemoryFormat> ", "Layout?": "optional<Layout> ", "Device": "Device ",
    "Device?": "optional<Device> ", "Generator": "Generator ", "Generator?": "optional<Generator> ",
}  # fmt: skip
_RESULTS = {
    "Tensor": "Tensor", "Tensor[]": "std::vector<Tensor>", "bool": "bool", "int": "int64_t", "float": "double",
    "Scalar": "Scalar", "ScalarType": "ScalarType", "int[]": "std::vector<int64_t>",
}  # fmt: skip
_OPTIONS = ("dtype", "layout", "device", "pin_memory")


class _UnsupportedType(Exception):
    """Raised for a type that has no counterpart in C++."""


def _kind(argument: Argument) -> str:
    kind = argument.type.replace("SymInt", "int")
    if kind not in _PLAIN:
        raise _UnsupportedType(kind)
    return kind


def _literal(value: Any, kind: str) -> str:
    """Write a default value as C++."""
    if value is None:
        return "nullopt"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dtype):
        return "kLong"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "{" + ", ".join(map(str, value)) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        sign = "-" if value < 0 else ""
        return f"{sign}std::numeric_limits<double>::{'quiet_NaN' if math.isnan(value) else 'infinity'}()"
    if isinstance(value, (int, float)):
        return repr(value)
    return "MemoryFormat::Contiguous" if kind.startswith("MemoryFormat") else "kStrided"


class _Signature:
    """Signature of an overload in C++: the declared parameters, and the arguments of the call."""

    def __init__(self, schema: Schema) -> None:
        self.declared: list[tuple[str, str, str]] = []  # type, name, default
        self.passed: list[str] = []
        arguments = [a for a in schema.arguments if not a.is_out]
        names = [a.name for a in arguments]
        has_options = all(name in names for name in _OPTIONS)
        for argument in arguments:
            if has_options and argument.name in _OPTIONS:
                if argument.name == "dtype":
                    default = "" if argument.default is REQUIRED else "{}"
                    self.declared.append(("const TensorOptions &", "options", default))
                    self.passed.append(".options(options)")
                continue
            self._add(argument)
        self.result = _result(schema)

    def _add(self, argument: Argument) -> None:
        kind = _kind(argument)
        name = argument.name + ("_" if argument.name in _KEYWORDS else "")
        standard = None if argument.default is REQUIRED else _literal(argument.default, kind)
        self.declared.append(
            (_PLAIN[kind], name, "" if standard is None else "{}" if standard == "nullopt" else standard)
        )
        value = f"Sized{{{name}, {argument.N}}}" if argument.N and argument.N > 1 and kind == "int[]" else name
        key = f'"{argument.name}", ' if argument.kwarg_only else ""
        if kind == "int[]" and standard is not None and not standard.startswith("{"):
            standard = "{" + standard + "}"
        letter = "k" if argument.kwarg_only else "a" if standard is None else "d"
        self.passed.append(f".{letter}({key}{value}{'' if standard is None else ', ' + standard})")

    def parameters(self, defaults: bool, method: bool = False) -> str:
        shown = self.declared[1:] if method else self.declared
        return ", ".join(t + n + (f"={d}" if d and defaults else "") for t, n, d in shown)

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(t for t, _, _ in self.declared)

    @property
    def required(self) -> int:
        return sum(not default for _, _, default in self.declared)

    def hidden_by(self, other: _Signature) -> bool:
        """Return whether every call of this overload could be one of the other."""
        return other.types[: len(self.types)] == self.types and other.required <= len(self.types)

    def disambiguate_from(self, other: _Signature) -> None:
        """Drop the defaults that would make a call ambiguous with the other overload."""
        shared = 0
        while shared < min(len(self.types), len(other.types)) and self.types[shared] == other.types[shared]:
            shared += 1
        if max(self.required, other.required) <= shared:
            self.declared[: shared + 1] = [(t, n, "") for t, n, _ in self.declared[: shared + 1]]


def _result(schema: Schema) -> str:
    kinds = [r.type.replace("SymInt", "int") for r in schema.returns]
    if any(kind not in _RESULTS for kind in kinds):
        raise _UnsupportedType(kinds)
    if not kinds:
        return "void"
    found = [_RESULTS[kind] for kind in kinds]
    return found[0] if len(found) == 1 else f"std::tuple<{', '.join(found)}>"


def _overloads() -> Iterator[tuple[str, str, Schema, _Signature]]:
    """Yield all functions that C++ programs can call, in the order of names."""
    for name in aten_names():
        if name in _BY_HAND or name in _KEYWORDS or not name.isidentifier():
            continue
        seen: list[_Signature] = []
        for overload in overloads_of(name):
            try:
                schema = schema_of(name, overload)
                signature = _Signature(schema)
            except _UnsupportedType:
                continue
            about_tensors = any("Tensor" in a.type for a in schema.arguments) or signature.result == "Tensor"
            if schema.is_out or not about_tensors:
                continue
            if any(signature.hidden_by(other) for other in seen):
                continue
            if find(name, overload or "default") is not None:
                for other in seen:
                    signature.disambiguate_from(other)
                seen.append(signature)
                yield name, overload, schema, signature


def _write_function(name: str, overload: str, schema: Schema, s: _Signature) -> tuple[str, str]:
    """Return the function with its method, and the method's declaration."""
    first = schema.arguments[0] if schema.arguments else None
    has_self = first is not None and first.name == "self" and first.type == "Tensor"
    changed = first is not None and first.alias_info is not None and first.alias_info.is_write
    in_place = has_self and changed and s.result == "Tensor"
    natively = _NATIVE.get(name, "") if s.result == "Tensor" else ""
    natively = natively and f"if (Tensor made = ::flambeau::{natively}; made.defined()) return made; "
    call = f'static ::flambeau::Op op{{"{name}", "{overload or "default"}", nullptr}}; '
    made = f"::flambeau::Call(op){''.join(s.passed)}"
    if in_place:
        head, body = "Tensor &", f"{made}.run_for(); return const_cast<Tensor &>(self);"
    else:
        head, body = s.result + " ", f"return {made}.run<{s.result}>();"
    text = f"inline {head}{name}({s.parameters(True)}) {{ {natively}{call}{body} }}\n"
    if not in_place:
        text += _out_forms(name, call, s)
    if not has_self or not (hasattr(Tensor, name) or name in _ONLY_IN_CPP):
        return text, ""
    given = ", ".join(["*this", *(n for _, n, _ in s.declared[1:])])
    text += f"inline {head}Tensor::{name}({s.parameters(False, True)}) const {{ return at::{name}({given}); }}\n"
    return text, f"  {head}{name}({s.parameters(True, True)}) const;\n"


def _out_forms(name: str, call: str, s: _Signature) -> str:
    """Return the forms that write into given tensors: `add_out(out, a, b)`, `add_outf(a, b, out)`."""
    record = record_of(name)
    count = (
        1
        if s.result == "Tensor"
        else s.result.count("Tensor")
        if re.fullmatch(r"std::tuple<[Tensor, ]+>", s.result)
        else 0
    )
    if record is None or not record.has_out or not count:
        return ""
    outs = [f"out{i if count > 1 else ''}" for i in range(count)]
    given = ", ".join(f"Tensor &{o}" for o in outs)
    plain = [(t, n, d) for t, n, d in s.declared if n != "options"]
    passed = "".join(p for p in s.passed if p != ".options(options)")
    kind = "Tensor &" if count == 1 else f"std::tuple<{', '.join(['Tensor &'] * count)}>"
    held = outs[0] if count == 1 else f"std::tuple<{', '.join(['Tensor'] * count)}>{{{', '.join(outs)}}}"
    back = outs[0] if count == 1 else f"std::tie({', '.join(outs)})"
    body = f'{call}::flambeau::Call(op){passed}.k("out", {held}).run_for(); return {back};'
    first = ", ".join([given, *(t + n + (f"={d}" if d else "") for t, n, d in plain)])
    last = ", ".join([*(t + n for t, n, _ in plain), given])
    names = ", ".join([*outs, *(n for _, n, _ in plain)])
    return f"inline {kind} {name}_out({first}) {{ {body} }}\ninline {kind} {name}_outf({last}) {{ return {name}_out({names}); }}\n"


def written() -> dict[str, str]:
    """Return the names and texts of the header files."""
    functions, methods = [_HEAD], [_HEAD]
    for one in _overloads():
        function, method = _write_function(*one)
        functions.append(function)
        methods.append(method)
    return {"operators.inc": "".join(functions), "tensor_methods.inc": re.sub(r"=nullopt", "={}", "".join(methods))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for name, text in written().items():
        path = FOLDER / name
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{name} is not up to date: run python -m flambeau.cpp.headers")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

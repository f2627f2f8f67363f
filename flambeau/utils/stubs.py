"""Stubs for type checkers and editors: tensors' methods (`core/tensor_methods.pyi`) and the namespaces
of functions (`__init__.pyi`, `nn/functional.pyi`, ...), written from the operators' records.

python -m flambeau.utils.stubs            # write them again, after an operator was added or changed
python -m flambeau.utils.stubs --check    # fails if they are not up to date
"""

from __future__ import annotations

import argparse
import ast
import functools
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from .. import core
from ..core.naming import PACKAGE
from ..core.tensor import Tensor
from ..ops.machinery.binding import LATE_NAMES
from . import namespace_stubs, stub_results

FILE = Path(core.__path__[0]) / "tensor_methods.pyi"
_HEAD = """# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NoReturn, overload

import numpy as np

from .. import return_types as _results
from .graph import HookHandle
from .layout import layout as _layout
from .quantized import qscheme as Scheme
from .size import Size
from .tensor import Tensor
from .typed_storage import TypedStorage

class TensorMethods:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
"""
_KNOWN = frozenset([
    "int", "float", "bool", "str", "bytes", "None", "complex", "Tensor", "Any", "tuple", "list", "dict", "Callable",
    "Iterator", "Sequence", "Size", "TypedStorage", "layout", "Scheme", "HookHandle", "np", "ndarray", "NamedResult", "NoReturn", "Literal", "True", "False",
])  # fmt: skip
# What every class has, in one version of Python or another.
_OF_CLASSES = {
    "__annotations__", "__dict__", "__firstlineno__", "__getstate__", "__slots__", "__static_attributes__",
    "__weakref__",
}  # fmt: skip
_OMITTED = (frozenset(vars(object)) | _OF_CLASSES) - {
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
}  # fmt: skip
_SHADOWED = frozenset(("int", "float", "bool"))  # which are methods of tensors too


def _type(annotation: Any) -> str:
    """Return an annotation for the stub; types that are unknown there become Any."""
    if isinstance(annotation, type):
        annotation = "None" if annotation is type(None) else annotation.__name__
    words = set(re.findall(r"[A-Za-z_]\w*", annotation)) if isinstance(annotation, str) else {""}
    if not words <= _KNOWN:
        return "Any"
    return namespace_stubs.with_elements(re.sub(r"\b(int|float|bool|layout)\b", r"_\1", annotation))


def _parameters(parameters: list[inspect.Parameter]) -> str:
    parts, starred = ["self"], False
    for p in parameters:
        kind = _type(p.annotation)
        if kind == "_int" and "dim" in p.name.split("_"):
            kind = "_int | str | Sequence[str]" if p.name == "start_dim" else "_int | str"  # dimensions may have names
        if p.kind is p.VAR_POSITIONAL:
            parts.append(f"*{p.name}: {kind}")
            starred = True
        elif p.kind is p.VAR_KEYWORD:
            parts.append(f"**{p.name}: {kind}")
        else:
            if p.kind is p.KEYWORD_ONLY and not starred:
                parts.append("*")
                starred = True
            parts.append(f"{p.name}: {kind}" + ("" if p.default is p.empty else " = ..."))
    return ", ".join(parts)


def _method(name: str, member: Any) -> str | None:
    """Return a method's line of the stub; None for names outside of the interface."""
    if isinstance(member, property) or inspect.isdatadescriptor(member):
        getter = getattr(member, "fget", None)
        result = _type(inspect.signature(getter).return_annotation) if getter is not None else "Any"
        writable = getattr(member, "fset", None) is not None
        setter = f"\n    @{name}.setter\n    def {name}(self, value: Any) -> None: ..." if writable else ""
        return f"    @property\n    def {name}(self) -> {result}: ..." + setter
    if isinstance(member, (staticmethod, classmethod)):
        return f"    {name}: Any"
    if not callable(member):
        return f"    {name}: Any"
    if name in ("__eq__", "__ne__"):
        return f"    def {name}(self, other: Any) -> Tensor: ...  # type: ignore[override]"
    op = getattr(member, "op", None)
    # Also `alpha`.
    if re.fullmatch(r"__[ir]?(add|sub|mul|div|truediv|floordiv|mod|pow|matmul|and|or|xor|lshift|rshift)__", name):
        return f"    def {name}(self, other: Any) -> Tensor: ..."
    try:
        found = list(op.arguments.values()) if op is not None and op.source is not None else None
        signature = inspect.signature(
            member if op is None or op.source is None else op.source, follow_wrapped=op is None
        )
    except (TypeError, ValueError):
        return f"    {name}: Any"
    parameters = list(signature.parameters.values()) if found is None else found
    if any(p.kind is p.VAR_POSITIONAL and p.name == "args" for p in parameters):
        parameters = list(inspect.signature(member).parameters.values())
    if not parameters or parameters[0].kind in (parameters[0].VAR_POSITIONAL, parameters[0].VAR_KEYWORD):
        return f"    def {name}(self, *args: Any, **kwargs: Any) -> Any: ..."
    said = inspect.signature(member).return_annotation if op is not None else signature.return_annotation
    if op is not None and op.kind in ("pointwise", "reduction", "view") and not str(said).startswith("tuple[Tensor"):
        said = "Tensor"
    forms = [
        f"    def {name}({_parameters(given)}{_numpy_names(op, given)}) -> {stub_results.resolved(op, _type(result))}: ..."
        for given, result in stub_results.forms(op, parameters[1:], said)
    ]
    return forms[0] if len(forms) == 1 else "\n".join(f"    @overload\n{form}" for form in forms)


def _numpy_names(op: Any, parameters: list[inspect.Parameter]) -> str:
    """Return `**others` for operators with `dim`, which accept `axis` and other names of NumPy's, too."""
    takes_more = op is not None and any(p.name in ("dim", "keepdim") for p in parameters)
    takes_more = takes_more and not any(p.name == "dim" and p.annotation == "None" for p in parameters)
    ends = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return ", **others: Any" if takes_more and not ends else ""


@functools.cache
def _defined_in_class() -> frozenset[str]:
    """Return the names that the class Tensor itself defines: type checkers read these from its source."""
    tree = ast.parse((Path(core.__path__[0]) / "tensor.py").read_text())
    body = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor").body
    names = {n.name for n in body if isinstance(n, ast.FunctionDef)}
    names |= {n.target.id for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    return frozenset(
        names | {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    )


def written() -> str:
    """Return the stub of everything that operators and other modules bind to the class."""
    lines = []
    for name, member in sorted(vars(Tensor).items()):
        if name not in _defined_in_class() and name.isidentifier() and name not in _OMITTED:
            line = _method(name, member)
            if line is not None:
                lines.append(line)
    spare = "".join(f"_{name} = {name}\n" for name in sorted(_SHADOWED))
    return _HEAD.replace("class TensorMethods", f"{spare}\nclass TensorMethods") + "\n".join(lines) + "\n"


# Run in a separate process, where nothing else has been imported.
_LATE_NAMES = """
import {package}
from {package}.core.tensor import Tensor
from {package}.ops.machinery.binding import LateMethod
early = set(vars({package}))
early_methods = {{name for name, member in vars(Tensor).items() if not isinstance(member, LateMethod)}}
from {package}.ops import late, namespace
functions = {{*namespace("torch"), *late.FOREACH, *late.PLAIN_FUNCTIONS}}
print("Functions, then methods of the operators in ops/late. Written by `python -m {package}.utils.stubs`.")
print(*sorted(functions - early))
print(*sorted(vars(Tensor).keys() - early_methods))
"""


def late_names() -> str:
    """Return the functions and methods of operators that are imported on first use."""
    asked = [sys.executable, "-c", _LATE_NAMES.format(package=PACKAGE)]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    namespaces = (*namespace_stubs.NAMESPACES, *namespace_stubs.PASSING_ON)
    texts = {namespace_stubs.path_of(n): namespace_stubs.written(n) for n in namespaces}
    texts |= {namespace_stubs.path_of(n): namespace_stubs.of_switches(n) for n in namespace_stubs.SWITCHES}
    texts |= {namespace_stubs.path_of(n): namespace_stubs.of_moved(n) for n in namespace_stubs.ELSEWHERE}
    texts |= {
        LATE_NAMES: late_names(),
        FILE: written(),
        namespace_stubs.path_of("return_types"): stub_results.named_tuples(),
    }
    if parser.parse_args().check:
        stale = [str(file) for file, text in texts.items() if not file.exists() or file.read_text() != text]
        for name in stale:
            print(f"{name} is not up to date: run python -m flambeau.utils.stubs")
        return bool(stale)
    for file, text in texts.items():
        file.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

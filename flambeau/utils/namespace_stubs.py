"""Stubs of the namespaces that operators' records fill: what editors and type checkers know of `torch.randn`.

A module that is filled when it is imported is empty to a tool that only reads it. So each of them has a stub, made here from the same
records: names, parameters with types, results. A package whose names are imported on first use has one, too; it only says where each is
defined."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from enum import EnumMeta
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any

import flambeau

from ..compat.former_names import MOVED, PARTS
from ..compat.legacy import STORAGE_TYPES, TENSOR_TYPES
from ..core.device import device
from ..core.dtype import dtype
from ..core.layout import layout, memory_format
from ..core.quantized import qscheme
from ..ops.machinery.record import Op
from . import stub_results

ROOT = Path(flambeau.__file__).parent
NAMESPACES = ("", "nn", "nn.functional", "linalg", "fft", "special")
# Packages that pass names on, some of them imported when first used.
PASSING_ON = (
    "ao", "ao.nn", "ao.nn.intrinsic", "ao.nn.quantized", "ao.quantization", "autograd", "backends", "distributed", "distributed.checkpoint",
    "distributed.fsdp", "distributed.tensor", "distributions", "nn.parallel", "optim", "utils", "vision.models", "vision.transforms",
)  # fmt: skip
# Modules of PyTorch whose names are elsewhere here, and that programs import from.
ELSEWHERE = (
    "autograd.profiler",
    "autograd.profiler_util",
    "utils.flop_counter",
    *(n for parts in PARTS.values() for n in parts),
)
SWITCHES = tuple(name for name in MOVED if name.startswith("backends."))
_HEAD = """# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Literal, NoReturn, overload

from {core} import return_types as _results
from {core}core.device import device as _device
from {core}core.dtype import dtype as _dtype
from {core}core.generator import Generator as _Generator
from {core}core.layout import layout as _layout
from {core}core.layout import memory_format as _memory_format
from {core}core.quantized import qscheme as _qscheme
from {core}core.size import Size as _Size
from {core}core.tensor import Tensor as _Tensor
from {core}core.typed_storage import TypedStorage as _TypedStorage

_Number = _int | _float | _bool | _complex
_Ints = _int | Sequence[_int]
_DeviceLike = _device | _str | _int

"""
# What a parameter takes that is called so wherever it occurs, and whose annotation says nothing more.
_BY_NAME = {
    "input": "_Tensor", "tensor": "_Tensor", "weight": "_Tensor | _Number", "mat1": "_Tensor", "mat2": "_Tensor", "vec": "_Tensor",
    "other": "_Tensor | _Number", "tensors": "Sequence[_Tensor]", "bias": "_Tensor | None", "mask": "_Tensor",
    "out": "Any", "dtype": "_dtype | None", "device": "_DeviceLike | None", "layout": "_layout | None",
    "generator": "_Generator | None", "requires_grad": "_bool", "pin_memory": "_bool", "keepdim": "_bool",
    "dim": "_Ints | _str | _Tensor | None", "dims": "_Ints | Sequence[_str]", "memory_format": "_memory_format | None", "inplace": "_bool", "training": "_bool",
    "kernel_size": "_Ints", "reduction": "_str", "eps": "_float", "alpha": "_Number", "beta": "_Number",
}  # fmt: skip
# Of these, one that is said to take anything does so: it may be a number, or a list.
_TENSOR_NAMES = frozenset(("input", "tensor", "weight", "mat1", "mat2", "vec", "other", "bias", "mask"))
_WORDS = {
    "int": "_int", "float": "_float", "bool": "_bool", "str": "_str", "complex": "_complex", "Tensor": "_Tensor", "Size": "_Size",
    "dtype": "_dtype", "device": "_device", "Any": "Any", "None": "None", "tuple": "tuple", "list": "list", "dict": "dict",
    "Callable": "Callable", "Sequence": "Sequence", "Iterator": "Iterator", "bytes": "bytes", "Generator": "_Generator",
    "NamedResult": "NamedResult", "NoReturn": "NoReturn", "Literal": "Literal", "True": "True", "False": "False",
}  # fmt: skip
_ELEMENTS = {
    "tuple": "[Any, ...]",
    "list": "[Any]",
    "dict": "[Any, Any]",
    "Callable": "[..., Any]",
    "ndarray": "[Any, Any]",
}
_TENSORS = frozenset(("pointwise", "reduction", "view", "creation", "random"))


def path_of(namespace: str) -> Path:
    """Return the path of a namespace's stub."""
    place = ROOT.joinpath(*namespace.split("."))
    return place / "__init__.pyi" if place.is_dir() else place.with_suffix(".pyi")


def written(namespace: str) -> str:
    """Return the stub of a namespace; the root is called ""."""
    module = importlib.import_module(f"flambeau.{namespace}" if namespace else "flambeau")
    rooms, known = _submodules(module, namespace), dict(_imports(module)) if namespace in PASSING_ON else {}
    lines = [f"from . import {name} as {name}" for name in rooms]
    lines += [
        _member(module, name, getattr(module, name), known.get(name, ""))
        for name in sorted({*_names(module, namespace), *known})
        if name not in rooms
    ]
    imports = sorted(line for line in lines if line and line.startswith("from "))
    others = [line for line in lines if line and not line.startswith("from ")]
    dots = _relative(module, "flambeau")
    return _with_imports(dots, [*imports, "", *others])


def of_switches(name: str) -> str:
    """Return the stub of a module of switches under its second name: the names in its source, and the properties of its class."""
    kind = type(getattr(flambeau.backends, name.removeprefix("backends.")))
    lines = [f"from ..{MOVED[name]} import *"]
    own = {n: {said} for n, said in inspect.get_annotations(kind).items()}
    for switch, found in vars(kind).items():
        if kind is not ModuleType and isinstance(found, property) and found.fget:
            getter = inspect.signature(found.fget).return_annotation
            setter = list(inspect.signature(found.fset).parameters.values())[1].annotation if found.fset else getter
            own[switch] = {getter, setter}
    return _with_imports("..", [*lines, *(f"{n}: {_type(' | '.join(sorted(said)))}" for n, said in own.items())])


def of_moved(name: str) -> str:
    """Return the stub of a module of PyTorch whose names are defined elsewhere here: it imports them."""
    home = MOVED[name]
    found = vars(importlib.import_module(f"flambeau.{home}"))
    names = PARTS.get(home, {}).get(name) or [n for n, v in sorted(found.items()) if _is_own(n, v)]
    return _with_imports("", [f"from {'.' * (name.count('.') + 1)}{home} import {n} as {n}" for n in names])


def _is_own(name: str, value: Any) -> bool:
    """Return whether a name of a module is public, and defined in this library."""
    home = getattr(value, "__module__", None) or "flambeau"
    return (
        not name.startswith("_")
        and name != "annotations"
        and not isinstance(value, ModuleType)
        and home.startswith("flambeau")
    )


def _with_imports(core: str, lines: list[str]) -> str:
    """Return the text of a stub: the imports that it uses, then these lines."""
    used = set(re.findall(r"\w+", "\n".join(lines)))
    kept: list[str] = []
    for line in reversed(_HEAD.format(core=core).split("\n")):
        names = [part.split()[-1] for part in line.partition(" import ")[2].split(",") if part] or line.split(" = ")[:1]
        if line.startswith(("from ", "_")) and used.isdisjoint(names):
            continue
        if len(names) > 1:
            line = f"{line.partition(' import ')[0]} import {', '.join(n for n in names if n in used)}"
        used |= set(re.findall(r"\w+", line)) if line.startswith("_") else set()
        kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join([*kept[::-1], *lines])) + "\n"


def _names(module: ModuleType, namespace: str) -> list[str]:
    """Return the names that users may write, including those that are imported on first use."""
    found = {n for n in dir(module) if not n.startswith("_") or hasattr(getattr(module, n), "op")}
    found -= {"TYPE_CHECKING", "annotations"}
    found |= {
        *getattr(module, "_HOMES", ()),
        *inspect.get_annotations(module),
        *(() if namespace else ("__version__", "Storage")),
    }
    found |= {name.rpartition(".")[2] for name in MOVED if name.rpartition(".")[0] == namespace}
    return sorted(found - {"torch"})


def _submodules(module: ModuleType, namespace: str) -> list[str]:
    """Return the public submodules of a package; for the root all of them, which are imported on first use."""
    if not hasattr(module, "__path__"):
        return []
    folder = ROOT.joinpath(*namespace.split("."))
    files = [p.stem for p in folder.glob("*.py")] + [p.parent.name for p in folder.glob("*/__init__.py")]
    files += [name.rpartition(".")[2] for name in (*SWITCHES, *ELSEWHERE) if name.rpartition(".")[0] == namespace]
    known = sorted(n for n in set(files) if not n.startswith("__" if namespace in PASSING_ON else "_"))
    if namespace in PASSING_ON:  # not asked for: some need packages that are not installed
        return [n for n in known if isinstance(vars(module).get(n, module), ModuleType) and f" as {n}\n" not in _HEAD]
    return [n for n in known if not namespace or hasattr(module, n)]


def _imports(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the names that a package imports from elsewhere in the library, each with its import statement."""
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            home = "." * node.level + (node.module or "")
            for given in node.names:
                inside = vars(importlib.import_module(home, module.__name__)) if given.name == "*" else {}
                public = inside.get("__all__", [n for n in inside if not n.startswith("_")])
                for name, own in [(n, n) for n in public] or [(given.asname or given.name, given.name)]:
                    if own == name or not name.startswith("_"):
                        yield name, f"from {home} import {own} as {name}"


def _member(module: ModuleType, name: str, value: Any, known: str = "") -> str:
    """Return the lines of a stub for one name, or an empty string; `known` is the statement that imports it in the module."""
    if isinstance(value, EnumMeta) and not _is_written(value.__module__, name):
        members = "".join(f"\n    {member} = ..." for member in value.__members__)
        return f"class {name}({value.__mro__[1].__name__}):{members}"
    if known:
        return known
    if isinstance(value, UnionType):
        return f"{name} = {' | '.join(kind.__name__ for kind in value.__args__)}"
    if value in (*TENSOR_TYPES.values(), *STORAGE_TYPES.values()):
        return f"{name} = {'_Tensor' if name in TENSOR_TYPES else '_TypedStorage'}"
    if isinstance(value, ModuleType):
        home, _, own = value.__name__.rpartition(".")
        if not home.startswith("flambeau"):
            return ""
        return (
            f"from {_relative(module, home)} import {own} as {name}"
            if getattr(value, "__file__", None)
            else f"{name}: Any"
        )
    if isinstance(value, (dtype, layout, memory_format, qscheme, device)):
        return f"{name}: _{type(value).__name__}"
    if isinstance(getattr(value, "op", None), Op):
        return _function(name, value)
    home = getattr(value, "__module__", "") or ""
    if home != "builtins" and home.partition(".")[0] in sys.stdlib_module_names:
        return ""
    plain = callable(value) and home.startswith("flambeau.") and _is_written(home, getattr(value, "__name__", ""))
    if plain and value.__name__ == name and home != module.__name__:
        return f"from {_relative(module, home)} import {name} as {name}"
    if callable(value) and not isinstance(value, type):
        return _function(name, value)
    kind = "None" if value is None else type(value).__name__
    return f"{name}: {_WORDS[kind]}" if kind in _WORDS else f"{name}: Any"


def _is_written(home: str, name: str) -> bool:
    """Return whether a module's source defines a name, so that a tool that reads it finds it there."""
    source = getattr(sys.modules.get(home), "__file__", None)
    if not source or not name.isidentifier():
        return False
    body = ast.parse(Path(source).read_text()).body
    return any(isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == name for n in body)


def _relative(module: ModuleType, home: str) -> str:
    """Return a module's name as the stub of another one imports it."""
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    up = package.count(".")
    return "." * (up + 1) + home.removeprefix("flambeau").removeprefix(".")


def _function(name: str, function: Any) -> str:
    """Return a function's line, or the lines of its overloads, with the parameters that `help()` shows."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}: Any"
    op = getattr(function, "op", None)
    said = signature.return_annotation
    if op is not None and op.kind in _TENSORS and not str(said).startswith("tuple[Tensor"):
        said = "Tensor"
    forms = [
        f"def {name}({_parameters(parameters)}) -> {stub_results.resolved(op, _type(result))}: ..."
        for parameters, result in stub_results.forms(op, list(signature.parameters.values()), said)
    ]
    return forms[0] if len(forms) == 1 else "\n".join(f"@overload\n{form}" for form in forms)


def _parameters(parameters: list[inspect.Parameter]) -> str:
    parts, starred, open_ended = [], False, False
    names = {p.name for p in parameters if p.annotation != "None"}
    for p in parameters:
        text = f"{p.name}: {_parameter_type(p)}"
        if p.kind is p.VAR_POSITIONAL:
            parts.append(f"*{text}")
            starred = True
        elif p.kind is p.VAR_KEYWORD:
            parts.append(f"**{text}")
            open_ended = True
        else:
            if p.kind is p.KEYWORD_ONLY and not starred:
                parts.append("*")
                starred = True
            may_miss = p.default is not p.empty or (p.name == "low" and "high" in names)
            parts.append(text + (" = ..." if may_miss else ""))
    more = [] if open_ended else _further_names(names)
    return ", ".join([*parts, *(["*"] if more and not starred else []), *more])


def _further_names(names: set[str]) -> list[str]:
    """Return parameters that a function takes by name besides those it shows: NumPy's names for them, names of dimensions."""
    numpy = [f"{theirs}: Any = ..." for theirs, ours in (("axis", "dim"), ("keepdims", "keepdim")) if ours in names]
    return numpy + (["names: Sequence[_str | None] | None = ..."] if {"requires_grad", "size"} <= names else [])


def _parameter_type(p: inspect.Parameter) -> str:
    said = _type(p.annotation)
    if said == "Any" and p.kind is p.VAR_POSITIONAL and p.name in ("size", "sizes", "shape"):
        return "_int | Sequence[_int] | _Tensor"
    if said != "Any" or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
        return said
    if p.name in _TENSOR_NAMES and p.annotation is not p.empty:
        return "Any"
    known = _BY_NAME.get(p.name, "Any")
    return f"{known} | None" if p.default is None and known != "Any" and "None" not in known else known


def _type(annotation: Any) -> str:
    """Return an annotation for a stub; types that are unknown there become Any."""
    if annotation in (None, type(None)):
        return "None"
    if type(annotation) is type and annotation is not inspect.Parameter.empty:  # isinstance takes dict[...] on 3.10
        annotation = annotation.__name__
    if not isinstance(annotation, str):
        return "Any"
    words = set(re.findall(r"[A-Za-z_]\w*", annotation))
    if not words <= _WORDS.keys():
        return "Any"
    return with_elements(re.sub(r"[A-Za-z_]\w*", lambda m: _WORDS[m[0]], annotation))


def with_elements(annotation: str) -> str:
    """Return an annotation with element types for all containers: strict checkers call a bare `tuple` partly unknown."""
    return re.sub(r"\b(tuple|list|dict|Callable|ndarray)\b(?!\[)", lambda m: m[0] + _ELEMENTS[m[0]], annotation)

"""What a program leaves behind in one library, as plain data."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any, NamedTuple

import numpy as np

PRELUDE = """
def grads(result, *inputs, **options):
    parts = [t for t in (result if isinstance(result, (tuple, list)) else [result]) if torch.is_tensor(t) and t.requires_grad]
    outer = [((torch.arange(t.numel()) * 7 % 11 - 5) / 4).reshape(t.shape).to(t.dtype) for t in parts]
    return torch.autograd.grad(parts, inputs, outer, allow_unused=True, **options)
"""
HEAD = """\
import copy, io, sys
from importlib import import_module
from math import inf, nan

torch = import_module(sys.argv[1])  # torch or flambeau
F, nn = torch.nn.functional, torch.nn
"""
WIDE = {"bfloat16": "float64", "float16": "float64", "float32": "float64", "complex64": "complex128", "complex32": "complex128"}  # fmt: skip


class Numbers(NamedTuple):
    """A tensor or number: what must agree exactly, and its values."""

    facts: dict[str, Any]
    values: np.ndarray


class Outcome:
    """The exception that ended a program, if any, and all values that have names."""

    def __init__(self, error: str, line: int, said: str, values: dict[str, Any], shared: list[list[str]]) -> None:
        self.error, self.line, self.said, self.values, self.shared = error, line, said, values, shared


def run(lines: list[str], library: Any) -> Outcome:
    """Run a program in a library."""
    names: dict[str, Any] = {"torch": library, "F": library.nn.functional, "nn": library.nn, "inf": math.inf, "nan": math.nan, "io": io}  # fmt: skip
    exec(PRELUDE, names)
    hidden = set(names)
    error, said, number = "", "", 0
    library.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, line in enumerate(lines):  # noqa: B007
            try:
                exec(line, names)
            except Exception as raised:
                error, said = type(raised).__name__.lstrip("_"), str(raised)
                break
        found = {n: v for n, v in names.items() if n not in hidden and not n.startswith("__")}
        values = {n: told(v, library) for n, v in found.items()}
    return Outcome(error, number, said, values, sharing(found, library))


def run_wide(lines: list[str], library: Any) -> Outcome:
    """Run a program in a library, its floating-point numbers in double precision."""
    wider = []
    for line in lines:
        for narrow, wide in WIDE.items():
            line = line.replace(f"torch.{narrow}", f"torch.{wide}").replace(".float()", ".double()")
        wider.append(line)
    library.set_default_dtype(library.float64)
    try:
        return run(wider, library)
    finally:
        library.set_default_dtype(library.float32)


def program(lines: list[str]) -> str:
    """The program as a file that runs with either library."""
    used = any("grads(" in line for line in lines)
    return HEAD + (PRELUDE + "\n\n" if used else "\n") + "\n".join(lines)


def sharing(values: dict[str, Any], library: Any) -> list[list[str]]:
    """Groups of names whose tensors lie in the same memory."""
    groups: dict[int, list[str]] = {}
    for name, value in values.items():
        parts = value if isinstance(value, (tuple, list)) else [value]
        for place, part in enumerate(parts):
            if isinstance(part, library.Tensor) and _address(part):
                groups.setdefault(_address(part), []).append(name if part is value else f"{name}[{place}]")
    return sorted(group for group in groups.values() if len(group) > 1)


def _address(t: Any) -> int:
    """Where the memory of a tensor begins; 0 for tensors without any of their own."""
    try:
        return t.untyped_storage().data_ptr() if t.numel() else 0
    except RuntimeError:  # sparse and nested ones, and zeros that stand for missing gradients
        return 0


def told(value: Any, library: Any) -> Any:
    """A value as plain data: tensors as (facts, array), containers of them, and whatever else can be compared."""
    if isinstance(value, library.Tensor):
        return _tensor(value, library)
    if isinstance(value, dict):
        return {str(k): told(v, library) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *(told(v, library) for v in value)]
    if isinstance(value, (float, complex)):
        return Numbers({"dtype": type(value).__name__}, np.array(value))
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return value
    if isinstance(value, (library.dtype, library.layout, library.device)):
        return str(value).rpartition(".")[2]
    return "callable" if callable(value) else type(value).__name__


def _tensor(t: Any, library: Any) -> Any:
    facts = {"dtype": name_of(t.dtype), "requires_grad": t.requires_grad, "layout": name_of(t.layout)}
    if t.is_nested:
        return ["nested", *(told(part, library) for part in t.unbind())]
    facts["shape"] = tuple(t.shape)
    if t.device.type == "meta" and t.layout is library.strided:
        return Numbers({**facts, "stride": t.stride()}, np.zeros(0))
    if "sparse" in facts["layout"]:
        parts = [facts, *(told(part, library) for part in _components(t.detach(), library))]
        return [*parts, t.is_coalesced()] if facts["layout"] == "sparse_coo" else parts
    facts["stride"] = tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()  # others move nothing
    return Numbers(facts, array(t, library))


def _components(t: Any, library: Any) -> tuple[Any, ...]:
    layout = name_of(t.layout)
    if layout == "sparse_coo":
        return t._indices(), t._values()
    if layout in ("sparse_csr", "sparse_bsr"):
        return t.crow_indices(), t.col_indices(), t.values()
    return t.ccol_indices(), t.row_indices(), t.values()


def array(t: Any, library: Any) -> np.ndarray:
    """The values of a tensor; dtypes that NumPy lacks become wider ones that hold them."""
    t, name = t.detach(), name_of(t.dtype)
    if name == "bfloat16" or name.startswith("float8"):
        t = t.to(library.float32)
    elif name == "complex32":
        t = t.to(library.complex64)
    return np.array(t.numpy(force=True))


def name_of(thing: Any) -> str:
    return str(thing).rpartition(".")[2]

"""Programs as text, with one answer each: what PyTorch computes from it, or what it was recorded to compute.

A program's last line is an expression. Its names: `L` the library, `V` torchvision or `flambeau.vision`, `F` `nn.functional`, `np` NumPy,
`exact` for numbers that are exact in every format, `raised` for the kind of an error, `each` for several calls, `rates` for what a scheduler sets."""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import re
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau
import flambeau.vision

from .session import told

# Relative tolerance by the name of a dtype; the absolute one is as much of the largest element.
CLOSE = {"float64": 1e-6, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2, "complex64": 2e-5, "complex128": 1e-6}


def helpers(L: Any) -> dict[str, Any]:
    """The functions that a program may call."""

    def exact(*shape: int, dtype: Any = None, scale: float = 1.0) -> Any:
        """Multiples of 1/64 between -1 and 1, each place another number."""
        numbers = (L.arange(float(math.prod(shape))) * 37 % 101 - 50) / 64
        return (numbers.reshape(shape) * scale).to(dtype or L.float32)

    def raised(call: Callable[[], Any]) -> str:
        """The name of the exception that a call raises, or "none"."""
        try:
            call()
        except Exception as problem:
            return type(problem).__name__
        return "none"

    def each(*calls: Callable[[], Any]) -> list:
        """What calls return, or the names of the exceptions that they raise."""
        return [call() if (kind := raised(call)) == "none" else kind for call in calls]

    def rates(make: Callable[[Any], Any], steps: int = 12, groups: int = 2) -> Any:
        """Learning rates (and momenta) that a scheduler sets."""
        weights = [L.nn.Parameter(L.ones(1)) for _ in range(groups)]
        optimizer = L.optim.SGD(
            [{"params": [w], "lr": 0.1 * (i + 1)} for i, w in enumerate(weights)], lr=0.5, momentum=0.9
        )
        scheduler = make(optimizer)
        found = []
        for _ in range(steps):
            found.append([[g["lr"], g["momentum"]] for g in optimizer.param_groups])
            optimizer.step()
            scheduler.step()
        return found, scheduler.get_last_lr()

    def digest(value: Any) -> Any:
        """Few numbers that change if one of a large tensor's does: sums with weights; the same of each tensor in a dict or list."""
        if isinstance(value, dict):
            return {name: digest(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [digest(item) for item in value]
        flat = value.detach().reshape(-1).to(L.float64)
        weights = (L.arange(flat.numel(), dtype=L.float64) * 0.7).cos()
        return [
            str(value.dtype).rpartition(".")[2],
            list(value.shape),
            float((flat * weights).sum()),
            float((flat * flat).sum()),
        ]

    def module(path: str) -> Any:
        """A module of the library that importing the library may leave out."""
        return importlib.import_module(f"{L.__name__}.{path}")

    return {"exact": exact, "raised": raised, "each": each, "rates": rates, "digest": digest, "module": module}


def plain(value: Any) -> Any:
    """Plain data: a tensor as its dtype, shape and numbers."""
    if hasattr(value, "detach") and hasattr(value, "untyped_storage"):
        value = value.detach()
        name = str(value.dtype).rpartition(".")[2]
        if value.is_quantized:
            return [name, list(value.shape), np.asarray(value.int_repr().tolist()), value.dequantize().tolist()]
        value = value.to_dense() if "strided" not in str(value.layout) else value
        return [name, list(value.shape), np.asarray(value.resolve_conj().resolve_neg().tolist())]
    if isinstance(value, dict):
        return [[str(k), plain(v)] for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str, complex, np.ndarray)):
        return value
    return type(value).__name__ if not str(value).startswith(("torch.", "flambeau.")) else str(value).rpartition(".")[2]


def compute(library: Any, vision: Any, text: str, setup: str) -> Any:
    """Plain data that a program makes with a library."""
    names = {
        "L": library,
        "V": vision,
        "F": library.nn.functional,
        "nn": library.nn,
        "T": library,
        "np": np,
        **helpers(library),
    }
    *body, last = ast.parse(f"{setup}\n{text}").body
    assert isinstance(last, ast.Expr), f"the last line is no expression: {text}"
    library.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(ast.Module(body, []), "<program>", "exec"), names)
        return plain(eval(compile(ast.Expression(last.value), "<program>", "eval"), names))


def differ(ours: Any, theirs: Any, close: float) -> str:
    """Where two values of plain data differ, "" if nowhere."""
    if isinstance(theirs, np.ndarray) or isinstance(ours, np.ndarray):
        a, b = np.asarray(ours), np.asarray(theirs)
        if a.shape != b.shape or (b.dtype.kind in "fc") != (a.dtype.kind in "fc"):
            return f"{ours} is not {theirs}"
        if b.dtype.kind not in "fc":
            return "" if np.array_equal(a, b) else f"{ours} is not {theirs}"
        largest = np.abs(b[np.isfinite(b)]).max(initial=0)
        same = np.isclose(a, b, rtol=close, atol=close * largest, equal_nan=True)
        return "" if same.all() else f"{ours} is not {theirs}"
    if isinstance(theirs, list):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            return f"{ours} is not {theirs}"
        if len(theirs) == 3 and isinstance(theirs[0], str) and isinstance(theirs[2], np.ndarray):
            close = CLOSE.get(theirs[0], close)
        return next((found for a, b in zip(ours, theirs) if (found := differ(a, b, close))), "")
    if isinstance(theirs, (float, complex)) and isinstance(ours, (float, complex)):
        return differ(np.asarray(ours), np.asarray(theirs), close)
    return "" if type(ours) is type(theirs) and ours == theirs else f"{ours!r} is not {theirs!r}"


def short(text: str) -> str:
    """A name for a program's test: its first words, and a number that changes with the text."""
    return f"{' '.join(re.findall('[A-Za-z_0-9.]+', text)[:4])[:40]} {zlib.crc32(text.encode()):x}"


def refusals(lines: str) -> list[str]:
    """A program for each line, which is expressions between semicolons: what each of them gives, or the kind of its error."""
    return [f"each({', '.join(f'lambda: {call}' for call in line.split(';'))})" for line in lines.strip().splitlines()]


def check(text: str, setup: str = "") -> None:
    """A program computes what it computes with PyTorch."""

    def theirs() -> Any:
        vision = importlib.import_module("torchvision") if "V." in text + setup else None
        return compute(importlib.import_module("torch"), vision, text, setup)

    expected = told(f"{setup}\n{text}", theirs)
    found = differ(compute(flambeau, flambeau.vision, text, setup), expected, 1e-5)
    assert not found, f"{text}\n{found}"


def check_function(function: Callable[..., Any], *arguments: Any, close: float = 1e-5) -> None:
    """A function of a library, and of plain arguments or functions, returns what it returns with PyTorch."""

    def answer(L: Any) -> Any:
        L.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plain(function(L, *arguments))

    given = [getattr(a, "__name__", a) for a in arguments]
    expected = told(f"{inspect.getsource(function)}{given}", lambda: answer(importlib.import_module("torch")))
    found = differ(answer(flambeau), expected, close)
    assert not found, found

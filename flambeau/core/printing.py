"""The printed form of tensors, equal to PyTorch's character by character.

Nothing here knows the tensor class: a tensor comes as a NumPy view of its elements and its dtype. Only the elements that are shown are read,
so that large tensors print quickly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dtype import bool_, complex64, complex128, dtype, float64, int64
from .float8 import readable
from .print_options import PrintOptions, options

Shape = Sequence[int]


# Which elements are shown ---------------------------------------------------------------------------------------------


def _is_summarised(shape: Shape, settings: PrintOptions) -> bool:
    return math.prod(shape) > settings.threshold


def _is_cut(size: int, settings: PrintOptions) -> bool:
    return size > 2 * settings.edgeitems


def _shown_positions(size: int, settings: PrintOptions) -> np.ndarray[Any, Any]:
    if not _is_cut(size, settings):
        return np.arange(size)
    edge = settings.edgeitems
    return np.concatenate([np.arange(edge), np.arange(size - edge, size)])


def summary_index(shape: Shape) -> tuple[np.ndarray[Any, Any], ...] | None:
    """Return the positions along each dimension that a printed tensor of this shape shows; None if it shows all.

    For data that is costly to reach (on another device): gather these, then pass the result with `shape=` the full one.
    """
    if not _is_summarised(shape, options):
        return None
    return tuple(_shown_positions(size, options) for size in shape)


def _gather(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    positions = summary_index(array.shape)
    if positions is None:
        return array
    return array[np.ix_(*positions)]


# How one element looks ------------------------------------------------------------------------------------------------


@dataclass
class _Style:
    """Format of printed numbers: `width` is the column width, `write` returns the text before padding."""

    width: int
    write: Callable[[Any], str]

    def pad(self, value: Any) -> str:
        return self.write(value).rjust(self.width)


def _whole_number_text(value: float) -> str:
    text = f"{value:.0f}"
    return text + "." if math.isfinite(value) else text


def _float_style(values: np.ndarray[Any, Any], settings: PrintOptions) -> _Style:
    """Return PyTorch's choice between `1.`, `1.0000` and `1.0000e+00`, from the finite non-zero values (float64)."""
    deciding = values[np.isfinite(values) & (values != 0)]
    if not deciding.size:
        return _Style(1, _whole_number_text)
    magnitudes = np.abs(deciding)
    largest, smallest = float(magnitudes.max()), float(magnitudes.min())
    whole = bool((deciding == np.ceil(deciding)).all())
    scientific = largest > 1e8 or largest / smallest > 1000 or (not whole and smallest < 1e-4)
    if settings.sci_mode is not None:
        scientific = settings.sci_mode
    write: Callable[[float], str]
    if scientific:
        write = f"{{:.{settings.precision}e}}".format
    else:
        write = _whole_number_text if whole else f"{{:.{settings.precision}f}}".format
    # Zeros, infinities and NaN do not widen the column.
    return _Style(max(map(len, map(write, deciding.tolist()))), write)


def _complex_texts(values: np.ndarray[Any, Any], settings: PrintOptions) -> tuple[list[str], int]:
    real, imaginary = values.real.astype(np.float64), values.imag.astype(np.float64)
    real_style, imaginary_style = _float_style(real, settings), _float_style(imaginary, settings)
    texts = []
    for a, b in zip(real.tolist(), imaginary.tolist(), strict=True):
        right = imaginary_style.pad(b).lstrip()
        sign = "" if right.startswith(("-", "+")) else "+"
        texts.append(f"{real_style.pad(a)}{sign}{right}j")
    return texts, real_style.width + imaginary_style.width + 1


def _texts(shown: np.ndarray[Any, Any], kind: dtype, settings: PrintOptions) -> tuple[list[str], int]:
    """Return the text of each shown element in order, and the column width for line breaking."""
    flat = shown.reshape(-1)
    flat = readable(flat, kind)
    if kind.is_complex:
        return _complex_texts(flat, settings)
    if kind.is_floating_point:
        flat = flat.astype(np.float64)
        style = _float_style(flat, settings)
        values = flat.tolist()
    else:
        values = flat.tolist()
        style = _Style(max(map(len, map(str, values)), default=1), str)
    return [style.pad(value) for value in values], style.width


# Brackets and lines ---------------------------------------------------------------------------------------------------


def _vector(texts: list[str], cut: bool, width: int, indent: int, settings: PrintOptions) -> str:
    per_line = max(1, math.floor((settings.linewidth - indent) / (width + 2)))
    if cut:
        edge = settings.edgeitems
        texts = [*texts[:edge], " ...", *texts[edge:]]
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


class _Layout:
    """Writer of the nested brackets of one tensor, taking element texts in order."""

    def __init__(self, texts: list[str], width: int, shape: Shape, summarised: bool, settings: PrintOptions):
        self.texts, self.width, self.shape, self.settings = texts, width, shape, settings
        self.cut = [summarised and _is_cut(size, settings) for size in shape]
        self.shown = [len(_shown_positions(n, settings)) if cut else n for n, cut in zip(shape, self.cut, strict=True)]
        self.taken = 0

    def write(self, dim: int, indent: int) -> str:
        if dim == len(self.shape) - 1:
            start, self.taken = self.taken, self.taken + self.shown[dim]
            return _vector(self.texts[start : self.taken], self.cut[dim], self.width, indent, self.settings)
        rows = [self.write(dim + 1, indent + 1) for _ in range(self.shown[dim])]
        if self.cut[dim]:
            rows.insert(self.settings.edgeitems, "...")
        gap = "," + "\n" * (len(self.shape) - dim - 1) + " " * (indent + 1)
        return "[" + gap.join(rows) + "]"


def body(array: np.ndarray[Any, Any], kind: dtype, shape: Shape, indent: int) -> str:
    """Return the elements in brackets, lines after the first indented."""
    if 0 in shape:
        return "[]"
    if options.edgeitems == 0 and shape and _is_summarised(shape, options):
        return "[...]"
    shown = _gather(array) if tuple(array.shape) == tuple(shape) else array
    texts, width = _texts(shown, kind, options)
    if not shape:
        return texts[0]
    return _Layout(texts, width, shape, _is_summarised(shape, options), options).write(0, indent)


def _last_line_length(text: str) -> int:
    return len(text) - (text.rfind("\n") + 1)


def assemble(prefix: str, body: str, suffixes: list[str], indent: int, newline_first: bool = False) -> str:
    """Return `prefix` + `body` + suffixes + ")", with a line break before each suffix that would not fit."""
    pieces = [prefix + body]
    used = _last_line_length(pieces[0]) + 2  # with the separator that may follow
    for suffix in suffixes:
        if newline_first or used + len(suffix) + 2 > options.linewidth:
            pieces.append(",\n" + " " * indent + suffix)
            used = indent + len(suffix)
            newline_first = False
        else:
            pieces.append(", " + suffix)
            used += len(suffix) + 2
    return "".join(pieces) + ")"


# Whole tensors --------------------------------------------------------------------------------------------------------


def _grad_suffixes(
    requires_grad: bool, grad_fn_name: str | None, names: tuple[Any, ...] | None, tangent: str | None
) -> list[str]:
    found = []
    if grad_fn_name is not None:
        found.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        found.append("requires_grad=True")
    if names is not None:
        found.append(f"names={names}")
    if tangent is not None:
        found.append(f"tangent={tangent}")
    return found


def _is_implied(kind: dtype, default_float: dtype) -> bool:
    """Return whether the digits alone determine the dtype, so that it is not printed."""
    return kind in (default_float, complex128 if default_float is float64 else complex64, int64, bool_)


def _size_text(shape: Shape) -> str:
    return f"size={tuple(shape)}"


def tensor_repr(
    array: np.ndarray[Any, Any] | None,
    kind: dtype,
    *,
    default_float_dtype: dtype,
    requires_grad: bool = False,
    grad_fn_name: str | None = None,
    names: tuple[Any, ...] | None = None,
    tangent: str | None = None,
    device: str | None = None,
    layout: str | None = None,
    shape: Shape | None = None,
    contents: str | None = None,
    prefix: str = "tensor(",
) -> str:
    """Return the text of a strided tensor.

    array: a NumPy view of the elements (bfloat16 as uint16 bits); None for a meta tensor, with `shape` given. grad_fn_name: the autograd
    node's name, as in `AddBackward0`; it takes the place of `requires_grad=True`. names: of its dimensions. tangent: the printed forward-mode
    tangent. device: printed when given: leave it out for the default device. shape: the full shape when `array` holds only what
    `summary_index(shape)` selects. contents: replaces the printed elements. prefix: the text before the elements; lines are indented below
    the end of its last line.
    """
    if shape is None:
        if array is None:
            raise ValueError("a tensor without data needs its shape to be printed")
        shape = array.shape
    indent = _last_line_length(prefix)
    suffixes = [f"device='{device}'"] if device is not None else []
    bare = array is None or 0 in shape  # no digits to tell the shape and dtype from
    if array is None or (len(shape) != 1 if 0 in shape else options.edgeitems == 0):
        suffixes.append(_size_text(shape))
    if (kind is not default_float_dtype) if bare else not _is_implied(kind, default_float_dtype):
        suffixes.append(f"dtype={kind}")
    if layout is not None:
        suffixes.append(f"layout={layout}")
    if contents is None:
        contents = "..." if array is None else body(array, kind, shape, indent)
    suffixes += _grad_suffixes(requires_grad, grad_fn_name, names, tangent)
    return assemble(prefix, contents, suffixes, indent)


@dataclass
class Component:
    """An inner tensor of a sparse tensor: its name, its elements (None on meta) and their dtype."""

    name: str
    array: np.ndarray[Any, Any] | None
    kind: dtype
    shape: Shape | None = None  # needed when `array` is None

    def text(self, indent: int) -> str:
        shape = self.array.shape if self.array is not None else self.shape
        if shape is None:
            raise ValueError(f"the component {self.name!r} without data needs its shape to be printed")
        prefix = f"{self.name}=tensor("
        elements = "..." if self.array is None else body(self.array, self.kind, shape, indent + len(prefix))
        size = f", {_size_text(shape)}" if self.array is None or 0 in shape else ""
        return f"{prefix}{elements}{size})"


def sparse_repr(
    components: Sequence[Component],
    *,
    layout: str,
    size: Shape,
    nnz: int | None,
    default_float_dtype: dtype,
    requires_grad: bool = False,
    grad_fn_name: str | None = None,
    device: str | None = None,
    prefix: str = "tensor(",
) -> str:
    """Return the text of a sparse tensor. `components` are in printed order, values last; `nnz` is None on meta."""
    indent = _last_line_length(prefix)
    kind = components[-1].kind
    suffixes = [f"device='{device}'"] if device is not None else []
    suffixes.append(_size_text(size))
    if nnz is not None:
        suffixes.append(f"nnz={nnz}")
    if not _is_implied(kind, default_float_dtype):
        suffixes.append(f"dtype={kind}")
    suffixes.append(f"layout={layout}")
    suffixes += _grad_suffixes(requires_grad, grad_fn_name, None, None)
    body = (",\n" + " " * indent).join(component.text(indent) for component in components)
    return assemble(prefix, body, suffixes, indent, newline_first=layout == "torch.sparse_coo")


def format_tensor(tensor: Any, spec: str, plain_type: type[Any]) -> str:
    """Return `format(tensor, spec)`: a plain 0-dim tensor formats as its number, any other one only takes an empty spec."""
    if tensor.__class__ is plain_type and tensor.dim() == 0 and not tensor.is_meta:
        return format(tensor.item(), spec)
    return object.__format__(tensor, spec)

"""The page of one class or function of the reference."""

from __future__ import annotations

import enum
import functools
import inspect
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import parameters
import records
import snippets
from markup import code, inline, prose, table
from shapes import function_names, shape
from sources import source

_TOOLS = Path(__file__).parent
_NOTES = {
    "GPU": "<p>This example needs a GPU.</p>\n",
    "compiler": "<p>This example needs a C++ compiler; the tests do not run it.</p>\n",
}


def told(value: Any) -> str:
    """The docstring of something, without indentation; empty where it has none of its own. Of a value of Python's, the value."""
    if value is None or type(value) in (bool, int, float, str, bytes, set):
        return _constant(value)
    text = inspect.getdoc(value) if inspect.ismemberdescriptor(value) else getattr(value, "__doc__", None)
    if getattr(value, "__module__", "") == "builtins" and isinstance(value, type):
        return f"Another name for Python's `{value.__name__}`."
    if isinstance(value, property) and not inspect.isfunction(value.fget):
        return ""  # what an `attrgetter` or a builtin function says of itself
    if isinstance(value, type) and text is not None and text.startswith(f"{value.__name__}("):
        return ""  # what dataclasses and named tuples say of themselves
    return inspect.cleandoc(text) if isinstance(text, str) else ""


def _constant(value: Any) -> str:
    if value is None:
        return "Python's `None`: in an index, a new dimension of size 1."
    return f"`{value!r}`" if isinstance(value, (bool, int, float)) else f"A `{type(value).__name__}`."


def summary(value: Any) -> str:
    """The first sentence of a docstring, for a list."""
    first = told(value).split("\n\n")[0].replace("\n", " ")
    sentence = re.match(r".*?[.:](?= [A-Z`(]|$)", first)
    return re.sub(":$", ".", sentence[0] if sentence else first)


@functools.cache
def _differences() -> dict[str, str]:
    """What differs from PyTorch, by name, as the page about it says."""
    found, space = {}, ""
    for line in (_TOOLS.parent / "compatibility.md").read_text().splitlines():
        heading = re.match(r"### (\S+) ", line)
        space = heading[1] if heading else space
        difference = re.match(r"- `(\w+)` differs: (.*)", line)
        if difference:
            found[f"{space}.{difference[1]}"] = difference[2]
    return found


def _is_pytorchs(whole: str) -> bool:
    return whole in _pytorch_names()


@functools.cache
def _pytorch_names() -> frozenset[str]:
    lines = (_TOOLS / "pytorch-names.txt").read_text().splitlines()[1:]
    spaces = (line.partition(": ") for line in lines)
    return frozenset(f"{space}.{name.partition('(')[0]}" for space, _, names in spaces for name in names.split(" "))


def _against_pytorch(whole: str) -> str:
    if whole in _differences():
        return f"Differs: {_differences()[whole]}."
    if whole.startswith("torchvision."):
        return "torchvision's name, parameters and results; no difference is known."
    if _is_pytorchs(whole):
        return "PyTorch's name, parameters and results; no difference is known."
    return "PyTorch's documentation does not list this name."


def _methods(value: type) -> list[tuple[str, str]]:
    """The methods and properties that a class defines itself."""
    rows = []
    for name, member in sorted(vars(value).items()):
        inner = getattr(member, "__func__", member)
        if name.startswith("_") or not (inspect.isfunction(inner) or isinstance(member, property)):
            continue
        known = None if isinstance(member, property) else parameters.known(inner)
        names = [parameters.written(p, "") for p in known.parameters] if known is not None else []
        call = "" if known is None else f"({', '.join(names)})"
        rows.append((f"<code>{escape(name + call)}</code>", inline(summary(member) or _inherited(value, name))))
    return rows


@functools.cache
def _known_methods() -> dict[str, str]:
    """What methods do that many classes define anew, by "Class.method"."""
    lines = (_TOOLS / "methods.txt").read_text().splitlines()
    return {name: text for name, _, text in (line.partition(" | ") for line in lines if not line.startswith("#"))}


def _inherited(value: type, name: str) -> str:
    """What a method without words does: as the method of a base class says, or methods.txt of one of its classes."""
    bases = value.__mro__
    texts = [summary(vars(base).get(name)) for base in bases[1:-1] if name in vars(base)]
    texts += [_known_methods().get(f"{base.__name__}.{name}", "") for base in bases]
    return next(filter(None, texts), "")


def example(whole: str, value: Any) -> str:
    """The example of a function, or that of the same operator under another name; empty where there is none."""
    found = snippets.snippets().get(whole)
    if found is None and getattr(value, "op", None) is not None:
        names = function_names(value.op)
        found = next((snippets.snippets()[n] for n in names if n in snippets.snippets()), None)
    return snippets.shown(found) if found else ""


def page(space: str, name: str, value: Any, back: str) -> str:
    """The page's content; `back` is the file of the page of its namespace."""
    whole = f"{space}.{name}"
    parts = [f'<p class="path"><a href="{back}#{whole}">{space}</a></p>', *_head(space, name, value)]
    text = shape(whole, value)
    if text:
        parts.append(f"<h2>Shapes</h2>\n<p>{inline(text)}</p>")
    shown = example(whole, value)
    if shown:
        parts.append(f"<h2>Example</h2>\n{_NOTES.get(snippets.mark(whole), '')}{code(shown, 'pycon')}")
    return "\n".join([*parts, *_facts(whole, value)])


def _members(value: type[enum.Enum]) -> list[tuple[str, str]]:
    """The members of an enumeration and their values; of trained weights, where they are and what is known about them."""
    rows = []
    for name, member in value.__members__.items():
        told = getattr(member.value, "url", None) or repr(member.value)
        rows.append((f"<code>{escape(name)}</code>", f"<code>{escape(told)}</code>"))
    return rows


def _head(space: str, name: str, value: Any) -> Iterator[str]:
    whole = f"{space}.{name}"
    if isinstance(value, enum.EnumMeta):
        yield code(f"class {whole}", "python") + prose(told(value))
        yield "<h2>Members</h2>\n" + table(("member", "value"), _members(value))
        return
    receiver = "input" if getattr(value, "op", None) is not None and space != "torch.Tensor" else ""
    known = parameters.known(value, receiver) if callable(value) else None
    kinds, result = parameters.types(space, name, known) if known is not None else ({}, "")
    if isinstance(value, type):
        yield code("class " + parameters.call(whole, known, kinds, ""), "python")
    else:
        yield code(parameters.call(whole, known, kinds, result) if callable(value) else whole, "python")
    yield prose(re.split(r"\n\s*>>> ", told(value))[0] if example(whole, value) else told(value))
    rows = parameters.rows(whole, known, kinds)
    if rows:
        yield "<h2>Parameters</h2>\n" + table(("parameter", "type", "default", "meaning"), rows)
    methods = _methods(value) if isinstance(value, type) else []
    if methods:
        yield "<h2>Methods</h2>\n" + table(("method", "what it does"), methods)


def _facts(whole: str, value: Any) -> Iterator[str]:
    op = getattr(value, "op", None)
    if op is not None and hasattr(op, "aten_name"):
        rows = [(title, inline(text).replace("\n", "<br>")) for title, text in records.facts(op)]
        yield "<h2>Record</h2>\n" + table(("fact", "what the operator's record says"), rows)
    yield f"<h2>Compared with PyTorch</h2>\n<p>{inline(_against_pytorch(whole))}</p>"
    found = source(value)
    if found is not None:
        file, line, text = found
        yield f'<details class="quote"><summary>Source: {file}, line {line}</summary>{code(text, "python")}</details>'

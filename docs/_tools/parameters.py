"""The parameters of a function as a table: their types, their defaults, and what they mean (parameters.txt)."""

from __future__ import annotations

import ast
import fnmatch
import functools
import inspect
import re
from html import escape
from pathlib import Path
from typing import Any

from markup import inline

from flambeau.utils import namespace_stubs

# The words of parameters.txt for types, as annotations.
_PIECES = {
    "number": "Number", "callable": "Callable", "Tensor of ints": "Tensor", "Tensor of bools": "Tensor", "ints": "Sequence[int]",
    "tuple": "tuple[int, ...]", "object": "Any", "class": "type", "sequence of str": "Sequence[str]", "Tensors": "Sequence[Tensor]",
}  # fmt: skip
# The namespaces for which parameters.txt was written: elsewhere a name may mean something else.
_WRITTEN_FOR = re.compile(
    r"torch(\.(nn|optim|linalg|fft|special|autograd|func|Tensor|nn\.(functional|init|utils)|optim\.lr_scheduler))?\.\w+"
)
_STUB_WORDS = {"_Ints": "int | Sequence[int]", "_DeviceLike": "device | str | int", "_Number": "Number"}


@functools.cache
def _lines() -> tuple[list[tuple[str, str, str, str]], dict[str, tuple[str, str]]]:
    """Meanings for some functions, (pattern, name, type, meaning), and those for all, by name."""
    some, everywhere = [], {}
    for line in (Path(__file__).parent / "parameters.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            who, kind, meaning = (part.strip() for part in line.split("|"))
            pattern, _, name = who.rpartition(": ")
            if pattern:
                some.append((pattern, name, kind, meaning))
            else:
                everywhere[name] = (kind, meaning)
    return some, everywhere


def meaning(whole: str, name: str, kind: str = "") -> tuple[str, str]:
    """The usual type of a parameter of the function with this name, and what it means; empty where nothing is known.

    `kind` is the type that its signature says: lines for all functions hold elsewhere than in the namespaces for which they were written only
    if the types agree, and their type, a habit of those namespaces, is left out."""
    some, everywhere = _lines()
    for pattern, own, usual, text in some:
        if fnmatch.fnmatchcase(name, own) and fnmatch.fnmatchcase(whole, pattern):
            return usual, text
    usual, text = everywhere.get(name, ("", ""))
    if _WRITTEN_FOR.fullmatch(whole):
        return usual, text
    return ("", text) if not usual or not kind or _words(usual) & _words(kind) else ("", "")


def _words(kind: str) -> set[str]:
    """The names of types in a type, in either notation."""
    told = {word.removesuffix("s") for word in re.findall(r"[a-z]+", kind.lower())}
    return told | ({"int", "float"} if "number" in told else set()) - {"none", "of", "or"}


@functools.cache
def _stub(space: str) -> dict[str, ast.FunctionDef]:
    """The functions of a namespace as its stub has them."""
    namespace = space.removeprefix("torch").removeprefix(".")
    if space != "torch" and namespace not in namespace_stubs.NAMESPACES:
        return {}
    tree = ast.parse(namespace_stubs.path_of(namespace).read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _stub_type(node: ast.expr | None) -> str:
    told = ast.unparse(node) if node is not None else "Any"
    told = re.sub(r"\b_\w+", lambda m: _STUB_WORDS.get(m[0], m[0][1:]), told)
    return "" if told == "Any" else told


def _own_type(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    told = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    told = told or getattr(annotation, "__name__", str(annotation))
    return "" if told in ("Any", "object") else re.sub(r"\b(flambeau|typing|collections\.abc)\.|\b_(?=\w)", "", told)


def _type_of_default(p: inspect.Parameter) -> str:
    """What a default tells about the type: one of "sum" or True leaves nothing else; a number could be a tensor, too."""
    return type(p.default).__name__ if isinstance(p.default, (bool, str)) else ""


class Known:
    """What a function or class takes, and what it returns; `self` is left out, or called as `receiver` says."""

    def __init__(self, found: inspect.Signature, receiver: str) -> None:
        given = [p.replace(name=receiver or "self") if p.name == "self" else p for p in found.parameters.values()]
        self.parameters = [p for p in given if p.name != "self"]
        self.result = _own_type(found.return_annotation)


def known(value: Any, receiver: str = "") -> Known | None:
    """The signature of a function or class; None where Python does not know it."""
    try:
        return Known(inspect.signature(value), receiver)
    except (TypeError, ValueError):
        return None


def types(space: str, name: str, known: Known) -> tuple[dict[str, str], str]:
    """The type of each parameter and of the result: from the stub, or as the function is annotated."""
    stub = _stub(space).get(name)
    found = {p.name: _own_type(p.annotation) or _type_of_default(p) for p in known.parameters}
    result = known.result
    if stub is not None:
        given = stub.args
        for a in (*given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))):
            if a.arg in found:
                found[a.arg] = _stub_type(a.annotation) or found[a.arg]
        result = _stub_type(stub.returns) or result
    return {name: _plain(kind) for name, kind in found.items()}, _plain(result)


def _plain(kind: str) -> str:
    """A type without what says nothing to a reader: `Callable[..., Any]` is a `Callable`."""
    return re.sub(r"\bFunction\b", "Callable", re.sub(r"\[(?:\.\.\., Any|Any, \.\.\.|Any, Any|Any)\]", "", kind))


def _annotation(usual: str, p: inspect.Parameter) -> str:
    """The usual type of a parameter, a few words, in the form that signatures have."""
    found = []
    for piece in re.split(r", | or ", usual) if usual else []:
        many = re.fullmatch(r"(tuple|list|sequence) of (\w+?)s", piece)
        inner = (
            f"{many[1]}[{many[2]}{', ...' if many[1] == 'tuple' else ''}]".replace("sequence[", "Sequence[")
            if many
            else piece
        )
        found.append(_PIECES.get(piece, inner))
    return " | ".join([*found, "None"] if found and p.default is None else found)


def _default(p: inspect.Parameter) -> str:
    told = re.sub(r" at 0x\w+", "", repr(p.default))
    return re.sub(r"<(?:function|class) '?([\w.<>]+)'?>", r"\1", told)


def written(p: inspect.Parameter, kind: str) -> str:
    """One parameter in a signature."""
    star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    default = "" if p.default is p.empty else (" = " if kind else "=") + _default(p)
    return star + p.name + (f": {kind}" if kind else "") + default


def call(whole: str, known: Known | None, kinds: dict[str, str], result: str) -> str:
    """The signature with types, in one line or with a line for each parameter."""
    if known is None:
        return f"{whole}(...)"
    parts, starred = [], False
    for p in known.parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        parts.append(written(p, kinds[p.name] or _annotation(meaning(whole, p.name)[0], p)))
    ending = f" -> {result}" if result else ""
    line = f"{whole}({', '.join(parts)}){ending}"
    return line if len(line) <= 90 else f"{whole}(\n" + "".join(f"    {part},\n" for part in parts) + f"){ending}"


def rows(whole: str, known: Known | None, kinds: dict[str, str]) -> list[tuple[str, str, str, str]]:
    """The table of a function's parameters: name, type, default, meaning, as HTML."""
    found = []
    for p in known.parameters if known is not None else ():
        if not p.name.startswith("_"):
            usual, text = meaning(whole, p.name, kinds[p.name])
            star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
            default = "" if p.default is p.empty else f"<code>{escape(_default(p))}</code>"
            kind = kinds[p.name].replace(" | None", ", None").replace("|", "or") or usual
            found.append((f"<code>{star}{p.name}</code>", escape(kind), default, inline(text)))
    return found

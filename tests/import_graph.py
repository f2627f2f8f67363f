"""Which module of the library imports which: read from the source, without importing anything.

A *room* is what stands directly under `flambeau/`, a package or a single module, each package of `APART`, and the root package. `tests.structure` counts with this, and
`test_layers` checks the order of the rooms."""

from __future__ import annotations

import ast
import functools
import gc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1] / "flambeau"
PACKAGE = "flambeau"
# Packages that stand in a folder for the reader's sake and on another floor than the rest of it.
APART = ("backends.nvidia.operators", "compat.as_torch", "compat.private")


@dataclass(frozen=True)
class Import:
    """One imported name: where, what, and whether a function imports it when called."""

    path: Path
    line: int
    target: str  # the full name of what is imported, with the name taken from it
    inside: bool
    for_types: bool  # under `if TYPE_CHECKING`

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT.parent)}:{self.line} imports {self.target}"


@functools.cache
def sources() -> dict[Path, str]:
    """The text of every Python file of the library, by path."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of every file. The garbage collector pauses: it would look through all of them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return {path: ast.parse(text) for path, text in sources().items()}
    finally:
        if was_on:
            gc.enable()


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """The calls and functions of a file, at any depth."""
    return [node for node in ast.walk(trees()[path]) if isinstance(node, (ast.Call, ast.FunctionDef))]


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _walk(node: ast.AST, inside: bool, for_types: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.expr, ast.arguments)):
            continue
        deeper = inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield child, deeper, for_types
        if _is_type_checking(child):
            for statement in child.body:  # type: ignore[attr-defined]
                yield statement, deeper, True
            for statement in child.orelse:  # type: ignore[attr-defined]
                yield from _walk(statement, deeper, for_types)
        else:
            yield from _walk(child, deeper, for_types)


@functools.cache
def imports(path: Path) -> list[Import]:
    """Everything that a file imports, at its top and in its functions."""
    package = (PACKAGE, *path.relative_to(ROOT).parent.parts)
    found = []
    for node, inside, for_types in _walk(trees()[path], False, False):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = [*base, *(node.module.split(".") if node.module else [])]
            targets = [".".join([*start, alias.name]) for alias in node.names]
        else:
            continue
        found += [Import(path, node.lineno, target, inside, for_types) for target in targets]
    return found


def is_module(target: str) -> bool:
    """Whether an imported name is a module or a package of the library."""
    place = ROOT.joinpath(*target.split(".")[1:])
    return target.startswith(f"{PACKAGE}.") and (place.with_suffix(".py").exists() or (place / "__init__.py").exists())


@functools.cache
def rooms() -> frozenset[str]:
    """Names of the packages and modules directly under the library's root."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    modules = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__"}
    return frozenset({*packages, *modules, *APART})


def _room_named(parts: tuple[str, ...]) -> str:
    """The room of a module whose name under the root has these parts; the root package if it is none."""
    name = ".".join(parts)
    for apart in APART:
        if f"{name}.".startswith(f"{apart}."):
            return apart
    return parts[0] if parts and parts[0] in rooms() else PACKAGE


def room_of(path: Path) -> str:
    """The room a file belongs to."""
    return _room_named(path.relative_to(ROOT).with_suffix("").parts)


def target_room(target: str) -> str | None:
    """The room that an imported name belongs to; None outside the library."""
    parts = target.split(".")
    return _room_named(tuple(parts[1:])) if parts[0] == PACKAGE else None


@functools.cache
def edges() -> dict[str, dict[str, list[Import]]]:
    """The rooms that each room imports, with the imports; those for type checkers alone do not count."""
    graph: dict[str, dict[str, list[Import]]] = {room: {} for room in sorted({*rooms(), PACKAGE})}
    for path in sources():
        room = room_of(path)
        for each in imports(path) if path.name != "__main__.py" else ():  # a program: it may use anything
            other = target_room(each.target)
            if other is not None and other != room and not each.for_types:
                graph[room].setdefault(other, []).append(each)
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Sets of at least two nodes each of which is reached from every other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        open_ = [start]
        while open_:
            new = graph.get(open_.pop(), set()) - seen
            seen |= new
            open_ += new
        return seen

    from_each = {node: reached(node) for node in graph}
    groups = {
        tuple(sorted(other for other in from_each[node] if node in from_each.get(other, ()))) for node in from_each
    }
    return sorted(list(group) for group in groups if len(group) > 1)

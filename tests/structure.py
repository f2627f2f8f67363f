"""How the library is built, in numbers that may only shrink.

    python -m tests.structure                 the counts, beside the values that they may not exceed
    python -m tests.structure --list NAME     the places behind one count
    python -m tests.structure --write         lower the values to today's; refuses to raise one

The values are in `structure.json`; `test_structure.py` compares with them."""

from __future__ import annotations

import argparse
import ast
import collections
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from flambeau.core.naming import LATE
from tests import import_graph
from tests.import_graph import ROOT, imports, is_module, nodes, sources, trees

LIMITS = Path(__file__).with_suffix(".json")
LONGEST = 500
SHORTEST = 12
# Packages that are not needed to import the library: a function that uses one imports it when called.
OPTIONAL = {
    "cryptography", "fsspec", "matplotlib", "ml_dtypes", "mpi4py", "nvtx", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "pdb", "PIL", "pydot", "pynvml",
    "tabulate", "uvloop", "yaml", "zstandard",
}  # fmt: skip
_LOADERS = {"import_module", "load", "__import__"}
_FROM_TABLE = {"above", "late"}  # which import what stands in the table `LATE` of `core/naming.py`
# Files that import by name because that is what they are for: the one door of late imports, and the table of former names.
_DOORS = {"flambeau/core/naming.py", "flambeau/compat/former_names.py"}
# Not part of the package: a file that Python runs at its start, before anything of the library can be imported.
_OUTSIDE = "flambeau/compat/as_torch/startup/"
_CONTAINERS = {"dict", "list", "set", "defaultdict", "OrderedDict", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet"}  # fmt: skip

Measure = Callable[[], list[str]]
MEASURES: dict[str, Measure] = {}


def measure(name: str) -> Callable[[Measure], Measure]:
    """Decorator: make a function that lists places a count under this name."""

    def add(function: Measure) -> Measure:
        MEASURES[name] = function
        return function

    return add


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT.parent))


def _matching(pattern: str) -> list[str]:
    found = re.compile(pattern)
    return [
        f"{_short(path)}:{number}"
        for path, text in sources().items()
        for number, line in enumerate(text.split("\n"), 1)
        if found.search(line)
    ]


def _files_with(pattern: str) -> list[str]:
    found = re.compile(pattern)
    return [_short(path) for path, text in sources().items() if found.search(text)]


def _length(text: str) -> int:
    return text.count("\n")


@measure("lines")
def _lines() -> list[str]:
    """One entry a line is too many to list: the caller sums these up by file."""
    return [f"{_length(text)} {_short(path)}" for path, text in sources().items()]


@measure(f"files of more than {LONGEST} lines")
def _long_files() -> list[str]:
    return [f"{_short(path)}: {_length(text)}" for path, text in sources().items() if _length(text) > LONGEST]


@measure(f"files of at most {SHORTEST} lines")
def _short_files() -> list[str]:
    return [_short(path) for path, text in sources().items() if _length(text) <= SHORTEST]


@measure("rooms in import cycles")
def _rooms_in_cycles() -> list[str]:
    graph = {room: set(others) for room, others in import_graph.edges().items()}
    return [f"{room} ({i})" for i, group in enumerate(import_graph.cycles(graph), 1) for room in group]


@measure("imports inside functions")
def _inner_imports() -> list[str]:
    return sorted(
        {
            f"{_short(each.path)}:{each.line}"
            for path in sources()
            for each in imports(path)
            if each.inside and each.target.partition(".")[0] not in OPTIONAL and not _short(path).startswith(_OUTSIDE)
        }
    )


@measure("own modules loaded by string")
def _loaded_by_string() -> list[str]:
    """Places that import a module of the library by a text; texts of the one table of late names do not count."""
    found = []
    for path in sources():
        for node in nodes(path) if _short(path) not in _DOORS else ():
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            argument = ast.unparse(node.args[0])
            own = name in _LOADERS and re.search(r"flambeau|PACKAGE|__name__|__package__", argument)
            unknown = name in _FROM_TABLE and isinstance(node.args[0], ast.Constant) and node.args[0].value not in LATE
            if own or unknown:
                found.append(f"{_short(path)}:{node.lineno} {name}({argument})")
    return found


def _unused_modules(path: Path) -> Iterator[str]:
    """Modules of the library that are imported at the top of a file in which nothing reads or exports them."""
    by_line = collections.defaultdict(list)
    for each in imports(path):
        if not each.inside and not each.for_types:
            by_line[each.line].append(each.target)
    for node in trees()[path].body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or not all(map(is_module, by_line[node.lineno])):
            continue
        bound = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        public = path.name == "__init__.py" and not all(name.startswith("_") for name in bound)
        again = any(alias.asname == alias.name for alias in node.names)
        after = sources()[path].split("\n", node.end_lineno or 0)[-1]
        if not (public or again or any(re.search(rf"(?<![\w.]){name}\b", after) for name in bound)):
            yield f"{_short(path)}:{node.lineno} {', '.join(bound)}"


@measure("imports for their effect or order")
def _imports_for_order() -> list[str]:
    return [each for path in sources() for each in _unused_modules(path)]


@measure("type: ignore")
def _ignores() -> list[str]:
    return _matching(r"#\s*type:\s*ignore")


@measure("silenced lint rules")
def _silenced() -> list[str]:
    return _matching(r"#\s*(ruff:\s*)?noqa")


def _is_empty_container(value: ast.expr | None) -> bool:
    if isinstance(value, (ast.Dict, ast.List)):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    if not isinstance(value, ast.Call):
        return False
    name = getattr(value.func, "attr", None) or getattr(value.func, "id", None)
    return name in _CONTAINERS and all(isinstance(each, (ast.Name, ast.Lambda)) for each in value.args[:1])


@measure("module-level containers to be filled")
def _containers() -> list[str]:
    return [
        f"{_short(path)}:{node.lineno}"
        for path in sources()
        for node in trees()[path].body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_empty_container(node.value)
    ]


@measure("functions written twice")
def _same_functions() -> list[str]:
    """Functions of at least five lines whose code, but for docstring and name, stands elsewhere again."""
    places = collections.defaultdict(list)
    for path, text in sources().items():
        lines = text.split("\n")
        for node in nodes(path):
            if not isinstance(node, ast.FunctionDef) or (node.end_lineno or 0) - node.lineno < 5:
                continue
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            if len(body) > 2:
                code = "\n".join(lines[body[0].lineno - 1 : node.end_lineno])
                places[ast.unparse(node.args) + textwrap.dedent(code)].append(
                    f"{_short(path)}:{node.lineno} {node.name}"
                )
    return [" = ".join(each) for each in places.values() for _ in each[1:]]


@measure("files that read addresses of storages")
def _raw_addresses() -> list[str]:
    return _files_with(r"_storage\.ptr \+ ")


@measure("files that name tanh")
def _tanh() -> list[str]:
    return _files_with(r"\btanh\b")


@measure("files that name batch_norm")
def _batch_norm() -> list[str]:
    return _files_with(r"\bbatch_norm\b")


@measure("docstrings that begin otherwise")
def _docstrings() -> list[str]:
    """Docstrings that begin neither with a verb nor with the noun returned, as far as the first word tells."""
    begins = re.compile(
        r"(What|Whether|The same|One|How|Where|Which|Who|Whoever|Why|As|This|It|Its|Those|These|Everything|Nothing|Something|Some|Several"
        r"|Another|Without|There|If|When|While|Like|Stands|Go|Once|Not|Called)\b"
    )
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        f"{_short(path)}:{node.body[0].lineno}"
        for path in sources()
        for node in ast.walk(trees()[path])
        if isinstance(node, kinds) and begins.match(ast.get_docstring(node, clean=False) or "")
    ]


@measure("environment variables of our own")
def _variables() -> list[str]:
    return sorted(
        {name for text in sources().values() for name in re.findall(r"[\"'](FLAMBEAU_[A-Z_0-9]*[A-Z0-9])\b", text)}
    )


def count(name: str) -> int:
    """How many places a measure finds; for lines, their sum."""
    found = MEASURES[name]()
    return sum(int(each.partition(" ")[0]) for each in found) if name == "lines" else len(found)


def counts() -> dict[str, int]:
    """Every measure's value in the working tree."""
    return {name: count(name) for name in MEASURES}


def limits() -> dict[str, int]:
    """The values that may not be exceeded."""
    return json.loads(LIMITS.read_text()) if LIMITS.exists() else {}


def grown(now: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """A sentence for each measure that is above its limit."""
    return [
        f"{name}: {value}, at most {allowed[name]} allowed (python -m tests.structure --list {name!r})"
        for name, value in now.items()
        if value > allowed.get(name, value)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="counts of the library's structure, which may only shrink")
    parser.add_argument("--list", metavar="NAME", choices=list(MEASURES), help="print the places behind one count")
    parser.add_argument("--write", action="store_true", help="lower the values in structure.json to today's")
    options = parser.parse_args()
    if options.list:
        print(*MEASURES[options.list](), sep="\n")
        return
    now, allowed = counts(), limits()
    for name, value in now.items():
        print(f"{value:>9,}  {name:<42} {'' if name not in allowed else f'(at most {allowed[name]:,})'}")
    worse = grown(now, allowed)
    if worse:
        sys.exit("\n".join(["", "These may only shrink:", *worse]))
    if options.write:
        LIMITS.write_text(json.dumps(now, indent=2) + "\n")


if __name__ == "__main__":
    main()

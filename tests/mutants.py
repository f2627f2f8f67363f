"""One-token changes of the library, at random: does a test notice, without PyTorch?

python -m tests.mutants --count 60 --seed 7            anywhere in flambeau/, but for what needs a GPU
python -m tests.mutants --count 20 flambeau/ops        in one room
python -m tests.mutants --planted                      the changes listed in PLANTED
python -m tests.mutants --map MAP                      the same, cheaply: by a map of lines to tests (python -m tests.line_map)
python -m tests.mutants --again OUTPUT --tests FILE    what survived in an earlier run, of which the output was kept; with these tests

Each change is made in a copy of the tree. With a map, the tests that run the changed line run: a few of different kinds, then many.
For a line that no test of the map runs (a module's own lines, a kernel that is compiled, another process), the tests of lines that name
what was changed run, and for a line that few run the smoke selection. Then, and without a map, those run whose words are the words of what was changed; without a map also the room's
and the smoke selection. The first failure counts if the same test passes on the unchanged copy. What survives is printed as a line to
look at. A person who finds that a change alters nothing that can be asked for writes it into EQUIVALENT with the reason: these are
counted apart, and named.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import functools
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from tests import line_map
from tests.equivalent_mutants import reason
from tests.line_map import LineMap

ROOT = Path(__file__).parents[1]
WITHOUT_GPU = ("flambeau/backends/nvidia", "flambeau/cuda", "flambeau/include")
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
# Rooms whose tests are in a folder of another name.
ROOMS = {"ao": "quantization", "compat": "posing", "expr": "kernels", "horovod": "distributed", "onnx": "onnx_files"}
# (file, line as it stands, the token, what it becomes): the first eight passed once, when only the real PyTorch could notice.
PLANTED = (
    ("ops/pointwise/activation.py", "slope = _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * input * input)", "3", "2"),
    (
        "ops/nn/element_loss.py",
        "return f.where(z <= delta, 0.5 * z * z, delta * (z - 0.5 * delta))",
        "0.5 * delta",
        "0.4 * delta",
    ),
    (
        "nn/modules/normalization.py",
        "return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)",
        "self.eps",
        "1e-5",
    ),
    ("optim/lr_scheduler/cyclic.py", "return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)", "2.0", "2.5"),
    ("func/rules/layers.py", "return _affine(function(input, None, None, inner, eps), weight, bias)", "bias", "None"),
    ("vision/transforms/kernels/geometry.py", "return image.flip(-1)", "1", "2"),
    ("vision/ops/boxes.py", "return common, area1[..., None] + area2[..., None, :] - common", "- common", "+ common"),
    ("ops/nn/margin_loss.py", "near, far = 1 - cosine, (cosine - margin).clamp_min(0)", "- margin", "+ margin"),
    (
        "ops/pointwise/activation.py",
        "return 0.5 * input * (1 + f.tanh(_SQRT_2_OVER_PI * (input + 0.044715",
        "0.5",
        "0.6",
    ),
    ("ops/nn/element_loss.py", "share = f.where(f.abs_(d) < beta, d / beta, f.sign(d)) * g", "d / beta", "d * beta"),
    ("optim/adam.py", "exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad * grad", "1 - beta2", "1 - beta1"),
    ("kernels/library/group_norm.py", "r = rsqrt(squares / n + eps)", "+", "-"),
    ("vision/ops/boxes.py", "return common / union - (hull - union) / hull", "- (hull", "+ (hull"),
)


@dataclass(frozen=True)
class Change:
    """`before` at a place in a file becomes `after`."""

    file: str
    start: int
    before: str
    after: str
    line: int
    owner: str
    span: tuple[int, int] = (0, 0)  # first and last line of the innermost function or of the module's statement
    is_default: bool = False  # of a parameter: tests that read signatures notice it
    outside: bool = False  # of any function: it runs while the module is imported, in whatever test does that first

    @property
    def text(self) -> str:
        """The line as it stands."""
        return source(self.file).splitlines()[self.line - 1].strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.owner or 'the module'}: {self.before} -> {self.after}"


# A line that fewer tests are known to run may be run by others: what was derived or compiled once in a process is not made again in the
# tests that follow there. For such a line the smoke selection runs, too.
FEW = 20
ASKING_RECORDS = (
    "tests/amp/test_operators.py", "tests/ops/test_registry.py", "tests/api/test_no_more_names.py", "tests/ops/test_layer_records.py",
)  # fmt: skip
# Calls whose arguments are words for people, and arguments that change no result: a cache's size, the line that a warning names, what one
# turn of a parallel loop costs (the second of `prange`), which decides how many threads share it.
WORDS = ("warn", "warn_once", "debug", "info", "print")
WITHOUT_EFFECT = ("stacklevel", "slots", "maxsize", "daemon", "cost")


class Finder(ast.NodeVisitor):
    """Collects the places of one file that may change: no annotations, texts of errors and warnings, docstrings, or sizes of caches."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.owners, self.found = file, text, [], []
        self.in_defaults = False
        self.depth = 0  # functions around a place; lambdas do not count: they stand in tables
        self.spans = [(0, 0)]
        lengths = [len(line.encode()) for line in text.splitlines(keepends=True)]
        self.lines = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        self.raw = text.encode()

    def place(self, line: int | None, column: int | None) -> int:
        return self.lines[(line or 1) - 1] + (column or 0)

    def add(self, node: ast.AST, start: int, before: str, after: str) -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(
            Change(
                self.file,
                start,
                before,
                after,
                line,
                ".".join(self.owners),
                self.spans[-1],
                self.in_defaults,
                not self.depth,
            )  # fmt: skip
        )

    def between(self, left: ast.expr, right: ast.expr, operator: ast.AST) -> None:
        """The operator between two operands."""
        swap = SWAPS.get(type(operator))
        if swap is None:
            return
        start, end = self.place(left.end_lineno, left.end_col_offset), self.place(right.lineno, right.col_offset)
        gap = self.raw[start:end].decode()
        if "#" not in gap and gap.count(swap[0]) == 1:
            self.add(left, start + len(gap[: gap.index(swap[0])].encode()), *swap)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.owners.append(node.name)
        self.spans.append((min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno or 0))
        self.in_defaults = True
        for child in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(child)
        self.in_defaults = False
        for child in node.decorator_list:
            self.visit(child)
        self.depth += 1
        for child in node.body:
            self.visit(child)
        self.depth -= 1
        self.spans.pop()
        self.owners.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.owners.append(node.name)
        for child in node.body:
            self.visit(child)
        self.owners.pop()

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        """A value outside functions belongs to the name that it gets; annotations do not count."""
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if node.value is None:
            return
        outside = len(self.spans) == 1 and isinstance(target, ast.Name)
        self.in_defaults = bool(outside and self.owners and isinstance(node, ast.AnnAssign))  # a field's, of a class
        if outside:
            self.owners.append(target.id)  # type: ignore[attr-defined]
            self.spans.append((node.lineno, node.end_lineno or 0))
        for child in (*(node.targets if isinstance(node, ast.Assign) else ()), node.value):
            self.visit(child)
        self.in_defaults = False
        if outside:
            self.spans.pop()
            self.owners.pop()

    visit_AnnAssign = visit_Assign  # type: ignore[assignment]

    def visit_Raise(self, node: ast.Raise) -> None:
        """The text of an error is not a number that anyone relies on."""

    def visit_If(self, node: ast.If) -> None:
        """What only type checkers read does not run."""
        if ast.unparse(node.test) not in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in (*WORDS, "lru_cache", "TypeVar"):
            return
        for child in (
            node.func,
            *node.args[: 1 if called == "prange" else None],
            *(k.value for k in node.keywords if k.arg not in WITHOUT_EFFECT),
        ):
            self.visit(child)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Places inside f-strings are not exact before Python 3.12."""

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not isinstance(node.left, ast.Constant) or not isinstance(node.left.value, str):
            self.between(node.left, node.right, node.op)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:]):
            self.between(left, right, node.op)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            self.between(left, right, operator)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start = self.place(node.lineno, node.col_offset)
        if isinstance(node.op, ast.Not):
            self.add(node, start, "not ", "")
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self.add(node, start, "-", "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value, start = node.value, self.place(node.lineno, node.col_offset)
        text = self.raw[start : self.place(node.end_lineno, node.end_col_offset)].decode()
        if isinstance(value, bool):
            self.add(node, start, text, str(not value))
        elif isinstance(value, int):
            self.add(node, start, text, str(value + 1))
        elif isinstance(value, float):
            self.add(node, start, text, repr(value * 1.5 if value else 0.5))


@functools.cache
def source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@functools.cache
def changes(file: str) -> tuple[Change, ...]:
    finder = Finder(file, source(file))
    finder.visit(ast.parse(source(file)))
    return tuple(finder.found)


def drawn(count: int, seed: int, rooms: list[str]) -> list[Change]:
    """Changes at random, every place as likely as any other."""
    files = sorted(
        str(f.relative_to(ROOT))
        for room in rooms
        for f in ((ROOT / room).rglob("*.py") if (ROOT / room).is_dir() else [ROOT / room])
    )
    every = [change for file in files if not file.startswith(WITHOUT_GPU) for change in changes(file)]
    print(f"{len(every):,} places in {len(files)} files; seed {seed}")
    return random.Random(seed).sample(every, count)


def again(output: Path) -> list[Change]:
    """The changes that survived in an earlier run."""
    found = []
    for line in output.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"survives: (\S+?):(\d+) in .*?: (.+) -> (.*)", line):
            file, number, before, after = match.groups()
            same = [
                c
                for c in changes(file)
                if (c.line, c.before.strip(), c.after.strip()) == (int(number), before.strip(), after.strip())
            ]
            found += same[:1]
    return found


def planted() -> list[Change]:
    found = []
    for file, line, before, after in PLANTED:
        text = (ROOT / "flambeau" / file).read_text(encoding="utf-8")
        assert text.count(line) == 1, f"{file} has no longer one line: {line}"
        start = text.index(line)
        place = start + (line.rindex(before) if line.endswith(before + ")") else line.index(before))
        owners = re.findall(r"^ *(?:def|class) (\w+)", text[:start], re.MULTILINE)
        number = text[:start].count("\n") + 1
        found.append(Change(f"flambeau/{file}", len(text[:place].encode()), before, after, number, owners[-1]))
    return found


class Copy:
    """A copy of the tree in which one change at a time is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sound: set[str] = set()  # tests that were seen to pass on the unchanged copy
        for name in ("flambeau", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder / name)
        for name in ("examples", "docs", "benchmarks"):  # which tests read
            (folder / name).symlink_to(ROOT / name)
        # Bytecode that is believed by the hash of its source, so that a changed file alone is compiled in each run.
        compileall.compile_dir(folder / "flambeau", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)

    def passes(self, test: str, limit: float) -> bool:
        """Whether a test passes on the unchanged copy; asked once."""
        if test not in self.sound and self.pytest([test], limit)[0] == 0:
            self.sound.add(test)
        return test in self.sound

    def is_slow(self, arguments: list[str], limit: float) -> bool:
        """Whether tests take most of the time on the unchanged copy, too, where no kernel is kept: a changed compiler finds none."""
        with tempfile.TemporaryDirectory() as kernels:
            return self.pytest(arguments, limit / 2, kernels)[0] == 124

    def pytest(self, arguments: list[str], limit: float, kernels: str = "") -> tuple[int, str]:
        """(exit status, output) of pytest in the copy; 124 where it takes too long. `kernels`: another folder to keep kernels in."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            *line_map.WITHOUT_PYTORCH,
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            *arguments,
        ]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(self.folder)}
        if kernels:
            environment["FLAMBEAU_CACHE_DIR"] = kernels
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            return 124, output
        return process.returncode, output

    def caught(self, change: Change, limit: float, known: LineMap | None = None, tests: list[str] | None = None) -> str:
        """The test that notices a change, or "" if none does. `tests`: these alone."""
        file = self.folder / change.file
        original = file.read_bytes()
        end = change.start + len(change.before.encode())
        assert original[change.start : end] == change.before.encode(), change
        changed = original[: change.start] + change.after.encode() + original[end:]
        refused: list[str] = []
        if tests:
            chosen: Iterator[list[str]] = iter([tests])
        else:
            chosen = selections(change) if known is None else mapped(change, known)
        for selection in chosen:
            while True:
                file.write_bytes(changed)
                try:
                    status, output = self.pytest([*selection, *(f"--deselect={test}" for test in refused)], limit)
                finally:
                    file.write_bytes(original)
                if status in (0, 5):
                    break
                if status == 124:
                    if not self.is_slow(selection, limit):
                        return "(takes too long)"
                    selection = selection[: len(selection) // 2]
                    if not selection:
                        break
                    continue
                failed = re.findall(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", output, re.MULTILINE)
                absent = re.findall(r"^ERROR: (?:not found:|found no collectors for) (.+)$", output, re.MULTILINE)
                if (
                    failed and failed[0] in refused
                ):  # its name cannot be given back to pytest, or the file not be imported in a copy
                    whole = failed[0].partition("::")[0]
                    if self.pytest([whole], limit)[0] == 0:
                        return whole
                    selection = [test for test in selection if test.partition("::")[0] != whole]
                    if not selection:
                        break
                    continue
                if absent:  # a map of other tests than these
                    found = [
                        test for test in selection if not any(name.endswith(test.partition("[")[0]) for name in absent)
                    ]
                    selection = found if len(found) < len(selection) else []
                    if not selection:
                        break
                    continue
                if not failed:
                    if self.pytest(selection, limit)[0] not in (0, 5):
                        print(f"    the unchanged copy ends with an error, too: {output[-300:]}")
                        break
                    return "(pytest does not start)"
                if self.passes(failed[0], limit):
                    return failed[0]
                refused.append(failed[0])
        return ""


@functools.cache
def pieces(file: Path) -> frozenset[str]:
    """The parts of a file's names: "huber" of huber_loss and of _huber_grad."""
    return frozenset(
        piece.lower() for piece in re.findall(r"[A-Za-z][a-z0-9]+|[A-Z0-9]+", file.read_text(encoding="utf-8"))
    )


@functools.cache
def test_files() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "tests").rglob("test_*.py")))


def rarity(piece: str) -> float:
    """How much a word says about what a test is for: nothing if half of the files have it, or none."""
    count = sum(piece in pieces(file) for file in test_files())
    return max(math.log(len(test_files()) / (2 * count)), 0) if count else 0


def callers(owner: str, package: Path) -> set[str]:
    """The functions beside a function that use it, by name: what a test calls is often not what was changed."""
    found: set[str] = set()
    for file in package.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for match in re.finditer(rf"\b{re.escape(owner)}\b", text):
            names = re.findall(r"^(?:def|class) (\w+)|^(\w+) = ", text[: match.start()], re.MULTILINE)
            found.update(name for pair in names[-1:] for name in pair if name)
    return found


@functools.cache
def library() -> tuple[str, ...]:
    return tuple(sorted(str(file.relative_to(ROOT)) for file in (ROOT / "flambeau").rglob("*.py")))


def naming(name: str, near: str) -> list[tuple[str, int]]:
    """The lines that name something: of the file itself if there are any, else of its folder, else of the library."""
    for files in ((near,), [f for f in library() if Path(f).parent == Path(near).parent], library()):
        found = []
        for file in files:
            text = source(file)
            for match in (
                re.finditer(rf"(?<!def )(?<!class )\b{re.escape(name)}\b(?! = )", text) if name in text else ()
            ):
                found.append((file, text.count("\n", 0, match.start()) + 1))
        if found:
            return found
    return []


def related(change: Change, known: LineMap) -> list[str]:
    """Lines of the map that are near a line which is not in it: of its function, else those that name it, else those that name these."""
    lines = [f"{change.file}:{line}" for line in range(change.span[0], change.span[1] + 1)]
    if any(line in known.lines for line in lines) and not change.outside:
        return lines
    asked = {(change.owner.rpartition(".")[2] or Path(change.file).stem, change.file)}
    for _ in range(3):
        places = [place for name, near in sorted(asked) for place in naming(name, near)]
        lines = [f"{file}:{line}" for file, line in places]
        if any(line in known.lines for line in lines):
            return lines
        asked = {
            (names[-1], file)
            for file, line in places[:40]
            if (
                names := re.findall(
                    r"^(?:def |class )?(\w+)(?= = |\(|:)", "\n".join(source(file).splitlines()[:line]), re.MULTILINE
                )
            )
        }
    return []


def mapped(change: Change, known: LineMap) -> Iterator[list[str]]:
    """Tests to run by a map: a few of the line's, many, and those that share its words if they may run it where no map sees it."""
    lines = [f"{change.file}:{change.line}"]
    is_known = lines[0] in known.lines and not change.outside
    if not is_known:
        lines = related(change, known) or lines
    first = known.chosen(lines)
    if first:
        yield first
        if more := [test for test in known.chosen(lines, 150, 60.0) if test not in first]:
            yield more
        if tables := known.tables(lines):
            yield tables
    if change.is_default:
        yield ["tests/api/test_defaults.py"]
    room = change.file.split("/")[1]
    folder = f"tests/{ROOMS.get(room, room)}/"
    if not any(test.startswith(folder) for test in known.tests):  # the map was made without the room's tests
        yield from selections(change)
    elif not is_known and room == "ops":  # a declaration runs while it is imported, and tests of all records notice it
        yield list(ASKING_RECORDS)
        yield next(selections(change))
    elif not is_known or room in ("distributed", "serve", "horovod", "cpp", "multiprocessing"):
        yield next(selections(change))
    if not is_known or len(known.lines[lines[0]]) < FEW:
        yield ["-m", "smoke", "tests"]


def selections(change: Change) -> Iterator[list[str]]:
    """Tests to run: first those whose words are the words of what was changed, then the room's, then the smoke selection."""
    path = Path(change.file)
    owner = change.owner.rpartition(".")[2]
    names = [
        *change.owner.split("."),
        path.stem,
        path.parent.name,
        *(sorted(callers(owner, ROOT / path.parent))[:8] if owner else ()),
    ]
    weights = {
        w: rarity(w)
        for name in names
        for w in map(str.lower, re.findall(r"[A-Za-z][a-z0-9]+|[A-Z0-9]+", name))
        if len(w) > 2
    }
    room = ROOMS.get(path.parts[1], path.parts[1])
    scored = {}
    for file in test_files():
        known = pieces(file) | set(file.stem.split("_"))
        scored[str(file.relative_to(ROOT))] = sum(v for w, v in weights.items() if w in known) + (
            2 if room in file.parts else 0
        )
    ranked = sorted((name for name, score in scored.items() if score > 2), key=lambda name: -scored[name])
    yield ranked[:4] or ["tests/test_smoke.py"]
    if ranked[4:12]:
        yield ranked[4:12]
    rest = [name for name in scored if name.startswith(f"tests/{room}/") and name not in ranked[:12]]
    if rest:
        yield rest
    yield ["-m", "smoke", "tests"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", default=["flambeau"])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run of tests")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--map", type=Path, help="what tests.line_map wrote: run the tests of the changed line")
    parser.add_argument("--again", type=Path, help="the output of an earlier run: what survived there")
    parser.add_argument("--tests", nargs="*", help="the tests to run, instead of those that are chosen for a change")
    given = parser.parse_args()
    known = LineMap.load(given.map) if given.map else None
    if given.again:
        chosen = again(given.again)
    else:
        chosen = planted() if given.planted else drawn(given.count, given.seed, given.rooms)
    survived, equivalent = [], []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder) / "flambeau")
        for number, change in enumerate(chosen, 1):
            why = reason(change.file, change.text, change.before, change.after)
            if why:
                equivalent.append(change)
                print(f"{number:3} {change}: equivalent ({why})", flush=True)
                continue
            start = time.monotonic()
            test = copy.caught(change, given.limit, known, given.tests)
            print(f"{number:3} {change}: {test or 'SURVIVES'} ({time.monotonic() - start:.0f} s)", flush=True)
            if not test:
                survived.append(change)
                print(f"    {change.text}", flush=True)
    counted = len(chosen) - len(equivalent)
    print(
        f"{counted - len(survived)} of {counted} caught ({1 - len(survived) / max(counted, 1):.0%}), {len(equivalent)} judged equivalent"
    )
    for change in survived:
        print(f"survives: {change}\n    {change.text}")
    return bool(survived and given.planted)


if __name__ == "__main__":
    raise SystemExit(main())

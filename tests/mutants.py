"""One-token changes of the library, at random: does a test notice, without PyTorch?

python -m tests.mutants --count 60 --seed 7            anywhere in flambeau/, but for what needs a GPU
python -m tests.mutants --count 20 flambeau/ops        in one room
python -m tests.mutants --planted                      the changes listed in PLANTED
python -m tests.mutants --map MAP.json flambeau/optim  only in functions that a test of the map runs (python -m tests.function_map)

Each change is made in a copy of the tree. With a map, the tests that run the changed function run, and no others. Else the tests
that name what was changed run first, then those of its room, then the smoke selection. The first failure counts if the same test
passes on the unchanged copy. What survives is printed as a line to look at: an equivalent change (an estimate, a cache's size, a
guard that cannot be false) is judged by a person.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
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
from typing import Any

from tests.function_map import quickest

ROOT = Path(__file__).parents[1]
WITHOUT_GPU = ("flambeau/backends/nvidia", "flambeau/cuda", "flambeau/include")
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
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
    first: int = 0  # the line at which the innermost function begins, its decorators included

    @property
    def key(self) -> str:
        """The function's name in a map."""
        return f"{self.file}:{self.first}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.owner or 'the module'}: {self.before} -> {self.after}"


class Finder(ast.NodeVisitor):
    """Collects the places of one file that may change: no annotations, texts of errors, or docstrings."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.owners, self.found = file, text, [], []
        self.firsts = [0]
        lengths = [len(line.encode()) for line in text.splitlines(keepends=True)]
        self.lines = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        self.raw = text.encode()

    def place(self, line: int | None, column: int | None) -> int:
        return self.lines[(line or 1) - 1] + (column or 0)

    def add(self, node: ast.AST, start: int, before: str, after: str) -> None:
        line = getattr(node, "lineno", 0)
        self.found.append(Change(self.file, start, before, after, line, ".".join(self.owners), self.firsts[-1]))

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
        for child in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(child)
        self.firsts.append(min([node.lineno, *(each.lineno for each in node.decorator_list)]))
        for child in node.body:
            self.visit(child)
        self.firsts.pop()
        self.owners.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.owners.append(node.name)
        for child in node.body:
            self.visit(child)
        self.owners.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """The text of an error is not a number that anyone relies on."""

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
def changes(file: str) -> tuple[Change, ...]:
    text = (ROOT / file).read_text(encoding="utf-8")
    finder = Finder(file, text)
    finder.visit(ast.parse(text))
    return tuple(finder.found)


def drawn(count: int, seed: int, rooms: list[str], known: dict[str, Any] | None = None) -> list[Change]:
    """Changes at random, every place as likely as any other; with a map, in functions that one of its tests runs."""
    files = sorted(
        str(f.relative_to(ROOT))
        for room in rooms
        for f in ((ROOT / room).rglob("*.py") if (ROOT / room).is_dir() else [ROOT / room])
    )
    every = [change for file in files if not file.startswith(WITHOUT_GPU) for change in changes(file)]
    every = [change for change in every if known is None or change.key in known["tests"]]
    print(f"{len(every):,} places in {len(files)} files; seed {seed}")
    return random.Random(seed).sample(every, count)


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
        for name in ("flambeau", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder / name)

    def pytest(self, arguments: list[str], limit: float) -> tuple[int, str]:
        """(exit status, output) of pytest in the copy; 124 where it takes too long."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "--answers=replay",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            *arguments,
        ]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(self.folder)}
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

    def caught(self, change: Change, limit: float, known: dict[str, Any] | None = None) -> str:
        """The test that notices a change, or "" if none does."""
        file = self.folder / change.file
        original = file.read_bytes()
        end = change.start + len(change.before.encode())
        assert original[change.start : end] == change.before.encode(), change
        changed = original[: change.start] + change.after.encode() + original[end:]
        refused: list[str] = []
        mapped = quickest(known, change.key) if known is not None else []
        for selection in ([mapped] if mapped else []) + list(selections(change) if known is None else ()):
            while True:
                file.write_bytes(changed)
                try:
                    status, output = self.pytest([*selection, *(f"--deselect={test}" for test in refused)], limit)
                finally:
                    file.write_bytes(original)
                if status in (0, 5):
                    break
                if status == 124:
                    return "(takes too long)"
                failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
                if not failed:
                    return "(pytest does not start)"
                if self.pytest(failed[:1], limit)[0] == 0:
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
    room = path.parts[1]
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
    parser.add_argument(
        "--map", type=Path, help="what tests.function_map wrote: run the tests of the changed function only"
    )
    given = parser.parse_args()
    known = json.loads(given.map.read_text()) if given.map else None
    chosen = planted() if given.planted else drawn(given.count, given.seed, given.rooms, known)
    survived = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder) / "flambeau")
        for number, change in enumerate(chosen, 1):
            start = time.monotonic()
            test = copy.caught(change, given.limit, known)
            print(f"{number:3} {change}: {test or 'SURVIVES'} ({time.monotonic() - start:.0f} s)", flush=True)
            if not test:
                survived.append(change)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} caught ({1 - len(survived) / len(chosen):.0%})")
    for change in survived:
        text = (ROOT / change.file).read_text(encoding="utf-8").splitlines()[change.line - 1].strip()
        print(f"survives: {change}\n    {text}")
    return bool(survived and given.planted)


if __name__ == "__main__":
    raise SystemExit(main())

"""Calls of `torch.ops.aten` with random arguments, each tensor's memory beside pages that cannot be read: what reads or writes elsewhere, crashes.

    python -m tests.guarded                          every overload, 30 calls each (an hour)
    python -m tests.guarded --names "pool|norm"      some of them
    python -m tests.guarded --seeds 100 130          other calls

An overload runs in a process of its own. Printed are the calls that ended it (a native crash, or no end after 25 seconds) and exceptions
that only a mistake inside the library raises; other exceptions are answers to arguments that do not fit."""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import mmap
import os
import random
import re
import resource
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau.core import allocator, storage
from flambeau.ops.machinery.schema_table import aten_names, overloads_of, schema_of

PAGE = mmap.PAGESIZE
SHAPES = [
    (), (1,), (2,), (3,), (64,), (2, 3), (4, 4), (3, 70), (1, 2, 3), (2, 3, 40), (1, 2, 5, 5), (2, 4, 3, 3), (1, 2, 9, 9), (1, 2, 3, 3, 3),
    (0,), (2, 0, 3),
]  # fmt: skip
POSITIONS = re.compile("ind|target|offset|length|place|label|mask|bag|size|max_c|repeats|crow|col|row")
# What changes the process, or needs files or other devices.
LEFT_OUT = re.compile("^(backward|set_|save|_sleep)$|seed|^_?resize|^_?sparse_|^_fused|^fbgemm|^quantiz")
MISTAKES = ("KernelError", "AssertionError", "UnboundLocalError", "ZeroDivisionError", "AttributeError", "NameError")


class _NoBlocks(dict):
    """Free blocks of an allocator that never has one: what is returned is not given out again."""

    def __missing__(self, size: int) -> list[int]:
        return []


def guard_memory() -> None:
    """Give every new storage of this process memory that ends at a page which cannot be read, and begins behind one.

    Storages are rounded up to 64 bytes: what is read in between is not seen."""
    protect = allocator._libc.mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def allocate(size: int) -> int:
        room = -(-size // PAGE) * PAGE
        start = allocator._mmap(None, room + 2 * PAGE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if start is None or start == allocator._NOT_MAPPED:
            raise RuntimeError("can't allocate memory")
        protect(start, PAGE, 0)
        protect(start + PAGE + room, PAGE, 0)
        return start + PAGE + room - size

    allocator.allocator.cache_limit = 1 << 62  # nothing goes back to the system
    storage._allocate, storage._free_blocks, storage._release = allocate, _NoBlocks(), lambda pointer, size: None


class Arguments:
    """Random arguments of calls; a common shape makes it likely that some fit."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.shape = self.random.choice(SHAPES)

    def tensor(self, name: str) -> Any:
        chance = self.random.random
        shape = self.shape if chance() < 0.45 else self.random.choice(SHAPES)
        if POSITIONS.search(name) and chance() < 0.85:
            made = torch.randint(0, 2 if "mask" in name else self.random.choice([1, 2, 3, 3, 9, 200, 10**6]), shape)
            made = made.bool() if "mask" in name else -made if chance() < 0.1 else made
        elif chance() < 0.06:
            made = torch.randint(0, 5, shape)
        else:
            made = torch.rand(shape, dtype=self.random.choice([torch.float32] * 5 + [torch.float64, torch.complex64]))
        kind = chance()
        if kind < 0.08 and made.dim() > 1:
            return made.transpose(0, -1)
        return made.contiguous(memory_format=torch.channels_last) if kind < 0.14 and made.dim() == 4 else made

    def value(self, argument: Any) -> Any:
        kind, choice = str(argument.type), self.random.choice
        if kind.endswith("?"):
            if choice([True, False]):
                return None
            kind = kind[:-1]
        if kind in ("Tensor[]", "Tensor?[]"):
            return [self.tensor(argument.name) for _ in range(self.random.randint(1, 3))]
        if kind.startswith(("int[", "SymInt[")):
            return [choice([1, 1, 2, 3, 0, -1, 4]) for _ in range(choice([1, 2, 2, 3, 4]))]
        if kind.startswith("bool["):
            return [True] * int(kind[5] if kind[5].isdigit() else 3)
        if kind.startswith("float["):
            return [choice([0.5, 1.0, 2.0]) for _ in range(2)]
        simple = {
            "int": [0, 1, 1, 2, 3, -1, 5], "float": [0.0, 0.5, 1.0, 2.0], "Scalar": [0, 1, 2, 0.5], "bool": [True, False],
            "str": ["mean", "sum", "none", "max", "linear", "ij"], "ScalarType": [torch.float32],
        }  # fmt: skip
        simple["SymInt"], simple["number"] = simple["int"], simple["Scalar"]
        return self.tensor(argument.name) if kind == "Tensor" else choice(simple.get(kind, [argument.default_value]))


def _described(thing: Any) -> str:
    if isinstance(thing, torch.Tensor):
        return f"{str(thing.dtype)[6:]}{tuple(thing.shape)}"
    return f"[{', '.join(map(_described, thing))}]" if isinstance(thing, list) else repr(thing)


def calls(name: str, overload: str, seeds: range, log: Path) -> None:
    """Make the calls of one overload, each noted in a file before it is made."""
    function = getattr(getattr(torch.ops.aten, name), overload or "default")
    for seed in seeds:
        torch.manual_seed(seed)
        drawn = Arguments(f"{name}{overload}{seed}")
        values = [(a, drawn.value(a)) for a in schema_of(name, overload).arguments]
        positional = [value for a, value in values if not a.kwarg_only]
        named = {a.name: value for a, value in values if a.kwarg_only and drawn.random.random() < 0.3}
        texts = [*map(_described, positional), *(f"{k}={_described(v)}" for k, v in named.items())]
        log.write_text(f"aten.{name}.{overload or 'default'}({', '.join(texts)})  # seed {seed}")
        try:
            function(*positional, **named)
        except Exception as problem:
            if type(problem).__name__ in MISTAKES:
                print(f"{type(problem).__name__}: {log.read_text()}\n    {str(problem).splitlines()[:1]}", flush=True)


def in_a_process(name: str, overload: str, seeds: range, log: Path) -> int:
    """Return the signal that ended the calls of an overload, 0 if none did."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        warnings.simplefilter("ignore")
        faulthandler.disable()
        signal.alarm(25)
        guard_memory()
        try:
            calls(name, overload, seeds, log)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def overloads(pattern: str) -> list[tuple[str, str]]:
    """Return the overloads that take tensors and return new ones, of operators whose names match."""
    found = [(n, o) for n in aten_names() if not LEFT_OUT.search(n) and re.search(pattern, n) for o in overloads_of(n)]
    schemas = {each: schema_of(*each) for each in found}
    return [e for e, s in schemas.items() if not s.is_out and any("Tensor" in str(a.type) for a in s.arguments)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="", help="a regular expression that operators' names match")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 30), metavar=("FIRST", "END"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    ended = 0
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "call"
        for name, overload in overloads(options.names):
            number = in_a_process(name, overload, range(*options.seeds), log)
            if number:
                ended += 1
                print(f"{signal.Signals(number).name}: {log.read_text()}", flush=True)
    return min(ended, 1)


if __name__ == "__main__":
    raise SystemExit(main())

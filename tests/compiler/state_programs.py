"""Programs that read Python's state, from the texts in `states/`: each is run as it is and compiled, before and after a change.

A program is a heading `## name` and the text of a module that defines `f(x)` and `change()`; `seen()` tells of effects besides the
result, `restore()` puts back what belongs to the process, `values(results)` judges results that are never the same. `python -m
tests.compiler.state_programs` prints how each one runs, and how many are wrong."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import flambeau

BEFORE, AFTER = 6, 5  # calls
VERBOSE = "-v" in sys.argv
_PRELUDE = (
    "import abc, argparse, array, bisect, builtins, collections, collections.abc, configparser, contextlib, contextvars, copy, ctypes, dataclasses, datetime, decimal, enum,"
    " fractions, functools, gc, heapq, importlib, inspect, io, itertools, json, locale, logging, math, operator, os, pathlib, pickle, pprint,"
    " queue, random, re, signal, sqlite3, statistics, string, struct, sys, threading, time, types, typing, uuid, warnings, weakref\n"
    "import numpy as np, numpy.random as npr\n"
    "import flambeau as torch, flambeau.nn.functional as F\n"
    "from flambeau import nn\n"
    "here = {here!r}; X = torch.ones(2)\n"
    "def put(**values): globals().update(values)\n"
)


def programs() -> Iterator[tuple[str, str]]:
    """Names and texts."""
    for path in sorted((Path(__file__).parent / "states").glob("*.txt")):
        for block in path.read_text().split("## ")[1:]:
            name, _, text = block.partition("\n")
            yield f"{path.stem}: {name}", text


def _seed() -> None:
    random.seed(0)
    np.random.seed(0)
    flambeau.manual_seed(0)


def load(name: str, text: str, folder: str) -> Any:
    """A new module of this text; the numbers that it draws are the same each time."""
    _seed()
    path = Path(folder, "program_" + "".join(c if c.isalnum() else "_" for c in name) + ".py")
    path.write_text(_PRELUDE.format(here=str(folder)) + text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def how(compiled: Any) -> str:
    """Whether a compiled function runs natively, in parts, or as it is."""
    behind = compiled._compiled
    behind = getattr(behind, "_compiled", behind)  # a module's is one level further in
    if any(r.calls for r in behind.recordings()):
        return "native"
    return "parts" if _native_parts(behind) else "eager"


def _native_parts(behind: Any) -> bool:
    return any(any(r.calls for r in p.recordings()) or _native_parts(p) for p in behind.parts())


def why(compiled: Any) -> list[str]:
    """Why a compiled function, or a part of it, does not run natively."""
    behind = compiled._compiled
    behind = getattr(behind, "_compiled", behind)
    return [*behind.reasons, *(reason for p in behind.parts() for reason in p.reasons)]


def outcome(program: Any, compiled: bool) -> tuple[list[Any], str]:
    """What a program gives in each call, and how it ran before the change."""
    _seed()
    found: list[Any] = []
    f = flambeau.compile(program.f) if compiled else program.f
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found += [_seen(program, f(program.X)) for _ in range(BEFORE)]
            ran = how(f) if compiled else ""
            if compiled and VERBOSE and ran != "native":
                print("      ", why(f))
            program.change()
            found += [_seen(program, f(program.X)) for _ in range(AFTER)]
    finally:
        getattr(program, "restore", lambda: None)()
    if hasattr(program, "values"):
        found = [program.values([r[0][0] for r in found])]
    return found, ran


def _seen(program: Any, result: Any) -> Any:
    values = [round(v, 4) for v in result.detach().double().reshape(-1).tolist()]
    return values, getattr(program, "seen", lambda: None)()


def compare(name: str, text: str, folder: str) -> tuple[list[Any], list[Any], str]:
    """Results as it is, results compiled, and how it ran."""
    eager, _ = outcome(load(name, text, folder), False)
    compiled, ran = outcome(load(name, text, folder), True)
    return eager, compiled, ran


def main() -> None:
    counts: dict[str, int] = {}
    wanted = [a for a in sys.argv[1:] if a != "-v"]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in programs():
            if wanted and not any(w in name for w in wanted):
                continue
            try:
                eager, compiled, ran = compare(name, text, folder)
                wrong = eager != compiled
            except Exception as error:
                eager, compiled, ran, wrong = [], [], f"{type(error).__name__}: {error}", True
            verdict = "WRONG" if wrong else "ok"
            for key in (verdict, ran if ran in ("native", "parts", "eager") else "raises"):
                counts[key] = counts.get(key, 0) + 1
            print(f"{verdict:6}{ran:8}{name}", f"{eager} {compiled}" if wanted and wrong else "", flush=True)
    print(counts, sys.version.split()[0], os.getpid())


if __name__ == "__main__":
    main()

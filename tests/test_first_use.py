"""What is imported when first used can be used first from several threads at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

# Imports one room and prints what Python would lock in the wrong order (a part before the package around it), and which rooms
# were imported from within which.
_WATCH = """
import importlib, json, sys
import flambeau

boot, stack = importlib._bootstrap, []
wrong, nested = [], set()
load = boot._find_and_load_unlocked

def room(name):
    parts = name.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["compat"] else 2])  # compat's packages are rooms on floors of their own

def watch(name, import_):
    if name.startswith("flambeau."):
        if name.rpartition(".")[0] not in sys.modules and not name.startswith("flambeau.nn."):
            wrong.append([name, stack[-1:]])
        nested.update((room(outer), room(name)) for outer in stack if room(outer) != room(name))
    stack.append(name)
    try:
        return load(name, import_)
    finally:
        stack.pop()

boot._find_and_load_unlocked = watch
def use(name):
    parts = name.split(".")
    for i in range(2, len(parts) + 1):
        importlib.import_module(".".join(parts[:i]))
"""

_ONE_BY_ONE = (
    _WATCH
    + """
import os
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        use(name)
        print(json.dumps([name, wrong, sorted(nested)]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""
)

_LEAVES = {"__main__", "safetensors"}  # the second needs a package that may be missing


def rooms() -> list[str]:
    found = [path.stem for path in Path(flambeau.__file__).parent.iterdir() if path.suffix == ".py" or path.is_dir()]
    names = sorted(
        f"flambeau.{name}" for name in found if name.isidentifier() and name not in ("__init__", "__pycache__", "data")
    )
    inner = ["utils.data", "vision.transforms.v2", "vision.models", "vision.ops", "vision.datasets", "nn.attention"]
    inner += [
        "fx.passes",
        "export.proxy_tensor",
        "export.decompositions",
        "jit.module",
        "jit.tracer",
        "jit.archive",
    ]
    return [n for n in names if n.split(".")[1] not in _LEAVES] + [f"flambeau.{name}" for name in inner]


def run(program, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(flambeau.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="starting an interpreter for each would take too long")
def test_no_part_is_locked_before_its_package_and_no_two_rooms_wait_for_each_other():
    done = run(_ONE_BY_ONE, *rooms())
    assert done.returncode == 0, done.stderr
    below: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        name, wrong, nested = json.loads(line)
        assert not wrong, f"importing {name}: a part before the package around it"
        for outer, inner in nested:
            below.setdefault(outer, set()).add(inner)
    assert len(below) > 5

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"these import each other: {path[path.index(name) :]}"
        for inner in below.get(name, ()):
            visit(inner, (*path, name))

    for outer in below:
        visit(outer, ())


_STARTS = """
import sys, threading
import flambeau as torch

def use_vmap(): assert torch.vmap(torch.sin)(torch.zeros(3)).shape == (3,)
def use_grad(): torch.func.grad(lambda v: (v ** 3).sum())(torch.ones(2))
def use_autocast():
    with torch.autocast("cpu"): assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
def use_nn(): torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ConvTranspose1d(1, 1, 1))
def use_optim(): torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1).step()
def use_autograd(): torch.ones(2, requires_grad=True).exp().sum().backward()
def use_data(): list(torch.utils.data.DataLoader(range(4), 2))
def use_files():
    import io
    torch.save(torch.ones(2), io.BytesIO())
def use_state(): assert not torch.is_autocast_enabled("cpu")
def use_fx(): assert torch.fx.symbolic_trace(lambda v: v + 1)(1) == 2
def use_export(): torch.export.export(torch.nn.ReLU(), (torch.ones(1),))
def double(v):
    return v + v
def use_script():
    import io
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), io.BytesIO())
def use_trace(): torch.jit.trace(double, torch.ones(1))
def use_aten(): assert torch.ops.aten.add.Tensor(torch.ones(1), 1).item() == 2 and torch.cond(torch.tensor(True), double, double, (torch.ones(1),))
def use_others(): torch.distributions.Normal(0.0, 1.0); torch.overrides.is_tensor_like(1); torch.fft.fft(torch.ones(4))

uses = [use_vmap, use_autocast, use_autograd, use_nn, use_optim, use_data, use_files, use_grad, use_state, use_others]
uses += [use_fx, use_export, use_script, use_trace, use_aten]
shift = int(sys.argv[1])
barrier, problems = threading.Barrier(len(uses)), []
def start(use):
    barrier.wait()
    try:
        use()
    except BaseException as problem:
        problems.append(f"{use.__name__}: {type(problem).__name__}: {problem}")
sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=start, args=(use,), daemon=True) for use in uses[shift:] + uses[:shift]]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert not any(thread.is_alive() for thread in threads), "a thread hangs"
assert not problems, problems
"""


@pytest.mark.parametrize("shift", range(3))
def test_first_use_from_many_threads_at_once(shift):
    done = run(_STARTS, str(3 * shift))
    assert done.returncode == 0, done.stderr

"""`import flambeau` beside modules that import torch."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import flambeau

ROOT = str(Path(flambeau.__file__).parents[1])
NOT_INSTALLED = """
import importlib.machinery
found = importlib.machinery.PathFinder.find_spec
def find(name, *rest, **named):
    return None if name.partition(".")[0] in ("torch", "torchvision", "mxnet", "ts", "horovod") else found(name, *rest, **named)
importlib.machinery.PathFinder.find_spec = find
"""


def run(code: str, setup: str = NOT_INSTALLED) -> str:
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", setup + textwrap.dedent(code)],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


NOTHING_CHANGES = """
import builtins, importlib, multiprocessing.spawn, pkgutil, sys
import numpy  # what is watched is Flambeau
NAMES = ("torch", "torchvision", "mxnet", "ts", "horovod")

def state():
    return {
        # one by its purpose, and absl's, which TensorBoard imports where it is installed
        "finders": [f for f in sys.meta_path if type(f).__name__ not in ("FormerNames", "ReloadDetector")],
        "hooks": [sys.excepthook, sys.displayhook, *sys.path_hooks],
        "builtins": dict(vars(builtins)),
        "spawn": multiprocessing.spawn.get_preparation_data,
        "__import__": importlib.__import__,
    }

def check(what):
    changed = [name for name, value in state().items() if value != before[name]]
    assert not changed, f"{what} changed {changed}"
    from flambeau.compat.former_names import FormerNames
    (own,) = [finder for finder in sys.meta_path if isinstance(finder, FormerNames)]  # answers for this package's names alone
    assert not any(own.find_spec(name) for name in (*NAMES, "torch.nn.quantized", "quantization", "flambeaux.quantization"))
    for name in NAMES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as problem:
            assert problem.name == name
        else:
            raise AssertionError(f"after {what}, `import {name}` succeeds")
"""


def test_importing_flambeau_changes_nothing_of_import_torch():
    code = """
    before = state()
    import flambeau
    check("import flambeau")
    assert flambeau.Tensor.__module__.startswith("flambeau") and flambeau.__name__ == "flambeau"
    assert "+" not in flambeau.__version__
    """
    run(code, NOT_INSTALLED + NOTHING_CHANGES)


def test_importing_any_room_changes_nothing_of_import_torch():
    code = """
    before = state()
    import flambeau
    count = 0
    for entry in pkgutil.walk_packages(flambeau.__path__, "flambeau.", onerror=lambda name: None):
        if entry.name.endswith(("sitecustomize", "__main__")):
            continue  # these are the ways to opt in
        try:
            importlib.import_module(entry.name)
            count += 1
        except ModuleNotFoundError as problem:
            assert not problem.name.startswith("flambeau"), problem
        except ImportError as problem:
            assert "needs the package" in str(problem), (entry.name, problem)
    check("importing every module")
    assert not flambeau.core.naming.is_posing() and flambeau.nn.Linear.__module__.startswith("flambeau")
    print(count)
    """
    assert int(run(code, NOT_INSTALLED + NOTHING_CHANGES)) > 1000


def test_flambeau_is_torch_where_it_is_asked_for():
    code = """
    import flambeau, sys
    flambeau.install_as_torch()
    import torchvision.transforms, torch.nn.functional
    from torch.autograd import Variable
    assert sys.modules["torch"] is flambeau and torch.nn.functional is flambeau.nn.functional
    assert torchvision is flambeau.vision and flambeau.__version__.startswith("2.13.0+")
    print(torch.ones(2))
    """
    assert run(code) == "tensor([1., 1.])\n"


def test_a_hub_repository_that_imports_torch_says_how_to_give_it_one(tmp_path):
    (tmp_path / "hubconf.py").write_text("import torch\ndef ones(): return torch.ones(2)\n")
    code = f"""
    import flambeau
    try:
        flambeau.hub.load({str(tmp_path)!r}, "ones", source="local")
    except ModuleNotFoundError as problem:
        print("install_as_torch()" in str(problem), problem.name)
    flambeau.install_as_torch()
    print(flambeau.hub.load({str(tmp_path)!r}, "ones", source="local").tolist())
    """
    assert run(code) == "True torch\n[1.0, 1.0]\n"


def test_an_installed_torch_is_not_hidden():
    pytest.importorskip("torch", reason="the real one must be installed")
    assert run("import flambeau, torch; print(torch is flambeau, hasattr(torch, 'rand'))", "") == "False True\n"


def test_versions_are_versions():
    code = """
    import flambeau
    flambeau.install_as_torch()
    import torchvision, torch
    print(torchvision.__version__, torch.__version__)
    """
    vision, own = run(code).split()
    assert vision == f"0.28.0+flambeau.{flambeau.__version__}" and own == f"2.13.0+flambeau.{flambeau.__version__}"
    packaging = pytest.importorskip("packaging.version", reason="parses version numbers")
    assert packaging.parse(vision).release == (0, 28, 0)


def test_record_files_are_found_as_mxnet():
    code = """
    import flambeau
    flambeau.install_as_torch()
    import mxnet as mx
    import mxnet.recordio
    from mxnet.recordio import MXRecordIO
    assert mx.recordio is flambeau.utils.recordio and MXRecordIO is mx.recordio.MXRecordIO
    try:
        mx.nd
    except AttributeError as problem:
        print(problem)
    try:
        import mxnet.gluon
    except ImportError as problem:
        print(problem)
    """
    first, second = run(code).splitlines()
    assert first.startswith("mxnet.nd is not in Flambeau") and "mxnet.gluon" in second


def test_code_that_wants_more_of_mxnet_than_record_files_hears_that_it_is_not_there():
    code = """
    import importlib.util
    import flambeau
    flambeau.install_as_torch()
    try:
        import mxnet as mx
    except ImportError as problem:
        print(problem)
    print(importlib.util.find_spec("mxnet"))
    """
    assert run(code).splitlines() == ["No module named 'mxnet'", "None"]


def test_modules_with_names_of_tools_are_attributes():
    code = """
    import flambeau
    flambeau.install_as_torch()
    import torch
    print(torch.__config__.__name__, hasattr(torch.nn, "__config__"))
    """
    assert run(code).split()[-1] == "False"


def uses(ours, theirs):
    """What may meet a tensor of the real PyTorch, by name."""
    x, y = ours.ones(2, 3), theirs.ones(2, 3)
    nn, F = ours.nn, ours.nn.functional
    return {
        "function": lambda: ours.add(x, y),
        "operator": lambda: x + y,
        "reflected": lambda: y * x,
        "method": lambda: x.mul_(y),
        "list": lambda: ours.cat([x, y]),
        "comparison": lambda: x < y,
        "layer": lambda: nn.Linear(3, 2)(y),
        "convolution": lambda: nn.Conv2d(1, 1, 3)(theirs.ones(1, 1, 8, 8)),
        "recurrent": lambda: nn.LSTM(3, 2)(y[None]),
        "loss": lambda: F.cross_entropy(x, theirs.tensor([0, 1])),
        "assignment": lambda: x.__setitem__(0, y[0]),
        "parameter": lambda: nn.Parameter(y),
        "attribute": lambda: setattr(nn.Linear(3, 2), "weight", theirs.nn.Parameter(y)),
        "state": lambda: nn.Linear(3, 2).load_state_dict(theirs.nn.Linear(3, 2).state_dict()),
        "optimizer": lambda: ours.optim.SGD([theirs.nn.Parameter(y)], lr=0.1),
        "gradient": lambda: ours.ones(2, 3, requires_grad=True).mul(2).backward(y),
    }


@pytest.mark.parametrize("use", list(uses(flambeau, flambeau)))
def test_a_tensor_of_the_real_torch_is_named(use):
    theirs = pytest.importorskip("torch", reason="the real PyTorch makes the tensors")
    with pytest.raises(TypeError, match=r"a tensor of the real PyTorch.*install_as_torch\(\)"):
        uses(flambeau, theirs)[use]()


def test_conversions_take_them():
    theirs = pytest.importorskip("torch", reason="the real PyTorch makes the tensors")
    for convert in (flambeau.tensor, flambeau.as_tensor, flambeau.from_dlpack):
        assert convert(theirs.arange(3)).tolist() == [0, 1, 2]


def test_a_thread_that_installs_the_names_waits_for_another_that_does() -> None:
    run("""
        import threading, flambeau
        from flambeau.compat.as_torch import posing
        begun, go, done = threading.Event(), threading.Event(), []
        prepare = posing._set_version
        def slowly(*args):
            begun.set()
            go.wait(60)
            prepare(*args)
        posing._set_version = slowly
        def second():
            flambeau.install_as_torch()
            import torch.nn  # the names are there
            done.append(torch.nn is flambeau.nn)
        threads = [threading.Thread(target=flambeau.install_as_torch), threading.Thread(target=second)]
        threads[0].start()
        begun.wait(60)
        threads[1].start()
        threads[1].join(0.3)
        assert threads[1].is_alive()
        go.set()
        for thread in threads:
            thread.join()
        assert done == [True]
    """)

"""What the test files import: our stand-ins for `torch.testing._internal`, and placeholders for what Flambeau does not have.

A placeholder lets the file load; a test that uses it fails and says what is missing.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from . import compiling
from .pretended import pretend_devices

INTERNAL = "torch.testing._internal"
STAND_INS = Path(__file__).parent / "stand_ins"
_WHEEL = (  # models and checks that PyTorch's wheel brings along: read there, never copied
    "common_dist_composable", "common_fsdp", "common_pruning", "common_quantization", "common_quantized",
    "dist_utils", "distributed", "hypothesis_utils", "logging_tensor", "two_tensor",
)  # fmt: skip

missing: set[str] = set()  # names of PyTorch's that Flambeau does not have and the test file imports
_loading = [True]  # while the file is being imported, placeholders can be called: as decorators


class NotThere(NotImplementedError):
    """Flambeau does not have what the test imports."""


class Placeholder:
    """Stands for a name that is not there; may be a decorator, a base class or a function."""

    def __init__(self, name: str):
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _loading[0]:
            return self
        raise NotThere(f"{self.__name__} is not there")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not _loading[0]:
            raise AttributeError(f"{self.__name__} is not there")
        return Placeholder(f"{self.__name__}.{name}")

    def __contains__(self, item: Any) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        if _loading[0]:
            return iter(())
        raise NotThere(f"{self.__name__} is not there")

    def __mro_entries__(self, bases: tuple) -> tuple:
        def refuse(*args: Any, **kwargs: Any) -> None:
            raise NotThere(f"{self.__name__} is not there")

        return (type(self.__name__.rpartition(".")[2], (), {"__init__": refuse}),)


class _PlaceholderModule(ModuleType):
    __path__: list[str] = ["not there"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")


class _PlaceholderLoader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _PlaceholderModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _StandInFinder(importlib.abc.MetaPathFinder):
    """Finds our files for the modules of `torch.testing._internal`; a module that we have not written guesses all its names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == INTERNAL:
            return importlib.util.spec_from_file_location(
                fullname, STAND_INS / "__init__.py", submodule_search_locations=[str(STAND_INS)]
            )
        if not fullname.startswith(INTERNAL + "."):
            return None
        name = fullname[len(INTERNAL) + 1 :]
        file = STAND_INS / f"{name}.py"
        if name == "distributed.fake_pg" and "flambeau" in sys.modules:
            return importlib.util.spec_from_file_location(fullname, file)
        if name.partition(".")[0] in _WHEEL:
            return _from_wheel(fullname)
        if file.exists():
            return importlib.util.spec_from_file_location(fullname, file)
        return importlib.util.spec_from_file_location(
            fullname, STAND_INS / "unwritten.py", submodule_search_locations=["unwritten"]
        )


def wheel_file(fullname: str) -> Path | None:
    """Where PyTorch's wheel keeps a module: some of its tests are in there."""
    for folder in sys.path:
        file = Path(folder, *fullname.split("."))
        for candidate in (file.with_suffix(".py"), file / "__init__.py"):
            if candidate.exists():
                return candidate
    return None


def _from_wheel(fullname: str) -> importlib.machinery.ModuleSpec | None:
    file = wheel_file(fullname)
    if file is None:
        raise ModuleNotFoundError(f"{fullname} is a part of PyTorch's wheel, which is not installed", name=fullname)
    package = [str(file.parent)] if file.name == "__init__.py" else None
    return importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=package)


class _MissingFinder(importlib.abc.MetaPathFinder):
    """Asked last: a module of PyTorch's that the test file imports and Flambeau does not have."""

    wanted: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.wanted:
            return None
        missing.add(fullname)
        return importlib.machinery.ModuleSpec(fullname, _PlaceholderLoader(), is_package=True)


class _FunctorchFinder(importlib.abc.MetaPathFinder):
    """Asked first: PyTorch's wheel brings the package `functorch`, which needs the PyTorch it came with."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "functorch":
            return None
        missing.add(fullname)
        return importlib.machinery.ModuleSpec(fullname, _PlaceholderLoader(), is_package=True)


def install(posing: bool) -> None:
    sys.meta_path.insert(0, _StandInFinder())
    if posing:
        sys.meta_path.insert(len(sys.meta_path) - 1, _MissingFinder())  # before the finder that explains
        sys.meta_path.insert(0, _FunctorchFinder())


def load(path: Path) -> ModuleType:
    """The test file as a module, with placeholders for what it asks for in vain while it is loaded."""
    sys.path[:0] = [str(path.parent), str(path.parents[1])]
    statements = list(_statements(path))
    judged = compiling.applies(path) and "flambeau" in sys.modules
    if judged:
        compiling.install(importlib.import_module("torch"))
    for statement in statements:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                _want(alias.name)
        elif isinstance(statement, ast.ImportFrom):
            _provide_names(statement.module or "", [alias.name for alias in statement.names])
    import torch

    if "flambeau" in sys.modules:  # first, so that it cannot take the stand-ins' place later
        importlib.import_module("flambeau.testing._internal")
    torch.testing._internal = importlib.import_module(INTERNAL)  # type: ignore[attr-defined]
    for statement in statements:
        if isinstance(statement, ast.Attribute):
            _provide_attribute(torch, _dotted(statement))
    if not hasattr(torch.autograd, "_force_original_view_tracking"):  # an internal switch that every tearDown resets
        torch.autograd._force_original_view_tracking = lambda mode: contextlib.nullcontext()  # type: ignore[attr-defined]
    if importlib.util.find_spec("triton") is None:  # asked for inside functions that run at import
        sys.modules["torch.utils._triton"] = triton = ModuleType("torch.utils._triton")
        triton.__getattr__ = _no_triton  # type: ignore[method-assign]
    for statement in statements:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name.startswith(f"{INTERNAL}.") and alias.asname:  # which goes through attributes, not names
                    helper = importlib.import_module(alias.name)
                    setattr(torch.testing._internal, alias.name.rpartition(".")[2], helper)
    pretend_devices(torch, path)
    if "safetensors" in path.read_text() and importlib.util.find_spec("safetensors") is not None:
        importlib.import_module("safetensors.torch")  # which PyTorch has imported when it has written such a file
    if not hasattr(torch, "_is_functional_tensor"):  # tests of spread tensors ask what they may be given
        torch._is_functional_tensor = lambda t: False  # type: ignore[attr-defined]
    # PyTorch's cache of sharding decisions is locked by tests that run ranks in threads.
    sys.modules["torch.distributed.tensor._sharding_prop"] = propagation = ModuleType("_sharding_prop")
    propagation.ShardingPropagator = type("ShardingPropagator", (), {"_fake_mode_lock": None})  # type: ignore[attr-defined]
    if "flambeau" in sys.modules:
        _ranks_are_processes(statements)
    module = importlib.import_module(path.stem)
    if judged:
        compiling.adapt(module)
    _loading[0] = False
    return module


def _no_triton(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *args: False


def _ranks_are_processes(statements: list[ast.AST]) -> None:
    """Tests that PyTorch runs for all ranks at once in one process run in processes here."""
    name = f"{INTERNAL}.distributed._tensor.common_dtensor"
    if any(isinstance(statement, ast.ImportFrom) and statement.module == name for statement in statements):
        common = importlib.import_module(name)
        common.LocalDTensorTestBase = common.DTensorTestBase  # type: ignore[attr-defined]
        local = importlib.import_module("torch.distributed._local_tensor")
        local.LocalTensorMode = lambda ranks: contextlib.nullcontext()  # type: ignore[attr-defined]


def _statements(path: Path, root: Path | None = None, seen: set[Path] | None = None) -> Iterator[ast.AST]:
    """What importing the file evaluates, in the test files beside it (or in folders there) that it imports from too."""
    root, seen = root or path.parent, {path} if seen is None else seen
    for node in _run_at_import(ast.parse(path.read_text())):
        names = (
            node.names if isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "module", None) else []
        )
        for file in (root / f"{alias.name}.py" for alias in names):  # import it, from . import it
            if file not in seen and file.exists():
                seen.add(file)
                yield from _statements(file, root, seen)
        if isinstance(node, ast.ImportFrom) and node.module:
            folders = [root, *([root.parent] if compiling.applies(path) else [])]
            files = [folder.joinpath(*node.module.split(".")).with_suffix(".py") for folder in folders]
            beside: Path | None = next((file for file in files if file.exists()), files[0])
            if node.module.startswith(tuple(f"{INTERNAL}.{name}" for name in _WHEEL)):
                beside = wheel_file(node.module)
            if beside is not None and beside not in seen and beside.exists():
                seen.add(beside)
                yield from _statements(beside, root, seen)
        yield node


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are evaluated when the file is imported: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in [*child.decorator_list, child.args, *([child.returns] if child.returns is not None else [])]:
                yield part
                yield from _run_at_import(part)
        elif not isinstance(child, ast.Lambda):
            yield child
            yield from _run_at_import(child)


def _dotted(node: ast.expr) -> list[str]:
    """["torch", "cuda", "Stream"] of the expression torch.cuda.Stream; [] of others."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def _want(module: str) -> None:
    parts = module.split(".")
    if parts[0] == "torch":
        _MissingFinder.wanted |= {".".join(parts[: n + 1]) for n in range(1, len(parts))}


def _provide_names(module: str, names: list[str]) -> None:
    if module.partition(".")[0] != "torch" or module.startswith(INTERNAL):
        return
    _want(module)
    owner = importlib.import_module(module)
    for name in names:
        if name != "*" and not hasattr(owner, name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ModuleNotFoundError:
                _stand_for(owner, f"{module}.{name}")


def _provide_attribute(torch: ModuleType, path: list[str]) -> None:
    if path[:1] != ["torch"] or path[:3] == INTERNAL.split("."):
        return
    owner: Any = torch
    for position, name in enumerate(path[1:], 1):
        if owner is None:  # torch.version.cuda: what reads it asks first
            return
        try:
            there = hasattr(owner, name)
        except RuntimeError:  # classes of C++ say it so when they are not there; the file names them in annotations
            return
        if not there:
            _stand_for(owner, ".".join(path[: position + 1]))
            return
        owner = getattr(owner, name)


def _stand_for(owner: Any, name: str) -> None:
    missing.add(name)
    setattr(owner, name.rpartition(".")[2], Placeholder(name))

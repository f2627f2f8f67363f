"""With `--ranks N` tests for N GPUs run in N processes on the CPU: where such a test says GPU, the CPU is meant."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


class _MeanTheCpu(ast.NodeTransformer):
    """ "cuda", "cuda:0" and f"cuda:{rank}" become "cpu"; NCCL, which has no such ranks, becomes gloo."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and (node.value == "cuda" or node.value.startswith("cuda:")):
            return ast.Constant("cpu")
        return ast.Constant("gloo") if node.value == "nccl" else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """torch.device("cuda", rank) has a number too many."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "device" and len(node.args) == 2:
            del node.args[1]
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """device=self.rank is the GPU of that number."""
        self.generic_visit(node)
        if node.arg in ("device", "device_id") and _is_rank(node.value):
            node.value = ast.Constant("cpu")
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        names = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        chosen = [name == "device_id" and _is_rank(value) for name, value in zip(names, node.values)]
        node.values = [ast.Constant("cpu") if cpu else value for cpu, value in zip(chosen, node.values)]
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        first = node.values[0] if node.values else None
        begins = isinstance(first, ast.Constant) and str(first.value).startswith("cuda:")
        return ast.Constant("cpu") if begins else node


def _is_rank(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr == "rank"


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        tree = _MeanTheCpu().visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, path: Path):
        self.path = path

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.path.stem:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=_Loader(fullname, str(self.path)))


def pretend_devices(torch: Any, path: Path) -> None:
    """Before the test file is loaded: tests count devices to know how many processes to start."""
    ranks = int(os.environ.get("SUITE_RANKS", 0))
    if not ranks:
        return
    sys.meta_path.insert(0, _Finder(path))
    torch.accelerator.device_count = torch.cpu.device_count = lambda: ranks
    start = torch.distributed.init_process_group

    def start_once(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        """Tests name a backend for the CPU and one for the GPU, which is the CPU here."""
        start("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **kwargs)

    torch.distributed.init_process_group = torch.distributed.distributed_c10d.init_process_group = start_once
    if not hasattr(torch._inductor.config, "compile_threads"):
        torch._inductor.config.compile_threads = 1
    for module in (torch.cuda, torch.accelerator):
        for name in ("set_device", "set_device_index", "set_device_idx", "synchronize", "empty_cache"):
            setattr(module, name, lambda *args, **kwargs: None)
        for name in ("current_device", "current_device_index", "current_device_idx"):
            setattr(module, name, lambda: torch.device("cpu"))
    torch.cpu.manual_seed, torch.cpu._sleep = torch.manual_seed, lambda cycles: None
    for kind in (torch.Tensor, torch.nn.Module):
        kind.cuda = lambda self, *args, **kwargs: self
        kind.to = _to_numbers(kind.to)
    parallel = torch.nn.parallel.DistributedDataParallel
    parallel.__init__ = _without_devices(parallel.__init__)
    common = importlib.import_module("torch.testing._internal.common_fsdp")
    common.DEVICE_COUNT = common.FSDPTestContinuous.world_size = ranks  # type: ignore[attr-defined]


def _to_numbers(method: Any) -> Any:
    """`to(rank)` is the GPU of that number."""

    @functools.wraps(method)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = ("cpu", *args[1:])
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        return method(self, *args, **kwargs)

    return to


def _without_devices(method: Any) -> Any:
    @functools.wraps(method)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        method(self, module, None, None, *args, **kwargs)

    return init

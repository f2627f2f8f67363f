"""What PyTorch's tests of process groups share: a test that runs in several processes at once, and what it may be skipped for."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import io
import itertools
import logging
import multiprocessing
import operator
import os
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from tests.pytorch_suite import children

from .case import TestCase, set_rng_seed
from .permissive import guess, harmless

FILE_SCHEMA = "file://"
ACCELERATOR_DIST_BACKENDS = ["nccl", "xccl", "hccl"]
logger = logging.getLogger(__name__)
_LIMIT = 50


class TestSkip(NamedTuple):
    exit_code: int
    message: str


TEST_SKIPS = {
    "backend_unavailable": TestSkip(72, "the backend is not there"),
    "small_worldsize": TestSkip(73, "the world is too small"),
    "odd_worldsize": TestSkip(87, "the world has an odd size"),
    "no_cuda": TestSkip(74, "no CUDA"),
    "generic": TestSkip(86, "skipped in the processes"),
    **{f"multi-gpu-{n}": TestSkip(200 + n, f"needs {n} CUDA devices") for n in range(1, 9)},
}


class DistTestCases:
    skip_collective = {
        "allgather_coalesced": {"nccl", "mpi", "ucc", "xccl"},
        "reduce": set(),
        "sendrecv anysource": {"nccl", "ucc", "xccl"},
        "cpu barrier": {"nccl", "ucc", "xccl"},
    }
    backend_feature = {name: {"nccl", "gloo", "ucc"} for name in ("gpu", "cuda", "ddp", "subgroup")} | {"plugin": set()}


globals().update(harmless("skip_if_rocm_multiprocess with_nccl_blocking_wait"))


def _leaving(condition: Callable[[], bool], skip: str) -> Callable:
    """A decorator: the process leaves with the skip's code where the condition holds."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if condition():
                sys.exit(TEST_SKIPS[skip].exit_code)
            return function(*args, **kwargs)

        return wrapper

    return decorate


def _world() -> int:
    return int(os.environ["WORLD_SIZE"])


skip_if_no_gpu = _leaving(lambda: not torch.cuda.is_available() and "SUITE_RANKS" not in os.environ, "no_cuda")
skip_if_small_worldsize = _leaving(lambda: os.environ["BACKEND"] != "mpi" and _world() <= 2, "small_worldsize")
skip_if_odd_worldsize = _leaving(lambda: os.environ["BACKEND"] != "mpi" and _world() % 2 == 1, "odd_worldsize")


def skip_if_lt_x_gpu(x: int, *, allow_cpu: bool = False) -> Callable:
    """With `--ranks N` a test that asks for up to N GPUs runs with as many processes on the CPU."""
    have = int(os.environ.get("SUITE_RANKS", 0))
    return _leaving(lambda: max(torch.cuda.device_count(), have) < x and not allow_cpu, f"multi-gpu-{x}")


def nccl_skip_if_lt_x_gpu(backend: str, x: int) -> Callable:
    return _leaving(lambda: backend == "nccl" and torch.cuda.device_count() < x, f"multi-gpu-{x}")


require_n_gpus_for_nccl_backend = functools.partial(lambda n, backend: nccl_skip_if_lt_x_gpu(backend, n))


def requires_nccl_version(version: Any, message: str) -> Callable:
    return unittest.skip("needs NCCL")


def with_dist_debug_levels(levels: list[str]) -> Callable:
    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            for level in levels:
                os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
                dist.set_debug_level_from_env()
                function(*args, **kwargs)
                dist.barrier()

        return wrapper

    return decorate


def verify_ddp_error_logged(model: Any, text: str) -> None:
    data = model._get_ddp_logging_data()
    assert "iteration" in data and "has_error" in data
    assert text in data["error"], data["error"]


@contextlib.contextmanager
def captured_output() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield out, err


def init_multigpu_helper(world_size: int, backend: str) -> dict[int, list[int]]:
    return {rank: [] for rank in range(world_size)}


def simple_sparse_reduce_tests(rank: int, world_size: int, num_inputs: int = 1) -> list[tuple[list, list]]:
    """Sparse tensors of one rank and their sums over all: of several numbers of sparse and of dense dimensions."""

    def made(place: int, world: int, sparse_dims: int, dense_dims: int) -> Any:
        index = torch.cat([torch.arange(place + 1).view(1, -1)] + [torch.zeros(1, place + 1)] * (sparse_dims - 1))
        values = torch.ones([place + 1] + [2] * dense_dims)
        return torch.sparse_coo_tensor(index, values, [world] * sparse_dims + [2] * dense_dims)

    cases, world = [], num_inputs * world_size
    for dims in [(1, 0), (2, 0), (3, 0), (1, 1), (1, 2), (1, 3)]:
        inputs = [made(num_inputs * rank + i, world, *dims) for i in range(num_inputs)]
        total = functools.reduce(operator.add, [made(place, world, *dims) for place in range(world)])
        cases.append((inputs, [total] * num_inputs))
    return cases


_folders: list[tempfile.TemporaryDirectory] = []


def initialize_temp_directories(init_method: str | None = None) -> None:
    folder = tempfile.TemporaryDirectory()
    _folders.append(folder)
    for name in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(folder.name, name))
    os.environ["TEMP_DIR"] = folder.name
    place = os.path.join(folder.name, "init_dir", "shared_init_file")
    os.environ["INIT_METHOD"] = FILE_SCHEMA + place if init_method is None else init_method


def cleanup_temp_dir() -> None:
    while _folders:
        _folders.pop().cleanup()


def _server() -> Any:
    """Where processes come from: a server that has loaded the test file, once, and computed nothing, so that it can be forked."""
    context = multiprocessing.get_context("forkserver")
    os.environ["PYTORCH_SUITE_SOURCE"] = os.pathsep.join(children.source)
    context.set_forkserver_preload(["tests.pytorch_suite.preloaded"])
    return context


class MultiProcessTestCase(TestCase):
    """In the main process a test starts `world_size` processes and reads how they end; in those it runs."""

    MAIN_PROCESS_RANK = -1
    TEST_ERROR_EXIT_CODE = 10
    world_size: Any = 4
    rank = MAIN_PROCESS_RANK

    def __init__(self, methodName: str = "runTest") -> None:
        super().__init__(methodName)
        method = getattr(self, methodName, None)
        if method is not None:
            setattr(self, methodName, functools.wraps(method)(functools.partial(self._join_or_run, method)))

    def _join_or_run(self, method: Callable) -> None:
        if self.rank == self.MAIN_PROCESS_RANK:
            self._join_processes(method)
        else:
            method()

    def setUp(self) -> None:
        super().setUp()
        self.skip_return_code_checks: list = []
        self.special_return_code_checks: dict = {}
        self.processes: list = []
        self.pipes: list = []
        handle, self.file_name = tempfile.mkstemp()
        os.close(handle)

    def assertEqualOnRank(self, x: Any, y: Any, msg: Any = None, *, rank: int = 0) -> None:
        """The same, judged by one rank."""
        if self.rank == rank:
            self.assertEqual(x, y, msg)

    def tearDown(self) -> None:
        super().tearDown()
        for process in self.processes:
            process.kill()
            process.join()
        self.processes = []

    def _spawn_processes(self) -> None:
        context = _server()
        for rank in range(int(self.world_size)):
            ours, theirs = context.Pipe()
            name = self.id().rpartition(".")[2]
            process = context.Process(
                target=children.run,
                args=(dict(os.environ), type(self).__name__, rank, name, self.file_name, theirs),
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)

    @classmethod
    def _run(cls, rank: int, test_name: str, file_name: str, pipe: Any, **kwargs: Any) -> None:
        self = cls(test_name)
        self.rank, self.file_name = rank, file_name
        self.run_test(test_name, pipe)

    def run_test(self, test_name: str, pipe: Any) -> None:
        faulthandler.dump_traceback_later(_LIMIT - 5, exit=True)
        set_rng_seed()
        try:
            getattr(self, test_name)()
        except unittest.SkipTest:
            sys.exit(TEST_SKIPS["generic"].exit_code)
        except Exception:
            pipe.send(traceback.format_exc())
            sys.exit(self.TEST_ERROR_EXIT_CODE)

    def _join_processes(self, method: Callable) -> None:
        deadline = time.monotonic() + _LIMIT
        if not self.processes:
            raise unittest.SkipTest("the test starts as many processes as there are GPUs: none")
        for process in itertools.cycle(self.processes):
            process.join(0.05)
            codes = [p.exitcode for p in self.processes]
            if None not in codes or self.TEST_ERROR_EXIT_CODE in codes or time.monotonic() > deadline:
                break
        self._judge(codes, method)

    def _judge(self, codes: list[int | None], method: Callable) -> None:
        for rank, code in enumerate(codes):
            if code == self.TEST_ERROR_EXIT_CODE:
                text = self.pipes[rank].recv()
                raise RuntimeError(f"rank {rank}: {text.strip().splitlines()[-1]}\n{text}")
        if None in codes:
            raise RuntimeError(f"timed out; exit codes {codes}")
        if getattr(method, "__func__", method) in self.skip_return_code_checks:
            return
        for skip in TEST_SKIPS.values():
            if codes[0] == skip.exit_code:
                raise unittest.SkipTest(skip.message)
        self.assertEqual(codes, [0] * len(codes))


class SaveForwardInputsModule(torch.nn.Module):
    """A linear layer that remembers what it was called with."""

    def __init__(self, forward_inputs: dict, cast_forward_inputs: bool) -> None:
        super().__init__()
        self.l = torch.nn.Linear(100, 100)
        self.forward_inputs, self.cast_forward_inputs = forward_inputs, cast_forward_inputs

    def forward(self, x: Any) -> Any:
        self.forward_inputs[self] = x
        return self.l(x.to(self.l.weight.dtype) if self.cast_forward_inputs else x)


class SaveForwardInputsModel(torch.nn.Module):
    """Two of those; it remembers, too."""

    def __init__(self, forward_inputs: dict, cast_forward_inputs: bool) -> None:
        super().__init__()
        self.c1 = SaveForwardInputsModule(forward_inputs, cast_forward_inputs)
        self.c2 = SaveForwardInputsModule(forward_inputs, cast_forward_inputs)
        self.forward_inputs = forward_inputs

    def forward(self, x: Any) -> Any:
        self.forward_inputs[self] = x
        return self.c2(self.c1(x))


class MultiThreadedTestCase(MultiProcessTestCase):
    """What PyTorch runs in threads of one process runs in processes here: there is one world in a process."""

    def _spawn_threads(self) -> None:
        self._spawn_processes()

    def perThreadSetUp(self) -> None:
        pass

    def perThreadTearDown(self) -> None:
        pass

    @classmethod
    def _run(cls, rank: int, test_name: str, file_name: str, pipe: Any, **kwargs: Any) -> None:
        self = cls(test_name)
        self.rank, self.file_name = rank, file_name
        world = int(self.world_size)
        dist.init_process_group("gloo", init_method=FILE_SCHEMA + file_name, rank=rank, world_size=world)
        self.perThreadSetUp()
        self.run_test(test_name, pipe)
        self.perThreadTearDown()
        dist.barrier()
        dist.destroy_process_group()


class DistributedTestBase(MultiProcessTestCase):
    """Tests that make their process groups themselves."""

    def setUp(self) -> None:
        super().setUp()
        os.environ["WORLD_SIZE"] = str(self.world_size)
        self._spawn_processes()

    def backend(self, device: str) -> str:
        return "nccl" if "cuda" in device else "gloo"

    def create_pg(self, device: str, world_size: int | None = None) -> Any:
        world = int(self.world_size) if world_size is None else world_size
        path = FILE_SCHEMA + self.file_name
        dist.init_process_group(self.backend(device), init_method=path, rank=self.rank, world_size=world)
        return dist.distributed_c10d._get_default_group()

    def rank_to_device(self, device: str) -> dict[int, list[int]]:
        return {rank: [rank] for rank in range(int(self.world_size))}


def requires_ddp_rank(device: str) -> bool:
    return "cuda" in device


def requires_gloo() -> Callable:
    return lambda function: function


requires_accelerator_dist_backend = skip_if_win32 = lambda *args: lambda function: function


class MultiProcContinuousTest(MultiProcessTestCase):
    """What PyTorch runs in processes that stay runs in fresh ones here."""

    pg: Any = None

    def setUp(self) -> None:
        super().setUp()
        if self.rank == self.MAIN_PROCESS_RANK:
            self._spawn_processes()

    @property
    def init_method(self) -> str:
        return FILE_SCHEMA + self.file_name

    @classmethod
    def backend_str(cls) -> str:
        return "gloo"

    def run_test(self, test_name: str, pipe: Any) -> None:
        type(self).pg = dist.distributed_c10d._get_default_group()
        super().run_test(test_name, pipe)

    @classmethod
    def _init_pg(cls, rank: int, world_size: int, rdvz_file: str) -> None:
        dist.init_process_group(
            cls.backend_str(), init_method=FILE_SCHEMA + rdvz_file, rank=rank, world_size=world_size
        )

    @classmethod
    def _run(cls, rank: int, test_name: str, file_name: str, pipe: Any, **kwargs: Any) -> None:
        self = cls(test_name)
        self.rank = rank
        cls._init_pg(rank, int(self.world_size), file_name)
        self.setUp()
        self.run_test(test_name, pipe)
        self.tearDown()
        dist.barrier()
        dist.destroy_process_group()


def run_subtests(case: Any, subtest_config: dict[str, list], test_fn: Callable, *args: Any, **kwargs: Any) -> None:
    """Calls a test with every combination of some arguments."""
    for values in itertools.product(*subtest_config.values()):
        test_fn(*args, **kwargs, **dict(zip(subtest_config, values)))


def __getattr__(name: str) -> Any:
    return guess(__name__, name)

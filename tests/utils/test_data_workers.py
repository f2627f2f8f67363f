"""Worker processes: what they return, how they fail, what they leave behind."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

import flambeau
import flambeau.multiprocessing as mp
from flambeau.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

METHODS = ["fork", "spawn"]


class Squares(Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return flambeau.full((3,), float(i)) ** 2, i, {"name": str(i), "array": np.full(2, i)}


class Acts(Dataset):
    """Does something to itself at index 2."""

    def __init__(self, act, n=6):
        self.act, self.n = act, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i == 2:
            return self.act(i)
        return i


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id * 100, info.id * 100 + 3 + 4 * info.id))


class OwnError(Exception):
    pass


class DifficultError(Exception):
    def __init__(self, code, reason):
        super().__init__(code, reason)


def raise_own(i):
    raise OwnError(f"at {i}")


def raise_difficult(i):
    raise DifficultError(3, "why")


def raise_local(i):
    class LocalError(Exception):
        pass

    raise LocalError("local")


def kill_oneself(i):
    os.kill(os.getpid(), signal.SIGKILL)


def leave(i):
    os._exit(3)


def sleep_long(i):
    time.sleep(60)


def children():
    return multiprocessing.active_children()


@pytest.fixture(autouse=True)
def no_process_left():
    yield
    gc.collect()
    assert not children()


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_the_same_as_without_workers(method):
    alone = list(DataLoader(Squares(), 4))
    together = list(DataLoader(Squares(), 4, num_workers=2, multiprocessing_context=method))
    assert len(alone) == len(together) == 3
    for (x, i, extra), (y, j, other) in zip(alone, together):
        assert flambeau.equal(x, y) and flambeau.equal(i, j)
        assert extra["name"] == other["name"] and flambeau.equal(extra["array"], other["array"])


def test_batches_are_in_shared_memory_and_writable():
    batch = next(iter(DataLoader(TensorDataset(flambeau.ones(4, 3)), 2, num_workers=1)))[0]
    assert batch.is_shared() and batch.numel() == 6
    batch += 1
    assert batch.tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float64", "complex64"])
def test_dtypes_survive(dtype):
    whole = flambeau.arange(12).reshape(4, 3).to(getattr(flambeau, dtype))
    for collate in (None, list):
        batch = next(iter(DataLoader(TensorDataset(whole), 4, num_workers=1, collate_fn=collate)))
        rows = batch[0] if collate is None else flambeau.stack([row for (row,) in batch])
        assert rows.dtype is whole.dtype and flambeau.equal(rows, whole)


def test_a_view_is_sent_without_all_that_it_is_a_view_of():
    whole = flambeau.zeros(1000, 1000)
    row = next(iter(DataLoader(TensorDataset(whole), None, num_workers=1)))[0]
    assert row.shape == (1000,) and row.untyped_storage().nbytes() == 4000


def test_many_tensors_in_one_message():
    batch = next(iter(DataLoader([flambeau.full((2,), i) for i in range(3000)], 3000, num_workers=1, collate_fn=list)))
    assert [t[1].item() for t in batch] == list(range(3000))


def test_large_indices_and_large_plain_data_do_not_block():
    loader = DataLoader(range(400_000), 100_000, num_workers=2, collate_fn=lambda b: (b, "x" * 3_000_000))
    assert [batch[0] for batch, _ in loader] == [0, 100_000, 200_000, 300_000]


def test_order_is_kept_when_a_worker_is_slow():
    loader = DataLoader(Acts(lambda i: time.sleep(0.3) or i), num_workers=2)
    assert [b.item() for b in loader] == list(range(6))


def test_without_order_the_slow_one_does_not_hold_up_the_others():
    loader = DataLoader(Acts(lambda i: time.sleep(0.5) or i, 8), num_workers=2, in_order=False)
    order = [b.item() for b in loader]
    assert sorted(order) == list(range(8)) and order != list(range(8))


def test_iterable_datasets_of_different_lengths():
    assert [b.tolist() for b in DataLoader(Stream(), 2, num_workers=2)] == [
        [0, 1], [100, 101], [2], [102, 103], [104, 105], [106],
    ]  # fmt: skip


def test_worker_info():
    def about(i):
        info = get_worker_info()
        return info.id, info.num_workers, info.dataset.n, flambeau.get_num_threads()

    assert get_worker_info() is None
    loader = DataLoader(Acts(about, 3), num_workers=1, collate_fn=lambda b: b[0])
    assert list(loader)[2] == (0, 1, 3, 1)


def test_kernels_run_in_forked_workers():
    weights = flambeau.randn(300, 300)
    weights @ weights  # starts the threads that a fork does not copy

    def heavy(i):
        return ((weights @ weights).sum() + flambeau.randn(1_000_000).relu().mean()) * 0 + i

    loader = DataLoader(Acts(heavy, 4), num_workers=2, timeout=30)
    assert [float(b) for b in loader] == [0, 1, 2, 3]


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_keeps_its_type_and_traceback(method):
    loader = DataLoader(Acts(raise_own), num_workers=2, multiprocessing_context=method)
    with pytest.raises(OwnError, match="(?s)Caught OwnError in DataLoader worker process 0.*raise_own.*at 2"):
        list(loader)


@pytest.mark.parametrize("act, name", [(raise_difficult, "DifficultError"), (raise_local, "LocalError")])
def test_an_exception_that_cannot_be_rebuilt_becomes_a_runtime_error(act, name):
    with pytest.raises(RuntimeError, match=f"Caught {name} in DataLoader worker process 0"):
        list(DataLoader(Acts(act), num_workers=1))


def test_iteration_goes_on_after_an_exception():
    loader = iter(DataLoader(Acts(raise_own), num_workers=2))
    seen = []
    for _ in range(6):
        try:
            seen.append(next(loader).item())
        except OwnError:
            seen.append("error")
    assert seen == [0, 1, "error", 3, 4, 5]
    with pytest.raises(StopIteration):
        next(loader)


def test_a_batch_that_cannot_be_pickled():
    with pytest.raises(Exception, match="(?s)in DataLoader worker process 0.*pickle"):
        list(DataLoader(Acts(lambda i: lambda: i, 3), num_workers=1, collate_fn=lambda b: b[0]))


def test_a_graph_does_not_travel():
    w = flambeau.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        list(DataLoader(Acts(lambda i: w * 2, 3), num_workers=1, collate_fn=lambda b: b[0]))


def test_worker_init_fn():
    loader = DataLoader(Squares(2), num_workers=2, worker_init_fn=raise_own)
    with pytest.raises(OwnError, match="worker process 0"):
        next(iter(loader))


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_worker(method):
    loader = DataLoader(Acts(kill_oneself), num_workers=2, multiprocessing_context=method)
    iterator = iter(loader)
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly.*signal: Killed"):
        for _ in range(6):
            next(iterator)
    with pytest.raises(RuntimeError, match="have been stopped"):
        next(iterator)


def test_a_worker_that_exits():
    with pytest.raises(RuntimeError, match=r"exited unexpectedly.*exit code is 3"):
        list(DataLoader(Acts(leave), num_workers=2))


def test_timeout():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.5 seconds"):
        list(DataLoader(Acts(sleep_long), num_workers=2, timeout=0.5))
    gc.collect()
    assert not children()
    assert time.monotonic() - start < 10


def test_a_stopped_process_does_not_block_the_loader():
    iterator = iter(DataLoader(Squares(100), num_workers=1, timeout=60))
    next(iterator)  # on a crowded machine a process may take its time to start
    iterator._timeout = 0.5
    os.kill(iterator._team.processes[0].pid, signal.SIGSTOP)
    with pytest.raises(RuntimeError, match="timed out"):
        for _ in range(100):
            next(iterator)


def test_no_shared_memory_left():
    def limit(worker_id):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    loader = DataLoader(TensorDataset(flambeau.zeros(4, 1 << 20)), 4, num_workers=1, worker_init_fn=limit)
    with pytest.raises(RuntimeError, match="unable to allocate 16777216 bytes of shared memory"):
        next(iter(loader))


def test_leaving_a_loop_early_ends_the_workers():
    for _ in DataLoader(Squares(100), num_workers=2):
        break
    gc.collect()
    assert not children()


def test_persistent_workers():
    loader = DataLoader(Squares(8), 2, num_workers=2, persistent_workers=True)
    first = [b[1].tolist() for b in loader]
    pids = {p.pid for p in children()}
    assert len(pids) == 2
    next(iter(loader))  # an epoch that is not finished
    assert [b[1].tolist() for b in loader] == first == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert {p.pid for p in children()} == pids
    stream = DataLoader(Stream(), 2, num_workers=2, persistent_workers=True)
    assert [b.tolist() for b in stream] == [b.tolist() for b in stream]


def test_persistent_workers_are_replaced_after_a_death():
    loader = DataLoader(Squares(4), num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 4
    os.kill(children()[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="Killed"):
        list(loader)
    assert len(list(loader)) == 4


def test_a_failed_start_leaves_nothing():
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        list(DataLoader(Acts(lambda i: i), num_workers=2, multiprocessing_context="spawn"))


def resident_pages():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1])


def mappings():
    with open("/proc/self/maps") as f:
        return sum(1 for _ in f)


def test_fifty_epochs_leave_no_memory_or_descriptors_behind():
    loader = DataLoader(TensorDataset(flambeau.zeros(64, 5000)), 16, num_workers=1, persistent_workers=True)

    def epoch():
        for (batch,) in loader:
            batch.sum()

    for _ in range(5):
        epoch()
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), mappings(), resident_pages()
    for _ in range(50):
        epoch()
    gc.collect()
    after = len(os.listdir("/proc/self/fd")), mappings(), resident_pages()
    assert after[0] <= before[0] and after[1] <= before[1] + 8
    assert (after[2] - before[2]) * os.sysconf("SC_PAGE_SIZE") < 5 << 20  # one epoch alone is 1.3 MB, fifty are 64


class KeepsBatches:
    """A collate function that remembers what it returned, and returns the first one again now and then."""

    def __init__(self):
        self.kept = []

    def __call__(self, samples):
        batch = flambeau.utils.data.default_collate(samples)
        self.kept.append(batch)
        return batch, [b[:, 0].tolist() for b in self.kept], self.kept[0]


def test_memory_is_not_used_again_while_a_worker_or_the_loader_looks_at_it():
    rows = [flambeau.full((5000,), float(i)) for i in range(40)]
    held = []
    for i, (batch, kept, first) in enumerate(DataLoader(rows, 1, num_workers=1, collate_fn=KeepsBatches())):
        assert batch[0, 0].item() == i and kept == [[float(k)] for k in range(i + 1)]
        assert first[0, 4999].item() == 0
        if i % 3 == 0:
            held.append((i, batch))
    for i, batch in held:
        assert (batch == i).all()


def test_memory_is_used_again():
    places = [b.data_ptr() for (b,) in DataLoader(TensorDataset(flambeau.zeros(400, 5000)), 4, num_workers=1)]
    assert len(places) == 100 and len(set(places)) < 20


def test_memory_that_a_forked_child_may_see_is_not_used_again():
    data = flambeau.arange(60.0).reshape(60, 1).expand(60, 5000).contiguous()
    iterator = iter(DataLoader(TensorDataset(data), 1, num_workers=1))
    batch = next(iterator)[0]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent has gone on
        os._exit(0 if (batch == 0).all() else 1)
    os.close(read)
    del batch
    for _ in iterator:
        pass
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0


def test_a_batch_that_fails_to_be_pickled_gives_its_memory_back():
    def sometimes(samples):
        index = samples[0]
        return flambeau.full((5000,), float(index)), (lambda: 0) if index % 2 else index

    iterator = iter(DataLoader(range(100), 1, num_workers=1, collate_fn=sometimes))
    places = set()
    for i in range(100):
        if i % 2:
            with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
                next(iterator)
        else:
            batch, index = next(iterator)
            assert index == i and (batch == i).all()
            places.add(batch.data_ptr())
    assert len(places) < 20


def test_batches_can_all_be_kept():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = max(map(int, os.listdir("/proc/self/fd")))  # other tests may have left some
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 128, limit[1]))
    try:
        kept = [b for (b,) in DataLoader(TensorDataset(flambeau.arange(400.0)), 1, num_workers=2)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert [b.item() for b in kept] == list(range(400))


SCRIPT = """
import sys, flambeau
from flambeau.utils.data import DataLoader
loader = DataLoader(range(1000), num_workers=2, persistent_workers={persistent})
iterator = iter(loader)
print(next(iterator).item(), *[p.pid for p in iterator._team.processes], flush=True)
{ending}
"""


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "raise SystemExit(0)", "import os; os._exit(0)", "1/0"])
def test_interpreter_exit(persistent, ending):
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(persistent=persistent, ending=ending)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == (1 if ending == "1/0" else 0)
    assert "Traceback" not in run.stderr or ending == "1/0"
    _, *pids = run.stdout.split()
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while any(_running(int(pid)) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_running(int(pid)) for pid in pids)


def _running(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"  # whoever adopts orphans may be slow to bury them
    except FileNotFoundError:
        return False


def test_iterators_do_not_hold_each_other():
    loader = DataLoader(range(4), num_workers=1)
    iterator = iter(loader)
    reference = weakref.ref(iterator)
    next(iterator)
    del iterator
    assert reference() is None


# -- tensors between processes in general -------------------------------------------------------------------------------


def add_one(tensor, queue, received):
    tensor += 1
    queue.put(tensor[0] * 10)
    received.wait(60)  # memory is handed over by the sender, which must still be there


@pytest.mark.parametrize("method", METHODS)
def test_shared_tensors_are_seen_by_both_processes(method):
    context = mp.get_context(method)
    tensor, queue, received = flambeau.zeros(3).share_memory_(), context.Queue(), context.Event()
    assert tensor.is_shared() and not flambeau.zeros(3).is_shared()
    process = context.Process(target=add_one, args=(tensor, queue, received))
    process.start()
    assert queue.get(timeout=60).item() == 10.0
    received.set()
    process.join()
    assert process.exitcode == 0 and tensor.tolist() == [1.0, 1.0, 1.0]


def test_sharing_strategies():
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system" and before in mp.get_all_sharing_strategies()
    with pytest.raises(AssertionError):
        mp.set_sharing_strategy("pigeon")
    mp.set_sharing_strategy(before)
    assert mp.get_sharing_strategy() == before


def test_full_shared_memory_is_an_error_that_names_the_worker(monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)  # forked workers inherit it
    loader = DataLoader([flambeau.zeros(300_000)] * 4, 2, num_workers=1, multiprocessing_context="fork", timeout=60)
    with pytest.raises(
        RuntimeError, match=r"worker process 0(.|\n)*unable to allocate .* of shared memory.*No space left"
    ):
        list(loader)

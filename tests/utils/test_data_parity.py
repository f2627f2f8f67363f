"""Datasets, samplers, collation and loaders against PyTorch: same seeds, same order, same batches, same errors."""

from __future__ import annotations

import collections
import itertools
import random
import warnings

import numpy as np
import pytest
from answers import judge

import flambeau
import flambeau.utils.data

torch = judge("torch")

LIBRARIES = (flambeau, torch)
Point = collections.namedtuple("Point", "x y")


def plain(value):
    """A value without the library that made it: tensors as (dtype, nested list)."""
    if isinstance(value, (flambeau.Tensor, torch.Tensor)):
        return (str(value.dtype).split(".")[-1], tuple(value.shape), value.tolist())
    if isinstance(value, dict):
        return type(value).__name__, {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [plain(v) for v in value]
    return value


def outcome(function, library):
    """What a call gives: the result, or the type of exception and the start of its message."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = plain(function(library, library.utils.data))
        except Exception as problem:
            return "raised", type(problem).__name__, str(problem)[:28]
    return "returned", result, sorted(str(w.message)[:40] for w in caught if w.category is UserWarning)


def same(function):
    ours, theirs = (outcome(function, library) for library in LIBRARIES)
    assert ours == theirs
    return ours


def seeded(library, seed=7):
    return library.Generator().manual_seed(seed)


def shared_generator_loader(t, d):
    g = seeded(t)
    loader = d.DataLoader(range(9), 2, shuffle=True, generator=g)
    return [list(loader), list(loader), t.rand(2, generator=g)]


ORDERS = {
    "random": lambda t, d: list(d.RandomSampler(range(20))),
    "random twice": lambda t, d: [list(s) for s in [d.RandomSampler(range(20))] * 2],
    "random with replacement": lambda t, d: list(d.RandomSampler(range(20), replacement=True, num_samples=75)),
    "random, more than there are": lambda t, d: list(d.RandomSampler(range(7), num_samples=25)),
    "random, own generator": lambda t, d: list(d.RandomSampler(range(20), generator=seeded(t))),
    "subset": lambda t, d: list(d.SubsetRandomSampler([3, 1, 4, 15, 9])),
    "subset, own generator": lambda t, d: list(d.SubsetRandomSampler([3, 1, 4, 15, 9], generator=seeded(t))),
    "weighted": lambda t, d: list(d.WeightedRandomSampler([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 12)),
    "weighted, no replacement": lambda t, d: list(d.WeightedRandomSampler([0.9, 0.4, 0.05, 0.2], 3, False)),
    "weighted, own generator": lambda t, d: list(d.WeightedRandomSampler([1, 2, 3], 9, generator=seeded(t))),
    "batches": lambda t, d: list(d.BatchSampler(d.RandomSampler(range(10)), 3, False)),
    "whole batches": lambda t, d: list(d.BatchSampler(d.SequentialSampler(range(10)), 3, True)),
    "split": lambda t, d: [s.indices for s in d.random_split(range(17), [10, 5, 2])],
    "split by fractions": lambda t, d: [s.indices for s in d.random_split(range(17), [0.3, 0.3, 0.4])],
    "split with generator": lambda t, d: [s.indices for s in d.random_split(range(9), [3, 6], generator=seeded(t))],
    "split with an empty part": lambda t, d: [len(s) for s in d.random_split(range(3), [0.1, 0.9])],
    "loader": lambda t, d: list(d.DataLoader(range(11), 3, shuffle=True)),
    "loader, two epochs": lambda t, d: [list(x) for x in [d.DataLoader(range(11), 3, shuffle=True)] * 2],
    "loader, no batches": lambda t, d: list(d.DataLoader(range(11), None, shuffle=True)),
    "loader, then the generator": lambda t, d: [list(d.DataLoader(range(4))), t.rand(3)],
    "loader sharing a generator": shared_generator_loader,
    "loader with workers": lambda t, d: list(d.DataLoader(range(11), 3, shuffle=True, num_workers=2)),
    "loader with workers, then the generator": lambda t, d: [list(d.DataLoader(range(4), num_workers=1)), t.rand(3)],
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_order(name):
    for seed in (0, 12345):
        for library in LIBRARIES:
            library.manual_seed(seed)
        assert same(ORDERS[name])[0] == "returned"


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("size", [1, 8, 10, 11])
def test_distributed_sampler(shuffle, drop_last, size):
    def parts(t, d):
        samplers = [d.DistributedSampler(range(size), 4, rank, shuffle, 3, drop_last) for rank in range(4)]
        for s in samplers:
            s.set_epoch(2)
        return [(len(s), list(s)) for s in samplers]

    assert same(parts)[0] == "returned"


SAMPLES = {
    "tensors": lambda t: [t.arange(6.0).reshape(2, 3) + i for i in range(4)],
    "strided tensors": lambda t: [t.arange(6.0).reshape(2, 3).t() + i for i in range(4)],
    "scalar tensors": lambda t: [t.tensor(i) for i in range(4)],
    "no elements": lambda t: [t.zeros(0, 3) for _ in range(3)],
    "mixed dtypes": lambda t: [t.tensor([1]), t.tensor([2.5])],
    "bfloat16": lambda t: [t.ones(2, dtype=t.bfloat16), t.zeros(2, dtype=t.bfloat16)],
    "different shapes": lambda t: [t.zeros(2), t.zeros(3)],
    "arrays": lambda t: [np.arange(3, dtype=np.int16) + np.int16(i) for i in range(3)],
    "arrays of mixed dtypes": lambda t: [np.zeros(2, np.float32), np.zeros(2)],
    "arrays of strings": lambda t: [np.array(["a"]), np.array(["b"])],
    "numpy numbers": lambda t: [np.float32(1), np.float32(2)],
    "numpy bools": lambda t: [np.bool_(True), np.bool_(False)],
    "ints": lambda t: [1, 2, 3],
    "bools": lambda t: [True, False],
    "floats": lambda t: [1.5, 2.5],
    "ints and floats": lambda t: [1, 2.5],
    "strings": lambda t: ["a", "b"],
    "bytes": lambda t: [b"a", b"b"],
    "tuples": lambda t: [(1, "a", t.ones(2)), (2, "b", t.zeros(2))],
    "lists": lambda t: [[1, 2.0], [3, 4.0]],
    "uneven lists": lambda t: [[1, 2], [3]],
    "dicts": lambda t: [{"x": 1, "y": {"z": 2.0}}, {"x": 3, "y": {"z": 4.0}}],
    "ordered dicts": lambda t: [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "default dicts": lambda t: [collections.defaultdict(int, a=1), collections.defaultdict(int, a=2)],
    "named tuples": lambda t: [Point(1, t.ones(1)), Point(2, t.ones(1))],
    "missing key": lambda t: [{"x": 1}, {"y": 1}],
    "objects": lambda t: [object(), object()],
    "none": lambda t: [None, None],
    "deque": lambda t: [collections.deque([1, 2]), collections.deque([3, 4])],
    "ranges": lambda t: [range(2), range(2)],
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("function", ["default_collate", "default_convert"])
def test_collate(name, function):
    samples = SAMPLES[name](None) if name == "objects" else None
    same(lambda t, d: getattr(d, function)(samples or SAMPLES[name](t)))


@pytest.mark.parametrize("name", SAMPLES)
def test_convert_one_sample(name):
    if name != "objects":  # two calls make two of them
        same(lambda t, d: d.default_convert(SAMPLES[name](t)[0]))


def test_collate_with_a_map_of_ones_own():
    def run(t, d):
        c = d._utils.collate
        own = {t.Tensor: lambda batch, *, collate_fn_map: sum(batch), **c.default_collate_fn_map}
        own[t.Tensor] = lambda batch, *, collate_fn_map: sum(batch)
        return c.collate([(t.ones(2), 1), (t.ones(2), 2)], collate_fn_map=own)

    assert same(run)[0] == "returned"


def iterable(d, items, sized=None):
    class Stream(d.IterableDataset):
        def __iter__(self):
            info = d.get_worker_info()
            return iter(items if info is None else items[info.id :: info.num_workers])

        def __repr__(self):
            return "Stream"

    if sized is not None:
        Stream.__len__ = lambda self: sized
    return Stream()


def pairs(t, d, n=10):
    return d.TensorDataset(t.arange(2.0 * n).reshape(n, 2), t.arange(n))


def length_then_batches(t, d):
    loader = d.DataLoader(iterable(d, range(5), 3), 2)
    return [len(loader), list(loader)]


LOADERS = {
    "tensors": lambda t, d: list(d.DataLoader(pairs(t, d), 3)),
    "tensors, last dropped": lambda t, d: list(d.DataLoader(pairs(t, d), 3, drop_last=True)),
    "subset of tensors": lambda t, d: list(d.DataLoader(d.Subset(pairs(t, d), [5, 1, -1]), 2)),
    "concatenated": lambda t, d: list(d.DataLoader(pairs(t, d) + pairs(t, d, 3), 4)),
    "stacked": lambda t, d: list(d.DataLoader(d.StackDataset(pairs(t, d), range(10)), 4)),
    "stacked by name": lambda t, d: list(d.DataLoader(d.StackDataset(a=pairs(t, d), b=range(10)), 4)),
    "batch sampler": lambda t, d: list(d.DataLoader(pairs(t, d), batch_sampler=[[1, 2], [3]])),
    "sampler": lambda t, d: list(d.DataLoader(pairs(t, d), 2, sampler=[4, 2, 9])),
    "tensor indices": lambda t, d: list(d.DataLoader(pairs(t, d), 2, sampler=t.tensor([4, 2, 9]))),
    "index out of range": lambda t, d: list(d.DataLoader(pairs(t, d), 2, sampler=[4, 12])),
    "no batches": lambda t, d: list(d.DataLoader(pairs(t, d), None)),
    "own collate": lambda t, d: list(d.DataLoader(pairs(t, d), 4, collate_fn=len)),
    "iterable": lambda t, d: list(d.DataLoader(iterable(d, range(7)), 3)),
    "iterable, last dropped": lambda t, d: list(d.DataLoader(iterable(d, range(7)), 3, drop_last=True)),
    "iterable, no batches": lambda t, d: list(d.DataLoader(iterable(d, range(7)), None)),
    "chained": lambda t, d: list(d.DataLoader(iterable(d, range(3)) + iterable(d, range(4)), 2)),
    "iterable with workers": lambda t, d: list(d.DataLoader(iterable(d, range(23)), 2, num_workers=2)),
    "iterable, longer than it said": length_then_batches,
    "iterable without length": lambda t, d: len(d.DataLoader(iterable(d, range(3)))),
    "lengths": lambda t, d: [len(d.DataLoader(range(n), 3, drop_last=last)) for n in (3, 7) for last in (True, False)],
    "pinned": lambda t, d: list(d.DataLoader(range(3), pin_memory=True)),
    "many workers": lambda t, d: len(d.DataLoader(range(3), num_workers=500)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOADERS)
def test_loader(name):
    same(LOADERS[name])


MISTAKES = {
    "workers": lambda t, d: d.DataLoader(range(3), num_workers=-1),
    "timeout": lambda t, d: d.DataLoader(range(3), timeout=-1),
    "timeout without workers": lambda t, d: iter(d.DataLoader(range(3), timeout=1)),
    "prefetch without workers": lambda t, d: d.DataLoader(range(3), prefetch_factor=2),
    "negative prefetch": lambda t, d: d.DataLoader(range(3), num_workers=1, prefetch_factor=-2),
    "no prefetch": lambda t, d: iter(d.DataLoader(range(3), num_workers=1, prefetch_factor=0)),
    "persistent without workers": lambda t, d: d.DataLoader(range(3), persistent_workers=True),
    "sampler and shuffle": lambda t, d: d.DataLoader(range(3), sampler=[1], shuffle=True),
    "batch sampler and size": lambda t, d: d.DataLoader(range(3), 2, batch_sampler=[[1]]),
    "no batches but drop": lambda t, d: d.DataLoader(range(3), None, drop_last=True),
    "batch size": lambda t, d: d.DataLoader(range(3), 0),
    "batch size of wrong type": lambda t, d: d.DataLoader(range(3), 1.5),
    "drop_last of wrong type": lambda t, d: d.BatchSampler(range(3), 1, 1),
    "nothing to shuffle": lambda t, d: d.DataLoader([], shuffle=True),
    "iterable and shuffle": lambda t, d: d.DataLoader(iterable(d, []), shuffle=True),
    "iterable and sampler": lambda t, d: d.DataLoader(iterable(d, []), sampler=[1]),
    "iterable and batch sampler": lambda t, d: d.DataLoader(iterable(d, []), batch_sampler=[[1]]),
    "context without workers": lambda t, d: d.DataLoader(range(3), multiprocessing_context="fork"),
    "unknown context": lambda t, d: d.DataLoader(range(3), num_workers=1, multiprocessing_context="thread"),
    "wrong context": lambda t, d: d.DataLoader(range(3), num_workers=1, multiprocessing_context=3),
    "change after the fact": lambda t, d: setattr(d.DataLoader(range(3)), "batch_size", 2),
    "replacement": lambda t, d: d.RandomSampler(range(3), replacement=1),
    "num_samples": lambda t, d: d.RandomSampler(range(3), num_samples=0),
    "weights": lambda t, d: d.WeightedRandomSampler([[1.0]], 1),
    "weighted num_samples": lambda t, d: d.WeightedRandomSampler([1.0], 0),
    "weighted replacement": lambda t, d: d.WeightedRandomSampler([1.0], 1, 1),
    "rank": lambda t, d: d.DistributedSampler(range(3), 2, 2),
    "tensor sizes": lambda t, d: d.TensorDataset(t.ones(2), t.ones(3)),
    "no tensors": lambda t, d: len(d.TensorDataset()),
    "stack sizes": lambda t, d: d.StackDataset(range(2), range(3)),
    "stack of nothing": lambda t, d: d.StackDataset(),
    "stack both ways": lambda t, d: d.StackDataset(range(2), a=range(2)),
    "nothing to concatenate": lambda t, d: d.ConcatDataset([]),
    "concatenated streams": lambda t, d: d.ConcatDataset([iterable(d, [])]),
    "index far below": lambda t, d: d.ConcatDataset([range(2)])[-3],
    "index far above": lambda t, d: d.ConcatDataset([range(2)])[3],
    "chained maps": lambda t, d: list(d.ChainDataset([range(2)])),
    "no getitem": lambda t, d: d.Dataset()[0],
    "split lengths": lambda t, d: d.random_split(range(3), [1, 1]),
    "split fraction": lambda t, d: d.random_split(range(3), [1.5, -0.5]),
    "subset without getitems": lambda t, d: type("S", (d.Subset,), {"__getitem__": lambda s, i: i})([1], [0]),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name):
    ours, theirs = (outcome(MISTAKES[name], library) for library in LIBRARIES)
    assert theirs[0] == "raised"
    if name == "subset without getitems":  # the advice is in our own words
        ours, theirs = ours[:2], theirs[:2]
    assert ours == theirs


class Noise:
    """Random numbers from all three generators of the worker."""

    def __init__(self, library):
        self.library = library

    def __len__(self):
        return 6

    def __getitem__(self, i):
        data = self.library.utils.data
        info = data.get_worker_info()
        return (
            i,
            self.library.rand(2),
            random.random(),
            np.random.rand(),
            info.seed,
            info.id,
            self.library.initial_seed(),
        )


@pytest.mark.parametrize("generator", [False, True])
def test_worker_seeds(generator):
    def run(t, d):
        t.manual_seed(11)
        own = seeded(t) if generator else None
        loader = d.DataLoader(Noise(t), 2, num_workers=2, generator=own, worker_init_fn=lambda i: None)
        return list(loader)

    assert same(run)[0] == "returned"


def test_persistent_workers_keep_their_generators():
    def run(t, d):
        t.manual_seed(11)
        loader = d.DataLoader(Noise(t), 2, shuffle=True, num_workers=2, persistent_workers=True)
        return list(itertools.chain(loader, loader))

    assert same(run)[0] == "returned"


class Faulty:
    def __init__(self, problem):
        self.problem = problem

    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 2:
            raise self.problem
        return i


@pytest.mark.parametrize(
    "problem", [ValueError("bad"), KeyError("k"), IndexError("i"), UnicodeDecodeError("u", b"", 0, 1, "r")]
)
def test_exception_in_a_worker(problem):
    def run(t, d):
        loader = iter(d.DataLoader(Faulty(problem), num_workers=1))
        seen = [next(loader), next(loader)]
        try:
            next(loader)
        except Exception as caught:
            seen.append((type(caught).__name__, str(caught).split("\n")[0], str(caught).strip().split("\n")[-1]))
        return [*seen, next(loader)]

    assert same(run)[0] == "returned"

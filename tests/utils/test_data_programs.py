"""Small programs with loaders of data and other tools in which one word of the library decides: PyTorch does the same."""

from __future__ import annotations

import pytest
from answers.programs import check, short

SETUP = """
from collections import namedtuple
L.manual_seed(7)
D = module('utils.data')
P = namedtuple("P", "x y")
class Numbers(D.Dataset):
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        return i * 10
class Stream(D.IterableDataset):
    def __iter__(self):
        return iter(range(7))
"""
PROGRAMS = [
    "[list(s) for s in (D.SequentialSampler(Numbers(4)), D.RandomSampler(Numbers(5)), D.RandomSampler(Numbers(5), True, 8), D.RandomSampler(Numbers(5), num_samples=12), D.RandomSampler(Numbers(5), num_samples=3), D.SubsetRandomSampler([3, 5, 9]), D.WeightedRandomSampler([0.1, 0.0, 0.9, 3.0], 9), D.WeightedRandomSampler([0.1, 0.2, 0.9], 2, False), D.BatchSampler(D.SequentialSampler(Numbers(7)), 3, False), D.BatchSampler(D.SequentialSampler(Numbers(7)), 3, True), D.RandomSampler(Numbers(40), True, 40, L.Generator().manual_seed(2)))], L.rand(1)",
    "[len(s) for s in (D.RandomSampler(Numbers(5), True, 8), D.BatchSampler(D.SequentialSampler(Numbers(7)), 3, False), D.BatchSampler(D.SequentialSampler(Numbers(7)), 3, True), D.WeightedRandomSampler([1.0], 4), D.DataLoader(Numbers(7), 2), D.DataLoader(Numbers(7), 2, drop_last=True), D.DataLoader(Numbers(8), 4), D.DataLoader(Numbers(7), None), D.ConcatDataset([Numbers(2), Numbers(3)]), D.Subset(Numbers(9), [1, 2]))]",
    *(f"[raised(lambda: {c})]" for c in ("D.RandomSampler(Numbers(0))", "D.RandomSampler(Numbers(3), num_samples=0)", "D.RandomSampler(Numbers(3), 1)", "D.WeightedRandomSampler([1.0], 0)", "D.WeightedRandomSampler([[1.0]], 2)", "D.BatchSampler([1], 0, False)", "D.BatchSampler([1], 2, 3)", "D.DataLoader(Numbers(3), 2, batch_sampler=[[1]])", "D.DataLoader(Numbers(3), shuffle=True, sampler=[1])", "D.DataLoader(Numbers(3), None, drop_last=True)", "D.DataLoader(Stream(), shuffle=True)", "D.DataLoader(Stream(), sampler=[1])", "D.DataLoader(Numbers(3), num_workers=-1)", "D.DataLoader(Numbers(3), timeout=-1)", "D.DataLoader(Numbers(3), prefetch_factor=2)", "D.DataLoader(Numbers(3), persistent_workers=True)", "D.random_split(Numbers(5), [2, 2])", "D.random_split(Numbers(5), [0.5, 0.6])", "D.random_split(Numbers(5), [-0.5, 1.5])", "D.ConcatDataset([])", "D.ConcatDataset([Stream()])", "D.ConcatDataset([Numbers(2)])[5]", "D.ConcatDataset([Numbers(2)])[-3]", "D.TensorDataset(L.ones(2), L.ones(3))", "D.StackDataset()", "D.StackDataset(Numbers(2), Numbers(3))", "len(D.DataLoader(Stream()))", "len(D.ChainDataset([Stream()]))")),
    "[[list(map(int, s)) for s in D.random_split(Numbers(n), parts, L.Generator().manual_seed(3))] for n, parts in ((10, [0.35, 0.35, 0.3]), (7, [3, 4]), (11, [0.5, 0.5]), (5, [0.1, 0.9]))], [s.indices for s in D.random_split(Numbers(6), [2, 4])]",
    "c = D.ConcatDataset([Numbers(2), Numbers(3), Numbers(1)])\n[c[i] for i in (0, 1, 2, 4, 5, -1, -6)], c.cumulative_sizes, list(D.ChainDataset([Stream(), Stream()])), D.Subset(Numbers(9), [4, 2])[1], D.Subset(Numbers(9), [4, 2, 7])[[0, 2]], D.Subset(Numbers(9), [4, 2, 7]).__getitems__([0, 2]), D.TensorDataset(exact(3, 2), L.arange(3))[1], D.StackDataset(a=Numbers(3), b=Numbers(3))[2], D.StackDataset(Numbers(3), Numbers(3))[1], (Numbers(2) + Numbers(3))[3]",
    "[list(D.DataLoader(*a, **k)) for a, k in (((Numbers(5), 2), {}), ((Numbers(5), 2, True), {}), ((Numbers(5), 2), {'drop_last': True}), ((Numbers(3), None), {}), ((Stream(), 3), {}), ((Stream(), 3), {'drop_last': True}), ((Numbers(6),), {'batch_sampler': [[1, 2], [5]]}), ((Numbers(6), 4), {'sampler': [5, 0, 1]}), ((Numbers(4), 3), {'collate_fn': sum}), ((Numbers(9), 4, True), {'generator': L.Generator().manual_seed(5)}))], L.rand(1)",
    "C = D.default_collate\n[C(b) for b in ([1, 2], [1.5, 2.5], [True, False], ['a', 'b'], [b'a', b'c'], [(1, 2.0), (3, 4.0)], [[1, 2], [3, 4]], [{'a': 1, 'b': [2]}, {'a': 3, 'b': [4]}], [P(1, 2.0), P(3, 4.0)], [exact(2), exact(2) * 2], [np.arange(2), np.arange(2) + 1], [np.float64(1.5), np.float64(2)], [np.array(3), np.array(4)])], type(C([P(1, 2), P(3, 4)])).__name__, [raised(lambda: C(b)) for b in ([object()], [[1], [1, 2]], [np.array(['a'])], [exact(2), exact(3)], [{'a': 1}, {'b': 1}])], D.default_convert([np.arange(2), {'a': np.float32(1)}, 'x', (1, np.ones(1)), P(np.ones(1), 2)])",
    "S = module('utils.data.distributed').DistributedSampler\nfound = [[list(S(Numbers(n), w, r, s, seed, d)) for r in range(w)] for n, w, s, seed, d in ((10, 3, False, 0, False), (10, 3, False, 0, True), (10, 3, True, 0, False), (10, 4, True, 5, True), (2, 5, False, 0, False))]\ns = S(Numbers(9), 2, 1)\ns.set_epoch(3)\nfound, list(s), len(s), s.num_samples, s.total_size, raised(lambda: S(Numbers(9), 2, 2)), raised(lambda: S(Numbers(9), 2, -1))",
    "G = module('utils._pytree')\nt = {'b': [1, (2, None)], 'a': P(3, {'z': 4})}\nleaves, spec = G.tree_flatten(t)\nleaves, spec.num_leaves, G.tree_unflatten([v and v * 2 for v in leaves], spec), G.tree_map(lambda v: v, t), G.tree_all(lambda v: v is None or v > 0, t), G.tree_any(lambda v: v == 4, t), G.tree_leaves(t, is_leaf=lambda v: isinstance(v, tuple)), [[G.keystr(k), v] for k, v in G.tree_flatten_with_path(t)[0]], raised(lambda: G.tree_unflatten([1], spec)), G.tree_map_only(int, lambda v: -v, t)",
    "R = module('nn.utils.rnn')\nT_ = module('testing')\n[raised(lambda: T_.assert_close(*a, **k)) for a, k in (((exact(3), exact(3) + 1e-6), {}), ((exact(3), exact(3) + 1e-4), {}), ((exact(3), exact(3) + 1e-4), {'rtol': 0, 'atol': 1e-3}), ((exact(3).double(), exact(3).double() + 1e-6), {}), ((exact(3).half(), exact(3).half() + 1e-4), {}), ((exact(3), exact(3).double()), {}), ((exact(3), exact(3).double()), {'check_dtype': False}), ((exact(3) / 0 * 0, exact(3) / 0 * 0), {}), ((exact(3) / 0 * 0, exact(3) / 0 * 0), {'equal_nan': True}), ((exact(4).t(), exact(4)[None]), {}), (([1.0], [1.0 + 1e-8]), {}), ((1, 1.0), {}), ((exact(3), exact(3)), {'rtol': 1e-3}), (({'a': 1}, {'a': 2}), {}), ((exact(6).view(2, 3).t(), exact(6).view(2, 3).t().contiguous()), {'check_stride': True}))]",
    "I = L.iinfo, L.finfo\n[[getattr(I[0](d), n) for n in ('bits', 'min', 'max')] for d in (L.uint8, L.int8, L.int16, L.int32, L.int64)], [[getattr(I[1](d), n) for n in ('bits', 'min', 'max', 'eps', 'tiny', 'smallest_normal', 'resolution')] for d in (L.float16, L.bfloat16, L.float32, L.float64, L.complex64)], [[str(L.promote_types(getattr(L, a), getattr(L, b))) for b in ('uint8', 'int8', 'int32', 'float16', 'bfloat16', 'float32', 'complex64', 'bool')] for a in ('uint8', 'int8', 'int64', 'float16', 'bfloat16', 'float64', 'complex64', 'bool')], [L.can_cast(getattr(L, a), getattr(L, b)) for a in ('float32', 'int8', 'bool', 'complex64') for b in ('int64', 'uint8', 'float16', 'bool')], [str(L.result_type(a, b)) for a in (L.ones(1, dtype=L.int8), L.ones((), dtype=L.float64), 1, 2.5, L.ones(1, dtype=L.bool)) for b in (L.ones(1, dtype=L.float16), 3, 1.5, 1j, L.ones((), dtype=L.int64))]",
    "L.set_printoptions(precision=2, threshold=8, edgeitems=2, linewidth=40)\na = str(exact(20) * 100), str(exact(6, 6)), str(exact(2, 2) * 1e6), str(L.arange(30))\nL.set_printoptions(profile='full', sci_mode=True)\nb = str(exact(3)), str(exact(12, 3)[::4])\nL.set_printoptions(profile='short')\nc = str(exact(4) * 3e-5), str(exact(2000))\nL.set_printoptions(profile='default')\na, b, c, str(exact(3) * 1e-9), str(exact(3) * 1e9), str(L.tensor([1.0, float('nan'), float('-inf')])), str(L.tensor([1e-5, 1000.0])), str(L.tensor([1 + 2j, -0.5j])), str(L.tensor([[True], [False]])), str(L.tensor(3.14159)), repr(exact(2).double().requires_grad_()), repr(exact(2) > 0), str(L.zeros(0, 3)), str(L.tensor([1e10, 1.0])), str(L.tensor([123456.0, 0.1]))",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)

"""DTensor: each check runs in two processes, and compares with the same computation on whole tensors."""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
from collections.abc import Callable

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.distributed._functional_collectives import AsyncCollectiveTensor
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    ones,
    randn,
    zeros,
)
from flambeau.distributed.tensor.debug import CommDebugMode
from flambeau.distributed.tensor.experimental import (
    context_parallel,
    implicit_replication,
    local_map,
    register_sharding,
)
from flambeau.distributed.tensor.experimental._context_parallel import context_parallel_unshard
from flambeau.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from flambeau.distributed.tensor.placement_types import _NormPartial, _StridedShard

from . import worlds


def _mesh(size: int):
    return init_device_mesh("cpu", (size,))


def _same(spread: DTensor, whole: torch.Tensor) -> None:
    assert spread.shape == whole.shape, (spread.shape, whole.shape)
    found = spread.full_tensor()
    assert torch.allclose(found, whole, atol=1e-5, rtol=1e-5), (spread.placements, found, whole)


def spreading_and_gathering(rank: int, size: int) -> None:
    mesh = _mesh(size)
    for shape in ((4, 6), (5, 3), (1, 7)):
        whole = torch.arange(shape[0] * shape[1], dtype=torch.float32).reshape(shape)
        for before in (Shard(0), Shard(1), Shard(-1), Replicate()):
            spread = distribute_tensor(whole, mesh, [before])
            _same(spread, whole)
            for after in (Shard(0), Shard(1), Replicate()):
                moved = spread.redistribute(placements=[after])
                assert moved.placements == (after,)
                _same(moved, whole)
    waiting = DTensor.from_local(torch.ones(3, 4) * (rank + 1), mesh, [Partial()])
    total = sum(range(1, size + 1))
    _same(waiting, torch.full((3, 4), float(total)))
    assert (waiting.redistribute(placements=[Shard(1)]).to_local() == total).all()


def gradients_pass_through(rank: int, size: int) -> None:
    mesh = _mesh(size)
    local = torch.full((2, 3), float(rank + 1), requires_grad=True)
    spread = DTensor.from_local(local, mesh, [Shard(0)])
    spread.redistribute(placements=[Replicate()]).to_local().sum().backward()
    assert torch.equal(local.grad, torch.ones(2, 3))
    leaf = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]).requires_grad_()
    (leaf * leaf * 3).sum().backward()
    assert leaf.grad.placements == (Shard(0),)
    _same(leaf.grad, torch.full((4, 4), 6.0))


@torch.library.custom_op("test_dtensor::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


def rules_of_ones_own(rank: int, size: int) -> None:
    mesh = _mesh(size)
    whole = torch.arange(12.0).reshape(4, 3)
    x = distribute_tensor(whole, mesh, [Shard(0)])
    found = torch.ops.test_dtensor.doubled(x)
    assert found.placements == (Replicate(),)  # nobody has said how parts could be worked on
    _same(found, whole * 2)
    register_sharding(torch.ops.test_dtensor.doubled.default)(
        lambda x: [([Replicate()], [Replicate()]), *(([Shard(d)], [Shard(d)]) for d in range(x.ndim))]
    )
    found = torch.ops.test_dtensor.doubled(x)
    assert found.placements == (Shard(0),)
    _same(found, whole * 2)


def second_derivatives(rank: int, size: int) -> None:
    mesh = _mesh(size)
    torch.manual_seed(7)
    a, b = torch.randn(4, 6), torch.randn(6, 2)
    found = []
    for spread in (False, True):
        x, w = (t.clone().requires_grad_() for t in (a, b))
        if spread:
            x, w = (distribute_tensor(t, mesh, [p]).requires_grad_() for t, p in ((a, Shard(0)), (b, Replicate())))
        loss = (x @ w).tanh().sum()
        gx, gw = torch.autograd.grad(loss, (x, w), create_graph=True)
        ((gx * gx).sum() + (gw**3).sum()).backward()
        found.append((gx, gw, x.grad, w.grad))
    for whole, part in zip(*found):
        _same(part, whole)


def elementwise(rank: int, size: int) -> None:
    mesh = _mesh(size)
    torch.manual_seed(0)
    a, b, c = torch.randn(4, 6), torch.randn(6), torch.randn(4, 1)
    for pa, pb, pc in (([Shard(0)], [Replicate()], [Shard(0)]), ([Shard(1)], [Shard(0)], [Replicate()])):
        x, y, z = (distribute_tensor(t, mesh, p).requires_grad_() for t, p in ((a, pa), (b, pb), (c, pc)))
        wx, wy, wz = (t.clone().requires_grad_() for t in (a, b, c))
        found = (x * y + z.exp() - 2 * x).tanh()
        whole = (wx * wy + wz.exp() - 2 * wx).tanh()
        assert found.placements == tuple(pa)
        _same(found, whole)
        (found * found).sum().backward()
        (whole * whole).sum().backward()
        for spread, plain in ((x, wx), (y, wy), (z, wz)):
            _same(spread.grad, plain.grad)
    waiting = DTensor.from_local(torch.ones(3), mesh, [Partial()])
    assert (waiting * 2 + waiting).placements == (Partial(),)
    _same(waiting * 2 + waiting, torch.full((3,), 3.0 * size))
    assert waiting.relu().placements == (Replicate(),)


def in_place_and_optimizers(rank: int, size: int) -> None:
    mesh = _mesh(size)
    torch.manual_seed(1)
    start, gradient = torch.randn(6, 4), torch.randn(6, 4)
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
    ):
        spread = nn.Parameter(distribute_tensor(start, mesh, [Shard(0)]))
        plain = nn.Parameter(start.clone())
        assert isinstance(spread, nn.Parameter) and isinstance(spread, DTensor)
        for parameter, optimizer in ((spread, make([spread])), (plain, make([plain]))):
            for _ in range(3):
                g = distribute_tensor(gradient, mesh, [Shard(0)]) if parameter is spread else gradient
                parameter.grad = g
                optimizer.step()
                optimizer.zero_grad()
        _same(spread, plain)
    x = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    x.add_(1).mul_(distribute_tensor(torch.full((4,), 3.0), mesh, [Replicate()])).zero_().fill_(2)
    x.copy_(x + 1)
    assert x.placements == (Shard(0),) and x.sum().item() == 12


def batch_norms(rank: int, size: int) -> None:
    """It changes its running statistics, not its first argument."""
    mesh = _mesh(size)
    torch.manual_seed(2)
    x, weight, bias = torch.randn(4, 6, 3), torch.randn(6), torch.randn(6)
    for placement, of_channels in ((Replicate(), Replicate()), (Shard(0), Replicate()), (Shard(1), Shard(0))):
        for training in (False, True):
            for grad in (False, True):
                leaves = [t.clone().requires_grad_(grad) for t in (x, weight, bias)]
                placed = zip(leaves, (placement, of_channels, of_channels))
                spread = [distribute_tensor(t.detach(), mesh, [p]).requires_grad_(grad) for t, p in placed]
                running = torch.zeros(6), torch.ones(6)
                followed = [distribute_tensor(t.clone(), mesh, [of_channels]) for t in running]
                expected = F.batch_norm(leaves[0], *running, *leaves[1:], training=training)
                found = F.batch_norm(spread[0], *followed, *spread[1:], training=training)
                _same(found, expected)
                _same(spread[0], x)
                for mine, wanted in zip(followed, running):
                    _same(mine, wanted)
                if grad:
                    (expected**2).sum().backward()
                    (found**2).sum().backward()
                    for mine, wanted in zip(spread, leaves):
                        _same(mine.grad, wanted.grad)


def _saved_and_loaded(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)


def parts_are_read_and_written(rank: int, size: int) -> None:
    mesh = _mesh(size)
    whole = torch.arange(24.0).reshape(4, 6)
    x = distribute_tensor(whole, mesh, [Shard(0)])
    with torch.no_grad():
        for key in ((slice(None), slice(0, 2)), (1,), (slice(1, 3), 2), (Ellipsis, None)):
            _same(x[key], whole[key])
    changed = whole.clone()
    changed[1:3, ::2] = -1.0
    x[1:3, ::2] = -1.0
    _same(x, changed)
    assert x.placements == (Shard(0),)
    for again in (pickle.loads(pickle.dumps(x)), _saved_and_loaded(x)):
        assert again.placements == (Shard(0),) and again.device_mesh == mesh
        _same(again + 1, changed + 1)
    later = DTensor.from_local(torch.ones(3), mesh, [Partial()]).redistribute(placements=[Replicate()], async_op=True)
    part = later.to_local()
    assert isinstance(part, AsyncCollectiveTensor) and (part * 2).tolist() == [2.0 * size] * 3
    assert x.new_zeros(4, 6).placements == (Shard(0),) and x.new_zeros(3).placements == (Replicate(),)


def new_tensors_and_modules(rank: int, size: int) -> None:
    mesh = _mesh(size)
    assert zeros(5, 3, device_mesh=mesh, placements=[Shard(0)]).to_local().shape[1] == 3
    _same(ones((4, 4), device_mesh=mesh, placements=[Shard(1)]), torch.ones(4, 4))
    torch.manual_seed(3)
    parts = randn(4, 8, device_mesh=mesh, placements=[Shard(0)]).full_tensor().chunk(size)
    assert not torch.equal(parts[0], parts[1])
    assert torch.equal(torch.zeros_like(ones(4, device_mesh=mesh, placements=[Shard(0)])).full_tensor(), torch.zeros(4))
    model = distribute_module(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), mesh)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    again = pickle.loads(pickle.dumps(ones(4, device_mesh=mesh).to_local()))
    assert torch.equal(again, torch.ones(4))
    assert "DTensor(local_tensor=" in repr(ones(2, device_mesh=mesh))


def meshes_of_two_dimensions(rank: int, size: int) -> None:
    if size != 4:
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = torch.arange(7 * 6, dtype=torch.float32).reshape(7, 6)
    ways = [Shard(0), Shard(1), Replicate(), _StridedShard(0, split_factor=2)]
    for before in ((a, b) for a in ways for b in ways[:3]):
        if isinstance(before[0], _StridedShard) and before[1] != Shard(0):
            continue
        spread = distribute_tensor(whole, mesh, before)
        _same(spread, whole)
        for after in ((a, b) for a in ways[:3] for b in ways[:3]):
            _same(spread.redistribute(placements=after), whole)
    a = distribute_tensor(whole, mesh, [Shard(0), Replicate()]).requires_grad_()
    b = distribute_tensor(whole.T, mesh, [Replicate(), Shard(1)]).requires_grad_()
    found = a @ b
    assert found.placements == (Shard(0), Shard(1))
    _same(found, whole @ whole.T)
    found.sum().backward()
    assert a.grad.placements == (Shard(0), Partial()) and b.grad.placements == (Partial(), Shard(1))
    part = distribute_tensor(whole, mesh["tp"], [Shard(1)])
    _same(part + 1, whole + 1)


class Block(nn.Module):
    """A part of a transformer whose attention works with the heads it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.RMSNorm(16)
        self.wq, self.wk, self.wv = (nn.Linear(16, 16) for _ in range(3))
        self.wo, self.w1, self.w2 = nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(32, 16, bias=False)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (w(h).unflatten(-1, (-1, 4)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        x = x + self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.w2(F.silu(self.w1(self.norm2(x))))


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.block, self.out = nn.Embedding(20, 16), Block(), nn.Linear(16, 20, bias=False)

    def forward(self, tokens):
        return self.out(self.block(self.embed(tokens)))


def tensor_parallel_training(rank: int, size: int) -> None:
    mesh = _mesh(size)
    torch.manual_seed(5)
    plain = Language()
    plan = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "block.norm1": SequenceParallel(),
        "block.norm2": SequenceParallel(),
        "block.w[qkv]": ColwiseParallel(input_layouts=Shard(1)),
        "block.wo": RowwiseParallel(output_layouts=Shard(1)),
        "block.w1": ColwiseParallel(input_layouts=Shard(1)),
        "block.w2": RowwiseParallel(output_layouts=Shard(1)),
        "out": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }
    spread = parallelize_module(copy.deepcopy(plain), mesh, plan)
    tokens, classes = torch.randint(20, (2, 8)), torch.randint(20, (2, 8))
    classes[0, 0] = -100
    for _ in range(3):
        losses = []
        for model in (plain, spread):
            scores = model(tokens)
            with loss_parallel() if model is spread else contextlib.nullcontext():
                target = distribute_tensor(classes, mesh, [Replicate()]) if model is spread else classes
                loss = F.cross_entropy(scores.flatten(0, 1), target.flatten())
                loss.backward()
            losses.append(loss.full_tensor() if model is spread else loss)
        assert torch.allclose(*losses, atol=1e-5), losses
        for a, b in zip(plain.parameters(), spread.parameters()):
            _same(b.grad, a.grad)
        for model in (plain, spread):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.step()
            optimizer.zero_grad()


def attention_over_a_spread_sequence(rank: int, size: int) -> None:
    mesh = _mesh(size)
    torch.manual_seed(6)
    q, k, v = (torch.randn(2, 2, 8 * size, 4) for _ in range(3))
    for causal in (False, True):
        wholes = [t.clone().requires_grad_() for t in (q, k, v)]
        expected = F.scaled_dot_product_attention(*wholes, is_causal=causal)
        (expected * expected).sum().backward()
        parts = [t.clone() for t in (q, k, v)]
        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2, 2, 2]):
            assert parts[0].shape[2] == 8
            for t in parts:
                t.requires_grad_()
            found = F.scaled_dot_product_attention(*parts, is_causal=causal)
            (found * found).sum().backward()
            grads = [t.grad for t in parts]
            for t in parts:
                t.requires_grad_(False)
        assert torch.equal(parts[0], q)
        (out,) = context_parallel_unshard(mesh, [found.detach()], [2])
        assert torch.allclose(out, expected, atol=1e-5)
        for g, whole in zip(context_parallel_unshard(mesh, grads, [2, 2, 2]), wholes):
            assert torch.allclose(g, whole.grad, atol=1e-4)


def counting_and_mapping(rank: int, size: int) -> None:
    mesh = _mesh(size)
    a = distribute_tensor(torch.randn(4, 6), mesh, [Shard(0)])
    with CommDebugMode() as comm:
        (a + 1).full_tensor()
        (a @ a.T.redistribute(placements=[Replicate()])).sum().full_tensor()
    counts = comm.get_comm_counts()
    assert counts[torch.ops.c10d_functional.all_gather_into_tensor] == 2
    assert counts[torch.ops.c10d_functional.all_reduce] == 1 and comm.get_total_counts() == 3
    mapped = local_map(lambda x: x * 2 + rank, out_placements=[Shard(0)], in_placements=([Shard(0)],))
    assert torch.equal(mapped(a).to_local(), a.to_local() * 2 + rank)
    with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
        a + torch.ones(4, 6)
    with implicit_replication():
        _same(a + torch.ones(4, 6), a.full_tensor() + 1)


F = nn.functional
# Operators of the tensors of the given shapes, and how the result lies if the first is cut along its first dimension.
OPERATORS = {
    "sum": (lambda a: a.sum(), [(4, 6)], Partial()),
    "sum_dim": (lambda a: a.sum(1), [(4, 6)], Shard(0)),
    "mean": (lambda a: a.mean(0), [(4, 6)], Partial("avg")),
    "var": (lambda a: a.var(1), [(4, 6)], Shard(0)),
    "amax": (lambda a: a.amax(1, keepdim=True), [(4, 6)], Shard(0)),
    "norm": (lambda a: a.norm(), [(4, 6)], _NormPartial(2)),
    "transpose": (lambda a: a.transpose(0, 1), [(4, 6)], Shard(1)),
    "permute": (lambda a: a.permute(1, 2, 0), [(4, 2, 6)], Shard(2)),
    "reshape": (lambda a: a.reshape(4, 2, 3), [(4, 6)], Shard(0)),
    "flatten": (lambda a: a.flatten(0, 1), [(4, 2, 3)], Shard(0)),
    "view": (lambda a: a.view(2, 2, 6), [(4, 6)], Shard(0)),
    "unsqueeze": (lambda a: a.unsqueeze(0), [(4, 6)], Shard(1)),
    "expand": (lambda a: a.unsqueeze(1).expand(4, 3, 6), [(4, 6)], Shard(0)),
    "slice": (lambda a: a[:, 1:4], [(4, 6)], Shard(0)),
    "select": (lambda a: a[:, 2], [(4, 6)], Shard(0)),
    "slice_cut": (lambda a: a[1:3], [(4, 6)], Replicate()),
    "chunk": (lambda a: a.chunk(2, 1)[1], [(4, 6)], Shard(0)),
    "split": (lambda a: torch.cat(a.split([2, 4], -1)[::-1], -1), [(4, 6)], Shard(0)),
    "mm": (lambda a, b: a @ b, [(4, 6), (6, 8)], Shard(0)),
    "bmm": (lambda a, b: torch.bmm(a, b), [(4, 2, 6), (4, 6, 3)], Shard(0)),
    "matmul": (lambda a, b: a @ b, [(4, 2, 6), (6, 3)], Shard(0)),
    "addmm": (lambda a, b, c: torch.addmm(c, a, b), [(4, 6), (6, 2), (2,)], Shard(0)),
    "linear": (lambda a, b, c: F.linear(a, b, c), [(4, 3, 6), (8, 6), (8,)], Shard(0)),
    "softmax": (lambda a: a.softmax(-1), [(4, 6)], Shard(0)),
    "log_softmax": (lambda a: F.log_softmax(a, 1), [(4, 6)], Shard(0)),
    "layer_norm": (lambda a, b, c: F.layer_norm(a, (6,), b, c), [(4, 2, 6), (6,), (6,)], Shard(0)),
    "rms_norm": (lambda a, b: F.rms_norm(a, (6,), b), [(4, 6), (6,)], Shard(0)),
    "gelu": (lambda a: F.gelu(a), [(4, 6)], Shard(0)),
    "where": (lambda a, b: torch.where(a > 0, a, b), [(4, 6), (4, 6)], Shard(0)),
    "cumsum": (lambda a: a.cumsum(1), [(4, 6)], Shard(0)),
    "cat": (lambda a, b: torch.cat([a, b], 1), [(4, 6), (4, 2)], Shard(0)),
    "stack": (lambda a, b: torch.stack([a, b]), [(4, 6), (4, 6)], Shard(1)),
    "conv2d": (lambda a, b, c: F.conv2d(a, b, c), [(4, 2, 5, 5), (4, 2, 3, 3), (4,)], Shard(0)),
    "attention": (
        lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True),
        [(4, 2, 6, 8), (4, 2, 6, 8), (4, 2, 6, 8)],
        Shard(0),
    ),
    "max_pool": (lambda a: F.max_pool2d(a, 2), [(4, 2, 6, 6)], None),
    "mse_loss": (lambda a, b: F.mse_loss(a, b), [(4, 6), (4, 6)], Partial("avg")),
    "einsum": (lambda a, b: torch.einsum("bik,bkj->bij", a, b), [(4, 2, 6), (4, 6, 3)], Shard(0)),
    "sort": (lambda a: a.sort(1).values, [(4, 6)], Shard(0)),
    "tril": (lambda a: a.tril(), [(4, 2, 6)], Shard(0)),
    "repeat": (lambda a: a.repeat(1, 2), [(4, 6)], None),
    "index": (lambda a: a[torch.tensor([0, 2])], [(4, 6)], None),
    "std": (lambda a: a.std(), [(4, 6)], None),
}


def operators(rank: int, size: int) -> None:
    mesh = _mesh(size)
    torch.manual_seed(2)
    problems = []
    for name, (function, shapes, lying) in OPERATORS.items():
        wholes = [torch.randn(s) for s in shapes]
        ways = [[Shard(0)] + [Replicate()] * (len(shapes) - 1), [Replicate()] * len(shapes)]
        ways += [[Shard(d % len(s)) for s in shapes] for d in (0, 1, 2)]
        ways += [[Shard(1)] + [Shard(0)] * (len(shapes) - 1), [Shard(len(shapes[0]) - 1)] * 1 + [Replicate()] * 9]
        for k, way in enumerate(ways):
            plain = [w.clone().requires_grad_() for w in wholes]
            spread = [distribute_tensor(w, mesh, [p]).requires_grad_() for w, p in zip(wholes, way)]
            try:
                expected, found = function(*plain), function(*spread)
                if k == 0 and lying is not None and size == 2:
                    assert found.placements == (lying,), found.placements
                _same(found, expected)
                (expected * expected).sum().backward()
                (found * found).sum().backward()
                for a, b in zip(spread, plain):
                    _same(a.grad, b.grad)
            except Exception as problem:  # all of them at once: each takes a run of all ranks
                problems.append(f"{name} {way[: len(shapes)]}: {type(problem).__name__} {problem}")
    assert not problems, "\n".join(problems)


CHECKS: list[Callable] = [
    operators,
    tensor_parallel_training,
    attention_over_a_spread_sequence,
    counting_and_mapping,
    meshes_of_two_dimensions,
    spreading_and_gathering,
    gradients_pass_through,
    rules_of_ones_own,
    second_derivatives,
    elementwise,
    in_place_and_optimizers,
    new_tensors_and_modules,
    parts_are_read_and_written,
    batch_norms,
]


test_on_two_ranks = worlds.test_of(CHECKS, 2)

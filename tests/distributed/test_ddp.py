"""DistributedDataParallel: gradients equal those of one process with all the data."""

from __future__ import annotations

import copy
import io

import pytest

import flambeau as torch
import flambeau.distributed as dist
from flambeau import nn
from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
from flambeau.distributed.algorithms.model_averaging import averagers
from flambeau.nn.parallel import DistributedDataParallel as DDP

from . import worlds


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def data(rank, size, n=4):
    torch.manual_seed(1)
    x, y = torch.randn(n * size, 4), torch.randn(n * size, 2)
    return (x, y), (x[n * rank : n * rank + n], y[n * rank : n * rank + n])


def same(one, other, tolerance=1e-5):
    for p, q in zip(one.parameters(), other.parameters()):
        assert torch.allclose(p, q, atol=tolerance), (p, q)


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def _train(rank, size, steps=4, **options):
    alone, model = network(), network()
    ddp = DDP(model, **options)
    everything, own = data(rank, size)
    first, second = torch.optim.SGD(alone.parameters(), lr=0.1), torch.optim.SGD(ddp.parameters(), lr=0.1)
    for _ in range(steps):
        step(alone, first, *everything)
        step(ddp, second, *own)
        same(alone, model)
    return ddp


def plain(rank, size):
    ddp = _train(rank, size)
    facts = ddp._get_ddp_logging_data()
    assert facts["world_size"] == size and facts["has_rebuilt_buckets"] == 1
    assert facts["backward_comm_time"] >= 1


def small_buckets(rank, size):
    ddp = _train(rank, size, bucket_cap_mb=0.0001)
    assert len(ddp.reducer.buckets) > 2


def views_of_buckets(rank, size):
    ddp = _train(rank, size, gradient_as_bucket_view=True)
    flat = ddp.reducer.buckets[0].flat
    assert all(p.grad._storage is flat._storage for p in ddp.parameters())


def static_graph(rank, size):
    _train(rank, size, static_graph=True)
    _train(rank, size, static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=0.0002)


def unused_parameters(rank, size):
    class Forked(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x, which):
            return (self.a if which == 0 else self.b)(x)

    model = Forked()
    ddp = DDP(model, find_unused_parameters=True)
    for _ in range(2):
        ddp(torch.ones(1, 2), rank % 2).sum().backward()
    assert model.a.weight.grad.flatten().tolist() == [1.0] * 4 if size == 2 else model.a.weight.grad is not None
    assert model.c.weight.grad is None
    ddp = DDP(Forked(), static_graph=True)
    for _ in range(2):
        ddp.zero_grad()
        ddp(torch.ones(1, 2), rank % 2).sum().backward()
        assert ddp.module.c.weight.grad is None
        assert size == 1 or ddp.module.b.weight.grad.flatten().tolist() == [1 / 2] * 4
    strict = DDP(Forked())
    strict(torch.ones(1, 2), 0).sum().backward()
    with pytest.raises(RuntimeError, match="Expected to have finished reduction in the prior iteration"):
        strict(torch.ones(1, 2), 0)


def unused_outputs(rank, size):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x):
            return {"a": [self.a(x), None], "b": (self.b(x), "text")}

    model = DDP(Heads(), find_unused_parameters=True)
    for i in range(3):  # the gradients of an output that the loss leaves out do not hold up the others
        model.zero_grad()
        outputs = model(torch.full((1, 2), float(rank)))
        used, other = (model.module.a, model.module.b) if i != 1 else (model.module.b, model.module.a)
        outputs["a" if i != 1 else "b"][0].sum().backward()
        assert used.weight.grad.tolist() == [[(size - 1) / 2] * 2]
        assert other.weight.grad is None
    with pytest.raises(RuntimeError, match="in one backward pass"):  # these would not be averaged
        outputs["b"][0].sum().backward()


def accumulation(rank, size):
    alone, model = network(), network()
    ddp = DDP(model)
    everything, own = data(rank, size)
    for _ in range(2):
        nn.functional.mse_loss(alone(everything[0]), everything[1]).backward()
    with ddp.no_sync():
        nn.functional.mse_loss(ddp(own[0]), own[1]).backward()
    nn.functional.mse_loss(ddp(own[0]), own[1]).backward()
    for p, q in zip(alone.parameters(), model.parameters()):
        assert torch.allclose(p.grad, q.grad, atol=1e-6)


def uneven_inputs(rank, size):
    ddp = DDP(network())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    with ddp.join():
        for i in range(2 + 3 * rank):
            step(ddp, optimizer, torch.ones(2, 4) * i, torch.zeros(2, 2))
    seen = [None] * size
    dist.all_gather_object(seen, [p.tolist() for p in ddp.parameters()])
    assert all(one == seen[0] for one in seen)
    with pytest.raises(RuntimeError, match="exhausted"), ddp.join(throw_on_early_termination=True):
        for i in range(1 + rank):
            step(ddp, optimizer, torch.ones(2, 4) * i, torch.zeros(2, 2))


def communication_hooks(rank, size):
    hooks = [
        (default_hooks.allreduce_hook, None, 1e-5), (default_hooks.fp16_compress_hook, None, 1e-2),
        (default_hooks.bf16_compress_hook, None, 3e-2), (quantization_hooks.quantization_perchannel_hook, None, 2e-2),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), None, 1e-2),
    ]  # fmt: skip
    for hook, state, tolerance in hooks:
        alone, model = network(), network()
        ddp = DDP(model)
        ddp.register_comm_hook(state, hook)
        everything, own = data(rank, size)
        first, second = torch.optim.SGD(alone.parameters(), lr=0.1), torch.optim.SGD(ddp.parameters(), lr=0.1)
        for _ in range(3):
            step(alone, first, *everything)
            step(ddp, second, *own)
        same(alone, model, tolerance)
    with pytest.raises(TypeError, match="must be callable"):
        ddp.register_comm_hook({}, {})


def power_sgd(rank, size):
    torch.manual_seed(0)
    model = nn.Linear(40, 30, bias=False)
    ddp = DDP(model)
    state = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    torch.manual_seed(5)
    u, v = torch.randn(30, 1), torch.randn(40, 1)  # the gradient has rank 1: nothing is lost
    for _ in range(6):
        model.weight.grad = None
        (ddp(v.t()) @ (u * (rank + 1))).sum().backward()
    expected = (u @ v.t()) * (size + 1) / 2
    assert torch.allclose(model.weight.grad, expected, atol=1e-3)
    assert state.compression_stats()[0] > 5


def buffers_and_pickles(rank, size):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    ddp = DDP(model)
    ddp(torch.randn(8, 4)).sum().backward()
    ddp(torch.randn(8, 4) + rank)
    ddp(torch.zeros(2, 4))
    file = io.BytesIO()
    torch.save(ddp.state_dict(), file)
    assert all(name.startswith("module.") for name in ddp.state_dict())
    twin = copy.deepcopy(ddp)
    same(twin, ddp)


def sync_batch_norm(rank, size):
    torch.manual_seed(0)
    x, w = torch.randn(3 * size, 3, 4), torch.randn(3 * size, 3, 4)
    alone, together = nn.BatchNorm1d(3), nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3))
    part = slice(0, 1 + rank) if rank == 0 else slice(1, 3 * size)
    one, other = x.clone().requires_grad_(), x[part].clone().requires_grad_()
    if size != 2:
        return
    y, z = alone(one), together(other)
    assert torch.allclose(y[part], z, atol=1e-5)
    (y * w).sum().backward()
    (z * w[part]).sum().backward()
    assert torch.allclose(one.grad[part], other.grad, atol=1e-5)
    assert torch.allclose(alone.running_var, together.running_var)


def optimizers(rank, size):
    from flambeau.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer

    alone, shared = network(), network()
    first = torch.optim.Adam(alone.parameters(), lr=0.01)
    second = ZeroRedundancyOptimizer(shared.parameters(), torch.optim.Adam, lr=0.01)
    everything, _ = data(rank, size)
    for _ in range(3):
        step(alone, first, *everything)
        step(shared, second, *everything)
    same(alone, shared)
    second.consolidate_state_dict(0)
    if rank == 0:
        assert len(second.state_dict()["state"]) == len(first.state_dict()["state"])
    local = network()
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(local.parameters(), lr=0.1), averagers.PeriodicModelAverager(2, warmup_steps=0)
    )
    for i in range(3):
        step(local, optimizer, torch.ones(2, 4) * (rank + i), torch.zeros(2, 2))
    seen = [None] * size
    dist.all_gather_object(seen, [p.tolist() for p in local.parameters()])
    assert all(one == seen[0] for one in seen)


def different_models(rank, size):
    with pytest.raises(RuntimeError, match="appears not to match sizes|expects same model"):
        DDP(nn.Linear(3, 4 + rank))
    with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
        DDP(nn.ReLU())


CHECKS = [
    plain, small_buckets, views_of_buckets, static_graph, unused_parameters, unused_outputs, accumulation, uneven_inputs, communication_hooks,
    power_sgd, buffers_and_pickles, sync_batch_norm, optimizers, different_models,
]  # fmt: skip
_outcome: dict[str, str] = {}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_two_ranks(check):
    if not _outcome:
        _outcome.update(worlds.run(CHECKS, 2))
    assert _outcome[check.__name__] == ""

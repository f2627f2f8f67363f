"""DTensor: each check runs in two processes, and compares with the same computation on whole tensors."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

import flambeau as torch
from flambeau import nn
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


def new_tensors_and_modules(rank: int, size: int) -> None:
    mesh = _mesh(size)
    assert zeros(5, 3, device_mesh=mesh, placements=[Shard(0)]).to_local().shape[1] == 3
    _same(ones((4, 4), device_mesh=mesh, placements=[Shard(1)]), torch.ones(4, 4))
    torch.manual_seed(3)
    parts = [p for p in randn(4, 8, device_mesh=mesh, placements=[Shard(0)]).full_tensor().chunk(size)]
    assert not torch.equal(parts[0], parts[1])
    assert torch.equal(torch.zeros_like(ones(4, device_mesh=mesh, placements=[Shard(0)])).full_tensor(), torch.zeros(4))
    model = distribute_module(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), mesh)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    again = pickle.loads(pickle.dumps(ones(4, device_mesh=None or mesh).to_local()))
    assert torch.equal(again, torch.ones(4))
    assert "DTensor(local_tensor=" in repr(ones(2, device_mesh=mesh))


CHECKS: list[Callable] = [
    spreading_and_gathering,
    gradients_pass_through,
    elementwise,
    in_place_and_optimizers,
    new_tensors_and_modules,
]


@pytest.fixture(scope="module")
def outcome() -> dict[str, str]:
    return worlds.run(CHECKS, 2)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_on_two_ranks(check: Callable, outcome: dict[str, str]) -> None:
    assert not outcome[check.__name__], outcome[check.__name__]

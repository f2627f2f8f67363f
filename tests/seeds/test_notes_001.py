"""Programs of the second notes file: indexing, dropout, parameter groups, clipping."""

from __future__ import annotations

import flambeau as torch
from flambeau.nn import functional as F


def test_index_list_and_none_together():
    x = torch.tensor([1, 2, 3])
    y = x[[0, 2], None]
    assert y.tolist() == [[1], [3]]
    assert torch.equal(y, x[[0, 2]].view(-1, 1))


def test_dropout_scales_what_it_keeps_and_does_nothing_in_eval():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    torch.manual_seed(0)
    y = F.dropout(x, 0.3, training=True)
    scaled = torch.tensor([1.4286, 2.8571, 4.2857, 5.7143, 7.1429])
    assert all(v == 0 or abs(v - s) < 1e-4 for v, s in zip(y.tolist(), scaled.tolist()))
    assert torch.equal(F.dropout(x, 0.3, training=False), x)
    many = F.dropout(torch.ones(10000), 0.3)
    assert abs((many == 0).float().mean().item() - 0.3) < 0.03


def test_scaled_loss_scales_the_gradients():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    z = torch.tensor([2.0, 3.0], requires_grad=True)
    y = torch.sum(x) + torch.sum(z)
    (y * 65536.0).backward()
    assert y.item() == 8.0
    assert x.grad.tolist() == [65536.0, 65536.0]

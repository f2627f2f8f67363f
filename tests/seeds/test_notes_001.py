"""Programs of the second notes file: indexing, dropout, parameter groups, clipping."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau import nn
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


def test_modules_are_born_in_training_mode():
    model = nn.Sequential(nn.Dropout(0.3))
    assert model.training
    model.eval()
    assert not model.training and not model[0].training
    model.train()
    assert model[0].training


def test_dropout_module_in_training_and_evaluation():
    model = nn.Sequential(nn.Dropout(0.3))
    model.train()
    torch.manual_seed(0)
    kept = model(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    scaled = [1.4286, 2.8571, 4.2857, 5.7143, 7.1429]
    assert all(v == 0 or v == pytest.approx(s, abs=1e-4) for v, s in zip(kept.tolist(), scaled))
    model.eval()
    assert model(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def my_module():
    class MyModule(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.linear(x)

    return MyModule()


def test_parameters_saved_and_loaded_again(tmp_path):
    my_model = my_module()
    torch.save(my_model.state_dict(), tmp_path / "xxx.pth")
    fresh = my_module()
    fresh.load_state_dict(torch.load(tmp_path / "xxx.pth"))
    assert torch.equal(fresh.linear.weight, my_model.linear.weight)


def test_clipping_each_tensor_or_all_together():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    z = torch.tensor([2.0, 3.0], requires_grad=True)
    opt = torch.optim.SGD([x, z], lr=0.001)
    (torch.sum(x) + torch.sum(z)).backward()
    torch.nn.utils.clip_grad_norm_(x, 1.0)
    torch.nn.utils.clip_grad_norm_(z, 1.0)
    assert x.grad.tolist() == pytest.approx([0.7071, 0.7071], abs=1e-4)
    opt.step()
    assert x.tolist() == pytest.approx([0.9993, 1.9993], abs=1e-4)
    opt.zero_grad()
    (torch.sum(x) + torch.sum(z)).backward()
    total = torch.nn.utils.clip_grad_norm_([x, z], 1.0)
    assert total.item() == pytest.approx(2.0)
    assert x.grad.tolist() == pytest.approx([0.5, 0.5], abs=1e-4)


@pytest.mark.parametrize("adam", [True, False])
def test_parameter_groups_by_kind_of_parameter(adam):
    hyp = {"lr0": 0.01, "momentum": 0.937, "weight_decay": 0.0005}
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    g0, g1, g2 = [], [], []  # optimizer parameter groups
    for v in model.modules():
        if hasattr(v, "bias") and isinstance(v.bias, nn.Parameter):
            g2.append(v.bias)
        if isinstance(v, nn.BatchNorm2d):
            g0.append(v.weight)
        elif hasattr(v, "weight") and isinstance(v.weight, nn.Parameter):
            g1.append(v.weight)
    if adam:
        optimizer = torch.optim.Adam(g0, lr=hyp["lr0"], betas=(hyp["momentum"], 0.999))
    else:
        optimizer = torch.optim.SGD(g0, lr=hyp["lr0"], momentum=hyp["momentum"], nesterov=True)
    optimizer.add_param_group({"params": g1, "weight_decay": hyp["weight_decay"]})
    optimizer.add_param_group({"params": g2})
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 2, 3]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0, 0.0005, 0]
    before = [p.detach().clone() for p in model.parameters()]
    model(torch.randn(2, 3, 5, 5)).square().sum().backward()
    optimizer.step()
    assert not any(torch.equal(a, b.detach()) for a, b in zip(before, model.parameters()))

"""Programs of the fifth notes file: settings, creation, attributes, sharing and copying, autograd."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


def test_installation_check():
    torch.manual_seed(0)
    x = torch.rand(5, 3)
    assert str(x).startswith("tensor([[0.4963, 0.7682, 0.0885],\n        [0.1320, 0.3074, 0.6341],\n")


def test_default_dtype_and_thread_counts():
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_num_threads() >= 1
    assert torch.get_num_interop_threads() >= 1


def test_creation_from_lists_and_arrays():
    data = [[1, 2], [3, 4]]
    x_data = torch.tensor(data)
    np_array = np.array(data)
    x_np = torch.from_numpy(np_array)
    assert torch.equal(x_data, x_np)
    assert x_data.dtype == x_np.dtype == torch.int64
    np_array[0, 0] = 9
    assert x_np[0, 0].item() == 9, "from_numpy shares memory"
    assert x_data[0, 0].item() == 1, "tensor copies"


def test_creation_like_another_tensor():
    a = torch.tensor([[1.5, 2.5]])
    assert torch.ones_like(a).tolist() == [[1.0, 1.0]]
    assert torch.zeros_like(a).tolist() == [[0.0, 0.0]]
    assert torch.ones(2, 2).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert torch.zeros(2).tolist() == [0.0, 0.0]
    assert torch.empty(2, 3).shape == (2, 3)
    assert a.new_ones(2, 2).dtype == a.dtype
    assert isinstance(a.numpy(), np.ndarray)
    assert a[0, 1].item() == 2.5


def test_attributes():
    tensor = torch.ones(3, 4)
    assert str(tensor.device) == "cpu"
    assert tensor.shape == torch.Size([3, 4])
    assert tensor.dtype == torch.float32
    assert tensor.is_contiguous(memory_format=torch.contiguous_format)
    assert tensor.layout == torch.strided


def test_to_converts_the_type_and_copies_only_when_needed():
    tensor = torch.ones(3, 4)
    assert tensor.to("cpu") is tensor
    assert tensor.to(torch.float32) is tensor
    assert tensor.to(torch.float64).dtype == torch.float64
    assert tensor.to("cpu", copy=True).data_ptr() != tensor.data_ptr()


def test_members_of_the_tensor_class():
    tensor = torch.arange(24.0).view(2, 3, 4)
    assert tensor.dim() == 3
    assert tensor.size() == (2, 3, 4)
    assert tensor.numel() == 24
    assert tensor.data_ptr() == tensor.storage().data_ptr()
    assert tensor.stride() == (12, 4, 1)
    assert tensor.requires_grad is False
    assert tensor[1, :, 2].tolist() == [14.0, 18.0, 22.0]
    assert tensor.view(6, 4).shape == (6, 4)
    assert tensor.reshape(-1).shape == (24,)
    assert tensor.permute(2, 0, 1).shape == (4, 2, 3)
    assert tensor.clone().resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_register_hook_and_backward():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    handle = x.register_hook(lambda grad: seen.append(grad.clone()) or grad * 2)
    (x * 3).sum().backward()
    assert seen[0].tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [6.0, 6.0]
    handle.remove()
    (x * 3).sum().backward()
    assert len(seen) == 1
    assert x.grad.tolist() == [9.0, 9.0]


def test_derivative_of_the_square():
    x = torch.rand(2, 2, requires_grad=True)
    y = x**2
    dydx = 2 * x
    y.backward(torch.ones_like(y))
    assert bool((dydx == x.grad).all())


def test_storage_is_shared_by_views_and_copied_by_clone():
    a = torch.arange(6)
    b = a.view(2, 3)
    c = a.clone()
    b[0, 0] = 7
    assert a[0].item() == 7
    assert c[0].item() == 0
    assert b.untyped_storage().data_ptr() == a.untyped_storage().data_ptr()
    assert c.untyped_storage().data_ptr() != a.untyped_storage().data_ptr()


def test_contiguous_copies_only_what_is_not():
    a = torch.arange(6).view(2, 3)
    assert a.contiguous() is a or a.contiguous().data_ptr() == a.data_ptr()
    turned = a.t()
    assert not turned.is_contiguous()
    assert turned.contiguous().stride() == (2, 1)


def test_memory_format_channels_last():
    x = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    assert x.stride() == (24, 1, 8, 2)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert not x.is_contiguous()
    assert x[0, 1, 2, 3].item() == 23.0


@pytest.mark.parametrize("name", ["sum", "mean", "exp", "sort", "mm", "where", "logical_and", "cumsum", "stack"])
def test_basic_operators_live_in_the_main_namespace(name):
    assert callable(getattr(torch, name))


def test_modules_and_functions_compute_the_same():
    x = torch.randn(2, 3, 8, 8)
    conv = nn.Conv2d(3, 4, 3)
    assert torch.equal(conv(x), F.conv2d(x, conv.weight, conv.bias))
    assert torch.equal(nn.ReLU()(x), F.relu(x))
    assert torch.equal(nn.MaxPool2d(2)(x), F.max_pool2d(x, 2))
    assert torch.equal(
        nn.CrossEntropyLoss()(x[:, :, 0, 0], torch.tensor([0, 2])), F.cross_entropy(x[:, :, 0, 0], torch.tensor([0, 2]))
    )


def test_training_in_eight_steps(tmp_path):
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(2, 16)
            self.out = nn.Linear(16, 1)

        def forward(self, x):
            return self.out(torch.tanh(self.hidden(x)))

    model, loss_fn = Net(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 2)
    y = x[:, :1] * x[:, 1:]
    losses = []
    for _ in range(100):
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    torch.save(model.state_dict(), tmp_path / "net.pth")
    fresh = Net()
    fresh.load_state_dict(torch.load(tmp_path / "net.pth"))
    assert loss_fn(fresh(x), y).item() == pytest.approx(loss_fn(model(x), y).item())


def test_weights_are_initialised_by_nn_init():
    weight = torch.empty(20, 30)
    torch.manual_seed(0)
    nn.init.kaiming_uniform_(weight)
    assert float(weight.abs().max()) <= (6 / 30) ** 0.5
    nn.init.zeros_(weight)
    assert float(weight.abs().max()) == 0

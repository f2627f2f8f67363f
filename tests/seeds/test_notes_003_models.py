"""Programs of the fourth notes file, on models: ways to build them, embeddings, initialisation, parts of models, features."""

from __future__ import annotations

import collections

import pytest
from notes_models import feature_extractor, network

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


def test_network_with_its_initialisation():
    torch.manual_seed(0)
    net = network(nn)()
    assert net(torch.randn(2, 3, 28, 28)).shape == (2, 512)
    assert net.conv1.weight.std().item() == pytest.approx((2 / (27 + 576)) ** 0.5, rel=0.1)
    assert float(net.fc.bias.detach().abs().max()) == 0


X_SHAPE = (2, 20)


def test_sequential():
    net = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 10))
    assert net(torch.rand(X_SHAPE)).shape == (2, 10)


def test_module_of_its_own():
    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(20, 256)
            self.out = nn.Linear(256, 10)

        def forward(self, X):
            return self.out(F.relu(self.hidden(X)))

    assert MLP()(torch.rand(X_SHAPE)).shape == (2, 10)


def test_own_sequential_from_its_arguments():
    class MySequential(nn.Module):
        def __init__(self, *args):
            super().__init__()
            for idx, module in enumerate(args):
                self._modules[str(idx)] = module

        def forward(self, X):
            for block in self._modules.values():
                X = block(X)
            return X

    parts = nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 10)
    net = MySequential(*parts)
    x = torch.rand(X_SHAPE)
    assert torch.equal(net(x), nn.Sequential(*parts)(x))
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]


def fixed_hidden_mlp():
    class FixedHiddenMLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.rand_weight = torch.rand((20, 20), requires_grad=False)
            self.linear = nn.Linear(20, 20)

        def forward(self, X):
            X = self.linear(X)
            X = F.relu(torch.mm(X, self.rand_weight) + 1)
            X = self.linear(X)
            while X.abs().sum() > 1:
                X /= 2
            return X.sum()

    return FixedHiddenMLP()


def test_python_code_in_the_forward_pass():
    torch.manual_seed(0)
    net = fixed_hidden_mlp()
    result = net(torch.rand(X_SHAPE))
    assert result.shape == ()
    assert abs(result.item()) <= 1
    assert len(list(net.parameters())) == 2, "a plain tensor is no parameter"
    result.backward()
    assert net.linear.weight.grad.shape == (20, 20)


def test_everything_mixed():
    class NestMLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.linear = nn.Linear(32, 16)

        def forward(self, X):
            return self.linear(self.net(X))

    chimera = nn.Sequential(NestMLP(), nn.Linear(16, 20), fixed_hidden_mlp())
    assert chimera(torch.rand(X_SHAPE)).shape == ()


def test_embedding_looks_rows_up():
    torch.manual_seed(0)
    embedding = nn.Embedding(10, 3)
    input = torch.LongTensor([[1, 2, 4, 5], [4, 3, 2, 9]])
    out = embedding(input)
    assert out.shape == (2, 4, 3)
    assert torch.equal(out[1, 0], embedding.weight[4])


def test_embedding_with_padding():
    embedding = nn.Embedding(10, 3, padding_idx=0)
    input = torch.LongTensor([[0, 2, 0, 5]])
    out = embedding(input)
    assert out[0, 0].tolist() == out[0, 2].tolist() == [0.0, 0.0, 0.0]
    out.sum().backward()
    assert embedding.weight.grad[0].tolist() == [0.0, 0.0, 0.0]
    assert embedding.weight.grad[2].tolist() == [1.0, 1.0, 1.0]


def test_embedding_whose_padding_vector_is_changed():
    padding_idx = 0
    embedding = nn.Embedding(3, 3, padding_idx=padding_idx)
    with torch.no_grad():
        embedding.weight[padding_idx] = torch.ones(3)
    assert embedding.weight[0].tolist() == [1.0, 1.0, 1.0]


def test_every_argument_of_embedding():
    torch.manual_seed(0)
    bounded = nn.Embedding(5, 4, max_norm=1.0, norm_type=2.0)
    with torch.no_grad():
        bounded.weight.mul_(10)
    assert float(bounded(torch.tensor([0, 3])).norm(dim=1).max()) <= 1.0 + 1e-4
    by_frequency = nn.Embedding(3, 2, scale_grad_by_freq=True)
    by_frequency(torch.tensor([1, 1, 2])).sum().backward()
    assert by_frequency.weight.grad.tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    given = nn.Embedding(2, 2, _weight=torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert given(torch.tensor([1])).tolist() == [[3.0, 4.0]]


def conv_net(num_classes=10):
    class ConvNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer1 = nn.Sequential(
                nn.Conv2d(1, 16, kernel_size=5, stride=1, padding=2),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.MaxPool2d(kernel_size=2, stride=2),
            )
            self.layer2 = nn.Sequential(
                nn.Conv2d(16, 32, kernel_size=5, stride=1, padding=2),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.MaxPool2d(kernel_size=2, stride=2),
            )
            self.fc = nn.Linear(7 * 7 * 32, num_classes)

        def forward(self, x):
            out = self.layer1(x)
            out = self.layer2(out)
            out = out.reshape(out.size(0), -1)
            out = self.fc(out)
            return out

    return ConvNet()


def test_convolutional_network():
    device = torch.device("cpu")
    model = conv_net(10).to(device)
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    num_parameters = sum(torch.numel(parameter) for parameter in model.parameters())
    assert num_parameters == 29034


def test_batch_norm_becomes_synchronised_batch_norm():
    def convertBNtoSyncBN(module, process_group=None):
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            sync_bn = torch.nn.SyncBatchNorm(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            sync_bn.running_mean = module.running_mean
            sync_bn.running_var = module.running_var
            if module.affine:
                sync_bn.weight = nn.Parameter(module.weight.clone().detach())
                sync_bn.bias = nn.Parameter(module.bias.clone().detach())
            return sync_bn
        for name, child_module in module.named_children():
            setattr(module, name, convertBNtoSyncBN(child_module, process_group=process_group))
        return module

    model = convertBNtoSyncBN(conv_net())
    assert isinstance(model.layer1[1], torch.nn.SyncBatchNorm)
    assert model.layer1[1].num_features == 16
    official = torch.nn.SyncBatchNorm.convert_sync_batchnorm(conv_net())
    assert isinstance(official.layer2[1], torch.nn.SyncBatchNorm)


def test_moving_average_like_batch_norm():
    class BN(torch.nn.Module):
        def __init__(self, num_features, momentum=0.1):
            super().__init__()
            self.momentum = momentum
            self.register_buffer("running_mean", torch.zeros(num_features))

        def forward(self, X):
            current = X.mean(0)
            self.running_mean += self.momentum * (current - self.running_mean)
            return X - self.running_mean

    bn = BN(2)
    bn(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert bn.running_mean.tolist() == pytest.approx([0.2, 0.3])
    assert list(bn.state_dict()) == ["running_mean"]
    assert list(bn.parameters()) == []


def test_functional_dropout_ignores_eval():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(512, 256)
            self.fc2 = nn.Linear(256, 256)
            self.fc3 = nn.Linear(256, 2)

        def forward(self, x):
            x = F.relu(self.fc1(x))
            x = F.relu(F.dropout(self.fc2(x), 0.5))
            x = F.dropout(self.fc3(x), 0.5)
            return x

    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(8, 512)
    assert not torch.equal(net(x), net(x))


def test_the_same_cnn_from_modules_and_from_functions():
    class Modules(nn.Module):
        def __init__(self):
            super().__init__()
            self.cnn1 = nn.Conv2d(in_channels=1, out_channels=16, kernel_size=5, padding=0)
            self.relu1 = nn.ReLU()
            self.maxpool1 = nn.MaxPool2d(kernel_size=2)
            self.cnn2 = nn.Conv2d(in_channels=16, out_channels=32, kernel_size=5, padding=0)
            self.relu2 = nn.ReLU()
            self.maxpool2 = nn.MaxPool2d(kernel_size=2)
            self.linear1 = nn.Linear(4 * 4 * 32, 10)

        def forward(self, x):
            out = self.maxpool1(self.relu1(self.cnn1(x)))
            out = self.maxpool2(self.relu2(self.cnn2(out)))
            return self.linear1(out.view(x.size(0), -1))

    class Functions(nn.Module):
        def __init__(self, other):
            super().__init__()
            self.cnn1_weight = nn.Parameter(other.cnn1.weight.detach().clone())
            self.bias1_weight = nn.Parameter(other.cnn1.bias.detach().clone())
            self.cnn2_weight = nn.Parameter(other.cnn2.weight.detach().clone())
            self.bias2_weight = nn.Parameter(other.cnn2.bias.detach().clone())
            self.linear1_weight = nn.Parameter(other.linear1.weight.detach().clone())
            self.bias3_weight = nn.Parameter(other.linear1.bias.detach().clone())

        def forward(self, x):
            out = F.conv2d(x, self.cnn1_weight, self.bias1_weight)
            out = F.max_pool2d(F.relu(out), 2)
            out = F.conv2d(out, self.cnn2_weight, self.bias2_weight)
            out = F.max_pool2d(F.relu(out), 2)
            return F.linear(out.view(x.size(0), -1), self.linear1_weight, self.bias3_weight)

    torch.manual_seed(0)
    modules = Modules()
    functions = Functions(modules)
    x = torch.randn(2, 1, 28, 28)
    assert torch.allclose(modules(x), functions(x), atol=1e-5)
    assert len(list(functions.parameters())) == 6


def test_parameters_and_their_gradients_by_name():
    model = conv_net()
    params = list(model.named_parameters())
    (name, param) = params[-1]
    assert name == "fc.bias"
    assert param.grad is None
    model(torch.randn(2, 1, 28, 28)).sum().backward()
    assert param.grad.tolist() == [2.0] * 10


def test_modules_go_deep_and_children_do_not():
    model = conv_net()
    assert len(list(model.children())) == 3
    assert len(list(model.modules())) == 12
    assert [name for name, _ in model.named_modules()][:4] == ["", "layer1", "layer1.0", "layer1.1"]


def test_common_initialisation():
    torch.manual_seed(0)
    model = conv_net()
    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                torch.nn.init.constant_(layer.bias, val=0.0)
        elif isinstance(layer, torch.nn.BatchNorm2d):
            torch.nn.init.constant_(layer.weight, val=1.0)
            torch.nn.init.constant_(layer.bias, val=0.0)
        elif isinstance(layer, torch.nn.Linear):
            torch.nn.init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                torch.nn.init.constant_(layer.bias, val=0.0)
    fan_out = 32 * 25
    assert model.layer2[0].weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)
    layer = model.fc
    tensor = torch.zeros_like(layer.weight)
    layer.weight = torch.nn.Parameter(tensor)
    assert dict(model.named_parameters())["fc.weight"] is layer.weight


def test_first_layers_and_all_convolutions_of_a_model():
    model = conv_net()
    new_model = nn.Sequential(*list(model.children())[:2])
    assert new_model(torch.randn(1, 1, 28, 28)).shape == (1, 32, 7, 7)
    conv_model = nn.Sequential()
    for layer in model.named_modules():
        if isinstance(layer[1], nn.Conv2d):
            conv_model.add_module(layer[0].replace(".", "_"), layer[1])
    assert [name for name, _ in conv_model.named_children()] == ["layer1_0", "layer2_0"]
    with pytest.raises(KeyError, match="t contain"):
        conv_model.add_module("layer1.0", model.layer1[0])


def test_parameters_loaded_in_part(tmp_path):
    model, other = conv_net(10), conv_net(10)
    state = model.state_dict()
    del state["fc.bias"]
    state["extra"] = torch.zeros(1)
    torch.save(state, tmp_path / "model.pth")
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict(torch.load(tmp_path / "model.pth"))
    result = other.load_state_dict(torch.load(tmp_path / "model.pth", map_location="cpu"), strict=False)
    assert result.missing_keys == ["fc.bias"]
    assert result.unexpected_keys == ["extra"]
    assert torch.equal(other.fc.weight, model.fc.weight)


def test_common_part_of_another_model():
    torch.manual_seed(0)
    saved = nn.Sequential(collections.OrderedDict(a=nn.Linear(2, 2), b=nn.Linear(2, 2)))
    model_new = nn.Sequential(collections.OrderedDict(a=nn.Linear(2, 2), c=nn.Linear(2, 2)))
    model_saved = saved.state_dict()
    model_new_dict = model_new.state_dict()
    model_common_dict = {k: v for k, v in model_saved.items() if k in model_new_dict}
    model_new_dict.update(model_common_dict)
    model_new.load_state_dict(model_new_dict)
    assert torch.equal(model_new.a.weight, saved.a.weight)
    assert not torch.equal(model_new.c.weight, saved.b.weight)


def backbone():
    """A small stand-in for the pretrained networks of the notes: stages with names, pooling, a classifier."""
    stages = collections.OrderedDict(
        conv1=nn.Conv2d(3, 4, 3, padding=1),
        layer1=nn.Sequential(nn.ReLU(), nn.Conv2d(4, 8, 3, stride=2)),
        layer2=nn.Sequential(nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2)),
        avgpool=nn.AdaptiveAvgPool2d(1),
        fc=nn.Linear(16, 10),
    )
    return nn.Sequential(stages)


def test_features_before_the_classifier():
    model = backbone()
    model = torch.nn.Sequential(collections.OrderedDict(list(model.named_children())[:-1]))
    with torch.no_grad():
        model.eval()
        conv_representation = model(torch.randn(2, 3, 16, 16))
    assert conv_representation.shape == (2, 16, 1, 1)
    assert not conv_representation.requires_grad


def test_slices_of_a_sequential():
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    assert len(features[:-1]) == 2
    classifier = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 2))
    assert len(nn.Sequential(*list(classifier.children())[:-3])) == 1


def test_features_of_several_layers():
    model = torch.nn.Sequential(collections.OrderedDict(list(backbone().named_children())[:-1]))
    found = feature_extractor(torch)(pretrained_model=model, layers_to_extract={"layer1", "layer2"})(
        torch.randn(1, 3, 16, 16)
    )
    assert [tuple(f.shape) for f in found] == [(1, 8, 7, 7), (1, 16, 3, 3)]


def test_fine_tuning_the_last_layer_only():
    model = backbone()
    for param in model.parameters():
        param.requires_grad = False
    model.fc = nn.Linear(16, 100)
    optimizer = torch.optim.SGD(model.fc.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-4)
    before = model.conv1.weight.clone()
    features = torch.nn.Sequential(*list(model.children())[:-1])
    loss = F.cross_entropy(model.fc(features(torch.randn(2, 3, 16, 16)).flatten(1)), torch.tensor([1, 99]))
    loss.backward()
    optimizer.step()
    assert torch.equal(model.conv1.weight, before)
    assert model.conv1.weight.grad is None
    assert model.fc.weight.grad is not None


def test_fine_tuning_with_two_learning_rates():
    model = backbone()
    finetuned_parameters = list(map(id, model.fc.parameters()))
    conv_parameters = (p for p in model.parameters() if id(p) not in finetuned_parameters)
    parameters = [{"params": conv_parameters, "lr": 1e-3}, {"params": model.fc.parameters()}]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=1e-4)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-2]
    assert [len(group["params"]) for group in optimizer.param_groups] == [6, 2]


def test_structure_of_the_visualised_network():
    class ConvNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.AvgPool2d(2, 2))
            self.conv2 = nn.Sequential(nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2))
            self.fc = nn.Sequential(nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
            self.out = nn.Linear(64, 10)

        def forward(self, x):
            x = self.conv1(x)
            x = self.conv2(x)
            x = x.view(x.size(0), -1)
            x = self.fc(x)
            output = self.out(x)
            return output

    MyConvNet = ConvNet()
    assert str(MyConvNet) == (
        "ConvNet(\n"
        "  (conv1): Sequential(\n"
        "    (0): Conv2d(1, 16, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))\n"
        "    (1): ReLU()\n"
        "    (2): AvgPool2d(kernel_size=2, stride=2, padding=0)\n"
        "  )\n"
        "  (conv2): Sequential(\n"
        "    (0): Conv2d(16, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))\n"
        "    (1): ReLU()\n"
        "    (2): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)\n"
        "  )\n"
        "  (fc): Sequential(\n"
        "    (0): Linear(in_features=1568, out_features=128, bias=True)\n"
        "    (1): ReLU()\n"
        "    (2): Linear(in_features=128, out_features=64, bias=True)\n"
        "    (3): ReLU()\n"
        "  )\n"
        "  (out): Linear(in_features=64, out_features=10, bias=True)\n"
        ")"
    )
    x = torch.randn(1, 1, 28, 28).requires_grad_(True)
    MyConvNet(x).sum().backward()
    assert x.grad.shape == x.shape


def test_activation_modules_draw_the_curves():
    x = torch.linspace(-6, 6, 100).view([-1, 1])
    assert torch.equal(torch.nn.Sigmoid()(x), torch.sigmoid(x))
    assert torch.equal(torch.nn.Tanh()(x), torch.tanh(x))
    assert torch.equal(torch.nn.ReLU()(x), x.clamp(min=0))

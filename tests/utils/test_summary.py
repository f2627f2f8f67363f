"""The table of layers: right figures, any input, and a network left as it was."""

import pytest

import flambeau as torch
from flambeau import nn
from flambeau.utils import summary


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.shared = nn.Linear(64, 64)
        self.head = nn.Linear(64, 10)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.shared(self.shared(self.features(x).flatten(1))))


def test_figures():
    model = Net()
    model.head.requires_grad_(False)
    result = summary(model, input_size=(2, 1, 8, 8), verbose=0)
    assert result.total_params == sum(p.numel() for p in model.parameters())
    assert result.total_params - result.trainable_params == 650
    conv, norm, linear = 36 * 2 * 64, 2 * 4 * 64, 2 * 64 * 64
    assert result.total_mult_adds == conv + norm + 2 * linear + 2 * 64 * 10
    assert result.total_input == 2 * 64 * 4 and result.total_param_bytes == 4 * result.total_params
    assert "(recursive)" in str(result) and "[2, 4, 8, 8]" in str(result)


def test_nothing_is_changed():
    model = Net()
    model.features.eval()
    model.shared.weight.grad = torch.ones(64, 64)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    buffers = [id(b) for b in model.buffers()]
    random_state = torch.get_rng_state()
    summary(model, input_size=(2, 1, 8, 8), mode="train", verbose=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert buffers == [id(b) for b in model.buffers()]
    assert torch.equal(random_state, torch.get_rng_state())
    assert model.training and not model.features.training and model.shared.training
    assert torch.equal(model.shared.weight.grad, torch.ones(64, 64)) and model.head.weight.grad is None
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.layer = nn.Linear(3, 2)

    def forward(self, indices, scale):
        return {"out": self.layer(self.embedding(indices)) * scale}


@pytest.mark.parametrize(
    "inputs",
    [
        {"input_size": [(4,), (4, 1)], "dtypes": [torch.long, torch.float]},
        {"input_size": {"scale": (4, 1), "indices": (4,)}, "dtypes": [torch.float, torch.long]},
        {"input_data": (torch.zeros(4, dtype=torch.long), torch.ones(4, 1))},
        {"input_data": {"indices": torch.zeros(4, dtype=torch.long), "scale": torch.ones(4, 1)}},
    ],
)
def test_inputs_of_any_form(inputs):
    result = summary(TwoInputs(), verbose=0, **inputs)
    assert result.total_mult_adds == 4 * 2 * 3
    assert result.summary_list[0].output_size == "[4, 2]"


def test_depth_columns_and_printing(capsys):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2, enable_nested_tensor=False)
    result = summary(model, input_size=(1, 3, 8), depth=1, col_names=("input_size", "num_params", "trainable"))
    text = capsys.readouterr().out
    assert text.strip() == str(result)
    assert text.count("TransformerEncoderLayer (") == 2 and "Linear" not in text and "ModuleList" not in text
    assert f"{result.total_params // 2:,}" in text and "Mult-Adds" not in text.split("Total")[0]


def test_without_input_only_parameters_are_counted():
    assert summary(Net(), verbose=0).total_params == 40 + 8 + 4160 + 650 + 6


def test_wrong_arguments():
    with pytest.raises(ValueError, match="unknown"):
        summary(Net(), col_names=("colour",))
    with pytest.raises(ValueError, match="both"):
        summary(Net(), input_size=(1,), input_data=torch.ones(1))
    model = Net()
    with pytest.raises(RuntimeError, match="Layers that ran"):
        summary(model, input_size=(2, 3, 8, 8))
    assert model.training and not any(m._forward_hooks for m in model.modules())


def test_a_tensor_takes_the_place_of_a_size():
    model, x = Net(), torch.ones(2, 1, 8, 8)
    wanted = str(summary(model, input_data=x, verbose=0))
    assert str(summary(model, x, verbose=0)) == wanted
    assert str(summary(model, (x,), verbose=0)) == wanted == str(summary(model, {"x": x}, verbose=0))
    with pytest.raises(ValueError, match="got both"):
        summary(model, x, (2, 1, 8, 8))

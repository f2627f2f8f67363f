"""Sixty modules for round trips: name -> (how to make it in a library, the shapes of its inputs)."""

# ruff: noqa
# mypy: ignore-errors
from typing import Any, Dict, List, Optional, Tuple


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


class Gate(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class Looped(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.gate = Gate()
        self.steps: List[int] = [1, 2, 3]
        self.scale: Dict[str, float] = {"a": 0.5, "b": 2.0}

    def forward(self, x, h: Optional[torch.Tensor] = None):
        if h is None:
            h = torch.zeros_like(x)
        for s in self.steps:
            if s == 2:
                continue
            h = torch.tanh(self.gate(self.fc(x)) + h) * self.scale["a" if s == 1 else "b"]
        return h, {"sum": h.sum(), "first": h[0]}


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(6.0).view(2, 3))
        self.name = 'naïve \n "text"'

    def forward(self, x):
        y = x @ self.table
        if len(self.name) > 3 and not (y.dim() != 2 or y.size(0) < 1):
            y = y + torch.tensor([1.0, 2.0, 3.0])
        while bool((y > 5).any()):
            y = y / 2
        return y.clamp(min=-1e-5, max=float("inf")), y.to(torch.float64), y.argmax(1)


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(7, 4)
        self.rnn = nn.GRU(4, 5, batch_first=True, bidirectional=True)

    def forward(self, x):
        out, _ = self.rnn(self.e((x.abs() * 3).long() % 7))
        return out.mean(1)


class Inner(nn.Module):
    def forward(self, x):
        return [x[i : i + 2, ..., None].squeeze(-1) for i in range(2)]


class Sliced(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        a, b = self.inner(x)
        c = x.clone()
        c[:, 1:] = 0
        c[0] += 1
        return torch.cat([a, b], dim=0), c, x[[0, 1]], x[x > 0]


def wrap(kind, *args, **kwargs):
    return lambda: getattr(nn, kind)(*args, **kwargs)


IMAGE, SEQUENCE, ROWS, VOLUME = (2, 4, 8, 8), (3, 4, 10), (3, 4), (1, 4, 6, 6, 6)
TABLE = {
    "Linear": (wrap("Linear", 4, 5), [ROWS]), "Bilinear": (wrap("Bilinear", 4, 4, 3), [ROWS, ROWS]), "Identity": (wrap("Identity"), [ROWS]),
    "Conv1d": (wrap("Conv1d", 4, 3, 3, stride=2), [SEQUENCE]), "Conv2d": (wrap("Conv2d", 4, 6, 3, padding=1, groups=2), [IMAGE]),
    "Conv2d same": (wrap("Conv2d", 4, 6, 3, padding="same", dilation=2), [IMAGE]),
    "Conv2d reflect": (wrap("Conv2d", 4, 6, 3, padding=1, padding_mode="reflect"), [IMAGE]), "Conv3d": (wrap("Conv3d", 4, 2, 3), [VOLUME]),
    "ConvTranspose2d": (wrap("ConvTranspose2d", 4, 3, 2, stride=2), [IMAGE]),
    "BatchNorm1d": (wrap("BatchNorm1d", 4), [ROWS]), "BatchNorm2d": (wrap("BatchNorm2d", 4), [IMAGE]), "BatchNorm3d": (wrap("BatchNorm3d", 4), [VOLUME]),
    "LayerNorm": (wrap("LayerNorm", 4), [ROWS]), "GroupNorm": (wrap("GroupNorm", 2, 4), [IMAGE]), "InstanceNorm2d": (wrap("InstanceNorm2d", 4, affine=True), [IMAGE]),
    "LocalResponseNorm": (wrap("LocalResponseNorm", 2), [IMAGE]),
    "MaxPool1d": (wrap("MaxPool1d", 2), [SEQUENCE]), "MaxPool2d": (wrap("MaxPool2d", 3, stride=2, padding=1), [IMAGE]),
    "MaxPool2d indices": (wrap("MaxPool2d", 2, return_indices=True), [IMAGE]), "AvgPool2d": (wrap("AvgPool2d", 2, ceil_mode=True), [IMAGE]),
    "AvgPool1d": (wrap("AvgPool1d", 3), [SEQUENCE]), "AdaptiveAvgPool2d": (wrap("AdaptiveAvgPool2d", 2), [IMAGE]),
    "AdaptiveAvgPool1d": (wrap("AdaptiveAvgPool1d", 3), [SEQUENCE]), "AdaptiveMaxPool2d": (wrap("AdaptiveMaxPool2d", (2, 3)), [IMAGE]),
    **{name: (wrap(name), [ROWS]) for name in "ReLU ReLU6 ELU SELU CELU GELU SiLU Mish Hardswish Hardsigmoid Hardtanh LeakyReLU LogSigmoid Sigmoid Tanh Tanhshrink Softplus Softshrink Softsign Hardshrink".split()},
    "Softmax": (wrap("Softmax", dim=1), [ROWS]), "LogSoftmax": (wrap("LogSoftmax", dim=-1), [ROWS]), "PReLU": (wrap("PReLU", 4), [IMAGE]),
    "Dropout": (wrap("Dropout", 0.5), [ROWS]), "Dropout2d": (wrap("Dropout2d", 0.5), [IMAGE]), "Flatten": (wrap("Flatten"), [IMAGE]),
    "ZeroPad2d": (wrap("ZeroPad2d", 1), [IMAGE]), "ReflectionPad2d": (wrap("ReflectionPad2d", 2), [IMAGE]),
    "Upsample": (wrap("Upsample", scale_factor=2.0, mode="bilinear"), [IMAGE]), "Upsample nearest": (wrap("Upsample", size=(5, 7)), [IMAGE]),
    "PixelShuffle": (wrap("PixelShuffle", 2), [IMAGE]),
    "LSTM": (wrap("LSTM", 4, 5, num_layers=2, bidirectional=True), [(6, 2, 4)]), "GRU": (wrap("GRU", 4, 5), [(6, 2, 4)]),
    "RNN": (wrap("RNN", 4, 5, nonlinearity="relu"), [(6, 2, 4)]), "LSTMCell": (wrap("LSTMCell", 4, 5), [ROWS]), "GRUCell": (wrap("GRUCell", 4, 5), [ROWS]),
    "MultiheadAttention": (wrap("MultiheadAttention", 4, 2), [(5, 2, 4)] * 3),
    "TransformerEncoderLayer": (wrap("TransformerEncoderLayer", 4, 2, 8), [(5, 2, 4)]),
    "TransformerDecoderLayer": (wrap("TransformerDecoderLayer", 4, 2, 8, norm_first=True), [(5, 2, 4), (3, 2, 4)]),
    "Transformer": (wrap("Transformer", 4, 2, 1, 1, 8), [(5, 2, 4), (3, 2, 4)]),
    "MSELoss": (wrap("MSELoss"), [ROWS, ROWS]), "SmoothL1Loss": (wrap("SmoothL1Loss", reduction="sum"), [ROWS, ROWS]),
    "Sequential": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2)), [ROWS]),
    **{kind.__name__: (kind, [shape]) for kind, shape in ((Residual, IMAGE), (Looped, ROWS), (Constants, (3, 2)), (Embeds, ROWS), (Sliced, ROWS))},
}  # fmt: skip

"""Small models of many kinds, for both libraries: `build(torch)` makes one of `torch`'s modules."""

from __future__ import annotations

from typing import Any


def _module(torch: Any, forward: Any, **parts: Any) -> Any:
    """A module with these parts, whose forward is a function of it and the input."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Model()


def linear(torch: Any) -> Any:
    return torch.nn.Linear(3, 4)


def mlp(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2), torch.nn.Softmax(1))


def normalised(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4)
    )


def convnet(torch: Any) -> Any:
    """The network of the notes."""
    nn = torch.nn

    def forward(self: Any, x: Any) -> Any:
        x = self.conv2(self.conv1(x))
        return self.out(self.fc(x.view(x.size(0), -1)))

    return _module(
        torch,
        forward,
        conv1=nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.AvgPool2d(2, 2)),
        conv2=nn.Sequential(nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2)),
        fc=nn.Sequential(nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()),
        out=nn.Linear(64, 10),
    )


def layer_norm(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 8))


def reshaped(torch: Any) -> Any:
    return _module(torch, lambda self, x: x.reshape(x.shape[0], -1, 2).transpose(1, 2).flatten(1))


def joined(torch: Any) -> Any:
    return _module(torch, lambda self, x: torch.cat([x, x.mean(1, keepdim=True)], 1) * 2 - 1)


def pooled(torch: Any) -> Any:
    return _module(torch, lambda self, x: torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def embedded(torch: Any) -> Any:
    return torch.nn.Embedding(5, 3)


EXACT = {  # the nodes, with all their names, are PyTorch's
    linear: (2, 3),
    mlp: (2, 3),
    normalised: (1, 3, 6, 6),
    convnet: (1, 1, 28, 28),
    layer_norm: (2, 3, 8),
    reshaped: (2, 3, 4),
    joined: (2, 3, 4),
    pooled: (2, 3, 4, 4),
}


def recurrent(torch: Any) -> Any:
    return _module(torch, lambda self, x: self.net(x)[0], net=torch.nn.LSTM(3, 4, 2, bidirectional=True))


def gated(torch: Any) -> Any:
    return _module(torch, lambda self, x: self.net(x)[0], net=torch.nn.GRU(3, 4))


def residual(torch: Any) -> Any:
    """Blocks of ResNet's kind."""
    nn = torch.nn

    def block(before: int, after: int, stride: int) -> Any:
        way = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        beside = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        return _module(torch, lambda self, x: torch.relu(self.way(x) + self.beside(x)), way=way, beside=beside)

    start = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(
        *start, block(8, 8, 1), block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)
    )


def upsampled(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.ConvTranspose2d(3, 4, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.GroupNorm(2, 4), nn.SiLU()
    )


class GPT:
    """A small GPT; calling it makes the module."""

    __name__ = "gpt"

    def __call__(self, torch: Any) -> Any:
        nn, width, heads = torch.nn, 16, 4

        def block(self: Any, x: Any) -> Any:
            batch, time, width = x.shape
            parts = self.qkv(self.n1(x)).split(width, 2)
            q, k, v = (p.view(batch, time, heads, width // heads).transpose(1, 2) for p in parts)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(batch, time, width))
            return x + self.mlp(self.n2(x))

        def forward(self: Any, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
            return self.head(self.norm(self.blocks(x)))

        blocks = [
            _module(
                torch, block, n1=nn.LayerNorm(width), n2=nn.LayerNorm(width), qkv=nn.Linear(width, 3 * width), out=nn.Linear(width, width),
                mlp=nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
            )
            for _ in range(2)
        ]  # fmt: skip
        tokens = nn.Embedding(30, width)
        made = _module(
            torch, forward, tokens=tokens, places=nn.Embedding(16, width), blocks=nn.Sequential(*blocks), norm=nn.LayerNorm(width),
            head=nn.Linear(width, 30, bias=False),
        )  # fmt: skip
        made.head.weight = tokens.weight
        return made


def encoder(torch: Any) -> Any:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


gpt = GPT()

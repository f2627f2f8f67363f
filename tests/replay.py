"""Process replay: what other forms a fixed set of programs takes, kept before a change and compared after it.

    python -m tests.replay keep FOLDER       # before
    python -m tests.replay compare FOLDER    # after: prints the differences, exits with 1 if there are any

Kept are the nodes of exported programs (as recorded, and decomposed), graphs of make_fx with and without gradients, TorchScript's
graphs and code, ONNX nodes, fx's code, names in the profiler's table, and every overload of `torch.ops.aten` with its schema."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.fx import symbolic_trace
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.profiler import ProfilerActivity, profile

F: Any = nn.functional


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.up, self.out = nn.ConvTranspose2d(4, 4, 2, 2), nn.Linear(4, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.out(F.adaptive_avg_pool2d(self.up(x), 1).flatten(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.out = nn.Embedding(10, 6), nn.LSTM(6, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.words(tokens))
        return self.out(hidden[:, -1])


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.group, self.instance = nn.LayerNorm(6), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        return self.drop(self.layer(self.group(self.instance(x))))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)

    def forward(self, x):
        return self.layer(x)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(8, 2)

    def forward(self, x):
        return self.heads(x, x, x)[0]


def activations(x):
    y = F.gelu(x) + F.silu(x) * F.elu(x, 0.5) - F.leaky_relu(x, 0.2) + F.hardtanh(x) + F.softplus(x) + F.mish(x)
    return F.log_softmax(y, -1) + F.softmax(y, 1) + torch.sigmoid(y) + torch.tanh(y) + F.logsigmoid(y) + F.hardswish(y)


def losses(x, y):
    labels = torch.zeros(x.shape[0], dtype=torch.int64)
    pairs = F.mse_loss(x, y) + F.l1_loss(x, y, reduction="sum") + F.smooth_l1_loss(x, y, beta=0.5) + F.huber_loss(x, y)
    entropy = F.cross_entropy(x, labels) + F.nll_loss(F.log_softmax(x, 1), labels)
    binary = F.binary_cross_entropy_with_logits(x, y.sigmoid()) + F.kl_div(x, y, reduction="batchmean")
    return pairs + entropy + binary


def indexing(x):
    y = x[:, 1:3] + x[..., None, :2].squeeze(-2)
    z = torch.where(y > 0, y, -y)
    return z[torch.tensor([0, 1])] + z.index_select(0, torch.tensor([1, 0])), torch.gather(x, 1, x.argsort(1))


def writes(x):
    y = x.clone()
    y[0] = 2.0
    y[:, 1] += 1
    y.mul_(2).add_(x, alpha=0.5)
    return F.relu(y, inplace=True)


def reductions(x):
    return x.sum(), x.mean(1, keepdim=True), x.var(1), x.std(), x.amax(1), x.max(1)[0], x.norm(), x.logsumexp(1)


def ordering(x):
    values, places = torch.topk(x, 2)
    return values, places, x.sort(1)[0], x.cumsum(1), torch.nonzero(x > 0), torch.unique(x)


def shapes(x):
    a, b = x.split(2, 1)[0], x.chunk(2, 0)[1]
    y = torch.cat([x, x], 1).view(-1, 4).permute(1, 0).transpose(0, 1).unsqueeze(0).expand(2, -1, -1)
    return a, b, y, torch.stack([x, x]).flatten(), x.reshape(-1, 1).t(), x.roll(1, 0), x.flip(1), x.repeat(1, 2)


def dtypes(x):
    y = x.to(torch.float64).float().half().type_as(x)
    return y, x.long() + 1, x > 0, torch.zeros_like(x), torch.full((2,), 3.0), torch.arange(4), x.new_ones(2)


def images(x):
    y = F.interpolate(x, scale_factor=2.0) + F.interpolate(x, size=[8, 8], mode="bilinear", align_corners=False)
    z = F.pad(y, [1, 1, 1, 1], mode="reflect") + F.pad(y, [1, 1, 1, 1])
    grid = F.affine_grid(torch.eye(2, 3).unsqueeze(0).expand(x.shape[0], -1, -1), list(x.shape), align_corners=False)
    return F.avg_pool2d(z, 2), F.grid_sample(x, grid, align_corners=False), F.unfold(x, 2), F.adaptive_max_pool2d(y, 2)


def products(x):
    y = torch.einsum("ij,kj->ik", x, x) @ x + torch.addmm(x, x[:, :2] @ x[:2], torch.eye(4))
    wide = y.view(1, 1, -1, 4)
    return (
        F.scaled_dot_product_attention(wide, wide, wide),
        torch.bmm(y.unsqueeze(0), y.t().unsqueeze(0)),
        F.linear(y, y),
    )


def numbers(x):
    y = (2 - x) / (1 + x.abs()) + 3 / (x * x + 1) + x**2 + 2 ** (x / 4) + x // 2 + x % 3
    return torch.clamp(y, -1, 1) * torch.linalg.norm(x) + torch.special.expit(x) + F.normalize(x) + y.clamp(min=0.1)


def vectors(x):
    bag = F.embedding_bag(torch.tensor([[0, 1], [2, 1]]), x[:3], mode="sum")
    return (
        bag,
        torch.cdist(x, x),
        F.cosine_similarity(x, x),
        F.one_hot(torch.tensor([0, 2])),
        torch.meshgrid(x[0], x[1]),
    )


_PLACES = re.compile(r" *# (File: )?/.*|File \"/.*")  # lines of source files, which move
Program = tuple[str, Callable, tuple]


def programs() -> list[Program]:
    torch.manual_seed(0)
    square, batch, image = torch.randn(4, 4), torch.randn(2, 4, 6), torch.randn(2, 3, 4, 4)
    mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    functions = [
        activations, indexing, writes, reductions, ordering, shapes, dtypes, products, numbers, vectors,
    ]  # fmt: skip
    return [
        ("mlp", mlp, (square,)),
        ("convolutional", Convolutional(), (image,)),
        ("convolutional_eval", Convolutional().eval(), (image,)),
        ("recurrent", Recurrent(), (torch.zeros(2, 5, dtype=torch.int64),)),
        ("norms", Norms(), (batch,)),
        ("norms_eval", Norms().eval(), (batch,)),
        ("attention", Attention(), (torch.randn(2, 5, 8),)),
        ("heads", Heads(), (torch.randn(5, 2, 8),)),
        ("gradients", Gradients(), (batch,)),
        ("losses", losses, (square, torch.randn(4, 4))),
        ("images", images, (image,)),
        *((f.__name__, f, (square,)) for f in functions),
    ]


class Gradients(nn.Module):
    """What has gradients of its own among PyTorch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.group, self.linear = nn.LayerNorm(6), nn.GroupNorm(2, 4), nn.Linear(6, 6)

    def forward(self, x):
        y = self.linear(self.layer(self.group(x)))
        image = F.interpolate(y.view(2, 1, 4, 6), size=[8, 12], mode="bilinear", align_corners=False)
        pooled = F.avg_pool2d(image, 2) + F.adaptive_avg_pool2d(image, [4, 6])
        wide = y.view(2, 1, 4, 6)
        found = F.scaled_dot_product_attention(wide, wide, wide).sum() + pooled.sum()
        return found + y.amax(1).sum() + y.cumsum(1).roll([1], [0]).sum()


class Wrapped(nn.Module):
    """A function as a module, for what takes modules only."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def as_module(program: Callable) -> nn.Module:
    return program if isinstance(program, nn.Module) else Wrapped(program)


# -- the forms -----------------------------------------------------------------------------------------------------------------


def exported(name: str, program: Callable, args: tuple) -> str:
    made = torch.export.export(as_module(program), args)
    return f"{made}\n\n{made.graph_signature}"


def decomposed(name: str, program: Callable, args: tuple) -> str:
    return str(torch.export.export(as_module(program), args).run_decompositions())


def recorded(name: str, program: Callable, args: tuple) -> str:
    return make_fx(program)(*args).code


def with_gradients(name: str, program: Callable, args: tuple) -> str:
    given = tuple(t.clone().requires_grad_(t.is_floating_point()) for t in args)

    def step(*given: Any) -> Any:
        result = program(*given)
        parts = result if isinstance(result, tuple) else (result,)
        total = sum(p.sum() for p in parts if isinstance(p, torch.Tensor) and p.requires_grad)
        inputs = [t for t in given if t.requires_grad] + list(as_module(program).parameters())
        return torch.autograd.grad(total, inputs, allow_unused=True)

    return make_fx(step)(*given).code


def scripted(name: str, program: Callable, args: tuple) -> str:
    made = torch.jit.script(program)
    return f"{made.graph}\n\n{made.code}\n\n{made.inlined_graph}"


def traced(name: str, program: Callable, args: tuple) -> str:
    made = torch.jit.trace(program, args, check_trace=False)
    return f"{made.inlined_graph}\n\n{made.code}"


def through_onnx(name: str, program: Callable, args: tuple) -> str:
    model = torch.onnx.export(as_module(program), args, dynamo=True, verbose=False).model_proto
    return "\n".join(
        f"{n.op_type}({', '.join(n.input)}) -> {', '.join(n.output)} {sorted(a.name for a in n.attribute)}"
        for n in model.graph.node
    )


def through_fx(name: str, program: Callable, args: tuple) -> str:
    return symbolic_trace(program).code


def profiled(name: str, program: Callable, args: tuple) -> str:
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        program(*args)
    return "\n".join(sorted(f"{e.key} {e.count}" for e in watched.key_averages()))


FORMS = (exported, decomposed, recorded, with_gradients, scripted, traced, through_onnx, through_fx, profiled)


def schemas() -> str:
    """Every overload of every operator with its schema."""
    lines = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            try:
                lines.append(str(getattr(packet, overload)._schema))
            except Exception as problem:
                lines.append(f"{name}.{overload}: {type(problem).__name__}: {problem}")
    return "\n".join(sorted(lines))


def plain(text: str) -> str:
    """A text without the places of source files and empty lines."""
    return "\n".join(line for line in _PLACES.sub("", text).splitlines() if line.strip())


def forms(only: str) -> Iterator[tuple[str, str]]:
    """Every form of every program, under a file's name."""
    if only in "schemas":
        yield "schemas", schemas()
    for form in FORMS:
        if only and only != form.__name__:
            continue
        for name, program, args in programs():
            torch.manual_seed(1)
            try:
                text = form(name, program, args)
            except Exception as problem:  # what has no such form says why: that is kept as well
                text = f"{type(problem).__name__}: {problem}"
            yield f"{form.__name__}.{name}", plain(text)


def compare(folder: Path, only: str) -> int:
    """How many forms differ from what was kept."""
    count = 0
    for name, text in forms(only):
        before = plain((folder / name).read_text())
        if before != text:
            count += 1
            difference = difflib.unified_diff(before.splitlines(), text.splitlines(), name, name, lineterm="", n=1)
            print("\n".join(list(difference)[:60]))
    print(f"{count} differ")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["keep", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="one form, as 'exported' or 'schemas'")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.action == "compare":
        return int(compare(options.folder, options.only) > 0)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, text in forms(options.only):
        (options.folder / name).write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

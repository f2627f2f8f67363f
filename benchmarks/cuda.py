"""Flambeau against PyTorch eager on a GPU, in one interleaved run.

    python benchmarks/cuda.py                    # operators, host cost of small calls, train steps
    python benchmarks/cuda.py --only train       # a part: kernels, host, train, curves
    python benchmarks/cuda.py --write            # also update the tables in docs/internals/cuda.md

Ratios are PyTorch's time over Flambeau's: larger is better for Flambeau. Both compute in float32 without TF32 unless a case says
otherwise. `curves` trains both from the same weights and prints how far their losses are apart.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import models  # noqa: E402

DOCS = Path(__file__).parent.parent / "docs" / "internals" / "cuda.md"
M64 = 1 << 26

Make = Callable[[Any], Callable[[], Any]]


def _values(lib: Any, *shape: int, dtype: str = "float32") -> Any:
    return lib.randn(*shape, device="cuda").to(getattr(lib, dtype))


def _unary(name: str, *shape: int, dtype: str = "float32", **options: Any) -> Make:
    def make(lib: Any) -> Callable[[], Any]:
        x = _values(lib, *shape, dtype=dtype)
        space = lib.nn.functional if hasattr(lib.nn.functional, name) and not hasattr(lib, name) else lib
        return lambda: getattr(space, name)(x, **options)

    return make


def _product(n: int, dtype: str) -> Make:
    def make(lib: Any) -> Callable[[], Any]:
        a, b = _values(lib, n, n, dtype=dtype), _values(lib, n, n, dtype=dtype)
        return lambda: a @ b

    return make


def _conv(lib: Any) -> Callable[[], Any]:
    x, w = _values(lib, 256, 64, 32, 32, dtype="bfloat16"), _values(lib, 128, 64, 3, 3, dtype="bfloat16")
    return lambda: lib.nn.functional.conv2d(x, w, padding=1)


def _conv32(lib: Any) -> Callable[[], Any]:
    x, w = _values(lib, 256, 64, 32, 32), _values(lib, 128, 64, 3, 3)
    return lambda: lib.nn.functional.conv2d(x, w, padding=1)


def _attention(lib: Any) -> Callable[[], Any]:
    q, k, v = (_values(lib, 16, 12, 1024, 64, dtype="bfloat16") for _ in range(3))
    return lambda: lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _layer_norm(dtype: str) -> Make:
    def make(lib: Any) -> Callable[[], Any]:
        x, w = _values(lib, 65536, 1024, dtype=dtype), _values(lib, 1024, dtype=dtype)
        return lambda: lib.nn.functional.layer_norm(x, (1024,), w, w)

    return make


def _cross_entropy(lib: Any) -> Callable[[], Any]:
    x, t = _values(lib, 4096, 50304, dtype="bfloat16"), lib.randint(0, 50304, (4096,), device="cuda")
    return lambda: lib.nn.functional.cross_entropy(x, t)


def _add(dtype: str) -> Make:
    def make(lib: Any) -> Callable[[], Any]:
        a, b = _values(lib, M64, dtype=dtype), _values(lib, M64, dtype=dtype)
        return lambda: a + b

    return make


KERNELS: dict[str, Make] = {
    "add, 64M": _add("float32"),
    "add, 64M, bfloat16": _add("bfloat16"),
    "gelu, 64M": _unary("gelu", M64),
    "exp, 64M": _unary("exp", M64),
    "sum, 64M": _unary("sum", M64),
    "sum of columns, 8192x8192": _unary("sum", 8192, 8192, dim=0),
    "softmax, 65536x1024": _unary("softmax", 65536, 1024, dim=-1),
    "softmax, 65536x1024, bfloat16": _unary("softmax", 65536, 1024, dtype="bfloat16", dim=-1),
    "layer_norm, 65536x1024": _layer_norm("float32"),
    "layer_norm, 65536x1024, bfloat16": _layer_norm("bfloat16"),
    "softmax, 4096x50304": _unary("softmax", 4096, 50304, dim=-1),
    "softmax, 4096x50304, bfloat16": _unary("softmax", 4096, 50304, dtype="bfloat16", dim=-1),
    "log_softmax, 4096x50304": _unary("log_softmax", 4096, 50304, dim=-1),
    "log_softmax, 4096x50304, bfloat16": _unary("log_softmax", 4096, 50304, dtype="bfloat16", dim=-1),
    "cross_entropy, 4096x50304, bfloat16": _cross_entropy,
    "cumsum, 64M": _unary("cumsum", M64, dim=0),
    "sort, 16M": _unary("sort", 1 << 24),
    "matmul 8192, bfloat16": _product(8192, "bfloat16"),
    "matmul 4096": _product(4096, "float32"),
    "conv2d 3x3, 256x64x32x32, bfloat16": _conv,
    "conv2d 3x3, 256x64x32x32": _conv32,
    "attention 16x12x1024x64, causal, bfloat16": _attention,
}


def _pair(lib: Any, *shape: int, **options: Any) -> tuple[Any, Any]:
    return lib.ones(*shape, device="cuda", **options), lib.ones(*shape, device="cuda")


def _host_add(lib: Any) -> Callable[[], Any]:
    a, b = _pair(lib, 1024)
    return lambda: a + b


def _host_add_grad(lib: Any) -> Callable[[], Any]:
    a, b = _pair(lib, 1024, requires_grad=True)
    return lambda: a + b


def _host_mm(lib: Any) -> Callable[[], Any]:
    a, b = _pair(lib, 64, 64)
    return lambda: a @ b


def _host_layer(lib: Any) -> Callable[[], Any]:
    layer, x = lib.nn.Linear(64, 64).cuda(), lib.ones(8, 64, device="cuda")
    return lambda: layer(x)


def _host_backward(lib: Any) -> Callable[[], Any]:
    x = lib.ones(64, 64, device="cuda", requires_grad=True)
    return lambda: (x * x).sum().backward()


HOST: dict[str, Make] = {
    "a + b, 1024": _host_add,
    "a + b, 1024, requires grad": _host_add_grad,
    "a.sum(), 1024": lambda lib: (lambda a: lambda: a.sum())(lib.ones(1024, device="cuda")),
    "softmax, 32x32": lambda lib: (lambda a: lambda: a.softmax(-1))(lib.ones(32, 32, device="cuda")),
    "mm, 64x64": _host_mm,
    "Linear(64, 64), batch 8": _host_layer,
    "(x * x).sum().backward()": _host_backward,
}


def _classification(build: Any, shape: tuple[int, ...], optimizer: Any, amp: str = "", last: bool = False) -> Make:
    def make(lib: Any) -> Callable[[], Any]:
        lib.manual_seed(0)
        with lib.device("cuda"):
            model = build(lib)
            x, y = lib.randn(*shape), lib.randint(0, 10, (shape[0],))
        if last:
            model, x = (t.to(memory_format=lib.channels_last) for t in (model, x))
        return _step(lib, model, optimizer(lib, model), x, y, amp)

    return make


def _sequence(build: Any, shape: tuple[int, int], vocabulary: int, optimizer: Any, amp: str = "") -> Make:
    def make(lib: Any) -> Callable[[], Any]:
        lib.manual_seed(0)
        with lib.device("cuda"):
            model = build(lib)
            tokens = lib.randint(0, vocabulary, shape)
        return _step(lib, model, optimizer(lib, model), tokens, tokens, amp, vocabulary)

    return make


def _step(lib: Any, model: Any, optimizer: Any, x: Any, y: Any, amp: str, classes: int = 0) -> Callable[[], Any]:
    loss_of = lib.nn.functional.cross_entropy

    def step() -> Any:
        optimizer.zero_grad()
        with lib.device("cuda"), lib.autocast("cuda", dtype=lib.bfloat16, enabled=bool(amp)):
            out = model(x)
            loss = loss_of(out.reshape(-1, classes), y.reshape(-1)) if classes else loss_of(out, y)
        loss.backward()
        optimizer.step()
        return loss

    step.model = model  # type: ignore[attr-defined]
    step.data = (x, y)  # type: ignore[attr-defined]
    return step


def _sgd(lib: Any, model: Any) -> Any:
    return lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def _adam(lib: Any, model: Any) -> Any:
    return lib.optim.AdamW(model.parameters(), lr=1e-3)


def _imagenet(lib: Any) -> Any:
    if lib.__name__ == "torch":
        from torchvision.models import resnet18
    else:
        from flambeau.vision.models import resnet18
    return resnet18()


def _large_gpt(lib: Any) -> Any:
    return models.gpt(lib, layers=12, width=768, heads=12, context=1024, vocabulary=50304)


TRAIN: dict[str, Make] = {
    "ResNet-18, 32x32, batch 256": _classification(models.resnet18, (256, 3, 32, 32), _sgd),
    "GPT, 12 layers, d=768, T=1024, batch 16, bfloat16 autocast": _sequence(
        _large_gpt, (16, 1024), 50304, _adam, "bf16"
    ),
    "MLP 784-256-128-10, batch 64": _classification(models.mlp, (64, 784), _adam),
    "CNN, 28x28, batch 64": _classification(lambda lib: models.cnn(lib, 0.0), (64, 1, 28, 28), _sgd),
    "LSTM, 2 layers, 256, T=35, batch 20": _sequence(models.language_lstm, (35, 20), 1000, _sgd),
    "GPT, 4 layers, d=128, T=128, batch 12": _sequence(models.gpt, (12, 128), 65, _adam),
    "ResNet-18, 32x32, batch 256, bfloat16 autocast": _classification(models.resnet18, (256, 3, 32, 32), _sgd, "bf16"),
    "ResNet-18, 32x32, batch 256, bfloat16 autocast, channels_last": _classification(
        models.resnet18, (256, 3, 32, 32), _sgd, "bf16", True
    ),
    "ResNet-18, 224x224, batch 256, bfloat16 autocast": _classification(_imagenet, (256, 3, 224, 224), _sgd, "bf16"),
}


def _synchronize(lib: Any) -> None:
    lib.cuda.synchronize()


def device_seconds(step: Callable[[], Any], lib: Any, repeat: int) -> float:
    """Seconds of one call on the device, of several in a row."""
    start, end = (lib.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeat):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / repeat


def host_seconds(step: Callable[[], Any], lib: Any, repeat: int) -> float:
    """Seconds until a call returns, whether or not the device has done its work."""
    _synchronize(lib)
    start = time.perf_counter()
    for _ in range(repeat):
        step()
    taken = (time.perf_counter() - start) / repeat
    _synchronize(lib)
    return taken


def wall_seconds(step: Callable[[], Any], lib: Any, repeat: int) -> float:
    """Seconds of one call among several, all of the work included."""
    _synchronize(lib)
    start = time.perf_counter()
    for _ in range(repeat):
        step()
    _synchronize(lib)
    return (time.perf_counter() - start) / repeat


def compare(name: str, make: Make, timer: Any, repeat: int, rounds: int = 5) -> tuple[str, str]:
    """A row of a table: milliseconds of both, and the ratio."""
    import torch

    import flambeau

    steps = [(lib, make(lib)) for lib in (torch, flambeau)]
    for lib, step in steps:
        for _ in range(3):
            step()
        _synchronize(lib)
    samples: list[list[float]] = [[], []]
    for _ in range(rounds):
        for which, (lib, step) in enumerate(steps):
            samples[which].append(timer(step, lib, repeat))
    theirs, mine = (statistics.median(s) for s in samples)
    unit, factor = ("us", 1e6) if theirs < 1e-2 else ("ms", 1e3)
    del steps
    for lib in (torch, flambeau):
        lib.cuda.empty_cache()
    return name, f"{mine * factor:.1f} {unit} | {theirs * factor:.1f} {unit} | {theirs / mine:.2f}"


def curves(steps: int = 20) -> list[tuple[str, str]]:
    """Both libraries from the same weights on the same data: the largest relative distance of their losses."""
    import torch

    import flambeau

    rows = []
    for name, make in TRAIN.items():
        if "12 layers" in name or "224" in name:
            continue
        try:
            theirs, mine = make(torch), make(flambeau)
            state = {k: flambeau.from_dlpack(v.detach()).clone() for k, v in theirs.model.state_dict().items()}
            mine.model.load_state_dict(state)
            for a, b in zip(mine.data, theirs.data):
                a.copy_(flambeau.from_dlpack(b))
            pairs = [(theirs().item(), mine().item()) for _ in range(steps)]
            worst = max(abs(a - b) / abs(a) for a, b in pairs)
            rows.append(
                (
                    name,
                    f"{pairs[0][0]:.4f} to {pairs[-1][0]:.4f} | {pairs[0][1]:.4f} to {pairs[-1][1]:.4f} | {worst:.1e}",
                )
            )
        except Exception as error:
            traceback.print_exc(limit=-3)
            rows.append((name, f"{type(error).__name__}: {str(error)[:120]} | | "))
        print(*rows[-1], sep=": ", flush=True)
    return rows


def run(cases: dict[str, Make], timer: Any, repeat: int, rounds: int) -> list[tuple[str, str]]:
    rows = []
    for name, make in cases.items():
        try:
            rows.append(compare(name, make, timer, repeat, rounds))
        except Exception as error:
            traceback.print_exc(limit=-3)
            rows.append((name, f"{type(error).__name__}: {str(error)[:120]} | | "))
        print(*rows[-1], sep=": ", flush=True)
    return rows


PARTS: dict[str, tuple[str, Callable[[], list[tuple[str, str]]]]] = {
    "host": ("Flambeau | PyTorch | ratio", lambda: run(HOST, host_seconds, 1000, 5)),
    "kernels": ("Flambeau | PyTorch | ratio", lambda: run(KERNELS, device_seconds, 10, 5)),
    "curves": ("PyTorch's loss | Flambeau's loss | largest distance", curves),
    "train": ("Flambeau | PyTorch | ratio", lambda: run(TRAIN, wall_seconds, 5, 3)),
}


def write(part: str, heading: str, rows: list[tuple[str, str]]) -> None:
    """Replace the table of a part in docs/internals/cuda.md."""
    table = "\n".join([f"| | {heading} |", "| --- " + "| --: " * (heading.count("|") + 1) + "|"])
    table += "".join(f"\n| {name} | {figures} |" for name, figures in rows)
    text = DOCS.read_text()
    place = re.compile(rf"(<!-- {part} -->\n).*?(<!-- end -->)", re.S)
    DOCS.write_text(place.sub(lambda m: f"{m[1]}{table}\n{m[2]}", text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="host,kernels,curves,train", help="comma list of host, kernels, curves, train"
    )
    parser.add_argument("--write", action="store_true", help="update docs/internals/cuda.md")
    options = parser.parse_args()
    import torch

    import flambeau

    for lib in (torch, flambeau):
        lib.backends.cuda.matmul.allow_tf32 = lib.backends.cudnn.allow_tf32 = False
    for part in options.only.split(","):
        heading, rows_of = PARTS[part]
        print(f"== {part}", flush=True)
        rows = rows_of()
        if options.write:
            write(part, heading, rows)


if __name__ == "__main__":
    main()

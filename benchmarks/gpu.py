"""Models of real size on one GPU: PyTorch eager, torch.compile, JAX (of GPT-2), Flambeau eager and its compiled step, each in a process of
its own.

    python benchmarks/gpu.py                         # all rows: milliseconds a step, peak memory, share of the GPU's arithmetic
    python benchmarks/gpu.py gpt2-124m resnet50      # some rows
    python benchmarks/gpu.py --contenders flambeau,flambeau.compile
    python benchmarks/gpu.py --where gpt2-124m       # and where the time of a step goes, by kinds of kernels, from the trace

A step is forward, backward, clipping and the optimizer's update, under autocast to bfloat16. MFU counts multiplications and additions of
matrix products, convolutions and attention (backward twice the forward) against 989 TFLOP/s, the dense bfloat16 peak of an H100 or H200;
`--peak` is another GPU's. A step of decoding is 128 tokens of one sequence.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTENDERS = ("torch", "torch.compile", "jax", "flambeau", "flambeau.compile")
JAX = ("gpt2-124m", "gpt2-350m")  # rows that jax_gpu.py has
DEVICE = "cuda"


# -- models ---------------------------------------------------------------------------------------------------------------


def language_models(torch: Any) -> Any:
    """GPT-2 and a Llama-like model, as classes over the library that is measured."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, d: int, heads: int):
            super().__init__()
            self.norm1, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.norm2, self.up, self.down, self.heads = (
                nn.LayerNorm(d),
                nn.Linear(d, 4 * d),
                nn.Linear(4 * d, d),
                heads,
            )

        def forward(self, x: Any, positions: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GatedBlock(nn.Module):
        """Root-mean-square norms, rotary positions, grouped keys, a gated feed-forward part."""

        def __init__(self, d: int, heads: int):
            super().__init__()
            self.norm1, self.norm2, self.heads, self.groups = nn.RMSNorm(d), nn.RMSNorm(d), heads, heads // 4
            width = d // heads
            self.q, self.kv = nn.Linear(d, d, bias=False), nn.Linear(d, 2 * self.groups * width, bias=False)
            self.out, inner = nn.Linear(d, d, bias=False), 8 * d // 3 // 64 * 64
            self.gate, self.up = nn.Linear(d, inner, bias=False), nn.Linear(d, inner, bias=False)
            self.down = nn.Linear(inner, d, bias=False)

        def rotated(self, x: Any, positions: Any) -> Any:
            cos, sin = positions
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        def forward(self, x: Any, positions: Any) -> Any:
            b, t, c = x.shape
            h = self.norm1(x)
            q = self.q(h).view(b, t, self.heads, -1).transpose(1, 2)
            k, v = self.kv(h).view(b, t, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
            q, k = self.rotated(q, positions), self.rotated(k, positions)
            k, v = (p.repeat_interleave(self.heads // self.groups, 1) for p in (k, v))
            y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Model(nn.Module):
        def __init__(self, block: Any, vocabulary: int, length: int, layers: int, d: int, heads: int):
            super().__init__()
            self.gated = block is GatedBlock
            self.tokens = nn.Embedding(vocabulary, d)
            self.positions = None if self.gated else nn.Embedding(length, d)
            self.blocks = nn.ModuleList(block(d, heads) for _ in range(layers))
            self.norm, self.head = (nn.RMSNorm if self.gated else nn.LayerNorm)(d), nn.Linear(d, vocabulary, bias=False)
            self.head.weight = self.tokens.weight
            angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(d // heads // 2) / (d // heads // 2))
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def scores(self, index: Any) -> Any:
            x, n = self.tokens(index), index.shape[1]
            if self.positions is not None:
                x = x + self.positions(torch.arange(n, device=index.device))
            for block in self.blocks:
                x = block(x, (self.cos[:n], self.sin[:n]))
            return self.head(self.norm(x))

        def forward(self, index: Any, targets: Any) -> Any:
            return self.scored(index, targets)[1]

        def scored(self, index: Any, targets: Any) -> tuple:
            logits = self.scores(index)
            return logits, F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    return Model, Block, GatedBlock


def unet(torch: Any) -> Any:
    """A small U-Net of a diffusion model: group norms, silu, time embeddings, attention at the lowest resolution."""
    nn, F = torch.nn, torch.nn.functional

    class Residual(nn.Module):
        def __init__(self, a: int, b: int):
            super().__init__()
            self.norm1, self.conv1, self.time = nn.GroupNorm(32, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(512, b)
            self.norm2, self.conv2 = nn.GroupNorm(32, b), nn.Conv2d(b, b, 3, padding=1)
            self.skip = nn.Identity() if a == b else nn.Conv2d(a, b, 1)

        def forward(self, x: Any, t: Any) -> Any:
            h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.conv2(F.silu(self.norm2(h)))

    class UNet(nn.Module):
        def __init__(self, widths: tuple[int, ...] = (128, 256, 512)):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(128, 512), nn.SiLU(), nn.Linear(512, 512))
            self.first, self.last = nn.Conv2d(3, widths[0], 3, padding=1), nn.Conv2d(widths[0], 3, 3, padding=1)
            pairs = list(zip((widths[0], *widths), widths))
            self.down = nn.ModuleList(Residual(a, b) for a, b in pairs)
            self.shrink = nn.ModuleList(nn.Conv2d(b, b, 3, stride=2, padding=1) for b in widths)
            self.middle = Residual(widths[-1], widths[-1])
            self.qkv, self.out = nn.Linear(widths[-1], 3 * widths[-1]), nn.Linear(widths[-1], widths[-1])
            self.up = nn.ModuleList(Residual(2 * b, a) for a, b in reversed(pairs))

        def forward(self, x: Any, t: Any) -> Any:
            t, kept = self.time(t), []
            x = self.first(x)
            for block, shrink in zip(self.down, self.shrink):
                x = block(x, t)
                kept.append(x)
                x = shrink(x)
            x = self.middle(x, t)
            b, c, h, w = x.shape
            q, k, v = self.qkv(x.flatten(2).transpose(1, 2)).view(b, h * w, 3, 8, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c)
            x = x + self.out(y).transpose(1, 2).view(b, c, h, w)
            for block in self.up:
                x = block(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1), t)
            return self.last(x)

    return UNet()


# -- rows -----------------------------------------------------------------------------------------------------------------


def trained(torch: Any, compiled: bool, model: Any, loss: Callable, optimizer: Any, given: tuple) -> Callable:
    """A training step."""

    def step(*given: Any) -> Any:
        with torch.autocast(DEVICE, torch.bfloat16):
            value = loss(model, *given)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value

    run = torch.compile(step) if compiled else step
    return lambda: run(*given)


def language(kind: int, batch: int, length: int, layers: int, d: int, heads: int, vocabulary: int = 50304) -> Callable:
    def make(torch: Any, compiled: bool) -> tuple[Callable, float]:
        Model, *blocks = language_models(torch)
        model = Model(blocks[kind], vocabulary, length, layers, d, heads).to(DEVICE)
        x = torch.randint(vocabulary, (batch, length), device=DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
        products = sum(p.numel() for p in model.parameters() if p.dim() > 1)
        products -= 0 if model.positions is None else model.positions.weight.numel()
        flops = (
            6 * products * batch * length + 6 * layers * batch * length * length * d
        )  # attention sees half of the pairs
        return trained(torch, compiled, model, lambda m, x, y: m(x, y), optimizer, (x, x.roll(-1, 1))), flops

    return make


def in_parts(torch: Any, compiled: bool, parts: int = 2) -> tuple[Callable, float]:
    """GPT-2 124M as a loop that somebody else wrote: the model alone is compiled, returns scores and loss, and gradients of two batches
    are summed in front of an update."""
    Model, Block, _ = language_models(torch)
    Model.forward = Model.scored
    batch, length, layers, d = 16, 1024, 12, 768
    model = Model(Block, 50304, length, layers, d, 12).to(DEVICE)
    x = torch.randint(50304, (batch, length), device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    run, y = torch.compile(model) if compiled else model, x.roll(-1, 1)

    def step() -> Any:
        for _ in range(parts):
            with torch.autocast(DEVICE, torch.bfloat16):
                _, loss = run(x, y)
            (loss / parts).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    products = sum(p.numel() for p in model.parameters() if p.dim() > 1) - model.positions.weight.numel()
    return step, parts * (6 * products + 6 * layers * length * d) * batch * length


def picture(name: str, batch: int, forward_gflops: float, last: bool = False) -> Callable:
    def make(torch: Any, compiled: bool) -> tuple[Callable, float]:
        import torchvision  # noqa: PLC0415 - rows without it run where it is missing

        model = getattr(torchvision.models, name)().to(DEVICE)
        x, y = torch.randn(batch, 3, 224, 224, device=DEVICE), torch.randint(1000, (batch,), device=DEVICE)
        if last:
            model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        loss = torch.nn.functional.cross_entropy
        step = trained(torch, compiled, model, lambda m, x, y: loss(m(x), y), optimizer, (x, y))
        return step, 3e9 * forward_gflops * batch

    return make


def inference(batch: int) -> Callable:
    def make(torch: Any, compiled: bool) -> tuple[Callable, float]:
        import torchvision  # noqa: PLC0415

        model = torchvision.models.resnet50().to(DEVICE).eval().half().to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, 224, 224, device=DEVICE).half().to(memory_format=torch.channels_last)
        run = torch.compile(model) if compiled else model

        def step() -> Any:
            with torch.no_grad():
                return run(x).float().abs().mean()

        return step, 8.2e9 * batch

    return make


def decoding(grows: bool, tokens: int = 128) -> Callable:
    """Greedy decoding of one sequence by GPT-2 124M in bfloat16, with a cache that each token makes longer, or one of fixed length."""

    def make(torch: Any, compiled: bool) -> tuple[Callable, float]:
        Model, Block, _ = language_models(torch)
        model = Model(Block, 50304, tokens, 12, 768, 12).to(DEVICE).bfloat16().eval()
        F, like = torch.nn.functional, {"device": DEVICE, "dtype": torch.bfloat16}
        caches = [[torch.zeros(1, 12, 0 if grows else tokens, 64, **like) for _ in "kv"] for _ in model.blocks]
        places = torch.arange(tokens, device=DEVICE)

        def attended(block: Any, x: Any, kept: Any, position: Any) -> tuple:
            parts = block.qkv(block.norm1(x)).split(x.shape[-1], 2)
            q, *new = (p.view(1, 1, block.heads, -1).transpose(1, 2) for p in parts)
            if grows:
                kept = [torch.cat(both, 2) for both in zip(kept, new)]
            else:
                for cache, part in zip(kept, new):
                    cache.index_copy_(2, position, part)
            seen = None if grows else (places <= position).view(1, 1, 1, -1)
            y = F.scaled_dot_product_attention(q, *kept, attn_mask=seen)
            return block.out(y.transpose(1, 2).reshape(x.shape)), kept

        def following(token: Any, position: Any, *grown: Any) -> tuple:
            x, made = model.tokens(token) + model.positions(position), []
            for i, block in enumerate(model.blocks):
                y, kept = attended(block, x, grown[2 * i : 2 * i + 2] or caches[i], position)
                made += kept if grows else ()
                x = x + y
                x = x + block.down(F.gelu(block.up(block.norm2(x))))
            return model.head(model.norm(x)).argmax(-1), *made

        run = torch.compile(following) if compiled else following

        def step() -> Any:
            token, position = (torch.zeros(shape, dtype=torch.long, device=DEVICE) for shape in ((1, 1), (1,)))
            grown: list = []
            with torch.no_grad():
                for _ in range(tokens):
                    token, *grown = run(token, position, *grown)
                    position = position + 1
            return token

        return step, 0.0

    return make


def diffusion(torch: Any, compiled: bool) -> tuple[Callable, float]:
    model = unet(torch).to(DEVICE)
    x, t = torch.randn(32, 3, 64, 64, device=DEVICE), torch.randn(32, 128, device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    loss = torch.nn.functional.mse_loss
    return trained(torch, compiled, model, lambda m, x, t: loss(m(x, t), x), optimizer, (x, t)), 0.0


ROWS: dict[str, Callable] = {
    "gpt2-124m": language(0, 16, 1024, 12, 768, 12),
    "gpt2-124m-model": in_parts,
    "gpt2-350m": language(0, 8, 1024, 24, 1024, 16),
    "llama-like-160m": language(1, 16, 1024, 12, 1024, 16, 32000),
    "resnet50": picture("resnet50", 128, 8.2, last=True),
    "vit-b16": picture("vit_b_16", 64, 35.1),
    "convnext-tiny": picture("convnext_tiny", 64, 8.9),
    "mobilenet-v3": picture("mobilenet_v3_large", 128, 0.43, last=True),
    "unet": diffusion,
    "resnet50-inference-1": inference(1),
    "resnet50-inference-64": inference(64),
    "decoding-growing-cache": decoding(True),
    "decoding-fixed-cache": decoding(False),
}  # fmt: skip


# -- measuring ------------------------------------------------------------------------------------------------------------

_KINDS = (
    ("attention", ("sdpa", "flash", "fmha", "attention")),
    ("products and convolutions", ("gemm", "nvjet", "cutlass", "conv", "xmma", "splitk", "implicit")),
    ("copies and fills", ("memcpy", "memset", "join")),
)


def kernels_of(torch: Any, step: Callable) -> list[tuple[str, float]]:
    """Names and milliseconds of the kernels of a step, from the trace. Compiled functions of Flambeau run as they are while its profiler
    looks on, so that what they do otherwise is taken from the driver's own records."""
    with contextlib.suppress(ImportError):
        if "flambeau" in sys.modules:
            from flambeau.backends.nvidia import cupti  # noqa: PLC0415 - only where Flambeau is what is measured

            record = cupti.Recording()
            record.start()
            step()
            torch.cuda.synchronize()
            return [(found.name, (found.end - found.start) / 1e6) for found in record.stop()]
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as trace:
        step()
        torch.cuda.synchronize()
    rows = [row for row in trace.key_averages() if "cuda" in str(row.device_type).lower()]
    return [(row.key, row.self_device_time_total / 1e3) for row in rows]


def where_time_goes(torch: Any, step: Callable) -> dict[str, float]:
    """Milliseconds of a step by kind of kernel."""
    found: dict[str, float] = {}
    for name, ms in kernels_of(torch, step):
        kind = next(
            (k for k, words in _KINDS if any(w in name.lower() for w in words)), "formulas, norms, losses, updates"
        )
        found[kind] = found.get(kind, 0.0) + ms
    return found


def timed(step: Callable, wait: Callable) -> dict[str, Any]:
    """The first call of a step, and the median of later ones."""
    began = time.perf_counter()
    step()
    wait()
    first = time.perf_counter() - began
    for _ in range(6):
        step()
    wait()
    times = []
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(4):
            step()
        wait()
        times.append((time.perf_counter() - began) / 4)
    return {"ms": 1e3 * sorted(times)[3], "first_s": first}


def measured(name: str, contender: str, where: bool) -> dict[str, Any]:
    """Time and memory of one row; of PyTorch or Flambeau, with the library that `import torch` gives."""
    if contender == "jax":
        import jax_gpu  # noqa: PLC0415 - only where it is measured

        return {**timed(jax_gpu.ROWS[name](), lambda: None), "flops": 0.0, "peak_gb": jax_gpu.peak() / 1e9}
    import torch  # noqa: PLC0415 - which one this is, the launcher decides

    torch.manual_seed(0)
    step, flops = ROWS[name](torch, contender.endswith(".compile"))
    result: dict[str, Any] = {**timed(step, torch.cuda.synchronize), "flops": flops}
    result["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    if where:
        result["where"] = where_time_goes(torch, step)
    return result


def in_a_process(name: str, contender: str, where: bool) -> dict[str, Any]:
    launcher = ["-m", "flambeau"] if contender.startswith("flambeau") else []
    command = [sys.executable, *launcher, __file__, "--one", contender, name, *(["--where"] if where else [])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    with contextlib.suppress(IndexError, json.JSONDecodeError):
        return json.loads(done.stdout.strip().splitlines()[-1])
    return {"error": (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help=", ".join(ROWS))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--where", action="store_true", help="also say where the time goes")
    parser.add_argument("--peak", type=float, default=989e12, help="operations a second that the GPU can do")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"there is no row called {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if options.one:
        print(json.dumps(measured(options.rows[0], options.one, options.where)))
        return
    print("| model | contender | ms | MFU | peak GB | first step, s |\n| --- | --- | --: | --: | --: | --: |")
    for name in options.rows or ROWS:
        for contender in options.contenders.split(","):
            if contender == "jax" and name not in JAX:
                continue
            r = in_a_process(name, contender, options.where)
            if "error" in r:
                print(f"| {name} | {contender} | {r['error']} | | | |", flush=True)
                continue
            used = f"{r['flops'] / (r['ms'] / 1e3) / options.peak:.0%}" if r["flops"] else ""
            print(
                f"| {name} | {contender} | {r['ms']:.2f} | {used} | {r['peak_gb']:.1f} | {r['first_s']:.1f} |",
                flush=True,
            )
            for kind, ms in sorted(r.get("where", {}).items(), key=lambda item: -item[1]):
                print(f"| | {kind} | {ms:.2f} | | | |", flush=True)


if __name__ == "__main__":
    main()

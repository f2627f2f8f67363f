"""Flambeau's server beside TorchServe: the same archives, the same load, turn by turn.

    python benchmarks/serving.py --torchserve path/to/torchserve

Without --torchserve only Flambeau's figures are printed. wrk makes the load where it is installed, `flambeau bench-serve`'s
client where not. The machine is shared by servers and load: requests per second of CPU time, of the servers' processes alone,
are the steadier figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from flambeau.serve import archiver, bench  # noqa: E402

ECHO = """
def handle(data, context):
    return None if data is None else [row.get("body") for row in data]
"""
MLP = """
import torch
from torch import nn
from ts.torch_handler.base_handler import BaseHandler

class Handler(BaseHandler):
    def initialize(self, context):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).eval()
        self.device, self.context = torch.device("cpu"), context

    def preprocess(self, data):
        return torch.tensor([row["body"]["x"] for row in data], dtype=torch.float32)
"""
RESNET = """
import torch
from torch import nn
from ts.torch_handler.base_handler import BaseHandler

class Block(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        same = stride == 1 and into == out
        self.short = nn.Identity() if same else nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.short(x))

def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for into, out, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(into, out, stride), Block(out, out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

MODEL = []

def handle(data, context):
    if not MODEL:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        MODEL.append(resnet18().eval())
    if data is None:
        return None
    pixels = [torch.frombuffer(row["body"], dtype=torch.uint8).reshape(3, 224, 224) for row in data]
    with torch.inference_mode():
        best = torch.softmax(MODEL[0](torch.stack(pixels).float() / 255), 1).topk(5)
    return [dict(zip(map(str, c), p)) for c, p in zip(best.indices.tolist(), best.values.tolist())]
"""
GPT = """
import torch
from torch import nn
from ts.torch_handler.base_handler import BaseHandler

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, past):
        B, T, W = x.shape
        q, k, v = (p.reshape(B, T, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, W))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x)))), (k, v)

class Gpt(nn.Module):
    def __init__(self, width=128, heads=4, layers=4):
        super().__init__()
        self.token, self.place = nn.Embedding(256, width), nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, 256)

    def forward(self, tokens, past):
        start = 0 if past is None else past[0][0].shape[2]
        x = self.token(tokens) + self.place(torch.arange(start, start + tokens.shape[1]))
        caches = []
        for i, block in enumerate(self.blocks):
            x, cache = block(x, None if past is None else past[i])
            caches.append(cache)
        return self.head(x), caches

MODEL = []

def handle(data, context):
    if not MODEL:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        MODEL.append(Gpt().eval())
    if data is None:
        return None
    answers = []
    with torch.inference_mode():
        for row in data:
            tokens, past, written = torch.tensor([row["body"]["prompt"]]), None, []
            for _ in range(16):
                logits, past = MODEL[0](tokens, past)
                tokens = logits[:, -1:].argmax(-1)
                written.append(int(tokens))
            answers.append(written)
    return answers
"""
BODIES = {
    "echo": (b'{"a": [1, 2, 3]}', "application/json"),
    "mlp": (json.dumps({"x": [0.5] * 64}).encode(), "application/json"),
    "resnet18": (bytes(range(256)) * 588, "application/octet-stream"),
    "resnet18b": (bytes(range(256)) * 588, "application/octet-stream"),
    "gpt": (json.dumps({"prompt": list(range(16))}).encode(), "application/json"),
}
CASES = [("echo", 8), ("mlp", 8), ("resnet18", 2), ("resnet18b", 16), ("gpt", 2)]
TITLES = {"echo": "echo", "mlp": "MLP 64-128-10", "resnet18": "ResNet-18, batch 1", "resnet18b": "ResNet-18, batches of up to 8",
          "gpt": "GPT, 16 tokens"}  # fmt: skip


def make_archives(store: Path) -> None:
    for name, source in (("echo", ECHO), ("mlp", MLP), ("resnet18", RESNET), ("resnet18b", RESNET), ("gpt", GPT)):
        (store / f"{name}_handler.py").write_text(source)
        archiver.package_model(name, version="1.0", handler=str(store / f"{name}_handler.py"), export_path=str(store))


class Peer:
    """A server under test, in a folder of its own."""

    def __init__(self, name: str, command: list[str], port: int, store: Path, environment: dict[str, str]):
        self.name, self.port = name, port
        self.folder = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
        (self.folder / "config.properties").write_text(
            f"inference_address=http://127.0.0.1:{port}\nmanagement_address=http://127.0.0.1:{port + 1}\n"
            f"metrics_address=http://127.0.0.1:{port + 2}\ngrpc_inference_port={port + 3}\ngrpc_management_port={port + 4}\n"
            "disable_token_authorization=true\nenable_model_api=true\ndefault_workers_per_model=1\n"
            f"initial_worker_port={port + 100}\n"
        )
        start = time.perf_counter()
        arguments = [
            "--start",
            "--foreground",
            "--ncs",
            "--ts-config",
            "config.properties",
            "--model-store",
            str(store),
            "--models",
            "echo=echo.mar",
        ]
        temporary = self.folder / "tmp"
        temporary.mkdir()
        self.process = subprocess.Popen(
            [*command, *arguments], cwd=self.folder, stdout=(self.folder / "out.txt").open("w"), stderr=subprocess.STDOUT,
            env={**environment, "TMPDIR": str(temporary), "TEMP": str(temporary)}, start_new_session=True,
        )  # fmt: skip
        while not self.answers():
            if self.process.poll() is not None or time.perf_counter() - start > 180:
                raise RuntimeError(f"{name} did not start: {(self.folder / 'out.txt').read_text()[-2000:]}")
            time.sleep(0.01)
        self.ready = time.perf_counter() - start
        self.memory = self.resident()

    def answers(self) -> bool:
        try:
            body, kind = BODIES["echo"]
            request = urllib.request.Request(
                f"http://127.0.0.1:{self.port}/predictions/echo", body, {"Content-Type": kind}
            )
            return urllib.request.urlopen(request, timeout=30).status == 200
        except OSError:
            return False

    def processes(self) -> list[int]:
        """The server's process and all below it."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except OSError:
                    continue
        found = {self.process.pid}
        while more := {p for p, parent in parents.items() if parent in found} - found:
            found |= more
        return sorted(found)

    def cpu(self) -> float:
        total = 0
        for pid in self.processes():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
            except OSError:
                continue
        return total / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        """Memory in MB, shared pages shared out (PSS)."""
        total = 0
        for pid in self.processes():
            try:
                total += int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])
            except (OSError, TypeError):
                continue
        return total / 1024

    def register(self, name: str) -> None:
        options = "&batch_size=8&max_batch_delay=20" if name == "resnet18b" else ""
        url = f"http://127.0.0.1:{self.port + 1}/models?url={name}.mar&model_name={name}&initial_workers=1&synchronous=true{options}"
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=120).close()
        except urllib.error.HTTPError as e:
            raise RuntimeError(f"{self.name} does not load {name}: {e.read().decode()}") from e

    def unregister(self, name: str) -> None:
        url = f"http://127.0.0.1:{self.port + 1}/models/{name}"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=120).close()

    def stop(self) -> None:
        below = self.processes()  # TorchServe's command leaves its Java process behind
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(self.folder, ignore_errors=True)


def load(port: int, name: str, connections: int, seconds: float) -> tuple[float, float]:
    """Requests per second and the 99th percentile in ms."""
    url, (body, kind) = f"http://127.0.0.1:{port}/predictions/{name}", BODIES[name]
    if shutil.which("wrk") is None:
        summary = asyncio.run(bench.load(url, body, kind, connections, seconds)).summary()
        return summary["per_second"], summary["p99_ms"]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script, tempfile.NamedTemporaryFile("wb") as content:
        content.write(body)
        content.flush()
        script.write(f'local f = io.open("{content.name}", "rb")\nwrk.method = "POST"\nwrk.body = f:read("*a")\n'
                     f'wrk.headers["Content-Type"] = "{kind}"\n')  # fmt: skip
        script.flush()
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{int(seconds)}s",
            "--timeout",
            "60s",
            "--latency",
            "-s",
            script.name,
            url,
        ]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text:
        raise RuntimeError(text)
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s|m)", text).groups()
    scale = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[unit]
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]), float(number) * scale


def measure(
    peers: list[Peer], name: str, connections: int, seconds: float, rounds: int
) -> dict[str, tuple[float, float, float]]:
    """For each peer the median of its turns: requests/s, p99 in ms, requests per second of the server's CPU time."""
    for peer in peers:
        if name != "echo":
            peer.register(name)
        load(peer.port, name, connections, max(int(seconds) // 2, 1))
    turns: dict[str, list[tuple[float, float, float]]] = {peer.name: [] for peer in peers}
    for _ in range(rounds):
        for peer in peers:
            before = peer.cpu()
            rate, p99 = load(peer.port, name, connections, seconds)
            spent = max(peer.cpu() - before, 0.01)
            turns[peer.name].append((rate, p99, rate * seconds / spent))
    for peer in peers:
        if name != "echo":
            peer.unregister(name)
    return {n: tuple(statistics.median(t[i] for t in rows) for i in range(3)) for n, rows in turns.items()}  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torchserve", help="TorchServe's command, in an environment with PyTorch")
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="one case: " + ", ".join(name for name, _ in CASES))
    options = parser.parse_args()
    store = Path(tempfile.mkdtemp(prefix="bench-store-"))
    make_archives(store)
    plain = dict(os.environ)
    own = [sys.executable, "-m", "flambeau.serve.cli"]
    peers = [Peer("flambeau", own, 18080, store, {**plain, "PYTHONPATH": str(ROOT)})]
    try:
        if options.torchserve:
            path = os.pathsep.join([str(Path(options.torchserve).parent), plain.get("PATH", "")])
            peers.append(Peer("torchserve", [options.torchserve], 19080, store, {**plain, "PATH": path}))
        for peer in peers:
            print(
                f"{peer.name}: first answer after {peer.ready:.2f} s, {peer.memory:.0f} MB with one echo worker",
                flush=True,
            )
        print(
            "\n| case | "
            + " | ".join(f"{p.name} req/s, p99 ms, req/CPU-s" for p in peers)
            + " | ratio req/s | ratio req/CPU-s |"
        )
        print("| --- |" + " --: |" * (len(peers) + 2), flush=True)
        for name, connections in CASES:
            if options.only in (None, name):
                got = measure(peers, name, connections, options.seconds, options.rounds)
                cells = [f"{got[p.name][0]:.0f}, {got[p.name][1]:.1f}, {got[p.name][2]:.0f}" for p in peers]
                ours, theirs = got["flambeau"], got.get("torchserve")
                ratios = [f"{ours[i] / theirs[i]:.2f}" for i in (0, 2)] if theirs else ["", ""]
                print(f"| {TITLES[name]} | " + " | ".join(cells + ratios) + " |", flush=True)
    finally:
        for peer in peers:
            peer.stop()
        shutil.rmtree(store, ignore_errors=True)


if __name__ == "__main__":
    main()

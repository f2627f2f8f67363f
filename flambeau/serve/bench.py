"""`flambeau bench-serve`: sends requests to a server as fast as it answers, or at a given rate, and reports latencies."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core import svg

_WIDTH = 40


@dataclass
class Results:
    """The observations of a run: latencies in ms of answered requests, counts by status, failures to connect."""

    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: int = 0
    seconds: float = 0.0

    def quantile(self, q: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")

    def summary(self) -> dict[str, Any]:
        answered = len(self.latencies)
        return {
            "requests": answered,
            "per_second": round(answered / self.seconds, 1) if self.seconds else 0.0,
            "mean_ms": round(sum(self.latencies) / answered, 3) if answered else None,
            **{f"p{int(q * 100)}_ms": round(self.quantile(q), 3) for q in (0.5, 0.9, 0.99) if answered},
            "statuses": {str(k): v for k, v in sorted(self.statuses.items())},
            "failures": self.failures,
        }

    def histogram(self, bins: int = 16) -> list[tuple[float, float, int]]:
        """Return counts in equal bins from zero to the 99.5th percentile; the last bin contains all above."""
        if not self.latencies:
            return []
        step = max(self.quantile(0.995), 1e-6) / bins
        counts = [0] * bins
        for value in self.latencies:
            counts[min(int(value / step), bins - 1)] += 1
        return [(i * step, (i + 1) * step, c) for i, c in enumerate(counts)]


async def _send_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bool]:
    """Send a request and read the answer; return its status, and whether the connection stays open."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    status = int(lines[0].split()[1])
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in lines[1:])}
    if headers.get(b"transfer-encoding") == b"chunked":
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    else:
        await reader.readexactly(int(headers.get(b"content-length", b"0")))
    return status, headers.get(b"connection", b"").lower() != b"close"


async def _run_client(
    url: urllib.parse.SplitResult, request: bytes, until: float, pace: float, first: float, results: Results
) -> None:
    """Run one client until a point in time: it sends the next request after each answer, or by its schedule at a given rate."""
    loop = asyncio.get_running_loop()
    writer: asyncio.StreamWriter | None = None
    turn = first
    while loop.time() < until:
        if pace:
            await asyncio.sleep(max(turn - loop.time(), 0))
        start = turn if pace else loop.time()  # a request that had to wait for its turn waited for the server
        turn += pace
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection(url.hostname, url.port or 80, limit=1 << 26)
            status, stays = await _send_request(reader, writer, request)
            results.statuses[status] += 1
            results.latencies.append((loop.time() - start) * 1000)
        except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
            results.failures += 1
            stays = False
            await asyncio.sleep(0.01)
        if not stays and writer is not None:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()


async def load(
    address: str, body: bytes, content_type: str, connections: int, seconds: float, rate: float = 0.0, key: str = ""
) -> Results:
    """Run the load test and return its measurements. `rate` is in requests per second; 0 sends as fast as answers come."""
    url = urllib.parse.urlsplit(address)
    if url.scheme != "http" or not url.hostname:
        raise ValueError(f"an address such as http://127.0.0.1:8080/predictions/name is expected, got {address!r}")
    method = "POST" if body else "GET"
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    head = f"{method} {path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(body)}\r\nContent-Type: {content_type}\r\n"
    head += f"Authorization: Bearer {key}\r\n" if key else ""
    request = head.encode() + b"\r\n" + body
    results = Results()
    loop = asyncio.get_running_loop()
    start = loop.time()
    pace = connections / rate if rate else 0.0
    clients = (
        _run_client(url, request, start + seconds, pace, start + i * pace / connections, results)
        for i in range(connections)
    )
    await asyncio.gather(*clients)
    results.seconds = loop.time() - start
    return results


def text(results: Results) -> str:
    """Return the statistics and a histogram as text for a terminal."""
    lines = [f"{name:<12} {value}" for name, value in results.summary().items()]
    bins = results.histogram()
    most = max((count for _, _, count in bins), default=1)
    lines += [
        f"{low:9.2f} - {high:8.2f} ms {'#' * round(_WIDTH * count / most):<{_WIDTH}} {count}"
        for low, high, count in bins
    ]
    return "\n".join(lines)


def picture(results: Results, title: str) -> svg.Drawing:
    """Return the histogram as an SVG image."""
    bins = results.histogram(48)
    most = max((count for _, _, count in bins), default=1)
    width, height, left, base = 720, 320, 50, 270
    step = (width - left - 20) / max(len(bins), 1)
    parts = [
        svg.text(left, 24, f"{title}: {results.summary()['per_second']} requests/s", font_size=14),
        svg.text(left, height - 12, "latency in ms", font_size=12),
    ]
    for i, (low, high, count) in enumerate(bins):
        size, told = 210 * count / most, f"{low:.2f} to {high:.2f} ms: {count}"
        parts.append(svg.rect(left + i * step, base - size, step - 1, size, told, fill="#d9480f"))
        if i % 8 == 0:
            parts.append(svg.text(left + i * step, base + 16, f"{low:.1f}"))
    end = bins[-1][1] if bins else 1.0
    for q in (0.5, 0.9, 0.99):
        x = left + (width - left - 20) * min(results.quantile(q) / end, 1.0)
        parts.append(svg.line(x, 45, x, base, stroke="#333", stroke_dasharray=3))
        beside = {"x": x - 3, "text_anchor": "end"} if x > width - 90 else {"x": x + 3}
        parts.append(svg.text(y=56, words=f"p{int(q * 100)} {results.quantile(q):.2f}", **beside))
    return svg.document(width, height, parts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", help="for example http://127.0.0.1:8080/predictions/resnet18")
    parser.add_argument("-d", "--data", default="", help="the body, or @file")
    parser.add_argument("-t", "--content-type", default="application/json")
    parser.add_argument("-c", "--connections", type=int, default=8)
    parser.add_argument("-s", "--seconds", type=float, default=10.0)
    parser.add_argument("-r", "--rate", type=float, default=0.0, help="requests per second (as fast as answers come)")
    parser.add_argument("-k", "--key", default="", help="the inference key, where the server asks for one")
    parser.add_argument("-o", "--output", help="where to draw the histogram (.svg)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command `flambeau bench-serve`; return its exit code."""
    body = Path(options.data[1:]).read_bytes() if options.data.startswith("@") else options.data.encode()
    try:
        results = asyncio.run(
            load(
                options.address,
                body,
                options.content_type,
                options.connections,
                options.seconds,
                options.rate,
                options.key,
            )
        )
    except ValueError as e:
        print(f"flambeau bench-serve: {e}", file=sys.stderr)
        return 2
    print(json.dumps(results.summary()) if options.json else text(results))
    if options.output:
        picture(results, options.address).save(options.output)
        print(f"drew {options.output} ({time.strftime('%H:%M:%S')})", file=sys.stderr)
    return 0 if results.latencies else 1

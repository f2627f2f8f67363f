"""A server under attack by ordinary life: load, workers killed, models coming and going, clients that leave.

    python benchmarks/serving_soak.py --seconds 600

Finds the server's capacity, then asks at 80% of it while every 5 s a worker is killed, a model is registered and unregistered,
and clients drop their connections. Every request must get an answer, memory must stay flat, and at 5 times the capacity the
server must refuse (503) instead of falling over. Prints the figures and exits with 1 if one is not as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from flambeau.serve import archiver, bench  # noqa: E402
from flambeau.serve.errors import ServeError  # noqa: E402
from flambeau.serve.models import resident_bytes  # noqa: E402
from flambeau.serve.registry import Registration  # noqa: E402
from flambeau.serve.server import Server  # noqa: E402
from flambeau.serve.settings import Settings  # noqa: E402

HANDLER = """
import time

def handle(data, context):
    if data is None:
        return None
    time.sleep(0.004)
    return [row.get("body") for row in data]
"""
BODY = b'{"x": [1, 2, 3]}'


async def trouble(server: Server, until: float, counts: dict[str, int]) -> None:
    """Kills a worker, lets a model come and go, and leaves connections in the middle, every 5 s."""
    loop = asyncio.get_running_loop()
    port = server.addresses["inference"].port
    while loop.time() < until:
        await asyncio.sleep(min(5.0, max(until - loop.time(), 0)))
        workers = [w for w in server.registry.get("soak").workers if w.pid and w.transport is not None]
        if workers:
            os.kill(workers[counts["killed"] % len(workers)].pid, signal.SIGKILL)
            counts["killed"] += 1
        try:
            await server.registry.register(Registration("soak.mar", "passing", initial_workers=1))
            await server.registry.unregister("passing", None)
            counts["registered"] += 1
        except ServeError as e:
            counts["refused"] += 1
            print("registering was refused:", e.message)
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /predictions/soak HTTP/1.1\r\nHost: a\r\nContent-Length: 16\r\n\r\n" + BODY)
            await asyncio.sleep(0)
            writer.transport.abort()
            counts["dropped"] += 1


async def overload(address: str, seconds: float, rate: float) -> dict:
    """The load of another process: this one's clients would take the server's time."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "flambeau.cli", "bench-serve", address, "-d", BODY.decode(), "-c", "200", "-s", str(seconds),
        "-r", str(rate), "--json", stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    out, _ = await process.communicate()
    return json.loads(out)


async def soak(seconds: float, store: Path) -> int:
    settings = Settings(
        {"model_store": str(store), "disable_token_authorization": "true", "inference_address": "http://127.0.0.1:0",
         "management_address": "http://127.0.0.1:0", "metrics_address": "http://127.0.0.1:0", "grpc_inference_port": "-1",
         "disable_system_metrics": "true"},
        snapshots=False,
    )  # fmt: skip
    failed = 0

    def check(good: bool, words: str) -> None:
        nonlocal failed
        failed += not good
        print("ok   " if good else "WRONG", words, flush=True)

    async with Server(settings, console=False) as server:
        await server.registry.register(Registration("soak.mar", "soak", initial_workers=2))
        address = f"{server.addresses['inference']}/predictions/soak"
        await bench.load(address, BODY, "application/json", 4, 2.0)
        capacity = (await bench.load(address, BODY, "application/json", 16, 4.0)).summary()["per_second"]
        print(f"capacity {capacity:.0f} requests/s")
        memory = [resident_bytes(os.getpid())]
        counts = {"killed": 0, "registered": 0, "refused": 0, "dropped": 0}
        until = asyncio.get_running_loop().time() + seconds
        side = asyncio.ensure_future(trouble(server, until, counts))
        results = bench.Results()
        while asyncio.get_running_loop().time() < until:
            left = min(until - asyncio.get_running_loop().time(), seconds / 10)
            part = await bench.load(address, BODY, "application/json", 16, max(left, 0.1), 0.8 * capacity)
            results.latencies += part.latencies
            results.statuses.update(part.statuses)
            results.failures += part.failures
            results.seconds += part.seconds
            memory.append(resident_bytes(os.getpid()) - 32 * len(results.latencies))  # less what this program keeps
        await side
        print(json.dumps(results.summary()), counts)
        check(results.failures == 0, f"{results.failures} requests without an answer")
        good = results.statuses[200] / max(sum(results.statuses.values()), 1)
        check(good > 0.98, f"{100 * good:.2f}% answered with 200")
        check(counts["refused"] == 0, f"{counts['registered']} models came and went")
        later, first = max(memory[len(memory) // 2 :]), memory[min(2, len(memory) - 1)]
        check(later < 1.05 * first, f"memory {first / 1e6:.1f} MB early, {later / 1e6:.1f} MB late")
        over = await overload(address, max(seconds / 10, 3.0), 5 * capacity)
        print("at 5 times the capacity:", json.dumps(over))
        check(set(over["statuses"]) <= {"200", "503"} and "503" in over["statuses"], "overload is refused with 503")
        done = over["statuses"].get("200", 0) / over["requests"] * over["per_second"]
        check(done > 0.5 * capacity, f"overload does not stop the work: {done:.0f} of {capacity:.0f} requests/s")
        after = await bench.load(address, BODY, "application/json", 4, 2.0)
        check(set(after.statuses) == {200}, "afterwards all is well")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as work:
        store = Path(work)
        os.environ["LOG_LOCATION"] = os.environ["METRICS_LOCATION"] = str(store / "logs")
        (store / "soak_handler.py").write_text(HANDLER)
        archiver.package_model("soak", version="1.0", handler=str(store / "soak_handler.py"), export_path=work)
        start = time.perf_counter()
        failed = asyncio.run(soak(options.seconds, store))
        print(f"{time.perf_counter() - start:.0f} s, {failed} wrong")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())

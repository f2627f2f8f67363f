"""The `flambeau` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from . import launch
from .config import show
from .kernels import cache
from .serve import bench, quick
from .utils import im2rec


def _info(options: argparse.Namespace) -> int:
    print(show())
    return 0


def _cache(options: argparse.Namespace) -> int:
    if options.action == "clear":
        before = cache.info()
        cache.clear()
        print(f"removed {before['files']} kernels, {before['bytes'] / 1e6:.1f} MB, from {before['path']}")
    else:
        facts = cache.info()
        print(f"{facts['files']} kernels, {facts['bytes'] / 1e6:.1f} MB, in {facts['path']}")
    return 0


def _demo(options: argparse.Namespace) -> int:
    from .demo import main as run_demo  # noqa: PLC0415  only this command needs it

    run_demo(options.epochs, options.output, options.checkpoint, options.resume)
    return 0


def _add_serving(commands: Any) -> None:
    served = commands.add_parser("serve", help="serve models over HTTP: flambeau serve resnet18.pt")
    quick.add_arguments(served)
    loaded = commands.add_parser("bench-serve", help="ask a server as fast as it answers, and draw the latencies")
    bench.add_arguments(loaded)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="flambeau", description="Flambeau: deep learning with PyTorch's interface.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="versions, CPU features, threads, libraries, cache")
    info.set_defaults(run=_info)
    cached = commands.add_parser("cache", help="compiled kernels kept on disk")
    cached.add_argument("action", choices=["show", "clear"])
    cached.set_defaults(run=_cache)
    commands.add_parser("run", help="run a program written for PyTorch: flambeau run script.py arguments...")
    demo = commands.add_parser("demo", help="train a convolutional network on the shipped digits")
    demo.add_argument("--epochs", type=int, default=15)
    demo.add_argument("--output", default="digits.png", help="where to draw curves and predictions")
    demo.add_argument("--checkpoint", default="digits.pt", help="written after each epoch")
    demo.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    demo.set_defaults(run=_demo)
    _add_serving(commands)
    records = commands.add_parser("im2rec", help="lists of images, and RecordIO files of the images in a list")
    im2rec.add_arguments(records)
    records.set_defaults(run=im2rec.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["run"]:  # what follows belongs to the program, options too
        launch.run(arguments[1:])
        return 0
    options = build_parser().parse_args(arguments)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())

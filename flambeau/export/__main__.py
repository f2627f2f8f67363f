"""Models out of Python, from the command line.

    python -m flambeau.export model.pt --onnx model.onnx --input 1x3x224x224
    python -m flambeau.export model.pt --torchscript scripted.pt --input 1x3x224x224
    python -m flambeau.export package.models:resnet18 --library folder --input 1x3x224x224:float32
    python -m flambeau.export model.pt --library --input 1x3x224x224

The last line writes the library beside a TorchScript archive (model.pt.native), where C++'s `torch::jit::load` finds it.
The model is a TorchScript archive, a whole module saved with `save` (its file is trusted: loading runs code in it), an ONNX file, or
`module:name` of a function or class that makes one. Inputs are random numbers (zeros, if integers) of the given shapes.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flambeau

from ..core.dtype import BY_NAME
from ..nn import Module

_BESIDE = "\0"  # no folder is called so


def _input(text: str) -> Any:
    """Parse the description of an input: `1x3x224x224:float32`, `8x16:int64`."""
    shape, _, kind = text.partition(":")
    if kind and kind not in BY_NAME:
        raise argparse.ArgumentTypeError(f"{kind!r} is no dtype")
    try:
        sizes = [int(n) for n in shape.replace(",", "x").split("x") if n]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shape!r} is no shape: write 1x3x224x224") from None
    dtype = BY_NAME[kind or "float32"]
    return flambeau.randn(sizes, dtype=dtype) if dtype.is_floating_point else flambeau.zeros(sizes, dtype=dtype)


def _load(what: str) -> Any:
    if not os.path.exists(what):
        module, colon, name = what.partition(":")
        if not colon:
            raise SystemExit(f"{what}: there is no such file (and it is not module:name)")
        sys.path.insert(0, os.getcwd())
        found = getattr(importlib.import_module(module), name)
        return found if isinstance(found, Module) else found()
    if what.endswith(".onnx"):
        return flambeau.onnx.load(what)
    try:
        return flambeau.jit.load(what)
    except RuntimeError as problem:
        found = flambeau.load(what, weights_only=False)
        if isinstance(found, Module):
            return found
        raise SystemExit(
            f"{what} holds {type(found).__name__}, no model ({problem}); of a state dict, name the class that it is for: module:name"
        ) from None


class _Steps:
    """Progress messages on stderr, one line for each step, with the time since the start."""

    def __init__(self, quiet: bool) -> None:
        self.quiet, self.started = quiet, time.perf_counter()

    def __call__(self, text: str) -> None:
        if not self.quiet:
            os.write(2, f"{time.perf_counter() - self.started:7.1f} s  {text}\n".encode())


def _compile_script(model: Any, inputs: tuple) -> Any:
    if isinstance(model, flambeau.jit.ScriptModule):
        return model
    return flambeau.jit.trace(model, inputs) if inputs else flambeau.jit.script(model)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m flambeau.export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--onnx", metavar="FILE")
    parser.add_argument("--torchscript", metavar="FILE")
    parser.add_argument(
        "--library", metavar="FOLDER", nargs="?", const=_BESIDE, help="without a folder: beside the archive"
    )
    parser.add_argument(
        "--input", action="append", type=_input, default=[], help="a shape and dtype; once for each input"
    )
    parser.add_argument("--name", help="of the library")
    parser.add_argument("--static", action="store_true", help="a library to be linked into the program")
    parser.add_argument("--embed-weights", action="store_true", help="weights in the library, not in a file beside it")
    parser.add_argument("--opset", type=int, help="of ONNX")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(argv)
    targets = [t for t in ("onnx", "torchscript", "library") if getattr(options, t)]
    if not targets:
        parser.error("say what to write: --onnx FILE, --torchscript FILE or --library FOLDER")
    inputs = tuple(options.input)
    if not inputs and targets != ["torchscript"]:
        parser.error("--input is needed: the model is run once to see what it does")
    try:
        _export(options, targets, inputs, _Steps(options.quiet))
    except (ModuleNotFoundError, RuntimeError) as problem:
        print(f"{parser.prog}: {problem}", file=sys.stderr)
        return 1
    return 0


def _export(options: argparse.Namespace, targets: list[str], inputs: tuple, say: Callable[[str], None]) -> None:
    say(f"loading {options.model}")
    model = _load(options.model)
    if options.library != _BESIDE:  # a library next to an archive records in which mode that was saved
        model = model.eval()
    elif not isinstance(model, flambeau.jit.ScriptModule):
        raise RuntimeError(f"{options.model} is no TorchScript archive: name a folder (--library FOLDER)")
    count = sum(p.numel() for p in model.parameters())
    say(f"{count:,} parameters")
    for target in targets:
        path = _write(target, model, inputs, options, say)
        size = sum(f.stat().st_size for f in ([path] if path.is_file() else path.parent.iterdir()) if f.is_file())
        say(f"wrote {path} ({size / 1e6:.1f} MB)")


def _write(target: str, model: Any, inputs: tuple, options: argparse.Namespace, say: Callable[[str], None]) -> Path:
    if target == "library" and options.library == _BESIDE:
        return flambeau.export_library(model, inputs, archive=options.model, progress=say)
    if target == "library":
        return flambeau.export_library(
            model,
            inputs,
            options.library,
            name=options.name or Path(options.model.partition(":")[2] or options.model).stem,
            static=options.static,
            embed_weights=options.embed_weights,
            progress=say,
        )
    path = Path(getattr(options, target))
    if target == "torchscript":
        say("tracing" if inputs else "scripting")
        _compile_script(model, inputs).save(str(path))
        return path
    say("exporting to ONNX")
    more = {} if options.opset is None else {"opset_version": options.opset}
    flambeau.onnx.export(model, inputs, str(path), dynamo=False, **more)
    return path


if __name__ == "__main__":
    raise SystemExit(main())

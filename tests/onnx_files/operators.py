"""Every operator of PyTorch's database, exported to ONNX and run in onnxruntime.

    python -m tests.onnx_files.operators [--opset 20] [--only REGEX] [--samples 4]

Prints what differs, what has no form, and how many operators are right."""

from __future__ import annotations

import argparse
import collections
import re
import sys
import warnings
from typing import Any

import numpy as np
import onnxruntime

import flambeau
from flambeau.core.tensor import Tensor
from flambeau.onnx.dtypes import array_of
from flambeau.onnx.errors import UnsupportedOperatorError
from flambeau.utils import _pytree as pytree
from tests.door import converted, function_of


class Call(flambeau.nn.Module):
    """One call of an operator: the tensors are the inputs, everything else is fixed."""

    def __init__(self, function: Any, leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.__dict__.update(function=function, leaves=leaves, spec=spec)

    def forward(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def exported(function: Any, args: tuple, kwargs: dict, opset: int) -> tuple[list[Any], list[Any]]:
    """The operator's results here, and those of onnxruntime."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
    module = Call(function, leaves, spec)
    wanted = pytree.tree_leaves(module(*(t.clone() for t in tensors)))
    program = flambeau.onnx.export(module, tensors, opset_version=opset, verbose=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    named = {i.name: array_of(t) for i, t in zip(program.model_proto.graph.input, tensors)}
    needed = {i.name for i in session.get_inputs()}
    return wanted, session.run(None, {k: v for k, v in named.items() if k in needed})


def same(wanted: list[Any], found: list[Any]) -> str:
    if len(wanted) != len(found):
        return f"{len(found)} results instead of {len(wanted)}"
    for a, b in zip(wanted, found):
        a = array_of(a) if isinstance(a, Tensor) else np.asarray(a)
        if a.shape != b.shape:
            return f"shape {b.shape} instead of {a.shape}"
        if a.dtype != b.dtype and a.dtype.kind != b.dtype.kind:
            return f"{b.dtype} instead of {a.dtype}"
        if not np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"values differ by {np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)))}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    counts: collections.Counter = collections.Counter()
    for info in op_db:
        if options.only and not re.search(options.only, info.name):
            continue
        try:
            function = function_of(info.name)
        except AttributeError:
            continue
        problems: collections.Counter = collections.Counter()
        right = 0
        try:
            samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
        except Exception:
            continue
        for sample in samples[:: max(len(samples) // options.samples, 1)][: options.samples]:
            try:
                args, kwargs = converted((sample.input, *sample.args)), converted(sample.kwargs)
                problem = same(*exported(function, args, kwargs, options.opset))
            except UnsupportedOperatorError as error:
                problem = "no form: " + "; ".join(str(error).splitlines()[1:2])
            except Exception as error:
                problem = f"{type(error).__name__}: {str(error).splitlines()[0][:150] if str(error) else ''}"
            if problem:
                problems[problem] += 1
            else:
                right += 1
        kind = (
            "right"
            if right and not problems
            else "partly"
            if right
            else "none"
            if any("no form" in p for p in problems)
            else "wrong"
        )
        counts[kind] += 1
        if problems:
            print(
                f"{kind:7} {info.name} {info.variant_test_name} {right} right;",
                *(f"{n}x {p}" for p, n in problems.items()),
                flush=True,
            )
    print(dict(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""ONNX's own backend tests through `flambeau.onnx.load`.

python -m tests.onnx_files.backend [--kind node] [--only REGEX]
"""

from __future__ import annotations

import argparse
import collections
import glob
import os
import re
import sys
import warnings
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

import flambeau
from flambeau.core.tensor import Tensor
from flambeau.onnx.dtypes import array_of, tensor_of


def given(value: Any) -> Any:
    if isinstance(value, list):
        return [given(v) for v in value]
    if isinstance(value, onnx.TensorProto):
        return given(numpy_helper.to_array(value))
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value
    return None if value is None else tensor_of(np.asarray(value))


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return array_of(value) if isinstance(value, Tensor) else value


def check(wanted: Any, found: Any, rtol: float, atol: float) -> None:
    if isinstance(wanted, list):
        assert len(wanted) == len(found), f"{len(found)} instead of {len(wanted)} elements"
        for a, b in zip(wanted, found):
            check(a, b, rtol, atol)
        return
    if isinstance(wanted, onnx.TensorProto):
        wanted = numpy_helper.to_array(wanted)
    if wanted is None or (isinstance(wanted, np.ndarray) and wanted.dtype == object):
        assert found is None if wanted is None else (np.asarray(found).tolist() == wanted.tolist())
        return
    wanted = np.asarray(wanted)
    assert found.dtype == wanted.dtype, f"{found.dtype} instead of {wanted.dtype}"
    assert found.shape == wanted.shape, f"{found.shape} instead of {wanted.shape}"
    if wanted.dtype.kind not in "biufc":  # bfloat16 and smaller: the last digit may differ
        found, wanted, rtol = found.astype(np.float32), wanted.astype(np.float32), 2e-2
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=max(atol, 1e-6))


def read(path: str, kind: Any) -> Any:
    with open(path, "rb") as file:
        data = file.read()
    if kind.HasField("sequence_type"):
        return [numpy_helper.to_array(t) for t in onnx.SequenceProto.FromString(data).tensor_values]
    if kind.HasField("optional_type"):
        holder = onnx.OptionalProto.FromString(data)
        return numpy_helper.to_optional(holder)
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def run(case: Any) -> None:
    model = case.model if case.model is not None else onnx.load(os.path.join(case.model_dir, "model.onnx"))
    module = flambeau.onnx.load(model)
    sets = case.data_sets
    if sets is None:
        sets = []
        for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set_*"))):
            ins = [
                read(os.path.join(folder, f"input_{i}.pb"), v.type)
                for i, v in enumerate(model.graph.input)
                if os.path.exists(os.path.join(folder, f"input_{i}.pb"))
            ]
            outs = [read(os.path.join(folder, f"output_{i}.pb"), v.type) for i, v in enumerate(model.graph.output)]
            sets.append((ins, outs))
    for inputs, outputs in sets:
        with flambeau.no_grad():
            results = module(*[given(v) for v in inputs])
        results = results if isinstance(results, tuple) else (results,)
        if any(n.op_type.startswith("Bernoulli") for n in model.graph.node):
            continue
        for wanted, found in zip(outputs, results):
            check(wanted, plain(found), case.rtol, case.atol)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="node")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter = collections.Counter()
    for case in load_model_tests(kind=options.kind):
        if not re.search(options.only, case.name):
            continue
        try:
            run(case)
            counts["right"] += 1
        except Exception as error:
            text = " ".join(str(error).split())[:160]
            kind = (
                "differs"
                if isinstance(error, AssertionError)
                else "missing"
                if "no counterpart" in text or "not supported" in text
                else "error"
            )
            counts[kind] += 1
            print(kind, case.name, type(error).__name__, text, flush=True)
    print(dict(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())

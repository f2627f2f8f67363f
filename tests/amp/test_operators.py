"""Every operator under autocast against PyTorch: dtypes of results and gradients exactly, values within the lower precision."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import samples
from answers import judge

import flambeau
from flambeau.ops import OPS

real = judge("torch")
TABLE = {**samples.LOWER, **samples.FLOAT32, **samples.WIDEST, **samples.SPECIAL, **samples.OTHERS}
TOLERANCE = {"bfloat16": 2e-2, "float16": 4e-3}

# Operators of PyTorch's list that are not here: parts of others that nobody calls, and quantization.
ABSENT = {
    "_addmm_activation", "_convolution", "_grid_sampler_2d_cpu_fallback", "_lu_with_info", "_native_multi_head_attention",
    "fake_quantize_per_tensor_affine", "mkldnn_rnn_layer", "multilabel_margin_loss_forward", "nll_loss2d", "reflection_pad1d",
    "reflection_pad2d", "replication_pad1d", "replication_pad2d", "replication_pad3d",
}  # fmt: skip
RENAMED = {"cross_entropy_loss": "cross_entropy"}
PREFIXES = {"nn.functional.": "", "linalg.": "linalg_", "fft.": "fft_", "special.": "special_", "Tensor.": ""}


def dispatcher_name(key: str) -> str:
    """PyTorch's name of the operator that the registry has under `key`."""
    for prefix, instead in PREFIXES.items():
        if key.startswith(prefix):
            return instead + key[len(prefix) :]
    return key


def declared(word: str) -> set[str]:
    """PyTorch's names of the operators whose records say so, other names that have a sample included."""
    found = [(key, op) for key, op in OPS.items() if op.autocast == word]
    return {dispatcher_name(key) for key, _ in found} | {a for _, op in found for a in op.aliases if a in TABLE}


CHOOSING = {dispatcher_name(key) for key, op in OPS.items() if callable(op.autocast) and "::" not in key}


def test_records_say_exactly_what_pytorch_registers():
    registered = {
        name.removeprefix("aten::").partition(".")[0]
        for name in real._C._dispatch_get_all_op_names()
        if name.startswith("aten::") and real._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCPU")
    }
    ours = declared("lower") | declared("float32") | declared("widest") | {"max_pool3d", "cross_entropy"}
    expected = {RENAMED.get(name, name) for name in registered - ABSENT}
    assert expected - ours == set()
    # under several names here: indices wanted or not, one dimension as two, a function of Python around it
    several = {n for n in ours if n.endswith("_with_indices")} | {"max_unpool1d", "grid_sample", "lu"}
    assert ours - expected == several


def test_every_rule_has_a_sample():
    assert set(samples.LOWER) == declared("lower")
    assert set(samples.WIDEST) == declared("widest")
    assert set(samples.FLOAT32) == declared("float32")
    assert {name for name in CHOOSING if name not in samples.SPECIAL} == {"pad"}


def _run(lib: Any, name: str, lower: str, given: str) -> dict[str, Any]:
    call, arrays = TABLE[name]
    dtypes = [given if given != "mixed" else ("float32", lower)[i % 2] for i in range(len(arrays))]
    tensors = [lib.tensor(a).to(getattr(lib, d)).requires_grad_() for a, d in zip(arrays, dtypes)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lib.autocast("cpu", dtype=getattr(lib, lower)):
            result = call(lib, lib.nn.functional, *tensors)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    found: dict[str, Any] = {f"output {i}": o.detach() for i, o in enumerate(outputs)}
    if outputs[0].requires_grad:
        cotangent = np.random.default_rng(5).standard_normal(outputs[0].shape)
        shares = lib.autograd.grad(outputs[0], tensors, lib.tensor(cotangent).to(outputs[0].dtype), allow_unused=True)
        found.update({f"gradient {i}": g for i, g in enumerate(shares)})
    return found


def _agree(name: str, lower: str, given: str) -> None:
    try:
        theirs = _run(real, name, lower, given)
    except RuntimeError as problem:  # PyTorch has no such kernel; that Flambeau has one is no mistake
        pytest.skip(f"PyTorch refuses: {str(problem)[:60]}")
    ours = _run(flambeau, name, lower, given)
    assert list(ours) == list(theirs)
    for part, expected in theirs.items():
        got = ours[part]
        if expected is None or got is None:
            assert expected is None and got is None, part
            continue
        assert str(got.dtype) == str(expected.dtype), f"{name}: {part}"
        wanted, values = expected.double().numpy(), got.double().numpy()
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(values, wanted, rtol=0, atol=TOLERANCE[lower] * scale, err_msg=f"{name}: {part}")


@pytest.mark.parametrize("name", TABLE)
def test_single_precision_given(name):
    _agree(name, "bfloat16", "float32")


@pytest.mark.parametrize("name", TABLE)
def test_lower_precision_given(name):
    _agree(name, "bfloat16", "bfloat16")


@pytest.mark.parametrize("name", [*samples.LOWER, *samples.WIDEST, "mse_loss", "prod", "add", "gru_cell", "linalg_inv"])
@pytest.mark.parametrize("given", ["float32", "float16", "mixed"])
def test_half_precision(name, given):
    _agree(name, "float16", given)


@pytest.mark.parametrize("name", [n for n, (_, arrays) in TABLE.items() if len(arrays) > 1])
def test_mixed_arguments(name):
    if name in ("dot", "mv", "addmv", "inner of vectors", "tensordot to a number"):
        pytest.skip("operators that autocast leaves alone refuse mixed dtypes")
    _agree(name, "bfloat16", "mixed")

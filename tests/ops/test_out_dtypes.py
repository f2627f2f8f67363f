"""Which dtypes out= may have, operator by operator, as in PyTorch; and results that follow the default dtype."""

from __future__ import annotations

import pytest
from answers import judge

import flambeau

torch = judge("torch")

DTYPES = ("float32", "float64", "float16", "int64", "uint8", "bool", "complex64")


def _every(call, names):
    return dict.fromkeys(names.split(), call)


# name: how many matrices it takes, and what else
CALLS = {
    **_every((1,), "abs ceil floor round trunc frac sign sgn neg signbit isposinf isneginf"),
    **_every((1,), "exp sqrt sin reciprocal isfinite bitwise_not nan_to_num conj_physical logical_not"),
    **dict.fromkeys(
        [
            "tril",
            "triu",
            "msort",
            "inner",
            "mm",
            "add",
            "mul",
            "div",
            "eq",
            "atan2",
            "float_power",
            "heaviside",
            "isin",
            "cross",
            "kron",
        ],
        (2,),
    ),
    **_every((1,), "alias_copy t_copy nonzero diag trace"),
    **_every((1,), "linalg.inv linalg.det linalg.cholesky linalg.svdvals fft.fft"),
    **_every((1, -1), "sum prod amax softmax cumsum cumprod logcumsumexp diff"),
    **_every((1,), "nn.functional.gelu nn.functional.softplus nn.functional.logsigmoid"),
    **{"nn.functional.hardshrink": (1,), "nn.functional.avg_pool2d": (1, 2), "narrow_copy": (1, 0, 0, 2)},
    **{"quantile": (1, 0.5), "histc": (1, 4), "pow": (1, 2), "renorm": (1, 2, 0, 1.0)},
}


def _outcome(library, name, given, kind, out_kind):
    counted, *rest = given
    function = library
    for part in name.split("."):
        function = getattr(function, part)
    rows = [[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]]
    shape = [1] if name.startswith("nn.functional.avg") else []
    tensors = [library.tensor(rows).reshape(*shape, 3, 3).to(getattr(library, kind)) for _ in range(counted)]
    if name in ("tril", "triu", "msort"):
        del tensors[1:]
    out = library.zeros(0, dtype=getattr(library, out_kind))
    try:
        function(*tensors, *rest, out=out)
    except (RuntimeError, TypeError) as problem:
        return type(problem).__name__
    return str(out.dtype), tuple(out.shape)


@pytest.mark.parametrize("name", CALLS)
def test_dtypes_of_out(name):
    for kind in ("float32", "int64", "complex64"):
        for out_kind in DTYPES:
            ours, theirs = (_outcome(lib, name, CALLS[name], kind, out_kind) for lib in (flambeau, torch))
            assert isinstance(ours, str) == isinstance(theirs, str), (kind, out_kind, ours, theirs)
            assert isinstance(ours, str) or ours == theirs, (kind, out_kind)


def test_a_refused_out_is_left_alone():
    out = flambeau.full((2,), 7.0, dtype=flambeau.float64)
    with pytest.raises(RuntimeError, match="dtype float, but got double"):
        flambeau.neg(flambeau.ones(2), out=out)
    assert out.tolist() == [7.0, 7.0] and out._version == 0
    with pytest.raises(TypeError, match="cat.*can't be cast to the desired output type Byte"):
        flambeau.cat([flambeau.ones(2)], out=flambeau.zeros(2, dtype=flambeau.uint8))


@pytest.mark.parametrize("other", ("float64", "float16", "bfloat16"))
def test_results_follow_the_default_dtype(other):
    def dtypes(library):
        whole, mask = library.tensor([1, 2], dtype=library.uint8), library.tensor([True, False])
        results = [
            whole + 5.5,
            whole / 2,
            whole / whole,
            whole.sin(),
            mask * 0.5,
            whole.float_power(2),
            library.ones(1),
        ]
        results += [
            whole.clone().to(library.int64).mul(1.5),
            library.atan2(whole, whole),
            library.where(mask, 1.0, 2.0),
        ]
        return [str(r.dtype) for r in results]

    for library in (flambeau, torch):
        before = dtypes(library)
        library.set_default_dtype(getattr(library, other))
        try:
            changed = dtypes(library)
        finally:
            library.set_default_dtype(library.float32)
        assert dtypes(library) == before
        if library is flambeau:
            ours = before, changed
    assert ours == (before, changed)

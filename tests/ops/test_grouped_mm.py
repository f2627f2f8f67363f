"""Products of groups of rows: PyTorch's results, gradients and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")

SHAPES = {
    "rows": ((8, 16), (3, 16, 32), [2, 5, 8]),
    "an empty group": ((8, 16), (3, 16, 32), [2, 2, 8]),
    "columns of both": ((16, 8), (8, 32), [2, 5, 8]),
    "matrices and columns": ((3, 4, 16), (16, 8), [2, 5, 8]),
    "matrices": ((3, 4, 16), (3, 16, 32), None),
}


def given(library: Any, a: tuple, b: tuple, offs: Any, dtype: str = "float32") -> list[Any]:
    r = np.random.default_rng(0)
    floats = [library.tensor(r.standard_normal(s).astype("float32")).to(getattr(library, dtype)) for s in (a, b)]
    return [*floats, None if offs is None else library.tensor(offs, dtype=library.int32)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", SHAPES)
def test_results_are_those_of_pytorch(case, dtype):
    def run(library: Any) -> Any:
        a, b, offs = given(library, *SHAPES[case], dtype)
        return library.nn.functional.grouped_mm(a, b, offs=offs).float().numpy()

    np.testing.assert_allclose(run(flambeau), run(torch), rtol=1e-2 if dtype == "bfloat16" else 1e-5, atol=1e-5)


@pytest.mark.parametrize("case", SHAPES)
def test_gradients_are_those_of_pytorch(case):
    def run(library: Any) -> Any:
        a, b, offs = given(library, *SHAPES[case])
        a.requires_grad_(), b.requires_grad_()
        out = library._grouped_mm(a, b, offs)
        (out * library.arange(out.numel(), dtype=library.float32).reshape(out.shape).cos()).sum().backward()
        return out.grad_fn.name(), a.grad.numpy(), b.grad.numpy()

    mine, real = run(flambeau), run(torch)
    assert mine[0] == real[0]
    for x, y in zip(mine[1:], real[1:]):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda t, a, b, o: t._grouped_mm(a, b),
        lambda t, a, b, o: t._grouped_mm(a, b, o.long()),
        lambda t, a, b, o: t._grouped_mm(a, b, o[:2]),
        lambda t, a, b, o: t._grouped_mm(a.double(), b.double(), o),
        lambda t, a, b, o: t._grouped_mm(a, b.bfloat16(), o),
        lambda t, a, b, o: t._grouped_mm(a[0], b, o),
        lambda t, a, b, o: t._grouped_mm(a, b, o, bias=b[0, 0]),
        lambda t, a, b, o: t._grouped_mm(a, b, o, out_dtype=t.bfloat16),
    ],
)
def test_errors_are_those_of_pytorch(call):
    def run(library: Any) -> Any:
        with pytest.raises(RuntimeError) as found:
            call(library, *given(library, *SHAPES["rows"]))
        return str(found.value)

    assert run(flambeau) == run(torch)

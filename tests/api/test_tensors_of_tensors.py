"""`Tensor(other)` and subclasses called with a tensor."""

from __future__ import annotations

import pytest

import flambeau


class _Own(flambeau.Tensor):
    pass


@pytest.mark.parametrize("dtype", [flambeau.int64, flambeau.float64, flambeau.bool, flambeau.float32])
def test_a_tensor_of_any_dtype_is_shared(dtype: flambeau.dtype) -> None:
    given = flambeau.ones(3, dtype=dtype)
    for made, kind in ((flambeau.Tensor(given), flambeau.Tensor), (_Own(given), _Own)):
        assert type(made) is kind and made.dtype is dtype
        assert made.data_ptr() == given.data_ptr()
    if dtype is not flambeau.float32:
        with pytest.raises(TypeError, match="expected"):
            flambeau.FloatTensor(given)
